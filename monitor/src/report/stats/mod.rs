//! `/stats/summary`: the kubelet's Summary API document, from the agent's own figures.
//!
//! The loop passes its data (a few pointers) to a separate thread. That thread reads the pods' cgroups and builds the document.

mod cgroup_usage;
pub mod document;

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

pub(super) use self::cgroup_usage::Cgroups;
pub use self::cgroup_usage::CpuHistory;
use self::document::{
    Container, Document, Fs, Memory, Node, Pod, PodRef, ProcessStats, Rlimit, Runtime, Swap, Time, Volume,
};
use super::{MemoryReport, SwapReport};
use crate::disk::{Usage, Usages};
use crate::node::Hierarchy;
use crate::node::filesystem_roles::Role;
use crate::node::statfs::FsSample;
use crate::runtime::{Sandbox, Snapshot, Stores, UnixNanos};
use crate::units::CgroupId;
use crate::workloads::cgroup_path::{self, PodUid};
use crate::workloads::kubelet_summary::{ContainerStats, FsUsage, VolumeStats};
use crate::workloads::{Pod as Spec, PodSpecs, task_count};

/// The loop's data that a document is built from.
#[derive(Debug)]
pub struct Known {
    /// The node's name at the API server, or its host name without one.
    pub node_name: String,
    pub memory: Option<MemoryReport>,
    pub swap: Option<SwapReport>,
    /// Process ids: available and maximum.
    pub pids: Option<(i64, i64)>,
    pub filesystems: Vec<FsSample>,
    /// Disk usage of the image store.
    pub stores: Stores,
    pub hierarchy: Hierarchy,
    pub pods: Vec<PodCgroup>,
    /// The container runtime's last listing.
    pub snapshot: Option<Arc<Snapshot>>,
    pub specs: Arc<PodSpecs>,
    pub usages: Arc<Usages>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodCgroup {
    pub uid: PodUid,
    /// The cgroup's path below the hierarchy's root.
    pub path: String,
    pub id: CgroupId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Whole,
    /// The kubelet's `only_cpu_and_memory=true`.
    CpuAndMemory,
}

/// Characters of a container's name, which is a DNS label. An id of the runtime has 64.
const LONGEST_NAME: usize = 63;
/// Parent cgroups of all pods: of the kubelet's systemd driver, and of its cgroupfs driver.
const ALL_PODS: [&str; 2] = ["kubepods.slice", "kubepods"];

/// Builds the document. Reads several files per pod and container, so it must not run on the loop's thread.
pub fn document(known: &Known, extent: Extent, history: &mut CpuHistory) -> Document {
    let mut cgroups = Cgroups::new(&known.hierarchy, history);
    let names = Names::of(known);
    let node = node(known, extent, &mut cgroups);
    let pods = known.pods.iter().filter_map(|pod| names.pod(pod, known, extent, &mut cgroups)).collect();
    cgroups.finish();
    Document { node, pods }
}

fn node(known: &Known, extent: Extent, cgroups: &mut Cgroups<'_>) -> Node {
    let now = Time(Timestamp::now());
    let root = cgroups.open("");
    let memory = |memory: &MemoryReport| Memory {
        time: now,
        available_bytes: Some(memory.kubelet.0),
        usage_bytes: memory.usage.0,
        working_set_bytes: memory.working_set.0,
        ..Memory::default()
    };
    let mut node = Node {
        node_name: known.node_name.clone(),
        system_containers: all_pods(cgroups).into_iter().collect(),
        start_time: booted(),
        cpu: root.and_then(|root| cgroups.cpu(&root, "")),
        memory: known.memory.as_ref().map(memory),
        ..Node::default()
    };
    if extent == Extent::CpuAndMemory {
        return node;
    }
    let fs = |role| known.filesystems.iter().find(|sample| sample.role == role).map(of_filesystem);
    let image_fs = fs(Role::Image).map(|fs| Fs {
        used_bytes: known.stores.image_used.map(|used| used.0),
        inodes_used: known.stores.image_inodes,
        ..fs
    });
    let container_fs = fs(Role::Container).or_else(|| fs(Role::Image));
    node.fs = fs(Role::Node);
    node.runtime = (image_fs.is_some() || container_fs.is_some()).then_some(Runtime { image_fs, container_fs });
    node.rlimit = known.pids.map(|(available, most)| Rlimit {
        time: now,
        max_pid: most,
        running: most.saturating_sub(available),
    });
    node.swap = known.swap.as_ref().map(|swap| Swap {
        time: now,
        swap_available_bytes: swap.free.0,
        swap_usage_bytes: swap.total.saturating_sub(swap.free).0,
    });
    node
}

fn all_pods(cgroups: &mut Cgroups<'_>) -> Option<Container> {
    let (path, directory) = ALL_PODS.iter().find_map(|path| Some((*path, cgroups.open(path)?)))?;
    let (cpu, memory) = (cgroups.cpu(&directory, path), cgroups.memory(&directory, path));
    Some(Container { name: "pods".to_owned(), cpu, memory, ..Container::default() })
}

fn of_filesystem(sample: &FsSample) -> Fs {
    let FsSample { space, inodes, at, .. } = sample;
    Fs {
        time: Time(at.wall()),
        available_bytes: space.map(|space| space.available.0),
        capacity_bytes: space.map(|space| space.capacity.0),
        used_bytes: space.map(|space| space.used.0),
        inodes_free: inodes.map(|inodes| inodes.free),
        inodes: inodes.map(|inodes| inodes.total),
        inodes_used: inodes.map(|inodes| inodes.total.saturating_sub(inodes.free)),
    }
}

/// Indexes for the lookups of each pod.
struct Names<'k> {
    sandboxes: HashMap<&'k str, &'k Sandbox>,
    /// The runtime's ids of all sandboxes.
    sandbox_ids: HashSet<&'k str>,
    /// Name and creation time of a container by its runtime id.
    containers: HashMap<&'k str, (&'k str, Option<UnixNanos>)>,
    node_fs: Option<Fs>,
}

