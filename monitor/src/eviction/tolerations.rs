//! Computes what taints do to the pods of a node: which pods stay, which are evicted, and when. Pure.
//!
//! The rules are those of the control plane's taint eviction controller (Kubernetes 1.36, `GetMatchingTolerations` and
//! `getMinTolerationTime`). A pod needs a toleration for each taint with the effect `NoExecute`. For each taint the first toleration that
//! matches is used. Of these the shortest `tolerationSeconds` counts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::config::kubernetes_options::PodProtection;
use crate::workloads::pod::Toleration;
use crate::workloads::{Pod, Protection};

/// The effect that only makes the scheduler prefer other nodes.
const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
/// The effect that evicts.
pub const NO_EXECUTE: &str = "NoExecute";
const EFFECTS: [&str; 3] = ["NoSchedule", PREFER_NO_SCHEDULE, NO_EXECUTE];
const LONGEST_KEY: usize = 253;
const LONGEST_VALUE: usize = 63;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Taint {
    pub key: String,
    /// The value, which is mostly empty.
    pub value: String,
    /// The effect: `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// The error of a text that is not a taint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write KEY[=VALUE]:EFFECT, with one of NoSchedule, PreferNoSchedule, NoExecute")]
pub struct TaintError(String);

impl FromStr for Taint {
    type Err = TaintError;

    /// Parses a taint as `kubectl taint` writes it.
    fn from_str(text: &str) -> Result<Self, TaintError> {
        let (name, effect) = text.rsplit_once(':').ok_or_else(|| TaintError(format!("no effect in {text:?}")))?;
        if !EFFECTS.contains(&effect) {
            return Err(TaintError(format!("no such effect: {effect:?}")));
        }
        let (key, value) = name.split_once('=').unwrap_or((name, ""));
        let is_word = |text: &str, most: usize| {
            let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            text.len() <= most
                && text.bytes().all(inner)
                && [text.bytes().next(), text.bytes().last()]
                    .into_iter()
                    .flatten()
                    .all(|byte| byte.is_ascii_alphanumeric())
        };
        let is_key = match key.split_once('/') {
            Some((prefix, name)) => {
                !prefix.is_empty() && is_word(prefix, LONGEST_KEY) && !name.is_empty() && is_word(name, LONGEST_VALUE)
            }
            None => !key.is_empty() && is_word(key, LONGEST_VALUE),
        };
        if !is_key {
            return Err(TaintError(format!("{key:?} is no key of a taint")));
        }
        if !is_word(value, LONGEST_VALUE) {
            return Err(TaintError(format!("{value:?} is no value of a taint")));
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(formatter, "{}{equals}{}:{}", self.key, self.value, self.effect)
    }
}

impl Taint {
    fn evicts(&self) -> bool {
        self.effect == NO_EXECUTE
    }
}

pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    let key = toleration.key.is_empty() || toleration.key == taint.key;
    effect
        && key
        && match toleration.operator.as_str() {
            "Exists" => true,
            "" | "Equal" => toleration.value == taint.value,
            // `Lt` and `Gt` need a feature gate that is off by default (1.36). Without it such a toleration tolerates nothing.
            _ => false,
        }
}

/// The effect of taints on a running pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// The pod is evicted as soon as the taints are set.
    GoesAtOnce,
    /// The pod is evicted after this time if the taints are still set.
    GoesAfter(Duration),
    Stays,
}

/// The effect of taints on one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<'t> {
    /// The effect on the pod if it runs on the node.
    pub fate: Fate,
    /// The taint that evicts the pod, if any: the first that it does not tolerate, or the one that it tolerates for the shortest time.
    pub because: Option<&'t Taint>,
    /// The first taint that would keep the pod away if it were still to be scheduled.
    pub kept_away_by: Option<&'t Taint>,
    /// The first taint because of which the scheduler would prefer other nodes for the pod.
    pub avoided_by: Option<&'t Taint>,
}

