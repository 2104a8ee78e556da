use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;

use super::super::writable_layers::LOOKS;
use super::*;
use crate::units::CgroupId;
use crate::workloads::{Kind, Workload, fixtures};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const UID: &str = "1b2c3d4e-0000-1111-2222-333344445555";

/// The files of a node in a directory, as the kubelet and the runtime create them.
struct Node {
    root: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self { root: tempfile::tempdir().unwrap() };
        let pod = format!("/var/lib/kubelet/pods/{UID}");
        for path in [
            &format!("{pod}/volumes/kubernetes.io~empty-dir/cache"),
            &format!("{pod}/volumes/kubernetes.io~configmap/settings"),
            &format!("{pod}/volumes/kubernetes.io~csi/data"),
            &format!("{pod}/containers/app"),
            &format!("/var/log/pods/shop_web-0_{UID}/app"),
            &format!("/var/log/pods/shop_web-0_{UID}0/app"),
            "/s/12/fs",
            "/proc/1/ns",
            &format!("/cgroup/pod/cri-containerd-{ID}.scope"),
        ] {
            fs::create_dir_all(node.path(path)).unwrap();
        }
        fs::write(node.path(&format!("{pod}/etc-hosts")), "127.0.0.1 localhost\n").unwrap();
        fs::write(node.path(&format!("/cgroup/pod/cri-containerd-{ID}.scope/cgroup.procs")), "10\n").unwrap();
        symlink("mnt:[1]", node.path("/proc/1/ns/mnt")).unwrap();
        symlink("user:[1]", node.path("/proc/1/ns/user")).unwrap();
        node.mounts(1, "43 27 0:51 / /run/x/rootfs rw - overlay overlay rw,lowerdir=/l,upperdir=/s/12/fs,workdir=/w\n");
        node
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    fn mounts(&self, pid: u32, mountinfo: &str) {
        fs::create_dir_all(self.path(&format!("/proc/{pid}/ns"))).unwrap();
        fs::write(self.path(&format!("/proc/{pid}/mountinfo")), mountinfo).unwrap();
    }

    /// Adds a process of the container with these mounts.
    fn process(&self, users: &str, mountinfo: &str) {
        self.mounts(10, mountinfo);
        symlink("mnt:[2]", self.path("/proc/10/ns/mnt")).unwrap();
        symlink(users, self.path("/proc/10/ns/user")).unwrap();
        fs::write(self.path("/proc/10/cgroup"), format!("0::/cri-containerd-{ID}.scope\n")).unwrap();
    }

    fn find(&self, layers: Vec<Layer>) -> Found {
        self.finder().find(&self.wanted(layers))
    }

    /// Looks as often as it takes to report a container without an overlay, and returns what the last look has found.
    fn find_often(&self) -> Found {
        let mut finder = self.finder();
        (1..LOOKS).for_each(|_| drop(finder.find(&self.wanted(Vec::new()))));
        finder.find(&self.wanted(Vec::new()))
    }

    fn finder(&self) -> Finder {
        Finder::on(Host::at(self.root.path().to_owned()), Roots::new(self.path("/proc")))
    }

    fn wanted(&self, layers: Vec<Layer>) -> WorkloadPlaces {
        WorkloadPlaces {
            workload: "pod".to_owned(),
            id: CgroupId(1),
            cgroup: self.path("/cgroup/pod"),
            pod: Some(PodUid(UID.to_owned())),
            layers,
            is_limited: false,
            trusts_quotas: false,
        }
    }
}

fn shown(found: &Found) -> Vec<String> {
    let mut shown: Vec<String> =
        found.places.iter().map(|place| format!("{:?} {}", place.part, place.path.display())).collect();
    shown.sort();
    shown
}

fn layer_of(found: &Found) -> Option<PathBuf> {
    let is_layer = |place: &&Place| matches!(place.part, Part::WritableLayer { .. });
    found.places.iter().find(is_layer).map(|place| place.path.clone())
}

const OVERLAY: &str = "500 480 0:51 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/s/12/fs,workdir=/w\n";

