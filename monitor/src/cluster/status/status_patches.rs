//! From what the node's conditions and taints are to be, and what they are, to what is to be written. Pure: no clock, no connection.

use serde_json::{Value, json};

use crate::config::kubernetes_options::Authority;

use super::super::condition_names::{self as names, Owner, condition_type, owner, taint_key};
use super::node_object::{NodeCondition, NodeObject, taint_name};
use super::{NodeStatus, WantedCondition};

/// Under which names: in observe mode nothing is said under those that others act on.
#[must_use]
pub fn authority(options: Authority, may_act: bool) -> Authority {
    if options == Authority::Standard && !may_act { Authority::Own } else { options }
}

/// A condition by the name that it has on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Desired<'a> {
    kind: String,
    status: &'static str,
    wanted: &'a WantedCondition,
}

fn desired(wanted: &NodeStatus, authority: Authority) -> Vec<Desired<'_>> {
    if authority == Authority::Off {
        return Vec::new();
    }
    let mut desired: Vec<Desired<'_>> = Vec::with_capacity(wanted.conditions.len());
    for wanted in &wanted.conditions {
        let kind = condition_type(&wanted.kind, authority);
        let status = match wanted.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        // The server would refuse two of one name, and all others with them.
        if desired.iter().all(|other| other.kind != kind) {
            desired.push(Desired { kind, status, wanted });
        }
    }
    desired
}

/// What to send to `nodes/NAME/status`, as a strategic merge patch; nothing when all is as it should be and no heartbeat is due.
/// Conditions of others are not in it, so they stay.
#[must_use]
pub fn conditions(
    wanted: &NodeStatus,
    authority: Authority,
    seen: &NodeObject,
    now: &str,
    is_heartbeat_due: bool,
) -> Option<Value> {
    let desired = desired(wanted, authority);
    let differs = |desired: &Desired<'_>| {
        seen.condition(&desired.kind).is_none_or(|seen| {
            seen.status != desired.status
                || seen.reason != desired.wanted.reason
                || seen.message != desired.wanted.message
        })
    };
    let is_changed = desired.iter().any(differs);
    let is_left_over = |kind: &&str| desired.iter().all(|desired| desired.kind != *kind);
    let left_over: Vec<&str> = seen.ours().map(|condition| condition.kind.as_str()).filter(is_left_over).collect();
    if !is_changed && left_over.is_empty() && (!is_heartbeat_due || desired.is_empty()) {
        return None;
    }
    let mut items: Vec<Value> = desired.iter().map(|desired| item(desired, seen, now)).collect();
    items.extend(left_over.iter().map(|kind| removal(kind)));
    Some(json!({"status": {"conditions": items}}))
}

fn item(desired: &Desired<'_>, seen: &NodeObject, now: &str) -> Value {
    let before = seen.condition(&desired.kind).filter(|seen| seen.status == desired.status);
    let since = before.and_then(|seen| seen.last_transition_time.as_deref()).unwrap_or(now);
    json!({
        "type": desired.kind,
        "status": desired.status,
        "reason": desired.wanted.reason,
        "message": desired.wanted.message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
    })
}

fn removal(kind: &str) -> Value {
    json!({"$patch": "delete", "type": kind})
}

/// What to send to take every condition of ours away; nothing when there is none.
#[must_use]
pub fn no_conditions(seen: &NodeObject) -> Option<Value> {
    let plan = conditions(&NodeStatus::default(), Authority::Off, seen, "", false);
    if seen.heartbeat_words().is_none() {
        return plan;
    }
    let mut body = plan.unwrap_or_else(|| json!({}));
    body["metadata"] = json!({"annotations": {names::HEARTBEAT: null}});
    Some(body)
}

