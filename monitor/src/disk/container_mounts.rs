//! The containers of a workload, their processes, and the mounts that these processes see.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::units::{Pid, kernel_text};
use crate::workloads::cgroup_path::{Role, role};
use crate::workloads::cgroup_processes::{Monitors, collect};

use super::process_mounts::read;
use crate::node::mountinfo::Mount;

/// Limit of processes per container, and of processes whose open files are scanned.
pub const MAX_PROCESSES: usize = 4096;
/// Limit of distinct mount views per container; each costs a read of `mountinfo`.
const MAX_NAMESPACES: usize = 16;
/// Limit of a process's `mountinfo`. A container has a few dozen mounts, but a process that may mount can have very many.
const MAX_MOUNTINFO_BYTES: u64 = 1 << 20;
/// Limit of mounts remembered per container.
const MAX_MOUNTS: usize = 4096;
/// Limit of mounts at `/` per process.
const MAX_ROOTS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: String,
    /// The processes, sorted; empty if they are in another pid namespace.
    pub processes: Vec<Pid>,
}

/// A mount at `/` of a process, visible or hidden by another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    pub device: String,
    pub kind: String,
    /// The upper directory of an overlay.
    pub upper: Option<PathBuf>,
    /// Whether the process is in the user namespace of the machine's init.
    pub is_of_init_user: bool,
}

#[derive(Debug, Default)]
pub struct MountView {
    /// The mounts at `/`. Those of the oldest process come first, and of one process the topmost mount comes first.
    pub roots: Vec<Root>,
    /// Names of visible volumes, by mount id.
    pub volumes: HashMap<u64, String>,
    /// Devices of all other mounts, by mount id.
    pub others: HashMap<u64, String>,
    pub is_readable: bool,
    /// Whether mounts were omitted, because there were too many, or too many processes with their own mounts.
    pub is_cut_off: bool,
}

