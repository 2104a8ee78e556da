//! The data that a publication contains for the document of `/api/v1/state`, beyond the node's report. It is measured only while a client asks for that document.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use node_pressure_state::Name;

use super::{CgroupReport, ConfigState, LoopState, NodeReport, Reporter};
use crate::actions::evict::Ongoing;
use crate::config::Policy;
use crate::disk::Usages;
use crate::incidents::sample_ring::Sample;
use crate::sensors::live_ranking::LiveRanking;
use crate::units::{Monotonic, Signal};
use crate::workloads::WorkloadUsage;

/// Samples of the last minute.
const SAMPLES: usize = 240;

/// State of the agent that the loop's state does not contain.
#[derive(Debug)]
pub struct Aside<'a> {
    /// Number of processes whose `oom_score_adj` deviates from the value of their QoS class.
    pub oom_score_adj_drift: u64,
    pub configuration: &'a ConfigState,
    pub under_way: Vec<Ongoing>,
}

#[derive(Debug)]
pub struct Live {
    pub observed: Monotonic,
    pub node: String,
    pub policy: Policy,
    pub pool: Option<String>,
    pub configuration: ConfigState,
    pub rankings: Vec<LiveRanking>,
    /// All workloads with their working sets and names.
    pub usages: Vec<(WorkloadUsage, Name)>,
    /// By the path of the workload.
    pub stalls: HashMap<String, Stalls>,
    /// Change of each signal in its unit per second.
    pub per_second: Vec<(Signal, f64)>,
    /// The last minute of `memory.available`.
    pub history: Vec<Sample>,
    /// The evictions that the limit per minute allows now, and in a minute.
    pub budget: (usize, usize),
    pub cool_down: Option<Duration>,
    pub under_way: Vec<(Name, Ongoing)>,
    /// Why no workload is evicted although a threshold is met.
    pub waits: Option<String>,
    /// When each condition has changed last.
    pub conditions_since: Vec<(String, Monotonic)>,
    pub disk: Arc<Usages>,
}

/// Reclaim stalls and OOM kills of a workload since the agent has seen it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stalls {
    pub count: u64,
    pub time: Duration,
    pub oom_kills: u64,
}

impl Reporter {
    /// Measures what the document needs. The cost is a few reads for each workload.
    pub(super) fn live(
        &self,
        state: &mut LoopState<'_>,
        report: &NodeReport,
        aside: &Aside<'_>,
        now: Monotonic,
    ) -> Live {
        let mut history = Vec::new();
        self.recorder.recent(now, SAMPLES, &mut history);
        let observation = state.sensors.observation(state.config.policy.semantics);
        let rankings = observation.map_or_else(Vec::new, |observation| {
            let armed = signals(state);
            let each = |signal| state.sensors.live_ranking(signal, &observation, state.config, now);
            armed.into_iter().map(each).collect()
        });
        let usages = state.sensors.workloads.tree_mut().usages();
        let named = |usage: WorkloadUsage| {
            let name = report.names.of_workload(&usage.workload);
            (usage, name)
        };
        let usages: Vec<_> = usages.into_iter().map(named).collect();
        Live {
            observed: now,
            node: state.node_name(),
            policy: state.config.policy.clone(),
            pool: state.config.pool.as_deref().map(str::to_owned),
            configuration: aside.configuration.clone(),
            rankings,
            stalls: stalls(&report.counters),
            per_second: Signal::ALL.iter().filter_map(|it| Some((*it, state.sensors.per_second(*it)?))).collect(),
            history,
            budget: state.decision.budget(&state.config.evictions, usages.len(), now),
            cool_down: state.decision.cool_down(now),
            under_way: (aside.under_way.iter())
                .map(|it| (report.names.of(&state.sensors.workloads.owner(it.under_way.id)), *it))
                .collect(),
            waits: self.waits.clone(),
            conditions_since: self.conditions.changes(),
            disk: state.sensors.disk.usages(),
            usages,
        }
    }
}

/// Returns the signals with a threshold, each once.
fn signals(state: &LoopState<'_>) -> Vec<Signal> {
    let mut signals: Vec<Signal> = state.decision.armed().iter().map(|armed| armed.threshold.signal).collect();
    signals.sort_unstable();
    signals.dedup();
    signals
}

fn stalls(counters: &[CgroupReport]) -> HashMap<String, Stalls> {
    let mut all: HashMap<String, Stalls> = HashMap::new();
    for report in counters {
        let Some(counters) = report.counters else { continue };
        let of_it = all.entry(report.workload.clone()).or_default();
        for reclaim in [counters.direct, counters.memcg] {
            of_it.count = of_it.count.saturating_add(reclaim.stalls);
            of_it.time = of_it.time.saturating_add(Duration::from_nanos(reclaim.stalled_ns));
        }
        of_it.oom_kills = of_it.oom_kills.saturating_add(counters.oom_kills);
    }
    all
}
