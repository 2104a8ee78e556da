//! What to do about it: what a colleague who has seen many of these would say, and only what the record gives reason for.

use super::super::model::{Eviction, Incident, OomKill, Outcome, Stalls, Victim};
use super::oom_text::{is_own, resident};
use super::text_page::Page;
use super::words::{bytes, capital, is_best_effort, name, name_or_unknown, noun, time};

/// A share of the victim's memory that decides what to look for, in percent.
const MOST: u64 = 70;
const MUCH: u64 = 30;
/// Younger than this, a victim hardly is what filled the memory.
const YOUNG_MS: f64 = 1_000.0;
/// An `oom_score_adj` at or below is one that is meant to be spared.
const SPARED: i32 = -900;

/// The points, most important first.
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
            "Only the memory nodes that the task may use were at their end, not the machine: give it more of them (cpuset.mems, numactl), or \
             move something else off them."
                .to_owned(),
        ),
        (_, Some(limit)) if is_own(kill, limit) => {
            // Of those that went together, the one that filled it says what with.
            let largest = kill.victims.iter().rev().max_by_key(|victim| victim.resident_bytes()).unwrap_or(first);
            own_limit(points, incident, largest, limit.limit_bytes, limit.cgroup.as_deref());
        }
        (_, Some(limit)) => points.push(format!(
            "The limit is that of {}, which holds more than the victim: who died is not necessarily who filled it. Look at who used most \
             below it, and give each of them a limit of its own, or raise the limit that they share.",
            limit.cgroup.as_deref().map_or_else(|| "another cgroup".to_owned(), name)
        )),
        (Some(_), None) if kill.source == "kmsg" && kill.trigger.is_none() => points.push(
            "The kernel held its report back, which it prints ten times in five seconds at most: look at the limits of the victim's pod and \
             of everything above it, and at the incidents just before this one."
                .to_owned(),
        ),
        (Some(_), None) => points.push("Which cgroup's limit it was could not be told, most likely because it was gone: look at the limits of the victim's pod and of everything above it.".to_owned()),
        (None, None) => unknown_limit(points, incident, first),
    }
    who_else(points, kill, first, incident.memory.as_ref().and_then(|memory| memory.total_bytes));
}

/// Neither the kernel's programs nor its log told: what speaks for what.
fn unknown_limit(points: &mut Vec<String>, incident: &Incident, first: &Victim) {
    let own = |stalls: &&Stalls| stalls.kind == "memcg" && Some(stalls.workload.as_str()) == first.workload.as_deref();
    if incident.stalls.iter().any(|stalls| own(&stalls)) {
        points.push(
            "Its tasks had been reclaiming at a memory limit just before: most likely that limit was hit, its own or one above it."
                .to_owned(),
        );
    }
    points.push(format!(
        "Whose limit was hit is not known on this kernel (/readyz says what is missing): the kernel's own report has it, `journalctl -k | \
         grep -B40 'Killed process {}'`.",
        first.pid
    ));
}

