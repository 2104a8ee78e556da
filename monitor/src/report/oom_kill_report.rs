//! Facts reported about an OOM kill.

use std::sync::Arc;

use crate::incidents::model::{self, Limit, Trigger, Victim};
use crate::incidents::oom_assembly::{Kill, Mark};
use crate::kernel::{Event, OomKill};
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
}

#[derive(Debug)]
pub struct OomKillRecord<'r> {
    pub kill: &'r OomKill,
    /// `ebpf`, `kmsg` or `polling`.
    pub source: &'static str,
    pub victim: KillPlace,
    pub trigger: KillPlace,
    pub limit: Option<Limit>,
    /// `namespace/name` of the victim's pod.
    pub pod: Option<String>,
    pub container_name: Option<String>,
}

impl OomKillRecord<'_> {
    /// The kernel's log may omit the trigger; no allocation is one of process 0.
    pub fn is_trigger_known(&self) -> bool {
        self.kill.trigger_tid.0 != 0
    }

    /// Returns the kill for the incident assembler.
    pub fn assembled(&self) -> Kill {
        let kill = self.kill;
        let trigger = || {
            let comm = kill.trigger_comm.to_string();
            trigger_at(kill.trigger_pid.0, kill.trigger_tid.0, comm, &self.trigger)
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
            container: place.container(),
            container_name: self.container_name.clone(),
            pod: self.pod.clone(),
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
        container: place.container(),
        cgroup: place.path.clone(),
        cgroup_id: place.id.map(|id| id.0),
    }
}
