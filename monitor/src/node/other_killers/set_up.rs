//! Tells which of the three documented set-ups beside the kubelet a node has (`config/README.md`). Pure.

use std::cmp::Ordering;

use serde::Serialize;

use super::meaning::{Capacities, counterpart, text};
use super::{Acts, Killer, OtherKiller};
use crate::config::{Mode, MonitorConfig, Threshold};
use crate::units::{Signal, named_enum};

named_enum! {
    /// A set-up as the documents name it.
    pub enum SetUp {
        First = "first",
        Instead = "instead",
        Watch = "watch",
        NoneOfThree = "none of the three",
        Unknown = "unknown",
    }
}

/// A set-up as `doctor` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetUpFact {
    pub name: &'static str,
    /// The programs that evict, or the reason why the node has none of the three set-ups.
    pub because: String,
}

impl SetUpFact {
    fn new(set_up: SetUp, because: impl Into<String>) -> Self {
        Self { name: set_up.as_str(), because: because.into() }
    }

    /// Returns the set-up of a node on which these programs run; `None` if no kubelet is among them.
    pub fn of(others: &[OtherKiller], config: &MonitorConfig, capacities: Capacities<'_>) -> Option<Self> {
        let kubelet = others.iter().find(|other| other.killer == Killer::Kubelet)?;
        let kubelet = match &kubelet.acts {
            Acts::At(thresholds) => thresholds,
            Acts::Unknown(reason) => {
                return Some(Self::new(SetUp::Unknown, format!("the kubelet's thresholds are unknown: {reason}")));
            }
            Acts::ByOwnRules => return Some(Self::new(SetUp::Unknown, "the kubelet's thresholds are unknown")),
        };
        Some(match (config.mode, kubelet.is_empty()) {
            (Mode::Observe, false) => Self::new(SetUp::Watch, "the agent observes; the kubelet evicts as before"),
            (Mode::Observe, true) => Self::new(
                SetUp::NoneOfThree,
                "nothing evicts: the agent observes, and the kubelet has its own eviction off",
            ),
            (Mode::Enforce, off) => Signals::of(kubelet, config, capacities).set_up(off),
        })
    }
}

/// The signals that have a threshold, by the side that acts for them.
#[derive(Default)]
struct Signals {
    /// The agent acts above the kubelet's threshold.
    before: Vec<Signal>,
    /// The agent acts at the kubelet's threshold or below, with both thresholds.
    not_before: Vec<String>,
    /// One threshold is a share and the other a quantity of an unknown capacity.
    not_comparable: Vec<String>,
    agent_alone: Vec<Signal>,
    kubelet_alone: Vec<Signal>,
}

impl Signals {
    fn of(kubelet: &[Threshold], config: &MonitorConfig, capacities: Capacities<'_>) -> Self {
        let mut signals = Self::default();
        // The kubelet derives its threshold on allocatable memory from that on memory.
        for signal in Signal::ALL.into_iter().filter(|signal| *signal != Signal::AllocatableMemoryAvailable) {
            let has = |threshold: &&Threshold| threshold.signal == signal;
            let mut of_kubelet = kubelet.iter().filter(has).peekable();
            if of_kubelet.peek().is_none() && config.policy.thresholds.iter().any(|own| has(&own)) {
                signals.agent_alone.push(signal);
            }
            for other in of_kubelet {
                match counterpart(&config.policy, other, capacities(signal)) {
                    Some((own, order)) => signals.add(own, other, order),
                    None => signals.kubelet_alone.push(signal),
                }
            }
        }
        // The kubelet may have a hard and a soft one.
        signals.kubelet_alone.dedup();
        signals
    }

    fn add(&mut self, own: &Threshold, other: &Threshold, order: Option<Ordering>) {
        let (own, other, signal) = (text(own), text(other), own.signal);
        match order {
            Some(Ordering::Greater) => self.before.push(signal),
            Some(Ordering::Equal) => self.not_before.push(format!("{own} is at the kubelet's {other}")),
            Some(Ordering::Less) => self.not_before.push(format!("{own} is after the kubelet's {other}")),
            None => self.not_comparable.push(format!("{own} with the kubelet's {other}")),
        }
    }

