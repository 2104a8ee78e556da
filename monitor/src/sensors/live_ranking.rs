//! The order of eviction as it stands, for `/api/v1/state`. `rank` answers the same; nothing is evicted by it.

use crate::config::MonitorConfig;
use crate::eviction::Observation;
use crate::eviction::decider::{Answer, Attempt, Decider, Measure, Next, Pace, PassedOver, Place, Rules, Snapshot};
use crate::eviction::rank::Ranked;
use crate::units::{Monotonic, Signal};
use crate::workloads::WorkloadUsage;

use super::Sensors;

/// The decider judges each candidate once, and there are fewer than this many.
const MOST_STEPS: usize = 10_000;

/// The candidates as if the signal were low.
#[derive(Debug)]
pub struct LiveRanking {
    pub signal: Signal,
    /// First to be evicted first.
    pub ranked: Vec<Ranked<WorkloadUsage>>,
    /// Why each of them would be passed over, if it would.
    pub passed_over: Vec<Option<PassedOver>>,
    /// The place of the one that would be evicted.
    pub first: Option<usize>,
}

impl Sensors {
    pub fn live_ranking(
        &mut self,
        signal: Signal,
        observation: &Observation,
        config: &MonitorConfig,
        now: Monotonic,
    ) -> LiveRanking {
        let rules = Rules { policy: &config.policy, pace: Pace::Ranking };
        let snapshot = Snapshot {
            now: now.into(),
            layout: self.signals.filesystems.layout(),
            observation: observation.clone(),
            question: Some(signal),
            ..Snapshot::default()
        };
        let (mut decider, mut above, mut answer) = (Decider::<WorkloadUsage>::default(), Vec::new(), Answer::Begin);
        let (mut first, mut critical) = (None, Vec::new());
        for _ in 0..MOST_STEPS {
            answer = match decider.step(rules, &snapshot, answer) {
                Next::Measure(what) => {
                    let answer = match what {
                        Measure::Standing { place: Place::Ranked(place) } => {
                            let id = decider.ranking().get(place).map(|ranked| ranked.candidate.workload.id);
                            let known = id.map(|id| self.known_standing(id, &config.proc_root));
                            Answer::Standing(known.unwrap_or_default())
                        }
                        _ => self.measure(what, config, &decider, &mut above),
                    };
                    if let (Measure::Standing { place: Place::Ranked(place) }, Answer::Standing(standing)) =
                        (what, &answer)
                        && standing.is_critical
                    {
                        critical.push(place);
                    }
                    answer
                }
                Next::Evict(choice) => {
                    first = first.or(match choice.place {
                        Place::Ranked(place) => Some(place),
                        Place::Limit(_) => None,
                    });
                    Answer::Attempt(Attempt::Started)
                }
                _ => break,
            };
        }
        let mut passed_over = decider.passed_over(rules, &snapshot);
        for place in critical {
            if let Some(reason) = passed_over.get_mut(place) {
                *reason = Some(PassedOver::Exempt);
            }
        }
        LiveRanking { signal, ranked: decider.take_ranking(), passed_over, first }
    }
}
