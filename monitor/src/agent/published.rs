//! What the cluster is told of the node's conditions, and the taints that follow from them.

use std::time::Duration;

use crate::cluster::condition_names::{CONFIGURATION_ACCEPTED, NO_PRESSURE, NOT_KNOWN_YET, PRESSURE_LASTS, taint_key};
use crate::cluster::status::{Effect, WantedCondition, WantedTaint, status_patches};
use crate::cluster::{NodeStatus, State, View};
use crate::config::Mode;
use crate::config::kubernetes_options::{Authority, TaintEffect, TaintOptions};
use crate::eviction::NodeCondition;
use crate::eviction::no_execute::{Held, KnownPods, News};
use crate::eviction::tolerations::{NO_EXECUTE, Taint};
use crate::report::configuration::ConfigState;
use crate::units::{Monotonic, Signal};

use super::Agent;

/// What was told last, to tell changes alone: there is a look up to a thousand times a second.
#[derive(Debug, Default)]
pub(super) struct Published {
    told: Standing,
    /// A buffer, so that nothing is allocated while nothing changes.
    next: Standing,
    held: [Held; NodeCondition::ALL.len()],
}

#[derive(Debug, Default, PartialEq)]
struct Standing {
    /// Nothing was ever told.
    is_told: bool,
    may_act: bool,
    effect: Option<TaintEffect>,
    /// Nothing for a condition that no threshold raises.
    conditions: [Option<Option<bool>>; NodeCondition::ALL.len()],
    no_execute: [bool; NodeCondition::ALL.len()],
    pressure: Vec<bool>,
    configuration: Option<ConfigState>,
}

impl Agent {
    /// Tells the cluster how the node stands, where that has changed.
    pub(super) fn publish_status(&mut self) {
        if !self.cluster.is_there() {
            return;
        }
        let now = Monotonic::now();
        let may_act = self.config.mode == Mode::Enforce;
        let TaintOptions { effect, no_execute_after } = self.config.kubernetes.taints;
        let mut next = std::mem::take(&mut self.reporter.published.next);
        next.is_told = true;
        next.may_act = may_act;
        next.effect = effect;
        next.conditions = [None; NodeCondition::ALL.len()];
        for (condition, holds) in self.node_conditions() {
            let is_known = holds || self.is_observed(condition);
            if let Some(place) = next.conditions.get_mut(place(condition)) {
                *place = Some(is_known.then_some(holds));
            }
        }
        let after = no_execute_after.filter(|_| may_act);
        for condition in NodeCondition::ALL {
            let place = place(condition);
            let holds = next.conditions.get(place) == Some(&Some(Some(true)));
            let is_set = self.hold(condition, holds, after, now);
            if let Some(set) = next.no_execute.get_mut(place) {
                *set = is_set;
            }
        }
        next.pressure.clear();
        next.pressure.extend(self.pressure_condition_reports().map(|report| report.status));
        if next.configuration.as_ref() != Some(self.reload.state()) {
            next.configuration = Some(self.reload.state().clone());
        }
        if next != self.reporter.published.told {
            let status = self.node_status(&next);
            self.cluster.publish(status);
            std::mem::swap(&mut next, &mut self.reporter.published.told);
        }
        self.reporter.published.next = next;
    }

    /// How long until a taint may be due.
    pub(super) fn until_taint(&self, now: Monotonic) -> Option<Duration> {
        let delay = self.config.kubernetes.taints.no_execute_after?;
        self.reporter.published.held.iter().filter_map(|held| held.until_due(delay, now)).min()
    }

    /// Whether the signals behind a condition are seen at all.
    fn is_observed(&self, condition: NodeCondition) -> bool {
        let is_of = |signal: Signal| NodeCondition::of(signal) == condition;
        match condition {
            NodeCondition::MemoryPressure => self.sensors.sample.is_some(),
            NodeCondition::DiskPressure | NodeCondition::PidPressure => {
                self.sensors.others.iter().any(|value| is_of(value.signal))
            }
        }
    }