/// Returns the containers directly in a pod's cgroup, or the container that the cgroup is.
pub fn containers(cgroup: &Path) -> Vec<Container> {
    let container = |directory: &Path| {
        let Role::Container(id) = role(&kernel_text::of_name(directory.file_name()?)) else { return None };
        let mut processes = Vec::new();
        collect(std::fs::File::open(directory).ok()?, Monitors::Included, &mut processes).ok()?;
        processes.sort_unstable();
        // The one process beyond the limit shows that there are more.
        processes.truncate(MAX_PROCESSES + 1);
        let is_hidden = || kernel_text::read(directory.join("cgroup.procs")).is_ok_and(|text| text.starts_with('0'));
        (!processes.is_empty() || is_hidden()).then_some(Container { id, processes })
    };
    if let Some(itself) = container(cgroup) {
        return vec![itself];
    }
    let Ok(entries) = std::fs::read_dir(cgroup) else { return Vec::new() };
    let mut containers: Vec<Container> = entries.flatten().filter_map(|entry| container(&entry.path())).collect();
    containers.sort_by(|a, b| a.id.cmp(&b.id));
    containers
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InitNamespaces {
    mounts: Option<PathBuf>,
    users: Option<PathBuf>,
}

impl InitNamespaces {
    pub fn of(proc: &Path) -> Self {
        let process = proc.join("1");
        Self { mounts: namespace(&process, "mnt"), users: namespace(&process, "user") }
    }
}

fn namespace(process: &Path, kind: &str) -> Option<PathBuf> {
    std::fs::read_link(process.join("ns").join(kind)).ok()
}

/// Reads the mounts of a container's processes, the oldest process first. Each distinct view is read, because a process may have
/// hidden its root from itself. A process that shares the mounts of the machine's init (`nsenter -t 1 -m`) shows nothing of the
/// container. `volume` names the volume that a mount shows.
pub fn mount_view(
    proc: &Path,
    init: &InitNamespaces,
    container: &Container,
    volume: impl Fn(&Mount<'_>) -> Option<String>,
) -> MountView {
    let mut view = MountView::default();
    let mut known = HashSet::new();
    for pid in container.processes.iter().take(MAX_PROCESSES) {
        let process = proc.join(pid.to_string());
        let Some(mounts) = namespace(&process, "mnt") else { continue };
        if Some(&mounts) == init.mounts.as_ref() {
            continue;
        }
        // A process that has changed its root (`chroot`) sees only the mounts below it.
        let key = (mounts, std::fs::read_link(process.join("root")).ok());
        if known.contains(&key) {
            continue;
        }
        if known.len() >= MAX_NAMESPACES {
            view.is_cut_off = true;
            break;
        }
        let users = namespace(&process, "user");
        let is_of_init_user = users.is_some() && users == init.users;
        let mut seen = MountView::default();
        let is_whole = read(&process.join("mountinfo"), MAX_MOUNTINFO_BYTES, |mount| {
            seen.note(mount, is_of_init_user, volume(mount));
        });
        // The check comes last, because the process id may have been reused meanwhile.
        if let Ok(is_whole) = is_whole
            && is_of(&process, container)
        {
            known.insert(key);
            seen.is_cut_off |= !is_whole;
            view.add(seen);
        }
    }
    view
}

impl MountView {
    fn note(&mut self, mount: &Mount<'_>, is_of_init_user: bool, volume: Option<String>) {
        if mount.mount_point == "/" {
            let (device, kind) = (mount.device.to_owned(), mount.kind.to_owned());
            self.roots.insert(0, Root { device, kind, upper: mount.upper_directory(), is_of_init_user });
            // The mounts in the middle belong neither to the runtime nor to the process.
            if self.roots.len() > MAX_ROOTS {
                self.roots.remove(MAX_ROOTS / 2);
            }
        }
        let is_room = self.volumes.len() + self.others.len() < MAX_MOUNTS;
        self.is_cut_off |= !is_room;
        match volume {
            _ if !is_room => {}
            Some(name) => drop(self.volumes.insert(mount.id, name)),
            None => drop(self.others.insert(mount.id, mount.device.to_owned())),
        }
    }

    fn add(&mut self, other: Self) {
        self.is_readable = true;
        self.roots.extend(other.roots);
        self.volumes.extend(other.volumes);
        let is_room = self.others.len() + other.others.len() <= MAX_MOUNTS;
        if is_room {
            self.others.extend(other.others);
        }
        self.is_cut_off |= other.is_cut_off || !is_room;
    }
}

/// Returns whether the process with this directory in procfs is in the container. The id of the container is in the path of its
/// cgroup, in any hierarchy, even if only part of that path is visible.
pub fn is_of(process: &Path, container: &Container) -> bool {
    kernel_text::read(process.join("cgroup")).is_ok_and(|text| text.contains(&container.id))
}

/// Returns whether a process has the mounts of the machine's init.
pub fn has_mounts_of(process: &Path, init: &InitNamespaces) -> bool {
    namespace(process, "mnt") == init.mounts
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const OTHER: &str = "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn process(proc: &Path, pid: i32, namespace: &str, cgroup: &str, mountinfo: &str) {
        let process = proc.join(pid.to_string());
        fs::create_dir_all(process.join("ns")).unwrap();
        symlink(namespace, process.join("ns/mnt")).unwrap();
        symlink("user:[1]", process.join("ns/user")).unwrap();
        fs::write(process.join("cgroup"), format!("0::/kubepods.slice/cri-containerd-{cgroup}.scope\n")).unwrap();
        fs::write(process.join("mountinfo"), mountinfo).unwrap();
    }

    #[test]
    fn containers_are_found_in_a_pod_and_alone() {
        let pod = tempfile::tempdir().unwrap();
        for (name, pids) in [
            (format!("cri-containerd-{OTHER}.scope"), "30\n4\n"),
            (format!("cri-containerd-{ID}.scope"), "7\n"),
            (format!("crio-conmon-{ID}.scope"), "8\n"),
            ("something".to_owned(), "9\n"),
        ] {
            fs::create_dir(pod.path().join(&name)).unwrap();
            fs::write(pod.path().join(name).join("cgroup.procs"), pids).unwrap();
        }
        let one = Container { id: ID.to_owned(), processes: vec![Pid(7)] };
        let two = Container { id: OTHER.to_owned(), processes: vec![Pid(4), Pid(30)] };
        assert_eq!(containers(pod.path()), [one.clone(), two]);
        assert_eq!(containers(&pod.path().join(format!("cri-containerd-{ID}.scope"))), [one]);
        assert_eq!(containers(Path::new("/nonexistent")), []);
        // Processes without an address in this pid namespace count as well. An empty cgroup is no container.
        let hidden = pod.path().join(format!("docker-{ID}.scope"));
        fs::create_dir(&hidden).unwrap();
        fs::write(hidden.join("cgroup.procs"), "0\n0\n").unwrap();
        assert_eq!(containers(&hidden), [Container { id: ID.to_owned(), processes: Vec::new() }]);
        fs::write(hidden.join("cgroup.procs"), "").unwrap();
        assert_eq!(containers(&hidden), []);
    }

    fn container(pids: &[i32]) -> Container {
        Container { id: ID.to_owned(), processes: pids.iter().copied().map(Pid).collect() }
    }

    fn devices(view: &MountView) -> Vec<&str> {
        view.roots.iter().map(|root| root.device.as_str()).collect()
    }

    const OVERLAY: &str = "1 0 0:51 / / rw - overlay o rw,upperdir=/s/1\n";

    #[test]
    fn processes_with_host_mounts_or_of_others_are_ignored() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), 1, "mnt:[1]", OTHER, "1 0 8:1 / / rw - ext4 s rw\n");
        process(proc.path(), 10, "mnt:[1]", ID, "1 0 8:1 / / rw - ext4 s rw\n");
        process(proc.path(), 11, "mnt:[2]", OTHER, "1 0 0:50 / / rw - overlay o rw,upperdir=/other\n");
        process(proc.path(), 12, "mnt:[3]", ID, OVERLAY);
        let init = InitNamespaces::of(proc.path());
        let seen = mount_view(proc.path(), &init, &container(&[9, 10, 11, 12]), |_| None);
        assert_eq!((devices(&seen), seen.roots[0].is_of_init_user), (vec!["0:51"], true));
        let process = |pid: i32| proc.path().join(pid.to_string());
        let of: Vec<bool> = (9..=12).map(|pid| is_of(&process(pid), &container(&[]))).collect();
        assert_eq!(of, [false, true, false, true]);
        assert!(has_mounts_of(&process(10), &init) && !has_mounts_of(&process(12), &init));
        assert!(!mount_view(proc.path(), &init, &container(&[10, 11]), |_| None).is_readable);
    }

    #[test]
    fn a_process_cannot_hide_the_roots_of_the_others() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), 1, "mnt:[1]", OTHER, "");
        let hidden = "5 4 0:77 / / rw - tmpfs t rw\n";
        process(proc.path(), 10, "mnt:[2]", ID, hidden);
        process(proc.path(), 11, "mnt:[2]", ID, "not read again");
        process(proc.path(), 12, "mnt:[3]", ID, &format!("{OVERLAY}{hidden}6 5 8:1 /v /v rw - ext4 s rw\n"));
        // The mounts are the same, but the process has another root without mounts.
        process(proc.path(), 9, "mnt:[3]", ID, "");
        symlink("/cache", proc.path().join("9/root")).unwrap();
        let volume = |mount: &Mount<'_>| (mount.root == "/v").then(|| "cache".to_owned());
        let seen = mount_view(proc.path(), &InitNamespaces::of(proc.path()), &container(&[9, 10, 11, 12]), volume);
        assert_eq!(devices(&seen), ["0:77", "0:77", "0:51"]);
        assert_eq!((seen.volumes[&6].as_str(), seen.others.len(), seen.is_cut_off), ("cache", 2, false));
    }

    #[test]
    fn the_number_of_kept_mounts_is_bounded() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), 1, "mnt:[1]", OTHER, "");
        let mut mountinfo = OVERLAY.to_owned();
        for number in 2..50_000 {
            mountinfo += &format!("{number} 1 8:1 /x /somewhere/{number} rw - ext4 /dev/sda1 rw\n");
        }
        for pid in 10..40 {
            process(proc.path(), pid, &format!("mnt:[{pid}]"), ID, &mountinfo);
        }
        let pids: Vec<i32> = (10..40).collect();
        let seen = mount_view(proc.path(), &InitNamespaces::of(proc.path()), &container(&pids), |_| None);
        assert!(seen.is_cut_off && seen.roots.len() == MAX_NAMESPACES);
        assert!(seen.others.len() <= MAX_MOUNTS && !seen.others.is_empty(), "{}", seen.others.len());
    }
}
