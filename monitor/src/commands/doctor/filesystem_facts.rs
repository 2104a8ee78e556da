//! Facts about the filesystems of the kubelet and the container runtime, found as the agent finds them.

use std::path::Path;

use crate::config::MonitorConfig;
use crate::disk::project_quotas;
use crate::eviction::Layout;
use crate::node::filesystem_roles::{Choice, FilesystemHints, Role};
use crate::node::statfs::{FsSample, Statfs};

use super::facts::{Filesystem, InodesLeft};

/// Filesystem types with project quotas.
const PROJECTS: [&str; 2] = ["ext4", "xfs"];

pub const KUBELET_ROOT: &str = "/var/lib/kubelet";

/// Returns the filesystem of each role, and why one cannot be measured. On a machine without containers a missing image store is no error.
pub fn by_role(config: &MonitorConfig, has_kubelet: bool, hints: &FilesystemHints) -> (Vec<Filesystem>, Vec<String>) {
    let mut statfs = Statfs::new(&config.proc_root);
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for role in Role::ALL {
        let choice = Choice::of(role, &config.filesystems, hints);
        match statfs.sample(role, &choice) {
            Ok(sample) => found.push(filesystem(&config.proc_root, &sample)),
            Err(reason) if role == Role::Node || choice.is_configured || has_kubelet => {
                missing.push(format!("{}: {reason}", role.as_str()));
            }
            Err(_) => {}
        }
    }
    (found, missing)
}

fn filesystem(proc_root: &Path, sample: &FsSample) -> Filesystem {
    let FsSample { role, place, space, inodes, .. } = sample;
    Filesystem {
        role: role.as_str(),
        path: place.path.clone(),
        device: place.device.clone(),
        mount_point: place.mount_point.clone(),
        kind: place.kind.clone(),
        available_bytes: space.map_or(0, |space| space.available.0),
        capacity_bytes: space.map_or(0, |space| space.capacity.0),
        inodes: inodes.map(|inodes| InodesLeft { free: inodes.free, total: inodes.total }),
        project_quotas: PROJECTS
            .contains(&place.kind.as_str())
            .then(|| project_quotas(proc_root, &place.path))
            .flatten(),
    }
}

/// Derives the layout from the devices, as the agent does.
pub fn layout(filesystems: &[Filesystem]) -> &'static str {
    let device = |role: Role| filesystems.iter().find(|it| it.role == role.as_str()).map(|it| it.device.as_str());
    match Layout::of_known(device(Role::Node), device(Role::Image), device(Role::Container)) {
        Layout::Single => "single",
        Layout::DedicatedImageFs => "dedicatedImageFs",
        Layout::SplitImageFs => "splitImageFs",
    }
}

/// Whether a kubelet keeps its files below the machine's root directory `root`.
pub fn has_kubelet(root: &Path) -> bool {
    root.join(KUBELET_ROOT.trim_start_matches('/')).is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FilesystemPaths;

    #[test]
    fn nodefs_is_found_and_a_configured_path_must_exist() {
        let none = FilesystemHints::default();
        let (found, missing) = by_role(&MonitorConfig::default(), false, &none);
        assert!(found.iter().any(|filesystem| filesystem.role == "nodefs"), "{missing:?}");
        let image = Some("/nonexistent/images".into());
        let filesystems = FilesystemPaths { image, ..FilesystemPaths::default() };
        let (_, missing) = by_role(&MonitorConfig { filesystems, ..MonitorConfig::default() }, false, &none);
        assert!(missing.iter().any(|reason| reason.starts_with("imagefs: ") && reason.contains("/nonexistent/images")));
    }
}