    /// Follows the `NoExecute` taint of a condition; returns whether it is to be there.
    fn hold(&mut self, condition: NodeCondition, holds: bool, after: Option<Duration>, now: Monotonic) -> bool {
        let Some(held) = self.reporter.published.held.get_mut(place(condition)) else { return false };
        let authority = status_patches::authority(self.config.kubernetes.conditions, self.config.mode == Mode::Enforce);
        let key = taint_key(condition.as_str(), authority).filter(|_| authority != Authority::Off);
        let Some(((delay, key), true)) = after.zip(key).map(|wanted| (wanted, holds)) else {
            *held = Held::default();
            return false;
        };
        let taint = Taint { key, value: String::new(), effect: NO_EXECUTE.to_owned() };
        let View { state, pods, pods_as_of, .. } = self.cluster.view();
        let protect = &self.config.kubernetes.protect;
        let known = pods_as_of.map(|_| KnownPods { pods: &pods, are_of_now: state == State::Up, protect });
        let news = held.after(holds, delay, &taint, known, now);
        let is_set = held.is_set();
        if let Some(news) = news {
            let (reason, words) = match news {
                News::Announced(words) => ("NoExecuteTaintAnnounced", words),
                News::Set(words) => ("NoExecuteTaintSet", words),
                News::Refused(words) => ("NoExecuteTaintRefused", words),
            };
            tracing::warn!(event = "no_execute", condition = condition.as_str(), reason, "{words}");
            self.tell_of_node(true, reason, words);
        }
        is_set
    }

    fn node_status(&self, standing: &Standing) -> NodeStatus {
        let mut status = NodeStatus { may_act: standing.may_act, ..NodeStatus::default() };
        let known = NodeCondition::ALL.into_iter().zip(&standing.conditions).zip(&standing.no_execute);
        for ((condition, is_true), no_execute) in known {
            let Some(is_true) = *is_true else { continue };
            status.conditions.push(wanted(condition, is_true));
            let kind = || condition.as_str().to_owned();
            let effect = standing.effect.filter(|_| is_true == Some(true)).map(|effect| match effect {
                TaintEffect::NoSchedule => Effect::NoSchedule,
                TaintEffect::PreferNoSchedule => Effect::PreferNoSchedule,
            });
            let effects = effect.into_iter().chain(no_execute.then_some(Effect::NoExecute));
            status.taints.extend(effects.map(|effect| WantedTaint { kind: kind(), effect }));
        }
        status.conditions.extend(self.pressure_condition_reports().map(|report| {
            let (reason, message) = if report.status {
                (PRESSURE_LASTS, "tasks wait for longer than configured")
            } else {
                (NO_PRESSURE, "tasks wait for no longer than configured")
            };
            WantedCondition {
                kind: report.condition.into_owned(),
                status: Some(report.status),
                reason: reason.to_owned(),
                message: message.to_owned(),
            }
        }));
        status.conditions.extend(standing.configuration.as_ref().map(configuration));
        status
    }
}

fn place(condition: NodeCondition) -> usize {
    NodeCondition::ALL.iter().position(|other| *other == condition).unwrap_or(usize::MAX)
}

/// The kubelet's words, but not in its name: it may say otherwise.
fn wanted(condition: NodeCondition, is_true: Option<bool>) -> WantedCondition {
    let (reason, message) = match is_true {
        Some(is_true) => {
            let text = condition.text(is_true);
            (text.event.to_owned(), text.message.replace("kubelet has", "node has"))
        }
        None => (NOT_KNOWN_YET.to_owned(), "nothing was measured yet".to_owned()),
    };
    WantedCondition { kind: condition.as_str().to_owned(), status: is_true, reason, message }
}

/// Whether what the configuration file asks for is in force.
fn configuration(state: &ConfigState) -> WantedCondition {
    WantedCondition {
        kind: CONFIGURATION_ACCEPTED.to_owned(),
        status: Some(state.is_accepted()),
        reason: state.reason().to_owned(),
        message: state.message(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::condition_names::is_our_condition;

    #[test]
    fn whatever_is_told_is_known_as_ours_under_any_name() {
        for condition in NodeCondition::ALL {
            for status in [Some(true), Some(false), None] {
                let WantedCondition { reason, message, .. } = wanted(condition, status);
                assert!(is_our_condition(condition.as_str(), &reason), "{reason}");
                assert!(!message.contains("kubelet"), "{message}");
            }
        }
        let started = configuration(&ConfigState::started(None, std::time::SystemTime::now()));
        assert!(started.status == Some(true) && is_our_condition(&started.kind, ""));
    }
}
