//! The patches that turn the node's conditions and taints into the wanted ones. Pure.

use serde_json::{Value, json};

use crate::config::kubernetes_options::Authority;

use super::super::condition_names::{self, Owner, condition_type, owner, taint_key};
use super::node_object::{NodeCondition, NodeObject, taint_name};
use super::wanted::{NodeStatus, WantedCondition};

/// Returns the names to use: in observe mode never the standard ones, since others act on those.
pub fn authority(options: Authority, may_act: bool) -> Authority {
    if options == Authority::Standard && !may_act { Authority::Own } else { options }
}

/// A condition under its name on the node.
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
        // The API server refuses a patch with two conditions of one type.
        if desired.iter().all(|other| other.kind != kind) {
            desired.push(Desired { kind, status, wanted });
        }
    }
    desired
}

/// Returns the strategic merge patch for `nodes/NAME/status`; none: nothing differs. It names no conditions of other writers, so those
/// stay.
pub fn conditions(wanted: &NodeStatus, authority: Authority, seen: &NodeObject, now: &str) -> Option<Value> {
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
    if !is_changed && left_over.is_empty() {
        return None;
    }
    let mut items: Vec<Value> = desired.iter().map(|desired| item(desired, seen, now)).collect();
    items.extend(left_over.iter().map(|kind| json!({"$patch": "delete", "type": kind})));
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

/// Returns the patch that removes all conditions of ours; none: there are none.
pub fn no_conditions(seen: &NodeObject) -> Option<Value> {
    conditions(&NodeStatus::default(), Authority::Off, seen, "")
}

/// Returns the patch that makes the conditions of a dead agent Unknown. It applies only if the node has not changed since.
pub fn abandoned_conditions(seen: &NodeObject, message: &str, now: &str) -> Option<Value> {
    let unknown = |seen: &NodeCondition| {
        json!({
            "type": seen.kind,
            "status": "Unknown",
            "reason": condition_names::AGENT_STOPPED,
            "message": message,
            "lastTransitionTime": now,
        })
    };
    let items: Vec<Value> = seen.ours().filter(|seen| !seen.is_abandoned()).map(unknown).collect();
    (!items.is_empty()).then(|| {
        json!({
            "metadata": {"resourceVersion": seen.metadata.resource_version},
            "status": {"conditions": items},
        })
    })
}

/// Returns the node's new list of taints; none: it is right already. Taints of other writers stay, with fields that we do not know.
/// `was_authority`: taints of ours may have standard keys.
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
    let holds = |kind: &str| seen.condition(kind).is_some_and(|condition| condition.status == "True");
    let is_removed = |taint: &Value| {
        let (key, effect) = taint_name(taint);
        let is_ours = match owner(key) {
            Owner::Us => true,
            // While a standard condition holds, the control plane wants its own taint there.
            Owner::Condition(kind) => {
                (was_authority || authority == Authority::Standard)
                    && !(condition_names::is_of_control_plane(effect) && holds(kind))
            }
            Owner::Others => false,
        };
        is_ours && !is_desired(taint)
    };
    let mut list: Vec<Value> = seen.taints().iter().filter(|taint| !is_removed(taint)).cloned().collect();
    for desired in &desired {
        if !is_there(&list, desired) {
            let (key, effect) = desired;
            list.push(json!({"key": key, "effect": effect, "timeAdded": now}));
        }
    }
    (list != seen.taints()).then_some(list)
}

/// Returns whether a standard condition on the node is ours, which makes the taints under its key ours, too.
pub fn was_authority(seen: &NodeObject) -> bool {
    seen.ours().any(|condition| condition_names::is_standard(&condition.kind))
}

/// Returns the list of taints without ours; none: none is ours. A taint under a standard key is ours if its condition is, since then no
/// kubelet writes that condition.
pub fn no_taints(seen: &NodeObject) -> Option<Vec<Value>> {
    let is_ours = |taint: &Value| match owner(taint_name(taint).0) {
        Owner::Us => true,
        Owner::Condition(kind) => seen.condition(kind).is_some_and(NodeCondition::is_ours),
        Owner::Others => false,
    };
    let list: Vec<Value> = seen.taints().iter().filter(|taint| !is_ours(taint)).cloned().collect();
    (list.len() != seen.taints().len()).then_some(list)
}

/// Returns the JSON Patch for `nodes/NAME` that replaces the list of taints (`listType: atomic`). The API server refuses it with 422 if the
/// list has changed since it was read, or the node is another one of this name. Other fields, which the kubelet writes every few minutes,
/// do not matter.
///
/// None: taints under standard keys differ. Those were chosen by the node's conditions, so that the whole node must be as it was read.
pub fn taint_list_patch(taints: &[Value], seen: &NodeObject) -> Option<Value> {
    let is_others = |taint: &&Value| owner(taint_name(taint).0) != Owner::Us;
    if !taints.iter().filter(is_others).eq(seen.taints().iter().filter(is_others)) {
        return None;
    }
    // kube-apiserver takes an absent field for null in a test.
    let before = seen.taint_list().map_or(Value::Null, |list| list.to_vec().into());
    let write = match taints {
        [] => json!({"op": "remove", "path": "/spec/taints"}),
        _ => json!({"op": "add", "path": "/spec/taints", "value": taints}),
    };
    Some(json!([
        {"op": "test", "path": "/metadata/uid", "value": seen.metadata.uid},
        {"op": "test", "path": "/spec/taints", "value": before},
        write,
    ]))
}

/// Returns the merge patch for `nodes/NAME` that replaces the list of taints. The API server refuses it with 409 if the node has changed
/// since it was read.
pub fn taints_patch(taints: &[Value], seen: &NodeObject) -> Value {
    json!({"metadata": {"resourceVersion": seen.metadata.resource_version}, "spec": {"taints": taints}})
}

#[cfg(test)]
#[path = "status_patches_tests.rs"]
mod tests;