fn own_limit(points: &mut Vec<String>, incident: &Incident, victim: &Victim, limit: Option<u64>, cgroup: Option<&str>) {
    let share =
        |of: Option<u64>| of.zip(victim.resident_bytes()).map_or(0, |(of, all)| of.saturating_mul(100) / all.max(1));
    let limit = limit.map_or_else(|| "the limit".to_owned(), |limit| format!("the limit of {}", bytes(limit)));
    if share(victim.shmem_bytes) >= MUCH {
        points.push(format!(
            "{} % of the victim's memory was shared: tmpfs (an emptyDir of medium Memory, /dev/shm) counts against {limit}, and outlives the process. \
             Give the volume a sizeLimit, or raise the limit by it.",
            share(victim.shmem_bytes)
        ));
    }
    if share(victim.anon_bytes) >= MOST {
        points.push(format!(
            "{} % of it was anonymous memory, which cannot be given back without swap. If it needs that much, raise {limit}; if not, it leaks, or its own \
             heap limit (-Xmx, GOMEMLIMIT, --max-old-space-size) is too near: leave it a quarter of the limit for everything else.",
            share(victim.anon_bytes)
        ));
    } else if points.is_empty() {
        points.push(format!("It needs more than {limit}, at least now and then: raise it, or find out what grew."));
    }
    let workload = victim.workload.as_deref();
    if let Some(stalls) =
        incident.stalls.iter().find(|stalls| stalls.kind == "memcg" && Some(stalls.workload.as_str()) == workload)
    {
        points.push(format!(
            "The {} had been at its limit before: {} in reclaim, {} in all. An alert on reclaim stalls of kind memcg tells of it before the kill.",
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
    let first = first.map(|place| format!(", beginning with {}", name(&place.workload))).unwrap_or_default();
    points.push(match incident.mode.as_str() {
        "observe" => format!(
            "The agent only observed. With `mode: enforce` it evicts whole workloads{first}, before the kernel picks a process."
        ),
        _ => format!(
            "The memory went faster than evictions brought it back, or nothing could be evicted: raise evictionHard memory.available{threshold_words}, \
             or reserve more for the system."
        ),
    });
    if let Some(largest) = incident.top_consumers.first() {
        let victim = kill.victims.first().and_then(|victim| victim.workload.as_deref());
        // What was killed is not among the usages any more.
        let used_more = resident(kill).is_some_and(|killed| largest.working_set_bytes > killed);
        if used_more && victim != Some(largest.workload.as_str()) {
            points.push(format!(
                "{} used most, {}, and is not who died: give it a limit.",
                name(&largest.workload),
                bytes(largest.working_set_bytes)
            ));
        }
    }
}

fn who_else(points: &mut Vec<String>, kill: &OomKill, first: &Victim, total: Option<u64>) {
    let foreign = kill.trigger.as_ref().filter(|of| of.workload.is_some() && of.workload != first.workload);
    if let Some(of) = foreign {
        points.push(format!(
            "{} asked for the memory that was not there, and {} died for it: whose request came last says little about who used most.",
            name_or_unknown(of.workload.as_deref()),
            name_or_unknown(first.workload.as_deref())
        ));
    }
    if first.oom_score_adj.is_some_and(|adj| adj <= SPARED) {
        points.push("The victim was to be spared (oom_score_adj): nothing else was left to kill. That is worth an alert of its own.".to_owned());
    }
    let all = kill.limit.as_ref().and_then(|limit| limit.limit_bytes).or(total);
    let is_small = first.resident_bytes().zip(all).is_some_and(|(resident, all)| resident < all / 4);
    // A young one that is large filled the memory itself, only quickly.
    if let Some(age) = first.age_ms.filter(|age| !kill.group && is_small && *age < YOUNG_MS) {
        points.push(format!(
            "The victim was only {} old, and small: most likely a child that somebody started when the memory was full already, and not who \
             filled it.",
            time(age)
        ));
    }
    if kill.group {
        points.push("Its cgroup, or one above it, has memory.oom.group set, so its processes went together: none of them is left half alive, and whoever started it can start it anew.".to_owned());
    } else if first.container.is_some() {
        points.push(format!(
            "Only {} was killed. If other processes of its container live on without it, set memory.oom.group (Kubernetes does from 1.28 on), or let a liveness \
             probe find out.",
            super::words::victim(first)
        ));
    }
}

fn evicted(points: &mut Vec<String>, incident: &Incident, eviction: &Eviction) {
    let of = name(&eviction.workload);
    let key = |named: &str| {
        let place = incident.ranking.iter().find(|place| place.workload == eviction.workload);
        place.and_then(|place| place.keys.iter().find(|key| key.name == named)).map(|key| key.value.clone())
    };
    match eviction.outcome {
        Outcome::Observed => points.push("`mode: enforce` does what this record only tells.".to_owned()),
        Outcome::Failed => points.push(format!(
            "Find out what holds it: processes in state D (`ps -eo pid,stat,wchan:32,comm`) wait for a disk or a network file system, and die when that answers. \
             {of} is tried again after a while."
        )),
        Outcome::Underway => points.push(
            "If it is not under way still, the agent was stopped meanwhile: its log tells what came after this.".to_owned(),
        ),
        Outcome::Gone => {}
    }
    if is_best_effort(&eviction.qos_class) {
        points.push(format!(
            "{of} is BestEffort: it promised nothing and was promised nothing, so it goes first whatever it uses. Give it a memory request if it matters, and a limit."
        ));
    } else if key("exceedsRequests").as_deref() == Some("exceeds its request") {
        let above = key("usageAboveRequest").unwrap_or_else(|| "above it".to_owned());
        points.push(format!(
            "{of} used more than it requested ({above}): request what it needs, or limit it to what it requests."
        ));
    } else {
        points.push(format!("{of} was within its request: the node promises more than it has. Reserve more for the system (systemReserved, kubeReserved)."));
    }
    let used = eviction.working_set_bytes.and_then(|used| i64::try_from(used).ok());
    if eviction.outcome == Outcome::Gone
        && let Some((used, freed)) = used.zip(eviction.freed_bytes)
        && freed < used / 2
    {
        let largest = incident.top_consumers.iter().find(|it| it.workload != eviction.workload);
        let whom =
            largest.map(|it| format!(" {} is the next largest.", capital(&name(&it.workload)))).unwrap_or_default();
        points.push(format!("When it was gone, less than half of what it used had come back: somebody else goes on taking, or it shared what it used.{whom}"));
    }
    if eviction.reclaim.as_ref().is_some_and(|reclaim| reclaim.outcome == "timed_out") {
        points.push("Reclaiming ran into its deadline: raise evictions.reclaimDeadline if it was nearly enough, else it only costs time.".to_owned());
    }
}
