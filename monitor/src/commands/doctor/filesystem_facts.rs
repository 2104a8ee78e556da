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

/// The filesystems by their roles.
#[derive(Default)]
pub struct ByRole {
    pub found: Vec<Filesystem>,
    /// What the agent lacks, in its sentences. On a machine without containers a missing image store is no error.
    pub missing: Vec<String>,
    pub left_out: Vec<LeftOut>,
}

/// A role without a filesystem that can be measured, and why.
pub struct LeftOut {
    pub role: &'static str,
    pub reason: String,
}

/// Returns the filesystem of each role, or why one cannot be measured.
pub fn by_role(config: &MonitorConfig, has_kubelet: bool, hints: &FilesystemHints) -> ByRole {
    let mut statfs = Statfs::new(&config.proc_root);
    let mut all = ByRole::default();
    for role in Role::ALL {
        let choice = Choice::of(role, &config.filesystems, hints);
        match statfs.sample(role, &choice) {
            Ok(sample) => all.found.push(filesystem(&config.proc_root, &sample)),
            Err(reason) => {
                if role == Role::Node || choice.is_configured || has_kubelet {
                    all.missing.push(format!("{}: {reason}", role.as_str()));
                }
                all.left_out.push(LeftOut { role: role.as_str(), reason: reason.to_string() });
            }
        }
    }
    all
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
        let ByRole { found, missing, .. } = by_role(&MonitorConfig::default(), false, &none);
        assert!(found.iter().any(|filesystem| filesystem.role == "nodefs"), "{missing:?}");
        let image = Some("/nonexistent/images".into());
        let filesystems = FilesystemPaths { image, ..FilesystemPaths::default() };
        let all = by_role(&MonitorConfig { filesystems, ..MonitorConfig::default() }, false, &none);
        let ByRole { missing, left_out, .. } = all;
        assert!(left_out.iter().any(|it| it.role == "imagefs" && it.reason.contains("/nonexistent/images")));
        assert!(missing.iter().any(|reason| reason.starts_with("imagefs: ") && reason.contains("/nonexistent/images")));
    }
}
