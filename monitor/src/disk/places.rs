//! Where a workload's files lie, found without asking a runtime or an API server: pods by the UID in their cgroup's path, writable layers
//! by what the containers' own processes have for a root.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::heart::Heart;
use super::host::{Host, Roots, is_mounted, status};
use super::layers::Overlays;
use super::mounts::{of_init, plain, read};
use super::processes::Container;
use super::tree::device;
use super::usage::Part;
use crate::node::mountinfo::unescaped;
use crate::units::CgroupId;
use crate::units::Monotonic;
use crate::workloads::{Kind, PodUid, Workload};

/// Volumes of a pod that lie on the node's own disk and go with it (`eviction-semantics.md` §5), by the kubelet's name for the plugin.
pub(super) const LOCAL_VOLUMES: [&str; 3] =
    ["kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~git-repo"];
/// Filesystems in memory, which answer at once.
const MEMORY: [&str; 3] = ["tmpfs", "hugetlbfs", "ramfs"];
/// Of init's `mountinfo`: a node has some thousand mounts.
pub(super) const MOST_MOUNTINFO: u64 = 32 << 20;
/// Of volumes, of containers with logs, and of pods with logs: a node runs a few hundred pods.
const MOST_NAMES: usize = 4096;
/// Of one workload.
const MOST_PLACES: usize = 512;

/// A writable layer that somebody knows of who asked the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The runtime's id of the container.
    pub container: String,
    /// The directory of what was changed, in the eyes of the machine's init.
    pub directory: PathBuf,
}

/// A workload that is to be measured, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadPlaces {
    /// Its name.
    pub workload: String,
    /// Its identity.
    pub id: CgroupId,
    /// The directory of its cgroup, which leads to its processes.
    pub cgroup: PathBuf,
    /// The pod that it is, if it is one.
    pub pod: Option<PodUid>,
    /// Writable layers that are known; others are looked for.
    pub layers: Vec<Layer>,
    /// What it keeps is limited, and the limit is known: it is looked at more often, for nothing tells of files that grow.
    pub is_limited: bool,
    /// What project quotas say of it is true: nobody in it can give files another project.
    pub believes_quotas: bool,
}

impl WorkloadPlaces {
    /// What is to be measured of a workload in a hierarchy of cgroups; nothing where it is not known what it keeps: a plain service may
    /// write anywhere.
    #[must_use]
    pub fn of(workload: &Workload, hierarchy: &Path) -> Option<Self> {
        let places = || Self {
            workload: workload.name.clone(),
            id: workload.id,
            cgroup: hierarchy.join(&workload.name),
            pod: workload.kind.pod_uid().cloned(),
            layers: Vec::new(),
            is_limited: false,
            believes_quotas: false,
        };
        Self::has(workload).then(places)
    }

    /// Whether it has any.
    #[must_use]
    pub fn has(workload: &Workload) -> bool {
        match workload.kind {
            Kind::Pod(_) | Kind::Container(_) => true,
            Kind::Service | Kind::Scope | Kind::Cgroup => false,
        }
    }
}

/// A directory or file to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What it is.
    pub part: Part,
    /// Where, in the eyes of the machine's init.
    pub path: PathBuf,
}

/// What the open files of a container's processes can lie on.
#[derive(Debug, Default)]
pub struct Shown {
    /// The device of its own overlay, which is nobody else's.
    pub layer: Option<(String, Part)>,
    /// Volumes by the number of a mount.
    pub mounts: HashMap<u64, Part>,
    /// Mounts that show something else.
    pub others: HashSet<u64>,
    /// The pod's volumes by their device: for mounts that are not seen any more.
    pub volumes: Vec<(String, Part)>,
}

/// What was found of a workload.
#[derive(Debug, Default)]
pub struct Found {
    /// What is to be measured.
    pub places: Vec<Place>,
    /// Whose open files are to be looked at, with what they see.
    pub views: Vec<(Container, Shown)>,
    /// The devices of the pod's volumes.
    pub volumes: Vec<(String, Part)>,
    /// What could not be found, and why.
    pub missing: BTreeSet<String>,
    /// Containers that showed nothing: most likely they have just ended.
    pub unseen: usize,
}

impl Found {
    pub(super) fn miss(&mut self, what: impl std::fmt::Display) {
        self.missing.insert(format!("disk usage: {what}"));
    }
}

/// Finds the places of workloads.
#[derive(Debug)]
pub struct Finder {
    pub(super) host: Host,
    pub(super) roots: Roots,
    /// Those that the machine's init knows.
    pub(super) overlays: Overlays,
    heart: Arc<Heart>,
}

impl Finder {
    pub fn new(roots: Roots, heart: Arc<Heart>) -> Self {
        Self { heart, ..Self::on(Host::of_init(&roots.proc), roots) }
    }

    /// On a host whose files are somewhere else.
    pub fn on(host: Host, roots: Roots) -> Self {
        Self { host, roots, overlays: Overlays::default(), heart: Arc::default() }
    }

    /// Says where work goes on.
    pub fn enter(&self, path: &Path) {
        self.heart.enter(path.display(), Monotonic::now());
    }

    pub const fn host(&self) -> &Host {
        &self.host
    }

    pub fn proc(&self) -> &Path {
        &self.roots.proc
    }

    /// Says that it goes on there.
    pub fn beat(&self) {
        self.heart.beat(Monotonic::now());
    }

