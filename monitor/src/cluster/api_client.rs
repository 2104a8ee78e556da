//! How the agent reaches the API server, and under which identity.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use kube::api::GetParams;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::KubernetesOptions;
use crate::config::kubernetes_options::ApiUse;
use crate::node::name;
use crate::units::{Monotonic, lock};

use super::api_call::{TIMEOUT, call};
use super::api_state::{Reporter, State};
use super::evictions::overwritten::Overwritten;
use super::ledger::Ledger;
use super::maintenance::NodeMarks;
use super::name_resolution;
use super::status::node_object::NodeObject;

/// Where a pod finds the token of its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// The namespace of config/kubernetes.
const NAMESPACE: &str = "node-pressure-monitor";
/// Time after which a kubeconfig that cannot be read is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// Least time between two reads of the kubeconfig or token.
const RENEW_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// To connect, and until an answer begins.
    pub answer: Duration,
    /// Until a silent watch counts as dead. The API server sends a bookmark about once a minute (`bookmarkFrequency` of its watch
    /// cache).
    pub silence: Duration,
    /// Within this time the agents of all nodes list again after a 410.
    pub spread: Duration,
    /// Within this time the agents of all nodes renew their watches after a broken connection. client-go takes 0.8 s; an eviction reads its
    /// pod itself and needs no watch.
    pub renewal: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(15),
            silence: Duration::from_secs(150),
            spread: Duration::from_secs(10),
            renewal: Duration::from_secs(5),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Credentials {
    Kubeconfig(PathBuf),
    /// A kubeconfig that may neither run a program nor send another file.
    PlainKubeconfig(PathBuf),
    ServiceAccount,
    /// As kubectl chooses them: the file, or else those of `KUBECONFIG`, or else `~/.kube/config`.
    User {
        kubeconfig: Option<PathBuf>,
        context: Option<String>,
    },
}

/// How to reach the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    credentials: Credentials,
    node_name: String,
    timeouts: Timeouts,
    /// The pod cache is kept beside it.
    lock_file: Option<PathBuf>,
    /// Of the Leases; none: the pod's own, or the usual one.
    namespace: Option<String>,
}

impl Access {
    /// Finds the API server by the configuration and the environment; none: there is none, or the configuration switches it off.
    pub fn find(options: &KubernetesOptions) -> Option<Self> {
        Self::find_with(None, options)
    }

    /// Like [`Self::find`], with the kubeconfig of a command's argument, if it has one. Refuses plugins and token files of a kubeconfig that
    /// the configuration names: a user who may write the configuration must not run programs as root, nor choose a file that is sent.
    pub fn find_with(argument: Option<&Path>, options: &KubernetesOptions) -> Option<Self> {
        if options.api == ApiUse::Off {
            return None;
        }
        let of_environment = || std::env::var_os("KUBECONFIG").map(PathBuf::from).map(Credentials::Kubeconfig);
        let of_pod = || Path::new(SERVICE_ACCOUNT).exists().then_some(Credentials::ServiceAccount);
        let credentials = argument
            .map(|path| Credentials::Kubeconfig(path.to_owned()))
            .or_else(|| options.kubeconfig.clone().map(Credentials::PlainKubeconfig))
            .or_else(of_environment)
            .or_else(of_pod)?;
        Some(Self::new(credentials, name::of(options.node_name.as_deref())))
    }

    /// As kubectl reaches it.
    pub fn of_user(kubeconfig: Option<PathBuf>, context: Option<String>) -> Self {
        Self::new(Credentials::User { kubeconfig, context }, String::new())
    }

    pub fn by_kubeconfig(kubeconfig: PathBuf, node_name: &str) -> Self {
        Self::new(Credentials::Kubeconfig(kubeconfig), node_name.to_owned())
    }

    fn new(credentials: Credentials, node_name: String) -> Self {
        Self { credentials, node_name, timeouts: Timeouts::default(), lock_file: None, namespace: None }
    }