/// Computes what taints do to a pod with these tolerations.
pub fn outcome<'t>(tolerations: &[Toleration], taints: &'t [Taint]) -> Outcome<'t> {
    let first_match = |taint: &Taint| tolerations.iter().find(|toleration| tolerates(toleration, taint));
    let untolerated = |is_preference: bool| {
        let of_effect = move |taint: &&Taint| (taint.effect == PREFER_NO_SCHEDULE) == is_preference;
        taints.iter().filter(of_effect).find(|taint| first_match(taint).is_none())
    };
    let (kept_away_by, avoided_by) = (untolerated(false), untolerated(true));
    let mut shortest: Option<(Duration, &'t Taint)> = None;
    for taint in taints.iter().filter(|taint| taint.evicts()) {
        let Some(toleration) = first_match(taint) else {
            return Outcome { fate: Fate::GoesAtOnce, because: Some(taint), kept_away_by, avoided_by };
        };
        if let Some(seconds) = toleration.toleration_seconds {
            let time = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            if shortest.is_none_or(|(shortest, _)| time < shortest) {
                shortest = Some((time, taint));
            }
        }
    }
    let fate = match shortest {
        None => Fate::Stays,
        Some((time, _)) if time.is_zero() => Fate::GoesAtOnce,
        Some((time, _)) => Fate::GoesAfter(time),
    };
    Outcome { fate, because: shortest.map(|(_, taint)| taint), kept_away_by, avoided_by }
}

/// A pod that taints would evict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Going<'p> {
    pub pod: &'p Pod,
    /// When the pod would be evicted; never [`Fate::Stays`].
    pub fate: Fate,
}

/// The effect that taints would have on the pods of a node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Toll<'p> {
    /// The pods that would be evicted, soonest first, then by name.
    pub going: Vec<Going<'p>>,
    /// The number of pods that would stay.
    pub stay: usize,
}

/// Computes what taints would do to those of the pods that have not ended.
pub fn toll<'p>(pods: impl IntoIterator<Item = &'p Pod>, taints: &[Taint]) -> Toll<'p> {
    let mut toll = Toll::default();
    for pod in pods.into_iter().filter(|pod| pod.is_active()) {
        match outcome(&pod.spec.tolerations, taints).fate {
            Fate::Stays => toll.stay += 1,
            fate => toll.going.push(Going { pod, fate }),
        }
    }
    toll.going.sort_by(|a, b| a.fate.cmp(&b.fate).then_with(|| a.pod.qualified_name().cmp(&b.pod.qualified_name())));
    toll
}

impl Toll<'_> {
    /// Returns the first pod that would be evicted although it is protected, with the reason of its protection.
    pub fn untouchable(&self, protect: &PodProtection) -> Option<(&Pod, Protection)> {
        self.going.iter().find_map(|going| Some((going.pod, going.pod.protection(protect)?)))
    }

    /// Returns the result as one line that names at most `most` pods.
    pub fn words(&self, most: usize) -> String {
        let name = |going: &Going<'_>| match going.fate {
            Fate::GoesAfter(time) => format!("{} (after {} s)", going.pod.full_name(), time.as_secs()),
            Fate::GoesAtOnce | Fate::Stays => going.pod.full_name(),
        };
        let stay = match self.stay {
            1 => "1 pod tolerates it".to_owned(),
            stay => format!("{stay} pods tolerate it"),
        };
        if self.going.is_empty() {
            return format!("it evicts no pod; {stay}");
        }
        let names: Vec<String> = self.going.iter().take(most).map(name).collect();
        let more = self.going.len().saturating_sub(most);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let pods = if self.going.len() == 1 { "1 pod".to_owned() } else { format!("{} pods", self.going.len()) };
        format!("it evicts {pods}: {}{more}; {stay}", names.join(", "))
    }
}

#[cfg(test)]
#[path = "tolerations_tests.rs"]
mod tests;
