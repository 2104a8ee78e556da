//! A workload of a world, as the decider sees it.

use std::borrow::Cow;
use std::sync::Arc;

use node_pressure_monitor::eviction::decider::Standing;
use node_pressure_monitor::eviction::rank::{Candidate, Facts};
use node_pressure_monitor::units::{Amount, Bytes, CgroupId};
use node_pressure_monitor::workloads::{Outlook, Preference, QosClass};

use crate::plan::{Class, Pod, Role};

#[derive(Debug, Clone)]
pub struct Seen {
    pub pod: usize,
    name: Arc<str>,
    facts: Facts,
    is_exact: bool,
    outlook: Outlook,
}

/// What the agent has measured of a workload.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub gain: f64,
    pub cache: f64,
    pub growth: Option<i64>,
    pub growth_lately: Option<i64>,
    pub is_exact: bool,
}

impl Seen {
    pub fn of(pod: usize, plan: &Pod, name: &Arc<str>, measured: Measured) -> Self {
        let request = Amount::from(bytes(plan.request));
        let facts = Facts {
            preference: Preference::None,
            qos: match plan.class {
                Class::BestEffort => QosClass::BestEffort,
                Class::Burstable => QosClass::Burstable,
                Class::Guaranteed => QosClass::Guaranteed,
            },
            priority: plan.priority,
            // The files tell usage with file pages. Hot ones are a part of the working set.
            usage: Some(bytes(measured.gain + measured.cache).into()),
            request: Some(request),
            subtracted: request,
        };
        let outlook = Outlook {
            gain: measured.is_exact.then(|| bytes(measured.gain)),
            growth: measured.growth.unwrap_or(0),
            growth_lately: measured.growth_lately,
            is_growth_measured: measured.growth.is_some(),
            only_as_leaker: matches!(plan.role, Role::DaemonSet | Role::Service),
            is_terminating: false,
            is_daemon: plan.role == Role::DaemonSet,
            among_own: None,
        };
        Self { pod, name: Arc::clone(name), facts, is_exact: measured.is_exact, outlook }
    }

    pub fn is_growth_known(&self) -> bool {
        self.outlook.is_growth_measured
    }
}

impl Candidate for Seen {
    type Name<'a> = &'a str;

    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    fn facts(&self) -> Facts {
        self.facts
    }

    fn cgroup(&self) -> CgroupId {
        cgroup(self.pod)
    }

    fn is_exact(&self) -> bool {
        self.is_exact
    }

    fn outlook(&self) -> Outlook {
        self.outlook
    }

    fn standing(&self) -> Option<Standing> {
        Some(Standing { is_pod: true, is_known: true, ..Standing::default() })
    }
}

pub fn cgroup(pod: usize) -> CgroupId {
    CgroupId(pod as u64 + 1)
}

#[expect(clippy::cast_possible_truncation, reason = "the ids of a world are the places of its pods")]
pub fn pod_of(CgroupId(id): CgroupId) -> usize {
    (id as usize).saturating_sub(1)
}

/// Returns so many MiB.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "no world has 8 EiB, and less than nothing is none"
)]
pub fn bytes(mib: f64) -> Bytes {
    Bytes((mib.max(0.0) * 1_048_576.0) as u64)
}

#[expect(clippy::cast_possible_truncation, reason = "no world has 8 EiB")]
pub fn signed_bytes(mib: f64) -> i64 {
    (mib * 1_048_576.0) as i64
}
