//! Workloads of sleeping processes in cgroups of the test. The test changes no other cgroups.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use node_pressure_monitor::actions::{Ended, Evictor, Target};
use node_pressure_monitor::config::{CandidateOptions, Candidates, EvictionLimits, NamePattern, RuntimeEndpoint};
use node_pressure_monitor::node::Hierarchy;
use node_pressure_monitor::units::{Monotonic, kernel_text};
use node_pressure_monitor::workloads::WorkloadTree;
use rustix::process::{Pid, Signal, kill_process};

/// Prints directly to stderr: the test harness shows output only of failed tests, and a skipped test must be visible.
macro_rules! tell {
    ($($text:tt)*) => {
        let _unheard = writeln!(std::io::stderr(), $($text)*);
    };
}

pub const PROC: &str = "/proc";

/// The cgroups of one test, removed with all processes at its end.
pub struct Cgroups {
    pub hierarchy: Hierarchy,
    root: String,
    pub children: Vec<Child>,
}

impl Cgroups {
    /// Makes the cgroups. Where that is impossible, prints SKIPPED and returns `None`.
    pub fn make(test: &str) -> Option<Self> {
        let hierarchy = match Hierarchy::detect(Path::new("/sys/fs/cgroup")) {
            Ok(hierarchy) => hierarchy,
            Err(error) => {
                tell!("SKIPPED {test}: {error}");
                return None;
            }
        };
        let root = format!("npm-test-{test}-{}", std::process::id());
        let cgroups = Self { hierarchy, root, children: Vec::new() };
        if let Err(error) = fs::create_dir(cgroups.hierarchy.memory.join(&cgroups.root)) {
            tell!("SKIPPED {test}: cannot make a cgroup: {error}");
            return None;
        }
        let _v1_has_none =
            fs::write(cgroups.hierarchy.memory.join(&cgroups.root).join("cgroup.subtree_control"), "+memory");
        Some(cgroups)
    }

    pub fn hierarchies(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.hierarchy.memory), self.hierarchy.freezer.as_ref()].into_iter().flatten()
    }

    /// Makes a workload called `name`, as the agent shows it, with this many sleepers, in every hierarchy, as a container runtime does.
    pub fn workload(&mut self, name: &str, processes: usize) -> String {
        self.workload_of(name, processes, &["sleep", "600"])
    }

    /// Makes such a workload of other processes.
    pub fn workload_of(&mut self, name: &str, processes: usize, command: &[&str]) -> String {
        let path = format!("{}/{name}", self.root);
        for hierarchy in self.hierarchies() {
            fs::create_dir_all(hierarchy.join(kernel_text::path(&path))).unwrap();
            for (end, _) in path.match_indices('/').skip(1) {
                let _v1_has_none = fs::write(hierarchy.join(&path[..end]).join("cgroup.subtree_control"), "+memory");
            }
        }
        for _ in 0..processes {
            let child = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).spawn().unwrap();
            for hierarchy in self.hierarchies() {
                fs::write(hierarchy.join(kernel_text::path(&path)).join("cgroup.procs"), child.id().to_string())
                    .unwrap();
            }
            self.children.push(child);
        }
        path
    }

    /// Returns the workloads of this machine. Services are candidates on a Kubernetes node too.
    pub fn tree(&self, protected: Vec<NamePattern>) -> WorkloadTree {
        let tree = WorkloadTree::new(self.hierarchy.clone(), PROC.into(), protected);
        let options = CandidateOptions { candidates: Some(Candidates::Everything), ..CandidateOptions::default() };
        let mut tree = tree.with_candidates(options, false, &RuntimeEndpoint::Auto);
        tree.scan().unwrap();
        tree
    }

    /// Returns a workload of the test as the target of an eviction.
    pub fn target(&self, name: &str) -> Target {
        let tree = self.tree(Vec::new());
        let tracked = tree.tracked().iter().find(|tracked| tracked.workload().name == name).unwrap();
        Target::new(tracked, tree.hierarchy(), Path::new(PROC), None)
    }

    /// Waits for the end of the only eviction.
    pub fn end_of_eviction(&mut self, evictor: &mut Evictor, limits: &EvictionLimits) -> Ended {
        let mut ended = Vec::new();
        wait_until("the end of the eviction", || {
            self.ended();
            ended.extend(evictor.poll(limits, Monotonic::now()));
            !ended.is_empty()
        });
        assert_eq!(ended.len(), 1);
        ended.remove(0)
    }

    /// Returns the number of children that have ended.
    pub fn ended(&mut self) -> usize {
        self.children.iter_mut().filter_map(|child| child.try_wait().unwrap()).count()
    }

    /// Ends all children.
    pub fn end_children(&mut self) {
        for mut child in self.children.drain(..) {
            let _already_gone = child.kill();
            let _already_gone = child.wait();
        }
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.end_children();
        for hierarchy in self.hierarchies() {
            let root = hierarchy.join(&self.root);
            // The children's own children end a moment later.
            for _ in 0..200 {
                remove(&root);
                if !root.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Kills the processes in a cgroup and in those below, and removes the cgroups that are empty. A child's own children would otherwise outlive
/// the test, and hold the pipe of the suite.
fn remove(cgroup: &Path) {
    let left = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    for pid in left.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
        let _already_gone = kill_process(pid, Signal::KILL);
    }
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _still_busy = fs::remove_dir(cgroup);
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}
