//! Decides whether a condition has held for so long that its taint with the effect `NoExecute` is set, which evicts running pods. Pure:
//! it reads no clock and has no connection.
//!
//! When the condition begins to hold, the taint is announced, with the pods that it would evict and the time until it is set. The taint
//! is not set while the pods of the node are unknown, nor if it would evict a protected pod: the taint eviction controller evicts every
//! pod that does not tolerate the taint.

use std::sync::Arc;
use std::time::Duration;

use crate::config::kubernetes_options::PodProtection;
use crate::units::Monotonic;
use crate::workloads::PodSpecs;

use super::tolerations::{Taint, toll};

/// A message names this many pods at most.
const NAMES: usize = 5;
/// A taint that was refused is judged again after this time.
const JUDGED_AGAIN: Duration = Duration::from_secs(10);

/// The known facts about the pods of the node.
#[derive(Debug, Clone, Copy)]
pub struct KnownPods<'p> {
    pub pods: &'p PodSpecs,
    /// Whether the API server answers, so that `pods` is up to date.
    pub are_of_now: bool,
    pub protect: &'p PodProtection,
}

/// The state of the taint of one condition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// The taint that was announced and judged. Another taint may evict other pods, so it is announced and judged anew.
    taint: Option<Taint>,
    since: Option<Monotonic>,
    announced: bool,
    is_set: bool,
    refusal_told: bool,
    judged: Option<Monotonic>,
}

/// A change of the taint's state that is to be reported, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The taint will be set if the condition lasts.
    Announced(String),
    /// The taint is set now.
    Set(String),
    /// The taint is due, but it is not set.
    Refused(String),
}

impl Held {
    /// Takes in whether the condition holds at `now`. Returns the change to report, if any.
    pub fn after(
        &mut self,
        holds: bool,
        delay: Duration,
        taint: &Taint,
        known: Option<KnownPods<'_>>,
        now: Monotonic,
    ) -> Option<News> {
        if !holds {
            *self = Self::default();
            return None;
        }
        if self.taint.as_ref() != Some(taint) {
            *self = Self { taint: Some(taint.clone()), ..Self::default() };
        }
        let since = *self.since.get_or_insert(now);
        let left = delay.saturating_sub(now.since(since));
        if self.is_set || (self.announced && !left.is_zero()) {
            return None;
        }
        // The caller may come a thousand times a second while the taint is refused, and the node may have hundreds of pods.
        if self.judged.is_some_and(|judged| now.since(judged) < JUDGED_AGAIN) {
            return None;
        }
        let judged = judge(taint, known);
        if !std::mem::replace(&mut self.announced, true) {
            let when = format!("taint {taint} follows in {} s if the condition lasts", left.as_secs());
            return Some(News::Announced(match judged {
                Ok(words) => format!("{when}: {words}"),
                Err(reason) => format!("{when}, unless this is so then: {reason}"),
            }));
        }
        self.judged = Some(now);
        match judged {
            Ok(words) => {
                self.is_set = true;
                Some(News::Set(format!("taint {taint} is set: {words}")))
            }
            Err(_) if self.refusal_told => None,
            Err(reason) => {
                self.refusal_told = true;
                Some(News::Refused(format!("taint {taint} is due, but not set: {reason}")))
            }
        }
    }

    /// Returns whether the taint is to be set. Once set, it stays for as long as the condition holds.
    pub const fn is_set(&self) -> bool {
        self.is_set
    }

    /// Returns the time until the taint is due, or `None` if no announced taint is waiting for its time.
    pub fn until_due(&self, delay: Duration, now: Monotonic) -> Option<Duration> {
        let since = self.since.filter(|_| !self.is_set)?;
        Some(delay.saturating_sub(now.since(since))).filter(|wait| !wait.is_zero())
    }
}

