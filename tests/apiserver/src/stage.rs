//! The fixture of every contract test: a server (in memory, or the real one that `KUBECONFIG` names) with a namespace and a node for
//! this test, and helpers that make and read pods.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::access::ADMIN_TOKEN;
use crate::front::FaultId;
use crate::object::new_uid;
use crate::server::TestServer;

/// The namespace of the agents and their Leases.
pub const AGENTS: &str = "node-pressure-monitor";

/// Returns the path of a manifest's object.
#[must_use]
pub fn path(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("/apiVersion"), text("/kind").to_ascii_lowercase());
    let group = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    let plural = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
    let namespace = namespace.map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
    format!("{group}{namespace}/{plural}/{}", text("/metadata/name"))
}

/// Returns the path of a node's Lease.
#[must_use]
pub fn lease_path(node: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{AGENTS}/leases/{node}")
}
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// How long controllers may take for a node's taint, or to count the pods of a budget.
const CONTROLLED_WITHIN: Duration = Duration::from_secs(30);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(20);

/// A server, with objects that no other test uses.
#[derive(Debug)]
pub struct Stage {
    pub server: TestServer,
    /// The test's own namespace.
    pub namespace: String,
    /// The test's own node.
    pub node: String,
    /// The directory of the test's files, removed with the fixture.
    pub directory: TempDir,
}

impl Stage {
    /// Starts the server and makes namespace and node. For 40 s only the test changes the node; then a
    /// controller that misses heartbeats may.
    pub async fn new() -> Result<Self> {
        let stage = Self::with_new_node().await?;
        stage.settle_node().await?;
        Ok(stage)
    }

    /// Starts the server and makes namespace and node. Controllers, where there are any, may still change the node.
    pub async fn with_new_node() -> Result<Self> {
        let server = TestServer::of_environment().await?;
        let id = &new_uid()[..8];
        let directory = tempfile::tempdir().context("making a directory for the test's files")?;
        let stage = Self { server, namespace: format!("test-{id}"), node: format!("node-{id}"), directory };
        stage.make_namespace().await?;
        stage.make_agents_namespace().await?;
        stage.create("/api/v1/nodes", json!({"metadata": {"name": stage.node}})).await?;
        Ok(stage)
    }

    /// Beside controllers, makes the node ready, and waits until they have set its annotation and taken their taint off.
    pub async fn settle_node(&self) -> Result<()> {
        if !self.has_controllers().await? {
            return Ok(());
        }
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        self.patch(&format!("{}/status", self.node_path()), ready).await?;
        let is_settled = |node: Option<&Value>| {
            let ttl = node.and_then(|node| node.pointer("/metadata/annotations/node.alpha.kubernetes.io~1ttl"));
            ttl.is_some() && node.is_some_and(|node| node["spec"]["taints"].is_null())
        };
        self.until(&self.node_path(), CONTROLLED_WITHIN, is_settled).await.map(drop)
    }

    /// Makes the test's namespace again, for a server that has lost its store.
    pub async fn make_namespace(&self) -> Result<()> {
        self.create("/api/v1/namespaces", json!({"metadata": {"name": self.namespace}})).await?;
        // A real cluster refuses pods without this account. Its controller may make the account first, or may be absent.
        match self.ask(Method::POST, &self.accounts(), json!({"metadata": {"name": "default"}})).await? {
            (201 | 409, _) => Ok(()),
            (code, answer) => bail!("making the service account: {code} {answer}"),
        }
    }

    /// Makes the namespace of the Leases, which all tests share.
    async fn make_agents_namespace(&self) -> Result<()> {
        match self.ask(Method::POST, "/api/v1/namespaces", json!({"metadata": {"name": AGENTS}})).await? {
            (201 | 409, _) => Ok(()),
            (code, answer) => bail!("making the namespace {AGENTS}: {code} {answer}"),
        }
    }

