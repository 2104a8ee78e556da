//! Keeps the agent alive and responsive when memory is short.

use std::path::Path;

use rustix::mm::{Advice, MlockAllFlags, MlockFlags};
use rustix::process::{Resource, Rlimit};

use crate::kernel::Capabilities;
use crate::units::{kernel_text, privileges};

/// The value that the kubelet sets for itself.
const OWN_OOM_SCORE_ADJ: i16 = -999;

/// Of the loop, and of the thread that kills for it. They sleep nearly always, so that this priority costs other processes little.
pub(super) const OWN_NICE: i32 = -10;

/// Locks the agent's memory, and raises its priority and its limit of open files. Returns the failures, each with its
/// consequence.
pub fn apply() -> Vec<String> {
    let mut missing = Vec::new();
    // ONFAULT (Linux 4.4) locks only used pages; pages that are merely mapped cost nothing.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(errno) = rustix::mm::mlockall(flags) {
        missing.push(format!(
            "{LOCKED_MEMORY}: mlockall: {errno}; under pressure the agent may wait for its own pages (needs CAP_IPC_LOCK)"
        ));
    }
    if let Err(errno) = rustix::process::setpriority_process(None, OWN_NICE) {
        missing.push(format!(
            "own priority: cannot set nice {OWN_NICE}: {errno}; on a busy machine the agent may have to wait for a CPU \
             (needs CAP_SYS_NICE)"
        ));
    }
    missing.extend(raise_open_files());
    missing
}

/// Raises the limit of open files as far as the operator allows: a scan holds five to seven of each workload, and one more of each pod until it
/// is visited.
/// Returns what is missing if that fails.
pub fn raise_open_files() -> Option<String> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    raised.err().map(|errno| format!("open files: cannot raise the limit: {errno}"))
}

/// Returns to the kernel what only the start needed: freed memory, and the program's own code. Returns what is missing if
/// the code that stays in use cannot be locked again.
pub fn give_back(proc_root: &Path) -> Option<String> {
    // The C library otherwise keeps memory after large allocations.
    // SAFETY: malloc_trim takes no pointer, and any thread may call it at any time (malloc_trim(3)).
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    let status = kernel_text::read(proc_root.join("self/status")).unwrap_or_default();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let is_locked = locked.is_some_and(|amount| amount.trim() != "0 kB");
    forget_code(is_locked).err().map(|errno| {
        format!("{LOCKED_MEMORY}: cannot lock the program's code again: {errno}; under pressure the agent may wait for its own pages")
    })
}

/// Unmaps the program's own code and constants, so that those used only at start do not stay locked in memory. They stay
/// in the page cache, and page faults map them again, and lock them, sixteen pages at a time.
fn forget_code(is_locked: bool) -> rustix::io::Result<()> {
    let (Ok(maps), Ok(program)) = (kernel_text::read("/proc/self/maps"), std::fs::read_link("/proc/self/exe")) else {
        return Ok(());
    };
    let mut result = Ok(());
    for (start, end) in maps.lines().filter_map(|line| code(line, &program)) {
        let (start, length) = (start as *mut _, end - start);
        // SAFETY: the kernel has just named the range as a read-only mapping of the program's file, and no code unmaps
        // the program. A dropped page is read from the file again at its next use. Locked pages cannot be dropped.
        unsafe {
            let _not_locked = rustix::mm::munlock(start, length);
            let _stays = rustix::mm::madvise(start, length, Advice::LinuxDontNeed);
            if is_locked {
                result = result.and(rustix::mm::mlock_with(start, length, MlockFlags::ONFAULT));
            }
        }
    }
    result
}

/// Returns the range of a line of `/proc/PID/maps` (proc_pid_maps(5)) if the line maps code or constants of the program.
/// The loader writes addresses only into later read-only mappings, never into the one at the file's beginning.
fn code(line: &str, program: &Path) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, permissions, offset, path) = (fields.next()?, fields.next()?, fields.next()?, fields.nth(2)?);
    let (start, end) = range.split_once('-')?;
    let range = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    let is_unwritten = permissions == "r-xp" || permissions == "r--p" && offset.bytes().all(|digit| digit == b'0');
    (is_unwritten && Path::new(path) == program && range.0 < range.1).then_some(range)
}

/// Name of locked memory in the list of degraded capabilities.
const LOCKED_MEMORY: &str = "locked memory";
/// Name of the agent's own score in the list of degraded capabilities.
pub const OWN_SCORE: &str = "own oom_score_adj";
/// Name of the workloads' scores in the list of degraded capabilities.
pub const SCORES: &str = "oom_score_adj";

/// Lowers the agent's own value. Returns the failure, with its consequence. The agent does so before it loads its probes, which
/// takes seconds on a slow machine: where the memory is in a tmpfs, a starting agent is the largest process.
pub fn lower_own_score(proc_root: &Path) -> Option<String> {
    let is_low = own_score(proc_root).is_some_and(|value| value <= OWN_OOM_SCORE_ADJ);
    let failed = if is_low { None } else { set_own_score(proc_root).err() };
    failed.map(|reason| format!("{OWN_SCORE}: {reason}"))
}