    /// Looks for all places of a workload.
    pub fn find(&mut self, wanted: &WorkloadPlaces) -> Found {
        let mut found = Found::default();
        if let Some(PodUid(uid)) = &wanted.pod {
            let pods = self.pods();
            for (root, what) in [(&pods, "volumes"), (&self.roots.pod_logs, "logs")] {
                self.enter(root);
                if self.host.open(root).is_err() {
                    let root = root.display();
                    found.miss(format_args!("there is no {root} on this node: the {what} of pods are not counted"));
                }
            }
            self.find_volumes(&pods.join(uid), uid, &mut found);
            self.find_logs(uid, &mut found);
        }
        for Layer { container, directory } in &wanted.layers {
            let part = Part::WritableLayer { container: container.clone() };
            found.places.push(Place { part, path: directory.clone() });
        }
        self.find_layers(wanted, &mut found);
        if found.places.len() > MOST_PLACES {
            found.places.truncate(MOST_PLACES);
            found.miss(format_args!(
                "a workload keeps files in more than {MOST_PLACES} places: the others are not counted"
            ));
        }
        found
    }

    /// Where the kubelet keeps pods: the operator may have named its directory. Asked anew, for a kubelet may start later.
    fn pods(&self) -> PathBuf {
        let configured = self.roots.node.as_ref().map(|node| node.join("pods"));
        let is_there = |pods: &PathBuf| self.host.open(pods).is_ok();
        configured.filter(is_there).unwrap_or_else(|| self.roots.kubelet.join("pods"))
    }

    fn names(&self, path: &Path, found: &mut Found) -> Vec<String> {
        match self.host.names(path, MOST_NAMES) {
            Ok(names) => names,
            // Nothing of the kind there, or gone by now.
            Err(Errno::NOENT | Errno::NOTDIR) => Vec::new(),
            Err(errno) => {
                // Said once, not for every pod.
                let roots = [Some(&self.roots.kubelet), self.roots.node.as_ref(), Some(&self.roots.pod_logs)];
                let root = roots.into_iter().flatten().find(|root| path.starts_with(root));
                let path = root.map_or(path, |root| root).display();
                found.miss(format_args!(
                    "cannot read directories below {path}: {errno}; what is there is not counted \
                     (needs CAP_DAC_READ_SEARCH)"
                ));
                Vec::new()
            }
        }
    }

    fn find_volumes(&self, pod: &Path, uid: &str, found: &mut Found) {
        let mut mounted = None;
        for plugin in LOCAL_VOLUMES {
            let directory = pod.join("volumes").join(plugin);
            self.enter(&directory);
            let Ok(opened) = self.host.open(&directory) else { continue };
            let Some(disk) = status(&opened).ok().map(|status| device(&status).to_string()) else { continue };
            for name in self.names(&directory, found) {
                let path = directory.join(&name);
                if is_mounted(&opened, &name) == Some(false) {
                    let part = Part::Volume { name };
                    found.volumes.push((disk.clone(), part.clone()));
                    found.places.push(Place { part, path });
                    continue;
                }
                // `medium: Memory` and huge pages are filesystems of their own. Any other one may not answer: it is not touched.
                let mounted = mounted.get_or_insert_with(|| Mounted::below(&self.roots.proc, uid));
                let part = match mounted.at(&format!("{plugin}/{name}")) {
                    Some((kind, _)) if MEMORY.contains(&kind) => Part::MemoryVolume { name },
                    Some((_, on)) if on == disk => Part::Volume { name },
                    Some((kind, _)) => {
                        found.miss(format_args!(
                            "a {} is mounted over a volume of a pod: what the pod keeps there is not counted",
                            plain(kind)
                        ));
                        continue;
                    }
                    // It has just been unmounted, or the kernel cannot tell what is mounted there and nothing is.
                    None => Part::Volume { name },
                };
                found.places.push(Place { part, path });
            }
        }
        for name in ["containers", "etc-hosts"] {
            let path = pod.join(name);
            if self.host.open(&path).is_ok() {
                found.places.push(Place { part: Part::PodFiles, path });
            }
        }
    }

    fn find_logs(&self, uid: &str, found: &mut Found) {
        // NAMESPACE_NAME_UID: neither namespace nor name can hold an underscore.
        let is_its = |name: &String| name.rsplit_once('_').is_some_and(|(_, of)| of == uid);
        for directory in self.names(&self.roots.pod_logs, found).iter().filter(|name| is_its(name)) {
            let directory = self.roots.pod_logs.join(directory);
            for container in self.names(&directory, found) {
                let path = directory.join(&container);
                found.places.push(Place { part: Part::Logs { container }, path });
            }
        }
    }
}

/// What init has mounted on the volumes of a pod.
#[derive(Debug, Default)]
struct Mounted(HashMap<PathBuf, (String, String)>);

impl Mounted {
    fn below(proc: &Path, uid: &str) -> Self {
        let mut mounted = Self::default();
        let below = format!("/{uid}/volumes/");
        // Of a volume of which nothing is said its directory is walked, which touches no mount.
        let _unreadable = read(&of_init(proc), MOST_MOUNTINFO, |mount| {
            let name = mount.mount_point.split_once(&below).map(|(_, name)| unescaped(name));
            // Of several mounts at one place the last one is seen.
            if let Some(name) = name
                && mounted.0.len() < MOST_NAMES
            {
                mounted.0.insert(name, (mount.kind.to_owned(), mount.device.to_owned()));
            }
        });
        mounted
    }

    /// Kind and device.
    fn at(&self, name: &str) -> Option<(&str, &str)> {
        self.0.get(Path::new(name)).map(|(kind, device)| (kind.as_str(), device.as_str()))
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
