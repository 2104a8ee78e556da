//! One pod: its sandbox, its containers, and volumes and logs where the kubelet keeps them.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde_json::Value;

use super::runtime::Runtime;
use super::translation::{self, text};
use super::wire::Message;
use super::{cri, image_name, storage};
use crate::cgroups::{Cgroup, Layout, Qos, pod_path};

/// CRI's NamespaceMode.
const OF_THE_CONTAINER: u64 = 1;
const OF_THE_NODE: u64 = 2;

#[derive(Debug)]
pub struct NodePod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub cgroup: Cgroup,
    pub sandbox: String,
    config: Message,
    logs: PathBuf,
    namespaces: Message,
    empty_dirs: Vec<String>,
    /// The names of the containers started so far.
    started: Mutex<Vec<String>>,
}

impl NodePod {
    /// Makes a pod of the namespace `default`, with a PID namespace for each container.
    pub fn create(layout: Layout, name: &str, uid: &str, qos: Qos, empty_dirs: &[&str]) -> Result<Self> {
        // The pod uses the node's network, since there is no network plugin.
        let namespaces = Message::default().number(1, OF_THE_NODE).number(2, OF_THE_CONTAINER);
        let cgroup = Cgroup::absent(layout, &pod_path(qos, uid));
        let mut pod = Self::prepare(["default", name, uid], cgroup, namespaces);
        pod.empty_dirs = empty_dirs.iter().map(|name| (*name).to_owned()).collect();
        for volume in empty_dirs {
            let directory = pod.empty_dir(volume);
            fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        }
        pod.start_sandbox()
    }

    /// Makes the sandbox of a pod that the API describes.
    pub fn of_object(layout: Layout, object: &Value, qos: Qos) -> Result<Self> {
        translation::check_pod(object)?;
        let metadata = &object["metadata"];
        let uid = text(metadata, "uid")?;
        let cgroup = Cgroup::absent(layout, &pod_path(qos, uid));
        let identity = [text(metadata, "namespace")?, text(metadata, "name")?, uid];
        Self::prepare(identity, cgroup, translation::namespaces(object)).start_sandbox()
    }

    fn prepare([namespace, name, uid]: [&str; 3], cgroup: Cgroup, namespaces: Message) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            cgroup,
            sandbox: String::new(),
            config: Message::default(),
            logs: PathBuf::from(format!("{}/{namespace}_{name}_{uid}", storage::LOGS)),
            namespaces,
            empty_dirs: Vec::new(),
            started: Mutex::default(),
        }
    }

    fn start_sandbox(mut self) -> Result<Self> {
        let linux = Message::default()
            .text(1, &format!("/{}", self.cgroup.path))
            .part(2, &Message::default().part(1, &self.namespaces));
        let metadata = Message::default().text(1, &self.name).text(2, &self.uid).text(3, &self.namespace);
        let config = Message::default().part(1, &metadata).text(3, &self.logs.to_string_lossy());
        self.config = self.labels().fold(config, |config, (key, value)| config.entry(6, key, value)).part(8, &linux);
        fs::create_dir_all(&self.logs).with_context(|| format!("create {}", self.logs.display()))?;
        self.sandbox = cri::run_sandbox(&self.config).with_context(|| format!("pod {}", self.name))?;
        Ok(self)
    }

    /// Starts a container with a shell script; returns its id. A second container of the same name is a restart.
    pub fn run(&self, container: &str, script: &str) -> Result<String> {
        let mut config = Message::default();
        for word in ["sh", "-c", script] {
            config = config.text(3, word);
        }
        for volume in &self.empty_dirs {
            let mount =
                Message::default().text(1, &format!("/{volume}")).text(2, &self.empty_dir(volume).to_string_lossy());
            config = config.part(7, &mount);
        }
        let security = Message::default().part(3, &self.namespaces);
        self.start(container, &image_name("busybox"), config.part(15, &Message::default().part(2, &security)))
    }

    /// Starts a container with this configuration, and adds its name, image, labels and log.
    pub fn start(&self, container: &str, image: &str, config: Message) -> Result<String> {
        let log_dir = self.logs.join(container);
        fs::create_dir_all(&log_dir).with_context(|| format!("create {}", log_dir.display()))?;
        let attempt = {
            let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
            started.push(container.to_owned());
            started.iter().filter(|name| *name == container).count() - 1
        };
        let number = u64::try_from(attempt).context("number of the attempt")?;
        let config = config
            .part(1, &Message::default().text(1, container).number(2, number))
            .part(2, &Message::default().text(1, image))
            .text(11, &format!("{container}/{attempt}.log"));
        let labels = self.labels().chain([("io.kubernetes.container.name", container)]);
        let config = labels.fold(config, |config, (key, value)| config.entry(9, key, value));
        let subject = || format!("container {container} of pod {}", self.name);
        let id = cri::create_container(&self.sandbox, &config, &self.config).with_context(subject)?;
        cri::start_container(&id).with_context(subject)?;
        Ok(id)
    }

    fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        [
            ("io.kubernetes.pod.name", self.name.as_str()),
            ("io.kubernetes.pod.namespace", self.namespace.as_str()),
            ("io.kubernetes.pod.uid", self.uid.as_str()),
        ]
        .into_iter()
    }

    /// Returns the cgroup of a container.
    pub fn scope(&self, layout: Layout, container: &str) -> Cgroup {
        Cgroup::absent(layout, &format!("{}/{}", self.cgroup.path, Runtime::here().scope(container)))
    }

    /// Returns the agent's name for this workload.
    pub fn workload(&self) -> &str {
        &self.cgroup.path
    }

    pub fn empty_dir(&self, volume: &str) -> PathBuf {
        PathBuf::from(format!("{}/pods/{}/volumes/kubernetes.io~empty-dir/{volume}", storage::KUBELET, self.uid))
    }

    /// Returns the log file of a container's first attempt.
    pub fn log(&self, container: &str) -> PathBuf {
        self.logs.join(container).join("0.log")
    }

    /// Returns the running containers that the runtime lists.
    pub fn running(&self) -> Result<Vec<String>> {
        let containers = cri::containers()?.into_iter();
        Ok(containers.filter(|one| one.sandbox == self.sandbox && one.running).map(|one| one.id).collect())
    }

    /// Returns whether the runtime lists a running container.
    pub fn is_running(&self) -> Result<bool> {
        Ok(!self.running()?.is_empty())
    }

    /// Returns whether the pod's cgroup has no process.
    pub fn is_gone(&self) -> bool {
        self.cgroup.processes().is_empty()
    }
}
