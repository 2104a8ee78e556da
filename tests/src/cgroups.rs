//! Makes cgroups with the names and the nesting of the kubelet's systemd driver, on v1 and on v2.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::containers::runtime::Runtime;
use crate::units::MIB;

/// The directory where cgroups are mounted.
pub const ROOT: &str = "/sys/fs/cgroup";
/// The v2 controllers that every inner cgroup enables for its children.
pub const CONTROLLERS: &[&str] = &["memory", "pids"];

/// The cgroup interface of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Layout {
    /// cgroup v1: one hierarchy for each controller.
    V1,
    /// cgroup v2: the unified hierarchy.
    V2,
}

impl Layout {
    /// Returns the layout's name on the kernel command line and in the catalogue.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }

    /// Returns the directories below [`ROOT`] in which every cgroup is made. The memory hierarchy is the first.
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
    /// The pod's requests equal its limits.
    Guaranteed,
    /// The pod has some request.
    Burstable,
    /// The pod has no request.
    BestEffort,
}

/// One cgroup, in every hierarchy that the layout has.
#[derive(Debug, Clone)]
pub struct Cgroup {
    layout: Layout,
    /// The path relative to the hierarchy's root. The agent uses it as the workload's name.
    pub path: String,
}

impl Cgroup {
    /// Makes the cgroup and its parents, and enables the v2 controllers in the parents.
    pub fn create(layout: Layout, path: &str) -> Result<Self> {
        for hierarchy in layout.hierarchies() {
            let mut directory = Path::new(ROOT).join(hierarchy);
            let mut parts = path.split('/').peekable();
            while let Some(part) = parts.next() {
                directory.push(part);
                if !directory.exists() {
                    fs::create_dir(&directory).with_context(|| format!("create cgroup {}", directory.display()))?;
                }
                // A v2 cgroup with processes of its own cannot enable controllers for children, so only inner cgroups enable them.
                if layout == Layout::V2 && parts.peek().is_some() {
                    enable_controllers(&directory)?;
                }
            }
        }
        Ok(Self { layout, path: path.to_owned() })
    }

    /// Returns a handle to a cgroup that may no longer exist, without making it.
    pub fn absent(layout: Layout, path: &str) -> Self {
        Self { layout, path: path.to_owned() }
    }

    /// Returns the cgroup with this name beside it, whether it exists or not.
    pub fn sibling(&self, name: &str) -> Self {
        Self { path: Path::new(&self.path).with_file_name(name).to_string_lossy().into_owned(), ..*self }
    }

    /// Returns the directory in the memory hierarchy.
    pub fn directory(&self) -> PathBuf {
        self.directories().next().unwrap_or_default()
    }

    /// Returns the directories in all hierarchies.
    pub fn directories(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.layout.hierarchies().iter().map(|name| Path::new(ROOT).join(name).join(&self.path))
    }

    /// Returns the kernfs id: the inode number of the directory in the memory hierarchy.
    pub fn id(&self) -> Result<u64> {
        let directory = self.directory();
        Ok(fs::metadata(&directory).with_context(|| format!("stat {}", directory.display()))?.ino())
    }

    /// Returns the processes of this cgroup and of all cgroups below.
    pub fn processes(&self) -> Vec<i32> {
        let mut found = Vec::new();
        collect_processes(&self.directory(), &mut found);
        found
    }

    /// Sets the memory limit.
    pub fn limit(&self, bytes: u64) -> Result<()> {
        self.write(self.layout.limit_file(), &bytes.to_string())
    }

    /// Removes the memory limit.
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

    /// Removes this cgroup and all cgroups below, after their processes have exited.
    pub fn remove(&self) -> Result<()> {
        self.directories().try_for_each(|directory| remove_directory(&directory))
    }
}

/// Removes the cgroup with this directory and all cgroups below, after their processes have exited.
pub fn remove_directory(directory: &Path) -> Result<()> {
    remove_tree(directory, Instant::now() + Duration::from_secs(10))
}

