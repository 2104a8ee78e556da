//! The architectures that the agent is built for.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    /// Returns this machine's architecture. The agent is not built on any other.
    pub const fn host() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 }
    }

    pub fn is_host(self) -> bool {
        self == Self::host()
    }

    /// Returns the name that the kernel, GNU and QEMU use.
    pub const fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// Returns Rust's target.
    pub fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.machine())
    }

    /// Returns the name of a program of binutils or gcc for this architecture.
    pub fn tool(self, name: &str) -> String {
        if self.is_host() { name.to_owned() } else { format!("{}-linux-gnu-{name}", self.machine()) }
    }
}

/// Debian's name, which Go and OCI images use as well.
impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        })
    }
}
