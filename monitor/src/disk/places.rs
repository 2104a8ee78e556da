//! Where a workload's files lie, found without asking a runtime or an API server: pods by the UID in their cgroup's path, writable layers
//! by what the containers' own processes have for a root.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::host::{Host, Roots, status};
use super::mounts::{Mount, mounts, overlays, root};
use super::processes::{Init, View, containers, view};
use super::tree::device;
use super::usage::Part;
use crate::config::CgroupId;
use crate::node::filesystems::unescaped;
use crate::workloads::{Kind, PodUid, Workload};

/// Volumes of a pod that lie on the node's own disk and go with it (`eviction-semantics.md` §5), by the kubelet's name for the plugin.
const LOCAL_VOLUMES: [&str; 3] = ["kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~git-repo"];
/// Where runtimes keep overlays when they name them by a path that does not begin at the root (c/storage does when an image has very
/// many layers).
const STORES: [&str; 3] = [
    "/var/lib/containers/storage/overlay",
    "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots",
    "/var/lib/docker/overlay2",
];
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

/// Where a container's processes see a place: files that they deleted are named by that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Where in the container.
    pub mount_point: PathBuf,
    /// `major:minor`, as a file there has it.
    pub device: String,
    /// What it is.
    pub part: Part,
}

/// What was found of a workload.
#[derive(Debug, Default)]
pub struct Found {
    /// What is to be measured.
    pub places: Vec<Place>,
    /// Whose open files are to be looked at, with what they see.
    pub views: Vec<(View, Vec<Shown>)>,
    /// What could not be found, and why.
    pub missing: BTreeSet<String>,
    /// Containers that showed nothing: most likely they have just ended.
    pub unseen: usize,
}

impl Found {
    fn miss(&mut self, what: impl std::fmt::Display) {
        self.missing.insert(format!("disk usage: {what}"));
    }
}

/// Finds the places of workloads.
#[derive(Debug)]
pub struct Finder {
    host: Host,
    roots: Roots,
    /// By device. Read again when an overlay is not among them.
    overlays: HashMap<String, PathBuf>,
}

impl Finder {
    pub fn new(roots: Roots) -> Self {
        Self::on(Host::of_init(&roots.proc), roots)
    }

    /// On a host whose files are somewhere else.
    pub fn on(host: Host, roots: Roots) -> Self {
        Self { host, roots, overlays: HashMap::new() }
    }

    pub const fn host(&self) -> &Host {
        &self.host
    }

    pub fn proc(&self) -> &Path {
        &self.roots.proc
    }

