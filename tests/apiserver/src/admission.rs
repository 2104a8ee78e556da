//! Admission of objects of certain kinds: sets defaults, priorities and taints, and refuses invalid objects.

use serde_json::{Value, json};

use crate::answer::Failure;
use crate::object::{has, new_uid, text};
use crate::resource::Resource;
use crate::store::{Key, Store};

/// The priority classes that every cluster has.
const BUILT_IN: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
/// The highest priority that kube-apiserver allows to other classes than the built-in ones.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

/// Admits a new object.
pub fn new_object(store: &Store, resource: &Resource, object: &mut Value) -> Result<(), Failure> {
    let namespace = text(object, "/metadata/namespace").to_owned();
    if resource.namespaced {
        namespace_exists(store, &namespace)?;
    }
    match resource.plural {
        "pods" => new_pod(store, resource, object),
        "nodes" => {
            new_node(object);
            Ok(())
        }
        "events" => event(resource, object),
        "namespaces" => {
            object["status"] = json!({"phase": "Active"});
            Ok(())
        }
        "poddisruptionbudgets" => {
            // The server does not count the budget's pods: the budget allows no eviction until the controller sets a status.
            object["status"] =
                json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Admits a changed object.
pub fn changed_object(resource: &Resource, part: &str, before: &Value, after: &Value) -> Result<(), Failure> {
    match resource.plural {
        "pods" if part.is_empty() => changed_pod(resource, before, after),
        "events" => event(resource, after),
        _ => Ok(()),
    }
}

fn namespace_exists(store: &Store, namespace: &str) -> Result<(), Failure> {
    let Some(namespaces) = crate::resource::named("namespaces") else { return Ok(()) };
    match store.get(&Key::new(namespaces, "", namespace)) {
        None => Err(Failure::not_found(namespaces, namespace)),
        Some(found) if has(&found, "/metadata/deletionTimestamp") => {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            Err(Failure::forbidden(namespaces, namespace, &why))
        }
        Some(_) => Ok(()),
    }
}

fn new_pod(store: &Store, resource: &Resource, pod: &mut Value) -> Result<(), Failure> {
    let name = text(pod, "/metadata/name").to_owned();
    if !has(pod, "/spec/containers") {
        return Err(Failure::invalid(resource, &name, "FieldValueRequired", "spec.containers", "Required value"));
    }
    let class = text(pod, "/spec/priorityClassName").to_owned();
    let built_in = BUILT_IN.iter().find(|(name, _)| *name == class).map(|(_, value)| *value);
    let of_class = || {
        let classes = crate::resource::named("priorityclasses")?;
        store.get(&Key::new(classes, "", &class))?["value"].as_i64().map(|value| value.min(HIGHEST_USER_PRIORITY))
    };
    let priority = match built_in {
        Some(value) => value,
        None if class.is_empty() => 0,
        None => of_class().ok_or_else(|| {
            Failure::forbidden(resource, &name, &format!("no PriorityClass with name {class} was found"))
        })?,
    };
    if let Some(given) = pod.pointer("/spec/priority").and_then(Value::as_i64)
        && given != priority
    {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        );
        return Err(Failure::forbidden(resource, &name, &why));
    }
    let spec = &mut pod["spec"];
    default_containers(spec);
    mount_token(spec);
    let qos = qos_class(spec);
    spec["priority"] = json!(priority);
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("serviceAccountName", json!("default")),
        ("serviceAccount", json!("default")),
        ("enableServiceLinks", json!(true)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("securityContext", json!({})),
        ("tolerations", default_tolerations()),
    ] {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
    pod["status"] = json!({"phase": "Pending", "qosClass": qos});
    Ok(())
}

/// Sets the defaults of every container. A limit without a request is also the request.
fn default_containers(spec: &mut Value) {
    for field in ["containers", "initContainers"] {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            let latest = !text(container, "/image").contains(':') || text(container, "/image").ends_with(":latest");
            let pull = if latest { "Always" } else { "IfNotPresent" };
            for (field, value) in [
                ("imagePullPolicy", json!(pull)),
                ("resources", json!({})),
                ("terminationMessagePath", json!("/dev/termination-log")),
                ("terminationMessagePolicy", json!("File")),
            ] {
                if container[field].is_null() {
                    container[field] = value;
                }
            }
            for (what, amount) in container["resources"]["limits"].as_object().cloned().unwrap_or_default() {
                if container["resources"]["requests"][&what].is_null() {
                    container["resources"]["requests"][what] = amount;
                }
            }
        }
    }
}

/// Mounts a token into every container, unless the pod opts out, like the admission plugin ServiceAccount.
fn mount_token(spec: &mut Value) {
    const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    if spec["automountServiceAccountToken"] == false {
        return;
    }
    let name = format!("kube-api-access-{}", &new_uid()[..5]);
    for field in ["containers", "initContainers"] {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            push(container, "volumeMounts", json!({"name": name, "readOnly": true, "mountPath": MOUNT}));
        }
    }
    let authority = json!({"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]});
    let field = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    let sources = json!([
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": authority},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
    ]);
    push(spec, "volumes", json!({"name": name, "projected": {"defaultMode": 420, "sources": sources}}));
}

fn push(object: &mut Value, list: &str, item: Value) {
    match object.get_mut(list).and_then(Value::as_array_mut) {
        Some(items) => items.push(item),
        None => object[list] = json!([item]),
    }
}

fn default_tolerations() -> Value {
    let toleration = |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    json!([toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")])
}

/// Returns the QoS class. Guaranteed: each container limits CPU and memory and requests as much. BestEffort: no requests and no limits.
fn qos_class(spec: &Value) -> &'static str {
    let containers = |field: &str| spec[field].as_array().into_iter().flatten();
    let all: Vec<&Value> = containers("containers").chain(containers("initContainers")).collect();
    let amount = |container: &Value, which: &str, what: &str| {
        container.pointer(&format!("/resources/{which}/{what}")).filter(|amount| **amount != json!("0")).cloned()
    };
    let mut any = false;
    let mut guaranteed = true;
    for container in all {
        for what in ["cpu", "memory"] {
            let (request, limit) = (amount(container, "requests", what), amount(container, "limits", what));
            any |= request.is_some() || limit.is_some();
            // An absent request equals the limit.
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Refuses changes of a pod's specification, except of a few fields.
fn changed_pod(resource: &Resource, before: &Value, after: &Value) -> Result<(), Failure> {
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for field in ["containers", "initContainers"] {
            for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
                container["image"] = Value::Null;
            }
        }
        for field in ["tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "schedulingGates"] {
            spec[field] = Value::Null;
        }
        spec
    };
    if fixed(before) == fixed(after) {
        return Ok(());
    }
    let what = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
                `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously \
                negative)";
    Err(Failure::invalid(resource, text(after, "/metadata/name"), "FieldValueForbidden", "spec", what))
}

/// Taints a new node as not ready until the node controller removes the taint, like the admission plugin TaintNodesByCondition.
fn new_node(node: &mut Value) {
    const NOT_READY: &str = "node.kubernetes.io/not-ready";
    if !node["spec"].is_object() {
        node["spec"] = json!({});
    }
    if !node["status"].is_object() {
        node["status"] = json!({});
    }
    let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
    match node.pointer_mut("/spec/taints").and_then(Value::as_array_mut) {
        Some(taints) if taints.iter().any(|taint| taint["key"] == NOT_READY) => {}
        Some(taints) => taints.push(taint),
        None => node["spec"]["taints"] = json!([taint]),
    }
}

/// Refuses an event outside the namespace of its object; events of objects without a namespace belong to `default`.
fn event(resource: &Resource, event: &Value) -> Result<(), Failure> {
    let (own, about) = (text(event, "/metadata/namespace"), text(event, "/involvedObject/namespace"));
    if own == about || (about.is_empty() && own == "default") {
        return Ok(());
    }
    let what = format!("Invalid value: \"{about}\": does not match event.namespace");
    let name = text(event, "/metadata/name");
    Err(Failure::invalid(resource, name, "FieldValueInvalid", "involvedObject.namespace", &what))
}
