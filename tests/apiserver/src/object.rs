//! Rules for writes of every kind: the server's metadata, versions, subresources.

use std::fs;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::answer::Failure;
use crate::resource::Resource;

/// Returns the time now as the API writes it.
#[must_use]
pub fn now() -> String {
    at(Timestamp::now())
}

/// Formats a time as the API does, in whole seconds.
#[must_use]
pub fn at(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns a new UID.
#[must_use]
pub fn new_uid() -> String {
    fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default().trim().to_owned()
}

/// Returns a text field of an object, or an empty text.
#[must_use]
pub fn text<'object>(object: &'object Value, pointer: &str) -> &'object str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns whether a field exists and is not empty.
#[must_use]
pub fn has(object: &Value, pointer: &str) -> bool {
    match object.pointer(pointer) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    }
}

/// Removes a field.
pub fn remove(object: &mut Value, parent: &str, field: &str) -> Option<Value> {
    object.pointer_mut(parent).and_then(Value::as_object_mut).and_then(|map| map.remove(field))
}

/// The metadata fields that only the server sets.
const SERVERS: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "selfLink",
];

/// Completes a posted object for the store.
pub fn prepare_new(resource: &Resource, namespace: &str, mut object: Value) -> Result<Value, Failure> {
    let expected = (resource.api_version(), resource.kind);
    let given = (text(&object, "/apiVersion"), text(&object, "/kind"));
    if (!given.0.is_empty() || !given.1.is_empty()) && (given.0 != expected.0 || given.1 != expected.1) {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({}/{}) does not match the expected API version ({}/{})",
            given.0, given.1, expected.0, expected.1
        )));
    }
    let Some(fields) = object.as_object_mut() else {
        return Err(Failure::bad_request("the body of the request is no object"));
    };
    fields.insert("apiVersion".to_owned(), json!(expected.0));
    fields.insert("kind".to_owned(), json!(expected.1));
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(Failure::bad_request("metadata is no object"));
    };
    if metadata.get("resourceVersion").and_then(Value::as_str).is_some_and(|version| !version.is_empty()) {
        return Err(Failure::bad_request("resourceVersion should not be set on objects to be created"));
    }
    for field in SERVERS {
        metadata.remove(field);
    }
    if resource.namespaced {
        let given = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
        if !given.is_empty() && given != namespace {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    if !has(&object, "/metadata/name") {
        let prefix = text(&object, "/metadata/generateName").to_owned();
        if prefix.is_empty() {
            let what = "Required value: name or generateName is required";
            return Err(Failure::invalid(resource, "", "FieldValueRequired", "metadata.name", what));
        }
        let uid = new_uid();
        object["metadata"]["name"] = json!(format!("{prefix}{}", &uid[..5.min(uid.len())]));
    }
    object["metadata"]["uid"] = json!(new_uid());
    object["metadata"]["creationTimestamp"] = json!(now());
    if resource.generation {
        object["metadata"]["generation"] = json!(1);
    }
    Ok(object)
}

/// The kind of write that changes an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A patch. A UID in it attempts to change the UID, and is no precondition.
    Patch,
    /// A whole object. Its UID is a precondition.
    Update,
}

/// Reverts or refuses changes that this kind of write may not make; `part` is the subresource.
pub fn prepare_changed(
    resource: &Resource,
    part: &str,
    way: Way,
    before: &Value,
    mut after: Value,
) -> Result<Value, Failure> {
    let name = text(before, "/metadata/name");
    let given_name = text(&after, "/metadata/name");
    if given_name != name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({given_name}) does not match the name on the URL ({name})"
        )));
    }
    let (uid, given) = (text(before, "/metadata/uid"), text(&after, "/metadata/uid"));
    if !given.is_empty() && given != uid {
        if way == Way::Patch {
            let what = format!("Invalid value: \"{given}\": field is immutable");
            return Err(Failure::invalid(resource, name, "FieldValueInvalid", "metadata.uid", &what));
        }
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{name}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {given}, UID in object meta: {uid}",
            resource.plural
        );
        return Err(Failure::conflict(resource, name, &why));
    }
    let (version, given) = (text(before, "/metadata/resourceVersion"), text(&after, "/metadata/resourceVersion"));
    if !given.is_empty() && given != version {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(Failure::conflict(resource, name, why));
    }
    for field in ["apiVersion", "kind"] {
        after[field] = before[field].clone();
    }
    for field in SERVERS.into_iter().chain(["resourceVersion", "namespace", "generateName"]) {
        restore(&mut after["metadata"], &before["metadata"], field);
    }
    if resource.status {
        if part == "status" {
            restore(&mut after, before, "spec");
            restore(&mut after["metadata"], &before["metadata"], "ownerReferences");
        } else {
            restore(&mut after, before, "status");
        }
    }
    if resource.generation && after.get("spec") != before.get("spec") {
        let generation = before.pointer("/metadata/generation").and_then(Value::as_u64).unwrap_or_default();
        after["metadata"]["generation"] = json!(generation + 1);
    }
    Ok(after)
}

fn restore(after: &mut Value, before: &Value, field: &str) {
    if let Some(fields) = after.as_object_mut() {
        match before.get(field) {
            Some(value) => fields.insert(field.to_owned(), value.clone()),
            None => fields.remove(field),
        };
    }
}
