//! Programs of Debian's packages that are only unpacked to the cache: installed, they would run as services of this machine.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::apt::Apt;
use crate::arch::Arch;
use crate::paths::find_program;

/// Programs, and the packages that have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The name, also of the directory in the cache.
    name: &'static str,
    packages: &'static [&'static str],
    programs: &'static [&'static str],
    /// The line of a `sources.list` with the packages, if they are not this machine's. Then an installed program is not used either.
    source: Option<&'static str>,
    /// The command that unpacks the packages.
    pub chore: &'static str,
}

/// Runs in the guest.
pub const EARLYOOM: Unpacked = Unpacked {
    name: "earlyoom",
    packages: &["earlyoom"],
    programs: &["earlyoom"],
    source: None,
    chore: "cargo xtask setup",
};
/// Looks at the agent, together with its promtool and the node exporter.
pub const PROMETHEUS: Unpacked = Unpacked {
    name: "prometheus",
    packages: &["prometheus", "prometheus-node-exporter"],
    programs: &["prometheus", "promtool", "prometheus-node-exporter"],
    source: None,
    chore: "cargo xtask setup",
};
/// The store of an API server for the contract tests. Debian 12's 3.4 does not say on request how far a watch is (3.4.31 and 3.5.13 do). The
/// API server's cache then stays behind, and watches end with "Too large resource version".
pub const ETCD: Unpacked = Unpacked {
    name: "etcd",
    packages: &["etcd-server"],
    programs: &["etcd"],
    source: Some("deb http://deb.debian.org/debian trixie main"),
    chore: "cargo xtask contract",
};

impl Unpacked {
    pub fn title(self) -> String {
        format!("{} (unpacked)", self.name)
    }

    /// Returns the directory of the unpacked programs, which may not exist.
    pub fn directory(self, cache: &Path) -> PathBuf {
        cache.join(self.name).join("usr/bin")
    }

    /// Returns a program.
    pub fn program(self, cache: &Path, name: &str) -> Option<PathBuf> {
        let unpacked = self.directory(cache).join(name);
        let installed = if self.source.is_none() { find_program(name) } else { None };
        installed.or_else(|| unpacked.is_file().then_some(unpacked))
    }

    /// Returns the places of all programs.
    pub fn find(self, cache: &Path) -> Option<String> {
        let found = self.programs.iter().map(|name| Some(self.program(cache, name)?.display().to_string()));
        Some(found.collect::<Option<Vec<_>>>()?.join(", "))
    }

    pub fn install(self, apt: &mut Apt, cache: &Path) -> Result<String> {
        let directory = cache.join(self.name);
        match self.source {
            None => apt.unpack(self.packages, &directory)?,
            source => apt.elsewhere(cache, Arch::host(), source)?.unpack(self.packages, &directory)?,
        };
        Ok("downloaded".to_owned())
    }
}
