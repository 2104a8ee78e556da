//! The accelerators of QEMU.

use crate::arch::Arch;

/// How the guest's instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    Kvm,
    Tcg,
}

impl Accel {
    pub fn arguments(self, arch: Arch) -> [&'static str; 6] {
        let machine = match (arch, self) {
            (Arch::Amd64, _) => "pc",
            (Arch::Arm64, Self::Kvm) => "virt,gic-version=host",
            (Arch::Arm64, Self::Tcg) => "virt",
        };
        match (self, arch) {
            (Self::Kvm, _) => ["-machine", machine, "-accel", "kvm", "-cpu", "host"],
            (Self::Tcg, Arch::Amd64) => ["-machine", machine, "-accel", "tcg,thread=multi", "-cpu", "max"],
            // The architecture's own algorithm of pointer authentication takes half of the time.
            (Self::Tcg, Arch::Arm64) => {
                ["-machine", machine, "-accel", "tcg,thread=multi", "-cpu", "max,pauth-impdef=on"]
            }
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Tcg => "software emulation (TCG)",
        }
    }
}
