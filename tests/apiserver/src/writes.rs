//! Creates and changes objects.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use crate::answer::{Failure, Reply, json as reply};
use crate::api::Call;
use crate::lists::existing;
use crate::object::{self, Way, has};
use crate::route::Target;
use crate::store::{Key, Store};
use crate::{admission, managed, patch, resource};

/// Makes a namespace with its default service account.
pub(crate) fn furnish(store: &mut Store, namespace: &str) {
    for (plural, within, name) in [("namespaces", "", namespace), ("serviceaccounts", namespace, "default")] {
        let Some(resource) = resource::named(plural) else { continue };
        let Ok(mut object) = object::prepare_new(resource, within, json!({"metadata": {"name": name}})) else {
            continue;
        };
        if plural == "namespaces" {
            object["status"] = json!({"phase": "Active"});
        }
        store.put(Key::new(resource, within, name), object);
    }
}

pub(crate) fn create(store: &mut Store, call: &Call) -> Result<Reply, Failure> {
    let Target { resource, namespace, .. } = &call.target;
    if resource.namespaced && namespace.is_empty() {
        return Err(Failure::method_not_allowed());
    }
    let mut object = object::prepare_new(resource, namespace, call.object()?)?;
    admission::new_object(store, resource, &mut object)?;
    let name = object::text(&object, "/metadata/name").to_owned();
    let key = Key::new(resource, namespace, &name);
    if store.get(&key).is_some() {
        return Err(Failure::already_exists(resource, &name));
    }
    managed::note(&mut object, None, &call.manager, "");
    let created = store.put(key, object);
    Ok(reply(StatusCode::CREATED, &created))
}

pub(crate) fn update(store: &mut Store, call: &Call) -> Result<Reply, Failure> {
    let wanted = call.object()?;
    change(store, call, Way::Update, |_| Ok(wanted))
}

/// Applies a PATCH to the current object. Only a precondition can cause a conflict.
pub(crate) fn patch(store: &mut Store, call: &Call) -> Result<Reply, Failure> {
    change(store, call, Way::Patch, |before| patch::apply(&call.content_type, before, &call.body))
}

fn change(
    store: &mut Store,
    call: &Call,
    way: Way,
    after: impl FnOnce(&Value) -> Result<Value, Failure>,
) -> Result<Reply, Failure> {
    let before = existing(store, &call.target)?;
    let changed = changed(store, &call.target, way, &before, after(&before)?, Some(call))?;
    Ok(reply(StatusCode::OK, &changed))
}

/// Stores a changed object; without a call the server itself changes it. An equal object gets no new version and no watch event.
pub(crate) fn changed(
    store: &mut Store,
    target: &Target,
    way: Way,
    before: &Arc<Value>,
    after: Value,
    call: Option<&Call>,
) -> Result<Arc<Value>, Failure> {
    let Target { resource, namespace, name, part } = target;
    let mut after = object::prepare_changed(resource, part, way, before, after)?;
    admission::changed_object(resource, part, before, &after)?;
    if after == **before {
        return Ok(Arc::clone(before));
    }
    managed::note(&mut after, Some(before), call.map_or("kube-apiserver", |call| &call.manager), part);
    let key = Key::new(resource, namespace, name);
    // The last finalizer was removed, and nothing else is pending.
    let ends = has(&after, "/metadata/deletionTimestamp")
        && has(before, "/metadata/finalizers")
        && !has(&after, "/metadata/finalizers")
        && after.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64).unwrap_or_default() == 0;
    Ok(if ends { store.remove(&key, after) } else { store.put(key, after) })
}
