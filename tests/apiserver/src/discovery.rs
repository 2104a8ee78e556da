//! Discovery of the served APIs.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::{Value, json};

use crate::answer::{Reply, json as reply, text};
use crate::resource::RESOURCES;

/// Answers paths that are not objects.
pub(crate) fn answer(path: &str) -> Reply {
    let pieces: Vec<&str> = path.trim_matches('/').split('/').collect();
    let answer = match pieces.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => return text(StatusCode::OK, "ok"),
        ["version"] => json!({
            "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "gitVersion": "v1.36.2-test",
            "gitCommit": "", "gitTreeState": "clean", "buildDate": "2026-11-21T00:00:00Z", "goVersion": "",
            "compiler": "rustc", "platform": "linux/amd64",
        }),
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ["apis"] => groups(),
        ["api", version] => resources("", version),
        ["apis", group, version] => resources(group, version),
        _ => Value::Null,
    };
    if answer.is_null() { text(StatusCode::NOT_FOUND, "404 page not found\n") } else { reply(StatusCode::OK, &answer) }
}

fn groups() -> Value {
    let served: BTreeMap<&str, &str> =
        RESOURCES.iter().filter(|one| !one.group.is_empty()).map(|one| (one.group, one.version)).collect();
    let groups: Vec<Value> = served
        .into_iter()
        .map(|(group, version)| {
            let version = json!({"groupVersion": format!("{group}/{version}"), "version": version});
            json!({"name": group, "versions": [version], "preferredVersion": version})
        })
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn resources(group: &str, version: &str) -> Value {
    let mut list = Vec::new();
    let mut api_version = String::new();
    for one in RESOURCES.iter().filter(|one| one.group == group && one.version == version) {
        api_version = one.api_version();
        let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        let entry = |name: String, verbs: &[&str]| {
            json!({
                "name": name, "singularName": one.kind.to_lowercase(), "namespaced": one.namespaced, "kind": one.kind,
                "verbs": verbs,
            })
        };
        list.push(entry(one.plural.to_owned(), &verbs));
        if one.plural == "pods" {
            list.push(json!({
                "name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1",
                "kind": "Eviction", "verbs": ["create"],
            }));
        }
        if one.status {
            list.push(entry(format!("{}/status", one.plural), &["get", "patch", "update"]));
        }
    }
    if list.is_empty() {
        return Value::Null;
    }
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": list})
}
