use std::os::unix::fs::symlink;

use super::*;

/// A machine in files: its procfs, its root directory, and the root directory of a container.
struct Machine {
    directory: tempfile::TempDir,
    unix: String,
    tcp: String,
}

/// A process of a machine: the lines of `status`, `comm` and `oom_score_adj`, and the sockets that it has open.
struct Process {
    uid: u32,
    comm: &'static str,
    score: i16,
    /// A path, or `:PORT`.
    listens: &'static str,
    is_in_container: bool,
}

const ORDINARY: Process = Process { uid: 0, comm: "nginx", score: 0, listens: "", is_in_container: false };

impl Machine {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for path in ["proc/1/net", "root/run", "container/run"] {
            std::fs::create_dir_all(directory.path().join(path)).unwrap();
        }
        symlink(directory.path().join("root"), directory.path().join("proc/1/root")).unwrap();
        let head = |text: &str| format!("{text}\n");
        Self { directory, unix: head("Num RefCount Protocol Flags Type St Inode Path"), tcp: head("sl local_address") }
    }

    /// Adds the process, and returns its pid. Its sockets have the pid as their inode.
    fn add(&mut self, pid: i32, process: &Process) -> Pid {
        let Process { uid, comm, score, listens, is_in_container } = process;
        let own = self.directory.path().join(format!("proc/{pid}"));
        std::fs::create_dir_all(own.join("fd")).unwrap();
        let root = self.directory.path().join(if *is_in_container { "container" } else { "root" });
        symlink(&root, own.join("root")).unwrap();
        for (name, text) in [
            ("status", format!("Name:\t{comm}\nUid:\t{uid}\t0\t0\t0\n")),
            ("comm", format!("{comm}\n")),
            ("oom_score_adj", format!("{score}\n")),
        ] {
            std::fs::write(own.join(name), text).unwrap();
        }
        symlink("/dev/null", own.join("fd/0")).unwrap();
        symlink(format!("socket:[{pid}]"), own.join("fd/3")).unwrap();
        if let Some(port) = listens.strip_prefix(':') {
            let port: u16 = port.parse().unwrap();
            self.tcp += &format!("0: 00000000:{port:04X} 00000000:0000 0A 0:0 00:0 0 {uid} 0 {pid} 1 0 100\n");
        } else if !listens.is_empty() {
            self.unix += &format!("0000000000000000: 00000002 00000000 00010000 0001 01 {pid} {listens}\n");
            let file = below(&root, Path::new(listens));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        // A connected socket of the same path is no sign.
        self.unix += &format!("0000000000000000: 00000003 00000000 00000000 0001 03 9{pid} {listens}\n");
        Pid(pid)
    }

    fn find(&self, pids: &[Pid], kind: &Kind) -> Option<Essential> {
        let proc_root = self.directory.path().join("proc");
        std::fs::write(proc_root.join("1/net/unix"), &self.unix).unwrap();
        std::fs::write(proc_root.join("1/net/tcp"), &self.tcp).unwrap();
        let essentials = Essentials::new(&proc_root, Some(PathBuf::from("/srv/own-runtime")));
        essentials.find(pids, kind, &essentials.signs())
    }
}

