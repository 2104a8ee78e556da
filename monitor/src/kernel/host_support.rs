//! The facilities of this host for the loader: tracefs, permissions, type information.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
};

use monitor_ebpf::KernelOffsets;

use super::btf;
use crate::units::{NOTHING_TO_DO, kernel_text};

const TRACEFS: &str = "/sys/kernel/tracing";
const TRACEFS_OF_OLD: &str = "/sys/kernel/debug/tracing";
const EMPTY_ROOT: &str = "/sys/kernel/btf";
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe";
const KALLSYMS: &str = "/proc/kallsyms";
const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Bits of `CapEff`, from `linux/capability.h`.
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_SYS_RESOURCE: u64 = 1 << 24;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities(u64);

impl Capabilities {
    /// Parses the text of `/proc/self/status`.
    pub fn parse(status: &str) -> Option<Self> {
        let value = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(value.trim(), 16).ok().map(Self)
    }

    pub fn of_this_process() -> Option<Self> {
        Self::parse(&kernel_text::read("/proc/self/status").ok()?)
    }

    /// Returns the names of the missing capabilities that loading and attaching require.
    pub fn lacking(self) -> Vec<&'static str> {
        if self.0 & CAP_SYS_ADMIN != 0 {
            return Vec::new();
        }
        let mut names = Vec::new();
        for (bit, name) in [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")] {
            if self.0 & bit == 0 {
                names.push(name);
            }
        }
        names
    }

    /// Whether CAP_SYS_RESOURCE is there, which lowering an `oom_score_adj` requires too.
    pub const fn may_raise_limits(self) -> bool {
        self.0 & CAP_SYS_RESOURCE != 0
    }
}

/// Before 5.11 maps count against `RLIMIT_MEMLOCK`. Later kernels ignore the limit, so a failure here is not reported.
pub(super) fn raise_memlock_limit() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let _ignored = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
}

/// Returns where tracefs is mounted, if it is.
pub(super) fn mounted_tracefs() -> Result<Option<PathBuf>, String> {
    for place in [TRACEFS, TRACEFS_OF_OLD] {
        match fs::metadata(Path::new(place).join("events")) {
            Ok(_) => return Ok(Some(place.into())),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(format!("{place} is readable by root only: run as root"));
            }
            Err(_) => {}
        }
    }
    Ok(None)
}

/// Returns where tracefs is mounted; mounts it at systemd's place if necessary.
pub(super) fn tracefs() -> Result<PathBuf, String> {
    if let Some(place) = mounted_tracefs()? {
        return Ok(place);
    }
    use rustix::mount::{MountFlags, mount};
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match mount("tracefs", TRACEFS, "tracefs", flags, None) {
        Ok(()) => {
            tracing::info!(path = TRACEFS, "mounted tracefs");
            Ok(TRACEFS.into())
        }
        Err(error) => Err(format!(
            "cannot mount it at {TRACEFS}: {error}; mount it in the host's mount namespace: mount -t tracefs tracefs {TRACEFS}"
        )),
    }
}

/// Reads a tracepoint's format file. An error says why there is none and what to do.
pub(super) fn format_file(tracefs: &Path, category: &str, event: &str) -> Result<String, String> {
    let events = tracefs.join("events");
    let path = events.join(category).join(event).join("format");
    fs::read_to_string(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if !events.join(category).is_dir() => {
            format!("no {category} in this kernel, or its module is not loaded (modprobe {category}, then restart the agent)")
        }
        io::ErrorKind::NotFound => format!("this kernel does not have it; {NOTHING_TO_DO}"),
        _ => format!("cannot read {}: {error}", path.display()),
    })
}

/// Reads the kernel's offsets from its BTF (5 MiB, freed on return).
pub(super) fn kernel_offsets() -> Result<KernelOffsets, String> {
    let raw = fs::read(VMLINUX_BTF)
        .map_err(|error| format!("cannot read {VMLINUX_BTF}: {error}; a kernel with CONFIG_DEBUG_INFO_BTF has it"))?;
    btf::kernel_offsets(&raw).map_err(|error| format!("{VMLINUX_BTF}: {error}"))
}

/// Checks that a kprobe can be attached to a function of the kernel. An error says why not.
pub(super) fn can_probe(function: &str) -> Result<(), String> {
    if !Path::new(KPROBES).exists() {
        return Err(format!("this kernel has no kprobes (CONFIG_KPROBES); {NOTHING_TO_DO}"));
    }
    let symbols = fs::read_to_string(KALLSYMS).map_err(|error| format!("cannot read {KALLSYMS}: {error}"))?;
    // Each line is `address type name [module]`. A name with a suffix is a compiler's partial copy of the function.
    let is_there = symbols.lines().any(|line| line.split_whitespace().nth(2) == Some(function));
    if is_there { Ok(()) } else { Err(format!("this kernel has no function {function}; please report this kernel")) }
}

/// Calls `make` in a thread that cannot see vmlinux' BTF.
///
/// aya's loader parses all of it: 20 MiB and most of the start time, for relocations that this object does not have. The thread gets its
/// own root directory without the file. Where that is refused, the loader only takes longer.
pub(super) fn without_vmlinux_btf<T: Send>(make: fn() -> T) -> T {
    use rustix::{
        process::chroot,
        thread::{UnshareFlags, unshare_unsafe},
    };
    let make_hidden = || {
        // SAFETY: only this thread's root and working directory become its own, and it opens nothing but what `make` does.
        let _refused = unsafe { unshare_unsafe(UnshareFlags::FS) }.and_then(|()| chroot(EMPTY_ROOT));
        make()
    };
    let hidden = thread::scope(|scope| thread::Builder::new().spawn_scoped(scope, make_hidden).ok()?.join().ok());
    hidden.unwrap_or_else(make)
}

/// Whether the memory controller is on the v2 hierarchy, where the helper's cgroup id is the right one.
pub(super) fn memory_is_on_v2(cgroups: &str) -> bool {
    // #subsys_name  hierarchy  num_cgroups  enabled
    cgroups.lines().any(|line| {
        let mut fields = line.split_whitespace();
        fields.next() == Some("memory") && fields.next() == Some("0")
    })
}

#[cfg(test)]
mod tests {
    use super::{Capabilities, memory_is_on_v2};

    #[test]
    fn lacking_capabilities_are_named_one_by_one() {
        for (cap_eff, lacking) in [
            ("000001ffffffffff", vec![]),
            ("0000000000200000", vec![]),
            ("000000c000000000", vec![]),
            ("0000008000000000", vec!["CAP_PERFMON"]),
            ("0000004000000000", vec!["CAP_BPF"]),
            ("0000000000000000", vec!["CAP_BPF", "CAP_PERFMON"]),
        ] {
            let status = format!("Name:\tx\nCapPrm:\t0\nCapEff:\t{cap_eff}\n");
            assert_eq!(Capabilities::parse(&status).expect("parses").lacking(), lacking, "{cap_eff}");
        }
        assert_eq!(Capabilities::parse("Name:\tx\n"), None);
    }

    #[test]
    fn hierarchy_zero_is_v2() {
        let header = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n";
        assert!(memory_is_on_v2(&format!("{header}cpu\t3\t1\t1\nmemory\t0\t77\t1\n")));
        assert!(!memory_is_on_v2(&format!("{header}memory\t5\t77\t1\n")));
        assert!(!memory_is_on_v2(header));
    }
}
