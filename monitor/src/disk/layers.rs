//! Writable layers: what the containers' own processes have for a root, if the machine's init knows it too.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::mounts::{Mount, of_init, plain, read};
use super::places::{Finder, Found, LOCAL_VOLUMES, MOST_MOUNTINFO, Place, Shown, WorkloadPlaces};
use super::processes::{Eyes, Init, Root, containers, eyes};
use super::usage::Part;
use crate::workloads::PodUid;

/// Where runtimes keep overlays when they name them by a path that does not begin at the root (c/storage does when an image has very
/// many layers).
const STORES: [&str; 3] = [
    "/var/lib/containers/storage/overlay",
    "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots",
    "/var/lib/docker/overlay2",
];
/// Of the whole machine.
const MOST_OVERLAYS: usize = 16 * 1024;

/// The overlays in the eyes of the machine's init, by device. A process can make an overlay of its own look like its root (in a user
/// namespace, Linux 5.11); here only those are that the machine's own programs mounted.
#[derive(Debug, Default)]
pub struct Overlays {
    upper: HashMap<String, PathBuf>,
    /// Once for a workload: one that is not there is not there at the second look.
    is_fresh: bool,
}

impl Overlays {
    /// Where init says that an overlay keeps what was changed. Read again when it is not as the process has it: a device's number is used
    /// again when an overlay is gone.
    fn find(&mut self, proc: &Path, root: &Root) -> Option<&PathBuf> {
        if !self.is_fresh && self.upper.get(&root.device) != root.upper.as_ref() {
            self.is_fresh = true;
            self.upper.clear();
            let upper = &mut self.upper;
            // Without it no overlay is known.
            let _unreadable = read(&of_init(proc), MOST_MOUNTINFO, |mount| {
                if upper.len() < MOST_OVERLAYS
                    && let Some(directory) = mount.upper_directory()
                {
                    upper.insert(mount.device.to_owned(), directory);
                }
            });
        }
        self.upper.get(&root.device)
    }
}

impl Finder {
    pub(super) fn find_layers(&mut self, wanted: &WorkloadPlaces, found: &mut Found) {
        let init = Init::of(&self.roots.proc);
        self.overlays.is_fresh = false;
        let volume = |mount: &Mount<'_>| wanted.pod.as_ref().and_then(|PodUid(uid)| volume(mount, uid));
        for container in containers(&wanted.cgroup) {
            let eyes = eyes(&self.roots.proc, &init, &container, volume);
            // Ended by now, most likely: then it holds nothing open either.
            if !eyes.is_open {
                found.unseen += 1;
                if container.processes.is_empty() {
                    found.miss(
                        "the processes of containers are in another pid namespace: their writable layers are not \
                         counted (needs hostPID)",
                    );
                }
                continue;
            }
            if eyes.is_cut_off {
                found.miss(
                    "a container has very many mounts, or very many processes with mounts of their own: some of them \
                     are not looked at",
                );
            }
            let part = Part::WritableLayer { container: container.id.clone() };
            let is_known = found.places.iter().any(|place| place.part == part);
            let layer = self.layer(&eyes, is_known, found);
            if let Some((_, Some(directory))) = &layer {
                found.places.push(Place { part: part.clone(), path: directory.clone() });
            }
            let layer = layer.map(|(device, _)| (device, part));
            let of_layer = |device: &String| layer.as_ref().is_some_and(|(layer, _)| layer == device);
            let others: HashSet<u64> =
                eyes.others.iter().filter(|(_, device)| !of_layer(device)).map(|(mount, _)| *mount).collect();
            let mounts = eyes.volumes.into_iter().map(|(mount, name)| (mount, Part::Volume { name })).collect();
            found.views.push((container, Shown { layer, mounts, others, volumes: found.volumes.clone() }));
        }
    }

    /// The overlay of a container, and where it keeps what was changed if that is asked for. The machine's init has to know it: what a
    /// process mounted for itself could name any directory. Where the runtime hides its mounts from init, a container without users of its
    /// own is believed: nobody in it could have mounted that without being able to do anything else.
    fn layer(&mut self, eyes: &Eyes, is_known: bool, found: &mut Found) -> Option<(String, Option<PathBuf>)> {
        let proc = &self.roots.proc;
        let overlays = || eyes.roots.iter().filter(|root| root.upper.is_some());
        let of_init = overlays().find_map(|root| Some((root, self.overlays.find(proc, root)?.clone())));
        let believed = || {
            let root = overlays().find(|root| root.is_of_init_user)?;
            Some((root, root.upper.clone()?))
        };
        let Some((root, upper)) = of_init.or_else(believed) else {
            if !is_known {
                found.miss(match eyes.roots.first() {
                    Some(root) if overlays().next().is_none() => format!(
                        "writable layers are found on overlays only: containers on {} are not counted",
                        plain(&root.kind)
                    ),
                    _ => "a container's overlay is not among the mounts of the machine's init: its writable layer is \
                          not counted"
                        .to_owned(),
                });
            }
            return None;
        };
        let device = root.device.clone();
        if is_known {
            return Some((device, None));
        }
        if upper.is_absolute() {
            return Some((device, Some(upper)));
        }
        let in_store =
            STORES.iter().map(|store| Path::new(store).join(&upper)).find(|path| self.host.open(path).is_ok());
        if in_store.is_none() {
            found.miss("an overlay names its upper directory by a relative path: that writable layer is not counted");
        }
        Some((device, in_store))
    }
}

/// The pod's volume that a mount in a container shows, or a directory in it (`subPath`).
fn volume(mount: &Mount<'_>, uid: &str) -> Option<String> {
    let (_, below) = mount.root.split_once(&format!("/{uid}/volumes/"))?;
    let (plugin, name) = below.split_once('/')?;
    let name = name.split('/').next().filter(|_| LOCAL_VOLUMES.contains(&plugin))?;
    Some(name.to_owned())
}
