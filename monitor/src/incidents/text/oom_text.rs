//! The post-mortem of an OOM kill. It distinguishes the victim, the trigger (the task whose allocation failed) and the owner of the limit:
//! they are often confused, and often the same.

use std::collections::BTreeSet;

use super::super::model::{Incident, Limit, OomKill, Trigger, Victim};
use super::text_page::Page;
use super::words::{
    bytes, capital, count, named, named_or_unknown, noun, owner_and_uid, short, taken, time, trigger, victim,
};

const SHOWN: usize = 8;

pub fn summary(kill: &OomKill) -> String {
    let Some(first) = kill.victims.first() else { return "an OOM kill whose victim is unknown".to_owned() };
    let all = kill.victims.len() + kill.victims_omitted;
    let more = if all > 1 { format!(" and {} more", all - 1) } else { String::new() };
    let size = resident(kill).map(|size| format!(", {}", bytes(size))).unwrap_or_default();
    let of = victim_workloads(kill, first);
    format!("{}{more} of {of} killed{size}: {}", victim(first), cause(kill))
}

/// Sums the victims' resident memory, as far as it is known.
pub fn resident(kill: &OomKill) -> Option<u64> {
    let all = kill.victims.iter().filter_map(Victim::resident_bytes).fold(0_u64, u64::saturating_add);
    (all > 0).then_some(all)
}

/// Names the victims' workloads: a limit that several workloads share may cost processes of several.
fn victim_workloads(kill: &OomKill, first: &Victim) -> String {
    let known = kill.victims.iter().filter_map(|victim| victim.workload.as_deref());
    let others: BTreeSet<&str> = known.filter(|workload| Some(*workload) != first.workload.as_deref()).collect();
    let more = match others.len() {
        0 => String::new(),
        more => format!(" and {}", count(more as u64, "other workload", "other workloads")),
    };
    format!("{}{more}", workload_of(first))
}

/// Names the pod if it is known, else the workload.
pub fn workload_of(of: &Victim) -> String {
    let named = || named_or_unknown(of.workload.as_deref(), of.name.as_ref());
    of.pod.as_ref().map_or_else(named, |pod| format!("pod {pod}"))
}

fn cause(kill: &OomKill) -> String {
    let limit = |limit: &Limit| limit.limit_bytes.map(|limit| format!(" of {}", bytes(limit))).unwrap_or_default();
    match (kill.constraint.as_deref(), &kill.limit) {
        (Some("none"), _) => "the node ran out of memory".to_owned(),
        (Some("cpuset"), _) => "the memory nodes of its cpuset ran out".to_owned(),
        (Some("memory_policy"), _) => "the memory nodes of its memory policy ran out".to_owned(),
        (_, Some(of)) if is_own(kill, of) => format!("at its own limit{}", limit(of)),
        (_, Some(of)) => format!("at the limit{} of {}", limit(of), owner(of)),
        (Some(_), None) => "at a memory cgroup's limit".to_owned(),
        (None, None) => "the limit that was hit is unknown".to_owned(),
    }
}

/// Whether the limit belongs to the victim's workload alone.
pub fn is_own(kill: &OomKill, limit: &Limit) -> bool {
    let mut known = kill.victims.iter().filter_map(|victim| victim.workload.as_deref()).peekable();
    known.peek().is_some() && known.all(|workload| Some(workload) == limit.workload.as_deref())
}

pub fn owner(limit: &Limit) -> String {
    match (&limit.cgroup, &limit.workload, limit.cgroup_id) {
        (Some(cgroup), ..) => named(cgroup, limit.name.as_ref()),
        (None, Some(workload), _) => format!("a cgroup of {}", named(workload, limit.name.as_ref())),
        (None, None, Some(id)) => format!("a removed cgroup (id {id})"),
        (None, None, None) => "an unknown cgroup".to_owned(),
    }
}

