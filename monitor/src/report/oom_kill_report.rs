//! Facts reported about an OOM kill, and the cgroups of its victim, trigger and limit.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use node_pressure_state::Name;

use crate::incidents::model::{self, Limit, Trigger, Victim};
use crate::incidents::oom_assembly::{Kill, Mark};
use crate::kernel::{CgroupPath, Event, OomKill};
use crate::node::CgroupVersion;
use crate::runtime::Names;
use crate::sensors::Sensors;
use crate::sensors::workload_scan::NO_WORKLOAD;
use crate::units::{Bytes, CgroupId, Monotonic};
use crate::workloads::cgroup_path;

/// The known facts about a cgroup.
#[derive(Debug, Clone, Default)]
pub struct KillPlace {
    pub id: Option<CgroupId>,
    pub path: Option<String>,
    pub workload: Option<Arc<str>>,
}

impl KillPlace {
    pub fn container(&self) -> Option<String> {
        self.path.as_deref().and_then(cgroup_path::container)
    }

    pub fn workload(&self) -> &str {
        self.workload.as_deref().unwrap_or(NO_WORKLOAD)
    }

    pub fn name(&self, names: &Names) -> Name {
        let workload = self.workload();
        names.of_cgroup(workload, self.path.as_deref().unwrap_or(workload))
    }
}

#[derive(Debug)]
pub struct OomKillRecord<'r> {
    pub kill: &'r OomKill,
    /// `ebpf`, `kmsg` or `polling`.
    pub source: &'static str,
    pub victim: KillPlace,
    pub trigger: KillPlace,
    pub limit: Option<Limit>,
    pub victim_name: Name,
    pub trigger_name: Name,
}

impl OomKillRecord<'_> {
    /// The kernel's log may omit the trigger; no allocation is one of process 0.
    pub fn is_trigger_known(&self) -> bool {
        self.kill.trigger_tid.0 != 0
    }

    pub fn assembled(&self) -> Kill {
        let kill = self.kill;
        let trigger = || {
            let comm = kill.trigger_comm.to_string();
            let name = self.trigger_name.clone().identity();
            Trigger { name, ..trigger_at(kill.trigger_pid.0, kill.trigger_tid.0, comm, &self.trigger) }
        };
        Kill {
            at: Monotonic(kill.at_ns),
            marked: Monotonic(kill.marked_at_ns),
            invoked: kill.invoked_at_ns.map(Monotonic),
            victim: self.victim_model(),
            kill: model::OomKill {
                constraint: kill.constraint.map(|constraint| constraint.as_str().to_owned()),
                source: self.source.to_owned(),
                order: kill.order,
                limit: self.limit.clone(),
                trigger: self.is_trigger_known().then(trigger),
                ..model::OomKill::default()
            },
        }
    }

    fn victim_model(&self) -> Victim {
        let (kill, place) = (self.kill, &self.victim);
        let size = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
        Victim {
            pid: kill.victim_pid.0,
            comm: kill.victim_comm.map(|comm| comm.to_string()),
            uid: kill.uid,
            workload: place.workload.as_deref().map(str::to_owned),
            name: self.victim_name.clone().identity(),
            container: place.container(),
            container_name: self.victim_name.container.clone(),
            pod: self.victim_name.full_pod(),
            cgroup: place.path.clone(),
            cgroup_id: place.id.map(|id| id.0),
            anon_bytes: size(kill.anon_rss),
            file_bytes: size(kill.file_rss),
            shmem_bytes: size(kill.shmem_rss),
            pgtables_bytes: size(kill.pgtables),
            total_vm_bytes: size(kill.total_vm),
            oom_score_adj: kill.oom_score_adj,
            age_ms: kill.started_at_ns.map(|started| model::millis(kill.marked_at_ns.saturating_sub(started))),
            // The kernel's log has the time of the mark only.
            dying_ms: kill.at_ns.checked_sub(kill.marked_at_ns).filter(|nanos| *nanos > 0).map(model::millis),
        }
    }
}

/// Returns the mark of a victim for the incident assembler. Returns `None` for another event, or if the victim was already exiting.
pub fn mark_of(event: &Event, trigger_place: &KillPlace) -> Option<Mark> {
    let Event::OomMark {
        at_ns, invoked_at_ns, victim_pid, trigger_pid, trigger_tid, trigger_comm, already_dying, ..
    } = event
    else {
        return None;
    };
    let trigger = || trigger_at(trigger_pid.0, trigger_tid.0, trigger_comm.to_string(), trigger_place);
    (!already_dying).then(|| Mark {
        at: Monotonic(*at_ns),
        invoked: invoked_at_ns.map(Monotonic),
        victim_pid: victim_pid.0,
        trigger: trigger(),
    })
}

fn trigger_at(pid: i32, tid: i32, comm: String, place: &KillPlace) -> Trigger {
    Trigger {
        pid: Some(pid),
        tid: Some(tid),
        comm: Some(comm),
        workload: place.workload.as_deref().map(str::to_owned),
        name: None,
        container: place.container(),
        cgroup: place.path.clone(),
        cgroup_id: place.id.map(|id| id.0),
    }
}

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
        name: place.name(&sensors.names()).identity(),
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
    let names: Vec<_> = path.levels().take(levels).map(|(_, name)| name).collect();
    match (path.is_truncated(), names.is_empty()) {
        (false, true) => "/".to_owned(),
        (false, false) => names.join("/"),
        (true, _) => format!("…/{}", names.join("/")),
    }
}
