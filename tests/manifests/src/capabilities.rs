//! Checks that the manifests agree on the agent's capabilities, and grant those that the program needs.

use std::collections::BTreeSet;

use serde_json::Value;

use node_pressure_monitor::commands::doctor;

use crate::documents::{at, list, name, text};

/// Returns the capabilities of the agent's container, by the kernel's names.
#[must_use]
pub fn of_agent(objects: &[Value]) -> BTreeSet<String> {
    let daemon_sets = objects.iter().filter(|object| text(object, &["kind"]) == "DaemonSet");
    daemon_sets
        .flat_map(|daemon_set| list(daemon_set, &["spec", "template", "spec", "containers"]))
        .flat_map(|container| texts(container, &["securityContext", "capabilities", "add"]))
        .collect()
}

/// Returns the problems with capabilities.
#[must_use]
pub fn check(objects: &[Value]) -> Vec<String> {
    let agent = of_agent(objects);
    let mut problems = Vec::new();
    for object in objects {
        match text(object, &["kind"]) {
            "DaemonSet" => {
                let containers = list(object, &["spec", "template", "spec", "containers"]);
                let is_privileged = |container: &Value| {
                    at(container, &["securityContext", "privileged"]).and_then(Value::as_bool) == Some(true)
                };
                // A privileged container has all capabilities.
                if !containers.iter().any(is_privileged) {
                    let missing = doctor::capability_names().filter(|name| !agent.contains(*name));
                    problems.extend(missing.map(|capability| format!("{}: lacks {capability}", name(object))));
                }
            }
            "SecurityContextConstraints" => {
                let allowed: BTreeSet<String> = texts(object, &["allowedCapabilities"]).collect();
                for capability in allowed.symmetric_difference(&agent) {
                    problems.push(format!("{}: {capability} is not both allowed and requested", name(object)));
                }
            }
            _ => {}
        }
    }
    problems
}

fn texts<'a>(object: &'a Value, keys: &[&str]) -> impl Iterator<Item = String> + use<'a> {
    list(object, keys).iter().filter_map(Value::as_str).map(|name| format!("CAP_{name}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_and_forbidden_capabilities_are_reported() {
        let container = json!({"securityContext": {"capabilities": {"add": ["BPF", "CHOWN"]}}});
        let objects = [
            json!({"kind": "DaemonSet", "metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": [container]}}}}),
            json!({"kind": "SecurityContextConstraints", "metadata": {"name": "b"}, "allowedCapabilities": ["BPF"]}),
        ];
        let problems = check(&objects);
        assert!(problems.contains(&"DaemonSet a: lacks CAP_KILL".to_owned()), "{problems:?}");
        assert!(!problems.contains(&"DaemonSet a: lacks CAP_BPF".to_owned()), "{problems:?}");
        assert!(
            problems.contains(&"SecurityContextConstraints b: CAP_CHOWN is not both allowed and requested".to_owned())
        );
    }
}