    /// Removes the test's objects from a real server. The empty namespace stays.
    pub async fn end(self) -> Result<()> {
        if self.server.is_real() {
            let now = json!({"gracePeriodSeconds": 0});
            for plural in ["pods", "events", "configmaps"] {
                let all = format!("/api/v1/namespaces/{}/{plural}", self.namespace);
                self.ask(Method::DELETE, &all, now.clone()).await?;
            }
            for plural in ["clusterroles", "clusterrolebindings"] {
                let ours = format!("{RBAC}/{plural}?labelSelector=stage%3D{}", self.namespace);
                self.ask(Method::DELETE, &ours, Value::Null).await?;
            }
            self.ask(Method::DELETE, &lease_path(&self.node), now.clone()).await?;
            self.ask(Method::DELETE, &format!("/api/v1/nodes/{}", self.node), now.clone()).await?;
            self.ask(Method::DELETE, &format!("/api/v1/namespaces/{}", self.namespace), now).await?;
        }
        Ok(())
    }

    #[must_use]
    pub fn admin(&self) -> Client {
        self.server.admin()
    }

    /// Sends a request as administrator, without faults; returns status and answer. PATCH is a strategic merge.
    pub async fn ask(&self, method: Method, path: &str, body: Value) -> Result<(u16, Value)> {
        let kind = if method == Method::PATCH { "application/strategic-merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.ask_with(&self.admin(), method, path, kind, body).await
    }

    /// Sends a request with this client and content type.
    pub async fn ask_with(
        &self,
        client: &Client,
        method: Method,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<(u16, Value)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, content_type)
            .header(ACCEPT, "application/json")
            .body(Body::from(body.into()))
            .context("writing a request")?;
        let answer = client.send(request).await.with_context(|| format!("asking {path}"))?;
        let status = answer.status().as_u16();
        let bytes =
            answer.into_body().collect_bytes().await.with_context(|| format!("reading the answer of {path}"))?;
        let value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Ok((status, value))
    }

    pub async fn create(&self, collection: &str, object: Value) -> Result<Value> {
        let (status, answer) = self.ask(Method::POST, collection, object).await?;
        if status != 201 {
            bail!("creating in {collection}: {status} {answer}");
        }
        Ok(answer)
    }

    /// Makes the object of a manifest, or changes it to what the manifest says.
    pub async fn apply(&self, object: &Value) -> Result<()> {
        let path = format!("{}?fieldManager=test&force=true", path(object));
        let kind = "application/apply-patch+yaml";
        match self.ask_with(&self.admin(), Method::PATCH, &path, kind, object.to_string()).await? {
            (200 | 201, _) => Ok(()),
            (code, answer) => bail!("applying {path}: {code} {answer}"),
        }
    }

    /// Patches an object by a strategic merge; returns it as stored.
    pub async fn patch(&self, path: &str, patch: Value) -> Result<Value> {
        match self.ask(Method::PATCH, path, patch).await? {
            (200, object) => Ok(object),
            (code, answer) => bail!("changing {path}: {code} {answer}"),
        }
    }

    /// Returns an object; none: it does not exist.
    pub async fn get(&self, path: &str) -> Result<Option<Value>> {
        match self.ask(Method::GET, path, Value::Null).await? {
            (200, object) => Ok(Some(object)),
            (404, _) => Ok(None),
            (status, answer) => bail!("reading {path}: {status} {answer}"),
        }
    }

    /// Returns the path of the test's pods, or of one of them.
    #[must_use]
    pub fn pods(&self, name: &str) -> String {
        let pods = format!("/api/v1/namespaces/{}/pods", self.namespace);
        if name.is_empty() { pods } else { format!("{pods}/{name}") }
    }

    /// Returns the path of the test's node.
    #[must_use]
    pub fn node_path(&self) -> String {
        format!("/api/v1/nodes/{}", self.node)
    }