    /// Looks for all places of a workload.
    pub fn find(&mut self, wanted: &WorkloadPlaces) -> Found {
        let mut found = Found::default();
        if let Some(PodUid(uid)) = &wanted.pod {
            for (root, what) in [(&self.roots.kubelet.join("pods"), "volumes"), (&self.roots.pod_logs, "logs")] {
                if self.host.open(root).is_err() {
                    let root = root.display();
                    found.miss(format_args!("there is no {root} on this node: the {what} of pods are not counted"));
                }
            }
            self.find_volumes(uid, &mut found);
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

    fn names(&self, path: &Path, found: &mut Found) -> Vec<String> {
        match self.host.names(path, MOST_NAMES) {
            Ok(names) => names,
            // Nothing of the kind there, or gone by now.
            Err(Errno::NOENT | Errno::NOTDIR) => Vec::new(),
            Err(errno) => {
                // Said once, not for every pod.
                let roots = [&self.roots.kubelet, &self.roots.pod_logs];
                let path = roots.into_iter().find(|root| path.starts_with(root)).map_or(path, |root| root).display();
                found.miss(format_args!(
                    "cannot read directories below {path}: {errno}; what is there is not counted \
                     (needs CAP_DAC_READ_SEARCH)"
                ));
                Vec::new()
            }
        }
    }

    fn find_volumes(&self, uid: &str, found: &mut Found) {
        let pod = self.roots.kubelet.join("pods").join(uid);
        for plugin in LOCAL_VOLUMES {
            let directory = pod.join("volumes").join(plugin);
            let of = |path: &Path| self.host.open(path).and_then(status).map(|status| device(&status)).ok();
            let disk = of(&directory);
            for name in self.names(&directory, found) {
                let path = directory.join(&name);
                // `medium: Memory` and huge pages are filesystems of their own.
                let part = if of(&path) == disk { Part::Volume { name } } else { Part::MemoryVolume { name } };
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

    fn find_layers(&mut self, wanted: &WorkloadPlaces, found: &mut Found) {
        let init = Init::of(&self.roots.proc);
        for container in containers(&wanted.cgroup) {
            // Ended by now, most likely: then it holds nothing open either.
            let Some(view) = view(&self.roots.proc, &init, &container) else {
                found.unseen += 1;
                if container.processes.is_empty() {
                    found.miss(
                        "the processes of containers are in another pid namespace: their writable layers are not \
                         counted (needs hostPID)",
                    );
                }
                continue;
            };
            let part = Part::WritableLayer { container: container.id };
            let mut shown = Vec::new();
            if let Some(mount) = root(&view.mountinfo) {
                let is_known = found.places.iter().any(|place| place.part == part);
                let directory = if is_known { None } else { self.upper_directory(&mount, view.is_of_init_user, found) };
                found.places.extend(directory.map(|path| Place { part: part.clone(), path }));
                shown.push(Shown { mount_point: PathBuf::from("/"), device: mount.device.to_owned(), part });
            }
            if let Some(PodUid(uid)) = &wanted.pod {
                shown.extend(mounts(&view.mountinfo).filter_map(|mount| volume(&mount, uid)));
            }
            found.views.push((view, shown));
        }
    }

    /// Where the overlay keeps what was changed. The machine's init has to know it: what a process mounted for itself could name any
    /// directory. Where the runtime hides its mounts from init, a container without users of its own is believed: nobody in it could
    /// have mounted that without being able to do anything else.
    fn upper_directory(&mut self, mount: &Mount<'_>, is_of_init_user: bool, found: &mut Found) -> Option<PathBuf> {
        if mount.kind != "overlay" {
            found.miss(format_args!(
                "writable layers are found on overlays only: containers on {} are not counted",
                mount.kind
            ));
            return None;
        }
        // A device's number is used again when an overlay is gone.
        let own = mount.upper_directory()?;
        if self.overlays.get(mount.device) != Some(&own) {
            self.read_overlays();
        }
        let upper = match self.overlays.get(mount.device) {
            Some(upper) => upper.clone(),
            None if is_of_init_user => own,
            None => {
                found.miss(
                    "a container's overlay is not among the mounts of the machine's init: its writable layer is not \
                     counted",
                );
                return None;
            }
        };
        if upper.is_absolute() {
            return Some(upper);
        }
        let in_store =
            STORES.iter().map(|store| Path::new(store).join(&upper)).find(|path| self.host.open(path).is_ok());
        if in_store.is_none() {
            found.miss("an overlay names its upper directory by a relative path: that writable layer is not counted");
        }
        in_store
    }

    fn read_overlays(&mut self) {
        let process = if self.roots.proc.join("1/mountinfo").exists() { "1" } else { "self" };
        let text = std::fs::read(self.roots.proc.join(process).join("mountinfo")).unwrap_or_default();
        self.overlays = overlays(&String::from_utf8_lossy(&text));
    }
}

/// The pod's volume that a mount in a container shows, or a directory in it (`subPath`).
fn volume(mount: &Mount<'_>, uid: &str) -> Option<Shown> {
    let (_, below) = mount.root.split_once(&format!("/{uid}/volumes/"))?;
    let (plugin, name) = below.split_once('/')?;
    let name = name.split('/').next().filter(|_| LOCAL_VOLUMES.contains(&plugin))?;
    let mount_point = unescaped(mount.mount_point);
    Some(Shown { mount_point, device: mount.device.to_owned(), part: Part::Volume { name: name.to_owned() } })
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
