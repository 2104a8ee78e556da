//! The pods that kube-scheduler would preempt for a pending pod (`SelectVictimsOnNode` of Kubernetes 1.36). The agent preempts
//! nothing: the victims of its own evictions come from `eviction` alone.

use std::cmp::Reverse;

use jiff::Timestamp;

use super::super::nodes::Node;
use crate::units::Quantity;
use crate::workloads::Pod;
use crate::workloads::pod::FullName;

/// A pending pod, and the node that it is to run on.
#[derive(Debug, Clone, Copy)]
pub struct Pending<'a> {
    pub requests: &'a [(String, Quantity)],
    pub node: &'a Node,
}

/// A pod that may be preempted.
#[derive(Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    pub pod: &'a Pod,
    /// Whether the pod is preempted; `None` if that is not known.
    pub preempted: Option<bool>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Fit {
    WithoutPreemption,
    AfterPreemption,
    /// The resources that do not suffice even without the candidates, each with the amount that would be free.
    Never(Vec<(String, Quantity)>),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Victims<'a> {
    /// The least important pod first.
    pub candidates: Vec<Candidate<'a>>,
    /// Number of pods whose priority is not below that of the pending pod.
    pub spared: usize,
    /// Whether the pending pod fits, if its requests are known.
    pub fit: Option<Fit>,
}

/// Selects from the pods of a node that have not ended.
pub fn select<'a>(pods: &'a [Pod], priority: i32, pending: Option<Pending<'_>>) -> Victims<'a> {
    let mut lower: Vec<&Pod> = pods.iter().filter(|pod| pod.priority() < priority).collect();
    lower.sort_by_key(|pod| importance(pod));
    let spared = pods.len() - lower.len();
    let mut candidates: Vec<Candidate<'_>> = lower.into_iter().map(|pod| Candidate { pod, preempted: None }).collect();
    let fit = pending.map(|pending| preempt(&mut candidates, Free::of(pending, pods)));
    Victims { candidates, spared, fit }
}

/// Less important pods have smaller keys. The scheduler takes a pod without a start time for one that starts now, and leaves the order of
/// otherwise equal pods open.
fn importance(pod: &Pod) -> (i32, Reverse<Timestamp>, FullName<'_>) {
    (pod.priority(), Reverse(pod.status.start_time.unwrap_or(Timestamp::MAX)), pod.qualified_name())
}

/// Takes all candidates away, then gives back those that leave enough room, the most important first.
fn preempt(candidates: &mut [Candidate<'_>], mut free: Free<'_>) -> Fit {
    let fits_already = free.fits();
    if !fits_already {
        candidates.iter().for_each(|candidate| free.remove(candidate.pod));
        if !free.fits() {
            candidates.iter_mut().for_each(|candidate| candidate.preempted = Some(false));
            return Fit::Never(free.shortages());
        }
    }
    for candidate in candidates.iter_mut().rev() {
        candidate.preempted = Some(!fits_already && !free.add(candidate.pod));
    }
    if fits_already { Fit::WithoutPreemption } else { Fit::AfterPreemption }
}

/// The free amounts of the resources that the pending pod needs.
struct Free<'a>(Vec<Left<'a>>);

struct Left<'a> {
    resource: &'a str,
    needed: Quantity,
    free: Quantity,
}

impl<'a> Free<'a> {
    fn of(pending: Pending<'a>, pods: &[Pod]) -> Self {
        let one = ("pods", Quantity::from_units(1, false));
        let requested = pending.requests.iter().filter(|(_, amount)| !amount.is_zero());
        let needs = requested.map(|(resource, amount)| (resource.as_str(), amount.clone())).chain([one]);
        let left = |(resource, needed)| {
            let used: Quantity = pods.iter().fold(Quantity::default(), |sum, pod| sum.sum(&used(pod, resource)));
            Left { resource, needed, free: pending.node.allocatable(resource).difference(&used) }
        };
        Self(needs.map(left).collect())
    }

    fn fits(&self) -> bool {
        self.0.iter().all(|left| left.needed <= left.free)
    }

    fn shortages(&self) -> Vec<(String, Quantity)> {
        let short = self.0.iter().filter(|left| left.needed > left.free);
        short.map(|left| (left.resource.to_owned(), left.free.clone())).collect()
    }

    fn remove(&mut self, pod: &Pod) {
        self.0.iter_mut().for_each(|left| left.free = left.free.sum(&used(pod, left.resource)));
    }

    /// Adds a pod if the pending pod then still fits.
    fn add(&mut self, pod: &Pod) -> bool {
        self.0.iter_mut().for_each(|left| left.free = left.free.difference(&used(pod, left.resource)));
        let fits = self.fits();
        if !fits {
            self.remove(pod);
        }
        fits
    }
}

