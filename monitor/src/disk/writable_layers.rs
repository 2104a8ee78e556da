//! Finds the writable layers of containers: the roots of their processes, if the machine's init has the same mounts.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::container_mounts::{InitNamespaces, MountView, Root, containers, mount_view};
use super::host_files::Host;
use super::measured_usage::Part;
use super::process_mounts::{of_init, plain, read};
use super::workload_places::{Found, LOCAL_VOLUMES, MAX_MOUNTINFO_BYTES, Place, VisibleMounts, WorkloadPlaces};
use crate::node::mountinfo::Mount;
use crate::workloads::PodUid;

/// The directories in which runtimes keep overlays that they mount by a relative path (c/storage does so for an image with very
/// many layers).
const STORES: [&str; 3] = [
    "/var/lib/containers/storage/overlay",
    "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots",
    "/var/lib/docker/overlay2",
];
/// Limit of overlays on the whole machine.
const MAX_OVERLAYS: usize = 16 * 1024;
/// Looks in succession that have to find no overlay of a container before that is reported. The first process of a new container has the
/// host's root until the runtime has called `pivot_root`.
pub const LOOKS: u32 = 3;

/// The overlays mounted in init's namespace, by device. These are the overlays that the machine's own programs mounted. A process
/// in a user namespace can make its own overlay look like its root (Linux 5.11).
#[derive(Debug, Default)]
pub struct Overlays {
    upper: HashMap<String, PathBuf>,
    /// Whether the overlays were read for the current workload. An overlay that is missing then is not looked up again.
    is_fresh: bool,
    /// How many looks in succession have found no overlay of a container, by its id.
    without: HashMap<String, u32>,
}

impl Overlays {
    /// Returns the upper directory that init shows for an overlay. Reads the mounts again if the process shows another one,
    /// because the kernel reuses device numbers.
    fn find(&mut self, proc: &Path, root: &Root) -> Option<&PathBuf> {
        if !self.is_fresh && self.upper.get(&root.device) != root.upper.as_ref() {
            self.is_fresh = true;
            self.upper.clear();
            let upper = &mut self.upper;
            // If this fails, no overlay is known.
            let _unreadable = read(&of_init(proc), MAX_MOUNTINFO_BYTES, |mount| {
                if upper.len() < MAX_OVERLAYS
                    && let Some(directory) = mount.upper_directory()
                {
                    upper.insert(mount.device.to_owned(), directory);
                }
            });
        }
        self.upper.get(&root.device)
    }

    /// Finds the writable layers of a workload's containers, and the mounts that their processes see.
    pub fn find_layers(&mut self, host: &Host, proc: &Path, wanted: &WorkloadPlaces, found: &mut Found) {
        let init = InitNamespaces::of(proc);
        self.is_fresh = false;
        let volume = |mount: &Mount<'_>| wanted.pod.as_ref().and_then(|PodUid(uid)| volume(mount, uid));
        for container in containers(&wanted.cgroup) {
            let view = mount_view(proc, &init, &container, volume);
            // The container has most likely exited. It then has no open files either.
            if !view.is_readable {
                found.unreadable += 1;
                if container.processes.is_empty() {
                    found.miss(
                        "the processes of containers are in another pid namespace: their writable layers are not \
                         counted (needs hostPID)",
                    );
                }
                continue;
            }
            if view.is_cut_off {
                found.miss(
                    "a container has very many mounts, or very many processes with their own mounts: some of them \
                     are not read",
                );
            }
            let part = Part::WritableLayer { container: container.id.clone() };
            let is_known = found.places.iter().any(|place| place.part == part);
            let layer = self.layer(host, proc, &container.id, &view, is_known, found);
            if let Some((_, Some(directory))) = &layer {
                found.places.push(Place { part: part.clone(), path: directory.clone() });
            }
            let layer = layer.map(|(device, _)| (device, part));
            let of_layer = |device: &String| layer.as_ref().is_some_and(|(layer, _)| layer == device);
            let others: HashSet<u64> =
                view.others.iter().filter(|(_, device)| !of_layer(device)).map(|(mount, _)| *mount).collect();
            let mounts = view.volumes.into_iter().map(|(mount, name)| (mount, Part::Volume { name })).collect();
            found.views.push((container, VisibleMounts { layer, mounts, others, volumes: found.volumes.clone() }));
        }
    }

    /// Returns the device of a container's overlay and, unless the layer is known, its upper directory. The machine's init must
    /// know the overlay, because a process could mount an overlay that names any directory. If the runtime hides its mounts from
    /// init, the view of a container without a user namespace is trusted: a process that can mount an overlay there can do
    /// anything else as well.
    fn layer(
        &mut self,
        host: &Host,
        proc: &Path,
        container: &str,
        view: &MountView,
        is_known: bool,
        found: &mut Found,
    ) -> Option<(String, Option<PathBuf>)> {
        let overlays = || view.roots.iter().filter(|root| root.upper.is_some());
        let of_init = overlays().find_map(|root| Some((root, self.find(proc, root)?.clone())));
        let believed = || {
            let root = overlays().find(|root| root.is_of_init_user)?;
            Some((root, root.upper.clone()?))
        };
        let Some((root, upper)) = of_init.or_else(believed) else {
            if !is_known {
                self.miss(container, view, found);
            }
            return None;
        };
        self.without.remove(container);
        let device = root.device.clone();
        if is_known {
            return Some((device, None));
        }
        if upper.is_absolute() {
            return Some((device, Some(upper)));
        }
        let in_store = STORES.iter().map(|store| Path::new(store).join(&upper)).find(|path| host.open(path).is_ok());
        if in_store.is_none() {
            found.miss("an overlay names its upper directory by a relative path: that writable layer is not counted");
        }
        Some((device, in_store))
    }

    /// Notes that a container has no known overlay. Reports it after several looks; until then the measurement is only incomplete.
    fn miss(&mut self, container: &str, view: &MountView, found: &mut Found) {
        // Containers that are gone are forgotten with the others.
        if self.without.len() >= MAX_OVERLAYS {
            self.without.clear();
        }
        let looks = self.without.entry(container.to_owned()).or_default();
        *looks = looks.saturating_add(1);
        if *looks < LOOKS {
            found.unreadable += 1;
            return;
        }
        match view.roots.first() {
            Some(root) if view.roots.iter().all(|root| root.upper.is_none()) => found.miss(format_args!(
                "writable layers are found only on overlays: those of containers on {} are not counted",
                plain(&root.kind)
            )),
            _ => found.miss(
                "a container's overlay is not among the mounts of the machine's init: its writable layer is not counted",
            ),
        }
    }
}

/// Returns the pod's volume that a mount in a container shows, completely or partly (`subPath`).
fn volume(mount: &Mount<'_>, uid: &str) -> Option<String> {
    let (_, below) = mount.root.split_once(&format!("/{uid}/volumes/"))?;
    let (plugin, name) = below.split_once('/')?;
    let name = name.split('/').next().filter(|_| LOCAL_VOLUMES.contains(&plugin))?;
    Some(name.to_owned())
}
