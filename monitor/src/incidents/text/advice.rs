//! Advice, each point only if the record gives reason for it.

use super::super::model::{Eviction, Incident, OomKill, Outcome, Stalls, Victim};
use super::eviction_text;
use super::oom_text::{is_own, resident, workload_of};
use super::text_page::Page;
use super::words::{bytes, capital, is_best_effort, named, named_or_unknown, noun, time};

/// Shares of the victim's memory, in percent, that decide on advice.
const MOST: u64 = 70;
const MUCH: u64 = 30;
/// A victim younger than this is unlikely to have filled the memory.
const YOUNG_MS: f64 = 1_000.0;
/// An `oom_score_adj` at or below this means that the process should be spared.
const SPARED: i32 = -900;

/// Adds the advice, most important first.
pub fn advice(page: &mut Page, incident: &Incident) {
    let mut points = Vec::new();
    if let Some(kill) = &incident.oom_kill {
        oom(&mut points, incident, kill);
    }
    if let Some(eviction) = &incident.eviction {
        evicted(&mut points, incident, eviction);
    }
    if points.is_empty() {
        return;
    }
    page.section("WHAT TO DO");
    for point in points {
        page.point(&capital(&point));
    }
}

fn oom(points: &mut Vec<String>, incident: &Incident, kill: &OomKill) {
    let Some(first) = kill.victims.first() else { return };
    match (kill.constraint.as_deref(), &kill.limit) {
        (Some("none"), _) => global(points, incident, kill),
        (Some("cpuset" | "memory_policy"), _) => points.push(
            "The memory nodes that the task may use were exhausted, not the machine: allow it more memory nodes (cpuset.mems, numactl), or \
             move other workloads off these."
                .to_owned(),
        ),
        (_, Some(limit)) if is_own(kill, limit) => {
            // Of several victims, the largest shows what filled the limit.
            let largest = kill.victims.iter().rev().max_by_key(|victim| victim.resident_bytes()).unwrap_or(first);
            own_limit(points, incident, largest, limit.limit_bytes, limit.cgroup.as_deref());
        }
        (_, Some(limit)) => points.push(format!(
            "The limit belongs to {}, which contains more than the victim: another workload may have filled it. Find the largest workloads \
             below it. Give each a limit of its own, or raise the shared limit.",
            limit.cgroup.as_deref().map_or_else(|| "another cgroup".to_owned(), |cgroup| named(cgroup, limit.name.as_ref()))
        )),
        (Some(_), None) if kill.source == "kmsg" && kill.trigger.is_none() => points.push(
            "The kernel suppressed its report: it prints at most ten in five seconds. Check the limits of the victim's pod and of the cgroups \
             above it, and the incidents just before this one."
                .to_owned(),
        ),
        (Some(_), None) => points.push("The cgroup of the limit is unknown, most likely because it was removed. Check the limits of the victim's pod and of the cgroups above it.".to_owned()),
        (None, None) => unknown_limit(points, incident, first),
    }
    other_parties(points, kill, first, incident.memory.as_ref().and_then(|memory| memory.total_bytes));
}

/// Neither the eBPF programs nor the kernel's log reported the limit.
fn unknown_limit(points: &mut Vec<String>, incident: &Incident, first: &Victim) {
    let own = |stalls: &&Stalls| stalls.kind == "memcg" && Some(stalls.workload.as_str()) == first.workload.as_deref();
    if incident.stalls.iter().any(|stalls| own(&stalls)) {
        points.push(
            "The victim's workload stalled at a memory limit just before the kill: most likely its own limit, or one above it, was hit."
                .to_owned(),
        );
    }
    points.push(format!(
        "The agent cannot attribute the limit on this kernel (/readyz lists what is missing). The kernel's own report has it: \
         `journalctl -k | grep -B40 'Killed process {}'`.",
        first.pid
    ));
}

