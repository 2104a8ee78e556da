//! Programs of Debian's packages that are only unpacked to the cache: installed, they would run as services of this machine.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::apt::Apt;
use crate::paths::find_program;

/// Programs, and the packages that have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The name, also of the directory in the cache.
    name: &'static str,
    packages: &'static [&'static str],
    programs: &'static [&'static str],
    /// The command that unpacks the packages.
    pub chore: &'static str,
}

/// Runs in the guest.
pub const EARLYOOM: Unpacked =
    Unpacked { name: "earlyoom", packages: &["earlyoom"], programs: &["earlyoom"], chore: "cargo xtask setup" };
/// Looks at the agent, together with its promtool and the node exporter.
pub const PROMETHEUS: Unpacked = Unpacked {
    name: "prometheus",
    packages: &["prometheus", "prometheus-node-exporter"],
    programs: &["prometheus", "promtool", "prometheus-node-exporter"],
    chore: "cargo xtask setup",
};
/// The store of an API server for the contract tests.
pub const ETCD: Unpacked =
    Unpacked { name: "etcd", packages: &["etcd-server"], programs: &["etcd"], chore: "cargo xtask contract" };

impl Unpacked {
    pub fn title(self) -> String {
        format!("{} (unpacked)", self.name)
    }

    /// Returns the directory of the unpacked programs, which may not exist.
    pub fn directory(self, cache: &Path) -> PathBuf {
        cache.join(self.name).join("usr/bin")
    }

    /// Returns a program, installed or unpacked.
    pub fn program(self, cache: &Path, name: &str) -> Option<PathBuf> {
        let unpacked = self.directory(cache).join(name);
        find_program(name).or_else(|| unpacked.is_file().then_some(unpacked))
    }

    /// Returns the places of all programs.
    pub fn find(self, cache: &Path) -> Option<String> {
        let found = self.programs.iter().map(|name| Some(self.program(cache, name)?.display().to_string()));
        Some(found.collect::<Option<Vec<_>>>()?.join(", "))
    }

    pub fn install(self, apt: &mut Apt, cache: &Path) -> Result<String> {
        apt.unpack(self.packages, &cache.join(self.name))?;
        Ok("downloaded".to_owned())
    }
}
