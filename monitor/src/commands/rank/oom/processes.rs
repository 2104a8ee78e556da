//! The processes of this node, with the kernel's own figures.

use std::fs;
use std::path::Path;

use crate::node::CgroupVersion;
use crate::units::Bytes;
use crate::workloads::cgroup_path;
use crate::workloads::membership;

use super::{OomOrder, Subject};

/// The process that the kernel never chooses, whatever its value is (`oom_unkillable_task`).
const INIT: i32 = 1;

/// Orders the processes of this node. `name` returns how a workload is called.
pub fn of_this_node(
    proc_root: &Path,
    version: CgroupVersion,
    name: impl Fn(&str) -> String,
) -> Result<OomOrder, String> {
    let path = proc_root.join("meminfo");
    let meminfo = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let of = |field: &str| kibibytes(&meminfo, field);
    let memory = of("MemTotal:").ok_or_else(|| format!("{}: no MemTotal", path.display()))?;
    let total = Bytes(memory.0.saturating_add(of("SwapTotal:").unwrap_or_default().0));
    let entries = fs::read_dir(proc_root).map_err(|error| format!("{}: {error}", proc_root.display()))?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let subject = |pid: i32| {
        let path = membership::of(proc_root, &pid.to_string(), version).unwrap_or_default();
        process(proc_root, pid).map(|subject| Subject { workload: name(cgroup_path::workload(&path)), ..subject })
    };
    let subjects = pids.filter(|pid| *pid != INIT).filter_map(subject).collect();
    Ok(OomOrder::of(subjects, total, true))
}

/// Reads a process; none: it has exited, or it is a kernel thread, which has no memory of its own.
fn process(proc_root: &Path, pid: i32) -> Option<Subject> {
    let directory = proc_root.join(pid.to_string());
    // The name may end inside a character.
    let status = String::from_utf8_lossy(&fs::read(directory.join("status")).ok()?).into_owned();
    let of = |field: &str| kibibytes(&status, field);
    let usage = [of("VmRSS:")?, of("VmSwap:").unwrap_or_default(), of("VmPTE:").unwrap_or_default()];
    let adj = fs::read_to_string(directory.join("oom_score_adj")).ok()?.trim().parse().ok()?;
    let comm = fs::read(directory.join("comm")).ok()?;
    Some(Subject {
        workload: String::new(),
        part: String::from_utf8_lossy(&comm).trim_end().to_owned(),
        pid: Some(pid),
        usage: Bytes(usage.iter().map(|bytes| bytes.0).fold(0, u64::saturating_add)),
        adj,
    })
}

/// Returns the field of a file such as `/proc/meminfo`, which counts in kB.
fn kibibytes(text: &str, field: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(Bytes(kibibytes.saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, pid: i32, memory: Option<u64>, adj: i64, path: &str) {
        let directory = root.join(pid.to_string());
        fs::create_dir_all(&directory).unwrap();
        let memory =
            memory.map_or_else(String::new, |kib| format!("VmRSS:\t {kib} kB\nVmPTE:\t 4 kB\nVmSwap:\t 8 kB\n"));
        fs::write(directory.join("status"), format!("Name:\tx\n{memory}")).unwrap();
        fs::write(directory.join("comm"), b"caf\xc3\n").unwrap();
        fs::write(directory.join("oom_score_adj"), format!("{adj}\n")).unwrap();
        fs::write(directory.join("cgroup"), format!("0::{path}\n")).unwrap();
    }

    #[test]
    fn processes_are_ordered_by_memory_swap_page_tables_and_value() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("meminfo"), "MemTotal:  900000 kB\nSwapTotal: 100000 kB\n").unwrap();
        write(root.path(), 1, Some(900_000), 0, "/init.scope");
        write(root.path(), 2, None, 0, "/");
        write(root.path(), 30, Some(99_988), 0, "/system.slice/a.service/inner");
        write(root.path(), 40, Some(9_988), 100, "/kubepods/burstable/podu-1/x");
        write(root.path(), 50, Some(500_000), -1000, "/system.slice/sshd.service");
        let order = of_this_node(root.path(), CgroupVersion::V2, |path| format!("[{path}]")).unwrap();
        assert_eq!((order.total, order.spared), (Bytes(1_000_000 * 1024), 1));
        let found: Vec<_> = order
            .scored
            .iter()
            .map(|it| (it.subject.pid, it.subject.workload.as_str(), it.usage_thousandths, it.score))
            .collect();
        assert_eq!(
            found,
            [(Some(40), "[kubepods/burstable/podu-1]", 10, 110), (Some(30), "[system.slice/a.service]", 100, 100)]
        );
        assert_eq!(order.scored[0].subject.part, "caf\u{fffd}", "a name that ends inside a character");
    }
}
