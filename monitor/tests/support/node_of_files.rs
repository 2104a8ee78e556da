//! Nodes that are made of files: a `/proc`, a cgroup tree of v2 and a list of pods, changed while an agent runs.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::agent::Agent;

pub const MIB: i64 = 1 << 20;
pub const GIB: i64 = 1 << 30;
/// The node is changed this often.
pub const STEP: Duration = Duration::from_millis(20);

/// A pod that holds anonymous memory only.
#[derive(Debug, Clone)]
pub struct Pod {
    pub name: String,
    pub qos: &'static str,
    pub anon: i64,
    /// The request in the specification.
    pub request: i64,
    /// The request in the container's status, if it tells one.
    pub allocated: Option<i64>,
}

impl Pod {
    pub fn new(name: &str, qos: &'static str, anon: i64, request: i64) -> Self {
        Self { name: name.to_owned(), qos, anon, request, allocated: None }
    }

    pub fn cgroup(&self) -> String {
        let qos = self.qos.to_lowercase();
        format!("kubepods.slice/kubepods-{qos}.slice/kubepods-{qos}-pod{}.slice", self.name)
    }

    pub fn object(&self) -> Value {
        let requests = if self.request > 0 { json!({"memory": self.request.to_string()}) } else { json!({}) };
        let status =
            self.allocated.map(|it| json!({"name": "c", "resources": {"requests": {"memory": it.to_string()}}}));
        json!({
            "metadata": {"name": self.name, "namespace": "ns", "uid": self.name},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"phase": "Running", "qosClass": self.qos, "containerStatuses": Vec::from_iter(status)},
        })
    }
}

/// A node with cgroup v2. The files have a fixed length and are replaced by one write, so that a reader sees no half of one.
pub struct Node {
    root: tempfile::TempDir,
    pub pods: Vec<Pod>,
    pub available: i64,
    /// The limit of all pods, and what they use beside `pods`.
    pub limit: Option<(i64, i64)>,
}

impl Node {
    pub fn new(pods: Vec<Pod>, available: i64, limit: Option<(i64, i64)>) -> Self {
        let node = Self { root: tempfile::tempdir().unwrap(), pods, available, limit };
        for (path, text) in [
            ("cg/cgroup.controllers", "cpu memory pids\n"),
            ("cg/cgroup.procs", ""),
            ("cg/memory.stat", "anon 0\nfile 0\ninactive_file 0\nactive_file 0\n"),
            (
                "proc/vmstat",
                "workingset_refault_file 0\npswpout 0\nallocstall_normal 0\noom_kill 0\nworkingset_activate_file 0\n",
            ),
            ("proc/zoneinfo", ""),
            ("proc/loadavg", "0 0 0 1/100 5\n"),
            ("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n"),
            ("proc/1/cgroup", "0::/init.scope\n"),
        ] {
            node.write(path, text);
        }
        for name in ["mountinfo", "mounts"] {
            node.write(&format!("proc/1/{name}"), &fs::read_to_string(format!("/proc/self/{name}")).unwrap());
        }
        std::os::unix::fs::symlink("/proc/self", node.path("proc/self")).unwrap();
        for (pid, pod) in (1001..).zip(&node.pods) {
            let cgroup = pod.cgroup();
            for (name, text) in [
                ("cgroup.procs", format!("{pid}\n")),
                ("cgroup.events", "populated 1\nfrozen 0\n".to_owned()),
                ("memory.min", "0\n".to_owned()),
                ("memory.low", "0\n".to_owned()),
                ("memory.max", "max\n".to_owned()),
                ("cgroup.kill", String::new()),
            ] {
                node.write(&format!("cg/{cgroup}/{name}"), &text);
            }
            node.write(&format!("proc/{pid}/cgroup"), &format!("0::/{cgroup}\n"));
            node.write(&format!("proc/{pid}/oom_score_adj"), "0\n");
            node.write(
                &format!("proc/{pid}/stat"),
                &format!("{pid} (a) S 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 100 0\n"),
            );
            node.write(&format!("proc/{pid}/status"), "Name:\ta\nSigPnd:\t0\nShdPnd:\t0\n");
        }
        let items: Vec<_> = node.pods.iter().map(Pod::object).collect();
        node.write("pods.json", &json!({"kind": "List", "items": items}).to_string());
        node.update();
        node
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    /// Writes the figures as they are now.
    pub fn update(&self) {
        for pod in &self.pods {
            figures(&self.path(&format!("cg/{}", pod.cgroup())), pod.anon);
        }
        if let Some((limit, others)) = self.limit {
            let pods = self.path("cg/kubepods.slice");
            over(&pods.join("memory.max"), &format!("{limit}\n"));
            figures(&pods, others + self.pods.iter().map(|pod| pod.anon).sum::<i64>());
        }
        let kib = self.available >> 10;
        let text = format!(
            "MemTotal: 16777216 kB\nMemFree: {kib} kB\nMemAvailable: {kib} kB\nActive(file): 0 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
        );
        over(&self.path("proc/meminfo"), &text);
    }

    pub fn start(&self, threshold: &str, rest: &str) -> Agent {
        let root = self.root.path().display();
        Agent::start(
            &format!(
                "evictionHard: {{memory.available: {threshold}}}\ncgroupRoot: {root}/cg\nprocRoot: {root}/proc\n\
                 kubernetes: {{api: off}}\nruntime: {{endpoint: none}}\npods: {root}/pods.json\n{rest}"
            ),
            "json",
        )
    }

    /// Lets a pod grow by `rate` bytes a second while `may_go_on`. Returns the first eviction that the agent reports meanwhile or within
    /// half a second after that.
    pub fn first_eviction(
        &mut self,
        agent: &Agent,
        pod: usize,
        rate: i64,
        may_go_on: impl Fn(&Self) -> bool,
    ) -> Option<Value> {
        let (mut last, mut left) = (Instant::now(), 25);
        while left > 0 {
            std::thread::sleep(STEP);
            let passed = last.elapsed();
            last = Instant::now();
            if may_go_on(self) {
                let grown = rate * i64::try_from(passed.as_micros()).unwrap() / 1_000_000;
                self.pods[pod].anon += grown;
                self.available -= grown;
                self.update();
            } else {
                left -= 1;
            }
            let log = agent.text("err");
            let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            if let Some(eviction) = lines.find(|line| line["event"] == "eviction") {
                return Some(eviction);
            }
        }
        None
    }

    pub fn left_for_pods(&self) -> i64 {
        self.limit
            .map_or(i64::MAX, |(limit, others)| limit - others - self.pods.iter().map(|pod| pod.anon).sum::<i64>())
    }
}

pub fn figures(cgroup: &Path, anon: i64) {
    over(&cgroup.join("memory.current"), &format!("{anon}\n"));
    over(
        &cgroup.join("memory.stat"),
        &format!(
            "anon {anon}\nfile 0\nkernel 0\nshmem 0\ninactive_anon {anon}\nactive_anon 0\ninactive_file 0\nactive_file 0\nunevictable 0\n"
        ),
    );
}

/// Replaces a file by one write.
pub fn over(path: &Path, text: &str) {
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
    let width = if text.len() > 40 { 512 } else { 40 };
    file.write_all_at(format!("{text:\n<width$}").as_bytes(), 0).unwrap();
}
