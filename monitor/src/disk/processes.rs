//! The containers of a workload, their processes, and what these see of the filesystems.

use std::path::{Path, PathBuf};

use crate::config::Pid;
use crate::workloads::path::{Role, role};
use crate::workloads::processes::collect;

/// Of the processes of a container the oldest are tried: one that ends meanwhile, or that looks out of the host's eyes, shows nothing.
const TRIED: usize = 8;

/// A container that has processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The runtime's id.
    pub id: String,
    /// Sorted; none when they are in another pid namespace.
    pub processes: Vec<Pid>,
}

/// What the processes of a container see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The container.
    pub container: Container,
    /// Whose mounts: the name of the namespace.
    pub namespace: PathBuf,
    /// Whether users are there what they are to the machine's init.
    pub is_of_init_user: bool,
    /// The text of `mountinfo` there.
    pub mountinfo: String,
}

/// The containers right in the cgroup of a pod, or the one that a cgroup is.
pub fn containers(cgroup: &Path) -> Vec<Container> {
    let container = |directory: &Path| {
        let Role::Container(id) = role(directory.file_name()?.to_str()?) else { return None };
        let mut processes = Vec::new();
        collect(std::fs::File::open(directory).ok()?, &mut processes).ok()?;
        processes.sort_unstable();
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

/// Looks through the eyes of the first process of the container that can show it: one that shares the mounts of the machine's init
/// (`nsenter -t 1 -m`) shows nothing of it.
pub fn view(proc: &Path, init: &Init, container: &Container) -> Option<View> {
    container.processes.iter().take(TRIED).find_map(|pid| {
        let process = proc.join(pid.to_string());
        let mounts = namespace(&process, "mnt");
        let users = namespace(&process, "user");
        let mountinfo = std::fs::read(process.join("mountinfo")).ok()?;
        // Looked at last: by now the number may be that of another process.
        (mounts != init.mounts && belongs_to(&process, &container.id)).then_some(())?;
        Some(View {
            container: container.clone(),
            namespace: mounts?,
            is_of_init_user: users.is_some() && users == init.users,
            mountinfo: String::from_utf8_lossy(&mountinfo).into_owned(),
        })
    })
}

impl View {
    /// Whether a process, whose directory in procfs is given, is in the container and sees the same.
    pub fn is_seen_by(&self, process: &Path) -> bool {
        namespace(process, "mnt").as_ref() == Some(&self.namespace) && belongs_to(process, &self.container.id)
    }
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

    #[test]
    fn who_looks_out_of_the_hosts_eyes_or_is_somebody_else_shows_nothing() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), 1, "mnt:[1]", OTHER, "host");
        process(proc.path(), 10, "mnt:[1]", ID, "host");
        process(proc.path(), 11, "mnt:[2]", OTHER, "other");
        process(proc.path(), 12, "mnt:[3]", ID, "container");
        let init = Init::of(proc.path());
        let container =
            |pids: &[i32]| Container { id: ID.to_owned(), processes: pids.iter().copied().map(Pid).collect() };
        let view = view(proc.path(), &init, &container(&[9, 10, 11, 12])).unwrap();
        assert!(view.is_of_init_user);
        assert_eq!((view.mountinfo.as_str(), view.namespace.as_path()), ("container", Path::new("mnt:[3]")));
        let seen: Vec<bool> = (9..=12).map(|pid: i32| view.is_seen_by(&proc.path().join(pid.to_string()))).collect();
        assert_eq!(seen, [false, false, false, true]);
        assert_eq!(super::view(proc.path(), &init, &container(&[10, 11])), None);
    }
}