pub fn story(page: &mut Page, incident: &Incident, kill: &OomKill) {
    let Some(first) = kill.victims.first() else {
        return page.paragraph("The kernel's OOM killer was invoked; nothing more is known.");
    };
    let of = victim_workloads(kill, first);
    let all = kill.victims.len() + kill.victims_omitted;
    let killed = if all > 1 {
        let at_once = if kill.group { " at once" } else { "" };
        format!("The kernel's OOM killer killed {all} processes of {of}{at_once}, {} first.", victim(first))
    } else {
        format!("The kernel's OOM killer killed {} of {of}.", victim(first))
    };
    page.paragraph(&format!("{killed} {}. {}", capital(&because(kill)), node_words(incident, kill)));
}

fn because(kill: &OomKill) -> String {
    let limit = |limit: &Limit| {
        let own = if is_own(kill, limit) { "its own" } else { "its" };
        limit
            .limit_bytes
            .map_or_else(|| format!("{own} memory limit"), |limit| format!("{own} memory limit of {}", bytes(limit)))
    };
    match (kill.constraint.as_deref(), &kill.limit) {
        (Some("none"), _) => "the node ran out of memory".to_owned(),
        (Some("cpuset"), _) => "the memory nodes of the victim's cpuset ran out of memory".to_owned(),
        (Some("memory_policy"), _) => "the memory nodes of the victim's memory policy ran out of memory".to_owned(),
        (_, Some(of)) if is_own(kill, of) => {
            format!("the {} reached {}", of.cgroup.as_deref().map_or("workload", noun), limit(of))
        }
        (_, Some(of)) => format!("{} reached {}, which several workloads share", owner(of), limit(of)),
        (Some(_), None) => "a memory cgroup reached its limit; the agent does not know which one".to_owned(),
        (None, None) => {
            "an allocation found no memory; the agent does not know whether the node or a cgroup ran out".to_owned()
        }
    }
}

/// Describes whether the node was short of memory. `/proc/meminfo` after the kill cannot answer that: the victim's memory may be free by then.
fn node_words(incident: &Incident, kill: &OomKill) -> String {
    let memory = incident.memory.as_ref();
    let after = memory.and_then(|memory| memory.available_bytes).zip(incident.evidence_after_ms);
    let after = after.map(|(available, at)| format!("{}, {} were available.", taken(at), bytes(available)));
    if kill.constraint.as_deref() == Some("none") {
        return after.unwrap_or_default();
    }
    let samples = incident.signals.get("memory.available").map(|history| history.samples.as_slice());
    let before = samples.unwrap_or_default().iter().rev().find(|(before, _)| *before >= 0.0);
    let total = memory.and_then(|memory| memory.total_bytes);
    match before.zip(total) {
        Some(((_, available), total)) => {
            let was = if *available > total / 10 { "was not short of memory" } else { "was short of memory, too" };
            format!("The node {was}: {} were available at the agent's last sample before the kill.", bytes(*available))
        }
        None => after.unwrap_or_default(),
    }
}

pub fn parties(page: &mut Page, kill: &OomKill) {
    page.section("VICTIM, LIMIT, TRIGGER");
    let mut before: Option<&Victim> = None;
    for victim in kill.victims.iter().take(SHOWN) {
        victim_items(page, victim, before);
        before = Some(victim);
    }
    let rest = kill.victims.len().saturating_sub(SHOWN) + kill.victims_omitted;
    if rest > 0 {
        page.item("", &format!("… and {}", count(rest as u64, "more process", "more processes")));
    }
    match &kill.limit {
        Some(limit) => limit_items(page, kill, limit),
        None if kill.constraint.as_deref() == Some("none") => page.item("limit of", "none: the node ran out of memory"),
        None => page.item("limit of", "unknown"),
    }
    trigger_items(page, kill);
}

