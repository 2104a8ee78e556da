//! Limits of local storage: whoever keeps more on the disk than its pod may goes, whether or not the disk is full.

mod above;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
use super::act::Started;

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

    /// Whether there may be limits to check.
    pub(super) fn has_limits(&self) -> bool {
        self.file.is_some() || !self.specs.pods().is_empty()
    }

    /// Has the workload measured again, before others.
    pub(super) fn hurry(&self, workload: &str) {
        self.usages.iter().for_each(|usages| usages.hurry(workload));
    }
}

impl Agent {
    pub(super) fn read_pods(&mut self, now: Monotonic) {
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

    pub(super) fn above_limits(&self) -> Vec<Above> {
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

    /// Reports an eviction for a limit of the pod's own; a dry run once a minute.
    pub(super) fn report_limit_eviction(&mut self, above: &Above, started: Started, is_dry_run: bool, now: Monotonic) {
        if !is_dry_run || self.sensors.local.would_evict.is_due((above.cause, above.id), now) {
            self.report_limit(above, started.action, started.processes, now);
        }
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
