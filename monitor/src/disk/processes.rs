//! The containers of a workload, their processes, and what these see of the filesystems.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::units::Pid;
use crate::workloads::path::{Role, role};
use crate::workloads::processes::collect;

use super::mounts::{Mount, read};

/// Of one container; also those whose open files are looked at.
pub const MOST_PROCESSES: usize = 4096;
/// Of one container, for each of which `mountinfo` is read.
const MOST_NAMESPACES: usize = 16;
/// Of `mountinfo`: a container has a few dozen mounts, but who may mount can have very many.
const MOST_MOUNTINFO: u64 = 1 << 20;
/// Mounts of one container that are remembered.
const MOST_MOUNTS: usize = 4096;
/// Mounts at `/` of one process.
const MOST_ROOTS: usize = 8;

/// A container that has processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The runtime's id.
    pub id: String,
    /// Sorted; none when they are in another pid namespace.
    pub processes: Vec<Pid>,
}

/// What a process has at `/`, or has hidden there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// `major:minor`.
    pub device: String,
    /// The filesystem's type.
    pub kind: String,
    /// Where an overlay keeps what was changed.
    pub upper: Option<PathBuf>,
    /// Whether users are there what they are to the machine's init.
    pub is_of_init_user: bool,
}

/// What the processes of a container see, each with its own mounts.
#[derive(Debug, Default)]
pub struct Eyes {
    /// Those of the oldest processes first, and of one process what is on top first.
    pub roots: Vec<Root>,
    /// The names of volumes that are seen, by the mount's number.
    pub volumes: HashMap<u64, String>,
    /// All other mounts, with their devices.
    pub others: HashMap<u64, String>,
    /// Whether anything was seen at all.
    pub is_open: bool,
    /// There were too many mounts, or too many processes with mounts of their own.
    pub is_cut_off: bool,
}

