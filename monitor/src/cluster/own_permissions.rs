//! Asks the API server which of its permissions the agent lacks (`SelfSubjectAccessReview`, which every user may create).

use serde_json::{Value, json};

use crate::config::MonitorConfig;
use crate::config::kubernetes_options::{Authority, EvictionMethod};

use super::Access;
use super::permissions::{Component, PERMISSIONS, Permission, Scope, When};
use super::reviews::{create, is_allowed};

/// Returns the permissions that this configuration needs and the API server does not grant.
///
/// # Errors
/// When the API server cannot be asked.
pub async fn missing(access: &Access, config: &MonitorConfig) -> Result<Vec<&'static Permission>, String> {
    let client = access.client().await?;
    let mut missing = Vec::new();
    for permission in PERMISSIONS.iter().filter(|permission| is_needed(permission, config)) {
        let reviewed = create(
            &client,
            "authorization.k8s.io",
            "SelfSubjectAccessReview",
            spec(permission, client.default_namespace(), access.node_name()),
        )
        .await;
        if !is_allowed(&reviewed.map_err(|failure| failure.to_string())?) {
            missing.push(permission);
        }
    }
    Ok(missing)
}

/// Says in a sentence which permission is missing, and what follows.
pub fn sentence(permission: &Permission) -> String {
    let Permission { verb, resource, purpose, .. } = permission;
    let effect = match *resource {
        "pods/eviction" => {
            "soft evictions set the pod's status to Failed instead, and no disruption budget is asked".to_owned()
        }
        "leases" => format!("it is for {purpose}, and the sweeper takes this agent for dead"),
        _ => format!("it is for {purpose}"),
    };
    format!("API server: the agent may not {verb} {resource}: {effect}; apply the roles of config/kubernetes")
}

fn is_needed(permission: &Permission, config: &MonitorConfig) -> bool {
    let methods = config.kubernetes.evictions;
    let uses = |method| methods.hard == method || methods.soft == method;
    let has_conditions = config.kubernetes.conditions != Authority::Off;
    let is_in_use = match (permission.verb, permission.resource) {
        ("create", "pods/eviction") => uses(EvictionMethod::Evict),
        ("delete", "pods") => uses(EvictionMethod::Delete),
        ("create" | "patch", "events") => config.kubernetes.events,
        ("patch", "pods/status") | ("get", "pods") => {
            methods.hard != EvictionMethod::Off || methods.soft != EvictionMethod::Off
        }
        ("patch", "nodes/status") => has_conditions,
        ("get" | "patch", "nodes") => has_conditions && config.kubernetes.taints.effects.is_some(),
        _ => permission.when == When::Always || config.serving.token_review,
    };
    permission.component == Component::Agent && is_in_use
}

/// Returns the access as the agent needs it. The node authorizer grants a kubelet's identity the objects of its own node alone: the node by
/// its name, which the API server also takes from a field selector, and since Kubernetes 1.32 the pods by their field selector. Earlier
/// versions ignore the selector.
fn spec(permission: &Permission, namespace: &str, node: &str) -> Value {
    let Permission { verb, group, resource: path, scope, .. } = *permission;
    let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
    let namespace = if scope == Scope::Namespace { namespace } else { "" };
    let mut attributes = json!({"verb": verb, "group": group, "resource": resource, "subresource": subresource,
        "namespace": namespace});
    if matches!((verb, resource), (_, "nodes") | ("patch" | "delete", "leases")) {
        attributes["name"] = node.into();
    }
    let field = match (verb, resource) {
        ("list" | "watch", "pods") => Some("spec.nodeName"),
        ("list" | "watch", "nodes") => Some("metadata.name"),
        _ => None,
    };
    if let Some(field) = field {
        let requirement = json!({"key": field, "operator": "In", "values": [node]});
        attributes["fieldSelector"] = json!({"requirements": [requirement]});
    }
    json!({"resourceAttributes": attributes})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_decides_which_permissions_are_needed() {
        let mut config = MonitorConfig::default();
        let needs = |config: &MonitorConfig, verb: &str, resource: &str| {
            let of_agent =
                |it: &&Permission| it.component == Component::Agent && (it.verb, it.resource) == (verb, resource);
            is_needed(PERMISSIONS.iter().find(of_agent).unwrap(), config)
        };
        assert!(needs(&config, "patch", "pods/status") && needs(&config, "create", "pods/eviction"));
        assert!(!needs(&config, "delete", "pods") && !needs(&config, "create", "tokenreviews"));
        config.kubernetes.evictions.soft = EvictionMethod::Delete;
        config.serving.token_review = true;
        assert!(needs(&config, "delete", "pods") && !needs(&config, "create", "pods/eviction"));
        assert!(needs(&config, "create", "tokenreviews"));
        config.kubernetes.conditions = Authority::Off;
        assert!(!needs(&config, "patch", "nodes") && !needs(&config, "patch", "nodes/status"));
        assert!(needs(&config, "list", "nodes"));
    }

    #[test]
    fn a_subresource_is_a_field_of_its_own() {
        let eviction = PERMISSIONS.iter().find(|it| it.resource == "pods/eviction").unwrap();
        let attributes = &spec(eviction, "n", "node")["resourceAttributes"];
        assert_eq!((&attributes["resource"], &attributes["subresource"]), (&json!("pods"), &json!("eviction")));
        assert_eq!((&attributes["name"], &attributes["fieldSelector"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn an_access_is_that_to_the_own_node() {
        let node_of = |verb: &str, resource: &str| {
            let of_agent =
                |it: &&Permission| it.component == Component::Agent && (it.verb, it.resource) == (verb, resource);
            let spec = spec(PERMISSIONS.iter().find(of_agent).unwrap(), "n", "worker-1");
            let attributes = &spec["resourceAttributes"];
            (attributes["name"].clone(), attributes["fieldSelector"]["requirements"][0].clone())
        };
        let selected = |key: &str| json!({"key": key, "operator": "In", "values": ["worker-1"]});
        for verb in ["list", "watch"] {
            assert_eq!(node_of(verb, "pods"), (Value::Null, selected("spec.nodeName")));
            assert_eq!(node_of(verb, "nodes"), (json!("worker-1"), selected("metadata.name")));
        }
        for (verb, resource) in [("get", "nodes"), ("patch", "nodes"), ("patch", "nodes/status"), ("patch", "leases")] {
            assert_eq!(node_of(verb, resource), (json!("worker-1"), Value::Null), "{verb} {resource}");
        }
        assert_eq!(node_of("create", "leases"), (Value::Null, Value::Null), "a new object has no name yet");
    }
}
