//! Checks that the roles grant exactly the permissions that the code needs, by the API server's rules.

use serde_json::Value;

use node_pressure_monitor::cluster::permissions::{Component, PERMISSIONS, Permission, Scope, When};
use node_pressure_monitor::config::{Mode, MonitorConfig};

use crate::documents::{list, text};
use crate::program::KEY;

/// The rights of a service account.
#[derive(Debug, Clone, Default)]
pub struct Rights {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    scope: Scope,
    /// That of the role; empty for a cluster role.
    namespace: String,
    groups: Vec<String>,
    resources: Vec<String>,
    /// The only objects; empty: all.
    names: Vec<String>,
    verbs: Vec<String>,
}

impl Rights {
    /// Collects the rights from the bindings and roles among the objects.
    #[must_use]
    pub fn of(service_account: &str, objects: &[Value]) -> Self {
        let is_bound = |binding: &&Value| {
            let is_subject = |subject: &Value| {
                text(subject, &["kind"]) == "ServiceAccount" && text(subject, &["name"]) == service_account
            };
            text(binding, &["kind"]).ends_with("RoleBinding") && list(binding, &["subjects"]).iter().any(is_subject)
        };
        let mut rules = Vec::new();
        for binding in objects.iter().filter(is_bound) {
            let is_role = |object: &&Value| {
                ["kind", "name"].map(|key| text(binding, &["roleRef", key]))
                    == [text(object, &["kind"]), text(object, &["metadata", "name"])]
            };
            for role in objects.iter().filter(is_role) {
                let scope = match text(binding, &["kind"]) {
                    "ClusterRoleBinding" => Scope::Cluster,
                    _ => Scope::Namespace,
                };
                let namespace = text(role, &["metadata", "namespace"]);
                rules.extend(list(role, &["rules"]).iter().map(|rule| Rule::read(rule, scope, namespace)));
            }
        }
        Self { rules }
    }

    /// Returns whether the verb is granted. A slash separates a resource from its subresource.
    #[must_use]
    pub fn allow(&self, verb: &str, group: &str, resource: &str, scope: Scope) -> bool {
        let has = |names: &[String], wanted: &str| names.iter().any(|name| name == wanted || name == "*");
        let mut in_scope = self.rules.iter().filter(|rule| rule.scope == scope);
        in_scope.any(|rule| has(&rule.verbs, verb) && has(&rule.groups, group) && has(&rule.resources, resource))
    }

    /// Describes the rights in the words of the table in SECURITY.md: `nodes: get, list; leases in NAMESPACE: create`.
    #[must_use]
    pub fn describe(&self) -> String {
        let each = self.rules.iter().flat_map(|rule| {
            rule.resources.iter().map(|resource| {
                let names: String = rule.names.iter().map(|name| format!(" `{name}`")).collect();
                let place = if rule.namespace.is_empty() { String::new() } else { format!(" in `{}`", rule.namespace) };
                format!("{resource}{names}{place}: {}", rule.verbs.join(", "))
            })
        });
        each.collect::<Vec<_>>().join("; ")
    }

    /// Lists each granted verb on each resource.
    fn grants(&self) -> impl Iterator<Item = (&str, &str, &str, Scope)> {
        self.rules.iter().flat_map(|rule| {
            rule.groups.iter().flat_map(move |group| {
                rule.resources.iter().flat_map(move |resource| {
                    rule.verbs.iter().map(move |verb| (verb.as_str(), group.as_str(), resource.as_str(), rule.scope))
                })
            })
        })
    }
}

