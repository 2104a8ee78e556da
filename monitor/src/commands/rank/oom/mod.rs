//! `rank --oom`: the victim of the kernel's OOM killer if the node had no memory left, beside the agent's.
//!
//! The kernel ranks processes by their points (`oom_badness` in mm/oom_kill.c): resident memory, swap and page tables, plus
//! `oom_score_adj` thousandths of all memory and swap. Before Linux 4.17 root's processes had a bonus of 3 %, which is left out here. Here both are thousandths, as OpenShift's documents write the score.

mod files;
mod processes;
mod show;

use crate::units::Bytes;

pub use files::{of_files, working_sets};
pub use processes::of_this_node;
pub use show::{Answer, json, table};

/// The value at which the kernel never chooses a process.
const NEVER: i64 = -1000;

/// What the kernel's OOM killer may choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The pod, or the path of the cgroup.
    pub workload: String,
    /// The container in files, the process on this node.
    pub part: String,
    pub pid: Option<i32>,
    /// Memory, swap and page tables, as far as they are known.
    pub usage: Bytes,
    pub adj: i64,
}

/// A subject with its score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scored {
    pub subject: Subject,
    pub usage_thousandths: i64,
    pub score: i64,
    /// In billionths: subjects with equal thousandths differ in their pages.
    exact: i128,
}

/// The subjects of a node, the kernel's victim first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OomOrder {
    pub scored: Vec<Scored>,
    /// Subjects that the kernel never chooses, because of `oom_score_adj` -1000.
    pub spared: usize,
    /// All memory and swap.
    pub total: Bytes,
    /// The figures are those of processes, not of containers.
    pub is_exact: bool,
}

impl OomOrder {
    /// Orders the subjects as the kernel does on a node with `total` memory and swap.
    fn of(subjects: Vec<Subject>, total: Bytes, is_exact: bool) -> Self {
        let all = subjects.len();
        let may_go = subjects.into_iter().filter(|subject| subject.adj > NEVER);
        let mut scored: Vec<Scored> = may_go.map(|subject| Scored::of(subject, total)).collect();
        let key = |it: &Scored| std::cmp::Reverse(it.exact);
        scored.sort_by(|a, b| {
            key(a)
                .cmp(&key(b))
                .then_with(|| (&a.subject.workload, a.subject.pid).cmp(&(&b.subject.workload, b.subject.pid)))
        });
        Self { spared: all - scored.len(), scored, total, is_exact }
    }

    /// Returns the victim: none, if the kernel may choose nothing here.
    pub fn victim(&self) -> Option<&Scored> {
        self.scored.first()
    }
}

impl Scored {
    fn of(subject: Subject, total: Bytes) -> Self {
        const BILLION: i128 = 1_000_000_000;
        let total = i128::from(total.0.max(1));
        let usage = i128::from(subject.usage.0) * BILLION / total;
        let exact = usage + i128::from(subject.adj) * (BILLION / 1000);
        let thousandths = |billionths: i128| i64::try_from(billionths / (BILLION / 1000)).unwrap_or(i64::MAX);
        let usage_thousandths = thousandths(usage);
        Self { usage_thousandths, score: usage_thousandths + subject.adj, exact, subject }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(name: &str, mebibytes: u64, adj: i64) -> Subject {
        Subject {
            workload: name.to_owned(),
            part: "main".to_owned(),
            pid: None,
            usage: Bytes::from_mib(mebibytes),
            adj,
        }
    }

    #[test]
    fn thousandths_of_memory_and_the_value_add_up() {
        let subjects = vec![
            subject("guaranteed", 6_000, -997),
            subject("burstable", 2_000, 900),
            subject("best-effort", 1_100, 1_000),
            subject("small", 900, 1_000),
            subject("never", 9_000, -1_000),
        ];
        let order = OomOrder::of(subjects, Bytes::from_mib(10_000), false);
        let found: Vec<_> = order.scored.iter().map(|it| (it.subject.workload.as_str(), it.score)).collect();
        assert_eq!(found, [("best-effort", 1_110), ("burstable", 1_100), ("small", 1_090), ("guaranteed", -397)]);
        assert_eq!(order.spared, 1);
        assert_eq!(order.victim().map(|it| it.usage_thousandths), Some(110));
    }

    /// kubernetes/kubernetes#133839: a node of 128Gi, whose pods request 62Gi and 66Gi. The report expects the first to go; by the kernel's rule
    /// the second goes, which uses far more. #111356: a proxy with a small request goes before a server that uses three times as much.
    /// #71264: a sandbox at -998 goes before its Guaranteed container at -998 only if it holds more.
    #[test]
    fn the_victims_of_reports_follow_from_the_rule() {
        let of = |gibibytes: u64| Bytes::from_mib(gibibytes * 1024);
        let named = |name: &str, usage, adj| Subject { usage, ..subject(name, 0, adj) };
        for (total, subjects, expected) in [
            (128, vec![named("pod-1", of(28), 516), named("pod-2", of(100), 485)], "pod-2"),
            (64, vec![named("server", of(12), 750), named("proxy", of(4), 999)], "proxy"),
            (16, vec![named("pause", Bytes(700_000), -998), named("container", of(8), -998)], "container"),
        ] {
            let order = OomOrder::of(subjects, of(total), false);
            assert_eq!(order.victim().map(|it| it.subject.workload.as_str()), Some(expected));
        }
    }

    #[test]
    fn equal_thousandths_are_decided_by_pages_then_by_name() {
        let mut larger = subject("z", 10, 0);
        larger.usage = Bytes(larger.usage.0 + 4096);
        let order =
            OomOrder::of(vec![subject("b", 10, 0), subject("a", 10, 0), larger], Bytes::from_mib(100_000), false);
        let names: Vec<_> = order.scored.iter().map(|it| it.subject.workload.as_str()).collect();
        assert_eq!(names, ["z", "a", "b"]);
    }
}
