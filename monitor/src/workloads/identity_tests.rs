//! What is exempt on nodes made of files, each after public reports (`tests/FIELD.md` has their references): other init systems, desktops,
//! containers without Kubernetes, FUSE mounts.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use super::*;
use crate::config::patterns::built_in_patterns;
use crate::config::{CandidateOptions, NamePattern, RuntimeEndpoint};
use crate::node::{CgroupVersion, Hierarchy};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const USER: &str = "user.slice/user-1000.slice/user@1000.service";

struct Node {
    root: tempfile::TempDir,
    last: i32,
    unix: String,
    tcp: String,
}

/// A process with what it holds.
#[derive(Clone, Copy)]
struct Process {
    comm: &'static str,
    uid: u32,
    score: i16,
    parent: Option<i32>,
    /// It listens on this path, or `:PORT`.
    listens: &'static str,
    /// It has this device open: the name, and the number.
    device: Option<(&'static str, u32, u32)>,
    /// It is in a PID namespace of its own.
    is_contained: bool,
}

const ROOTS: Process =
    Process { comm: "x", uid: 0, score: 0, parent: None, listens: "", device: None, is_contained: false };
const USERS: Process = Process { uid: 1000, ..ROOTS };
const INPUT: Option<(&str, u32, u32)> = Some(("event3", 13, 67));
const FUSE: Option<(&str, u32, u32)> = Some(("fuse", 10, 229));

fn called(comm: &'static str) -> Process {
    Process { comm, ..ROOTS }
}

fn listening(comm: &'static str, uid: u32, listens: &'static str) -> Process {
    Process { comm, uid, listens, ..ROOTS }
}

impl Node {
    /// A node whose process 1 is in the cgroup `init`.
    fn new(init: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        for path in ["proc/1/net", "cg", "root/run", "devices"] {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        symlink(root.path().join("root"), root.path().join("proc/1/root")).unwrap();
        fs::write(root.path().join("proc/1/cgroup"), format!("0::/{init}\n")).unwrap();
        let head = |text: &str| format!("{text}\n");
        let (unix, tcp) = (head("Num RefCount Protocol Flags Type St Inode Path"), head("sl local_address"));
        Self { root, last: 100, unix, tcp }
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join(path)
    }

    /// Adds a process to the cgroup at `path`, which is made. Returns its number.
    fn add(&mut self, path: &str, process: Process) -> i32 {
        self.last += 1;
        let (pid, cgroup) = (self.last, self.path(&format!("cg/{path}")));
        for above in Path::new(path).ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            let above = self.path("cg").join(above);
            if !above.join("cgroup.procs").exists() {
                fixtures::populate(&above, "");
            }
        }
        let before = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
        fixtures::populate(&cgroup, &format!("{before}{pid}\n"));
        let own = self.path(&format!("proc/{pid}"));
        fs::create_dir_all(own.join("fd")).unwrap();
        symlink(self.path("root"), own.join("root")).unwrap();
        let Process { comm, uid, score, parent, listens, device, is_contained } = process;
        let inner = if is_contained { "\t1" } else { "" };
        let parent = parent.unwrap_or(1);
        for (name, text) in [
            ("status", format!("Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{pid}{inner}\n")),
            ("comm", format!("{comm}\n")),
            ("oom_score_adj", format!("{score}\n")),
            ("cgroup", format!("0::/{path}\n")),
            ("stat", format!("{pid} ({comm}) S {parent} 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 5 0 0")),
        ] {
            fs::write(own.join(name), text).unwrap();
        }
        symlink(format!("socket:[{pid}]"), own.join("fd/3")).unwrap();
        self.listen(pid, uid, listens);
        if let Some((name, major, minor)) = device {
            symlink(self.device(name, major, minor), own.join("fd/4")).unwrap();
            self.mounts(1, &["0:90"]);
            self.mounts(pid, &["0:90"]);
        }
        pid
    }

    fn listen(&mut self, pid: i32, uid: u32, listens: &str) {
        if let Some(port) = listens.strip_prefix(':') {
            let port: u16 = port.parse().unwrap();
            self.tcp += &format!("0: 00000000:{port:04X} 00000000:0000 0A 0:0 00:0 0 {uid} 0 {pid} 1 0 100\n");
        } else if !listens.is_empty() {
            self.unix += &format!("0000000000000000: 00000002 00000000 00010000 0001 01 {pid} {listens}\n");
            let file = self.path("root").join(listens.trim_start_matches(['/', '@']));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
        }
    }

