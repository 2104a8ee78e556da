//! Tries at a real API server what a stolen token of each account can do, and compares with the table in SECURITY.md.
#![expect(clippy::unwrap_used, clippy::panic, reason = "an object that cannot be made fails the test")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::Method;
use kube::Client;
use node_pressure_apiserver::stage::{AGENTS, Stage, lease_path, path};
use node_pressure_manifests::{kustomize, root};
use serde_json::{Value, json};

/// Accounts with a directory that gives them their rights. Directories with the same rights stand in the table above this one.
const THIEVES: [(&str, &str); 9] = [
    ("node-pressure-monitor", "kubernetes"),
    ("node-pressure-monitor", "kubernetes/tls"),
    ("node-pressure-monitor", "kubernetes/first"),
    ("node-pressure-monitor", "kubernetes/own-node-evictions"),
    ("node-pressure-monitor", "kubernetes/base"),
    ("node-pressure-monitor-sweeper", "kubernetes"),
    ("node-pressure-monitor-sweeper", "kubernetes/base"),
    ("node-pressure-monitor-removal", "kubernetes/removal"),
    ("journal-hook", "openshift/journal-hook"),
];
/// Where OpenShift keeps its machines. The API server of the contract has none, but asks for the right before it looks.
const MACHINES: &str = "openshift-machine-api";
const TABLE: &str = "<!-- tokens -->";
const LEARNS_WITHIN: Duration = Duration::from_secs(20);

/// A request that is sent as a dry run.
struct Attempt {
    what: &'static str,
    method: Method,
    path: String,
    kind: &'static str,
    body: Value,
}

fn attempt(what: &'static str, method: Method, path: &str, body: Value) -> Attempt {
    let kind = if method == Method::PATCH { "application/strategic-merge-patch+json" } else { "application/json" };
    Attempt { what, method, path: path.to_owned(), kind, body }
}

fn replacing(what: &'static str, path: &str, body: Value) -> Attempt {
    Attempt { kind: "application/merge-patch+json", ..attempt(what, Method::PATCH, path, body) }
}

/// The node of the thief, another one, and a pod on each.
struct Scene<'s> {
    stage: &'s Stage,
    other: String,
}

impl<'s> Scene<'s> {
    async fn of(stage: &'s Stage) -> Self {
        let scene = Self { stage, other: format!("other-{}", stage.node) };
        stage.create("/api/v1/nodes", json!({"metadata": {"name": scene.other}})).await.unwrap();
        for node in [stage.node_path(), scene.other_path()] {
            let taints = json!([{"key": "node-pressure-monitor/memory-pressure", "effect": "NoSchedule"}]);
            stage.patch(&node, json!({"spec": {"taints": taints}})).await.unwrap();
            let conditions = json!([
                condition("Ready", "True", "KubeletReady"),
                condition("MonitorMemoryPressure", "True", "MonitorPressureLasts")
            ]);
            stage.patch(&format!("{node}/status"), json!({"status": {"conditions": conditions}})).await.unwrap();
        }
        let _may_exist =
            stage.ask(Method::POST, "/api/v1/namespaces", json!({"metadata": {"name": MACHINES}})).await.unwrap();
        stage.running_pod("here", Value::Null, Value::Null).await.unwrap();
        stage.running_pod("elsewhere", Value::Null, json!({"nodeName": scene.other})).await.unwrap();
        let lease = json!({"metadata": {"name": scene.other}, "spec": {"holderIdentity": scene.other}});
        stage.create(lease_path("").trim_end_matches('/'), lease).await.unwrap();
        scene
    }

    fn other_path(&self) -> String {
        format!("/api/v1/nodes/{}", self.other)
    }

    fn attempts(&self) -> Vec<Attempt> {
        let mut all = self.of_pods();
        all.extend(self.of_nodes());
        all.extend(self.of_names());
        all.extend(self.of_reading());
        all
    }