#[test]
fn what_the_node_needs_is_found_by_identity() {
    let container = || Kind::Container("c".to_owned());
    let listening = |listens| Process { comm: "x", listens, ..ORDINARY };
    let called = |comm| Process { comm, ..ORDINARY };
    use Protection::{KillExempt, Kubelet, Runtime};
    type Case = (&'static str, Kind, Process, Option<(Protection, &'static str)>);
    let cases: Vec<Case> = vec![
        // EKS: runtime.slice/containerd.service and runtime.slice/kubelet.service.
        ("EKS", Kind::Service, listening("/run/containerd/containerd.sock"), Some((Runtime, "listens on /run/cont"))),
        ("EKS", Kind::Service, listening(":10250"), Some((Kubelet, "listens on port 10250"))),
        ("health", Kind::Service, listening(":10248"), Some((Kubelet, "listens on port 10248"))),
        (
            "the kubelet of any distribution",
            Kind::Service,
            listening("/var/lib/k0s/kubelet/pod-resources/kubelet.sock"),
            Some((Kubelet, "pod-resources")),
        ),
        ("k3s.service", Kind::Service, listening("/run/k3s/containerd/containerd.sock"), Some((Runtime, "k3s"))),
        ("k3s that starts", Kind::Service, called("k3s-server"), Some((Kubelet, "is called k3s-server"))),
        ("rke2", Kind::Service, called("rke2"), Some((Kubelet, "is called rke2"))),
        (
            "snap.microk8s.daemon-containerd.service",
            Kind::Service,
            listening("/var/snap/microk8s/common/run/containerd.sock"),
            Some((Runtime, "microk8s")),
        ),
        ("snap.microk8s.daemon-kubelite.service", Kind::Service, called("kubelite"), Some((Kubelet, "kubelite"))),
        (
            "Talos: podruntime/runtime",
            Kind::Cgroup,
            listening("/run/containerd/containerd.sock"),
            Some((Runtime, "run")),
        ),
        ("Talos: podruntime/kubelet", Kind::Cgroup, listening(":10250"), Some((Kubelet, "10250"))),
        ("cri-dockerd", Kind::Service, listening("/run/cri-dockerd.sock"), Some((Runtime, "cri-dockerd.sock"))),
        ("docker by /var/run", Kind::Service, listening("/run/docker.sock"), Some((Runtime, "docker.sock"))),
        ("configured", Kind::Service, listening("/srv/own-runtime"), Some((Runtime, "own-runtime"))),
        ("a shim", Kind::Scope, listening("/run/containerd/s/0a1b"), Some((Runtime, "/run/containerd/s/0a1b"))),
        ("a shim by name", Kind::Cgroup, called("containerd-shim"), Some((Runtime, "containerd-shim"))),
        (
            "RKE1: the kubelet in a container that shares /var/lib/kubelet",
            container(),
            listening("/lib/device-plugins/kubelet.sock"),
            Some((Kubelet, "device")),
        ),
        ("at -998", Kind::Service, Process { score: -998, ..ORDINARY }, Some((KillExempt, "-998"))),
        ("at -1000 and a user's", Kind::Service, Process { score: -1000, uid: 7, ..ORDINARY }, Some((KillExempt, ""))),
        // These are not exempt.
        ("an ordinary service", Kind::Service, ORDINARY, None),
        ("at -997", Kind::Service, Process { score: -997, ..ORDINARY }, None),
        ("another port", Kind::Service, listening(":8080"), None),
        ("a user on the port", Kind::Service, Process { uid: 1000, ..listening(":10250") }, None),
        ("a user's name", Kind::Scope, Process { uid: 1000, ..called("kubelet") }, None),
        ("a user's socket", Kind::Scope, Process { uid: 1000, ..listening("/run/user/1000/docker.sock") }, None),
        ("a container on the port", container(), listening(":10250"), None),
        ("a container's name", container(), called("containerd"), None),
        (
            "a container's own /run",
            container(),
            Process { is_in_container: true, ..listening("/run/containerd/containerd.sock") },
            None,
        ),
    ];
    for (what, kind, process, expected) in cases {
        let mut machine = Machine::new();
        let (bystander, pid) = (machine.add(70, &ORDINARY), machine.add(77, &process));
        let found = machine.find(&[bystander, pid], &kind);
        assert_eq!(found.as_ref().map(|it| (it.protection, it.pid)), expected.map(|(it, _)| (it, pid)), "{what}");
        let (by, expected) = (found.map(|it| it.by).unwrap_or_default(), expected.map_or("", |(_, by)| by));
        assert!(by.contains(expected), "{what}: {by}");
    }
}

#[test]
fn the_holder_of_the_kubelets_lock_is_the_kubelet() {
    let mut machine = Machine::new();
    let pid = machine.add(77, &ORDINARY);
    let file = machine.directory.path().join("root/run/lock/kubelet.lock");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "").unwrap();
    let found = std::fs::metadata(&file).unwrap();
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let line = format!("1: FLOCK  ADVISORY  WRITE 77 {major:02x}:{minor:02x}:{} 0 EOF\n", found.ino());
    std::fs::write(machine.directory.path().join("proc/locks"), line).unwrap();
    assert_eq!(machine.find(&[pid], &Kind::Service).map(|it| it.protection), Some(Protection::Kubelet));
}

