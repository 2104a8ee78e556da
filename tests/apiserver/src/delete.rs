//! DELETE: preconditions, the grace of pods, finalizers.

use std::sync::Arc;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::answer::{Failure, Reply, json as reply};
use crate::api::Call;
use crate::lists::existing;
use crate::object::{self, has, text};
use crate::resource::Resource;
use crate::route::Target;
use crate::store::{Key, Store};

#[derive(Debug, Clone, Default)]
pub(crate) struct How {
    grace: Option<i64>,
    uid: Option<String>,
    version: Option<String>,
}

impl How {
    /// `DeleteOptions`, from the body or the query.
    pub(crate) fn read(options: &Value, call: &Call) -> Result<Self, Failure> {
        let own = |pointer: &str| options.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let grace = options["gracePeriodSeconds"].as_i64();
        let in_query = call.query.get("gracePeriodSeconds").and_then(|grace| grace.parse().ok());
        let how = Self {
            grace: grace.or(in_query),
            uid: own("/preconditions/uid"),
            version: own("/preconditions/resourceVersion"),
        };
        if how.grace.is_some_and(|grace| grace < 0) {
            return Err(Failure::bad_request("gracePeriodSeconds must be non-negative"));
        }
        Ok(how)
    }

    /// Checks the preconditions.
    pub(crate) fn check(&self, resource: &Resource, object: &Value) -> Result<(), Failure> {
        let name = text(object, "/metadata/name");
        let (uid, version) = (text(object, "/metadata/uid"), text(object, "/metadata/resourceVersion"));
        if let Some(wanted) = self.uid.as_deref().filter(|wanted| *wanted != uid) {
            let why = format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
                 been deleted and then recreated"
            );
            return Err(Failure::precondition(resource, name, &why));
        }
        if let Some(wanted) = self.version.as_deref().filter(|wanted| *wanted != version) {
            let why = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({version}). The object might have been modified"
            );
            return Err(Failure::precondition(resource, name, &why));
        }
        Ok(())
    }
}

pub(crate) fn delete(store: &mut Store, call: &Call) -> Result<Reply, Failure> {
    let how = How::read(&call.object()?, call)?;
    let before = existing(store, &call.target)?;
    let last = remove(store, &call.target, &before, &how)?;
    let Target { resource, name, .. } = &call.target;
    // Pods are returned as they are now; other objects as deleted, unless a finalizer holds them.
    if resource.plural == "pods" || has(&last, "/metadata/deletionTimestamp") {
        return Ok(reply(StatusCode::OK, &last));
    }
    let mut details = json!({"name": name, "kind": resource.plural, "uid": text(&before, "/metadata/uid")});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    Ok(reply(StatusCode::OK, &status))
}

/// Deletes an object or sets its deletion timestamp; returns its last or present state.
pub(crate) fn remove(
    store: &mut Store,
    target: &Target,
    before: &Arc<Value>,
    how: &How,
) -> Result<Arc<Value>, Failure> {
    let Target { resource, namespace, name, .. } = target;
    how.check(resource, before)?;
    let key = Key::new(resource, namespace, name);
    let grace = grace_of(resource, before, how);
    let at_once = grace == 0 && !has(before, "/metadata/finalizers");
    // Watches get a deletion timestamp first, even if the pod is deleted at once.
    if at_once && resource.plural != "pods" {
        return Ok(store.remove(&key, (**before).clone()));
    }
    let after = marked(resource, before, grace);
    let marked = if after == **before { Arc::clone(before) } else { store.put(key.clone(), after) };
    Ok(if at_once { store.remove(&key, (*marked).clone()) } else { marked })
}

/// Returns the grace period of a pod that a kubelet runs; other objects have none.
fn grace_of(resource: &Resource, object: &Value, how: &How) -> i64 {
    let ended = matches!(text(object, "/status/phase"), "Failed" | "Succeeded");
    if resource.plural != "pods" || text(object, "/spec/nodeName").is_empty() || ended {
        return 0;
    }
    let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    how.grace.or(own).unwrap_or(30)
}

/// Sets the deletion timestamp. A second deletion can only shorten the grace period (`BeforeDelete` in apiserver 1.36).
fn marked(resource: &Resource, before: &Value, grace: i64) -> Value {
    let mut after = before.clone();
    let now = Timestamp::now();
    let begun = text(before, "/metadata/deletionTimestamp").parse::<Timestamp>().ok();
    let present = before.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
    let start = match begun {
        Some(_) if present <= grace => return after,
        Some(end) => end.checked_sub(SignedDuration::from_secs(present)).unwrap_or(now),
        None => now,
    };
    let end = start.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    after["metadata"]["deletionTimestamp"] = json!(object::at(end));
    after["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    if resource.generation {
        let generation = before.pointer("/metadata/generation").and_then(Value::as_u64).unwrap_or_default();
        after["metadata"]["generation"] = json!(generation + 1);
    }
    after
}