#[test]
fn all_places_of_a_pod_are_found() {
    let node = Node::new();
    let volumes = format!("/pods/{UID}/volumes");
    node.process(
        "user:[1]",
        &format!(
            "{OVERLAY}502 500 8:1 {volumes}/kubernetes.io~empty-dir/cache /cache rw - ext4 /dev/sda1 rw\n\
             503 500 8:1 {volumes}/kubernetes.io~empty-dir/cache/sub /with\\040blank rw - ext4 /dev/sda1 rw\n\
             504 500 8:1 {volumes}/kubernetes.io~csi/data /data rw - ext4 /dev/sda1 rw\n"
        ),
    );
    let found = node.find(Vec::new());
    let pod = format!("/var/lib/kubelet/pods/{UID}");
    assert_eq!(
        shown(&found),
        [
            format!("Logs {{ container: \"app\" }} /var/log/pods/shop_web-0_{UID}/app"),
            format!("PodFiles {pod}/containers"),
            format!("PodFiles {pod}/etc-hosts"),
            format!("Volume {{ name: \"cache\" }} {pod}/volumes/kubernetes.io~empty-dir/cache"),
            format!("Volume {{ name: \"settings\" }} {pod}/volumes/kubernetes.io~configmap/settings"),
            format!("WritableLayer {{ container: \"{ID}\" }} /s/12/fs"),
        ]
    );
    assert_eq!(found.missing, BTreeSet::new());
    let shown = &found.views[0].1;
    let layer = Part::WritableLayer { container: ID.to_owned() };
    let cache = Part::Volume { name: "cache".to_owned() };
    assert_eq!(shown.layer, Some(("0:51".to_owned(), layer)));
    assert_eq!(shown.mounts, [(502, cache.clone()), (503, cache)].into());
    assert_eq!(shown.others, [504].into(), "a mount of the overlay itself is the layer's");
    assert_eq!(shown.volumes.len(), 2);
}

#[test]
fn a_hidden_root_is_found_by_another_process_or_reported() {
    let hidden = "501 500 0:77 / / rw - tmpfs tmpfs rw\n";
    // The process hides the overlay behind another mount.
    let node = Node::new();
    node.process("user:[2]", &format!("{OVERLAY}{hidden}"));
    assert_eq!(layer_of(&node.find(Vec::new())).unwrap(), Path::new("/s/12/fs"));
    // The process has left the mount namespace, but its parent has not.
    let node = Node::new();
    node.process("user:[2]", hidden);
    fs::write(node.path(&format!("/cgroup/pod/cri-containerd-{ID}.scope/cgroup.procs")), "10\n11\n").unwrap();
    node.mounts(11, OVERLAY);
    symlink("mnt:[3]", node.path("/proc/11/ns/mnt")).unwrap();
    symlink("user:[1]", node.path("/proc/11/ns/user")).unwrap();
    fs::write(node.path("/proc/11/cgroup"), format!("0::/cri-containerd-{ID}.scope\n")).unwrap();
    assert_eq!(layer_of(&node.find(Vec::new())).unwrap(), Path::new("/s/12/fs"));
    // No process shows the overlay.
    fs::write(node.path(&format!("/cgroup/pod/cri-containerd-{ID}.scope/cgroup.procs")), "10\n").unwrap();
    let found = node.find_often();
    assert_eq!(layer_of(&found), None);
    assert!(found.missing.iter().any(|text| text.contains("containers on tmpfs")), "{:?}", found.missing);
}

#[test]
fn the_kubelets_directory_may_be_configured() {
    let node = Node::new();
    fs::create_dir_all(node.path("/data/kubelet")).unwrap();
    let cache = |found: &Found| found.places.iter().find(|it| it.part.kind() == "volume").unwrap().path.clone();
    let find = || {
        let roots = Roots { node: Some("/data/kubelet".into()), ..Roots::new(node.path("/proc")) };
        let mut finder = Finder::on(Host::at(node.root.path().to_owned()), roots);
        finder.find(&node.wanted(Vec::new()))
    };
    // The configured nodefs path need not be the kubelet's directory.
    assert!(cache(&find()).starts_with("/var/lib/kubelet/pods"));
    fs::rename(node.path("/var/lib/kubelet/pods"), node.path("/data/kubelet/pods")).unwrap();
    assert!(cache(&find()).starts_with("/data/kubelet/pods"));
}

#[test]
fn a_known_layer_is_not_searched_for() {
    let node = Node::new();
    node.process("user:[1]", OVERLAY);
    let found = node.find(vec![Layer { container: ID.to_owned(), directory: "/elsewhere".into() }]);
    assert_eq!(layer_of(&found).unwrap(), Path::new("/elsewhere"));
    assert_eq!(found.places.iter().filter(|place| place.part.kind() == "writable_layer").count(), 1);
}

#[test]
fn an_overlay_mounted_by_a_process_is_not_trusted() {
    let own = "500 480 0:99 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/etc,workdir=/w\n";
    let node = Node::new();
    node.process("user:[2]", own);
    let found = node.find_often();
    assert_eq!(layer_of(&found), None);
    assert_eq!(found.missing.len(), 1, "{:?}", found.missing);
    // The host's mounts count, whatever mounts the process shows for the same overlay.
    let node = Node::new();
    node.process("user:[2]", &OVERLAY.replace("/s/12/fs", "/etc"));
    assert_eq!(layer_of(&node.find(Vec::new())).unwrap(), Path::new("/s/12/fs"));
    // Without a user namespace, only the runtime can have mounted the overlay. The runtime may hide its mounts (OpenShift).
    let node = Node::new();
    node.process("user:[1]", &own.replace("/etc", "/s/12/fs"));
    assert_eq!(layer_of(&node.find(Vec::new())).unwrap(), Path::new("/s/12/fs"));
}

