//! cgroups that look as the kubelet's systemd driver makes them, on v1 and on v2.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::units::MIB;

/// Where cgroups are mounted.
pub const ROOT: &str = "/sys/fs/cgroup";
/// The v2 controllers that every level passes on.
pub const CONTROLLERS: &[&str] = &["memory", "pids"];

/// Which cgroup interface the guest runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Layout {
    /// One hierarchy a controller.
    V1,
    /// The unified hierarchy.
    V2,
}

impl Layout {
    /// As on the kernel command line and in the catalogue.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }

    /// Directories below [`ROOT`] in which every cgroup is made; memory first.
    pub fn hierarchies(self) -> &'static [&'static str] {
        match self {
            Self::V1 => &["memory", "freezer", "pids"],
            Self::V2 => &[""],
        }
    }

    fn limit_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.limit_in_bytes",
            Self::V2 => "memory.max",
        }
    }
}

/// Kubernetes' quality-of-service classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    /// Requests equal limits.
    Guaranteed,
    /// Some request.
    Burstable,
    /// No request.
    BestEffort,
}

/// One cgroup, in every hierarchy that the layout has.
#[derive(Debug, Clone)]
pub struct Cgroup {
    layout: Layout,
    /// Relative to the hierarchy's root: the agent's name for it.
    pub path: String,
}

impl Cgroup {
    /// Makes the cgroup and its parents, v2 controllers enabled on the way.
    pub fn create(layout: Layout, path: &str) -> Result<Self> {
        for hierarchy in layout.hierarchies() {
            let mut directory = Path::new(ROOT).join(hierarchy);
            let mut parts = path.split('/').peekable();
            while let Some(part) = parts.next() {
                directory.push(part);
                if !directory.exists() {
                    fs::create_dir(&directory).with_context(|| format!("create cgroup {}", directory.display()))?;
                }
                // A cgroup with processes of its own cannot pass controllers on: only inner ones do.
                if layout == Layout::V2 && parts.peek().is_some() {
                    enable_controllers(&directory)?;
                }
            }
        }
        Ok(Self { layout, path: path.to_owned() })
    }

    /// A cgroup that may not be there any more.
    pub fn absent(layout: Layout, path: &str) -> Self {
        Self { layout, path: path.to_owned() }
    }

    /// The directory in the memory hierarchy.
    pub fn directory(&self) -> PathBuf {
        self.directories().next().unwrap_or_default()
    }

    /// The directories in all hierarchies.
    pub fn directories(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.layout.hierarchies().iter().map(|name| Path::new(ROOT).join(name).join(&self.path))
    }

    /// The kernfs id: the inode number of the directory in the memory hierarchy.
    pub fn id(&self) -> Result<u64> {
        let directory = self.directory();
        Ok(fs::metadata(&directory).with_context(|| format!("stat {}", directory.display()))?.ino())
    }

    /// Every process here and below.
    pub fn processes(&self) -> Vec<i32> {
        let mut found = Vec::new();
        collect_processes(&self.directory(), &mut found);
        found
    }

    /// Limits memory.
    pub fn limit(&self, bytes: u64) -> Result<()> {
        self.write(self.layout.limit_file(), &bytes.to_string())
    }

    /// Takes the limit away.
    pub fn unlimit(&self) -> Result<()> {
        let text = match self.layout {
            Layout::V1 => "-1",
            Layout::V2 => "max",
        };
        self.write(self.layout.limit_file(), text)
    }

    /// Writes one file in the memory hierarchy's directory.
    pub fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.directory().join(file);
        fs::write(&path, text).with_context(|| format!("write {text:?} to {}", path.display()))
    }

    /// Sets a `user.` attribute on the directory in the memory hierarchy.
    pub fn set_attribute(&self, name: &str, value: &str) -> Result<()> {
        let path = self.directory();
        rustix::fs::setxattr(&path, name, value.as_bytes(), rustix::fs::XattrFlags::empty())
            .with_context(|| format!("setxattr {name} on {}", path.display()))
    }

    /// Removes this cgroup and all below once their processes are gone.
    pub fn remove(&self) -> Result<()> {
        for directory in self.directories() {
            remove_tree(&directory, Instant::now() + Duration::from_secs(10))?;
        }
        Ok(())
    }
}

