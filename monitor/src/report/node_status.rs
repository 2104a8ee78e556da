//! The node's conditions and taints at the API server, published when they change.

use std::time::Duration;

use crate::cluster::condition_names::{
    CONFIGURATION_ACCEPTED, LEAK_NOT_EVICTABLE, NO_PRESSURE, NO_PROTECTED_LEAK, NOT_KNOWN_YET, PRESSURE_LASTS,
    PROTECTED_LEAK, taint_key,
};
use crate::cluster::status::{Effect, WantedCondition, WantedTaint, status_patches};
use crate::cluster::{NodeStatus, State, View};
use crate::config::kubernetes_options::{Authority, TaintEffect, TaintEffects, TaintOptions};
use crate::config::{KubernetesOptions, Mode};
use crate::eviction::NodeCondition;
use crate::eviction::decider::ProtectedLeak;
use crate::eviction::no_execute::{Held, KnownPods, News};
use crate::eviction::tolerations::{NO_EXECUTE, Taint};
use crate::report::configuration_state::ConfigState;
use crate::units::Monotonic;

const CONDITIONS: usize = NodeCondition::ALL.len();

/// Input of the status. The loop creates one per turn, up to a thousand times a second, so it must not allocate.
#[derive(Debug, Clone, Copy)]
pub struct StatusFacts<'s> {
    pub mode: Mode,
    pub options: &'s KubernetesOptions,
    /// Status by index in [`NodeCondition::ALL`]. `None`: no threshold raises the condition. `Some(None)`: the condition is not
    /// observed.
    pub conditions: [Option<Option<bool>>; CONDITIONS],
    pub configuration: &'s ConfigState,
}

#[derive(Debug, Default)]
pub struct NodeStatusSink {
    published: Option<Standing>,
    held: [Held; CONDITIONS],
    /// The leak that cannot be evicted, with the words of the condition.
    leak: Option<(ProtectedLeak, String)>,
}

#[derive(Debug, PartialEq)]
struct Standing {
    may_act: bool,
    effects: TaintEffects,
    conditions: [Option<Option<bool>>; CONDITIONS],
    no_execute: [bool; CONDITIONS],
    /// Conditions that follow from PSI.
    pressure: Vec<(String, bool)>,
    leak: Option<String>,
    configuration: ConfigState,
}

impl NodeStatusSink {
    /// Takes in what leaks and cannot be evicted. Composes the words only when that changes.
    pub fn observe_leak(&mut self, leak: Option<ProtectedLeak>, words: impl FnOnce(ProtectedLeak) -> String) {
        if self.leak.as_ref().map(|(known, _)| *known) != leak {
            self.leak = leak.map(|leak| (leak, words(leak)));
        }
    }

    /// Returns the status if it differs from the published one, and the news to report about `NoExecute` taints.
    pub fn update<'p>(
        &mut self,
        facts: StatusFacts<'_>,
        pressure: impl Iterator<Item = (&'p str, bool)> + Clone,
        view: impl Fn() -> View,
        now: Monotonic,
    ) -> (Option<NodeStatus>, Vec<(NodeCondition, News)>) {
        let StatusFacts { mode, options, conditions, configuration } = facts;
        let may_act = mode == Mode::Enforce;
        let TaintOptions { effects, no_execute_after } = options.taints;
        let after = no_execute_after.filter(|_| may_act);
        let mut no_execute = [false; CONDITIONS];
        let mut news = Vec::new();
        for (((condition, held), holds), set) in
            NodeCondition::ALL.into_iter().zip(&mut self.held).zip(conditions).zip(&mut no_execute)
        {
            let holds = holds == Some(Some(true));
            news.extend(hold(held, condition, holds, after, options, &view, now).map(|news| (condition, news)));
            *set = held.is_set();
        }
        let is_published = self.published.as_ref().is_some_and(|published| {
            let mut known = published.pressure.iter();
            let is_known = |(name, status)| known.next().is_some_and(|(known, was)| known == name && *was == status);
            (published.may_act, published.effects) == (may_act, effects)
                && (published.conditions, published.no_execute) == (conditions, no_execute)
                && published.configuration == *configuration
                && published.leak.as_ref() == self.leak.as_ref().map(|(_, words)| words)
                && pressure.clone().all(is_known)
                && known.next().is_none()
        });
        if is_published {
            return (None, news);
        }
        let pressure = pressure.map(|(name, status)| (name.to_owned(), status)).collect();
        let configuration = configuration.clone();
        let leak = self.leak.as_ref().map(|(_, words)| words.clone());
        let standing = Standing { may_act, effects, conditions, no_execute, pressure, leak, configuration };
        let status = standing.status();
        self.published = Some(standing);
        (Some(status), news)
    }