fn own_limit(points: &mut Vec<String>, incident: &Incident, victim: &Victim, limit: Option<u64>, cgroup: Option<&str>) {
    let share =
        |of: Option<u64>| of.zip(victim.resident_bytes()).map_or(0, |(of, all)| of.saturating_mul(100) / all.max(1));
    let limit = limit.map_or_else(|| "the limit".to_owned(), |limit| format!("the limit of {}", bytes(limit)));
    if share(victim.shmem_bytes) >= MUCH {
        points.push(format!(
            "{} % of the victim's memory was shared. Files on tmpfs (an emptyDir of medium Memory, /dev/shm) count against {limit} and outlive \
             the process. Give the volume a sizeLimit, or raise the limit by its size.",
            share(victim.shmem_bytes)
        ));
    }
    if share(victim.anon_bytes) >= MOST {
        points.push(format!(
            "{} % of the victim's memory was anonymous, which the kernel cannot reclaim without swap. If the victim needs that much, raise {limit}. \
             If not, it leaks memory, or its heap limit (-Xmx, GOMEMLIMIT, --max-old-space-size) is too high: leave a quarter of the \
             memory limit for everything else.",
            share(victim.anon_bytes)
        ));
    } else if points.is_empty() {
        points.push(format!("The victim needs more than {limit} at times: raise the limit, or find out what grew."));
    }
    let workload = victim.workload.as_deref();
    if let Some(stalls) =
        incident.stalls.iter().find(|stalls| stalls.kind == "memcg" && Some(stalls.workload.as_str()) == workload)
    {
        points.push(format!(
            "The {} reached its limit before the kill: {} in reclaim, {} in total. An alert on reclaim stalls of kind memcg warns before a kill.",
            cgroup.map_or("workload", noun),
            super::words::count(stalls.count, "stall", "stalls"),
            time(stalls.seconds * 1e3)
        ));
    }
}

fn global(points: &mut Vec<String>, incident: &Incident, kill: &OomKill) {
    let threshold = incident.signals.get("memory.available").and_then(|history| history.threshold);
    let threshold_words = threshold.map(|threshold| format!(" (now {})", bytes(threshold))).unwrap_or_default();
    let first = incident.ranking.iter().find(|place| place.place == Some(1));
    let first = first
        .map(|place| format!(", beginning with {}", named(&place.workload, place.name.as_ref())))
        .unwrap_or_default();
    points.push(match incident.mode.as_str() {
        "observe" => format!(
            "The agent runs in observe mode. With `mode: enforce` it evicts whole workloads{first}, before the kernel picks a process."
        ),
        _ => format!(
            "Memory ran out faster than evictions freed it, or no workload could be evicted. Raise evictionHard \
             memory.available{threshold_words}, or reserve more for the system."
        ),
    });
    if let Some(largest) = incident.top_consumers.first() {
        let victim = kill.victims.first().and_then(|victim| victim.workload.as_deref());
        // The list of the largest workloads lacks the victim's memory.
        let used_more = resident(kill).is_some_and(|killed| largest.working_set_bytes > killed);
        if used_more && victim != Some(largest.workload.as_str()) {
            points.push(format!(
                "{} used most, {}, and was not killed: give it a limit.",
                capital(&named(&largest.workload, largest.name.as_ref())),
                bytes(largest.working_set_bytes)
            ));
        }
    }
}

fn other_parties(points: &mut Vec<String>, kill: &OomKill, first: &Victim, total: Option<u64>) {
    let foreign = kill.trigger.as_ref().filter(|of| of.workload.is_some() && of.workload != first.workload);
    if let Some(of) = foreign {
        points.push(format!(
            "An allocation of {} failed, and a process of {} was killed for it. The process whose allocation failed is not necessarily the cause.",
            named_or_unknown(of.workload.as_deref(), of.name.as_ref()),
            workload_of(first)
        ));
    }
    if first.oom_score_adj.is_some_and(|adj| adj <= SPARED) {
        points.push("The victim's oom_score_adj was to spare it: the kernel had no other process left to kill. Set an alert for this.".to_owned());
    }
    let all = kill.limit.as_ref().and_then(|limit| limit.limit_bytes).or(total);
    let is_small = first.resident_bytes().zip(all).is_some_and(|(resident, all)| resident < all / 4);
    // A large young victim may have filled the memory itself.
    if let Some(age) = first.age_ms.filter(|age| !kill.group && is_small && *age < YOUNG_MS) {
        points.push(format!(
            "The victim was small and only {} old: most likely it was started when the memory was full already.",
            time(age)
        ));
    }
    if kill.group {
        points.push("The victims' cgroup, or one above it, has memory.oom.group set: the kernel kills all its processes together, so that the workload can restart as a whole.".to_owned());
    } else if first.container.is_some() {
        points.push(format!(
            "Only {} was killed. If other processes of its container survive without it, set memory.oom.group (Kubernetes does from 1.28 on), \
             or add a liveness probe.",
            super::words::victim(first)
        ));
    }
}

