//! Says who may die in an episode, from the plan alone: who leaks, how fast, sizes, classes and protection. It shares no code with the agent.

use super::plan::{Bystander, Episode, Kind, Leak};
use crate::cgroups::Qos;

/// The events of an episode.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Labels in the order of their deaths.
    pub dead: Vec<String>,
    /// Those of them that the kernel's OOM killer killed.
    pub of_kernel: Vec<String>,
    /// OOM kills because the node had no memory left.
    pub oom_kills: u64,
    /// The lowest MemAvailable in MiB.
    pub lowest_mib: u64,
    /// Whether an agent ran all the time.
    pub is_watched: bool,
    /// The longest time of the shortage in milliseconds for which not even a real-time thread ran, whose samples are a millisecond apart.
    pub stood_still_ms: u64,
}

/// The mistakes of the agent in an episode.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub wrong: Vec<String>,
    pub late: Vec<String>,
    /// Kills that came too late while the machine stood still: no agent could have been in time.
    pub excused: Vec<String>,
}

/// The seconds that an eviction has to buy, less a fifth for the accuracy of the rates.
const LEAST_SECONDS: u64 = 8;
/// Non-leakers that may go before the leaker in one shortage.
const MOST_HELPERS: usize = 2;
/// Pods that may go when nothing that leaks is a candidate: two in vain, and one when the OOM killer is near.
const MOST_IN_VAIN: usize = 3;
/// Below this MemAvailable in MiB a shortage is certain, and above it a shortage is impossible. The threshold is 100 MiB, and the
/// agent's figure is up to 25 MiB below MemAvailable.
const CERTAIN_MIB: u64 = 85;
const POSSIBLE_MIB: u64 = 130;
/// The threshold in MiB.
const THRESHOLD_MIB: u64 = 100;
/// No agent is in time if the machine stood still for a third of the time in which the threshold's memory leaks.
const STANDSTILL: u64 = 3;

pub fn judge(episode: &Episode, outcome: &Outcome) -> Verdict {
    let mut verdict = Verdict::default();
    let rate: u64 = episode.leaks.iter().map(|leak| leak.rate).sum();
    let mut candidates: Vec<&Leak> = episode.leaks.iter().filter(|leak| !leak.is_protected).collect();
    // Leaks that together are less than half of the fall are not what leaks: the protected ones are.
    if 2 * candidates.iter().map(|leak| leak.rate).sum::<u64>() < rate {
        candidates.clear();
    }
    let is_among = |labels: &[String], label: &str| labels.iter().any(|it| it == label);
    let dies = |label: &str| is_among(&outcome.dead, label) && !is_among(&outcome.of_kernel, label);
    let helpers: Vec<&Bystander> = episode.bystanders.iter().filter(|pod| dies(&pod.label)).collect();
    let most = if candidates.is_empty() { MOST_IN_VAIN } else { MOST_HELPERS };
    for leak in episode.leaks.iter().filter(|leak| leak.is_protected && dies(&leak.label)) {
        verdict.wrong.push(format!("{} is protected", leak.label));
    }
    for pod in &helpers {
        if outcome.lowest_mib > POSSIBLE_MIB {
            verdict.wrong.push(format!("{} died without a shortage", pod.label));
        } else if !candidates.is_empty() && !helps(pod, &candidates, rate) {
            verdict.wrong.push(format!("{} has {} MiB, and {rate} MiB a second leaked", pod.label, pod.mib));
        }
    }
    if helpers.len() > most {
        verdict.wrong.push(format!("{} workloads that do not leak died", helpers.len()));
    }
    if outcome.is_watched && !candidates.is_empty() {
        if outcome.oom_kills > 0 && candidates.len() == episode.leaks.len() {
            let stood_still = STANDSTILL * outcome.stood_still_ms * rate >= THRESHOLD_MIB * 1000;
            let list = if stood_still { &mut verdict.excused } else { &mut verdict.late };
            list.push(format!("{} OOM kills", outcome.oom_kills));
        }
        let largest = candidates.iter().max_by_key(|leak| leak.rate);
        if let Some(leak) = largest.filter(|leak| 2 * leak.rate >= rate && !is_among(&outcome.dead, &leak.label))
            && outcome.lowest_mib < CERTAIN_MIB
        {
            verdict.late.push(format!("{} lives at {} MiB", leak.label, outcome.lowest_mib));
        }
    }
    verdict
}