    /// Makes a running, ready pod on the test's node; `spec` and `metadata` are added. Returns it as stored.
    pub async fn running_pod(&self, name: &str, metadata: Value, spec: Value) -> Result<Value> {
        self.pod(name, metadata, spec).await?;
        let now = crate::object::now();
        let status = json!({"status": {
            "phase": "Running", "startTime": now,
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": now},
                {"type": "ContainersReady", "status": "True", "lastTransitionTime": now},
            ],
        }});
        self.patch(&format!("{}/status", self.pods(name)), status).await
    }

    /// Makes a pod that is bound to the test's node and does not run yet.
    pub async fn pod(&self, name: &str, metadata: Value, spec: Value) -> Result<Value> {
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": self.node, "containers": [{"name": "main", "image": "example.org/none:1"}]},
        });
        for (part, more) in [("metadata", metadata), ("spec", spec)] {
            if let (Some(fields), Value::Object(more)) = (pod[part].as_object_mut(), more) {
                fields.extend(more);
            }
        }
        self.create(&self.pods(""), pod).await
    }

    /// Deletes a pod with this grace period in seconds.
    pub async fn delete_pod(&self, name: &str, grace: u32) -> Result<()> {
        match self.ask(Method::DELETE, &self.pods(name), json!({"gracePeriodSeconds": grace})).await? {
            (200 | 202, _) => Ok(()),
            (code, answer) => bail!("deleting pod {name}: {code} {answer}"),
        }
    }

    /// Makes a disruption budget for all pods of a team, without a status; returns its path.
    pub async fn budget(&self, name: &str, team: &str) -> Result<String> {
        let path = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", self.namespace);
        let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"team": team}}});
        self.create(&path, json!({"metadata": {"name": name}, "spec": spec})).await?;
        Ok(format!("{path}/{name}"))
    }

    /// Sets a budget's status, as a controller would: it allows this many disruptions. Beside a controller it waits until that has counted
    /// one healthy pod more than these.
    pub async fn allow(&self, budget: &str, disruptions: u32) -> Result<()> {
        if self.has_controllers().await? {
            let is_counted = |budget: Option<&Value>| {
                let status = budget.map(|budget| &budget["status"]).unwrap_or(&Value::Null);
                status["disruptionsAllowed"] == disruptions && status["currentHealthy"] == 1 + disruptions
            };
            return self.until(budget, CONTROLLED_WITHIN, is_counted).await.map(drop);
        }
        let status = json!({"status": {
            "observedGeneration": 1, "disruptionsAllowed": disruptions, "currentHealthy": 1 + disruptions,
            "desiredHealthy": 1, "expectedPods": 1 + disruptions,
        }});
        self.patch(&format!("{budget}/status"), status).await.map(drop)
    }

    /// Returns whether a controller manager runs beside a real server: it publishes the root certificate in each namespace.
    pub async fn has_controllers(&self) -> Result<bool> {
        const PUBLISHES_WITHIN: Duration = Duration::from_secs(5);
        static FOUND: OnceCell<bool> = OnceCell::const_new();
        if !self.server.is_real() {
            return Ok(false);
        }
        let look = async || {
            let path = format!("/api/v1/namespaces/{}/configmaps/kube-root-ca.crt", self.namespace);
            let start = Instant::now();
            while start.elapsed() < PUBLISHES_WITHIN {
                if self.get(&path).await?.is_some() {
                    return Ok(true);
                }
                tokio::time::sleep(LOOK).await;
            }
            Ok(false)
        };
        FOUND.get_or_try_init(look).await.copied()
    }

    fn accounts(&self) -> String {
        format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace)
    }

    /// Makes a service account; returns a token of it.
    pub async fn account(&self, name: &str) -> Result<String> {
        self.create(&self.accounts(), json!({"metadata": {"name": name}})).await?;
        let request = json!({"spec": {"audiences": [], "expirationSeconds": 3600}});
        let answer = self.create(&format!("{}/{name}/token", self.accounts()), request).await?;
        answer["status"]["token"].as_str().map(str::to_owned).context("an answer without a token")
    }

    /// Grants these rules to a service account by a role of its own in the namespace of the Leases.
    pub async fn grant_among_agents(&self, account: &str, rules: Value) -> Result<()> {
        let role = format!("{account}-{}", self.namespace);
        let path = |plural| format!("{RBAC}/namespaces/{AGENTS}/{plural}");
        self.create(&path("roles"), json!({"metadata": {"name": role}, "rules": rules})).await?;
        let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": self.namespace});
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role});
        let binding = json!({"metadata": {"name": role}, "subjects": [subject], "roleRef": reference});
        self.create(&path("rolebindings"), binding).await.map(drop)
    }

    /// Grants these rules to a service account by a cluster role of its own.
    pub async fn grant(&self, account: &str, rules: Value) -> Result<()> {
        let role = format!("{account}-{}", self.namespace);
        let metadata = json!({"name": role, "labels": {"stage": self.namespace}});
        self.create(&format!("{RBAC}/clusterroles"), json!({"metadata": metadata, "rules": rules})).await?;
        let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": self.namespace});
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
        let binding = json!({"metadata": metadata, "subjects": [subject], "roleRef": reference});
        self.create(&format!("{RBAC}/clusterrolebindings"), binding).await.map(drop)
    }

    pub async fn events(&self) -> Result<Vec<Value>> {
        let path = format!("/api/v1/namespaces/{}/events", self.namespace);
        let list = self.get(&path).await?.unwrap_or_default();
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Returns the events of the test's node, which are in `default`.
    pub async fn node_events(&self) -> Result<Vec<Value>> {
        let list = self.get(&self.node_events_path()).await?.unwrap_or_default();
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Returns the path of the events of the test's node.
    #[must_use]
    pub fn node_events_path(&self) -> String {
        format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={}", self.node)
    }

    /// Polls an object until it is as wanted; an error contains its last state.
    pub async fn until(&self, path: &str, within: Duration, wanted: impl Fn(Option<&Value>) -> bool) -> Result<Value> {
        let start = Instant::now();
        loop {
            let object = self.get(path).await?;
            if wanted(object.as_ref()) {
                return Ok(object.unwrap_or_default());
            }
            if start.elapsed() > within {
                bail!("{path} did not become as wanted within {within:?}; it is {object:?}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until a fault has affected this many requests.
    pub async fn until_struck(&self, fault: FaultId, times: u32, within: Duration) -> Result<()> {
        let start = Instant::now();
        while self.server.faults().struck(fault) < times {
            if start.elapsed() > within {
                bail!(
                    "the fault did not strike {times} times within {within:?}; asked was {:#?}",
                    self.server.log().all()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Writes a kubeconfig file of the listener for an administrator.
    pub fn kubeconfig_file(&self) -> Result<PathBuf> {
        self.kubeconfig_file_of("admin", ADMIN_TOKEN)
    }

    /// Writes a kubeconfig file of the listener with this token.
    pub fn kubeconfig_file_of(&self, name: &str, token: &str) -> Result<PathBuf> {
        let path = self.directory.path().join(format!("kubeconfig-{name}"));
        let text = self.server.kubeconfig_with(token);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Returns whether the server is a real one, which cannot do what the rest of the test needs; prints that the rest is skipped.
    #[must_use]
    pub fn skips(&self, what: &str) -> bool {
        if self.server.is_real() {
            print_skip(what, "a real API server cannot be told to do that");
        }
        self.server.is_real()
    }

    /// Returns whether the server is in memory, which cannot do what the rest of the test needs; prints that the rest is skipped.
    #[must_use]
    pub fn skips_in_memory(&self, what: &str) -> bool {
        if !self.server.is_real() {
            print_skip(what, "it needs a real API server, which KUBECONFIG names");
        }
        !self.server.is_real()
    }
}

/// Written past the test harness, which captures output: the test runner counts this line.
fn print_skip(what: &str, why: &str) {
    let line = format!("\nSKIPPED {what}: {why}\n");
    let _unsaid = std::io::stdout().write_all(line.as_bytes());
}

/// Returns the UID of an object, or an empty text.
#[must_use]
pub fn uid(object: &Value) -> String {
    crate::object::text(object, "/metadata/uid").to_owned()
}

/// Returns the condition of this type, or null.
#[must_use]
pub fn condition<'object>(object: &'object Value, kind: &str) -> &'object Value {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}