/// What to send so that nobody believes a dead agent: our conditions are known no longer. Only where nobody has changed the node since.
#[must_use]
pub fn forsaken_conditions(seen: &NodeObject, message: &str, now: &str) -> Option<Value> {
    let believed = seen.ours().filter(|seen| !seen.is_forsaken());
    let unknown = |seen: &NodeCondition| {
        // The heartbeat stays that of the agent: how long it has been dead can be read from it.
        json!({
            "type": seen.kind,
            "status": "Unknown",
            "reason": names::AGENT_STOPPED,
            "message": message,
            "lastTransitionTime": now,
        })
    };
    let items: Vec<Value> = believed.map(unknown).collect();
    (!items.is_empty()).then(|| {
        json!({
            "metadata": {"resourceVersion": seen.metadata.resource_version},
            "status": {"conditions": items},
        })
    })
}

/// The list of taints that the node is to have; nothing when it has it. Those of others stay as they are, unknown fields included.
/// `was_authority`: taints of ours may be there under standard keys.
#[must_use]
pub fn taints(
    wanted: &NodeStatus,
    authority: Authority,
    was_authority: bool,
    seen: &NodeObject,
    now: &str,
) -> Option<Vec<Value>> {
    let may_taint = wanted.may_act && authority != Authority::Off;
    let wanted = wanted.taints.iter().filter(|_| may_taint);
    let desired: Vec<(String, &'static str)> =
        wanted.filter_map(|taint| Some((taint_key(&taint.kind, authority)?, taint.effect.as_str()))).collect();
    let is_there = |list: &[Value], (key, effect): &(String, &'static str)| {
        list.iter().any(|taint| taint_name(taint) == (key.as_str(), *effect))
    };
    let is_desired = |taint: &Value| desired.iter().any(|desired| is_there(std::slice::from_ref(taint), desired));
    // While a standard condition holds, the control plane wants its own taint there.
    let holds = |kind: &str| seen.condition(kind).is_some_and(|condition| condition.status == "True");
    let goes = |taint: &Value| {
        let (key, effect) = taint_name(taint);
        let is_ours = match owner(key) {
            Owner::Us => true,
            Owner::Condition(kind) => {
                (was_authority || authority == Authority::Standard)
                    && !(names::is_of_control_plane(effect) && holds(kind))
            }
            Owner::Others => false,
        };
        is_ours && !is_desired(taint)
    };
    let mut list: Vec<Value> = seen.taints().iter().filter(|taint| !goes(taint)).cloned().collect();
    for desired in &desired {
        if !is_there(&list, desired) {
            let (key, effect) = desired;
            list.push(json!({"key": key, "effect": effect, "timeAdded": now}));
        }
    }
    (list != seen.taints()).then_some(list)
}

/// Whether a standard condition there is ours: then the taints under its key are, too.
#[must_use]
pub fn was_authority(seen: &NodeObject) -> bool {
    seen.ours().any(|condition| names::is_standard(&condition.kind))
}

/// The list without ours; nothing when there is none of ours in it. Those under standard keys go when the condition is ours too: then
/// no kubelet speaks for it.
#[must_use]
pub fn no_taints(seen: &NodeObject) -> Option<Vec<Value>> {
    let is_ours = |taint: &Value| match owner(taint_name(taint).0) {
        Owner::Us => true,
        Owner::Condition(kind) => seen.condition(kind).is_some_and(NodeCondition::is_ours),
        Owner::Others => false,
    };
    let list: Vec<Value> = seen.taints().iter().filter(|taint| !is_ours(taint)).cloned().collect();
    (list.len() != seen.taints().len()).then_some(list)
}

/// What to send to `nodes/NAME`, as a merge patch: refused with 409 where somebody else has changed the node since it was seen. A list of
/// taints is written as a whole (`listType: atomic`), so nobody else's change must be lost.
#[must_use]
pub fn taints_patch(taints: &[Value], seen: &NodeObject) -> Value {
    json!({"metadata": {"resourceVersion": seen.metadata.resource_version}, "spec": {"taints": taints}})
}

#[cfg(test)]
#[path = "status_patches_tests.rs"]
mod tests;
