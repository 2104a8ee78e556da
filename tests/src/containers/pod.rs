//! One pod: its sandbox, volumes and logs where the kubelet has them, and containers in it.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::wire::Message;
use super::{cri, image_name, storage};
use crate::cgroups::{Cgroup, Qos, pod_path, pod_uid};
use crate::stage::Stage;

/// CRI's NamespaceMode.
const OF_THE_CONTAINER: u64 = 1;
const OF_THE_NODE: u64 = 2;

#[derive(Debug)]
pub struct NodePod {
    pub name: String,
    pub uid: String,
    pub cgroup: Cgroup,
    pub sandbox: String,
    config: Message,
    logs: PathBuf,
    empty_dirs: Vec<String>,
    /// The names of the containers started so far.
    started: RefCell<Vec<String>>,
}

impl NodePod {
    pub fn create(stage: &Stage<'_>, name: &str, qos: Qos, empty_dirs: &[&str]) -> Result<Self> {
        let uid = pod_uid(stage.next_pod());
        let cgroup = Cgroup::absent(stage.layout(), &pod_path(qos, &uid));
        let logs = PathBuf::from(format!("{}/default_{name}_{uid}", storage::LOGS));
        let linux = Message::default()
            .text(1, &format!("/{}", cgroup.path))
            .part(2, &Message::default().part(1, &namespaces()));
        let metadata = Message::default().text(1, name).text(2, &uid).text(3, "default");
        let config = labelled(
            Message::default().part(1, &metadata).text(3, &logs.to_string_lossy()),
            6,
            &[
                ("io.kubernetes.pod.name", name),
                ("io.kubernetes.pod.namespace", "default"),
                ("io.kubernetes.pod.uid", &uid),
            ],
        )
        .part(8, &linux);
        fs::create_dir_all(&logs).with_context(|| format!("create {}", logs.display()))?;
        let mut pod = Self {
            name: name.to_owned(),
            uid,
            cgroup,
            sandbox: String::new(),
            config,
            logs,
            empty_dirs: empty_dirs.iter().map(|name| (*name).to_owned()).collect(),
            started: RefCell::default(),
        };
        for volume in empty_dirs {
            let directory = pod.empty_dir(volume);
            fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        }
        pod.sandbox = cri::run_sandbox(&pod.config).with_context(|| format!("pod {name}"))?;
        Ok(pod)
    }

    /// Starts a container with a shell script; returns its id. Another of the same name is the next attempt at it.
    pub fn run(&self, container: &str, script: &str) -> Result<String> {
        let log_dir = self.logs.join(container);
        fs::create_dir_all(&log_dir).with_context(|| format!("create {}", log_dir.display()))?;
        let attempt = self.started.borrow().iter().filter(|name| *name == container).count();
        self.started.borrow_mut().push(container.to_owned());
        let number = u64::try_from(attempt).context("number of the attempt")?;
        let mut config = Message::default()
            .part(1, &Message::default().text(1, container).number(2, number))
            .part(2, &Message::default().text(1, &image_name("busybox")));
        for word in ["sh", "-c", script] {
            config = config.text(3, word);
        }
        for volume in &self.empty_dirs {
            let mount =
                Message::default().text(1, &format!("/{volume}")).text(2, &self.empty_dir(volume).to_string_lossy());
            config = config.part(7, &mount);
        }
        let labels = [
            ("io.kubernetes.container.name", container),
            ("io.kubernetes.pod.name", self.name.as_str()),
            ("io.kubernetes.pod.namespace", "default"),
            ("io.kubernetes.pod.uid", self.uid.as_str()),
        ];
        let security = Message::default().part(3, &namespaces());
        let config = labelled(config, 9, &labels)
            .text(11, &format!("{container}/{attempt}.log"))
            .part(15, &Message::default().part(2, &security));
        let id = cri::create_container(&self.sandbox, &config, &self.config)
            .with_context(|| format!("container {container} of pod {}", self.name))?;
        cri::start_container(&id).with_context(|| format!("container {container} of pod {}", self.name))?;
        Ok(id)
    }

    /// The agent's name for it.
    pub fn workload(&self) -> &str {
        &self.cgroup.path
    }

    pub fn empty_dir(&self, volume: &str) -> PathBuf {
        PathBuf::from(format!("{}/pods/{}/volumes/kubernetes.io~empty-dir/{volume}", storage::KUBELET, self.uid))
    }

    /// Of the first attempt.
    pub fn log(&self, container: &str) -> PathBuf {
        self.logs.join(container).join("0.log")
    }

    /// Whether any of its containers runs, by the runtime.
    pub fn is_running(&self) -> Result<bool> {
        Ok(cri::containers()?.iter().any(|container| container.sandbox == self.sandbox && container.running))
    }

    /// Whether nobody lives in it any more, by the kernel.
    pub fn is_gone(&self) -> bool {
        self.cgroup.processes().is_empty()
    }
}

/// The node's network, for there is no plugin; processes of its own.
fn namespaces() -> Message {
    Message::default().number(1, OF_THE_NODE).number(2, OF_THE_CONTAINER)
}

fn labelled(message: Message, field: u64, labels: &[(&str, &str)]) -> Message {
    labels.iter().fold(message, |message, (key, value)| message.entry(field, key, value))
}