    fn set_up(&self, kubelet_is_off: bool) -> SetUpFact {
        if kubelet_is_off {
            return match self.agent_alone.is_empty() {
                false => SetUpFact::new(SetUp::Instead, "the agent evicts; the kubelet has its own eviction off"),
                true => SetUpFact::new(
                    SetUp::NoneOfThree,
                    "nothing evicts: neither the agent nor the kubelet has a threshold",
                ),
            };
        }
        if !self.not_before.is_empty() {
            let both = format!("both evict, and the agent not first: {}", self.not_before.join(", "));
            return SetUpFact::new(SetUp::NoneOfThree, both);
        }
        if !self.not_comparable.is_empty() {
            let what = format!("cannot compare {}: the capacity is unknown", self.not_comparable.join(", "));
            return SetUpFact::new(SetUp::Unknown, what);
        }
        if self.before.is_empty() {
            let each = "the agent and the kubelet evict for different signals";
            return SetUpFact::new(SetUp::NoneOfThree, each.to_owned() + &self.alone());
        }
        let first = "the agent evicts, at thresholds above the kubelet's; the kubelet is the second line";
        SetUpFact::new(SetUp::First, first.to_owned() + &self.alone())
    }

    /// Names the signals for which only one side evicts.
    fn alone(&self) -> String {
        let of = |who: &str, signals: &[Signal]| {
            let names: Vec<&str> = signals.iter().map(|signal| signal.as_str()).collect();
            if names.is_empty() { String::new() } else { format!("; for {} only {who} evicts", names.join(", ")) }
        };
        of("the kubelet", &self.kubelet_alone) + &of("the agent", &self.agent_alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISKS: &str =
        "nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%,memory.available<100Mi";

    /// Returns the set-up of an agent with `hard` in this mode beside a kubelet with the thresholds of the flag.
    fn set_up(mode: Mode, hard: &str, kubelet: &str) -> (&'static str, String) {
        let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
        let text = format!("{head}mode: {}\nevictionHard: {{{hard}}}\n", mode.as_str());
        let config = MonitorConfig::parse("m.yaml", &text).unwrap().config;
        let of_flag = kubelet.split(',').filter(|it| !it.is_empty()).map(|it| it.replacen('<', ": ", 1));
        let of_flag = of_flag.collect::<Vec<_>>().join(", ");
        let kubelet = format!("{head}evictionHard: {{{of_flag}}}\n");
        let thresholds = MonitorConfig::parse("k.yaml", &kubelet).unwrap().config.policy.thresholds;
        let acts = if of_flag.is_empty() { Acts::At(Vec::new()) } else { Acts::At(thresholds) };
        fact(acts, &config)
    }

    fn fact(acts: Acts, config: &MonitorConfig) -> (&'static str, String) {
        let capacities = |signal| match signal {
            Signal::MemoryAvailable => Some(8_i64 << 30),
            Signal::NodeFsAvailable => Some(100 << 30),
            _ => None,
        };
        let kubelet = OtherKiller { killer: Killer::Kubelet, pid: 7, acts };
        let fact = SetUpFact::of(&[kubelet], config, &capacities).unwrap();
        (fact.name, fact.because)
    }

    #[test]
    fn the_set_up_follows_from_every_signal_of_both_sides() {
        use Mode::{Enforce, Observe};
        let first = "memory.available: 200Mi, nodefs.available: 12%, nodefs.inodesFree: 6%, imagefs.available: 17%, \
                     imagefs.inodesFree: 6%";
        for (mode, hard, kubelet, name, because) in [
            (Observe, "memory.available: 100Mi", DISKS, "watch", "the agent observes; the kubelet evicts as before"),
            (Observe, "memory.available: 100Mi", "", "none of the three", "nothing evicts: the agent observes"),
            (Enforce, first, DISKS, "first", "at thresholds above the kubelet's; the kubelet is the second line"),
            (Enforce, "memory.available: 100Mi", "", "instead", "the kubelet has its own eviction off"),
            (
                Enforce,
                "memory.available: 100Mi, nodefs.available: 12%",
                DISKS,
                "none of the three",
                "both evict, and the agent not first: memory.available<100Mi is at the kubelet's memory.available<100Mi",
            ),
            (
                Enforce,
                "memory.available: 200Mi, nodefs.available: 5Gi",
                DISKS,
                "none of the three",
                "nodefs.available<5Gi is after the kubelet's nodefs.available<10%",
            ),
            (
                Enforce,
                "memory.available: 200Mi, nodefs.available: 15Gi, pid.available: 5%",
                DISKS,
                "first",
                "second line; for nodefs.inodesFree, imagefs.available, imagefs.inodesFree only the kubelet evicts; for pid.available only the agent",
            ),
            (
                Enforce,
                "memory.available: 200Mi",
                "nodefs.available<10%",
                "none of the three",
                "evict for different signals; for nodefs.available only the kubelet evicts",
            ),
            (Enforce, "imagefs.available: 5Gi", "imagefs.available<15%", "unknown", "imagefs.available<5Gi with the"),
        ] {
            let (is, reason) = set_up(mode, hard, kubelet);
            assert_eq!(is, name, "{hard} beside {kubelet}: {reason}");
            assert!(reason.contains(because), "{hard} beside {kubelet}: {reason}");
        }
    }

    #[test]
    fn soft_thresholds_of_the_kubelet_count() {
        const SOFT: &str =
            "evictionSoft: {memory.available: 500Mi}\nevictionSoftGracePeriod: {memory.available: 1m30s}\n";
        let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nmode: enforce\n";
        let off = "evictionHard: {memory.available: 0%}\n";
        let soft_of_agent =
            "evictionSoft: {memory.available: 500Mi}\nevictionSoftGracePeriod: {memory.available: 30s}\n";
        let parse = |text: &str| MonitorConfig::parse("m.yaml", &format!("{head}{text}")).unwrap().config;
        for (agent, kubelet, name, because) in [
            (
                "evictionHard: {memory.available: 200Mi}\n".to_owned(),
                format!("{off}{SOFT}"),
                "none of the three",
                "memory.available<200Mi is after the kubelet's memory.available<500Mi for 1m30s",
            ),
            (
                "evictionHard: {memory.available: 200Mi}\n".to_owned(),
                format!("evictionHard: {{memory.available: 100Mi}}\n{SOFT}"),
                "none of the three",
                "and the agent not first: memory.available<200Mi is after the kubelet's memory.available<500Mi for",
            ),
            ("evictionHard: {memory.available: 500Mi}\n".to_owned(), format!("{off}{SOFT}"), "first", "second line"),
            (
                format!("evictionHard: {{memory.available: 200Mi}}\n{soft_of_agent}"),
                format!("evictionHard: {{memory.available: 100Mi}}\n{SOFT}"),
                "first",
                "second line",
            ),
            (format!("{off}{soft_of_agent}"), off.to_owned(), "instead", "the kubelet has its own eviction off"),
        ] {
            let (is, reason) = fact(Acts::At(parse(&kubelet).policy.thresholds), &parse(&agent));
            assert_eq!(is, name, "{agent} beside {kubelet}: {reason}");
            assert!(reason.contains(because), "{agent} beside {kubelet}: {reason}");
        }
    }

    #[test]
    fn a_kubelet_without_known_thresholds_has_an_unknown_set_up() {
        let config = MonitorConfig::default();
        let (name, because) = fact(Acts::Unknown("it is part of k3s".to_owned()), &config);
        assert_eq!((name, because.as_str()), ("unknown", "the kubelet's thresholds are unknown: it is part of k3s"));
        assert_eq!(SetUpFact::of(&[], &config, &|_| None), None);
    }
}