fn evicted(points: &mut Vec<String>, incident: &Incident, eviction: &Eviction) {
    let of = eviction_text::victim(eviction);
    let key = |named: &str| {
        let place = incident.ranking.iter().find(|place| place.workload == eviction.workload);
        place.and_then(|place| place.keys.iter().find(|key| key.name == named)).map(|key| key.value.clone())
    };
    match eviction.outcome {
        Outcome::Observed => points.push("With `mode: enforce` the agent carries out such an eviction.".to_owned()),
        Outcome::Failed => points.push(format!(
            "Find out why {of} does not exit: processes in state D (`ps -eo pid,stat,wchan:32,comm`) wait for a disk or a network filesystem, \
             and exit when it answers. The agent tries again after a while."
        )),
        Outcome::Underway => points.push(
            "Either the eviction is still under way, or the agent stopped before its end: see the agent's log.".to_owned(),
        ),
        Outcome::Gone => {}
    }
    if is_best_effort(&eviction.qos_class) {
        points.push(format!(
            "{of} is BestEffort: it has no request, so it ranks before workloads of the other QoS classes. If it matters, give it a memory request."
        ));
    } else if key("exceedsRequests").as_deref() == Some("exceeds its request") {
        let above = key("usageAboveRequest").unwrap_or_else(|| "above it".to_owned());
        points.push(format!("{of} used more than its request ({above}): raise the request to what it needs."));
    } else {
        points.push(format!("{of} used no more than its request: the requests on this node exceed its memory. Reserve more for the system (systemReserved, kubeReserved)."));
    }
    if eviction.benefit.as_deref().is_some_and(|benefit| benefit.starts_with("leaks")) {
        points.push(format!(
            "If {of} does not need that much, it leaks memory. A memory limit of its own lets the kernel kill it alone, before the node is short."
        ));
    }
    let owner = eviction.name.as_ref().and_then(|name| name.owner.as_deref());
    let recreates =
        |owner: &&str| ["ReplicaSet/", "StatefulSet/", "DaemonSet/", "Job/"].iter().any(|kind| owner.starts_with(kind));
    if let Some(owner) = owner.filter(recreates).filter(|_| eviction.outcome == Outcome::Gone) {
        let unless = if owner.starts_with("Job/") { "its backoffLimit is reached" } else { "it was scaled down" };
        points.push(format!(
            "{owner} starts a replacement, unless {unless}. A replacement that grows in the same way may be evicted too."
        ));
    }
    let used = eviction.working_set_bytes.and_then(|used| i64::try_from(used).ok());
    if eviction.outcome == Outcome::Gone
        && let Some((used, freed)) = used.zip(eviction.freed_bytes)
        && freed < used / 2
    {
        let largest = incident.top_consumers.iter().find(|it| it.workload != eviction.workload);
        let next = largest
            .map(|it| format!(" The largest other workload is {}.", named(&it.workload, it.name.as_ref())))
            .unwrap_or_default();
        points.push(format!("The eviction freed less than half of the victim's usage: other workloads still grow, or the victim's memory was shared.{next}"));
    }
    if eviction.reclaim.as_ref().is_some_and(|reclaim| reclaim.outcome == "timed_out") {
        points.push("Proactive reclaim hit its deadline. Raise evictions.reclaimDeadline if it freed nearly enough; lower it if it freed little.".to_owned());
    }
}
