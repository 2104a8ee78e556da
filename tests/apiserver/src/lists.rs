//! GET of one object and of paged lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::{Value, json};

use crate::answer::{Failure, Reply, json as reply};
use crate::api::Call;
use crate::route::Target;
use crate::selector::Selector;
use crate::store::{Key, Store};

pub(crate) fn existing(store: &Store, target: &Target) -> Result<Arc<Value>, Failure> {
    let key = Key::new(target.resource, &target.namespace, &target.name);
    store.get(&key).ok_or_else(|| Failure::not_found(target.resource, &target.name))
}

/// The `continue` token of a list: its version and its last object.
struct Continue {
    revision: u64,
    namespace: String,
    name: String,
}

impl Continue {
    fn write(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!([self.revision, self.namespace, self.name]).to_string())
    }

    fn read(text: &str) -> Result<Self, Failure> {
        let bad = || Failure::bad_request(format!("continue key is not valid: {text}"));
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
        let (revision, namespace, name) = serde_json::from_slice(&bytes).map_err(|_| bad())?;
        Ok(Self { revision, namespace, name })
    }
}

/// Returns the selected objects, up to the limit.
pub(crate) fn list(store: &Store, call: &Call) -> Result<Reply, Failure> {
    let Target { resource, namespace, .. } = &call.target;
    let selector = Selector::read(resource, call.query.get("fieldSelector"), call.query.get("labelSelector"))?;
    let from = call.query.get("continue").map(Continue::read).transpose()?;
    let exactly = call.query.get("resourceVersionMatch") == Some("Exact");
    let wanted = call.query.number("resourceVersion").unwrap_or_default();
    if from.is_none() && wanted > store.revision() {
        return Err(Failure::too_large_version(wanted, store.revision()));
    }
    let at = match &from {
        Some(from) if from.revision < store.compacted() => return Err(too_old_to_continue()),
        Some(from) => Some(from.revision),
        None if exactly => Some(wanted),
        None => None,
    };
    let (objects, revision): (BTreeMap<Key, Arc<Value>>, u64) = match at {
        Some(revision) => (store.list_at(resource, namespace, revision)?, revision),
        None => {
            // Thousands of nodes ask for a few objects each: only those are copied.
            let selected = store.list(resource, namespace).filter(|(_, object)| selector.matches(object));
            (selected.map(|(key, object)| (key.clone(), Arc::clone(object))).collect(), store.revision())
        }
    };
    let limit = call.query.number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or_default();
    let start = from.map(|from| Key::new(resource, &from.namespace, &from.name));
    let mut matching = objects
        .iter()
        .filter(|(key, object)| start.as_ref().is_none_or(|start| *key > start) && selector.matches(object));
    let mut items = Vec::new();
    let mut last = None;
    for (key, object) in matching.by_ref() {
        items.push(without_type(object));
        last = Some(key);
        if limit > 0 && items.len() >= limit {
            break;
        }
    }
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    let remaining = matching.count();
    if let (Some(last), 1..) = (last, remaining) {
        let next = Continue { revision, namespace: last.namespace.clone(), name: last.name.clone() };
        metadata["continue"] = json!(next.write());
        if call.query.get("fieldSelector").is_none() && call.query.get("labelSelector").is_none() {
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    let kind = format!("{}List", resource.kind);
    let list = json!({"kind": kind, "apiVersion": resource.api_version(), "metadata": metadata, "items": items});
    Ok(reply(StatusCode::OK, &list))
}

/// Items of a list have no kind and API version: the list has.
fn without_type(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    object
}

fn too_old_to_continue() -> Failure {
    Failure::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    )
}
