//! Applies the three kinds of patch.

mod strategic;

use json_patch::PatchOperation;
use serde_json::Value;

use crate::answer::Failure;

pub(crate) use strategic::merge_key;

/// Applies a patch to an object.
pub fn apply(content_type: &str, original: &Value, patch: &[u8]) -> Result<Value, Failure> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    let unreadable = |error: serde_json::Error| Failure::bad_request(format!("error decoding patch: {error}"));
    let mut object = original.clone();
    match kind {
        "application/strategic-merge-patch+json" => {
            let patch: Value = serde_json::from_slice(patch).map_err(unreadable)?;
            let Value::Object(patch) = patch else {
                return Err(Failure::bad_request("error decoding patch: it is no object"));
            };
            let Value::Object(original) = object else { return Err(Failure::internal("what is stored is no object")) };
            strategic::merge(original, patch).map(Value::Object).map_err(Failure::unexpected)
        }
        "application/merge-patch+json" => {
            let patch: Value = serde_json::from_slice(patch).map_err(unreadable)?;
            json_patch::merge(&mut object, &patch);
            Ok(object)
        }
        "application/json-patch+json" => {
            let patch: Vec<PatchOperation> = serde_json::from_slice(patch).map_err(unreadable)?;
            for operation in &patch {
                if !is_absent_as_wanted(&object, operation) {
                    let operation = std::slice::from_ref(operation);
                    json_patch::patch(&mut object, operation).map_err(|_| Failure::inapplicable())?;
                }
            }
            Ok(object)
        }
        _ => Err(Failure::unsupported_media_type()),
    }
}

/// Returns whether the operation is a test for null of a member that an object does not have. Such a test succeeds, unlike in RFC 6902.
fn is_absent_as_wanted(object: &Value, operation: &PatchOperation) -> bool {
    let PatchOperation::Test(test) = operation else { return false };
    let path = test.path.as_str();
    let parent = path.rsplit_once('/').and_then(|(parent, _)| object.pointer(parent));
    test.value.is_null() && parent.is_some_and(Value::is_object) && object.pointer(path).is_none()
}