/// The containers right in the cgroup of a pod, or the one that a cgroup is.
pub fn containers(cgroup: &Path) -> Vec<Container> {
    let container = |directory: &Path| {
        let Role::Container(id) = role(directory.file_name()?.to_str()?) else { return None };
        let mut processes = Vec::new();
        collect(std::fs::File::open(directory).ok()?, &mut processes).ok()?;
        processes.sort_unstable();
        // One more tells that there are more.
        processes.truncate(MOST_PROCESSES + 1);
        let is_hidden =
            || std::fs::read_to_string(directory.join("cgroup.procs")).is_ok_and(|text| text.starts_with('0'));
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

/// The names of the namespaces of the machine's init.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Init {
    mounts: Option<PathBuf>,
    users: Option<PathBuf>,
}

impl Init {
    /// Those of process 1.
    pub fn of(proc: &Path) -> Self {
        let process = proc.join("1");
        Self { mounts: namespace(&process, "mnt"), users: namespace(&process, "user") }
    }
}

fn namespace(process: &Path, kind: &str) -> Option<PathBuf> {
    std::fs::read_link(process.join("ns").join(kind)).ok()
}

/// Looks through the eyes of all processes of a container that have mounts of their own, the oldest first: one that shares the mounts
/// of the machine's init (`nsenter -t 1 -m`) shows nothing of it, and one may have hidden its root from itself. `volume` names the volume
/// that a mount shows.
pub fn eyes(proc: &Path, init: &Init, container: &Container, volume: impl Fn(&Mount<'_>) -> Option<String>) -> Eyes {
    let mut eyes = Eyes::default();
    let mut known = HashSet::new();
    for pid in container.processes.iter().take(MOST_PROCESSES) {
        let process = proc.join(pid.to_string());
        let Some(mounts) = namespace(&process, "mnt") else { continue };
        if Some(&mounts) == init.mounts.as_ref() {
            continue;
        }
        // One that has changed its root (`chroot`) is shown only what is mounted below that.
        let view = (mounts, std::fs::read_link(process.join("root")).ok());
        if known.contains(&view) {
            continue;
        }
        if known.len() >= MOST_NAMESPACES {
            eyes.is_cut_off = true;
            break;
        }
        let users = namespace(&process, "user");
        let is_of_init_user = users.is_some() && users == init.users;
        let mut seen = Eyes::default();
        let is_whole = read(&process.join("mountinfo"), MOST_MOUNTINFO, |mount| {
            seen.note(mount, is_of_init_user, volume(mount));
        });
        // Looked at last: by now the number may be that of another process.
        if let Ok(is_whole) = is_whole
            && belongs_to(&process, &container.id)
        {
            known.insert(view);
            seen.is_cut_off |= !is_whole;
            eyes.add(seen);
        }
    }
    eyes
}

impl Eyes {
    fn note(&mut self, mount: &Mount<'_>, is_of_init_user: bool, volume: Option<String>) {
        if mount.mount_point == "/" {
            let (device, kind) = (mount.device.to_owned(), mount.kind.to_owned());
            self.roots.insert(0, Root { device, kind, upper: mount.upper_directory(), is_of_init_user });
            // Of those in the middle neither the runtime nor the process has anything.
            if self.roots.len() > MOST_ROOTS {
                self.roots.remove(MOST_ROOTS / 2);
            }
        }
        let is_room = self.volumes.len() + self.others.len() < MOST_MOUNTS;
        self.is_cut_off |= !is_room;
        match volume {
            _ if !is_room => {}
            Some(name) => drop(self.volumes.insert(mount.id, name)),
            None => drop(self.others.insert(mount.id, mount.device.to_owned())),
        }
    }

    fn add(&mut self, other: Self) {
        self.is_open = true;
        self.roots.extend(other.roots);
        self.volumes.extend(other.volumes);
        let is_room = self.others.len() + other.others.len() <= MOST_MOUNTS;
        if is_room {
            self.others.extend(other.others);
        }
        self.is_cut_off |= other.is_cut_off || !is_room;
    }
}

/// Whether a process, whose directory in procfs is given, is in the container.
pub fn is_of(process: &Path, container: &Container) -> bool {
    belongs_to(process, &container.id)
}

/// Whether a process has the mounts of the machine's init.
pub fn has_mounts_of(process: &Path, init: &Init) -> bool {
    namespace(process, "mnt") == init.mounts
}

/// A container's id is in the path of its cgroup, in whatever hierarchy and however much of that path can be seen.
fn belongs_to(process: &Path, id: &str) -> bool {
    std::fs::read_to_string(process.join("cgroup")).is_ok_and(|text| text.contains(id))
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
    fn containers_of_a_pod_and_a_container_by_itself() {
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
        // Processes that cannot be addressed are there all the same; none are none.
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

    fn devices(eyes: &Eyes) -> Vec<&str> {
        eyes.roots.iter().map(|root| root.device.as_str()).collect()
    }

    const OVERLAY: &str = "1 0 0:51 / / rw - overlay o rw,upperdir=/s/1\n";

    #[test]
    fn who_looks_out_of_the_hosts_eyes_or_is_somebody_else_shows_nothing() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), 1, "mnt:[1]", OTHER, "1 0 8:1 / / rw - ext4 s rw\n");
        process(proc.path(), 10, "mnt:[1]", ID, "1 0 8:1 / / rw - ext4 s rw\n");
        process(proc.path(), 11, "mnt:[2]", OTHER, "1 0 0:50 / / rw - overlay o rw,upperdir=/other\n");
        process(proc.path(), 12, "mnt:[3]", ID, OVERLAY);
        let init = Init::of(proc.path());
        let seen = eyes(proc.path(), &init, &container(&[9, 10, 11, 12]), |_| None);
        assert_eq!((devices(&seen), seen.roots[0].is_of_init_user), (vec!["0:51"], true));
        let process = |pid: i32| proc.path().join(pid.to_string());
        let of: Vec<bool> = (9..=12).map(|pid| is_of(&process(pid), &container(&[]))).collect();
        assert_eq!(of, [false, true, false, true]);
        assert!(has_mounts_of(&process(10), &init) && !has_mounts_of(&process(12), &init));
        assert!(!eyes(proc.path(), &init, &container(&[10, 11]), |_| None).is_open);
    }

    #[test]
    fn who_has_hidden_its_root_does_not_hide_that_of_the_others() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), 1, "mnt:[1]", OTHER, "");
        let hidden = "5 4 0:77 / / rw - tmpfs t rw\n";
        process(proc.path(), 10, "mnt:[2]", ID, hidden);
        process(proc.path(), 11, "mnt:[2]", ID, "not read again");
        process(proc.path(), 12, "mnt:[3]", ID, &format!("{OVERLAY}{hidden}6 5 8:1 /v /v rw - ext4 s rw\n"));
        // Of the same mounts, but below another root, where there are none.
        process(proc.path(), 9, "mnt:[3]", ID, "");
        symlink("/cache", proc.path().join("9/root")).unwrap();
        let volume = |mount: &Mount<'_>| (mount.root == "/v").then(|| "cache".to_owned());
        let seen = eyes(proc.path(), &Init::of(proc.path()), &container(&[9, 10, 11, 12]), volume);
        assert_eq!(devices(&seen), ["0:77", "0:77", "0:51"]);
        assert_eq!((seen.volumes[&6].as_str(), seen.others.len(), seen.is_cut_off), ("cache", 2, false));
    }

    #[test]
    fn very_many_mounts_are_not_kept() {
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
        let seen = eyes(proc.path(), &Init::of(proc.path()), &container(&pids), |_| None);
        assert!(seen.is_cut_off && seen.roots.len() == MOST_NAMESPACES);
        assert!(seen.others.len() <= MOST_MOUNTS && !seen.others.is_empty(), "{}", seen.others.len());
    }
}