    /// Returns the time until a taint may be due.
    pub fn until_taint(&self, options: &KubernetesOptions, now: Monotonic) -> Option<Duration> {
        let delay = options.taints.no_execute_after?;
        self.held.iter().filter_map(|held| held.until_due(delay, now)).min()
    }
}

/// Updates the `NoExecute` taint of a condition.
fn hold(
    held: &mut Held,
    condition: NodeCondition,
    holds: bool,
    after: Option<Duration>,
    options: &KubernetesOptions,
    view: impl Fn() -> View,
    now: Monotonic,
) -> Option<News> {
    let authority = status_patches::authority(options.conditions, after.is_some());
    let key = taint_key(condition.as_str(), authority).filter(|_| authority != Authority::Off);
    let Some(((delay, key), true)) = after.zip(key).map(|wanted| (wanted, holds)) else {
        *held = Held::default();
        return None;
    };
    let taint = Taint { key, value: String::new(), effect: NO_EXECUTE.to_owned() };
    let View { state, pods, pods_as_of, .. } = view();
    let known = KnownPods { pods: &pods, are_of_now: state == State::Up, protect: &options.protect };
    held.after(holds, delay, &taint, pods_as_of.map(|_| known), now)
}

impl Standing {
    fn status(&self) -> NodeStatus {
        let mut status = NodeStatus { may_act: self.may_act, ..NodeStatus::default() };
        let known = NodeCondition::ALL.into_iter().zip(&self.conditions).zip(&self.no_execute);
        for ((condition, is_true), no_execute) in known {
            let Some(is_true) = *is_true else { continue };
            status.conditions.push(wanted(condition, is_true));
            let kind = || condition.as_str().to_owned();
            let effect =
                self.effects.of(condition.as_str()).filter(|_| is_true == Some(true)).map(|effect| match effect {
                    TaintEffect::NoSchedule => Effect::NoSchedule,
                    TaintEffect::PreferNoSchedule => Effect::PreferNoSchedule,
                });
            let effects = effect.into_iter().chain(no_execute.then_some(Effect::NoExecute));
            status.taints.extend(effects.map(|effect| WantedTaint { kind: kind(), effect }));
        }
        status.conditions.extend(self.pressure.iter().map(|(name, is_true)| {
            let (reason, message) = if *is_true {
                (PRESSURE_LASTS, "tasks wait for longer than configured")
            } else {
                (NO_PRESSURE, "tasks wait for no longer than configured")
            };
            with(name, Some(*is_true), reason, message.to_owned())
        }));
        let (reason, message) = match &self.leak {
            Some(words) => (LEAK_NOT_EVICTABLE, words.clone()),
            None => (NO_PROTECTED_LEAK, "no leak of memory is known that cannot be evicted".to_owned()),
        };
        status.conditions.push(with(PROTECTED_LEAK, Some(self.leak.is_some()), reason, message));
        status.conditions.push(configuration(&self.configuration));
        status
    }
}

/// Returns the condition in the kubelet's wording. The message names the node instead of the kubelet, whose view may differ.
fn wanted(condition: NodeCondition, is_true: Option<bool>) -> WantedCondition {
    let (reason, message) = match is_true.map(|is_true| condition.text(is_true)) {
        Some(text) => (text.event, text.message.replace("kubelet has", "node has")),
        None => (NOT_KNOWN_YET, "the agent has not measured yet".to_owned()),
    };
    with(condition.as_str(), is_true, reason, message)
}