/// Lists a victim. Facts that it shares with the victim `before` are not repeated.
fn victim_items(page: &mut Page, of: &Victim, before: Option<&Victim>) {
    let label = if before.is_none() { "killed" } else { "and" };
    let is_elsewhere = before.is_none_or(|before| before.cgroup != of.cgroup || before.workload != of.workload);
    let mut words = vec![victim(of)];
    words.extend(of.uid.map(|uid| format!("user {uid}")));
    words.extend(of.oom_score_adj.map(|adj| format!("oom_score_adj {adj}")));
    words.extend(of.age_ms.map(|age| format!("{} old", time(age))));
    page.item(label, &words.join(", "));
    let mut place = vec![workload_of(of)];
    let container = of.container_name.as_ref().or_else(|| of.name.as_ref()?.container.as_ref());
    place.extend(of.container.as_ref().map(|id| match container {
        Some(name) => format!("container {name} ({})", short(id)),
        None => format!("container {}", short(id)),
    }));
    if is_elsewhere {
        page.item("", &place.join(", "));
        owner_and_uid(of.name.as_ref()).iter().for_each(|line| page.item("", line));
    }
    if let Some(resident) = of.resident_bytes() {
        let part = |of: Option<u64>, what: &str| of.map(|size| format!("{} {what}", bytes(size)));
        let parts = [part(of.anon_bytes, "anonymous"), part(of.file_bytes, "files"), part(of.shmem_bytes, "shared")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let others = [
            of.pgtables_bytes.map(|size| format!("; page tables {}", bytes(size))),
            of.total_vm_bytes.map(|size| format!("; address space {}", bytes(size))),
        ];
        let others: String = others.into_iter().flatten().collect();
        page.item("", &format!("{} in memory: {}{others}", bytes(resident), parts.join(", ")));
    } else if of.uid.is_none() && of.workload.is_none() {
        page.item("", "the OOM killer chose it; its exit was unknown when the record was written");
    }
    if let Some(cgroup) = of.cgroup.as_ref().filter(|cgroup| is_elsewhere && named(cgroup, None) != **cgroup) {
        page.item("", cgroup);
    }
}

fn limit_items(page: &mut Page, kill: &OomKill, limit: &Limit) {
    let mut words = if is_own(kill, limit) {
        let what = limit.cgroup.as_deref().map_or("workload", noun);
        format!("the {what} itself")
    } else {
        owner(limit)
    };
    if let Some(size) = limit.limit_bytes {
        words.push_str(&format!(": {}", bytes(size)));
    }
    if let Some(usage) = limit.usage_bytes {
        words.push_str(&format!(" ({} used when the record was written)", bytes(usage)));
    }
    page.item("limit of", &words);
    if let Some(cgroup) = limit.cgroup.as_deref().filter(|cgroup| named(cgroup, None) != *cgroup) {
        page.item("", cgroup);
    }
}

fn trigger_items(page: &mut Page, kill: &OomKill) {
    let Some(of) = &kill.trigger else { return page.item("trigger", "unknown") };
    let size = match kill.order {
        Some(-1) => ", which requested the kill (SysRq f)".to_owned(),
        Some(order) if order > 0 => format!(", which allocated {} contiguous pages", 1_u64 << order.min(32)),
        _ => String::new(),
    };
    page.item("trigger", &format!("{}{size}: {}", trigger(of), relation(kill, of)));
}

/// Describes the trigger's relation to the first victim.
fn relation(kill: &OomKill, of: &Trigger) -> String {
    if of.pid.is_some() && kill.victims.iter().any(|victim| Some(victim.pid) == of.pid) {
        return "the victim itself".to_owned();
    }
    let first = kill.victims.first();
    let same = |of: Option<&String>, with: Option<&String>| of.is_some() && of == with;
    let workload = named_or_unknown(of.workload.as_deref(), of.name.as_ref());
    let container = of.name.as_ref().and_then(|name| name.container.as_deref());
    if same(of.container.as_ref(), first.and_then(|it| it.container.as_ref())) {
        "another process of the same container".to_owned()
    } else if same(of.workload.as_ref(), first.and_then(|it| it.workload.as_ref())) {
        match (&of.container, first.and_then(|it| it.container.as_ref())) {
            (Some(id), Some(_)) => {
                format!("in another container of the workload, {}", container.unwrap_or_else(|| short(id)))
            }
            (Some(id), None) => {
                format!("another process of the workload, in container {}", container.unwrap_or_else(|| short(id)))
            }
            (None, _) => "another process of the workload".to_owned(),
        }
    } else if of.workload.is_some() && first.is_some_and(|it| it.workload.is_some()) {
        format!("of {workload}, not of the victim's workload")
    } else {
        format!("of {workload}")
    }
}