/// Enables the v2 controllers for the children of the cgroup with this directory.
pub fn enable_controllers(directory: &Path) -> Result<()> {
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

/// Removes a directory tree, with retries until the deadline: a killed process leaves its cgroup only after its memory is freed.
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

/// Returns the UID of the pod with this number in this boot.
pub fn pod_uid(number: u32) -> String {
    format!("0a1b2c3d-4e5f-4a6b-8c7d-{number:012x}")
}

/// Returns the path that the kubelet's systemd driver gives a pod. A dash in a slice's name would mean a level.
pub fn pod_path(qos: Qos, uid: &str) -> String {
    let uid = uid.replace('-', "_");
    match qos {
        Qos::Guaranteed => format!("kubepods.slice/kubepods-pod{uid}.slice"),
        Qos::Burstable => format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice"),
        Qos::BestEffort => format!("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{uid}.slice"),
    }
}

/// Returns the cgroup of a container that the runtime runs for a pod of any class.
pub fn container_of(layout: Layout, uid: &str, container: &str) -> anyhow::Result<Cgroup> {
    let scope = Runtime::here().scope(container);
    let of_class = |qos| Cgroup::absent(layout, &format!("{}/{scope}", pod_path(qos, uid)));
    let found = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort]
        .map(of_class)
        .into_iter()
        .find(|one| one.directory().is_dir());
    found.with_context(|| format!("container {container} of pod {uid} has no cgroup"))
}

/// A pod's cgroup with its containers.
#[derive(Debug, Clone)]
pub struct Pod {
    /// The pod's name in the judge's messages.
    pub label: String,
    pub uid: String,
    /// The cgroup of the pod: the agent's workload.
    pub cgroup: Cgroup,
    /// The cgroups of the containers. Processes live in these.
    pub containers: Vec<Cgroup>,
}

/// The part of a pod's spec that its cgroups show.
#[derive(Debug, Clone, Copy)]
pub struct PodSpec {
    pub qos: Qos,
    /// The memory request. v1 has no file for a request and ignores it.
    pub request_mib: u64,
    /// The memory limit; 0 means no limit.
    pub limit_mib: u64,
    pub containers: u32,
}

impl PodSpec {
    /// Returns the spec of a Guaranteed pod: requests and limits are this many MiB.
    pub fn guaranteed(mib: u64) -> Self {
        Self { qos: Qos::Guaranteed, request_mib: mib, limit_mib: mib, containers: 1 }
    }

    /// Returns the spec of a Burstable pod: it requests this many MiB and has no limit.
    pub fn burstable(request_mib: u64) -> Self {
        Self { qos: Qos::Burstable, request_mib, limit_mib: 0, containers: 1 }
    }

    /// Returns the spec of a BestEffort pod: it has neither requests nor limits.
    pub fn best_effort() -> Self {
        Self { qos: Qos::BestEffort, request_mib: 0, limit_mib: 0, containers: 1 }
    }
}

impl Pod {
    /// Makes the cgroups of the pod with this UID.
    pub fn create(layout: Layout, label: &str, uid: &str, spec: PodSpec) -> Result<Self> {
        if spec.containers == 0 {
            bail!("pod {label}: a pod has at least one container");
        }
        let path = pod_path(spec.qos, uid);
        let containers = (0..spec.containers)
            .map(|index| {
                let id = format!("{}{index:032x}", uid.replace('-', ""));
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
        Ok(Self { label: label.to_owned(), uid: uid.to_owned(), cgroup, containers })
    }

    /// Returns the agent's name for this workload.
    pub fn workload(&self) -> &str {
        &self.cgroup.path
    }

    /// Returns the first container.
    pub fn container(&self) -> Result<&Cgroup> {
        self.containers.first().with_context(|| format!("pod {} has no container", self.label))
    }
}
