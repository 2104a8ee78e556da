//! The workloads of this host that thresholds can evict. No I/O.

use crate::config::{Candidates, Semantics, Threshold};
use crate::units::{Resource, Signal};

use super::protection::Protection;
use super::workload::Workload;

/// Workloads that are not exempt, by what it takes to evict one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evictable {
    /// Candidates by their rank.
    pub by_rank: usize,
    /// Services that go only while they leak, or with half of all processes.
    pub as_leakers: usize,
    /// Pods of DaemonSets, which go only while they leak, and for a hard threshold.
    pub daemons: usize,
}

/// How many workloads a threshold may evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Evicts {
    pods: usize,
    others: usize,
    as_leakers: usize,
}

/// The workloads of this host that can be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reach {
    pub is_pods_only: bool,
    pub has_pods: bool,
    pub has_workloads: bool,
    pub pods: Evictable,
    pub others: Evictable,
}

impl Evictable {
    pub(super) fn count(&mut self, workload: &Workload) {
        match workload.protection {
            None if workload.only_as_leaker => self.as_leakers += 1,
            None => self.by_rank += 1,
            Some(Protection::DaemonSet) => self.daemons += 1,
            Some(_) => {}
        }
    }

    const fn is_empty(self) -> bool {
        self.by_rank + self.as_leakers + self.daemons == 0
    }
}

impl Reach {
    pub fn candidates(self) -> Candidates {
        if self.is_pods_only { Candidates::Pods } else { Candidates::Everything }
    }

    /// Returns why a threshold can evict nothing here. Where a container runtime removes garbage, a threshold on a disk frees space without
    /// an eviction.
    pub fn reported_only(
        self,
        threshold: &Threshold,
        semantics: Semantics,
        removes_garbage: bool,
    ) -> Option<&'static str> {
        let Threshold { signal, .. } = *threshold;
        let can_act = removes_garbage && signal.resource().is_on_disk();
        if can_act || self.evicted_by(threshold, semantics) != Evicts::default() {
            return None;
        }
        Some(match self.pods.is_empty() && (self.is_of_pods(signal) || self.others.is_empty()) {
            _ if self.is_of_pods(signal) && !self.has_pods => "no pods on this host",
            _ if !self.has_workloads => "no workloads on this host",
            true => "each workload on this host is exempt",
            false => {
                "each workload on this host is exempt, or goes only while it leaks, which does not count for this threshold"
            }
        })
    }

    /// Returns the workloads that a threshold may evict, in words: `12 pods`.
    pub fn evicts(self, threshold: &Threshold, semantics: Semantics) -> Option<String> {
        let Evicts { pods, others, as_leakers } = self.evicted_by(threshold, semantics);
        let by_rank = match (pods, others) {
            (0, 0) => None,
            (0, others) => Some(counted(others, "workload")),
            (pods, 0) => Some(counted(pods, "pod")),
            (pods, others) => Some(format!("{} and {}", counted(pods, "pod"), counted(others, "other workload"))),
        };
        let (it, its) = if as_leakers == 1 { ("it leaks", "it has") } else { ("they leak", "one has") };
        let when = match threshold.signal.resource() {
            Resource::Pids => format!("only if {its} half of all processes"),
            _ => format!("only while {it}"),
        };
        match (by_rank, as_leakers) {
            (by_rank, 0) => by_rank,
            (None, leakers) => Some(format!("{}, {when}", counted(leakers, "workload"))),
            (Some(by_rank), leakers) => Some(format!("{by_rank}; {leakers} more {when}")),
        }
    }

    fn is_of_pods(self, signal: Signal) -> bool {
        self.is_pods_only || signal.is_of_pods()
    }

    /// Leaks are found by `corrected` semantics alone.
    fn evicted_by(self, threshold: &Threshold, semantics: Semantics) -> Evicts {
        let Self { pods, others, .. } = self;
        let others = if self.is_of_pods(threshold.signal) { Evictable::default() } else { others };
        let resource = threshold.signal.resource();
        let finds_leaks = resource == Resource::Memory && semantics == Semantics::Corrected;
        let services = if finds_leaks || resource == Resource::Pids { pods.as_leakers + others.as_leakers } else { 0 };
        let daemons = if finds_leaks && threshold.is_hard() { pods.daemons } else { 0 };
        Evicts { pods: pods.by_rank, others: others.by_rank, as_leakers: services + daemons }
    }
}

