//! Limits of local storage: evicts a pod above its own limits, whether or not the disk is full.

mod above;

use std::collections::HashMap;
use std::time::Duration;

use crate::eviction::evicted::Cause;
use crate::report::Dedup;
use crate::report::eviction_report::{Action, EvictionRecord, Trigger};
use crate::report::record::{KnownPods, Record};
use crate::report::reporter::REPEAT_DRY_RUN;
use crate::sensors::pod_source::PodsRead;
use crate::units::{CgroupId, Monotonic};

pub(super) use self::above::Above;
use self::above::{Measured, above_limits};
use super::Agent;
use super::turn::Started;

/// Evictions are remembered this long; by then every workload has a new measurement.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Name in the list of degraded capabilities.
const CAPABILITY: &str = "pods";

/// Workloads that were evicted, and dry runs that were reported.
#[derive(Debug)]
pub struct LocalStorage {
    would_evict: Dedup<(Cause, CgroupId)>,
    /// When a workload was evicted last. A restarted workload has the same name and cgroup but not the earlier usage.
    gone: HashMap<CgroupId, Monotonic>,
}

impl Default for LocalStorage {
    fn default() -> Self {
        Self { would_evict: Dedup::new(REPEAT_DRY_RUN), gone: HashMap::new() }
    }
}

impl LocalStorage {
    /// Notes the eviction of a workload, for any cause.
    pub(super) fn note_gone(&mut self, id: CgroupId, now: Monotonic) {
        self.gone.retain(|_, at| now.since(*at) < REMEMBERED);
        self.gone.insert(id, now);
    }

    /// Returns whether the workload was evicted since `at`.
    pub(super) fn was_gone_since(&self, id: CgroupId, at: Monotonic) -> bool {
        self.gone.get(&id).is_some_and(|gone| at <= *gone)
    }
}

impl Agent {
    pub(super) fn read_pods(&mut self, now: Monotonic) {
        match self.sensors.pods.take_file() {
            None => {}
            Some(PodsRead::Ignored) => self.reporter.set_capability(CAPABILITY, None, "", now),
            Some(PodsRead::Replaced) => {
                let pods = self.sensors.pods.specs().pods().len();
                self.reporter.report(&Record::PodsRead { pods, age: None }, now);
                self.reporter.set_capability(CAPABILITY, None, "", now);
                self.join_pods();
            }
            Some(PodsRead::Failed(reason)) => {
                let effect = "the pods of this node cannot be read: those read before stay known";
                let of_file = Some(self.sensors.pods.specs().pods().len());
                let known = KnownPods { of_file, ..KnownPods::default() };
                self.reporter.set_pod_source(CAPABILITY, Some(&reason), effect, known, now);
            }
        }
    }

    pub(super) fn above_limits(&self) -> Vec<Above> {
        if self.sensors.pods.specs().pods().is_empty() {
            return Vec::new();
        }
        let snapshot = self.runtime.view().snapshot;
        let name_of = |id: &str| Some(snapshot.as_ref()?.container(id)?.name.clone());
        let measured = |workload: &crate::workloads::Workload| {
            let uid = workload.kind.pod_uid().filter(|_| workload.protection.is_none())?;
            let (stats, at) = self.sensors.disk.pod_stats((uid, &workload.name, workload.id), &name_of)?;
            Some(Measured { workload: workload.name.clone(), id: workload.id, uid: uid.clone(), stats, at })
        };
        let measured = self.sensors.workloads.tree().workloads().filter_map(measured).collect();
        above_limits(
            &self.config.policy,
            self.sensors.signals.filesystems.layout(),
            self.sensors.pods.specs(),
            measured,
        )
    }

    /// Reports an eviction for a limit of the pod's own. A dry run is reported at most once a minute.
    pub(super) fn report_limit_eviction(&mut self, above: &Above, started: Started, is_dry_run: bool, now: Monotonic) {
        if !is_dry_run || self.actions.local.would_evict.is_due((above.cause, above.id), now) {
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
