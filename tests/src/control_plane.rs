//! The control plane of the guest: the test API server, on threads of its own, with this node registered.

mod kubelet;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use node_pressure_apiserver::access::User;
use node_pressure_apiserver::resource::RESOURCES;
use node_pressure_apiserver::stage::AGENTS;
use node_pressure_apiserver::{Fault, Record, Settings, TestServer};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::units::{monotonic_ns, nanoseconds};

pub use kubelet::Kubelet;

/// The name of this node.
pub const NODE: &str = "guest";
/// The time limit of a request. Every request is slow under emulation.
const LIMIT: Duration = Duration::from_secs(20);

/// Returns the path of the pod of the namespace `default` with this name.
pub fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

/// A server, and a client with administrator rights. The server does not log this client's requests.
#[derive(Debug)]
pub struct ControlPlane {
    server: TestServer,
    admin: Admin,
}

impl ControlPlane {
    /// Starts a server with the node, the namespace `default`, and that of the Leases.
    pub fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
        let settings = Settings { tls: true, ..Settings::default() };
        let server = runtime.block_on(TestServer::with(settings)).context("start the API server")?;
        // The client's connections live on the server's threads.
        let client = runtime.block_on(async { server.admin() });
        let plane = Self { server, admin: Admin { runtime, client } };
        for name in ["default", AGENTS] {
            if plane.find(&format!("/api/v1/namespaces/{name}"))?.is_none() {
                plane.create("/api/v1/namespaces", &json!({"metadata": {"name": name}}))?;
            }
        }
        plane.create("/api/v1/nodes", &json!({"metadata": {"name": NODE}}))?;
        Ok(plane)
    }

    /// Creates the objects that `kubectl apply` would create, if this server knows their kinds.
    pub fn apply(&self, objects: &[Value]) -> Result<()> {
        for object in objects {
            let (version, kind) = (&object["apiVersion"], &object["kind"]);
            let (version, kind) = version.as_str().zip(kind.as_str()).context("an object of no kind")?;
            let known = RESOURCES.iter().find(|one| one.kind == kind && one.api_version() == version);
            // A node does not use unknown kinds such as quotas.
            let Some(resource) = known else { continue };
            let root = if resource.group.is_empty() { "/api" } else { "/apis" };
            let within = match object["metadata"]["namespace"].as_str() {
                Some(namespace) if resource.namespaced => format!("namespaces/{namespace}/"),
                _ => String::new(),
            };
            let all = format!("{root}/{version}/{within}{}", resource.plural);
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if kind != "Namespace" || self.find(&format!("{all}/{name}"))?.is_none() {
                self.create(&all, object)?;
            }
        }
        Ok(())
    }

    /// Refuses every request to this path and below it with 503.
    pub fn refuse(&self, path: &str) {
        self.server.faults().add(Fault::answer(503).at(path));
    }

    /// Returns another client with administrator rights, for another thread.
    pub fn admin(&self) -> Result<Admin> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
        let client = runtime.block_on(async { self.server.admin() });
        Ok(Admin { runtime, client })
    }

    /// Writes a kubeconfig file with administrator rights for the agent.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        let path = Path::new("/tmp/kubeconfig");
        fs::write(path, self.server.kubeconfig()).with_context(|| format!("write {}", path.display()))?;
        Ok(path.to_owned())
    }

    /// Returns a token of a service account. Roles and bindings limit its rights.
    pub fn service_account(&self, namespace: &str, name: &str) -> Result<String> {
        let account = self.get(&format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}"))?;
        let uid = account["metadata"]["uid"].as_str().context("the service account has no UID")?;
        let token = format!("token-of-{namespace}-{name}");
        let api = self.server.memory().context("a server in memory")?;
        api.access().add_token(&token, User::service_account(namespace, name, uid));
        Ok(token)
    }

    /// Returns the server's host, port and certificate.
    pub fn address(&self) -> Result<(String, u16, String)> {
        let url: http::Uri = self.server.url().parse().context("the API server's URL")?;
        let (host, port) = url.host().zip(url.port_u16()).context("the API server's host and port")?;
        let certificate = self.server.certificate().context("the API server's certificate")?;
        Ok((host.to_owned(), port, certificate.to_owned()))
    }

    /// Returns the requests of all clients but the administrator, each with its arrival time.
    pub fn requests(&self) -> Vec<(u64, Record)> {
        let (now, now_ns) = (Instant::now(), monotonic_ns());
        let at = |record: &Record| now_ns.saturating_sub(nanoseconds(now.saturating_duration_since(record.at)));
        self.server.log().all().into_iter().map(|record| (at(&record), record)).collect()
    }
}

/// A client with administrator rights for one thread.
pub struct Admin {
    runtime: Runtime,
    client: kube::Client,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

impl Admin {
    /// Returns a client of the API server that a kubeconfig file names.
    pub fn of_kubeconfig(path: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
        let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("read {}", path.display()))?;
        let client = runtime.block_on(async {
            let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
            config.default_retry = false;
            Ok::<_, anyhow::Error>(kube::Client::try_from(config)?)
        })?;
        Ok(Self { runtime, client })
    }

    pub fn get(&self, path: &str) -> Result<Value> {
        self.find(path)?.with_context(|| format!("there is no {path}"))
    }

    /// Returns the pod of the namespace `default` with this name.
    pub fn pod(&self, name: &str) -> Result<Value> {
        self.get(&pod_path(name))
    }

    /// Returns the pod of the namespace `default` with this name, or `None` if it does not exist.
    pub fn find_pod(&self, name: &str) -> Result<Option<Value>> {
        self.find(&pod_path(name))
    }

    /// Returns this node's object at the API server.
    pub fn node(&self) -> Result<Value> {
        self.get(&format!("/api/v1/nodes/{NODE}"))
    }

    /// Returns an object, or `None` if it does not exist.
    pub fn find(&self, path: &str) -> Result<Option<Value>> {
        self.ask("GET", path, "", None)
    }

    pub fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.ask("POST", path, "application/json", Some(object))?.with_context(|| format!("there is no {path}"))
    }

    pub fn merge(&self, path: &str, patch: &Value) -> Result<()> {
        self.ask("PATCH", path, "application/merge-patch+json", Some(patch)).map(drop)
    }

    /// Deletes a pod with this grace period, if it still has this UID. The kubelet deletes a pod whose containers have exited with
    /// a grace period of 0.
    pub fn delete(&self, path: &str, uid: &str, grace_seconds: u32) -> Result<()> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace_seconds, "preconditions": {"uid": uid}});
        self.ask("DELETE", path, "application/json", Some(&options)).map(drop)
    }

    fn ask(&self, method: &str, path: &str, kind: &str, body: Option<&Value>) -> Result<Option<Value>> {
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(body.map_or_else(Vec::new, |body| body.to_string().into_bytes()));
        let request = request.with_context(|| format!("{method} {path}"))?;
        let answer = async { tokio::time::timeout(LIMIT, self.client.request::<Value>(request)).await };
        match self.runtime.block_on(answer).with_context(|| format!("{method} {path}: no answer"))? {
            Ok(value) => Ok(Some(value)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{method} {path}")),
        }
    }
}

impl std::ops::Deref for ControlPlane {
    type Target = Admin;

    fn deref(&self) -> &Admin {
        &self.admin
    }
}
