//! Names, amounts and times in words.

use node_pressure_state::Identity;

use crate::units::Bytes;
use crate::workloads::QosClass;
use crate::workloads::cgroup_path::{Role, role};

pub use crate::workloads::cgroup_path::short_id as short;

use super::super::model::{Trigger, Victim};

/// Returns the common name of a workload or another cgroup; its path if it has no other name.
pub fn name(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or(path);
    match role(path) {
        _ if path == "/" => "the root cgroup".to_owned(),
        Role::Pod(uid, _) => format!("pod {uid}"),
        Role::Container(id) => format!("container {}", short(&id)),
        Role::Service | Role::Scope => last.to_owned(),
        Role::Group | Role::Plain => path.to_owned(),
    }
}

/// As [`name`], with the names that were known at the time of the event.
pub fn named(path: &str, known: Option<&Identity>) -> String {
    let pod = known.and_then(Identity::full_pod).map(|pod| format!("pod {pod}"));
    match (role(path), pod) {
        (Role::Pod(..), Some(pod)) => pod,
        (Role::Container(id), pod) => {
            let container = known.and_then(|known| known.container.as_deref()).unwrap_or_else(|| short(&id));
            let of = pod.map(|pod| format!(" of {pod}")).unwrap_or_default();
            format!("container {container}{of}")
        }
        _ => name(path),
    }
}

pub fn named_or_unknown(path: Option<&str>, known: Option<&Identity>) -> String {
    path.filter(|path| !path.is_empty() && *path != "(none)")
        .map_or_else(|| "an unknown workload".to_owned(), |path| named(path, known))
}

/// Returns the owner and the UID of a pod, as far as they are known.
pub fn owner_and_uid(known: Option<&Identity>) -> Option<String> {
    let known = known.filter(|known| known.pod.is_some())?;
    let owner = known.owner.as_ref().map(|owner| format!("owner {owner}"));
    let parts: Vec<String> = owner.into_iter().chain(known.uid.as_ref().map(|uid| format!("UID {uid}"))).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Returns the kind of a cgroup.
pub fn noun(path: &str) -> &'static str {
    match role(path) {
        Role::Pod(..) => "pod",
        Role::Container(_) => "container",
        Role::Service => "service",
        Role::Scope => "scope",
        Role::Group => "slice",
        Role::Plain => "cgroup",
    }
}

/// Describes when the figures about the node were measured.
pub fn taken(after_ms: f64) -> String {
    match after_ms {
        after if after < 0.0 => format!("{} before the incident", time(-after)),
        after => format!("{} after the incident", time(after)),
    }
}

pub fn victim(victim: &Victim) -> String {
    match &victim.comm {
        Some(comm) => format!("{comm} (process {})", victim.pid),
        None => format!("process {}", victim.pid),
    }
}

pub fn trigger(trigger: &Trigger) -> String {
    let thread = trigger.tid.filter(|tid| Some(*tid) != trigger.pid).map(|tid| format!(", thread {tid}"));
    let thread = thread.unwrap_or_default();
    match (&trigger.comm, trigger.pid) {
        (Some(comm), Some(pid)) => format!("{comm} (process {pid}{thread})"),
        (Some(comm), None) => comm.clone(),
        (None, Some(pid)) => format!("process {pid}{thread}"),
        (None, None) => "an unknown task".to_owned(),
    }
}

/// Stands between a number and its unit, where a line must not break.
pub const NO_BREAK: char = '\u{a0}';

fn unbroken(text: &str) -> String {
    text.replace(' ', &NO_BREAK.to_string())
}

pub fn bytes(bytes: u64) -> String {
    unbroken(&Bytes(bytes).to_string())
}

pub fn counted(number: i64, unit: &str) -> String {
    unbroken(&format!("{number} {unit}"))
}

pub fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

pub fn signed_bytes(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", self::bytes(bytes.unsigned_abs()))
}

pub fn time(ms: f64) -> String {
    const SECOND: f64 = 1e3;
    const MINUTE: f64 = 60.0 * SECOND;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    let two = |large: f64, name: &str, small: f64, small_name: &str| {
        format!("{:.0} {name} {:.0} {small_name}", (ms / large).floor(), (ms % large / small).floor())
    };
    unbroken(&match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < SECOND => format!("{ms:.0} ms"),
        ms if ms < MINUTE => format!("{:.1} s", ms / SECOND),
        ms if ms < HOUR => two(MINUTE, "min", SECOND, "s"),
        ms if ms < DAY => two(HOUR, "h", MINUTE, "min"),
        _ => two(DAY, "d", HOUR, "h"),
    })
}

pub fn count(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

pub fn is_best_effort(qos_class: &str) -> bool {
    qos_class == QosClass::BestEffort.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_have_their_common_names() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for (path, expected) in [
            ("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b2c_3d.slice", "pod 1b2c-3d"),
            ("system.slice/nginx.service", "nginx.service"),
            (&*format!("machine.slice/libpod-{id}.scope"), "container 0123456789ab"),
            ("kubepods.slice", "kubepods.slice"),
            ("lxc/web", "lxc/web"),
            ("/", "the root cgroup"),
        ] {
            assert_eq!(name(path), expected);
        }
        assert_eq!(named_or_unknown(Some("(none)"), None), "an unknown workload");
    }

    #[test]
    fn known_names_come_before_ids() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let text = |text: &str| Some(text.to_owned());
        let known = Identity {
            namespace: text("batch"),
            pod: text("report"),
            container: text("app"),
            owner: text("Job/report"),
            uid: text("1b2c-3d"),
        };
        for (path, expected) in [
            ("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b2c_3d.slice", "pod batch/report"),
            (&*format!("kubepods/pod1b2c-3d/cri-containerd-{id}.scope"), "container app of pod batch/report"),
            ("kubepods.slice", "kubepods.slice"),
        ] {
            assert_eq!(named(path, Some(&known)), expected);
            assert_eq!(named(path, None), name(path));
        }
        assert_eq!(owner_and_uid(Some(&known)).unwrap(), "owner Job/report, UID 1b2c-3d");
        assert_eq!(owner_and_uid(Some(&Identity::default())), None);
    }

    #[test]
    fn times_have_two_units_at_most() {
        for (ms, expected) in [
            (0.04, "0.0 ms"),
            (12.3, "12 ms"),
            (1500.0, "1.5 s"),
            (61_000.0, "1 min 1 s"),
            (3_725_000.0, "1 h 2 min"),
            (180_000_000.0, "2 d 2 h"),
        ] {
            assert_eq!(time(ms).replace(NO_BREAK, " "), expected);
        }
    }
}
