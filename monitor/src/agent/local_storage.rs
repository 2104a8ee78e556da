//! Limits of local storage: whoever keeps more on the disk than its pod may goes, whether or not the disk is full.

mod above;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::actions::{ActionError, FreezeRecord, Target};
use crate::config::Mode;
use crate::eviction::evicted::Cause;
use crate::report::Dedup;
use crate::report::eviction_report::{Action, EvictionRecord, Trigger};
use crate::report::record::Record;
use crate::report::reporter::REPEAT_DRY_RUN;
use crate::units::{CgroupId, Monotonic};
use crate::workloads::kubelet_summary::PodStats;
use crate::workloads::{PodSpecs, PodUid, PodsFile};

pub(super) use self::above::Above;
use self::above::{Measured, above_limits};
use super::Agent;
use super::evictions::Why;
use super::stop::AT_ONCE;

/// As often as the kubelet's own passes.
const EVERY: Duration = Duration::from_secs(10);
/// While one that is above its limit waits for its turn.
const AGAIN: Duration = Duration::from_millis(500);
/// By then everybody was measured anew.
const REMEMBERED: Duration = Duration::from_secs(600);
/// What it is called among the capabilities that are missing.
const CAPABILITY: &str = "pods";

/// Who has measured what pods keep on the node's disks.
pub trait PodUsages: fmt::Debug + Send {
    /// What the pod with this cgroup keeps, and when the oldest part of that was measured; nothing while it is not known. `name_of` tells
    /// the name of a container by the runtime's id. Must not wait.
    fn stats(
        &self,
        pod: &PodUid,
        workload: &str,
        id: CgroupId,
        name_of: &dyn Fn(&str) -> Option<String>,
    ) -> Option<(PodStats, Monotonic)>;

    /// Asks for that workload to be measured again, before others. Must not wait.
    fn hurry(&self, workload: &str);
}

/// What the loop knows of such limits.
#[derive(Debug)]
pub struct LocalStorage {
    file: Option<PodsFile>,
    specs: Arc<PodSpecs>,
    /// They are the API server's, which knows better than a file.
    is_from_cluster: bool,
    usages: Option<Box<dyn PodUsages>>,
    next: Option<Monotonic>,
    would_evict: Dedup<(Cause, CgroupId)>,
    /// When it went last: started again it has the same name and cgroup, and not what was measured before.
    gone: HashMap<CgroupId, Monotonic>,
}

impl LocalStorage {
    /// Pods from a file, if there is one, and who measures what they keep, if somebody does.
    #[must_use]
    pub fn new(file: Option<PodsFile>, usages: Option<Box<dyn PodUsages>>) -> Self {
        Self {
            file,
            specs: Arc::default(),
            is_from_cluster: false,
            usages,
            next: None,
            would_evict: Dedup::new(REPEAT_DRY_RUN),
            gone: HashMap::new(),
        }
    }

    /// The pods as they were asked for.
    pub(super) fn specs(&self) -> &Arc<PodSpecs> {
        &self.specs
    }

    /// What a pod keeps on the node's disks, if somebody has measured it.
    pub(super) fn kept(
        &self,
        pod: &PodUid,
        workload: &str,
        id: CgroupId,
        name_of: &dyn Fn(&str) -> Option<String>,
    ) -> Option<PodStats> {
        Some(self.usages.as_ref()?.stats(pod, workload, id, name_of)?.0)
    }

    /// Whether the API server has ever told the pods.
    pub(super) const fn is_from_cluster(&self) -> bool {
        self.is_from_cluster
    }

    /// These are the pods, as the API server has them.
    pub(super) fn learn(&mut self, specs: Arc<PodSpecs>) {
        (self.specs, self.is_from_cluster) = (specs, true);
    }

    /// It was evicted, for whatever reason.
    pub(super) fn note_gone(&mut self, id: CgroupId, now: Monotonic) {
        self.gone.retain(|_, at| now.since(*at) < REMEMBERED);
        self.gone.insert(id, now);
    }

    /// Whether it was evicted since then.
    pub(super) fn was_gone_since(&self, id: CgroupId, at: Monotonic) -> bool {
        self.gone.get(&id).is_some_and(|gone| at <= *gone)
    }

    /// How long until the limits want to be looked at; `None` where there are none.
    pub(super) fn until_due(&self, now: Monotonic) -> Option<Duration> {
        (self.file.is_some() || !self.specs.pods().is_empty())
            .then(|| self.next.map_or(Duration::ZERO, |next| next.since(now)))
    }
}

