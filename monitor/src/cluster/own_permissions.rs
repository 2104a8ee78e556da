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
            spec(permission, client.default_namespace()),
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
        ("get" | "patch", "nodes") => has_conditions && config.kubernetes.taints.effect.is_some(),
        _ => permission.when == When::Always || config.serving.token_review,
    };
    permission.component == Component::Agent && is_in_use
}

fn spec(permission: &Permission, namespace: &str) -> Value {
    let Permission { verb, group, resource, scope, .. } = *permission;
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let namespace = if scope == Scope::Namespace { namespace } else { "" };
    json!({"resourceAttributes": {"verb": verb, "group": group, "resource": resource, "subresource": subresource,
        "namespace": namespace}})
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
        let attributes = &spec(eviction, "n")["resourceAttributes"];
        assert_eq!((&attributes["resource"], &attributes["subresource"]), (&json!("pods"), &json!("eviction")));
    }
}