impl<'k> Names<'k> {
    fn of(known: &'k Known) -> Self {
        let mut sandboxes: HashMap<&str, &Sandbox> = HashMap::new();
        let snapshot = known.snapshot.as_deref();
        for sandbox in snapshot.into_iter().flat_map(|snapshot| &snapshot.sandboxes) {
            let of_pod = sandboxes.entry(sandbox.pod.uid.0.as_str()).or_insert(sandbox);
            // The lowest attempt is the oldest sandbox: its creation time is the pod's.
            if sandbox.attempt < of_pod.attempt {
                *of_pod = sandbox;
            }
        }
        let containers = snapshot.into_iter().flat_map(|snapshot| &snapshot.containers);
        let containers = containers.map(|it| (it.id.as_str(), (it.name.as_str(), it.created))).collect();
        let node_fs = known.filesystems.iter().find(|sample| sample.role == Role::Node).map(of_filesystem);
        let sandbox_ids =
            snapshot.into_iter().flat_map(|snapshot| &snapshot.sandboxes).map(|it| it.id.as_str()).collect();
        Self { sandboxes, sandbox_ids, containers, node_fs }
    }

    /// Returns the figures of a pod, or `None` if its cgroup is gone.
    fn pod(&self, pod: &PodCgroup, known: &Known, extent: Extent, cgroups: &mut Cgroups<'_>) -> Option<Pod> {
        let directory = cgroups.open(&pod.path)?;
        let sandbox = self.sandboxes.get(pod.uid.0.as_str());
        let spec = known.specs.find(&pod.uid);
        let (containers, process_count) = self.containers(pod, spec, cgroups);
        let mut described = Pod {
            pod_ref: reference(&pod.uid, &known.specs, sandbox.copied()),
            start_time: sandbox.and_then(|sandbox| unix(sandbox.created)),
            containers,
            cpu: cgroups.cpu(&directory, &pod.path),
            memory: cgroups.memory(&directory, &pod.path),
            ..Pod::default()
        };
        if extent == Extent::Whole {
            described.process_stats = process_count.map(|process_count| ProcessStats { process_count });
            if let Some(usage) = known.usages.get(&pod.path, pod.id) {
                self.add_disks(&mut described, usage, spec);
            }
        }
        Some(described)
    }

    /// Returns the running containers whose names the runtime or the API server has reported, and the number of their processes. As for the
    /// kubelet, these are the processes in the cgroup of each container, without the sandbox and without cgroups below.
    fn containers(
        &self,
        pod: &PodCgroup,
        spec: Option<&Spec>,
        cgroups: &mut Cgroups<'_>,
    ) -> (Vec<Container>, Option<u64>) {
        let (mut containers, mut processes) = (Vec::new(), None);
        for child in cgroups.children(&pod.path) {
            let path = format!("{}/{child}", pod.path);
            let cgroup_path::Role::Container(id) = cgroup_path::role(&path) else { continue };
            // The sandbox, which holds the pod's namespaces, is not a container.
            let Some((name, created)) = self.container(&id, spec) else { continue };
            let Some(directory) = cgroups.open(&path) else { continue };
            let (cpu, memory) = (cgroups.cpu(&directory, &path), cgroups.memory(&directory, &path));
            processes =
                task_count::processes(directory.as_fd()).map(|count| count + processes.unwrap_or(0)).or(processes);
            let (name, start_time) = (name.to_owned(), unix(created));
            containers.push(Container { name, start_time, cpu, memory, ..Container::default() });
        }
        containers.sort_by(|a, b| a.name.cmp(&b.name));
        (containers, processes)
    }