fn used(pod: &Pod, resource: &str) -> Quantity {
    if resource == "pods" { Quantity::from_units(1, false) } else { pod.scheduled_request(resource) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pods by name, priority, minute of the start, and request of cpu and memory.
    const PODS: [(&str, i32, Option<u32>, [&str; 2]); 6] = [
        ("critical", 2_000_001_000, Some(0), ["100m", "0"]),
        ("equal", 100, Some(5), ["1", "2Gi"]),
        ("old", 10, Some(1), ["800m", "1Gi"]),
        ("young", 10, Some(2), ["800m", "1Gi"]),
        ("unstarted", 10, None, ["1", "1Gi"]),
        ("low", -5, Some(0), ["200m", "2Gi"]),
    ];

    fn pods() -> Vec<Pod> {
        let pod = |(name, priority, minute, [cpu, memory]): &(&str, i32, Option<u32>, [&str; 2])| {
            let start = minute.map(|minute| format!("2026-01-01T00:{minute:02}:00Z"));
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name}, "status": {"startTime": start},
                "spec": {"priority": priority, "containers": [{"resources": {"requests": {"cpu": cpu, "memory": memory}}}]}
            }))
        };
        PODS.iter().map(|row| pod(row).unwrap()).collect()
    }

    /// Selects on a node of 4 cpus, 8Gi and so many pods.
    fn selected(priority: i32, requests: &[(&str, &str)], pods_limit: u32) -> (String, usize, Option<Fit>) {
        let allocatable = serde_json::json!({"cpu": "4", "memory": "8Gi", "pods": pods_limit});
        let node: Node = serde_json::from_value(serde_json::json!({"status": {"allocatable": allocatable}})).unwrap();
        let requests: Vec<(String, Quantity)> =
            requests.iter().map(|(name, amount)| ((*name).to_owned(), Quantity::parse(amount).unwrap())).collect();
        let pods = pods();
        let Victims { candidates, spared, fit } =
            select(&pods, priority, Some(Pending { requests: &requests, node: &node }));
        let mark = |it: &Candidate<'_>| if it.preempted == Some(true) { "!" } else { "" };
        let names: Vec<String> = candidates.iter().map(|it| format!("{}{}", it.pod.metadata.name, mark(it))).collect();
        (names.join(" "), spared, fit)
    }

    #[test]
    fn lower_priorities_and_later_starts_come_first() {
        let pods = pods();
        for (priority, expected, spared) in [
            (100, "low unstarted young old", 2),
            (101, "low unstarted young old equal", 1),
            (10, "low", 5),
            (-5, "", 6),
            (i32::MAX, "low unstarted young old equal critical", 0),
        ] {
            let victims = select(&pods, priority, None);
            let names: Vec<&str> = victims.candidates.iter().map(|it| it.pod.metadata.name.as_str()).collect();
            assert_eq!((names.join(" ").as_str(), victims.spared, victims.fit), (expected, spared, None), "{priority}");
        }
    }

    #[test]
    fn important_pods_are_given_back_first() {
        let never =
            |resource: &str, free: &str| Fit::Never(vec![(resource.to_owned(), Quantity::parse(free).unwrap())]);
        for (requests, pods_limit, expected, fit) in [
            (&[("cpu", "100m"), ("memory", "1Gi")][..], 110, "low unstarted young old", Fit::WithoutPreemption),
            // `low` is given back after `unstarted` could not be, although its priority is lower.
            (&[("cpu", "1"), ("memory", "1Gi")], 110, "low unstarted! young old", Fit::AfterPreemption),
            (&[("cpu", "1100m")], 110, "low unstarted! young old", Fit::AfterPreemption),
            (&[("cpu", "1101m")], 110, "low! unstarted! young old", Fit::AfterPreemption),
            (&[("memory", "2Gi")], 110, "low! unstarted young old", Fit::AfterPreemption),
            (&[("cpu", "2900m")], 110, "low! unstarted! young! old!", Fit::AfterPreemption),
            (&[("cpu", "2901m")], 110, "low unstarted young old", never("cpu", "2900m")),
            (&[("example.com/gpu", "1")], 110, "low unstarted young old", never("example.com/gpu", "0")),
            (&[("example.com/gpu", "0")], 7, "low unstarted young old", Fit::WithoutPreemption),
            // A pod that requests nothing still needs a place.
            (&[], 6, "low! unstarted young old", Fit::AfterPreemption),
            (&[], 2, "low unstarted young old", never("pods", "0")),
        ] {
            let expected = (expected.to_owned(), 2, Some(fit));
            assert_eq!(selected(100, requests, pods_limit), expected, "{requests:?} {pods_limit}");
        }
    }
}