/// Returns which pods the taint would evict, or an error that says why the taint must not be set.
fn judge(taint: &Taint, known: Option<KnownPods<'_>>) -> Result<String, String> {
    let known = known.ok_or("the pods of this node are not known")?;
    if !known.are_of_now {
        return Err("the API server does not answer, so that the pods of this node are those of before".to_owned());
    }
    let toll = toll(known.pods.pods().iter().map(Arc::as_ref), std::slice::from_ref(taint));
    match toll.untouchable(known.protect) {
        Some((pod, why)) => Err(format!(
            "it would evict {}, which must stay ({}); give that pod a toleration of {taint}, or set kubernetes.taints.noExecute.after: off",
            pod.full_name(),
            why.as_str()
        )),
        None => Ok(toll.words(NAMES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KubernetesOptions;
    use crate::workloads::Pod;

    const DELAY: Duration = Duration::from_secs(300);

    fn pods(json: &str) -> PodSpecs {
        PodSpecs::new(serde_json::from_str::<Vec<Pod>>(json).unwrap())
    }

    fn taint() -> Taint {
        "node-pressure-monitor/memory-pressure:NoExecute".parse().unwrap()
    }

    fn at(second: u64) -> Monotonic {
        Monotonic((second + 1_000) * 1_000_000_000)
    }

    #[test]
    fn the_taint_is_announced_then_set_then_removed() {
        let pods = pods(r#"[{"metadata": {"namespace": "n", "name": "a"}}]"#);
        let protect = KubernetesOptions::default().protect;
        let known = Some(KnownPods { pods: &pods, are_of_now: true, protect: &protect });
        let mut held = Held::default();
        assert_eq!(held.after(false, DELAY, &taint(), known, at(0)), None);
        let Some(News::Announced(words)) = held.after(true, DELAY, &taint(), known, at(1)) else { panic!("{held:?}") };
        assert!(words.contains("follows in 300 s") && words.contains("evicts 1 pod: n/a"), "{words}");
        assert_eq!(held.after(true, DELAY, &taint(), known, at(2)), None, "it is announced once");
        assert_eq!(held.until_due(DELAY, at(2)), Some(Duration::from_secs(299)));
        assert!(!held.is_set());
        assert!(matches!(held.after(true, DELAY, &taint(), known, at(301)), Some(News::Set(_))));
        assert!(held.is_set() && held.until_due(DELAY, at(302)).is_none());
        // The taint stays while the condition holds, even if the pods are no longer known.
        assert_eq!(held.after(true, DELAY, &taint(), None, at(303)), None);
        assert!(held.is_set());
        assert_eq!(held.after(false, DELAY, &taint(), known, at(304)), None);
        assert!(!held.is_set());
    }

    #[test]
    fn a_changed_taint_is_announced_and_judged_anew() {
        let pods = pods(
            r#"[{"metadata": {"namespace": "kube-system", "name": "c"}, "spec": {"priority": 2000001000,
                "tolerations": [{"key": "node-pressure-monitor/memory-pressure", "operator": "Exists"}]}}]"#,
        );
        let protect = KubernetesOptions::default().protect;
        let known = Some(KnownPods { pods: &pods, are_of_now: true, protect: &protect });
        let mut held = Held::default();
        let _announced = held.after(true, DELAY, &taint(), known, at(0));
        assert!(matches!(held.after(true, DELAY, &taint(), known, at(300)), Some(News::Set(_))));
        let standard: Taint = "node.kubernetes.io/memory-pressure:NoExecute".parse().unwrap();
        assert!(matches!(held.after(true, DELAY, &standard, known, at(301)), Some(News::Announced(_))));
        assert!(!held.is_set());
        assert!(matches!(held.after(true, DELAY, &standard, known, at(601)), Some(News::Refused(_))));
    }

    #[test]
    fn the_taint_is_refused_for_unknown_or_protected_pods() {
        let critical =
            pods(r#"[{"metadata": {"namespace": "kube-system", "name": "c"}, "spec": {"priority": 2000001000}}]"#);
        let none = PodSpecs::default();
        let protect = KubernetesOptions::default().protect;
        let stale = KnownPods { pods: &none, are_of_now: false, protect: &protect };
        for (known, reason) in [
            (None, "not known"),
            (Some(stale), "does not answer"),
            (
                Some(KnownPods { pods: &critical, are_of_now: true, protect: &protect }),
                "kube-system/c, which must stay",
            ),
        ] {
            let mut held = Held::default();
            assert!(
                matches!(held.after(true, DELAY, &taint(), known, at(0)), Some(News::Announced(words)) if words.contains(reason))
            );
            let Some(News::Refused(words)) = held.after(true, DELAY, &taint(), known, at(300)) else {
                panic!("{held:?}")
            };
            assert!(words.contains(reason), "{words}");
            assert_eq!(held.after(true, DELAY, &taint(), known, at(311)), None, "the refusal is reported once");
            assert!(!held.is_set());
            // The taint is set once the reason for the refusal is gone.
            let clear = Some(KnownPods { pods: &none, are_of_now: true, protect: &protect });
            assert!(matches!(held.after(true, DELAY, &taint(), clear, at(325)), Some(News::Set(_))));
        }
    }
}
