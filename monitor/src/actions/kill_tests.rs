use std::path::Path;

use super::*;
use crate::workloads::WorkloadTree;
use crate::workloads::fixtures::populate;

const POD: &str = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu.slice";

/// Makes a pod's cgroup with these cgroups in it, each with its processes.
fn pod(root: &Path, cgroups: &[(&str, &str)]) {
    let pod = root.join(POD);
    for (name, pids) in [("", "")].iter().chain(cgroups) {
        populate(&pod.join(name), pids);
    }
}

fn writer() -> KillWriter {
    KillWriter::start().unwrap()
}

fn target(root: &Path) -> Target {
    let hierarchy = Hierarchy { version: CgroupVersion::V2, memory: root.to_owned(), freezer: None, hybrid: false };
    let mut tree = WorkloadTree::new(hierarchy.clone(), "/nonexistent".into(), Vec::new());
    tree.scan().unwrap();
    let [tracked] = tree.tracked() else { panic!("{:?}", tree.tracked()) };
    Target::new(tracked, &hierarchy, Path::new("/nonexistent"), None)
}

/// Each row: the cgroups of a pod, and those that are killed as a whole.
#[test]
fn the_monitors_of_crio_outlive_the_pod() {
    for (cgroups, expected) in [
        (&[("cri-containerd-1.scope", "7\n"), ("cri-containerd-2.scope", "8\n")][..], &[""][..]),
        (
            &[("crio-1.scope", "7\n"), ("crio-conmon-1.scope", "5\n"), ("crio-2.scope", "8\n")],
            &["crio-1.scope", "crio-2.scope"],
        ),
    ] {
        let root = tempfile::tempdir().unwrap();
        pod(root.path(), cgroups);
        let mut pids = target(root.path()).kill(&writer()).unwrap().pids;
        pids.sort_unstable();
        assert_eq!(pids, [Pid(7), Pid(8)]);
        let is_killed =
            |name: &str| std::fs::read_to_string(root.path().join(POD).join(name).join("cgroup.kill")).unwrap() == "1";
        let mut killed: Vec<&str> = [""].into_iter().chain(cgroups.iter().map(|(name, _)| *name)).collect();
        killed.retain(|name| is_killed(name));
        assert_eq!(killed, expected);
    }
}

#[test]
fn a_pod_with_only_a_monitor_is_gone() {
    let root = tempfile::tempdir().unwrap();
    pod(root.path(), &[("crio-1.scope", "7\n"), ("crio-conmon-1.scope", "5\n")]);
    let target = target(root.path());
    assert!(!target.is_gone());
    for (file, text) in [("cgroup.procs", ""), ("cgroup.events", "populated 0\n")] {
        std::fs::write(root.path().join(POD).join("crio-1.scope").join(file), text).unwrap();
    }
    assert!(target.is_gone());
    assert!(matches!(target.kill(&writer()), Err(ActionError::Gone)));
}

/// A workload of cgroup v1 with one process, which is frozen, also in a cgroup below; `above` is what `freezer.parent_freezing` says.
fn frozen_on_v1(root: &Path, pid: u32, above: &str) -> Target {
    let write = |path: &str, text: &str| {
        let file = root.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    for (path, text) in [
        ("memory/docker/a/cgroup.procs", format!("{pid}\n")),
        ("memory/docker/a/memory.usage_in_bytes", "4096\n".to_owned()),
        ("memory/docker/a/memory.stat", "total_inactive_file 0\n".to_owned()),
        ("memory/docker/a/memory.soft_limit_in_bytes", "9223372036854771712\n".to_owned()),
        ("memory/docker/a/memory.limit_in_bytes", "9223372036854771712\n".to_owned()),
        ("freezer/docker/a/cgroup.procs", format!("{pid}\n")),
        ("freezer/docker/a/freezer.state", "FROZEN\n".to_owned()),
        ("freezer/docker/a/freezer.parent_freezing", above.to_owned()),
        ("freezer/docker/a/inner/cgroup.procs", String::new()),
        ("freezer/docker/a/inner/freezer.state", "FROZEN\n".to_owned()),
    ] {
        write(path, &text);
    }
    write(&format!("proc/{pid}/cgroup"), "9:memory:/docker/a\n8:freezer:/docker/a\n");
    let (version, memory, freezer) = (CgroupVersion::V1, root.join("memory"), Some(root.join("freezer")));
    let hierarchy = Hierarchy { version, memory, freezer, hybrid: false };
    let mut tree = WorkloadTree::new(hierarchy.clone(), root.join("proc"), Vec::new());
    tree.scan().unwrap();
    let [tracked] = tree.tracked() else { panic!("{:?}", tree.tracked()) };
    Target::new(tracked, &hierarchy, &root.join("proc"), None)
}

/// opencontainers/runc#3134 and #2105, youki-dev/youki#1129: on v1 a paused container outlives SIGKILL, also if only a part of it is paused.
#[test]
fn a_frozen_workload_of_v1_is_thawed_after_sigkill() {
    for (above, is_ended) in [("0\n", true), ("1\n", false)] {
        let root = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let target = frozen_on_v1(root.path(), child.id(), above);
        assert!(target.is_frozen(), "no signal but SIGKILL has an effect");
        let killed = target.kill(&writer());
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(libc::SIGKILL));
        assert_eq!(killed.is_ok(), is_ended, "{killed:?}");
        assert!(is_ended || matches!(killed, Err(ActionError::FrozenFromAbove { .. })), "{killed:?}");
        for cgroup in ["a", "a/inner"] {
            let state = std::fs::read_to_string(root.path().join("freezer/docker").join(cgroup).join("freezer.state"));
            assert_eq!(state.unwrap().trim_end(), "THAWED", "{cgroup}");
        }
    }
}

