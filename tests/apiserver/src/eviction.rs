//! POST `pods/NAME/eviction`, which obeys disruption budgets.
//!
//! It follows `registry/core/pod/storage/eviction.go` of 1.36.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use crate::answer::{Failure, Reply, json as reply};
use crate::api::{Call, pods};
use crate::delete::{self, How};
use crate::lists::existing;
use crate::object::{Way, has, now, text};
use crate::route::Target;
use crate::selector::Selector;
use crate::store::{Key, Store};
use crate::{resource, writes};

/// Evicts a pod, if its budget allows.
pub(crate) fn evict(store: &mut Store, call: &Call) -> Result<Reply, Failure> {
    let eviction = call.object()?;
    let named = text(&eviction, "/metadata/name");
    if named != call.target.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let how = How::read(&eviction["deleteOptions"], call)?;
    let pod = existing(store, &call.target)?;
    if !ignores_budgets(&pod) {
        ask_budget(store, &call.target, &pod)?;
    }
    // The check comes before the condition is written, so that another pod of this name does not get it.
    how.check(pods()?, &pod)?;
    let pod_target = Target { part: String::new(), ..call.target.clone() };
    let pod = condition(store, &pod_target, &pod)?;
    delete::remove(store, &pod_target, &pod, &how)?;
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(reply(StatusCode::CREATED, &status))
}

/// Returns whether the pod is not running or terminating: its eviction is no disruption.
fn ignores_budgets(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed" | "Pending") || has(pod, "/metadata/deletionTimestamp")
}

fn ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn ask_budget(store: &mut Store, target: &Target, pod: &Value) -> Result<(), Failure> {
    let Some(budgets) = resource::named("poddisruptionbudgets") else { return Ok(()) };
    let matching: Vec<Arc<Value>> = store
        .list(budgets, &target.namespace)
        .filter(|(_, budget)| {
            budget["spec"]["selector"].is_object() && Selector::of_object(&budget["spec"]["selector"]).matches(pod)
        })
        .map(|(_, budget)| Arc::clone(budget))
        .collect();
    let budget = match matching.as_slice() {
        [] => return Ok(()),
        [budget] => budget,
        _ => {
            return Err(Failure::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let number = |field: &str| budget.pointer(field).and_then(Value::as_i64).unwrap_or_default();
    if !ready(pod) {
        let healthy = number("/status/currentHealthy") >= number("/status/desiredHealthy");
        let always = text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow";
        if always || (healthy && number("/status/desiredHealthy") > 0) {
            return Ok(());
        }
    }
    let name = text(budget, "/metadata/name");
    if number("/status/observedGeneration") < number("/metadata/generation") {
        return Err(Failure::budget(
            &format!("The disruption budget {name} is still being processed by the server."),
            10,
        ));
    }
    let allowed = number("/status/disruptionsAllowed");
    if allowed < 0 {
        return Err(Failure::forbidden(budgets, name, "pdb disruptions allowed is negative"));
    }
    if allowed == 0 {
        let (needed, current) = (number("/status/desiredHealthy"), number("/status/currentHealthy"));
        return Err(Failure::budget(
            &format!("The disruption budget {name} needs {needed} healthy pods and has {current} currently"),
            0,
        ));
    }
    let mut after = (**budget).clone();
    after["status"]["disruptionsAllowed"] = json!(allowed - 1);
    if !after["status"]["disruptedPods"].is_object() {
        after["status"]["disruptedPods"] = json!({});
    }
    after["status"]["disruptedPods"][target.name.as_str()] = json!(now());
    store.put(Key::new(budgets, &target.namespace, name), after);
    Ok(())
}

/// Sets the server's own condition.
fn condition(store: &mut Store, target: &Target, pod: &Arc<Value>) -> Result<Arc<Value>, Failure> {
    let mut after = (**pod).clone();
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastTransitionTime": now(),
        "observedGeneration": pod.pointer("/metadata/generation"),
    });
    match after.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        Some(conditions) => {
            if let Some(old) = conditions.iter_mut().find(|old| old["type"] == "DisruptionTarget") {
                *old = condition;
            } else {
                conditions.push(condition);
            }
        }
        None => after["status"]["conditions"] = json!([condition]),
    }
    let status = Target { part: "status".to_owned(), resource: pods()?, ..target.clone() };
    writes::changed(store, &status, Way::Update, pod, after, None)
}