fn configuration(state: &ConfigState) -> WantedCondition {
    let (reason, message) = state.words();
    with(CONFIGURATION_ACCEPTED, Some(state.is_accepted()), reason, message)
}

fn with(kind: &str, status: Option<bool>, reason: &str, message: String) -> WantedCondition {
    WantedCondition { kind: kind.to_owned(), status, reason: reason.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::condition_names::is_our_condition;

    #[test]
    fn every_published_condition_is_recognized_as_ours() {
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

    /// The effects of OpenShift's table of conditions: a soft one for memory, hard ones for disk and process ids.
    #[test]
    fn each_condition_has_the_taint_of_its_own_effect() {
        use Effect::{NoSchedule, PreferNoSchedule};
        let soft = vec![
            ("MemoryPressure", PreferNoSchedule),
            ("DiskPressure", PreferNoSchedule),
            ("PIDPressure", PreferNoSchedule),
        ];
        let by_table =
            "{effects: {MemoryPressure: PreferNoSchedule, DiskPressure: NoSchedule, PIDPressure: NoSchedule}}";
        for (taints, expected) in [
            ("{}", soft),
            (
                by_table,
                vec![("MemoryPressure", PreferNoSchedule), ("DiskPressure", NoSchedule), ("PIDPressure", NoSchedule)],
            ),
            (
                "{effect: NoSchedule, effects: {MemoryPressure: off}}",
                vec![("DiskPressure", NoSchedule), ("PIDPressure", NoSchedule)],
            ),
            ("{effect: off, effects: {PIDPressure: PreferNoSchedule}}", vec![("PIDPressure", PreferNoSchedule)]),
        ] {
            let text = format!(
                "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nkubernetes: {{taints: {taints}}}\n"
            );
            let options = crate::config::MonitorConfig::parse("m.yaml", &text).unwrap().config.kubernetes;
            let configuration = ConfigState::started(None, std::time::SystemTime::now());
            let facts = StatusFacts {
                mode: Mode::Enforce,
                options: &options,
                conditions: [Some(Some(true)); CONDITIONS],
                configuration: &configuration,
            };
            let (status, _) = NodeStatusSink::default().update(facts, std::iter::empty(), View::default, Monotonic(0));
            let taints = status.unwrap().taints;
            let found: Vec<_> = taints.iter().map(|taint| (taint.kind.as_str(), taint.effect)).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn an_unchanged_status_is_published_once() {
        let mut sink = NodeStatusSink::default();
        let options = KubernetesOptions::default();
        let configuration = ConfigState::started(None, std::time::SystemTime::now());
        let facts = |memory| StatusFacts {
            mode: Mode::Enforce,
            options: &options,
            conditions: [Some(Some(memory)), None, None],
            configuration: &configuration,
        };
        let mut published = |memory, busy, leak: Option<f64>| {
            sink.observe_leak(leak.map(|fall| ProtectedLeak { id: None, fall }), |leak| leak.fall.to_string());
            let (status, news) = sink.update(facts(memory), [("Busy", busy)].into_iter(), View::default, Monotonic(0));
            assert!(news.is_empty());
            status.map(|status| {
                let of_leak = status.conditions.iter().find(|condition| condition.kind == PROTECTED_LEAK).unwrap();
                assert!(is_our_condition(&of_leak.kind, &of_leak.reason));
                (status.conditions.len(), of_leak.status == Some(true), of_leak.message.clone())
            })
        };
        let without_leak = Some((4, false, "no leak of memory is known that cannot be evicted".to_owned()));
        assert_eq!(published(false, false, None), without_leak);
        assert_eq!(published(false, false, None), None);
        assert_eq!(published(true, false, None), without_leak);
        assert_eq!(published(true, true, None), without_leak);
        assert_eq!(published(true, true, None), None);
        assert_eq!(published(true, true, Some(5.0)), Some((4, true, "5".to_owned())));
        assert_eq!(published(true, true, Some(5.0)), None);
        assert_eq!(published(true, true, None), without_leak, "the shortage has ended");
    }
}
