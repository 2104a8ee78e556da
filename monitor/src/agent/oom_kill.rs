//! OOM kills: who was killed, whose limit was hit, who asked; told one by one, and handed to the recorder to be put together.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::incidents::model::{self, Limit, Trigger, Victim};
use crate::incidents::oom_assembly::{Kill, Mark};
use crate::kernel::{CgroupPath, Event, OomConstraint, OomKill};
use crate::node::CgroupVersion;
use crate::units::{Bytes, CgroupId, Monotonic};
use crate::workloads::cgroup_path;

use super::{Agent, allow_at};

/// A cgroup as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Place {
    id: Option<CgroupId>,
    path: Option<String>,
    pub(super) workload: Option<Arc<str>>,
}

impl Place {
    fn container(&self) -> Option<String> {
        self.path.as_deref().and_then(cgroup_path::container)
    }
}

impl Agent {
    /// The kernel chose a victim.
    pub(super) fn note_mark(&mut self, event: &Event) {
        let Event::OomMark {
            at_ns,
            invoked_at_ns,
            victim_pid,
            trigger_pid,
            trigger_tid,
            trigger_comm,
            trigger_cgroup,
            already_dying,
        } = event
        else {
            return;
        };
        // Nothing is killed: it was on its way out by itself.
        if *already_dying {
            return;
        }
        let place = self.place(Some(*trigger_cgroup), None);
        let mark = Mark {
            at: Monotonic(*at_ns),
            invoked: invoked_at_ns.map(Monotonic),
            victim_pid: victim_pid.0,
            trigger: trigger(trigger_pid.0, trigger_tid.0, trigger_comm.to_string(), &place),
        };
        let time = mark.at.wall();
        self.reporter.recorder.assembler.mark(mark, time);
    }

    /// A victim has gone: counts it, adds it to its incident, and tells of it. Where its cgroup is not known, its workload may be all the
    /// same, by the workload's own counter.
    pub(super) fn tell_oom_kill(&mut self, kill: &OomKill, by_counter: Option<Arc<str>>, now: Instant) {
        self.with_metrics(|metrics| metrics.oom_kills(kill.constraint, 1));
        let source = self.sensors.kills.source();
        let as_seen = kill.victim_path.as_ref();
        let mut victim_place = self.victim_place(kill);
        victim_place.workload = victim_place.workload.or(by_counter);
        self.learn(&victim_place);
        self.count_kill(victim_place.workload.as_deref());
        let trigger_place = self.place(Some(kill.trigger_cgroup), as_seen);
        // The kernel's log may leave it out; nobody's allocation is that of process 0.
        let is_trigger_known = kill.trigger_tid.0 != 0;
        let container = victim_place.container();
        let pod = victim_place.workload.as_deref().and_then(|workload| self.pod_of(workload));
        let of_container = |id: &String| self.container_name(victim_place.workload.as_deref(), id);
        let container_name = container.as_ref().and_then(of_container);
        let marked = Monotonic(kill.marked_at_ns);
        let limit = kill.limit_cgroup.map(|id| self.limit(self.place(Some(id), as_seen)));
        let record = Kill {
            at: Monotonic(kill.at_ns),
            marked,
            invoked: kill.invoked_at_ns.map(Monotonic),
            victim: Victim { pod: pod.clone(), container_name: container_name.clone(), ..victim(kill, &victim_place) },
            kill: model::OomKill {
                constraint: kill.constraint.map(|constraint| constraint.as_str().to_owned()),
                source: source.to_owned(),
                order: kill.order,
                limit: limit.clone(),
                trigger: is_trigger_known.then(|| {
                    let comm = kill.trigger_comm.to_string();
                    trigger(kill.trigger_pid.0, kill.trigger_tid.0, comm, &trigger_place)
                }),
                ..model::OomKill::default()
            },
        };
        let incident = self.reporter.recorder.assembler.kill(record, marked.wall()).to_owned();
        let Some(suppressed) = allow_at(&mut self.reporter.limits.oom_kills, now) else { return };
        let victim = name(&victim_place);
        let trigger = name(&trigger_place);
        let victim_comm = kill.victim_comm.as_ref().map(ToString::to_string);
        tracing::warn!(
            event = "oom_kill",
            incident,
            victim_pid = kill.victim_pid.0,
            victim_comm,
            victim_workload = victim,
            victim_cgroup_id = kill.victim_cgroup.map(|id| id.0),
            pod,
            container,
            container_name,
            uid = kill.uid,
            total_vm_bytes = kill.total_vm.map(|bytes| bytes.0),
            anon_rss_bytes = kill.anon_rss.map(|bytes| bytes.0),
            file_rss_bytes = kill.file_rss.map(|bytes| bytes.0),
            shmem_rss_bytes = kill.shmem_rss.map(|bytes| bytes.0),
            pgtables_bytes = kill.pgtables.map(|bytes| bytes.0),
            oom_score_adj = kill.oom_score_adj,
            constraint = kill.constraint.map(OomConstraint::as_str),
            limit_workload = limit.as_ref().and_then(|limit| limit.workload.as_deref()),
            limit_cgroup_id = limit.as_ref().and_then(|limit| limit.cgroup_id),
            source,
            trigger_pid = is_trigger_known.then_some(kill.trigger_pid.0),
            trigger_comm = is_trigger_known.then(|| tracing::field::display(&kill.trigger_comm)),
            trigger_workload = trigger,
            trigger_cgroup_id = trigger_place.id.map(|id| id.0),
            marked_mono_ns = kill.marked_at_ns,
            at_mono_ns = kill.at_ns,
            suppressed,
            "the kernel's OOM killer ended a process of {victim}; the allocation was of {trigger}"
        );
    }