fn enable_controllers(directory: &Path) -> Result<()> {
    let wanted: Vec<String> = CONTROLLERS.iter().map(|name| format!("+{name}")).collect();
    let path = directory.join("cgroup.subtree_control");
    fs::write(&path, wanted.join(" ")).with_context(|| format!("write {}", path.display()))
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn collect_processes(directory: &Path, found: &mut Vec<i32>) {
    if let Ok(text) = fs::read_to_string(directory.join("cgroup.procs")) {
        found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    for child in children(directory) {
        collect_processes(&child, found);
    }
}

/// A killed process leaves its cgroup only when its memory is torn down: try until it works or time is up.
fn remove_tree(directory: &Path, deadline: Instant) -> Result<()> {
    for child in children(directory) {
        remove_tree(&child, deadline)?;
    }
    loop {
        match fs::remove_dir(directory) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| format!("remove cgroup {}", directory.display()));
            }
            Err(_) => sleep(Duration::from_millis(5)),
        }
    }
}

/// The UID of a pod of this boot.
pub fn pod_uid(number: u32) -> String {
    format!("0a1b2c3d-4e5f-4a6b-8c7d-{number:012x}")
}

/// Where the kubelet's systemd driver puts a pod; dashes in a slice's name would be levels.
pub fn pod_path(qos: Qos, uid: &str) -> String {
    let uid = uid.replace('-', "_");
    match qos {
        Qos::Guaranteed => format!("kubepods.slice/kubepods-pod{uid}.slice"),
        Qos::Burstable => format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice"),
        Qos::BestEffort => format!("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{uid}.slice"),
    }
}

/// A pod's cgroup with its containers.
#[derive(Debug)]
pub struct Pod {
    /// For the judge's messages.
    pub label: String,
    /// The pod level: what the agent calls the workload.
    pub cgroup: Cgroup,
    /// The container level: where processes live.
    pub containers: Vec<Cgroup>,
}

/// What a pod's spec would say.
#[derive(Debug, Clone, Copy)]
pub struct PodSpec {
    pub qos: Qos,
    /// Ignored on v1, where no file holds a request.
    pub request_mib: u64,
    /// 0: none.
    pub limit_mib: u64,
    pub containers: u32,
}

impl PodSpec {
    /// Requests and limits of so many MiB.
    pub fn guaranteed(mib: u64) -> Self {
        Self { qos: Qos::Guaranteed, request_mib: mib, limit_mib: mib, containers: 1 }
    }

    /// Requests so many MiB, without a limit.
    pub fn burstable(request_mib: u64) -> Self {
        Self { qos: Qos::Burstable, request_mib, limit_mib: 0, containers: 1 }
    }

    /// Neither requests nor limits.
    pub fn best_effort() -> Self {
        Self { qos: Qos::BestEffort, request_mib: 0, limit_mib: 0, containers: 1 }
    }
}

impl Pod {
    /// `number` keeps the UIDs of one boot apart.
    pub fn create(layout: Layout, label: &str, number: u32, spec: PodSpec) -> Result<Self> {
        if spec.containers == 0 {
            bail!("pod {label}: a pod has at least one container");
        }
        let path = pod_path(spec.qos, &pod_uid(number));
        let containers = (0..spec.containers)
            .map(|index| {
                let id = format!("{number:032x}{index:032x}");
                Cgroup::create(layout, &format!("{path}/cri-containerd-{id}.scope"))
            })
            .collect::<Result<Vec<_>>>()?;
        let cgroup = Cgroup { layout, path };
        if spec.limit_mib > 0 {
            cgroup.limit(spec.limit_mib * MIB)?;
        }
        if spec.request_mib > 0 && layout == Layout::V2 {
            // The kubelet's MemoryQoS writes requests to memory.min.
            cgroup.write("memory.min", &(spec.request_mib * MIB).to_string())?;
        }
        Ok(Self { label: label.to_owned(), cgroup, containers })
    }

    /// The agent's name for this workload.
    pub fn workload(&self) -> &str {
        &self.cgroup.path
    }

    /// The first container.
    pub fn container(&self) -> Result<&Cgroup> {
        self.containers.first().with_context(|| format!("pod {} has no container", self.label))
    }
}