#[test]
fn other_roots_are_reported_as_missing() {
    for (mountinfo, problem) in [
        ("1 0 8:1 /snapshots/3 / rw - ext4 /dev/sda rw\n", "containers on ext4"),
        ("1 0 0:51 / / rw - overlay o rw,lowerdir=/l,upperdir=id/diff\n", "relative"),
    ] {
        let node = Node::new();
        node.mounts(1, &mountinfo.replace(" / rw", " /x rw"));
        node.process("user:[1]", mountinfo);
        let found = node.find_often();
        assert_eq!(layer_of(&found), None, "{mountinfo}");
        assert!(found.missing.iter().any(|text| text.contains(problem)), "{:?}", found.missing);
    }
    // The directories of this overlay are relative, as c/storage mounts it.
    let node = Node::new();
    fs::create_dir_all(node.path("/var/lib/containers/storage/overlay/id/diff")).unwrap();
    let own = OVERLAY.replace("/s/12/fs", "id/diff");
    node.mounts(1, &own);
    node.process("user:[1]", &own);
    assert_eq!(layer_of(&node.find(Vec::new())).unwrap(), Path::new("/var/lib/containers/storage/overlay/id/diff"));
}

#[test]
fn a_container_that_begins_is_not_reported() {
    let node = Node::new();
    let on_host = "1 0 8:1 / / rw - ext4 /dev/sda rw\n";
    node.process("user:[1]", on_host);
    let mut finder = node.finder();
    let mut look = |mountinfo: &str| {
        node.mounts(10, mountinfo);
        finder.find(&node.wanted(Vec::new()))
    };
    for _ in 0..5 {
        for _ in 1..LOOKS {
            let found = look(on_host);
            assert_eq!(found.missing, BTreeSet::new());
            assert_eq!((layer_of(&found), found.unreadable), (None, 1), "the measurement is incomplete");
        }
        let found = look(OVERLAY);
        assert_eq!((layer_of(&found).as_deref(), found.unreadable), (Some(Path::new("/s/12/fs")), 0));
    }
}

#[test]
fn mounts_over_volumes_are_recognized_without_touching() {
    let proc = tempfile::tempdir().unwrap();
    fs::create_dir(proc.path().join("1")).unwrap();
    let volumes = format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~empty-dir");
    let mounts = format!(
        "1 0 0:60 / {volumes}/shm rw - tmpfs tmpfs rw\n2 0 0:61 / {volumes}/remote rw - fuse.rclone r rw\n\
         3 0 8:1 / / rw - ext4 /dev/sda1 rw\n4 2 8:1 /x {volumes}/re\\040mote rw - ext4 /dev/sda1 rw\n"
    );
    fs::write(proc.path().join("1/mountinfo"), mounts).unwrap();
    let mounted = Mounted::below(proc.path(), UID);
    let at = |name: &str| mounted.at(&format!("kubernetes.io~empty-dir/{name}"));
    assert_eq!(at("shm"), Some(("tmpfs", "0:60")));
    assert_eq!(at("remote"), Some(("fuse.rclone", "0:61")));
    assert_eq!(at("re mote"), Some(("ext4", "8:1")));
    assert_eq!(at("cache"), None);
    // The machine that runs the tests has procfs mounted below its root.
    let root = Host::at("/".into()).open(Path::new("/")).unwrap();
    if is_mounted(&root, "proc").is_none() {
        writeln!(std::io::stderr(), "SKIPPED: needs openat2 (Linux 5.6)").unwrap();
        return;
    }
    assert_eq!((is_mounted(&root, "proc"), is_mounted(&root, "etc")), (Some(true), Some(false)));
}

#[test]
fn only_pods_and_containers_are_measured() {
    let workload = |kind| Workload { kind, ..fixtures::workload("a/b") };
    let of = |kind| WorkloadPlaces::of(&workload(kind), Path::new("/sys/fs/cgroup"));
    assert_eq!(of(Kind::Service), None);
    assert_eq!(of(Kind::Container(ID.to_owned())).unwrap().cgroup, Path::new("/sys/fs/cgroup/a/b"));
    assert_eq!(of(Kind::Pod(PodUid(UID.to_owned()))).unwrap().pod, Some(PodUid(UID.to_owned())));
}
