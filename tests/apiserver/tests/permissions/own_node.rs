//! The admission policies of config/kubernetes/own-node, with the token that a kubelet requests for an agent's pod.

use std::time::Instant;

use http::Method;
use kube::Client;
use node_pressure_apiserver::stage::{AGENTS, Stage, lease_path, path};
use node_pressure_manifests::{kustomize, root};
use node_pressure_monitor::cluster::own_node_policy::{self, OwnNodePolicy};
use node_pressure_monitor::cluster::{Access, Cluster, permissions::Component};
use node_pressure_monitor::config::KubernetesOptions;
use node_pressure_monitor::config::kubernetes_options::EvictionMethod;
use serde_json::{Map, Value, json};

use super::sweeper_policy::is_of_sweeper;
use super::{SOON, evict, intent, make_every_request};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const OWN_ANNOTATION: &str = "node-pressure-monitor/status-written-at";

/// A request that the agent must not be able to make.
pub(super) struct Forbidden {
    what: &'static str,
    method: Method,
    path: String,
    content_type: &'static str,
    body: Value,
    /// Part of the policy's message.
    message: &'static str,
}

impl Forbidden {
    /// Sends the request as a dry run; returns status and message.
    pub(super) async fn send(&self, stage: &Stage, client: &Client) -> (u16, String) {
        let Self { method, path, content_type, body, .. } = self;
        let (path, body) = (format!("{path}?dryRun=All"), body.to_string());
        let (status, answer) = stage.ask_with(client, method.clone(), &path, content_type, body).await.unwrap();
        (status, answer["message"].as_str().unwrap_or_default().to_owned())
    }
}

pub(super) fn patch(what: &'static str, path: &str, body: Value, message: &'static str) -> Forbidden {
    Forbidden { what, method: Method::PATCH, path: path.to_owned(), content_type: STRATEGIC, body, message }
}

/// Like [`patch`], but replaces lists.
pub(super) fn replace(what: &'static str, path: &str, body: Value, message: &'static str) -> Forbidden {
    Forbidden { content_type: MERGE, ..patch(what, path, body, message) }
}

fn post(what: &'static str, path: &str, body: Value, message: &'static str) -> Forbidden {
    Forbidden { method: Method::POST, content_type: JSON, ..patch(what, path, body, message) }
}

fn delete(what: &'static str, path: &str, message: &'static str) -> Forbidden {
    // A body takes precedence over the query.
    let dry_run = json!({"dryRun": ["All"]});
    Forbidden { method: Method::DELETE, content_type: JSON, ..patch(what, path, dry_run, message) }
}

/// The objects besides the stage's own node: another node, and a pod on each.
struct Scene<'s> {
    stage: &'s Stage,
    other: String,
    agent_pod: String,
}

impl<'s> Scene<'s> {
    async fn of(stage: &'s Stage) -> Self {
        let [other, agent_pod] = ["other", "agent"].map(|name| format!("{name}-{}", stage.node));
        let scene = Self { stage, other, agent_pod };
        stage.create("/api/v1/nodes", json!({"metadata": {"name": scene.other}})).await.unwrap();
        let taints = json!([{"key": "dedicated", "value": "a", "effect": "NoSchedule"}]);
        let annotations = json!({"annotations": {"there": "before"}});
        stage.patch(&stage.node_path(), json!({"metadata": annotations, "spec": {"taints": taints}})).await.unwrap();
        let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady"}]);
        let status = json!({"status": {"capacity": {"cpu": "4"}, "conditions": ready}});
        stage.patch(&format!("{}/status", stage.node_path()), status).await.unwrap();
        stage.running_pod("here", annotations, Value::Null).await.unwrap();
        stage.running_pod("elsewhere", Value::Null, json!({"nodeName": scene.other})).await.unwrap();
        scene
    }

