//! Programs of Debian's packages that are only unpacked to the cache: installed, they would run as services of this machine. Programs of the same
//! names that are installed are not used.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::apt::Apt;
use super::completeness;
use super::need::{Lack, Need, Program};
use crate::arch::Arch;

/// Programs, and the packages that have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The name, also of the directory in the cache.
    name: &'static str,
    packages: &'static [&'static str],
    pub programs: &'static [Program],
    /// The line of a `sources.list` with the packages, if they are not this machine's.
    source: Option<&'static str>,
    /// The command that unpacks the packages.
    pub chore: &'static str,
}

/// Runs in the guest, with the libraries that it finds here.
pub const EARLYOOM: Unpacked = Unpacked {
    name: "earlyoom",
    packages: &["earlyoom"],
    programs: &[Program { name: "earlyoom", needs: &[Need::runs(&["-v"])] }],
    source: None,
    chore: "cargo xtask setup",
};
/// Debian 12's, with which the rules are tested.
const OLDEST_PROMETHEUS: &[u32] = &[2, 42];
/// Looks at the agent, together with its promtool and the node exporter.
pub const PROMETHEUS: Unpacked = Unpacked {
    name: "prometheus",
    packages: &["prometheus", "prometheus-node-exporter"],
    programs: &[
        Program { name: "prometheus", needs: &[Need::version(&["--version"], "version ", &[OLDEST_PROMETHEUS])] },
        Program { name: "promtool", needs: &[Need::version(&["--version"], "version ", &[OLDEST_PROMETHEUS])] },
        Program { name: "prometheus-node-exporter", needs: &[Need::runs(&["--version"])] },
    ],
    source: None,
    chore: "cargo xtask setup",
};
/// The store of an API server for the contract tests. Debian 12's 3.4 does not say on request how far a watch is (3.4.31 and 3.5.13 do). The
/// API server's cache then stays behind, and watches end with "Too large resource version".
pub const ETCD: Unpacked = Unpacked {
    name: "etcd",
    packages: &["etcd-server"],
    programs: &[Program {
        name: "etcd",
        needs: &[Need::version(&["--version"], "etcd Version: ", &[&[3, 4, 31], &[3, 5, 13]])],
    }],
    source: Some("deb http://deb.debian.org/debian trixie main"),
    chore: "cargo xtask contract",
};

/// Debian unstable's containerd, for guests that have Debian's own otherwise. From 2.1 on it frees images after it has answered.
pub const CONTAINERD_2: Unpacked = Unpacked {
    name: "containerd-2",
    packages: &["containerd"],
    programs: &[
        Program { name: "containerd", needs: &[Need::version(&["--version"], "containerd/v2 ", &[&[2, 1]])] },
        Program { name: "ctr", needs: &[Need::version(&["--version"], "containerd/v2 ", &[&[2, 1]])] },
        Program { name: "containerd-shim-runc-v2", needs: &[Need::runs(&["-v"])] },
    ],
    source: Some("deb http://deb.debian.org/debian sid main"),
    chore: "cargo xtask vm --runtime containerd-2",
};

impl Unpacked {
    pub fn title(self) -> String {
        format!("{} (unpacked)", self.name)
    }

    fn tree(self, cache: &Path) -> PathBuf {
        cache.join(self.name)
    }

    /// Returns the directory of the programs, which may not exist.
    pub fn directory(self, cache: &Path) -> PathBuf {
        self.tree(cache).join("usr/bin")
    }

    /// Returns the path of a program if it is usable.
    pub fn program(self, cache: &Path, name: &str) -> Result<PathBuf, Lack> {
        completeness::check(&self.tree(cache))?;
        let program = self.programs.iter().find(|program| program.name == name).ok_or(Lack::Absent)?;
        let path = self.directory(cache).join(name);
        if !path.is_file() {
            return Err(Lack::Absent);
        }
        program.examine(&path).map(|()| path)
    }

    /// Returns the paths of all programs.
    pub fn find(self, cache: &Path) -> Result<String, Lack> {
        let found = self.programs.iter().map(|program| Ok(self.program(cache, program.name)?.display().to_string()));
        Ok(found.collect::<Result<Vec<_>, Lack>>()?.join(", "))
    }

    pub fn install(self, apt: &mut Apt, cache: &Path) -> Result<String> {
        let directory = self.tree(cache);
        match self.source {
            None => apt.unpack(self.packages, &directory)?,
            source => apt.elsewhere(cache, Arch::host(), source)?.unpack(self.packages, &directory)?,
        };
        Ok("downloaded".to_owned())
    }
}
