//! The agent's rules that files hold no figures for.

use crate::config::Mode;
use crate::eviction::MetThreshold;
use crate::units::{Resource, Signal, named_enum};
use crate::workloads::Summary;

use super::view::AgentView;

named_enum! {
    /// A rule, by the name that `simulate` and `rank` print.
    pub enum MissingRule {
        Pools = "pools",
        DefaultThreshold = "defaultThreshold",
        Available = "available",
        OutsidePods = "outsidePods",
        Arming = "arming",
        Growth = "growth",
        Fall = "fall",
        Gain = "gain",
        Swap = "swap",
        Reclaim = "reclaim",
        Pending = "pending",
        ApiServer = "apiServer",
        KubeletTurn = "kubeletTurn",
    }
}

impl MissingRule {
    /// Returns whether the rule, which is always missing, is about memory alone.
    pub(super) const fn is_of_memory(self) -> bool {
        matches!(self, Self::DefaultThreshold | Self::Available)
    }

    /// Returns what is missing, and what follows.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Pools => "the labels of the node are not known: the fields outside of pools apply",
            Self::DefaultThreshold => {
                "the CPUs and memory zones of the node are not known: the agent raises the default threshold where its counters are inexact"
            }
            Self::Available => {
                "the statistics have no MemAvailable, and no refaults: the thresholds are compared with their availableBytes"
            }
            Self::OutsidePods => {
                "services, scopes and containers outside pods, and the processes that make them essential, are not in the statistics"
            }
            Self::Arming => {
                "a threshold is met from the beginning, and PSI and OOM kills are not known: it counts as armed"
            }
            Self::Growth => {
                "how fast a workload grows takes two readings, at most 20 s apart: one without them counts as no leak"
            }
            Self::Fall => {
                "how fast memory falls takes two readings, at most 20 s apart: no eviction has to buy time, and no workload counts as a leak"
            }
            Self::Gain => "a pod has no rssBytes: its working set, an upper bound, counts as what its end gives back",
            Self::Swap => {
                "the pace of swap-out (pswpout) and the stalls (PSI) are not in the statistics: no eviction waits for swap"
            }
            Self::Reclaim => "the memory that reclaim could take is not in the statistics: nothing is reclaimed first",
            Self::Pending => "what ended pods have yet to give back is not in the statistics: no eviction waits for it",
            Self::ApiServer => {
                "disruption budgets and the node's maintenance are not known: no soft eviction is refused or deferred"
            }
            Self::KubeletTurn => {
                "the thresholds of the node's kubelet are not known: no eviction for a disk is left to it"
            }
        }
    }
}

/// What the figures of one moment tell.
#[derive(Debug, Clone, Copy)]
pub struct Known<'k> {
    pub summary: &'k Summary,
    /// The threshold that is decided about.
    pub met: &'k MetThreshold,
    pub has_growth: bool,
    pub has_fall: bool,
    pub has_gain: bool,
    /// A pod was evicted before, or is terminating.
    pub has_pending: bool,
}

impl AgentView<'_> {
    /// Returns the rules that no file holds the figures for, and that this configuration has.
    pub fn missing_always(&self) -> impl Iterator<Item = MissingRule> {
        let config = self.config();
        let is_of_memory = self.policy().thresholds.iter().any(|it| it.signal == Signal::MemoryAvailable);
        let rules = [
            (!config.pools.is_empty(), MissingRule::Pools),
            (config.has_default_hard, MissingRule::DefaultThreshold),
            (is_of_memory, MissingRule::Available),
            (self.has_candidates_outside_pods(), MissingRule::OutsidePods),
        ];
        chosen(rules)
    }

    /// Returns the rules that could change the decision about a threshold, and that could not be applied.
    pub fn missing_for(&self, known: Known<'_>) -> Vec<MissingRule> {
        let Known { summary, met, has_growth, has_fall, has_gain, has_pending } = known;
        let limits = self.config().evictions;
        let signal = met.threshold.signal;
        let (is_memory, is_on_disk) = (signal.resource() == Resource::Memory, signal.resource().is_on_disk());
        let has_swap = summary
            .node
            .swap
            .is_some_and(|swap| swap.swap_available_bytes.unwrap_or(0) > 0 || swap.swap_usage_bytes.unwrap_or(0) > 0);
        let waits_for_swap = limits.wait_for_swap && has_swap && signal == Signal::MemoryAvailable;
        let is_left = is_on_disk && self.config().mode == Mode::Enforce;
        let rules = [
            (is_memory && !has_growth, MissingRule::Growth),
            (is_memory && !has_fall, MissingRule::Fall),
            (is_memory && !has_gain, MissingRule::Gain),
            (waits_for_swap, MissingRule::Swap),
            (is_memory && !limits.reclaim_deadline.is_zero(), MissingRule::Reclaim),
            ((is_memory || is_on_disk) && has_pending, MissingRule::Pending),
            (!met.is_hard() && self.asks_api_server(), MissingRule::ApiServer),
            (is_left, MissingRule::KubeletTurn),
        ];
        chosen(rules).collect()
    }
}

fn chosen<const N: usize>(rules: [(bool, MissingRule); N]) -> impl Iterator<Item = MissingRule> {
    rules.into_iter().filter_map(|(is_missing, rule)| is_missing.then_some(rule))
}