#[test]
fn a_look_reads_what_has_changed_since_the_examination() {
    let mut machine = Machine::new();
    let old = machine.add(70, &ORDINARY);
    let proc_root = machine.directory.path().join("proc");
    let start = |pid: i32, ticks: u64| {
        let stat = format!("{pid} (x) S 1 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 {ticks} 0");
        std::fs::write(proc_root.join(format!("{pid}/stat")), stat).unwrap();
    };
    start(70, 1);
    machine.find(&[], &Kind::Service);
    let essentials = Essentials::new(&proc_root, None);
    let before = essentials.examine_processes(&[old], &Kind::Service, &Arc::new(essentials.signs()));
    assert_eq!((before.protection(), &before.seen), (None, &vec![old]));
    let look = |machine: &Machine, pids: &[Pid]| {
        machine.find(&[], &Kind::Service);
        let found = essentials.find_changed(pids, &Kind::Service, &essentials.signs(), Some(&before));
        found.map(|it| (it.protection, it.pid))
    };
    std::fs::write(proc_root.join("70/status"), "Name:\tcontainerd\nUid:\t0\t0\t0\t0\n").unwrap();
    assert_eq!(look(&machine, &[old]), None, "it is not read again");
    let new = machine.add(77, &Process { comm: "x", listens: "/run/crio/crio.sock", ..ORDINARY });
    assert_eq!(look(&machine, &[old, new]), Some((Protection::Runtime, new)), "a new process");
    assert_eq!(look(&machine, &[old]), Some((Protection::Runtime, old)), "a new socket may be that of an old process");

    // A process that has just started may run another program in a moment.
    start(70, u64::MAX >> 8);
    let before = essentials.examine_processes(&[old], &Kind::Service, &Arc::new(essentials.signs()));
    assert_eq!(before.seen, []);
}

#[test]
fn a_look_reads_few_processes_and_files() {
    let mut machine = Machine::new();
    let pids: Vec<Pid> = (100..300).map(|pid| machine.add(pid, &ORDINARY)).collect();
    for file in 10..2 * LOOK_FILES {
        symlink("/dev/null", machine.directory.path().join(format!("proc/100/fd/{file}"))).unwrap();
    }
    machine.find(&[], &Kind::Service);
    let essentials = Essentials::new(&machine.directory.path().join("proc"), None);
    let mut budget = Budget { files: LOOK_FILES, of_users: 7 };
    assert_eq!(essentials.identify(pids[0], &Kind::Service, &essentials.signs(), &mut budget), None);
    assert_eq!(budget, Budget { files: 0, of_users: 7 }, "no more files are read");
    let user = machine.add(301, &Process { uid: 1000, ..ORDINARY });
    let mut budget = Budget { files: LOOK_FILES, of_users: 1 };
    assert_eq!(essentials.identify(user, &Kind::Service, &essentials.signs(), &mut budget), None);
    assert_eq!(budget, Budget { files: LOOK_FILES - 1, of_users: 0 }, "those of users are counted");
    let last = machine.add(300, &Process { comm: "containerd", ..ORDINARY });
    let look = |pids: &[Pid]| essentials.find_changed(pids, &Kind::Service, &essentials.signs(), None).map(|it| it.pid);
    assert_eq!(look(&[&pids[..LOOK_NEW - 1], &[last]].concat()), Some(last));
    assert_eq!(look(&[&pids[..LOOK_NEW], &[last]].concat()), None, "a daemon is among the first processes");
}

/// Any user may bind a socket whose name is not UTF-8. It hides no socket after it.
#[test]
fn a_socket_of_any_name_hides_no_other() {
    for name in [b"/tmp/\xff".as_slice(), b"/tmp/caf\xc3", b"@\xfe"] {
        let mut machine = Machine::new();
        let runtime = machine.add(7, &Process { listens: "/run/containerd/containerd.sock", ..ORDINARY });
        let head =
            b"Num RefCount Protocol Flags Type St Inode Path\n0000000000000000: 00000002 00000000 00010000 0001 01 99 ";
        let proc_root = machine.directory.path().join("proc");
        let unix = [head, name, b"\n", machine.unix.as_bytes()].concat();
        std::fs::write(proc_root.join("1/net/unix"), unix).unwrap();
        let essentials = Essentials::new(&proc_root, None);
        let found = essentials.find(&[runtime], &Kind::Service, &essentials.signs());
        assert_eq!(found.map(|found| found.protection), Some(Protection::Runtime), "{name:?}");
    }
}