/// Returns whether the pod comes before every leaker in the ranking, and its end buys enough time.
fn helps(pod: &Bystander, leaks: &[&Leak], rate: u64) -> bool {
    // File pages are available memory already.
    let gain = if pod.kind == Kind::FilePages { 0 } else { pod.mib + 1 };
    let is_before = leaks.iter().all(|leak| class(pod.spec.qos) < class(leak.spec.qos));
    is_before && gain >= LEAST_SECONDS * rate
}

fn class(qos: Qos) -> u8 {
    match qos {
        Qos::BestEffort => 0,
        Qos::Burstable => 1,
        Qos::Guaranteed => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroups::PodSpec;
    use crate::scenarios::enforcing::chaos::plan::Fault;

    fn episode(mib: u64, rate: u64, is_protected: bool) -> Episode {
        let pod =
            |label: &str| Bystander { label: label.to_owned(), spec: PodSpec::best_effort(), mib, kind: Kind::Private };
        Episode {
            bystanders: ["a", "b", "c", "d"].map(pod).to_vec(),
            leaks: vec![Leak {
                label: "leak".to_owned(),
                spec: PodSpec::burstable(16),
                rate,
                in_volume: false,
                is_protected,
            }],
            fault: Fault::Nothing,
            fault_below_mib: 0,
            clean_up_ms: 0,
        }
    }

    #[test]
    fn verdicts() {
        let cases = [
            ("the leaker alone", episode(3, 80, false), (vec!["leak"], 0, 90), (0, 0)),
            ("a dwarf", episode(3, 80, false), (vec!["a", "leak"], 0, 90), (1, 0)),
            ("one that buys time", episode(30, 2, false), (vec!["a", "leak"], 0, 90), (0, 0)),
            ("three that buy time", episode(30, 2, false), (vec!["a", "b", "c", "leak"], 0, 90), (1, 0)),
            ("the protected one", episode(3, 80, true), (vec!["leak"], 0, 90), (1, 0)),
            ("three in vain", episode(3, 80, true), (vec!["a", "b", "c"], 0, 17), (0, 0)),
            ("four in vain", episode(3, 80, true), (vec!["a", "b", "c", "d"], 0, 17), (1, 0)),
            ("too late", episode(3, 80, false), (vec!["leak"], 1, 0), (0, 1)),
            ("not at all", episode(3, 80, false), (vec![], 0, 40), (0, 1)),
            ("without a shortage", episode(30, 2, false), (vec!["a"], 0, 300), (1, 0)),
        ];
        for (name, episode, (dead, oom_kills, lowest_mib), (wrong, late)) in cases {
            let dead = dead.into_iter().map(str::to_owned).collect();
            let outcome = Outcome { dead, oom_kills, lowest_mib, is_watched: true, ..Outcome::default() };
            let verdict = judge(&episode, &outcome);
            assert_eq!((verdict.wrong.len(), verdict.late.len()), (wrong, late), "{name}: {verdict:?}");
        }
    }

    #[test]
    fn an_oom_kill_while_the_machine_stood_still_is_excused() {
        // At 80 MiB a second 100 MiB last 1,250 ms.
        for (stood_still_ms, late, excused) in [(416, 1, 0), (417, 0, 1)] {
            let outcome = Outcome {
                oom_kills: 1,
                is_watched: true,
                stood_still_ms,
                dead: vec!["leak".to_owned()],
                ..Outcome::default()
            };
            let verdict = judge(&episode(3, 80, false), &outcome);
            assert_eq!((verdict.late.len(), verdict.excused.len()), (late, excused), "{verdict:?}");
        }
    }

    #[test]
    fn a_victim_of_the_kernel_is_not_a_wrong_kill_of_the_agent() {
        let outcome =
            |of_kernel| Outcome { dead: vec!["a".to_owned()], of_kernel, lowest_mib: 0, ..Outcome::default() };
        assert_eq!(judge(&episode(3, 80, false), &outcome(vec!["a".to_owned()])).wrong.len(), 0);
        assert_eq!(judge(&episode(3, 80, false), &outcome(Vec::new())).wrong.len(), 1);
    }

    #[test]
    fn beside_a_larger_protected_leak_a_small_one_does_not_leak() {
        let mut episode = episode(20, 120, true);
        episode.leaks.push(Leak {
            label: "small".to_owned(),
            rate: 40,
            is_protected: false,
            ..episode.leaks[0].clone()
        });
        let dead = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect();
        for (labels, wrong) in [(&["small", "a", "b"][..], 0), (&["a", "b", "c", "d"], 1)] {
            let outcome = Outcome { dead: dead(labels), lowest_mib: 11, is_watched: true, ..Outcome::default() };
            assert_eq!(judge(&episode, &outcome).wrong.len(), wrong, "{labels:?}");
        }
    }
}
