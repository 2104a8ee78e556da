//! A release of Kubernetes whose programs are on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cmd;

/// The programs of an API server.
#[derive(Debug)]
pub struct Release {
    pub api_server: PathBuf,
    pub kubectl: PathBuf,
    /// A release may lack its controller manager.
    pub controller_manager: Option<PathBuf>,
    pub etcd: PathBuf,
    /// The versions: `Kubernetes 1.36.2, etcd 3.4.23`.
    pub versions: String,
}

impl Release {
    /// Finds the programs in a directory that holds at least the API server and kubectl, and asks them their versions.
    pub fn find(directory: &Path, etcd: PathBuf) -> Result<Self> {
        // The programs run in a directory of their own.
        let directory = fs::canonicalize(directory).with_context(|| format!("reading {}", directory.display()))?;
        let api_server = directory.join("kube-apiserver");
        let version = |program: &Path, prefix| {
            let text = cmd::output(Command::new(program).arg("--version"))?;
            let version = version(&text, prefix).map(str::to_owned);
            version.with_context(|| format!("`{} --version` printed no version: {text:?}", program.display()))
        };
        let kubernetes = version(&api_server, "Kubernetes v")?;
        let versions = format!("Kubernetes {kubernetes}, etcd {}", version(&etcd, "etcd Version: ")?);
        let controller_manager = Some(directory.join("kube-controller-manager")).filter(|program| program.is_file());
        Ok(Self { api_server, kubectl: directory.join("kubectl"), controller_manager, etcd, versions })
    }
}

/// Returns the version in the first line with this prefix.
fn version<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(prefix)).map(str::trim).filter(|version| !version.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_programs_print() {
        assert_eq!(version("Kubernetes v1.36.2\n", "Kubernetes v"), Some("1.36.2"));
        let etcd = "etcd Version: 3.4.23\nGit SHA: Not provided\n";
        assert_eq!(version(etcd, "etcd Version: "), Some("3.4.23"));
        assert_eq!(version("Kubernetes v\n", "Kubernetes v"), None);
        assert_eq!(version("", "Kubernetes v"), None);
    }
}
