//! Finds the places of a workload without the runtime or the API server. The path of a pod's cgroup contains the pod's UID. The
//! roots of the containers' processes show the writable layers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::directory_walk::device;
use super::host_files::{Host, Roots, is_mounted, status};
use super::measured_usage::Part;
use super::process_mounts::{of_init, plain, read};
use super::watchdog::Watchdog;
use super::workload_places::{Found, LOCAL_VOLUMES, Layer, MAX_MOUNTINFO_BYTES, Place, WorkloadPlaces};
use super::writable_layers::Overlays;
use crate::node::mountinfo::unescaped;
use crate::units::Monotonic;
use crate::workloads::PodUid;

/// Filesystems in memory, which never hang.
const MEMORY: [&str; 3] = ["tmpfs", "hugetlbfs", "ramfs"];
/// Limit of volumes, of containers with logs, and of pods with logs. A node runs only a few hundred pods.
const MAX_NAMES: usize = 4096;
/// Limit of places of one workload.
const MAX_PLACES: usize = 512;

#[derive(Debug)]
pub struct Finder {
    host: Host,
    roots: Roots,
    overlays: Overlays,
    watchdog: Arc<Watchdog>,
}

impl Finder {
    pub fn new(roots: Roots, watchdog: Arc<Watchdog>) -> Self {
        Self { watchdog, ..Self::on(Host::of_init(&roots.proc), roots) }
    }

    /// Creates a finder for a host whose files are in another directory.
    pub fn on(host: Host, roots: Roots) -> Self {
        Self { host, roots, overlays: Overlays::default(), watchdog: Arc::default() }
    }

    pub fn enter(&self, path: &Path) {
        self.watchdog.enter(path.display(), Monotonic::now());
    }

    pub const fn host(&self) -> &Host {
        &self.host
    }

    pub fn proc(&self) -> &Path {
        &self.roots.proc
    }

    pub fn touch(&self) {
        self.watchdog.touch(Monotonic::now());
    }

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
        self.overlays.find_layers(&self.host, &self.roots.proc, wanted, &mut found);
        if found.places.len() > MAX_PLACES {
            found.places.truncate(MAX_PLACES);
            found.miss(format_args!(
                "a workload has files in more than {MAX_PLACES} places: those in the others are not counted"
            ));
        }
        found
    }

    /// Returns the kubelet's directory of pods, which may be in the configured nodefs path. Looks at each call, because a kubelet
    /// may start later.
    fn pods(&self) -> PathBuf {
        let configured = self.roots.node.as_ref().map(|node| node.join("pods"));
        let is_there = |pods: &PathBuf| self.host.open(pods).is_ok();
        configured.filter(is_there).unwrap_or_else(|| self.roots.kubelet.join("pods"))
    }

    fn names(&self, path: &Path, found: &mut Found) -> Vec<String> {
        match self.host.names(path, MAX_NAMES) {
            Ok(names) => names,
            // The directory does not exist, or has been removed.
            Err(Errno::NOENT | Errno::NOTDIR) => Vec::new(),
            Err(errno) => {
                // The message names the root directory, so that it is logged once and not for every pod.
                let roots = [Some(&self.roots.kubelet), self.roots.node.as_ref(), Some(&self.roots.pod_logs)];
                let root = roots.into_iter().flatten().find(|root| path.starts_with(root));
                let path = root.map_or(path, |root| root).display();
                found.miss(format_args!(
                    "cannot read directories below {path}: {errno}; files there are not counted \
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
                // Volumes with `medium: Memory` and huge pages are mounted filesystems. Any other mounted filesystem may hang, so
                // it is not accessed.
                let mounted = mounted.get_or_insert_with(|| Mounted::below(&self.roots.proc, uid));
                let part = match mounted.at(&format!("{plugin}/{name}")) {
                    Some((kind, _)) if MEMORY.contains(&kind) => Part::MemoryVolume { name },
                    Some((_, on)) if on == disk => Part::Volume { name },
                    Some((kind, _)) => {
                        found.miss(format_args!(
                            "a {} is mounted over a volume of a pod: the files there are not counted",
                            plain(kind)
                        ));
                        continue;
                    }
                    // The volume has just been unmounted, or the kernel cannot report mounts and nothing is mounted.
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
        // The directories are called NAMESPACE_NAME_UID. Neither the namespace nor the name can contain an underscore.
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

/// Init's mounts on the volumes of a pod: type and device by `PLUGIN/NAME`.
#[derive(Debug, Default)]
struct Mounted(HashMap<PathBuf, (String, String)>);

impl Mounted {
    fn below(proc: &Path, uid: &str) -> Self {
        let mut mounted = Self::default();
        let below = format!("/{uid}/volumes/");
        // If this fails, the directory of the volume is walked. The walk enters no mount.
        let _unreadable = read(&of_init(proc), MAX_MOUNTINFO_BYTES, |mount| {
            let name = mount.mount_point.split_once(&below).map(|(_, name)| unescaped(name));
            // Of several mounts at one place the last one is visible.
            if let Some(name) = name
                && mounted.0.len() < MAX_NAMES
            {
                mounted.0.insert(name, (mount.kind.to_owned(), mount.device.to_owned()));
            }
        });
        mounted
    }

    fn at(&self, name: &str) -> Option<(&str, &str)> {
        self.0.get(Path::new(name)).map(|(kind, device)| (kind.as_str(), device.as_str()))
    }
}

#[cfg(test)]
#[path = "place_finder_tests.rs"]
mod tests;
