//! Asks the API server which of its permissions the agent lacks (`SelfSubjectAccessReview`, which every user may create).

use serde_json::{Value, json};

use crate::config::kubernetes_options::{Authority, EvictionMethod};
use crate::config::{Mode, MonitorConfig};

use super::Access;
use super::permissions::{Component, PERMISSIONS, Permission, Scope, When};
use super::reviews::{create, is_allowed};

/// The permissions that the API server does not grant.
#[derive(Debug, Default)]
pub struct Missing {
    /// What this configuration needs.
    pub now: Vec<&'static Permission>,
    /// What it would need with `mode: enforce`, and does not yet.
    pub to_enforce: Vec<&'static Permission>,
}

/// Asks for the permissions that this configuration needs, or would need if it enforced.
///
/// # Errors
/// When the API server cannot be asked.
pub async fn missing(access: &Access, config: &MonitorConfig) -> Result<Missing, String> {
    let client = access.client().await?;
    let mut missing = Missing::default();
    for permission in PERMISSIONS.iter().filter(|permission| is_needed(permission, config)) {
        let reviewed = create(
            &client,
            "authorization.k8s.io",
            "SelfSubjectAccessReview",
            spec(permission, client.default_namespace(), access.node_name()),
        )
        .await;
        if !is_allowed(&reviewed.map_err(|failure| failure.to_string())?) {
            let is_later = permission.when == When::Enforcing && config.mode == Mode::Observe;
            if is_later { missing.to_enforce.push(permission) } else { missing.now.push(permission) }
        }
    }
    Ok(missing)
}

/// Says in a sentence which permission is missing, and what follows.
pub fn sentence(permission: &Permission) -> String {
    let Permission { verb, resource, purpose, when, .. } = permission;
    let effect = match *resource {
        "pods/eviction" => "the API server refuses each soft eviction, and its pod stays".to_owned(),
        "leases" => format!("it is for {purpose}, and the sweeper takes this agent for dead"),
        _ => format!("it is for {purpose}"),
    };
    let mend = if *when == When::Enforcing { ENFORCE } else { "apply the roles of config/kubernetes" };
    format!("API server: the agent may not {verb} {resource}: {effect}; {mend}")
}

/// Says in a sentence which permissions an agent that observes lacks to enforce, and for which step; none: it lacks none.
pub fn sentence_to_enforce(missing: &[&Permission]) -> Option<String> {
    let steps =
        missing.iter().map(|Permission { verb, resource, purpose, .. }| format!("{verb} {resource} ({purpose})"));
    let steps = steps.collect::<Vec<_>>().join(", ");
    (!missing.is_empty()).then(|| {
        format!("API server: with mode: enforce the agent would also have to {steps}, and may not; before you set it, {ENFORCE}")
    })
}

/// What grants the permissions of an agent that enforces.
const ENFORCE: &str =
    "apply config/kubernetes/first or instead, or add the component config/kubernetes/enforce (Helm: evict)";

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
        ("patch", "nodes/status") | ("get", "nodes") => has_conditions,
        ("patch", "nodes") => has_conditions && config.kubernetes.taints.effects.is_some(),
        _ => permission.when != When::TokenReview || config.serving.token_review,
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
    fn a_step_of_an_eviction_names_its_right() {
        assert_eq!(sentence_to_enforce(&[]), None);
        let later: Vec<&Permission> = PERMISSIONS.iter().filter(|it| it.when == When::Enforcing).collect();
        let sentence = sentence_to_enforce(&later).unwrap();
        for permission in later {
            let step = format!("{} {} ({})", permission.verb, permission.resource, permission.purpose);
            assert!(sentence.contains(&step), "{sentence}");
        }
        assert!(sentence.contains("config/kubernetes/enforce"), "{sentence}");
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
