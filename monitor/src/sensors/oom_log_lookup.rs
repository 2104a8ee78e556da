//! Completes OOM reports of the kernel's log, which name cgroups by path, from the files of processes and cgroups.

use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::kernel::{CgroupPath, Comm, OomKill};
use crate::node::Hierarchy;
use crate::node::kmsg::OomReport;
use crate::units::{CgroupId, Monotonic, Pid, kernel_text};
use crate::workloads::membership;

/// The directories of the files that complete a report.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) proc_root: &'a Path,
    pub(super) hierarchy: &'a Hierarchy,
}

impl Lookup<'_> {
    /// Adds the facts that the eBPF programs could not read.
    pub(super) fn complete(self, kill: &mut OomKill, report: &OomReport) {
        kill.constraint = kill.constraint.or(report.constraint);
        kill.order = kill.order.or(report.order);
        let limit = || report.limit_cgroup.as_deref().and_then(|path| self.cgroup_id(path));
        kill.limit_cgroup = kill.limit_cgroup.or_else(limit);
    }

    /// Makes a kill from a report alone. `invoked_at_ns` is the same for all kills of one group.
    pub(super) fn kill(self, report: &OomReport, invoked_at_ns: u64, now: Monotonic) -> OomKill {
        // The log may omit the victim's cgroup. While the victim is exiting, /proc still has it.
        let victim = report.victim_cgroup.clone().or_else(|| self.cgroup_of(report.victim_pid));
        let trigger_tid = report.trigger_tid.unwrap_or_default();
        let is_own = trigger_tid == report.victim_pid;
        let trigger = if is_own { victim.clone() } else { self.cgroup_of(trigger_tid) };
        let id = |path: &Option<String>| path.as_deref().and_then(|path| self.cgroup_id(path));
        OomKill {
            at_ns: now.0,
            marked_at_ns: now.0,
            invoked_at_ns: Some(invoked_at_ns),
            started_at_ns: None,
            constraint: report.constraint,
            limit_cgroup: id(&report.limit_cgroup),
            order: report.order,
            victim_pid: report.victim_pid,
            victim_comm: Some(comm(&report.victim_comm)),
            victim_cgroup: id(&victim),
            victim_path: victim.as_deref().map(|path| self.cgroup_path(path)),
            uid: report.uid,
            total_vm: report.total_vm,
            anon_rss: report.anon_rss,
            file_rss: report.file_rss,
            shmem_rss: report.shmem_rss,
            pgtables: report.pgtables,
            oom_score_adj: report.oom_score_adj,
            trigger_pid: self.process_of(trigger_tid).unwrap_or(trigger_tid),
            trigger_tid,
            trigger_comm: report.trigger_comm.as_deref().map(comm).unwrap_or_default(),
            trigger_cgroup: id(&trigger).unwrap_or_default(),
        }
    }

    /// Returns the cgroup of a task that may be exiting; nothing if the cgroup is uncertain.
    fn cgroup_of(self, pid: Pid) -> Option<String> {
        (pid.0 > 0).then(|| membership::of_exiting(self.proc_root, pid, self.hierarchy.version)).flatten()
    }

    fn process_of(self, tid: Pid) -> Option<Pid> {
        let status = kernel_text::read(self.proc_root.join(tid.0.to_string()).join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
        line.trim().parse().ok().map(Pid)
    }

    /// Returns the id of the cgroup at `path` while it exists.
    fn cgroup_id(self, path: &str) -> Option<CgroupId> {
        let directory = self.hierarchy.memory.join(kernel_text::path(path.trim_start_matches('/')));
        std::fs::metadata(directory).ok().map(|metadata| CgroupId(metadata.ino()))
    }

    fn cgroup_path(self, path: &str) -> CgroupPath {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let level = |end| {
            let above: &str = path.get(..end)?;
            let id = self.cgroup_id(above).unwrap_or_default();
            Some((id, above.rsplit('/').next().unwrap_or(above)))
        };
        let levels: Vec<_> = ends.filter_map(level).filter(|(_, name)| !name.is_empty()).collect();
        CgroupPath::new(&levels, false)
    }
}

fn comm(name: &str) -> Comm {
    let mut comm = Comm::default();
    // The last byte stays zero, as in the kernel.
    let room = comm.0.len() - 1;
    let name = kernel_text::path(name).into_os_string().into_vec();
    comm.0.iter_mut().take(room).zip(name).for_each(|(byte, of_name)| *byte = of_name);
    comm
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::CgroupVersion;

    #[test]
    fn names_are_cut_as_the_kernel_cuts_them() {
        assert_eq!(comm("a-name-that-is-too-long").to_string(), "a-name-that-is-");
        assert_eq!(comm("sh").to_string(), "sh");
    }

    #[test]
    fn cgroups_and_processes_are_found_by_their_files() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("pods/a")).unwrap();
        std::fs::create_dir(root.path().join("42")).unwrap();
        std::fs::write(root.path().join("42/status"), "Name:\tx\nTgid:\t7\n").unwrap();
        let memory = root.path().to_owned();
        let hierarchy = Hierarchy { version: CgroupVersion::V2, memory, freezer: None, hybrid: false };
        let lookup = Lookup { proc_root: root.path(), hierarchy: &hierarchy };
        assert_eq!((lookup.process_of(Pid(42)), lookup.process_of(Pid(43))), (Some(Pid(7)), None));
        let id = lookup.cgroup_id("/pods/a").unwrap();
        assert_eq!(lookup.cgroup_id("/pods/b"), None);
        let path = lookup.cgroup_path("/pods/a");
        let levels: Vec<_> = path.levels().map(|(id, name)| (id, name.to_string())).collect();
        assert_eq!(levels, [(lookup.cgroup_id("/pods").unwrap(), "pods".to_owned()), (id, "a".to_owned())]);
    }
}
