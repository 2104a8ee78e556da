//! Checks fields and types of an object by the types that k8s-openapi generates from the Kubernetes API (1.36), and by our own schemas of
//! foreign kinds ([`foreign`]).

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, ResourceQuota, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::documents::text;
use crate::foreign;

/// Returns an object's unknown, mistyped and missing fields.
#[must_use]
pub fn check(object: &Value) -> Vec<String> {
    match (text(object, &["apiVersion"]), text(object, &["kind"])) {
        ("v1", "Namespace") => by_type::<Namespace>(object),
        ("v1", "ServiceAccount") => by_type::<ServiceAccount>(object),
        ("v1", "ConfigMap") => by_type::<ConfigMap>(object),
        ("v1", "ResourceQuota") => by_type::<ResourceQuota>(object),
        ("v1", "Service") => by_type::<Service>(object),
        ("apps/v1", "DaemonSet") => by_type::<DaemonSet>(object),
        ("apps/v1", "Deployment") => by_type::<Deployment>(object),
        ("v1", "PersistentVolumeClaim") => by_type::<PersistentVolumeClaim>(object),
        ("batch/v1", "CronJob") => by_type::<CronJob>(object),
        ("batch/v1", "Job") => by_type::<Job>(object),
        ("networking.k8s.io/v1", "NetworkPolicy") => by_type::<NetworkPolicy>(object),
        ("rbac.authorization.k8s.io/v1", "Role") => by_type::<Role>(object),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => by_type::<RoleBinding>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => by_type::<ClusterRole>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => by_type::<ClusterRoleBinding>(object),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy") => {
            by_type::<ValidatingAdmissionPolicy>(object)
        }
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding") => {
            by_type::<ValidatingAdmissionPolicyBinding>(object)
        }
        (version, kind) => foreign::check(version, kind, object)
            .unwrap_or_else(|| vec![format!("there is no schema for {version} {kind}: see {}", file!())]),
    }
}

/// Checks an object against a generated type.
fn by_type<T: DeserializeOwned + Serialize>(object: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let ignored =
        |path: serde_ignored::Path<'_>| problems.push(format!("unknown field {}", path.to_string().replace(".?", "")));
    let read: T = match serde_ignored::deserialize(object, ignored) {
        Ok(read) => read,
        Err(error) => return vec![error.to_string()],
    };
    match serde_json::to_value(read) {
        Ok(written) => missing(object, &written, "", &mut problems),
        Err(error) => problems.push(error.to_string()),
    }
    problems
}

/// Finds missing fields. The generated types replace a missing required field by an empty one, so it appears only after reading.
fn missing(object: &Value, written: &Value, path: &str, problems: &mut Vec<String>) {
    match (object, written) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in after {
                match before.get(key) {
                    Some(before) => missing(before, value, &format!("{path}.{key}"), problems),
                    None if path.is_empty() && key == "metadata" => {}
                    None => problems.push(format!("missing field {}", format!("{path}.{key}").trim_start_matches('.'))),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                missing(before, after, &format!("{path}[{index}]"), problems);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn daemon_set() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "x", "image": "i"}]}}}})
    }

    #[test]
    fn a_complete_object_has_no_problems() {
        assert_eq!(check(&daemon_set()), [""; 0]);
    }

    #[test]
    fn misspelt_mistyped_and_missing_fields_are_named() {
        let mut object = daemon_set();
        object["spec"]["template"]["spec"]["hostPid"] = json!(true);
        assert_eq!(check(&object), ["unknown field spec.template.spec.hostPid"]);

        let mut object = daemon_set();
        object["spec"]["template"]["spec"]["hostPID"] = json!("yes");
        assert!(check(&object)[0].contains("expected a boolean"), "{:?}", check(&object));

        let mut object = daemon_set();
        object["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap().remove("name");
        assert_eq!(check(&object), ["missing field spec.template.spec.containers[0].name"]);

        let mut object = daemon_set();
        object["spec"].as_object_mut().unwrap().remove("selector");
        assert_eq!(check(&object), ["missing field spec.selector"]);
    }

    #[test]
    fn a_kind_without_a_schema_is_a_problem() {
        assert!(check(&json!({"apiVersion": "v1", "kind": "Podd"}))[0].contains("no schema for v1 Podd"));
    }
}