    /// Where a cgroup is and whose: as the tree knows it, or else as the kernel saw it when somebody in it or below was killed. A
    /// container may be gone a millisecond later.
    fn place(&self, id: Option<CgroupId>, as_seen: Option<&CgroupPath>) -> Place {
        let Some(id) = id.filter(|id| id.0 != 0) else { return Place::default() };
        if let Some((path, workload)) = self.sensors.tree.path(id).zip(self.sensors.tree.owner(id)) {
            return Place { id: Some(id), path: Some(path.to_string()), workload: Some(workload) };
        }
        let path = as_seen.and_then(|path| path_to(path, id));
        Place { id: Some(id), workload: path.as_deref().map(|path| cgroup_path::workload(path).into()), path }
    }

    /// The kernel's counters know a cgroup by its id alone.
    fn learn(&mut self, place: &Place) {
        if let (Some(id), Some(path), Some(workload)) = (place.id, place.path.as_deref(), &place.workload) {
            self.sensors.tree.add_owner(id, path.into(), Arc::clone(workload));
        }
    }

    /// Where a victim was. The kernel's log does not tell the id of a cgroup that is gone, but its path.
    pub(super) fn victim_place(&self, kill: &OomKill) -> Place {
        let as_seen = kill.victim_path.as_ref();
        let place = self.place(kill.victim_cgroup, as_seen);
        if place.path.is_some() {
            return place;
        }
        let Some(path) = as_seen.map(|path| path_of(path, usize::MAX)) else { return place };
        Place { id: place.id, workload: Some(cgroup_path::workload(&path).into()), path: Some(path) }
    }

    /// The limit of a cgroup and its usage now. Its files are read: an OOM kill is seldom, and its cgroup still there as a rule.
    fn limit(&self, place: Place) -> Limit {
        let hierarchy = self.sensors.tree.hierarchy();
        let (limit, usage) = match hierarchy.version {
            CgroupVersion::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            CgroupVersion::V2 => ("memory.max", "memory.current"),
        };
        let directory = place.path.as_deref().map(|path| hierarchy.memory.join(path.trim_start_matches('/')));
        // Another cgroup may have taken its path.
        let is_it = |path: &PathBuf| {
            let inode = std::fs::metadata(path).ok().map(|metadata| metadata.ino());
            inode.is_some() && (place.id.is_none() || inode == place.id.map(|id| id.0))
        };
        let directory = directory.filter(is_it);
        let number =
            |name: &str| std::fs::read_to_string(directory.as_ref()?.join(name)).ok()?.trim().parse::<u64>().ok();
        Limit {
            // v1 writes "no limit" as a very large number.
            limit_bytes: number(limit).filter(|limit| *limit < 1 << 62),
            usage_bytes: number(usage),
            cgroup_id: place.id.map(|id| id.0),
            workload: place.workload.as_deref().map(str::to_owned),
            cgroup: place.path,
        }
    }
}

/// The path as far as the level with that id.
fn path_to(path: &CgroupPath, id: CgroupId) -> Option<String> {
    path.levels().position(|(level, _)| level == id).map(|place| path_of(path, place + 1))
}

/// The first levels of a path; what was too long begins with dots.
fn path_of(path: &CgroupPath, levels: usize) -> String {
    let names: Vec<&str> = path.levels().take(levels).map(|(_, name)| name).collect();
    match (path.is_truncated(), names.is_empty()) {
        (false, true) => "/".to_owned(),
        (false, false) => names.join("/"),
        (true, _) => format!("…/{}", names.join("/")),
    }
}

/// As the log says it.
fn name(place: &Place) -> &str {
    place.workload.as_deref().unwrap_or(super::tell::UNKNOWN)
}

fn trigger(pid: i32, tid: i32, comm: String, place: &Place) -> Trigger {
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

fn victim(kill: &OomKill, place: &Place) -> Victim {
    let size = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
    Victim {
        pid: kill.victim_pid.0,
        comm: kill.victim_comm.map(|comm| comm.to_string()),
        uid: kill.uid,
        workload: place.workload.as_deref().map(str::to_owned),
        container: place.container(),
        container_name: None,
        pod: None,
        cgroup: place.path.clone(),
        cgroup_id: place.id.map(|id| id.0),
        anon_bytes: size(kill.anon_rss),
        file_bytes: size(kill.file_rss),
        shmem_bytes: size(kill.shmem_rss),
        pgtables_bytes: size(kill.pgtables),
        total_vm_bytes: size(kill.total_vm),
        oom_score_adj: kill.oom_score_adj,
        age_ms: kill.started_at_ns.map(|started| model::millis(kill.marked_at_ns.saturating_sub(started))),
        // The kernel's log tells only of the choice.
        dying_ms: kill.at_ns.checked_sub(kill.marked_at_ns).filter(|nanos| *nanos > 0).map(model::millis),
    }
}