    /// Keeps the pod cache beside the agent's lock file.
    #[must_use]
    pub fn beside(self, lock_file: &Path) -> Self {
        Self { lock_file: Some(lock_file.to_owned()), ..self }
    }

    #[must_use]
    pub fn with_timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, ..self }
    }

    #[must_use]
    pub fn in_namespace(self, namespace: Option<String>) -> Self {
        Self { namespace, ..self }
    }

    /// Returns whether the identity is the service account of the agent's own pod.
    pub fn is_of_pod(&self) -> bool {
        self.credentials == Credentials::ServiceAccount
    }

    pub fn node_name(&self) -> &str {
        &self.node_name
    }

    pub fn lock_file(&self) -> Option<&Path> {
        self.lock_file.as_deref()
    }

    /// Reads the labels of the node's object.
    pub async fn node_labels(&self) -> Result<BTreeMap<String, String>, String> {
        let request = kube::core::Request::new("/api/v1/nodes").get(&self.node_name, &GetParams::default());
        let node: Result<NodeMarks, _> = call(&self.client().await?, request, TIMEOUT).await;
        node.map(|node| node.metadata.labels).map_err(|failure| failure.to_string())
    }

    /// Connects, and retries while the kubeconfig or token cannot be used. None: the loop ended first.
    pub(super) async fn connect(
        self,
        reporter: &Reporter,
        options: &watch::Receiver<KubernetesOptions>,
    ) -> Option<Server> {
        loop {
            let reason = match self.client().await {
                Ok(client) => return Some(Server::new(self, client)),
                Err(reason) => reason,
            };
            reporter.set_state(State::Down { reason, since: Monotonic::now() });
            tokio::time::sleep(RETRY).await;
            options.has_changed().ok()?;
        }
    }

    /// Makes a client from the files as they are now.
    pub(super) async fn client(&self) -> Result<kube::Client, String> {
        name_resolution::use_builtin_services().map_err(|error| format!("name resolution: {error}"))?;
        let mut config = self.credentials.config().await?;
        // A kubeconfig's namespace is that of its user's work. A pod's is right.
        match (&self.namespace, &self.credentials) {
            (Some(namespace), _) => config.default_namespace.clone_from(namespace),
            (None, Credentials::ServiceAccount) => {}
            (None, _) => NAMESPACE.clone_into(&mut config.default_namespace),
        }
        // Callers retry themselves: kube's own retries would hide an outage for minutes.
        config.default_retry = false;
        config.connect_timeout = Some(self.timeouts.answer);
        config.write_timeout = Some(self.timeouts.answer);
        let name = http::HeaderValue::from_static(concat!("node-pressure-monitor/", env!("CARGO_PKG_VERSION")));
        config.headers.push((http::header::USER_AGENT, name));
        kube::Client::try_from(config).map_err(|error| error.to_string())
    }
}

impl Credentials {
    /// Reads the files as they are now.
    async fn config(&self) -> Result<kube::Config, String> {
        let (kubeconfig, context) = match self {
            Self::ServiceAccount => return kube::Config::incluster().map_err(|error| error.to_string()),
            Self::Kubeconfig(path) | Self::PlainKubeconfig(path) => (Some(path), None),
            Self::User { kubeconfig, context } => (kubeconfig.as_ref(), context.clone()),
        };
        let file =
            kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from).map_err(|error| error.to_string())?;
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let place = kubeconfig.map_or_else(|| "the kubeconfig".to_owned(), |path| path.display().to_string());
        if matches!(self, Self::PlainKubeconfig(_)) && has_plugin(&file) {
            return Err(format!(
                "{place}: exec, auth-provider and tokenFile are refused where the configuration names the kubeconfig; name it by --kubeconfig"
            ));
        }
        kube::Config::from_custom_kubeconfig(file, &options).await.map_err(|error| format!("{place}: {error}"))
    }
}