    /// Returns the name of a container by its runtime id, and its creation time if the runtime has reported it.
    fn container<'a>(&'a self, id: &str, spec: Option<&'a Spec>) -> Option<(&'a str, Option<UnixNanos>)> {
        self.containers.get(id).copied().or_else(|| Some((spec?.container_name(id)?, None)))
    }

    fn add_disks(&self, pod: &mut Pod, usage: &Usage, spec: Option<&Spec>) {
        let name_of = |id: &str| self.container(id, spec).map(|(name, _)| name.to_owned());
        let stats = usage.statistics(&pod.pod_ref.uid, name_of);
        let time = Time(usage.at.wall());
        let used = |fs: FsUsage| self.used(fs.used_bytes, fs.inodes_used, time);
        // A sandbox has a writable layer, too. The kubelet does not count it. One that the runtime has not reported yet has no name.
        let is_sandbox = |stats: &ContainerStats| {
            let is_unnamed = spec.is_some() && stats.name.len() > LONGEST_NAME;
            is_unnamed || self.sandbox_ids.contains(stats.name.as_str())
        };
        let (sandboxes, containers): (Vec<_>, Vec<_>) = stats.containers.into_iter().partition(is_sandbox);
        for ContainerStats { name, rootfs, logs, .. } in containers {
            let place = pod.containers.iter().position(|container| container.name == name);
            let place = place.unwrap_or_else(|| {
                pod.containers.push(Container { name, ..Container::default() });
                pod.containers.len() - 1
            });
            if let Some(container) = pod.containers.get_mut(place) {
                // The runtime chooses the filesystem of the layer, so its free space is unknown here.
                let rootfs = rootfs.map(|fs| alone(fs.used_bytes, fs.inodes_used, time));
                (container.rootfs, container.logs) = (rootfs, logs.map(used));
            }
        }
        let volume =
            |VolumeStats { name, used_bytes, inodes_used }| Volume { name, fs: alone(used_bytes, inodes_used, time) };
        pod.volumes = stats.volumes.into_iter().map(volume).collect();
        let layers: Vec<FsUsage> = sandboxes.iter().filter_map(|sandbox| sandbox.rootfs).collect();
        let without = |all: Option<u64>, of: fn(&FsUsage) -> Option<u64>| {
            Some(all?.saturating_sub(layers.iter().filter_map(of).sum()))
        };
        pod.ephemeral_storage = stats.ephemeral_storage.map(|fs| {
            let (bytes, inodes) =
                (without(fs.used_bytes, |fs| fs.used_bytes), without(fs.inodes_used, |fs| fs.inodes_used));
            self.used(bytes, inodes, time)
        });
    }

    /// Returns a usage of the node's filesystem.
    fn used(&self, used_bytes: Option<u64>, inodes_used: Option<u64>, time: Time) -> Fs {
        Fs { time, used_bytes, inodes_used, ..self.node_fs.unwrap_or_default() }
    }
}

/// Returns a usage of a filesystem whose size is unknown.
fn alone(used_bytes: Option<u64>, inodes_used: Option<u64>, time: Time) -> Fs {
    Fs { time, used_bytes, inodes_used, ..Fs::default() }
}

/// Returns the pod's name and namespace from the API server, or from the runtime otherwise.
fn reference(uid: &PodUid, specs: &PodSpecs, sandbox: Option<&Sandbox>) -> PodRef {
    let by_server = specs.find(uid).map(|pod| (&pod.metadata.name, &pod.metadata.namespace));
    let by_runtime = || sandbox.map(|sandbox| (&sandbox.pod.name, &sandbox.pod.namespace));
    let (name, namespace) = by_server.or_else(by_runtime).unzip();
    PodRef { name: name.cloned(), namespace: namespace.cloned(), uid: uid.0.clone() }
}

fn unix(nanos: Option<UnixNanos>) -> Option<Time> {
    Timestamp::from_nanosecond(nanos?.0.into()).ok().map(Time)
}

/// Returns the boot time. Uses `CLOCK_BOOTTIME`, which includes suspend.
fn booted() -> Time {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let since = Duration::from_secs(u64::try_from(since.tv_sec).unwrap_or(0));
    let now = Timestamp::now();
    Time(now.checked_sub(since).unwrap_or(now))
}

#[cfg(test)]
#[path = "../stats_tests.rs"]
mod tests;
