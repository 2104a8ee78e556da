//! Reads the repository's manifests.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::translation::items;
use crate::init::MANIFESTS;

/// Returns every object of the variant `base`, with its images renamed, and with the rights to enforce.
pub fn objects() -> Result<Vec<Value>> {
    let directory = Path::new(MANIFESTS);
    let mut objects = objects_in(&directory.join("base"))?;
    for patch in read(&directory.join("enforce/permissions.yaml"))? {
        let is_it = |object: &&mut Value| is_called(object, &patch["kind"], &patch["metadata"]["name"]);
        objects.iter_mut().filter(is_it).for_each(|object| object["rules"] = patch["rules"].clone());
    }
    Ok(objects)
}

fn is_called(object: &Value, kind: &Value, name: &Value) -> bool {
    object["kind"] == *kind && object["metadata"]["name"] == *name
}

fn objects_in(directory: &Path) -> Result<Vec<Value>> {
    let [kustomization] = &read(&directory.join("kustomization.yaml"))?[..] else {
        anyhow::bail!("one kustomization was expected in {}", directory.display())
    };
    let mut objects = Vec::new();
    for resource in items(&kustomization["resources"]) {
        let path = directory.join(resource.as_str().with_context(|| format!("resource {resource}"))?);
        objects.extend(if path.is_dir() { objects_in(&path)? } else { read(&path)? });
    }
    for component in items(&kustomization["components"]) {
        let path = directory.join(component.as_str().with_context(|| format!("component {component}"))?);
        for component in read(&path.join("kustomization.yaml"))? {
            for image in items(&component["images"]) {
                objects.iter_mut().for_each(|object| rename_images(object, image));
            }
        }
    }
    Ok(objects)
}

/// Returns the object with this kind and name.
pub fn find<'o>(objects: &'o [Value], kind: &str, name: &str) -> Result<&'o Value> {
    objects
        .iter()
        .find(|object| is_called(object, &kind.into(), &name.into()))
        .with_context(|| format!("the manifests have no {kind} {name}"))
}

fn read(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    parse(&text).with_context(|| format!("parse {}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Renames images as kustomize's field `images` does.
fn rename_images(object: &mut Value, image: &Value) {
    let containers = object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten().filter(|container| container["image"] == image["name"]) {
        let part = |field: &str| image[field].as_str().unwrap_or_default();
        container["image"] = Value::from(format!("{}:{}", part("newName"), part("newTag")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_documents_and_their_images() {
        let text =
            "# of both\nkind: A\n---\nkind: B\nspec: {template: {spec: {containers: [{image: x}, {image: z}]}}}\n";
        let mut objects = parse(text).unwrap();
        assert_eq!(objects.len(), 2);
        let image = serde_json::json!({"name": "x", "newName": "localhost/x", "newTag": "0.1.0"});
        rename_images(&mut objects[1], &image);
        let containers = &objects[1]["spec"]["template"]["spec"]["containers"];
        assert_eq!((&containers[0]["image"], &containers[1]["image"]), (&"localhost/x:0.1.0".into(), &"z".into()));
    }

    #[test]
    fn the_images_name_comes_from_the_component() {
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/kubernetes/base");
        let objects = objects_in(&base).unwrap();
        let daemon_set = find(&objects, "DaemonSet", "node-pressure-monitor").unwrap();
        let image = daemon_set["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap();
        assert_eq!(image, format!("localhost/node-pressure-monitor:{}", env!("CARGO_PKG_VERSION")));
    }
}
