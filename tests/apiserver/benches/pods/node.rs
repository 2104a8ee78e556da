//! The pods' cgroups on this machine, made as by containerd's cgroupfs driver. Each container has a process that sleeps.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

const ROOT: &str = "/sys/fs/cgroup";
/// The name of a bench's subtree; the bench's process id follows.
const PREFIX: &str = "npm-bench-";
/// The containers of a pod: the sandbox and a working container.
const CONTAINERS: usize = 2;
/// The process of a container. Its score is between 3 and 999, as the kubelet sets it for a Burstable pod.
const SCRIPT: &str =
    "echo 970 > /proc/$$/oom_score_adj; for d; do echo $$ > $d/cgroup.procs || exit 1; done; exec sleep 3600";
const PATIENCE: Duration = Duration::from_secs(60);

/// One subtree of this machine's cgroups. Dropping it ends its processes and removes it.
#[derive(Debug)]
pub struct Node {
    /// The bench's directory in each hierarchy that the agent reads. The memory hierarchy is the first.
    tops: Vec<PathBuf>,
    pods: HashMap<String, Vec<Child>>,
}

impl Node {
    /// Makes the subtree; returns `None` without a memory controller.
    pub fn make() -> Result<Option<Self>> {
        let root = Path::new(ROOT);
        let is_v1 = root.join("memory/memory.limit_in_bytes").exists();
        let is_v2 = fs::read_to_string(root.join("cgroup.controllers"))
            .is_ok_and(|names| names.split_whitespace().any(|name| name == "memory"));
        let hierarchies: &[&str] = match (is_v1, is_v2) {
            (true, _) => &["memory", "freezer"],
            (_, true) => &[""],
            (false, false) => return Ok(None),
        };
        // A machine may lack the freezer hierarchy.
        let hierarchies =
            hierarchies.iter().map(|hierarchy| root.join(hierarchy)).filter(|hierarchy| hierarchy.exists());
        let name = format!("{PREFIX}{}", std::process::id());
        let tops = hierarchies.inspect(|hierarchy| remove_stale(hierarchy)).map(|hierarchy| hierarchy.join(&name));
        let node = Self { tops: tops.collect(), pods: HashMap::new() };
        for top in &node.tops {
            let burstable = top.join("kubepods/burstable");
            fs::create_dir_all(&burstable).with_context(|| format!("cannot make {}", burstable.display()))?;
            for inner in [root, top, &top.join("kubepods"), &burstable] {
                let _v1_has_none = fs::write(inner.join("cgroup.subtree_control"), "+memory");
            }
        }
        Ok(Some(node))
    }

    /// Makes the pods' cgroups and processes. Moving a process waits for a grace period of RCU. Concurrent moves share one grace period,
    /// so each process moves itself.
    pub fn run(&mut self, uids: &[String]) -> Result<()> {
        for uid in uids {
            let mut children = Vec::new();
            for index in 0..CONTAINERS {
                let directories: Vec<PathBuf> = self.containers(uid, index).collect();
                let mut command = Command::new("sh");
                command.args(["-c", SCRIPT, "sh"]);
                for directory in &directories {
                    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
                    if let Some(pod) = directory.parent() {
                        let _v1_has_none = fs::write(pod.join("cgroup.subtree_control"), "+memory");
                    }
                    command.arg(directory);
                }
                let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                children.push(silent.spawn().context("cannot start sh")?);
            }
            self.pods.insert(uid.clone(), children);
        }
        let begun = Instant::now();
        let is_inside = |directory: PathBuf| {
            fs::read_to_string(directory.join("cgroup.procs")).is_ok_and(|processes| !processes.is_empty())
        };
        for uid in uids {
            while !(0..CONTAINERS).flat_map(|index| self.containers(uid, index)).all(is_inside) {
                ensure!(begun.elapsed() < PATIENCE, "the processes of pod {uid} do not enter their cgroups");
                sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Ends a pod's processes and removes its cgroups.
    pub fn end(&mut self, uid: &str) {
        let Some(mut children) = self.pods.remove(uid) else { return };
        for child in &mut children {
            let _gone = child.kill();
            let _gone = child.wait();
        }
        for top in &self.tops {
            let pod = pod_in(top, uid);
            let containers = (0..CONTAINERS).map(|index| container_in(&pod, uid, index));
            for directory in containers.chain([pod.clone()]) {
                remove(&directory);
            }
        }
    }

    fn containers<'a>(&'a self, uid: &'a str, index: usize) -> impl Iterator<Item = PathBuf> + 'a {
        self.tops.iter().map(move |top| container_in(&pod_in(top, uid), uid, index))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for child in self.pods.values_mut().flatten() {
            let _gone = child.kill();
        }
        for child in self.pods.values_mut().flatten() {
            let _gone = child.wait();
        }
        for top in &self.tops {
            remove_tree(top);
        }
    }
}

/// Removes the subtrees of benches that were killed. While a kubepods tree exists, each program takes this machine for a Kubernetes node.
fn remove_stale(hierarchy: &Path) {
    for entry in fs::read_dir(hierarchy).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove_tree(&entry.path());
        }
    }
}

/// Kills the processes of a cgroup and of those below, and removes the cgroups.
fn remove_tree(cgroup: &Path) {
    let processes = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
        let _gone = kill_process(pid, Signal::KILL);
    }
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    remove(cgroup);
}

fn pod_in(top: &Path, uid: &str) -> PathBuf {
    top.join("kubepods/burstable").join(format!("pod{uid}"))
}

/// Returns the directory of a container. Runtimes use ids of 64 hexadecimal digits.
fn container_in(pod: &Path, uid: &str, index: usize) -> PathBuf {
    let digits: String = uid.chars().filter(char::is_ascii_hexdigit).collect();
    pod.join(format!("{digits:0>62}{index:02}"))
}

/// Removes a cgroup, with retries: a process that has just ended keeps its cgroup busy for a moment.
fn remove(directory: &Path) {
    for _ in 0..400 {
        match fs::remove_dir(directory) {
            Ok(()) => return,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(_) => sleep(Duration::from_millis(5)),
        }
    }
    eprintln!("cannot remove {}", directory.display());
}