    /// Makes the agent's account with its roles and its pod; returns the token that a kubelet would give to the pod.
    async fn token(&self) -> String {
        let name = Component::Agent.service_account();
        for object in kustomize::build(&root().join("config/kubernetes/first")).unwrap() {
            let is_account = object["kind"] == "ServiceAccount" || object["kind"].as_str().unwrap().contains("Role");
            if is_account && object["metadata"]["name"] == name {
                self.stage.apply(&object).await.unwrap();
            }
        }
        let container = json!({"name": "agent", "image": "example.org/none:1"});
        let spec = json!({"nodeName": self.stage.node, "serviceAccountName": name, "containers": [container]});
        let pods = format!("/api/v1/namespaces/{AGENTS}/pods");
        let pod = json!({"metadata": {"name": self.agent_pod}, "spec": spec});
        self.stage.create(&pods, pod).await.unwrap();
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": self.agent_pod});
        let path = format!("/api/v1/namespaces/{AGENTS}/serviceaccounts/{name}/token");
        let request = json!({"spec": {"audiences": [], "boundObjectRef": bound}});
        let answer = self.stage.create(&path, request).await.unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// Returns requests that the agent's role grants, and that are not for its own node, its pods and what is the agent's there.
    fn forbidden(&self) -> Vec<Forbidden> {
        let (node, other) = (self.stage.node_path(), format!("/api/v1/nodes/{}", self.other));
        let status = format!("{node}/status");
        let mut all = of_metadata(&node, "node");
        all.extend(of_metadata(&status, "node by its status"));
        all.extend(of_metadata(&format!("{}/status", self.stage.pods("here")), "pod by its status"));
        let none = Value::Null;
        let foreign = |value: &str| json!([{"key": "dedicated", "value": value, "effect": "NoSchedule"}]);
        let more =
            json!([{"key": "dedicated", "value": "a", "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute"}]);
        let of_others = "taints of others";
        all.extend([
            replace("cordon", &node, json!({"spec": {"unschedulable": true}}), "whether it is cordoned"),
            replace(
                "pod network",
                &node,
                json!({"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}}),
                "spec",
            ),
            replace("change of a taint", &node, json!({"spec": {"taints": foreign("b")}}), of_others),
            replace("removal of all taints", &node, json!({"spec": {"taints": none}}), of_others),
            replace("another taint", &node, json!({"spec": {"taints": more}}), of_others),
            replace("taint elsewhere", &other, json!({"spec": {"taints": foreign("a")}}), "another node"),
            replace("capacity", &status, json!({"status": {"capacity": {"cpu": "400"}}}), "only conditions"),
            replace("new field", &status, json!({"status": {"volumesInUse": ["a"]}}), "only conditions"),
            patch(
                "condition elsewhere",
                &format!("{other}/status"),
                condition("MonitorDiskPressure", ""),
                "another node",
            ),
            patch("condition of the kubelet", &status, condition("Ready", "KubeletReady"), "conditions of others"),
            patch(
                "the agent's reason for it",
                &status,
                condition("Ready", "MonitorNoPressure"),
                "conditions of others",
            ),
            patch("condition of a third", &status, condition("NetworkUnavailable", "X"), "conditions of others"),
        ]);
        all.extend(self.of_pods());
        all.extend(self.of_agents());
        all
    }

    fn of_pods(&self) -> Vec<Forbidden> {
        let [here, elsewhere] = ["here", "elsewhere"].map(|name| self.stage.pods(name));
        let failed = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
        let address = json!({"status": {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]}});
        let eviction = json!({
            "kind": "Eviction", "apiVersion": "policy/v1",
            "metadata": {"name": "elsewhere", "namespace": self.stage.namespace},
        });
        vec![
            patch("failed elsewhere", &format!("{elsewhere}/status"), failed, "pods elsewhere"),
            delete("delete elsewhere", &elsewhere, "pods elsewhere"),
            post("evict elsewhere", &format!("{elsewhere}/eviction"), eviction, "may not evict pods elsewhere"),
            replace("address", &format!("{here}/status"), address, "may change only"),
            patch("readiness", &format!("{here}/status"), condition("Ready", ""), "conditions of others"),
        ]
    }

    /// Heartbeats and events in the name of another node's agent.
    fn of_agents(&self) -> Vec<Forbidden> {
        let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}});
        let leases = lease_path("");
        let event = |of: &str, by: &str| {
            json!({
                "metadata": {"name": "event"}, "involvedObject": {"kind": "Node", "name": of, "uid": of},
                "reportingInstance": by, "reportingComponent": "node-pressure-monitor", "reason": "X", "type": "Normal",
            })
        };
        let with = |field: &str, value: Value| {
            let mut event = event(self.stage.node.as_str(), self.stage.node.as_str());
            event[field] = value;
            event
        };
        let events = "/api/v1/namespaces/default/events";
        let theirs = lease_path(&self.other);
        let (own, other) = (self.stage.node.as_str(), self.other.as_str());
        vec![
            post("create a Lease", leases.trim_end_matches('/'), lease("of-no-node"), "Lease of another"),
            replace("renew a Lease", &theirs, json!({"spec": {"holderIdentity": "x"}}), "Lease of another"),
            delete("delete a Lease", &theirs, "Lease of another"),
            post("event of another node", events, event(other, own), "events of another node"),
            post("event by another node", events, event(own, other), "events of another node"),
            post("event from another node", events, with("source", json!({"host": other})), "events of another node"),
            post(
                "event related to another node",
                events,
                with("related", json!({"kind": "Node", "name": other})),
                "events of another node",
            ),
            replace("change an event", &self.event(), json!({"reportingInstance": own}), "events of another node"),
        ]
    }

    /// The path of an event that the agent of the other node has written.
    fn event(&self) -> String {
        format!("/api/v1/namespaces/default/events/{}", self.other)
    }

    async fn write_as_other_agent(&self) {
        let lease = json!({"metadata": {"name": self.other}, "spec": {"holderIdentity": self.other}});
        self.stage.create(lease_path("").trim_end_matches('/'), lease).await.unwrap();
        let event = json!({
            "metadata": {"name": self.other}, "involvedObject": {"kind": "Node", "name": self.other},
            "reportingInstance": self.other, "reportingComponent": "node-pressure-monitor", "reason": "X", "type": "Normal",
        });
        self.stage.create("/api/v1/namespaces/default/events", event).await.unwrap();
    }

    async fn remove(self, policies: &[Value]) {
        let agent = format!("/api/v1/namespaces/{AGENTS}/pods/{}", self.agent_pod);
        let paths = [agent, lease_path(&self.other), format!("/api/v1/nodes/{}", self.other), self.event()];
        for path in policies.iter().map(path).chain(paths) {
            self.stage.ask(Method::DELETE, &path, json!({"gracePeriodSeconds": 0})).await.unwrap();
        }
    }
}

