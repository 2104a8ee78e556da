//! Explains in sentences what another killer means beside this agent's mode and thresholds. Pure.

use std::cmp::Ordering;

use super::{Acts, Killer, OtherKiller};
use crate::config::{Mode, MonitorConfig, Policy, Threshold, ThresholdValue};
use crate::units::{Signal, format_go_duration};

/// The capacity of a signal, in its unit, as far as it is known.
pub type Capacities<'c> = &'c dyn Fn(Signal) -> Option<i64>;

/// One sentence, and what to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Meaning {
    pub sentence: String,
    pub mend: String,
    /// The other program may kill for the shortage for which this agent kills, and at the same time or before.
    pub collides: bool,
}

impl OtherKiller {
    /// Says what this program means beside an agent of this configuration.
    pub fn meaning(&self, config: &MonitorConfig, capacities: Capacities<'_>) -> Meaning {
        let name = format!("{} (process {})", self.killer.as_str(), self.pid);
        match &self.acts {
            Acts::At(thresholds) => self.beside(&name, thresholds, config, capacities),
            Acts::Unknown(reason) => Meaning {
                sentence: format!("{name} evicts too, at thresholds that are unknown: {reason}"),
                mend: "compare its evictionHard with this agent's: the agent is to act first, at the higher threshold"
                    .to_owned(),
                collides: false,
            },
            Acts::ByOwnRules => self.by_own_rules(&name),
        }
    }

    fn beside(
        &self,
        name: &str,
        thresholds: &[Threshold],
        config: &MonitorConfig,
        capacities: Capacities<'_>,
    ) -> Meaning {
        let order = |other: &Threshold| counterpart(&config.policy, other, capacities(other.signal))?.1;
        let such = |wanted: Ordering| {
            let chosen = thresholds.iter().filter(|it| order(it) == Some(wanted));
            let label = |it: &Threshold| format!("{}{}", it.signal, if it.is_hard() { "" } else { " (soft)" });
            chosen.map(label).collect::<Vec<_>>().join(", ")
        };
        let (first, same, later) = (such(Ordering::Less), such(Ordering::Equal), such(Ordering::Greater));
        let does = match self.killer {
            Killer::Kubelet => "evicts",
            _ => "ends the process with the highest oom_score, in pods too,",
        };
        let mut sentence = match thresholds {
            [] => format!("{name} has no threshold"),
            _ => format!("{name} {does} at {}", listed(thresholds)),
        };
        let in_mode = if config.mode == Mode::Observe { ", in mode enforce" } else { "" };
        for (signals, phrase) in [
            (&first, "before this agent, so that the agent finds little left to decide"),
            (&same, "at the threshold of this agent, so that two workloads may go for one shortage"),
            (&later, "after this agent, as a second line"),
        ] {
            if !signals.is_empty() {
                sentence += &format!("; for {signals} it acts {phrase}{in_mode}");
            }
        }
        let collides = !first.is_empty() || !same.is_empty();
        let mend = match self.killer {
            _ if !collides => "leave it so: the thresholds do not collide",
            Killer::Kubelet => "set this agent's threshold above the kubelet's, or the kubelet's below this agent's",
            _ => "switch earlyoom off, or start it with -M and half of this agent's threshold in KiB",
        };
        Meaning { sentence, mend: mend.to_owned(), collides }
    }

    fn by_own_rules(&self, name: &str) -> Meaning {
        let (does, mend) = match self.killer {
            Killer::SystemdOomd => (
                "kills whole cgroups by swap use and memory pressure, in units with ManagedOOMSwap=kill or \
                 ManagedOOMMemoryPressure=kill; it knows no pods, requests or priorities",
                "leave ManagedOOMSwap and ManagedOOMMemoryPressure at auto for kubepods.slice and what is above it",
            ),
            Killer::Oomd => (
                "kills whole cgroups by the rules of its own configuration, which this agent does not read",
                "leave the cgroups of pods out of its rules",
            ),
            Killer::Talos => (
                "has Talos' OOM controller, which kills whole pods by the memory pressure of the node, in the order of their QoS classes; it knows \
                 no requests or priorities",
                "apply a document of kind OOMConfig whose triggerExpression holds only after this agent has acted",
            ),
            _ => (
                "ends single processes by the limits of its own configuration, which this agent does not read, in pods too",
                "switch it off, or set its limits below this agent's thresholds",
            ),
        };
        Meaning { sentence: format!("{name} {does}"), mend: mend.to_owned(), collides: false }
    }
}

fn listed(thresholds: &[Threshold]) -> String {
    thresholds.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Returns the threshold, with the grace period of a soft one.
pub(super) fn text(threshold: &Threshold) -> String {
    if threshold.is_hard() {
        return threshold.to_string();
    }
    format!("{threshold} for {}", format_go_duration(threshold.grace_period))
}

/// Returns this agent's highest threshold that does not wait longer than the other one, and how the two compare. `Greater` means that this
/// agent acts first.
pub(super) fn counterpart<'p>(
    policy: &'p Policy,
    other: &Threshold,
    capacity: Option<i64>,
) -> Option<(&'p Threshold, Option<Ordering>)> {
    let waits_longer = |own: &&Threshold| own.grace_period > other.grace_period;
    let own = policy.thresholds.iter().filter(|own| own.signal == other.signal && !waits_longer(own));
    let order = |own| Some(compare(own, other, capacity)?.then(other.grace_period.cmp(&own.grace_period)));
    own.map(|own| (own, order(own))).max_by_key(|(_, order)| *order)
}

/// Compares this agent's threshold with the other one. Returns `None` where a share and a quantity meet and the capacity is unknown.
fn compare(own: &Threshold, other: &Threshold, capacity: Option<i64>) -> Option<Ordering> {
    let capacity = match (&own.value, &other.value, capacity) {
        (_, _, Some(capacity)) => capacity,
        // Any capacity gives the same order.
        (ThresholdValue::Percentage(_), ThresholdValue::Percentage(_), None) => 1 << 50,
        (ThresholdValue::Quantity(_), ThresholdValue::Quantity(_), None) => 0,
        _ => return None,
    };
    let quirks = Policy::default().quirks;
    Some(own.value.resolve(capacity, quirks).cmp(&other.value.resolve(capacity, quirks)))
}
