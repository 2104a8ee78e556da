//! The cgroups of an OOM kill: victim, trigger and limit.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use crate::incidents::model::Limit;
use crate::kernel::{CgroupPath, OomKill};
use crate::node::CgroupVersion;
use crate::sensors::Sensors;
use crate::units::CgroupId;
use crate::workloads::cgroup_path;

use super::oom_kill_report::KillPlace;

/// Returns path and workload of a cgroup. The path that the kernel reported at the kill is used if the tree has no
/// such cgroup: a container may be gone a millisecond later.
pub(super) fn place(sensors: &Sensors, id: Option<CgroupId>, as_seen: Option<&CgroupPath>) -> KillPlace {
    let Some(id) = id.filter(|id| id.0 != 0) else { return KillPlace::default() };
    if let Some((path, workload)) = sensors.workloads.tree().path(id).zip(sensors.workloads.tree().owner(id)) {
        return KillPlace { id: Some(id), path: Some(path.to_string()), workload: Some(workload) };
    }
    let path = as_seen.and_then(|path| path_to(path, id));
    KillPlace { id: Some(id), workload: path.as_deref().map(|path| cgroup_path::workload(path).into()), path }
}

/// Notes the path of a cgroup, because the kernel's counters know only its id.
pub(super) fn note_path(sensors: &mut Sensors, place: &KillPlace) {
    if let (Some(id), Some(path), Some(workload)) = (place.id, place.path.as_deref(), &place.workload) {
        sensors.workloads.tree_mut().add_owner(id, path.into(), Arc::clone(workload));
    }
}

/// Returns the cgroup of a victim. The kernel's log reports only the path of a cgroup that is gone, not its id.
pub(super) fn victim_place(sensors: &Sensors, kill: &OomKill) -> KillPlace {
    let as_seen = kill.victim_path.as_ref();
    let place = place(sensors, kill.victim_cgroup, as_seen);
    if place.path.is_some() {
        return place;
    }
    let Some(path) = as_seen.map(|path| path_of(path, usize::MAX)) else { return place };
    KillPlace { id: place.id, workload: Some(cgroup_path::workload(&path).into()), path: Some(path) }
}

/// Returns the limit and the present usage of a cgroup. Reading its files is affordable because OOM kills are rare.
pub(super) fn limit(sensors: &Sensors, place: KillPlace) -> Limit {
    let hierarchy = sensors.workloads.tree().hierarchy();
    let (limit, usage) = match hierarchy.version {
        CgroupVersion::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        CgroupVersion::V2 => ("memory.max", "memory.current"),
    };
    let directory = place.path.as_deref().map(|path| hierarchy.memory.join(path.trim_start_matches('/')));
    // Another cgroup may have taken the path.
    let is_it = |path: &PathBuf| {
        let inode = std::fs::metadata(path).ok().map(|metadata| metadata.ino());
        inode.is_some() && (place.id.is_none() || inode == place.id.map(|id| id.0))
    };
    let directory = directory.filter(is_it);
    let number = |name: &str| std::fs::read_to_string(directory.as_ref()?.join(name)).ok()?.trim().parse::<u64>().ok();
    Limit {
        // v1 writes "no limit" as a very large number.
        limit_bytes: number(limit).filter(|limit| *limit < 1 << 62),
        usage_bytes: number(usage),
        cgroup_id: place.id.map(|id| id.0),
        workload: place.workload.as_deref().map(str::to_owned),
        cgroup: place.path,
    }
}

/// Returns the path down to the level with that id.
fn path_to(path: &CgroupPath, id: CgroupId) -> Option<String> {
    path.levels().position(|(level, _)| level == id).map(|place| path_of(path, place + 1))
}

/// Returns the first levels of a path; a truncated path begins with dots.
fn path_of(path: &CgroupPath, levels: usize) -> String {
    let names: Vec<&str> = path.levels().take(levels).map(|(_, name)| name).collect();
    match (path.is_truncated(), names.is_empty()) {
        (false, true) => "/".to_owned(),
        (false, false) => names.join("/"),
        (true, _) => format!("…/{}", names.join("/")),
    }
}