/// Whether a user of the kubeconfig is authenticated by a program or by another file's content.
fn has_plugin(file: &Kubeconfig) -> bool {
    let mut users = file.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    users.any(|user| user.exec.is_some() || user.auth_provider.is_some() || user.token_file.is_some())
}

/// The context that every task of the API threads needs.
#[derive(Clone)]
pub(super) struct Context {
    /// Stays valid when certificates and tokens change.
    pub(super) client: kube::Client,
    pub(super) server: Arc<Server>,
    pub(super) node_name: Arc<str>,
    pub(super) reporter: Reporter,
    pub(super) ledger: Arc<Ledger>,
    /// The node's object as it was last listed or watched; none: it was not yet.
    pub(super) node: watch::Sender<Option<Arc<NodeObject>>>,
    /// How often the API server's store was found to be older than what was read from it.
    pub(super) restores: watch::Sender<u32>,
    /// The watching thread notes, the evictions learn.
    pub(super) overwritten: Overwritten,
}

/// Returns when the sender is dropped, which means that the loop has ended.
pub(super) async fn ended<T>(mut watched: watch::Receiver<T>) {
    while watched.changed().await.is_ok() {}
}

/// A connection to the API server that can be renewed.
pub(super) struct Server {
    access: Access,
    client: kube::Client,
    current: Arc<Mutex<kube::Client>>,
    renewed: Mutex<Instant>,
}

impl Server {
    fn new(access: Access, first: kube::Client) -> Self {
        let namespace = first.default_namespace().to_owned();
        let current = Arc::new(Mutex::new(first));
        let used = Arc::clone(&current);
        let send = move |request: Request<Body>| {
            let client = lock(&used).clone();
            async move { client.send(request).await }
        };
        let client = kube::Client::new(tower::service_fn(send), namespace);
        Self { access, client, current, renewed: Mutex::new(Instant::now()) }
    }

    /// Returns a client that stays valid when [`Self::renew`] replaces the connection.
    pub(super) const fn client(&self) -> &kube::Client {
        &self.client
    }

    pub(super) const fn timeouts(&self) -> Timeouts {
        self.access.timeouts
    }

    /// Reads the kubeconfig or token again, since certificates, tokens and addresses change; at most once in 30 s. After an error the
    /// connection stays as it is.
    pub(super) async fn renew(&self) {
        let now = Instant::now();
        {
            let mut renewed = lock(&self.renewed);
            if now.duration_since(*renewed) < RENEW_INTERVAL {
                return;
            }
            *renewed = now;
        }
        if let Ok(client) = self.access.client().await {
            *lock(&self.current) = client;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kubeconfig_of_the_configuration_runs_and_sends_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (path, ran) = (directory.path().join("kubeconfig"), directory.path().join("ran"));
        let exec =
            format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: touch, args: [{}]}}", ran.display());
        for (user, is_refused) in [
            (exec.as_str(), true),
            ("auth-provider: {name: gcp, config: {cmd-path: /bin/true}}", true),
            ("tokenFile: /etc/shadow", true),
            ("token: abc", false),
        ] {
            let text = format!(
                "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
                 clusters: [{{name: c, cluster: {{server: \"http://127.0.0.1:1\"}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
            );
            std::fs::write(&path, text).unwrap();
            let options = KubernetesOptions { kubeconfig: Some(path.clone()), ..KubernetesOptions::default() };
            let read = Access::find(&options).unwrap().credentials.config().await;
            let refused = read.as_ref().is_err_and(|reason| reason.contains("--kubeconfig"));
            assert_eq!(refused, is_refused, "{user}: {read:?}");
            let by_argument = Access::find_with(Some(&path), &options).unwrap();
            assert_eq!(by_argument.credentials, Credentials::Kubeconfig(path.clone()));
        }
        assert!(!ran.exists());
    }
}