impl Agent {
    /// Evicts whoever is above a limit, one at a time, when it is time to look.
    pub(super) fn keep_limits(&mut self) {
        let now = Monotonic::now();
        if self.sensors.local.until_due(now) != Some(Duration::ZERO) {
            return;
        }
        self.sensors.local.next = Some(now.after(EVERY));
        self.read_pods(now);
        for above in self.above_limits() {
            if above.is_stale(now) || self.sensors.local.was_gone_since(above.id, above.at) {
                self.sensors.local.usages.iter().for_each(|usages| usages.hurry(&above.workload));
                continue;
            }
            if self.config.mode == Mode::Observe {
                self.would_evict_for_limit(&above, now);
            } else if self.evict_for_limit(&above, now) {
                // The others, and those that could not go yet, in a moment.
                self.sensors.local.next = Some(now.after(AGAIN));
                break;
            }
        }
    }

    fn read_pods(&mut self, now: Monotonic) {
        match self.sensors.local.file.as_ref().and_then(PodsFile::take_update) {
            None => {}
            Some(_) if self.sensors.local.is_from_cluster => self.reporter.set_capability(CAPABILITY, None, "", now),
            Some(Ok(specs)) => {
                self.reporter.report(&Record::PodsRead { pods: specs.pods().len(), age: None }, now);
                self.reporter.set_capability(CAPABILITY, None, "", now);
                self.sensors.local.specs = Arc::new(specs);
                self.join_pods();
            }
            Some(Err(reason)) => {
                let effect = "the pods of this node cannot be read: those read before stay known";
                self.reporter.set_capability(CAPABILITY, Some(&reason.to_string()), effect, now);
            }
        }
    }

    fn above_limits(&self) -> Vec<Above> {
        let (Some(usages), false) = (&self.sensors.local.usages, self.sensors.local.specs.pods().is_empty()) else {
            return Vec::new();
        };
        let snapshot = self.runtime.view().snapshot;
        let name_of = |id: &str| Some(snapshot.as_ref()?.container(id)?.name.clone());
        let measured = |workload: &crate::workloads::Workload| {
            let uid = workload.kind.pod_uid().filter(|_| workload.protection.is_none())?;
            let (stats, at) = usages.stats(uid, &workload.name, workload.id, &name_of)?;
            Some(Measured { workload: workload.name.clone(), id: workload.id, uid: uid.clone(), stats, at })
        };
        let measured = self.sensors.tree.workloads().filter_map(measured).collect();
        above_limits(&self.config.policy, self.sensors.signals.layout(), &self.sensors.local.specs, measured)
    }

    fn would_evict_for_limit(&mut self, above: &Above, now: Monotonic) {
        if !self.sensors.local.would_evict.is_due((above.cause, above.id), now) {
            return;
        }
        self.report_limit(above, Action::DryRun, 0, now);
    }

    /// True when it goes, or has to wait for another.
    fn evict_for_limit(&mut self, above: &Above, now: Monotonic) -> bool {
        // Whoever is on its way out already is not told again to go.
        if !self.actions.evictor.is_candidate(above.id, false, now) {
            return false;
        }
        if self.actions.evictor.may_start(above.cause, true, &self.config.evictions, now).is_err() {
            return true;
        }
        match self.stop_above_limit(above) {
            Ok(processes) => {
                self.report_limit(above, Action::Term, processes, now);
                true
            }
            Err(ActionError::Gone | ActionError::Critical) => false,
            Err(error) => {
                let reason = error.to_string();
                let (cause, workload) = (above.cause, above.workload.as_str());
                self.reporter.report(&Record::EvictionNotStarted { cause, workload, reason: &reason }, now);
                false
            }
        }
    }

    fn stop_above_limit(&mut self, above: &Above) -> Result<usize, ActionError> {
        let tracked = self.sensors.tree.find(above.id).ok_or(ActionError::Gone)?;
        if self.is_critical(tracked) {
            return Err(ActionError::Critical);
        }
        let record = FreezeRecord::beside(&self.config.lock_file);
        let target = Target::new(tracked, self.sensors.tree.hierarchy(), &self.config.proc_root)?.recorded_in(record);
        self.start_eviction(target, Some(above.uid.clone()), Why::Limit(above), AT_ONCE)
    }

    fn report_limit(&mut self, above: &Above, action: Action, processes: usize, now: Monotonic) {
        let (_, labels) = self.pod_named(Some(&above.uid));
        let record = EvictionRecord {
            workload: &above.workload,
            cgroup: above.id,
            pod: Some(above.pod.clone()),
            labels,
            action,
            processes,
            trigger: Trigger::Limit { cause: above.cause, message: &above.message, measured: above.at },
            woken: now,
            acted: Monotonic::now(),
            policy: None,
            trace: Vec::new(),
        };
        self.reporter.report(&Record::Eviction(&record), now);
    }
}