impl Rule {
    fn read(rule: &Value, scope: Scope, namespace: &str) -> Self {
        let texts = |key| list(rule, &[key]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Self {
            scope,
            namespace: namespace.to_owned(),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            verbs: texts("verbs"),
        }
    }
}

/// Returns the rights that are granted but not needed, and those needed but not granted.
#[must_use]
pub fn check(objects: &[Value]) -> Vec<String> {
    let mut problems = Vec::new();
    let is_asked = |permission: &&Permission| match permission.when {
        When::Always => true,
        When::Enforcing => has_configuration(objects, |config| config.strictest_mode() == Mode::Enforce),
        When::TokenReview => has_configuration(objects, |config| config.serving.token_review),
    };
    let has_account = |component: &Component| {
        let is_it = |object: &Value| {
            text(object, &["kind"]) == "ServiceAccount"
                && text(object, &["metadata", "name"]) == component.service_account()
        };
        objects.iter().any(is_it)
    };
    let is_bound = |component: &Component| !Rights::of(component.service_account(), objects).rules.is_empty();
    for component in Component::ALL.into_iter().filter(|component| has_account(component) || is_bound(component)) {
        let account = component.service_account();
        let rights = Rights::of(account, objects);
        let asks = || PERMISSIONS.iter().filter(|permission| permission.component == component).filter(is_asked);
        for Permission { verb, group, resource, purpose, scope, .. } in asks() {
            if !rights.allow(verb, group, resource, *scope) {
                problems.push(format!(
                    "ServiceAccount {account}: {verb} {} is not granted; the code needs it: {purpose}",
                    shown(group, resource)
                ));
            }
        }
        for (verb, group, resource, scope) in rights.grants() {
            if !asks().any(|it| (it.verb, it.group, it.resource, it.scope) == (verb, group, resource, scope)) {
                let place = if scope == Scope::Cluster { "cluster" } else { "namespace" };
                problems.push(format!(
                    "ServiceAccount {account}: {verb} {} is granted in the {place}, but monitor/src/cluster/permissions.rs does not list it",
                    shown(group, resource)
                ));
            }
        }
    }
    problems
}

/// Returns whether a configuration among the objects is such.
fn has_configuration(objects: &[Value], is_such: impl Fn(&MonitorConfig) -> bool) -> bool {
    let configurations = objects.iter().map(|object| text(object, &["data", KEY])).filter(|text| !text.is_empty());
    configurations.filter_map(|text| MonitorConfig::parse(KEY, text).ok()).any(|read| is_such(&read.config))
}

fn shown(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects(verbs: &[&str]) -> [Value; 2] {
        [
            json!({"kind": "ClusterRole", "metadata": {"name": "r"},
                   "rules": [{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": verbs}]}),
            json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b"},
                   "roleRef": {"kind": "ClusterRole", "name": "r"},
                   "subjects": [{"kind": "ServiceAccount", "name": "node-pressure-monitor", "namespace": "n"}]}),
        ]
    }

    #[test]
    fn a_subresource_needs_its_own_right() {
        let objects = objects(&["patch"]);
        let rights = Rights::of("node-pressure-monitor", &objects);
        assert!(rights.allow("patch", "", "pods/status", Scope::Cluster));
        assert!(!rights.allow("patch", "", "pods/eviction", Scope::Cluster));
        assert!(!rights.allow("delete", "", "pods", Scope::Cluster));
        assert!(!rights.allow("patch", "apps", "pods", Scope::Cluster));
        assert!(!Rights::of("other", &objects).allow("patch", "", "pods", Scope::Cluster));
    }

    #[test]
    fn excess_and_missing_rights_are_reported() {
        let mut objects = objects(&["deletecollection"]).to_vec();
        objects.extend(
            Component::ALL
                .map(|component| json!({"kind": "ServiceAccount", "metadata": {"name": component.service_account()}})),
        );
        let observing = check(&objects);
        assert!(!observing.iter().any(|problem| problem.contains("delete pods")), "{observing:?}");
        let enforcing = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nmode: enforce\n";
        objects.push(json!({"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {KEY: enforcing}}));
        let problems = check(&objects);
        let has = |text: &str| problems.iter().any(|problem| problem.contains(text));
        assert!(has("node-pressure-monitor: deletecollection pods is granted in the cluster, but"), "{problems:?}");
        assert!(has("node-pressure-monitor: delete pods is not granted"), "{problems:?}");
        assert!(has("node-pressure-monitor-sweeper: patch nodes/status is not granted"), "{problems:?}");
    }
}