    fn of_pods(&self) -> Vec<Attempt> {
        let [here, elsewhere] = ["here", "elsewhere"].map(|name| self.stage.pods(name));
        let eviction = |name: &str| json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name, "namespace": self.stage.namespace}, "deleteOptions": {"dryRun": ["All"]}});
        let delete = json!({"dryRun": ["All"]});
        let failed = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
        vec![
            attempt("delete a pod of its node", Method::DELETE, &here, delete.clone()),
            attempt("delete a pod elsewhere", Method::DELETE, &elsewhere, delete),
            attempt("let a pod of its node fail", Method::PATCH, &format!("{here}/status"), failed.clone()),
            attempt("let a pod elsewhere fail", Method::PATCH, &format!("{elsewhere}/status"), failed),
            attempt(
                "request the eviction of a pod of its node",
                Method::POST,
                &format!("{here}/eviction"),
                eviction("here"),
            ),
            attempt(
                "request the eviction of a pod elsewhere",
                Method::POST,
                &format!("{elsewhere}/eviction"),
                eviction("elsewhere"),
            ),
        ]
    }

    fn of_nodes(&self) -> Vec<Attempt> {
        let (own, other) = (self.stage.node_path(), self.other_path());
        let disk = json!([{"key": "node-pressure-monitor/memory-pressure", "effect": "NoSchedule"}, {"key": "node-pressure-monitor/disk-pressure", "effect": "NoSchedule"}]);
        let foreign = json!([{"key": "a", "effect": "NoExecute"}, {"key": "node-pressure-monitor/memory-pressure", "effect": "NoSchedule"}]);
        let spec = |taints: &Value| json!({"spec": {"taints": taints}});
        let set = |kind: &str, status: &str, reason: &str| json!({"status": {"conditions": [condition(kind, status, reason)]}});
        let stopped = set("MonitorMemoryPressure", "Unknown", "MonitorAgentStopped");
        let [own_status, other_status] = [&own, &other].map(|node| format!("{node}/status"));
        vec![
            replacing("taint its node with an agent's taint", &own, spec(&disk)),
            replacing("taint another node with an agent's taint", &other, spec(&disk)),
            replacing("remove an agent's taint from another node", &other, spec(&json!([]))),
            replacing("taint its node with another taint", &own, spec(&foreign)),
            attempt("cordon its node", Method::PATCH, &own, json!({"spec": {"unschedulable": true}})),
            attempt("label its node", Method::PATCH, &own, json!({"metadata": {"labels": {"a": "b"}}})),
            attempt(
                "set an agent's condition of its node",
                Method::PATCH,
                &own_status,
                set("MonitorDiskPressure", "True", "MonitorPressureLasts"),
            ),
            attempt(
                "set an agent's condition of another node",
                Method::PATCH,
                &other_status,
                set("MonitorDiskPressure", "True", "MonitorPressureLasts"),
            ),
            attempt("set such a condition of another node to Unknown", Method::PATCH, &other_status, stopped),
            attempt("set `Ready` of its node", Method::PATCH, &own_status, set("Ready", "False", "KubeletNotReady")),
            attempt(
                "set `Ready` of another node",
                Method::PATCH,
                &other_status,
                set("Ready", "False", "KubeletNotReady"),
            ),
            attempt(
                "change the capacity of its node",
                Method::PATCH,
                &own_status,
                json!({"status": {"capacity": {"cpu": "400"}}}),
            ),
        ]
    }

    /// Events and Leases in the name of its own and another node.
    fn of_names(&self) -> Vec<Attempt> {
        let event = |of: &str, name: &str| {
            json!({
                "metadata": {"name": name}, "involvedObject": {"kind": "Node", "name": of, "uid": of}, "reason": "X", "type": "Normal",
                "reportingInstance": of, "reportingComponent": "node-pressure-monitor",
            })
        };
        let events = "/api/v1/namespaces/default/events";
        let leases = lease_path("");
        let lease = json!({"metadata": {"name": self.stage.node}, "spec": {}});
        let (own, other) = (self.stage.node.as_str(), self.other.as_str());
        let others = lease_path(other);
        let in_default = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
        vec![
            attempt("write an event of its node", Method::POST, events, event(own, "own")),
            attempt("write an event of another node", Method::POST, events, event(other, "other")),
            attempt("renew the Lease of its agent", Method::POST, leases.trim_end_matches('/'), lease.clone()),
            replacing("renew the Lease of another agent", &others, json!({"spec": {"holderIdentity": "x"}})),
            attempt("delete the Lease of another agent", Method::DELETE, &others, json!({"dryRun": ["All"]})),
            attempt("make a Lease in another namespace", Method::POST, in_default, lease),
        ]
    }

    fn of_reading(&self) -> Vec<Attempt> {
        let read = |what, path: &str| attempt(what, Method::GET, path, Value::Null);
        let review =
            json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": "a.b.c"}});
        let access = json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {"user": "a", "nonResourceAttributes": {"path": "/", "verb": "get"}}});
        vec![
            read("read pods of all namespaces", "/api/v1/pods?limit=1"),
            read("read pods of its namespace", &format!("/api/v1/namespaces/{AGENTS}/pods?limit=1")),
            read(
                "read an agent through the API server",
                &format!("/api/v1/namespaces/{AGENTS}/pods/none/proxy/summary"),
            ),
            read("read all nodes", "/api/v1/nodes?limit=1"),
            read("read a node by its name", &self.stage.node_path()),
            read("read Leases of all namespaces", "/apis/coordination.k8s.io/v1/leases?limit=1"),
            read("read Secrets of its namespace", &format!("/api/v1/namespaces/{AGENTS}/secrets?limit=1")),
            read("read ConfigMaps of its namespace", &format!("/api/v1/namespaces/{AGENTS}/configmaps?limit=1")),
            attempt("ask whose a token is", Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", review),
            attempt(
                "ask what a user may do",
                Method::POST,
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                access,
            ),
            replacing(
                "change a machine of OpenShift",
                &format!("/apis/machine.openshift.io/v1beta1/namespaces/{MACHINES}/machines/none"),
                json!({"spec": {"lifecycleHooks": {}}}),
            ),
            attempt(
                "start a pod",
                Method::POST,
                &self.stage.pods(""),
                json!({"metadata": {"name": "new"}, "spec": {"containers": [{"name": "a", "image": "example.org/none:1"}]}}),
            ),
        ]
    }

    async fn end(&self) {
        for path in [lease_path(&self.other), self.other_path()] {
            self.stage.ask(Method::DELETE, &path, json!({"gracePeriodSeconds": 0})).await.unwrap();
        }
    }
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason})
}

