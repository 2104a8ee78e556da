//! The part of kustomize that our manifests use, so that they can be checked without kubectl. Anything else is refused. A test compares the
//! result with kubectl's, if kubectl is installed.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value};

use crate::documents::{self, name, text};

/// The supported fields of a kustomization.
const KNOWN: [&str; 7] = ["apiVersion", "kind", "resources", "components", "namespace", "images", "patches"];
/// Kinds without a namespace.
const CLUSTER_WIDE: [&str; 6] = [
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "SecurityContextConstraints",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];
/// Lists that a strategic merge patch merges by a key. It replaces other lists.
const MERGED: [(&str, &str); 5] = [
    ("containers", "name"),
    ("volumes", "name"),
    ("volumeMounts", "mountPath"),
    ("env", "name"),
    ("ports", "containerPort"),
];

/// Builds the objects that `kubectl kustomize DIRECTORY` prints.
///
/// # Errors
/// When a file is missing, or uses an unsupported feature.
pub fn build(directory: &Path) -> Result<Vec<Value>> {
    accumulate(directory, "Kustomization", Vec::new())
}

/// Adds the resources of a kustomization to these objects, and changes all of them. A component is given the objects of its user.
fn accumulate(directory: &Path, kind: &str, mut objects: Vec<Value>) -> Result<Vec<Value>> {
    let file = directory.join("kustomization.yaml");
    let context = || format!("in {}", file.display());
    let mut kustomizations = documents::read(&file)?;
    let (Some(kustomization), true) = (kustomizations.pop(), kustomizations.is_empty()) else {
        bail!("{} is not one document", file.display());
    };
    let fields = kustomization.as_object().with_context(context)?;
    if let Some(unknown) = fields.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        bail!("{}: the field {unknown} is not supported; see {}", file.display(), file!());
    }
    if text(&kustomization, &["kind"]) != kind {
        bail!("{} is not of kind {kind}", file.display());
    }
    for resource in documents::list(&kustomization, &["resources"]) {
        let path = directory.join(resource.as_str().with_context(context)?);
        objects.extend(if path.is_dir() { build(&path)? } else { documents::read(&path)? });
    }
    for component in documents::list(&kustomization, &["components"]) {
        objects = accumulate(&directory.join(component.as_str().with_context(context)?), "Component", objects)?;
    }
    if let Some(namespace) = fields.get("namespace").and_then(Value::as_str) {
        for object in &mut objects {
            set_namespace(object, namespace);
        }
    }
    for patch in documents::list(&kustomization, &["patches"]) {
        let path = directory.join(text(patch, &["path"]));
        if patch.as_object().is_none_or(|patch| patch.len() != 1) || !path.is_file() {
            bail!("{}: only patches with nothing but a path are supported", file.display());
        }
        for patch in documents::read(&path)? {
            apply(&mut objects, &patch).with_context(|| format!("applying {}", path.display()))?;
        }
    }
    for image in documents::list(&kustomization, &["images"]) {
        objects.iter_mut().for_each(|object| set_image(object, image));
    }
    Ok(objects)
}

fn set_namespace(object: &mut Value, namespace: &str) {
    let kind = text(object, &["kind"]).to_owned();
    if !CLUSTER_WIDE.contains(&kind.as_str())
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
}

/// Replaces name and tag of every `image: NAME`.
fn set_image(value: &mut Value, image: &Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if key == "image" && value.as_str() == Some(text(image, &["name"])) {
                    *value = format!("{}:{}", text(image, &["newName"]), text(image, &["newTag"])).into();
                } else {
                    set_image(value, image);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| set_image(item, image)),
        _ => {}
    }
}

fn apply(objects: &mut [Value], patch: &Value) -> Result<()> {
    let is_it = |object: &&mut Value| name(object) == name(patch);
    let object = objects.iter_mut().find(is_it).with_context(|| format!("there is no {}", name(patch)))?;
    merge(object, patch)
}

fn merge(target: &mut Value, patch: &Value) -> Result<()> {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return Ok(()) };
    for (key, value) in patch {
        if key.starts_with('$') {
            bail!("the directive {key} is not supported");
        }
        let merge_key = MERGED.iter().find(|(list, _)| list == key).map(|(_, merge_key)| *merge_key);
        match (value, merge_key) {
            (Value::Null, _) => {
                fields.remove(key);
            }
            (Value::Array(items), Some(merge_key)) => {
                let list = fields.entry(key).or_insert_with(|| Value::Array(Vec::new()));
                merge_list(list, items, merge_key)?;
            }
            _ => merge(fields.entry(key).or_insert(Value::Null), value)?,
        }
    }
    Ok(())
}

fn merge_list(target: &mut Value, patch: &[Value], key: &str) -> Result<()> {
    let list = target.as_array_mut().context("the patch has a list for a field that is not a list")?;
    for item in patch {
        match list.iter_mut().find(|known| known.get(key) == item.get(key)) {
            Some(known) => merge(known, item)?,
            None => {
                let mut new = Value::Null;
                merge(&mut new, item)?;
                // kustomize inserts new items first.
                list.insert(0, new);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_merges_replaces_and_removes() {
        let mut object = json!({"kind": "DaemonSet", "metadata": {"name": "a"}, "spec": {
            "containers": [{"name": "x", "args": ["1"], "securityContext": {"capabilities": {"add": ["KILL"]}}}]}});
        let patch = json!({"kind": "DaemonSet", "metadata": {"name": "a"}, "spec": {
            "containers": [{"name": "x", "args": ["2"], "securityContext": {"capabilities": null, "privileged": true}}]}});
        apply(std::slice::from_mut(&mut object), &patch).unwrap();
        let container = json!({"name": "x", "args": ["2"], "securityContext": {"privileged": true}});
        assert_eq!(object["spec"]["containers"], json!([container]));
        let other = json!({"kind": "DaemonSet", "metadata": {"name": "b"}});
        assert!(apply(std::slice::from_mut(&mut object), &other).unwrap_err().to_string().contains("DaemonSet b"));
    }

    #[test]
    fn unsupported_features_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("kustomization.yaml"), "namePrefix: a-\n").unwrap();
        assert!(build(directory.path()).unwrap_err().to_string().contains("namePrefix"));
        std::fs::write(directory.path().join("kustomization.yaml"), "kind: Component\n").unwrap();
        assert!(build(directory.path()).unwrap_err().to_string().contains("is not of kind Kustomization"));
        let mut object = json!({});
        assert!(merge(&mut object, &json!({"$patch": "delete"})).is_err());
    }

    #[test]
    fn kubectl_builds_the_same() {
        let mut compared = 0;
        for directory in crate::kustomizations(&crate::root()).unwrap() {
            let Ok(output) = Command::new("kubectl").arg("kustomize").arg(&directory).output() else {
                println!("SKIPPED kubectl_builds_the_same: kubectl is not installed");
                return;
            };
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let mut theirs = documents::parse(&String::from_utf8(output.stdout).unwrap()).unwrap();
            let mut ours = build(&directory).unwrap();
            theirs.sort_by_key(name);
            ours.sort_by_key(name);
            assert_eq!(ours, theirs, "{}", directory.display());
            compared += ours.len();
        }
        assert!(compared > 0);
    }
}
