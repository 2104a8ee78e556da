//! The pods of files as the agent sees them: which of them it never evicts, and what the end of each gives back.

use crate::config::kubernetes_options::{ApiUse, EvictionMethod};
use crate::config::{Candidates, MonitorConfig, NamePattern, Policy, Semantics, built_in_patterns};
use crate::eviction::Layout;
use crate::eviction::decider::{AgentRules, Pace, Rules};
use crate::eviction::usage::{ActivePod, PodCandidate, candidates};
use crate::units::{Bytes, CgroupId, Monotonic, Resource, Signal};
use crate::workloads::kubelet_summary::PodStats;
use crate::workloads::{Outlook, Pod, Protection, cgroup_path};

use super::readings::Readings;

/// The agent's configuration, as far as a decision about pods of files depends on it.
#[derive(Debug, Clone)]
pub struct AgentView<'c> {
    config: &'c MonitorConfig,
    /// The patterns of `protected:`. The built-in ones match no pod.
    protected: Vec<&'c NamePattern>,
}

impl<'c> AgentView<'c> {
    /// Returns `None` where the kubelet's rules hold.
    pub fn of(config: &'c MonitorConfig) -> Option<Self> {
        let built_in = built_in_patterns();
        let protected = config.protected.iter().filter(|pattern| !built_in.contains(pattern)).collect();
        (config.policy.semantics == Semantics::Corrected).then_some(Self { config, protected })
    }

    pub fn config(&self) -> &'c MonitorConfig {
        self.config
    }

    pub fn policy(&self) -> &'c Policy {
        &self.config.policy
    }

    pub fn agent(&self) -> AgentRules {
        AgentRules::of(self.config)
    }

    /// Returns the rules by which the agent evicts.
    pub fn rules(&self, agent: AgentRules) -> Rules<'c> {
        Rules { policy: self.policy(), pace: Pace::Agent(agent) }
    }

    /// Returns whether the agent asks the API server before a soft eviction.
    pub fn asks_api_server(&self) -> bool {
        let kubernetes = &self.config.kubernetes;
        let asks = kubernetes.evictions.soft == EvictionMethod::Evict || kubernetes.defer_soft_in_maintenance;
        kubernetes.api != ApiUse::Off && asks
    }

    pub fn has_candidates_outside_pods(&self) -> bool {
        self.config.candidates.candidates == Some(Candidates::Everything)
    }

    /// Returns why the agent never evicts the pod, if that is so. A pod of a DaemonSet may be evicted for memory if it leaks.
    pub fn protection(&self, pod: &Pod) -> Option<Protection> {
        if self.is_named(pod) { Some(Protection::Named) } else { pod.protection(&self.config.kubernetes.protect) }
    }

    /// Returns whether `protected:` names the pod. A pattern is compared with the paths that the kubelet gives the pod's cgroup.
    fn is_named(&self, pod: &Pod) -> bool {
        if self.protected.is_empty() {
            return false;
        }
        let uid = pod.mirrored_uid().unwrap_or(&pod.metadata.uid);
        let paths = cgroup_path::of_pod(uid, pod.qos_class(self.policy().quirks));
        self.protected.iter().any(|pattern| paths.iter().any(|path| pattern.matches(path)))
    }

    /// Returns the candidates, with those that are never evicted: each of these is exempt.
    pub fn candidates<'a>(
        &self,
        signal: Signal,
        layout: Layout,
        active: &[ActivePod<'a>],
        readings: &Readings,
        now: Monotonic,
    ) -> Vec<PodCandidate<'a>> {
        let complete = |candidate: PodCandidate<'a>| {
            let protection = self.protection(candidate.pod);
            let outlook =
                outlook(signal, &candidate, protection, readings.growth(PodCandidate::cgroup_of(candidate.pod), now));
            let is_normal = protection == Some(Protection::DaemonSet) && signal.resource() == Resource::Memory;
            let exempt = protection.filter(|_| !is_normal).map(Protection::as_str);
            PodCandidate { exempt, outlook, ..candidate }
        };
        candidates(self.policy(), signal, layout, active).map(complete).collect()
    }

    /// Returns the pods that the agent never evicts, by their ids.
    pub fn protected<'a>(&self, active: &[ActivePod<'a>]) -> impl Iterator<Item = CgroupId> {
        let is_protected = |pod: &Pod| self.protection(pod).is_some_and(|it| it != Protection::DaemonSet);
        active.iter().filter(move |active| is_protected(active.pod)).map(|active| PodCandidate::cgroup_of(active.pod))
    }
}

fn outlook(
    signal: Signal,
    candidate: &PodCandidate<'_>,
    protection: Option<Protection>,
    growth: Option<i64>,
) -> Outlook {
    let pod = candidate.pod;
    let is_memory = signal.resource() == Resource::Memory;
    let is_daemon = protection == Some(Protection::DaemonSet);
    Outlook {
        gain: candidate.stats.filter(|_| is_memory).and_then(|stats| gain(pod, stats)),
        growth: growth.unwrap_or(0),
        growth_lately: None,
        is_growth_measured: growth.is_some(),
        only_as_leaker: is_daemon,
        is_terminating: pod.metadata.deletion.is_some(),
        is_daemon,
        among_own: None,
    }
}

/// Returns what the pod's end gives back, as far as the statistics tell it: anonymous memory, and the files of its volumes in memory. `None`
/// without a figure of anonymous memory.
pub fn gain(pod: &Pod, stats: &PodStats) -> Option<Bytes> {
    let anonymous = Bytes(stats.memory?.rss_bytes?);
    let is_in_memory = |name: &str| {
        let mut volumes = pod.spec.volumes.iter().filter(|volume| volume.name == name);
        volumes.any(|volume| volume.empty_dir.as_ref().is_some_and(|it| it.medium == "Memory"))
    };
    let volumes = stats.volumes.iter().filter(|volume| is_in_memory(&volume.name));
    let shared: Bytes = volumes.filter_map(|volume| volume.used_bytes).map(Bytes).sum();
    Some(anonymous.saturating_add(shared))
}

/// Returns when the pod's memory was measured.
pub fn measured_at(stats: &PodStats, now: Monotonic) -> Monotonic {
    let time = stats.memory.and_then(|memory| memory.time);
    time.and_then(|time| u64::try_from(time.0.0).ok()).map_or(now, Monotonic)
}