/// The value that another process had raised, if any; an error if the agent's own value cannot be set.
pub type OwnScore = Result<Option<i16>, String>;

/// Restores the agent's own value if another process raised it, also in observe mode.
///
/// # Errors
/// When the value cannot be set.
pub fn keep_own_score(proc_root: &Path) -> OwnScore {
    // A lower value is the operator's decision.
    match own_score(proc_root) {
        Some(value) if value > OWN_OOM_SCORE_ADJ => set_own_score(proc_root).map(|()| Some(value)),
        _ => Ok(None),
    }
}

fn own_score(proc_root: &Path) -> Option<i16> {
    std::fs::read_to_string(proc_root.join("self/oom_score_adj")).ok()?.trim().parse().ok()
}

fn set_own_score(proc_root: &Path) -> Result<(), String> {
    let path = proc_root.join("self/oom_score_adj");
    std::fs::write(&path, OWN_OOM_SCORE_ADJ.to_string()).map_err(|error| {
        format!(
            "cannot write {OWN_OOM_SCORE_ADJ} to {}: {error}; the OOM killer may choose the agent (needs CAP_SYS_RESOURCE)",
            path.display()
        )
    })
}

/// Returns what enforce mode cannot do if CAP_SYS_RESOURCE is missing.
pub fn missing_for_scores(proc_root: &Path) -> Option<String> {
    let status = kernel_text::read(proc_root.join("self/status")).unwrap_or_default();
    may_lower(&status).is_some_and(|may| !may).then(|| {
        let mend = privileges::grant("CAP_SYS_RESOURCE", privileges::is_root());
        format!("{SCORES}: no CAP_SYS_RESOURCE: values of workloads can be raised, and not lowered; {mend}")
    })
}

/// Whether this process may lower an `oom_score_adj`; `None` if its capabilities are unreadable.
fn may_lower(status: &str) -> Option<bool> {
    Capabilities::parse(status).map(Capabilities::may_raise_limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_code_is_recognized_in_maps() {
        let program = Path::new("/usr/bin/agent");
        let line =
            |permissions, path| format!("55d0c0a00000-55d0c1900000 {permissions} 00a00000 fe:00 1234      {path}");
        let constants = "55d0c0000000-55d0c0a00000 r--p 00000000 fe:00 1234      /usr/bin/agent";
        assert_eq!(code(constants, program), Some((0x55d0_c000_0000, 0x55d0_c0a0_0000)));
        assert_eq!(code(&line("r-xp", "/usr/bin/agent"), program), Some((0x55d0_c0a0_0000, 0x55d0_c190_0000)));
        for (permissions, path) in
            [("r--p", "/usr/bin/agent"), ("rw-p", "/usr/bin/agent"), ("r-xp", "/lib/libc.so.6"), ("r-xp", "")]
        {
            assert_eq!(code(&line(permissions, path), program), None, "{permissions} {path}");
        }
        let before = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = std::fs::read_link("/proc/self/exe").unwrap();
        assert!(before.lines().filter_map(|line| code(line, &own)).count() > 0);
        assert_eq!(forget_code(false), Ok(()));
    }

    #[test]
    fn the_own_value_is_set_again_when_it_was_raised() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("self/oom_score_adj");
        std::fs::create_dir(root.path().join("self")).unwrap();
        for (found, expected, left) in [
            ("-999\n", None, "-999\n"),
            ("0\n", Some(0), "-999"),
            ("-1000\n", None, "-1000\n"),
            ("-998\n", Some(-998), "-999"),
        ] {
            std::fs::write(&own, found).unwrap();
            assert_eq!(keep_own_score(root.path()), Ok(expected), "{found}");
            assert_eq!(std::fs::read_to_string(&own).unwrap(), left);
        }
        assert_eq!(keep_own_score(Path::new("/nonexistent")), Ok(None));
    }

    #[test]
    fn the_own_value_is_lowered_at_start() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("self/oom_score_adj");
        std::fs::create_dir(root.path().join("self")).unwrap();
        for (found, left) in [("0\n", "-999"), ("-999\n", "-999\n"), ("-1000\n", "-1000\n"), ("unknown", "-999")] {
            std::fs::write(&own, found).unwrap();
            assert_eq!(lower_own_score(root.path()), None, "{found}");
            assert_eq!(std::fs::read_to_string(&own).unwrap(), left);
        }
        assert!(lower_own_score(Path::new("/nonexistent")).is_some_and(|text| text.starts_with(OWN_SCORE)));
    }

    #[test]
    fn root_without_the_capability_is_not_told_to_become_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("self")).unwrap();
        std::fs::write(root.path().join("self/status"), "CapEff:\t0000000000000000\n").unwrap();
        let sentence = missing_for_scores(root.path()).unwrap();
        assert_eq!(sentence.contains("as root"), !privileges::is_root(), "{sentence}");
    }

    #[test]
    fn the_capability_is_one_bit() {
        for (cap_eff, expected) in [("0000000001000000", Some(true)), ("fffffffffeffffff", Some(false)), ("x", None)] {
            assert_eq!(may_lower(&format!("Name:\ta\nCapEff:\t{cap_eff}\n")), expected, "{cap_eff}");
        }
    }
}