/// Makes a cgroup of this name without `cgroup.kill` (before Linux 5.14) with one process, and returns the target.
fn target_named(root: &Path, name: &[u8], pid: u32) -> Target {
    target_with(root, name, pid, |kill| std::fs::remove_file(kill).unwrap())
}

/// The same; `prepare` gets the path of `cgroup.kill`.
fn target_with(root: &Path, name: &[u8], pid: u32, prepare: impl FnOnce(&Path)) -> Target {
    use std::os::unix::ffi::OsStrExt as _;
    let cgroup = root.join("cgroup").join(std::ffi::OsStr::from_bytes(name));
    populate(&cgroup, &format!("{pid}\n"));
    prepare(&cgroup.join("cgroup.kill"));
    let process = root.join("proc").join(pid.to_string());
    std::fs::create_dir_all(&process).unwrap();
    std::fs::write(process.join("cgroup"), [b"0::/", name, b"\n"].concat()).unwrap();
    let memory = root.join("cgroup");
    let hierarchy = Hierarchy { version: CgroupVersion::V2, memory, freezer: None, hybrid: false };
    let mut tree = WorkloadTree::new(hierarchy.clone(), root.join("proc"), Vec::new());
    tree.scan().unwrap();
    let [tracked] = tree.tracked() else { panic!("{:?}", tree.tracked()) };
    Target::new(tracked, &hierarchy, &root.join("proc"), None)
}

/// Names that a delegated cgroup's owner may choose: a byte, a cut character, and what looks like an escaped byte.
#[test]
fn processes_in_a_cgroup_of_any_name_are_signalled() {
    for name in [b"\xff".as_slice(), b"caf\xc3", br"\377"] {
        let root = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let target = target_named(root.path(), name, child.id());
        assert!(target.cgroup.is_dir(), "{:?}", target.cgroup);
        assert_eq!(target.terminate().unwrap(), [Pid(child.id().cast_signed())], "{}", target.name);
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    }
}

/// A writer of `cgroup.kill` waits for `cgroup_mutex`, which others can hold for long. A full pipe stands for it.
#[test]
fn a_workload_dies_although_the_write_of_cgroup_kill_hangs() {
    use std::os::unix::process::ExitStatusExt as _;
    let root = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let mut pipe = None;
    let target = target_with(root.path(), b"a", child.id(), |kill| {
        std::fs::remove_file(kill).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, kill, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        let both = rustix::fs::open(kill, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()).unwrap();
        while rustix::io::write(&both, &[0; 4096]).is_ok() {}
        pipe = Some(both);
    });
    let begun = std::time::Instant::now();
    let killed = target.kill(&writer()).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(killed.is_repeated && killed.pids.contains(&Pid(child.id().cast_signed())), "{killed:?}");
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn a_process_that_cannot_be_assigned_is_not_signalled_and_named() {
    let root = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let target = target_named(root.path(), b"a", child.id());
    let cgroup = root.path().join("proc").join(child.id().to_string()).join("cgroup");
    std::fs::remove_file(&cgroup).unwrap();
    std::fs::create_dir(&cgroup).unwrap();
    for outcome in [target.terminate(), target.kill(&writer()).map(|killed| killed.pids)] {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(&child.id().to_string()), "{error}");
    }
    assert!(child.try_wait().unwrap().is_none(), "it lives");
    // One that is in another cgroup by now is neither signalled nor counted.
    std::fs::remove_dir(&cgroup).unwrap();
    std::fs::write(&cgroup, "0::/b\n").unwrap();
    assert!(matches!(target.kill(&writer()), Err(ActionError::StillAlive { .. })), "it is still listed");
    assert!(child.try_wait().unwrap().is_none(), "it lives");
    child.kill().unwrap();
    child.wait().unwrap();
}