    fn device(&self, name: &str, major: u32, minor: u32) -> std::path::PathBuf {
        let file = self.path(&format!("devices/{name}"));
        if !file.exists() {
            let device = rustix::fs::makedev(major, minor);
            let kind = rustix::fs::FileType::CharacterDevice;
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, &file, kind, mode, device).unwrap();
        }
        file
    }

    /// Writes the mounts that the process sees: FUSE filesystems with these device numbers.
    fn mounts(&self, pid: i32, devices: &[&str]) {
        let line =
            |device: &&str| format!("40 20 {device} / /mnt/{device} rw shared:9 - fuse.rclone remote rw,user_id=0\n");
        let text: String = devices.iter().map(line).collect();
        fs::write(self.path(&format!("proc/{pid}/mountinfo")), text).unwrap();
    }

    /// Gives the cgroups at `path` and below to a user.
    fn give(&self, path: &str, uid: u32) {
        let all = self.path(&format!("cg/{path}"));
        chown(&all, Some(uid), None).unwrap();
        for entry in fs::read_dir(&all).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
            self.give(&format!("{path}/{}", entry.file_name().to_str().unwrap()), uid);
        }
    }

    fn tree(&self, services: &[&str]) -> WorkloadTree {
        fs::write(self.path("proc/1/net/unix"), &self.unix).unwrap();
        fs::write(self.path("proc/1/net/tcp"), &self.tcp).unwrap();
        let hierarchy = Hierarchy { version: CgroupVersion::V2, memory: self.path("cg"), freezer: None, hybrid: false };
        let services = services.iter().map(|text| NamePattern::new(text).unwrap()).collect();
        let options = CandidateOptions { candidates: None, services };
        let tree = WorkloadTree::new(hierarchy, self.path("proc"), built_in_patterns());
        let mut tree = tree.with_candidates(options, false, &RuntimeEndpoint::Off).with_agent(None);
        tree.scan().unwrap();
        tree
    }

    /// Checks what becomes of each workload: its protection, `leaker` if it goes only as one, or `candidate`.
    fn assert(&self, services: &[&str], expected: &[(&str, &str)]) {
        let tree = self.tree(services);
        for (name, expected) in expected {
            let found = tree.workloads().find(|workload| workload.name == *name);
            let found =
                found.unwrap_or_else(|| panic!("{name} is no workload of {:?}", tree.workloads().collect::<Vec<_>>()));
            let fate = match found.protection {
                Some(protection) => protection.as_str(),
                None if found.only_as_leaker => "leaker",
                None => "candidate",
            };
            assert_eq!(fate, *expected, "{name}");
        }
        // The look before a kill says the same about what only its processes exempt.
        for workload in tree.workloads().filter(|it| it.protection == Some(Protection::System)) {
            assert!(tree.essential_now(workload.id).is_some(), "{}", workload.name);
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

const SYSTEM: &str = Protection::System.as_str();
const SESSION: &str = Protection::Session.as_str();
const RUNTIME: &str = Protection::Runtime.as_str();

/// OpenRC/openrc#681 and #910, elogind/elogind#296, GoogleCloudPlatform/compute-image-packages#720 (the way in has to outlive a shortage).
#[test]
fn openrc_with_elogind() {
    let mut node = Node::new("");
    node.add("openrc.sshd", listening("other-name", 0, ":22"));
    node.add("openrc.sshd", Process { comm: "python3", ..USERS });
    node.add("openrc.dbus", listening("bus", 81, "/run/dbus/system_bus_socket"));
    node.add("openrc.udev", listening("manager", 0, "/run/udev/control"));
    node.add("openrc.elogind", called("elogind-daemon"));
    let login = node.add("openrc.login", called("any-manager"));
    symlink("/run/systemd/sessions/2.ref", node.path(&format!("proc/{login}/fd/5"))).unwrap();
    let inhibitor = node.add("openrc.backup", called("backup"));
    symlink("/run/systemd/inhibit/1.ref", node.path(&format!("proc/{inhibitor}/fd/5"))).unwrap();
    node.add("openrc.dropbear", called("dropbear"));
    node.add("openrc.postgresql", Process { comm: "postgres", uid: 70, ..ROOTS });
    node.add("openrc.nginx", called("nginx"));
    node.add("2", called("Xorg"));
    node.add("c1", called("greeter"));
    node.add("7", called("no session"));
    // Newer versions have the services below `rc`. elogind/elogind#366: all is below a prefix.
    node.add("rc/nginx", called("nginx"));
    node.add("rc/sshd", called("sshd"));
    let leader = node.add("host/3", called("labwc"));
    node.add("isolate/4", called("no session"));
    fs::create_dir_all(node.path("root/run/systemd/sessions")).unwrap();
    for (id, leader) in [("2", 0), ("c1", 0), ("3", leader), ("4", leader)] {
        let record = format!("UID=1000\nLEADER={leader}\n");
        fs::write(node.path(&format!("root/run/systemd/sessions/{id}")), record).unwrap();
    }
    node.assert(
        &["openrc.postgresql"],
        &[
            ("openrc.sshd", SYSTEM),
            ("openrc.dbus", SYSTEM),
            ("openrc.udev", SYSTEM),
            ("openrc.elogind", SYSTEM),
            ("openrc.login", SYSTEM),
            ("openrc.backup", "leaker"),
            ("openrc.dropbear", SYSTEM),
            ("openrc.postgresql", "candidate"),
            ("openrc.nginx", "leaker"),
            ("2", SESSION),
            ("c1", SESSION),
            ("7", "candidate"),
            ("rc/nginx", "leaker"),
            ("rc/sshd", SYSTEM),
            ("host/3", SESSION),
            ("isolate/4", "candidate"),
        ],
    );
}

/// runit (Void), s6 and dinit make no cgroups of their own: whoever starts a service in one chooses the name. bus1/dbus-broker#427: without
/// the system bus nobody logs in by SSH.
#[test]
fn runit_s6_and_dinit_with_cgroups_of_any_name() {
    for (supervisor, control) in [("runsvdir", ""), ("s6-svscan", ""), ("dinit", "/run/dinitctl")] {
        let mut node = Node::new("");
        node.add("base", Process { listens: control, ..called(supervisor) });
        node.add("svc/a", listening("bus", 103, "/run/dbus/system_bus_socket"));
        node.add("svc/b", listening("shell-server", 0, ":22"));
        node.add("svc/c", listening("seats", 0, "/run/seatd.sock"));
        node.add("svc/d", called("dhcpcd"));
        // The supervisor of one service does not protect it.
        node.add("svc/web", called("runsv"));
        node.add("svc/web", Process { comm: "nginx", uid: 33, ..ROOTS });
        node.assert(
            &[],
            &[
                ("base", SYSTEM),
                ("svc/a", SYSTEM),
                ("svc/b", SYSTEM),
                ("svc/c", SYSTEM),
                ("svc/d", SYSTEM),
                ("svc/web", "candidate"),
            ],
        );
    }
}

/// microsoft/WSL#40519 puts each distribution's systemd below `wsl-user/distro-PID/systemd`. A nested one is a system container's.
#[test]
fn a_manager_below_any_cgroup_has_the_same_places() {
    for prefix in ["wsl-user/distro-412/systemd", "lxc.payload.box", "machine.slice/systemd-nspawn@a.service/payload"] {
        let mut node = Node::new(&format!("{prefix}/init.scope"));
        let at = |path: &str| format!("{prefix}/{path}");
        for (path, process) in [
            ("init.scope", called("systemd")),
            ("system.slice/dbus.service", called("x")),
            ("system.slice/ssh.service", called("x")),
            ("system.slice/systemd-udevd.service/udev", called("x")),
            ("system.slice/nginx.service", called("nginx")),
            ("user.slice/user-1000.slice/session-3.scope", USERS),
            ("user.slice/user-1000.slice/user@1000.service/init.scope", USERS),
            ("user.slice/user-1000.slice/user@1000.service/app.slice/a.scope", USERS),
        ] {
            node.add(&at(path), process);
        }
        let expected = [
            ("init.scope", Protection::Init.as_str()),
            ("system.slice/dbus.service", Protection::Named.as_str()),
            ("system.slice/ssh.service", Protection::Named.as_str()),
            ("system.slice/nginx.service", "leaker"),
            ("user.slice/user-1000.slice/session-3.scope", SESSION),
            ("user.slice/user-1000.slice/user@1000.service/app.slice/a.scope", "candidate"),
        ]
        .map(|(path, fate)| (at(path), fate));
        node.assert(&[], &expected.each_ref().map(|(path, fate)| (path.as_str(), *fate)));
        for listed in ["system.slice/nginx.service".to_owned(), at("system.slice/nginx.service")] {
            node.assert(&[&listed], &[(&at("system.slice/nginx.service"), "candidate")]);
        }
    }
}

/// canonical/lxd#9252: the end of a container's init is the end of the container. A privileged container's cgroups belong to root.
#[test]
fn the_manager_of_a_privileged_container_is_an_init() {
    let contained = |comm| Process { is_contained: true, ..called(comm) };
    for prefix in ["lxc.payload.box", "lxc/box", "machine.slice/systemd-nspawn@box.service/payload", "podman/machine/a"]
    {
        let mut node = Node::new("init.scope");
        node.add("init.scope", called("systemd"));
        let at = |path: &str| format!("{prefix}/{path}");
        for (path, process) in [
            ("init.scope", contained("systemd")),
            ("system.slice/dbus.service", contained("dbus-daemon")),
            ("system.slice/nginx.service", contained("nginx")),
            ("user.slice/user-0.slice/session-1.scope", contained("bash")),
            ("box.slice/job.scope", contained("stress")),
        ] {
            node.add(&at(path), process);
        }
        let expected = [
            ("init.scope", Protection::Named.as_str()),
            ("system.slice/dbus.service", Protection::Named.as_str()),
            ("system.slice/nginx.service", "leaker"),
            ("user.slice/user-0.slice/session-1.scope", SESSION),
            ("box.slice/job.scope", "candidate"),
        ]
        .map(|(path, fate)| (at(path), fate));
        node.assert(&[], &expected.each_ref().map(|(path, fate)| (path.as_str(), *fate)));
    }
}

/// systemd/systemd#32687: oomd killed the small systemd-resolved beside a nix-daemon of 43 GB. #25853: a whole login session went for its
/// largest process. canonical/lxd#6576: of a container without an init of systemd's the kernel killed a small daemon, not the browser.
#[test]
fn what_other_killers_took_is_exempt_or_goes_as_a_whole() {
    let mut node = Node::new("init.scope");
    node.add("init.scope", called("systemd"));
    node.add("system.slice/nix-daemon.service", called("nix-daemon"));
    node.add("system.slice/systemd-resolved.service", called("systemd-resolve"));
    node.assert(
        &["nix-daemon.service"],
        &[
            ("system.slice/nix-daemon.service", "candidate"),
            ("system.slice/systemd-resolved.service", Protection::Named.as_str()),
        ],
    );
    let mut node = Node::new("init.scope");
    node.add("user.slice/user-1000.slice/session-2.scope", USERS);
    node.add(&format!("{USER}/app.slice/app-browser-7.scope"), USERS);
    node.assert(
        &[],
        &[
            ("user.slice/user-1000.slice/session-2.scope", SESSION),
            (&format!("{USER}/app.slice/app-browser-7.scope"), "candidate"),
        ],
    );
    let mut node = Node::new("init.scope");
    for comm in ["init", "lxd", "firefox"] {
        node.add("lxc.payload.tryit", Process { is_contained: true, ..called(comm) });
    }
    node.assert(&[], &[("lxc.payload.tryit", "candidate")]);
    assert_eq!(node.tree(&[]).workloads().count(), 1);
}

/// systemd gives the cgroup of a service with `Delegate=` and `User=` to that user. What `doctor` says of a pattern is what the pattern does.
#[test]
fn a_listed_service_that_belongs_to_a_user_is_matched() {
    if !is_root() {
        return;
    }
    let mut node = Node::new("init.scope");
    node.add("system.slice/runner.service", Process { comm: "runner", uid: 998, ..ROOTS });
    node.give("system.slice/runner.service", 998);
    node.assert(&[], &[("system.slice/runner.service", "leaker")]);
    for pattern in ["runner.service", "*/runner.service", "system.slice/runner.service"] {
        node.assert(&[pattern], &[("system.slice/runner.service", "candidate")]);
        let listed = NamePattern::new(pattern).unwrap();
        let reach = node.tree(&[pattern]).reach_of_patterns(&[], &[listed]);
        assert_eq!(reach.iter().map(|it| it.matches).collect::<Vec<_>>(), [1], "{pattern}");
    }
}

/// A container's daemons are its own, under any name, and on any port of its own network.
#[test]
fn the_daemons_of_a_container_are_not_the_nodes() {
    let mut node = Node::new("init.scope");
    let contained = |comm| Process { is_contained: true, ..called(comm) };
    node.add("lxc.payload.alpine", contained("sshd"));
    node.add("lxc.payload.alpine", contained("dbus-daemon"));
    node.add(&format!("docker/{ID}"), called("sshd"));
    node.add("system.slice/box.service/runtime", called("conmon"));
    node.add(&format!("system.slice/box.service/libpod-payload-{ID}"), called("s6-svscan"));
    node.assert(
        &["box.service"],
        &[
            ("lxc.payload.alpine", "candidate"),
            (&format!("docker/{ID}"), "candidate"),
            ("system.slice/box.service", "candidate"),
        ],
    );
}

/// systemd/systemd#35270 and #23606: gnome-shell and the whole desktop went. What holds the seat stays, under any name.
#[test]
fn the_holder_of_a_seat_is_exempt() {
    if !is_root() {
        return;
    }
    let mut node = Node::new("init.scope");
    let seat = |comm| Process { comm, device: INPUT, ..USERS };
    let at = |path: &str| format!("{USER}/{path}");
    for (path, process) in [
        ("session.slice/org.gnome.Shell@wayland.service", seat("gnome-shell")),
        ("session.slice/plasma-kwin_wayland.service", seat("kwin_wayland")),
        ("app.slice/sway.service", seat("sway")),
        ("app.slice/not-a-seat.service", Process { comm: "gnome-shell", ..USERS }),
        ("session.slice/plasma-plasmashell.service", Process { comm: "plasmashell", ..USERS }),
        ("app.slice/dbus.service", listening("bus", 1000, "/run/user/1000/bus")),
        ("app.slice/sshfs.service", Process { comm: "sshfs", device: FUSE, ..USERS }),
        ("app.slice/firefox.scope", USERS),
    ] {
        node.add(&at(path), process);
    }
    node.give(USER, 1000);
    // A plain Xorg: of root in the display manager's service, and below a session.
    node.add("system.slice/display.service", listening("Xorg.bin", 0, "@/tmp/.X11-unix/X0"));
    node.add("openrc.xdm", listening("Xorg.bin", 0, "/tmp/.X11-unix/X1"));
    let seat = Protection::Seat.as_str();
    let expected = [
        ("session.slice/org.gnome.Shell@wayland.service", seat),
        ("session.slice/plasma-kwin_wayland.service", seat),
        ("app.slice/sway.service", seat),
        ("app.slice/not-a-seat.service", "candidate"),
        ("session.slice/plasma-plasmashell.service", "candidate"),
        ("app.slice/dbus.service", "candidate"),
        ("app.slice/sshfs.service", "candidate"),
    ]
    .map(|(path, fate)| (at(path), fate));
    node.assert(&[], &expected.each_ref().map(|(path, fate)| (path.as_str(), *fate)));
    node.assert(&[], &[("system.slice/display.service", SYSTEM), ("openrc.xdm", SYSTEM)]);
    // What a user serves for the session counts among the user's own workloads alone.
    let tree = node.tree(&[]);
    let place = |path: &str| {
        let found = tree.workloads().find(|workload| workload.name == at(path)).unwrap();
        assert_eq!(tree.essential_now(found.id), None, "{path}");
        found.among_own.map(|own| (own.user, own.place))
    };
    assert_eq!(place("app.slice/firefox.scope"), Some((1000, OwnPlace::Ordinary)));
    for path in ["session.slice/plasma-plasmashell.service", "app.slice/dbus.service", "app.slice/sshfs.service"] {
        assert_eq!(place(path), Some((1000, OwnPlace::Serving)), "{path}");
    }
}

/// systemd/systemd#19007: the user's manager writes `ManagedOOMPreference=` as a mark of the user.
#[test]
fn a_users_mark_is_read() {
    if !is_root() {
        return;
    }
    let mut node = Node::new("init.scope");
    for (name, mark) in [("kept", "user.oomd_omit"), ("later", "user.oomd_avoid")] {
        let path = format!("{USER}/app.slice/{name}.service");
        node.add(&path, USERS);
        let directory = node.path(&format!("cg/{path}"));
        if rustix::fs::setxattr(&directory, mark, b"1", rustix::fs::XattrFlags::empty()).is_err() {
            return;
        }
    }
    node.give(USER, 1000);
    let tree = node.tree(&[]);
    let place = |name: &str| {
        let found = tree.workloads().find(|workload| Path::new(&workload.name).ends_with(name)).unwrap();
        (found.protection, found.preference, found.among_own.map(|own| own.place))
    };
    assert_eq!(place("kept.service"), (None, Preference::None, Some(OwnPlace::Omit)));
    assert_eq!(place("later.service"), (None, Preference::None, Some(OwnPlace::Avoid)));
}

/// rclone/rclone#7936 and #2982: after the daemon's end every access says that the transport endpoint is not connected.
#[test]
fn a_fuse_daemon_goes_only_if_it_is_listed_and_leaks() {
    if !is_root() {
        return;
    }
    let mut node = Node::new("init.scope");
    let fuse = |comm| Process { device: FUSE, ..called(comm) };
    node.add("system.slice/mnt-gdrive.mount", fuse("rclone"));
    node.add("system.slice/mnt-data.mount", called("mount.ntfs"));
    node.add("system.slice/glusterfs.service", fuse("glusterfs"));
    node.add("system.slice/s3.service", fuse("s3fs"));
    node.add(&format!("docker/{ID}"), fuse("rclone"));
    node.add("system.slice/of-a-user.service", Process { uid: 33, ..fuse("sshfs") });
    // A builder of images mounts for itself. Another has only opened the device.
    let builder = node.add("system.slice/docker-builder.scope", fuse("fuse-overlayfs"));
    node.mounts(builder, &["0:91"]);
    let idle = node.add("run.scope", fuse("idle"));
    node.mounts(idle, &[]);
    node.add("system.slice/nginx.service", called("nginx"));
    let mount = Protection::Mount.as_str();
    node.assert(
        &["s3.service"],
        &[
            ("system.slice/mnt-gdrive.mount", mount),
            ("system.slice/mnt-data.mount", mount),
            ("system.slice/glusterfs.service", mount),
            ("system.slice/s3.service", "leaker"),
            // A container of LXC sees the mounts of lxcfs, and serves none.
            (&format!("docker/{ID}"), "candidate"),
            ("system.slice/of-a-user.service", "leaker"),
            ("system.slice/docker-builder.scope", "candidate"),
            ("run.scope", "candidate"),
            ("system.slice/nginx.service", "leaker"),
        ],
    );
}

/// containers/podman#16589, #13673 and #29582: a service is one container with its monitor, a monitor of containers elsewhere, or both.
#[test]
fn a_monitor_protects_the_containers_that_it_has_elsewhere() {
    let mut node = Node::new("init.scope");
    let monitor = Process { score: -1000, ..called("conmon") };
    let java = Process { comm: "java", uid: 1001, ..ROOTS };
    // A quadlet.
    node.add("system.slice/app.service/runtime", Process { listens: ":22", ..monitor });
    node.add(&format!("system.slice/app.service/libpod-payload-{ID}"), java);
    // `podman run` from a shell: scopes of their own.
    node.add(&format!("machine.slice/libpod-conmon-{ID}.scope"), monitor);
    node.add(&format!("machine.slice/libpod-{ID}.scope"), java);
    // The unit of a pod: its containers are in another slice.
    node.add("system.slice/pod-hass.service", monitor);
    // No cgroup was split off: the container is a child of its monitor.
    let parent = node.add("system.slice/flat.service", monitor);
    node.add("system.slice/flat.service", Process { parent: Some(parent), ..java });
    // A deployer that starts containers, whose monitor stays with it.
    node.add("system.slice/deployer.service", Process { comm: "node", ..java });
    node.add("system.slice/deployer.service", monitor);
    // conmon-rs, the monitor in Rust.
    node.add("system.slice/rust.service/runtime", Process { comm: "conmonrs", ..monitor });
    node.add(&format!("system.slice/rust.service/libpod-payload-{ID}"), java);
    node.assert(
        &["app.service", "flat.service", "deployer.service", "rust.service"],
        &[
            ("system.slice/app.service", "candidate"),
            ("system.slice/rust.service", "candidate"),
            (&format!("machine.slice/libpod-conmon-{ID}.scope"), RUNTIME),
            (&format!("machine.slice/libpod-{ID}.scope"), "candidate"),
            ("system.slice/pod-hass.service", RUNTIME),
            ("system.slice/flat.service", "candidate"),
            ("system.slice/deployer.service", RUNTIME),
        ],
    );
}

/// Near a threshold the workloads are only listed, and what was examined is not examined again.
#[test]
fn what_was_found_ends_with_its_process_or_with_the_start_of_its_container() {
    let mut node = Node::new("init.scope");
    let monitor = Process { score: -1000, ..called("conmon") };
    let parent = node.add("system.slice/app.service", monitor);
    node.add("system.slice/deployer.service", Process { comm: "node", uid: 1001, ..ROOTS });
    let its_monitor = node.add("system.slice/deployer.service", monitor);
    node.add("system.slice/pod.service", monitor);
    let mut tree = node.tree(&["app.service", "deployer.service", "pod.service"]);
    let mut protections = || {
        tree.scan_workloads().unwrap();
        ["app", "deployer", "pod"].map(|name| {
            let found = tree.workloads().find(|it| it.name == format!("system.slice/{name}.service")).unwrap();
            found.protection.map(Protection::as_str)
        })
    };
    assert_eq!(protections(), [Some(RUNTIME); 3]);
    node.add("system.slice/app.service", Process { comm: "java", uid: 1001, parent: Some(parent), ..ROOTS });
    fs::remove_dir_all(node.path(&format!("proc/{its_monitor}"))).unwrap();
    assert_eq!(protections(), [None, None, Some(RUNTIME)]);
}

/// A host with Docker: the runtimes, their shims with containers elsewhere, and the containers.
#[test]
fn a_host_with_docker_and_containerd() {
    let mut node = Node::new("init.scope");
    node.add("system.slice/a.service", listening("engine", 0, "/run/docker.sock"));
    node.add("system.slice/b.service", listening("engine", 0, "/run/containerd/containerd.sock"));
    node.add("system.slice/b.service", Process { score: -998, ..called("containerd-shim") });
    node.add("shims", listening("shim", 0, "/run/containerd/s/0a1b"));
    node.add(&format!("system.slice/docker-{ID}.scope"), called("containerd"));
    node.assert(
        &[],
        &[
            ("system.slice/a.service", RUNTIME),
            ("system.slice/b.service", RUNTIME),
            ("shims", RUNTIME),
            (&format!("system.slice/docker-{ID}.scope"), "candidate"),
        ],
    );
}

/// Nothing that a user can do makes a workload of the user one that the node needs.
#[test]
fn a_user_cannot_be_what_the_node_needs() {
    let mut node = Node::new("init.scope");
    for (name, process) in [
        ("a", listening("dbus-daemon", 1000, "/run/dbus/system_bus_socket")),
        ("b", listening("sshd", 1000, ":22")),
        ("c", listening("udevd", 1000, "/run/udev/control")),
        ("d", listening("Xorg", 1000, "/tmp/.X11-unix/X9")),
        ("e", Process { comm: "conmon", ..USERS }),
        ("f", Process { comm: "systemd", ..USERS }),
    ] {
        node.add(&format!("{USER}/app.slice/{name}.service"), process);
    }
    let expected = ["a", "b", "c", "d", "e", "f"].map(|name| (format!("{USER}/app.slice/{name}.service"), "candidate"));
    node.assert(&[], &expected.each_ref().map(|(path, fate)| (path.as_str(), *fate)));
}

#[test]
fn a_socket_that_no_visible_process_holds_is_named() {
    let mut node = Node::new("init.scope");
    node.add("system.slice/dbus.service", listening("bus", 0, "/run/dbus/system_bus_socket"));
    node.unix += "0000000000000000: 00000002 00000000 00010000 0001 01 99 /run/udev/control\n";
    assert_eq!(node.tree(&[]).unheld_sockets(), Some(vec!["listens on /run/udev/control".to_owned()]));
    fs::remove_dir_all(node.path("proc/1/net")).unwrap();
    let hierarchy = Hierarchy { version: CgroupVersion::V2, memory: node.path("cg"), freezer: None, hybrid: false };
    assert_eq!(WorkloadTree::new(hierarchy, node.path("proc"), Vec::new()).unheld_sockets(), None);
}