/// The account, roles, bindings and admission policies that a directory applies for one account.
fn objects(account: &str, directory: &str) -> Vec<Value> {
    let config = root().join("config");
    // The component is applied beside another variant.
    let directories = match directory {
        "kubernetes/own-node-evictions" => vec!["kubernetes/first", directory],
        _ => vec![directory],
    };
    let all = directories.into_iter().flat_map(|directory| kustomize::build(&config.join(directory)).unwrap());
    let is_wanted = |object: &Value| match object["kind"].as_str().unwrap() {
        "ServiceAccount" => object["metadata"]["name"] == account,
        "ClusterRoleBinding" | "RoleBinding" => {
            object["subjects"].as_array().unwrap().iter().any(|subject| subject["name"] == account)
        }
        kind => ["Namespace", "ClusterRole", "Role"].contains(&kind) || kind.starts_with("ValidatingAdmissionPolicy"),
    };
    all.filter(is_wanted).collect()
}

/// Returns a token as the kubelet of the stage's node would give it to a pod of this account.
async fn stolen(stage: &Stage, objects: &[Value]) -> String {
    let account = objects.iter().find(|object| object["kind"] == "ServiceAccount").unwrap();
    let [account, namespace] = ["name", "namespace"].map(|key| account["metadata"][key].as_str().unwrap());
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let name = format!("thief-{}", stage.node);
    stage.ask(Method::DELETE, &format!("{pods}/{name}"), json!({"gracePeriodSeconds": 0})).await.unwrap();
    // As the Pod Security Standard `restricted` wants it.
    let secure = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
    });
    let container = json!({"name": "a", "image": "example.org/none:1", "securityContext": secure});
    let spec = json!({"nodeName": stage.node, "serviceAccountName": account, "containers": [container]});
    stage.create(&pods, json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": name});
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let answer = stage.create(&path, json!({"spec": {"audiences": [], "boundObjectRef": bound}})).await.unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// Sends each request until its answer has not changed for a second: an API server learns of roles and policies with a delay.
async fn outcomes(stage: &Stage, client: &Client, attempts: &[Attempt]) -> Vec<bool> {
    let (begun, mut last, mut same_since) = (Instant::now(), Vec::new(), Instant::now());
    while begun.elapsed() < LEARNS_WITHIN {
        let mut now = Vec::new();
        for attempt in attempts {
            now.push(is_granted(stage, client, attempt).await);
        }
        if now != last {
            (last, same_since) = (now, Instant::now());
        }
        if same_since.elapsed() > Duration::from_secs(2) {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("the API server answers differently each time");
}

async fn is_granted(stage: &Stage, client: &Client, Attempt { what, method, path, kind, body }: &Attempt) -> bool {
    let path = if *method == Method::GET { path.clone() } else { format!("{path}?dryRun=All") };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, answer) = stage.ask_with(client, method.clone(), &path, kind, body).await.unwrap();
    match status {
        // The API server looks for an object only for those who may see it.
        200..=202 | 404 => true,
        403 => false,
        _ => panic!("{what}: {method} {path}: {status} {answer}"),
    }
}

/// Returns the rows of the table in SECURITY.md: the attempt, and an answer for each column.
fn written() -> (Vec<String>, BTreeMap<String, Vec<bool>>) {
    let document = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let (_, table) = document.split_once(TABLE).unwrap();
    let rows: Vec<Vec<&str>> = table
        .trim_start()
        .lines()
        .take_while(|line| line.starts_with('|'))
        .map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let heads = rows[0][1..].iter().map(|head| (*head).to_owned()).collect();
    (
        heads,
        rows[2..].iter().map(|row| (row[0].to_owned(), row[1..].iter().map(|cell| *cell == "yes").collect())).collect(),
    )
}

#[tokio::test]
async fn a_stolen_token_can_do_what_the_table_says_and_no_more() {
    let stage = Stage::new().await.unwrap();
    if stage.skips_in_memory("stolen tokens: roles and admission policies") {
        return;
    }
    let scene = Scene::of(&stage).await;
    let attempts = scene.attempts();
    let mut columns = Vec::new();
    for (account, directory) in THIEVES {
        let objects = objects(account, directory);
        for object in &objects {
            stage.apply(object).await.unwrap();
        }
        let client = stage.server.client_with(&stolen(&stage, &objects).await).await.unwrap();
        columns.push(outcomes(&stage, &client, &attempts).await);
        for object in objects.iter().filter(|object| object["kind"] != "Namespace") {
            stage.ask(Method::DELETE, &path(object), json!({})).await.unwrap();
        }
    }
    scene.end().await;
    stage.end().await.unwrap();
    let heads: Vec<String> = THIEVES.iter().map(|(account, directory)| head(account, directory)).collect();
    println!("| with the token | {} |\n|---|{}", heads.join(" | "), "---|".repeat(heads.len()));
    let mut tried = BTreeMap::new();
    for (place, attempt) in attempts.iter().enumerate() {
        let row: Vec<bool> = columns.iter().map(|column| column[place]).collect();
        let cells: Vec<&str> = row.iter().map(|granted| if *granted { "yes" } else { "-" }).collect();
        println!("| {} | {} |", attempt.what, cells.join(" | "));
        tried.insert(attempt.what.to_owned(), row);
    }
    let (of_document, rows) = written();
    assert_eq!(of_document, heads);
    for (what, row) in &tried {
        assert_eq!(
            rows.get(what),
            Some(row),
            "{what}: left: SECURITY.md; right: what the API server answered, printed above"
        );
    }
    assert_eq!(rows.len(), tried.len(), "SECURITY.md has rows that were not tried");
}

/// Returns the head of a column: the account's short name and the directory.
fn head(account: &str, directory: &str) -> String {
    let name = account.strip_prefix("node-pressure-monitor-").unwrap_or("agent");
    format!("{name}, `{directory}`")
}
