//! Real API servers, from the releases of Kubernetes that are on this machine.

mod release;
mod server;

use anyhow::{Context as _, Result};

use crate::paths::Workspace;
use crate::setup::unpacked::ETCD;
use crate::setup::{self, Part};
use crate::vm::kubernetes;

pub use self::release::Release;
pub use self::server::Server;

/// Sets up etcd, and returns the releases in the directories of `KUBERNETES_BIN`; none if the variable is not set.
///
/// # Errors
/// When a named directory lacks a program, or etcd cannot be set up.
pub fn releases(workspace: &Workspace) -> Result<Vec<Release>> {
    let directories = kubernetes::api_servers()?;
    if directories.is_empty() {
        return Ok(Vec::new());
    }
    setup::ensure(workspace, &[Part::Unpacked(ETCD)])?;
    let etcd = ETCD.program(&workspace.cache(), "etcd").context("etcd is not there")?;
    directories.iter().map(|directory| Release::find(directory, etcd.clone())).collect()
}