fn counted(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MonitorConfig;

    const NONE: Evictable = Evictable { by_rank: 0, as_leakers: 0, daemons: 0 };

    fn threshold(signal: Signal, is_soft: bool) -> Threshold {
        let (kind, more) = match is_soft {
            true => ("Soft", format!("evictionSoftGracePeriod: {{{signal}: 1m}}\n")),
            false => ("Hard", String::new()),
        };
        let text = format!(
            "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\neviction{kind}: {{{signal}: 10%}}\n{more}"
        );
        let found = MonitorConfig::parse("f", &text).unwrap_or_else(|errors| panic!("{errors}"));
        let thresholds = found.config.policy.thresholds.into_iter();
        thresholds.into_iter().find(|it| it.signal == signal && it.is_hard() != is_soft).unwrap()
    }

    fn reach(pods: Evictable, others: Evictable) -> Reach {
        Reach { is_pods_only: false, has_pods: pods != NONE, has_workloads: true, pods, others }
    }

    #[test]
    fn a_threshold_for_pods_alone_is_reported_only_without_pods() {
        let others = Evictable { by_rank: 5, ..NONE };
        let pods = Evictable { by_rank: 1, ..NONE };
        let is_reported_only = |reach: Reach, signal, removes| {
            reach.reported_only(&threshold(signal, false), Semantics::Corrected, removes).is_some()
        };
        for (signal, plain_host, with_runtime) in [
            (Signal::MemoryAvailable, false, false),
            (Signal::PidAvailable, false, false),
            (Signal::AllocatableMemoryAvailable, true, true),
            (Signal::NodeFsAvailable, true, false),
            (Signal::ImageFsInodesFree, true, false),
        ] {
            assert_eq!(is_reported_only(reach(NONE, others), signal, false), plain_host, "{signal}");
            assert_eq!(is_reported_only(reach(NONE, others), signal, true), with_runtime, "{signal}");
            let with_pods = Reach { is_pods_only: true, ..reach(pods, others) };
            assert!(!is_reported_only(with_pods, signal, false), "{signal}");
        }
        let without_pods = Reach { is_pods_only: true, ..reach(NONE, others) };
        assert!(is_reported_only(without_pods, Signal::MemoryAvailable, true));
        let empty = Reach::default().reported_only(&threshold(Signal::PidAvailable, false), Semantics::Corrected, true);
        assert_eq!(empty, Some("no workloads on this host"));
    }

    #[test]
    fn a_threshold_says_on_whom_it_acts() {
        let by_rank = |by_rank| Evictable { by_rank, ..NONE };
        for (is_pods_only, pods, others, of_memory, of_disk) in [
            (false, 2, 5, Some("2 pods and 5 other workloads"), Some("2 pods")),
            (false, 0, 1, Some("1 workload"), None),
            (true, 1, 5, Some("1 pod"), Some("1 pod")),
            (true, 0, 5, None, None),
        ] {
            let reach = Reach { is_pods_only, has_pods: true, ..reach(by_rank(pods), by_rank(others)) };
            for (signal, expected) in [(Signal::MemoryAvailable, of_memory), (Signal::NodeFsAvailable, of_disk)] {
                let threshold = threshold(signal, false);
                let semantics = Semantics::Corrected;
                assert_eq!(reach.evicts(&threshold, semantics).as_deref(), expected, "{pods} {others} {signal}");
                let why = expected.is_none().then_some("each workload on this host is exempt");
                assert_eq!(reach.reported_only(&threshold, semantics, false), why, "{pods} {others} {signal}");
                let with_runtime = why.filter(|_| signal == Signal::MemoryAvailable);
                assert_eq!(reach.reported_only(&threshold, semantics, true), with_runtime);
            }
        }
    }

    #[test]
    fn a_threshold_says_what_goes_only_while_it_leaks() {
        use Semantics::{Corrected, Kubelet};
        use Signal::{MemoryAvailable, NodeFsAvailable, PidAvailable};
        let services = reach(NONE, Evictable { as_leakers: 3, ..NONE });
        let mixed = reach(Evictable { by_rank: 2, ..NONE }, Evictable { by_rank: 5, as_leakers: 1, ..NONE });
        let daemons = reach(Evictable { daemons: 4, ..NONE }, NONE);
        for (name, reach, semantics, signal, is_soft, expected) in [
            ("services", services, Corrected, MemoryAvailable, false, Some("3 workloads, only while they leak")),
            ("soft", services, Corrected, MemoryAvailable, true, Some("3 workloads, only while they leak")),
            (
                "pids",
                services,
                Corrected,
                PidAvailable,
                false,
                Some("3 workloads, only if one has half of all processes"),
            ),
            ("leaks are not looked for", services, Kubelet, MemoryAvailable, false, None),
            (
                "mixed",
                mixed,
                Corrected,
                MemoryAvailable,
                false,
                Some("2 pods and 5 other workloads; 1 more only while it leaks"),
            ),
            ("mixed, kubelet", mixed, Kubelet, MemoryAvailable, false, Some("2 pods and 5 other workloads")),
            ("DaemonSets", daemons, Corrected, MemoryAvailable, false, Some("4 workloads, only while they leak")),
            ("DaemonSets, soft", daemons, Corrected, MemoryAvailable, true, None),
            ("DaemonSets, disk", daemons, Corrected, NodeFsAvailable, false, None),
            ("DaemonSets, pids", daemons, Corrected, PidAvailable, false, None),
        ] {
            let threshold = threshold(signal, is_soft);
            assert_eq!(reach.evicts(&threshold, semantics).as_deref(), expected, "{name}");
            let why = reach.reported_only(&threshold, semantics, false);
            assert_eq!(why.is_some(), expected.is_none(), "{name}");
            assert!(why.is_none_or(|why| why.contains("only while it leaks")), "{name}: {why:?}");
        }
    }
}