fn condition(kind: &str, reason: &str) -> Value {
    json!({"status": {"conditions": [{"type": kind, "status": "False", "reason": reason}]}})
}

fn of_metadata(path: &str, what: &'static str) -> Vec<Forbidden> {
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "a"}]);
    let (rest, annotations) = ("labels, finalizers or owners", "may not change annotations");
    let mut fields = vec![
        (json!({"labels": {"a": "b"}}), rest),
        (json!({"finalizers": ["a/b"]}), rest),
        (json!({"annotations": {"a": "b"}}), annotations),
        (json!({"annotations": {"there": "after"}}), annotations),
        (json!({"annotations": {"there": null}}), annotations),
        // The pod has not failed.
        (json!({"annotations": {OWN_ANNOTATION: "c"}}), annotations),
    ];
    // The API server itself keeps the owners of a pod whose status is written.
    if !path.contains("/pods/") {
        fields.push((json!({"ownerReferences": owner}), rest));
    }
    let requests = fields.into_iter();
    requests.map(|(metadata, message)| replace(what, path, json!({"metadata": metadata}), message)).collect()
}

/// Waits until the agent finds the policy as expected: an API server learns of roles and policies with a delay.
async fn found(access: &Access, expected: OwnNodePolicy) {
    let begun = Instant::now();
    loop {
        let found = own_node_policy::look(access).await;
        if found == expected {
            return;
        }
        assert!(begun.elapsed() < SOON, "{found:?} instead of {expected:?}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Returns the policy as it was when it allowed no annotation.
fn before_the_annotation(object: &Value) -> Value {
    let mut object = object.clone();
    let variables = object.pointer_mut("/spec/variables").and_then(Value::as_array_mut).into_iter().flatten();
    for variable in variables.filter(|variable| variable["name"] == "ownAnnotations") {
        variable["expression"] = json!("[]");
    }
    object
}

/// Evicts a pod with this metadata. Asserts that it fails although the API server denies the agent's annotation.
async fn fails_without_its_annotation(stage: &Stage, access: &Access, name: &str, metadata: Value) {
    let mut cluster = Cluster::start_with(KubernetesOptions::default(), Some(access.clone())).unwrap();
    evict(&mut cluster, &intent(stage, name, metadata, EvictionMethod::Fail).await).await;
    let pod = stage.get(&stage.pods(name)).await.unwrap().unwrap();
    assert_eq!((&pod["status"]["phase"], &pod["status"]["reason"]), (&json!("Failed"), &json!("Evicted")), "{name}");
    assert!(pod["metadata"]["annotations"][OWN_ANNOTATION].is_null(), "{name}");
}

/// Waits until a policy refuses the request.
pub(super) async fn refused(stage: &Stage, client: &Client, request: &Forbidden) {
    let (begun, mut first) = (Instant::now(), None);
    loop {
        let (status, message) = request.send(stage, client).await;
        first = first.or_else(|| Some(format!("{status} {message}")));
        if status == 403
            && message.contains("ValidatingAdmissionPolicy 'node-pressure-monitor-")
            && message.contains(request.message)
        {
            return;
        }
        let text = || format!("{} {}: first {first:?}, now {status} {message}", request.what, request.body);
        assert!(begun.elapsed() < SOON / 4, "{}", text());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn the_policy_limits_the_agent_to_its_own_node() {
    let stage = Stage::new().await.unwrap();
    if stage.skips_in_memory("the admission policies of own-node") {
        return;
    }
    let directories = ["own-node", "own-node-evictions"].map(|name| root().join("config/kubernetes").join(name));
    let policies = directories.iter().flat_map(|directory| kustomize::build(directory).unwrap());
    let policies: Vec<_> = policies.filter(|policy| !is_of_sweeper(policy)).collect();
    for object in &policies {
        stage.ask(Method::DELETE, &path(object), json!({})).await.unwrap();
    }
    let scene = Scene::of(&stage).await;
    let token = scene.token().await;
    scene.write_as_other_agent().await;
    let client = stage.server.client_with(&token).await.unwrap();
    let access = Access::by_kubeconfig(stage.kubeconfig_file_of("agent", &token).unwrap(), &stage.node);

    found(&access, OwnNodePolicy::Missing).await;
    let forbidden = scene.forbidden();
    for request in &forbidden {
        let (status, message) = request.send(&stage, &client).await;
        assert!(
            (200..300).contains(&status),
            "without the policy: {} {}: {status} {message}",
            request.what,
            request.body
        );
    }
    for object in &policies {
        stage.apply(object).await.unwrap();
    }
    found(&access, OwnNodePolicy::InForce).await;
    for request in &forbidden {
        refused(&stage, &client, request).await;
    }

    stage.server.log().clear();
    make_every_request(&stage, access.clone()).await;
    let requests = stage.server.log().all();
    assert!(requests.iter().all(|request| request.status != Some(403)), "{requests:#?}");

    // More annotations than the policy compares one by one.
    let many: Map<_, _> = (0..40_000).map(|number| (format!("{number:x}"), json!(""))).collect();
    fails_without_its_annotation(&stage, &access, "many", json!({"annotations": many})).await;
    for object in policies.iter().map(before_the_annotation) {
        stage.apply(&object).await.unwrap();
    }
    let failed = json!({"metadata": {"annotations": {OWN_ANNOTATION: "c"}}, "status": {"phase": "Failed"}});
    let here = format!("{}/status", stage.pods("here"));
    refused(&stage, &client, &patch("annotation", &here, failed, "may not change annotations")).await;
    fails_without_its_annotation(&stage, &access, "old", Value::Null).await;
    scene.remove(&policies).await;
    stage.end().await.unwrap();
}
