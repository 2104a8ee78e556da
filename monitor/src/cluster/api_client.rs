//! Where the API server is, and who we are to it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use kube::client::Body;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::config::KubernetesOptions;
use crate::config::kubernetes_options::ApiUse;
use crate::units::Monotonic;

use super::{Event, Shared, State};

/// Where a pod finds the token of its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// A configuration that cannot be read now may be mended.
const AGAIN: Duration = Duration::from_secs(10);
/// Files are read again no more often.
const RENEWED_EVERY: Duration = Duration::from_secs(30);

/// How long the API server is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// To connect, and until an answer begins.
    pub answer: Duration,
    /// Until a watch that says nothing is taken for dead. The API server sends a bookmark about once a minute (`bookmarkFrequency` of its
    /// watch cache).
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { answer: Duration::from_secs(15), silence: Duration::from_secs(150) }
    }
}

/// How to reach the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    kubeconfig: Option<PathBuf>,
    node_name: String,
    timeouts: Timeouts,
    /// Beside it is written down what is to outlive this agent.
    lock_file: Option<PathBuf>,
}

impl Access {
    /// By the options and the environment; nothing where there is no API server, or none is wanted.
    #[must_use]
    pub fn find(options: &KubernetesOptions) -> Option<Self> {
        if options.api == ApiUse::Off {
            return None;
        }
        let from_environment = || std::env::var_os("KUBECONFIG").map(PathBuf::from);
        let kubeconfig = options.kubeconfig.clone().or_else(from_environment);
        let has_service_account = || Path::new(SERVICE_ACCOUNT).exists();
        (kubeconfig.is_some() || has_service_account()).then(|| Self::new(kubeconfig, node_name(options)))
    }

    /// Given by hand.
    #[must_use]
    pub fn by_kubeconfig(kubeconfig: PathBuf, node_name: &str) -> Self {
        Self::new(Some(kubeconfig), node_name.to_owned())
    }

    fn new(kubeconfig: Option<PathBuf>, node_name: String) -> Self {
        Self { kubeconfig, node_name, timeouts: Timeouts::default(), lock_file: None }
    }

    /// The same, with what is known written down beside the agent's lock file.
    #[must_use]
    pub fn beside(self, lock_file: &Path) -> Self {
        Self { lock_file: Some(lock_file.to_owned()), ..self }
    }

    /// The same, with other patience.
    #[must_use]
    pub fn with_timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, ..self }
    }

    /// This node.
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.node_name
    }

    /// Beside which file things are written down.
    #[must_use]
    pub fn lock_file(&self) -> Option<&Path> {
        self.lock_file.as_deref()
    }

    /// The server. Tries again while the configuration cannot be used; nothing when nobody wants it any more.
    pub(super) async fn connect(
        self,
        shared: &Arc<Shared>,
        news: &mpsc::UnboundedSender<Event>,
        options: &watch::Receiver<KubernetesOptions>,
    ) -> Option<Server> {
        loop {
            let reason = match self.client().await {
                Ok(client) => return Some(Server::new(self, client)),
                Err(reason) => reason,
            };
            let state = State::Down { reason, since: Monotonic::now() };
            if shared.set_state(state.clone()) && news.send(Event::State(state)).is_err() {
                return None;
            }
            tokio::time::sleep(AGAIN).await;
            options.has_changed().ok()?;
        }
    }

    /// A client as the files say now.
    pub(super) async fn client(&self) -> Result<kube::Client, String> {
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let file = kube::config::Kubeconfig::read_from(path).map_err(|error| error.to_string())?;
                kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default())
                    .await
                    .map_err(|error| format!("{}: {error}", path.display()))?
            }
            None => kube::Config::incluster().map_err(|error| error.to_string())?,
        };
        // Whoever asks decides whether and when to ask again: what is retried beneath hides for minutes that nobody answers.
        config.default_retry = false;
        config.connect_timeout = Some(self.timeouts.answer);
        config.write_timeout = Some(self.timeouts.answer);
        let name = http::HeaderValue::from_static(concat!("node-pressure-monitor/", env!("CARGO_PKG_VERSION")));
        config.headers.push((http::header::USER_AGENT, name));
        kube::Client::try_from(config).map_err(|error| error.to_string())
    }
}

/// The API server, reached by whatever its files say.
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
            let client = used.lock().unwrap_or_else(PoisonError::into_inner).clone();
            async move { client.send(request).await }
        };
        let client = kube::Client::new(tower::service_fn(send), namespace);
        Self { access, client, current, renewed: Mutex::new(Instant::now()) }
    }

    /// A client that stays good when certificates, tokens or addresses in the files change.
    pub(super) const fn client(&self) -> &kube::Client {
        &self.client
    }

    pub(super) const fn timeouts(&self) -> Timeouts {
        self.access.timeouts
    }

    /// Reads the files again, unless that was done a moment ago. What cannot be read leaves all as it is.
    pub(super) async fn renew(&self) {
        let now = Instant::now();
        {
            let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
            if now.duration_since(*renewed) < RENEWED_EVERY {
                return;
            }
            *renewed = now;
        }
        if let Ok(client) = self.access.client().await {
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = client;
        }
    }
}

fn node_name(options: &KubernetesOptions) -> String {
    let from_environment = || std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty());
    let of_host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    options.node_name.clone().or_else(from_environment).unwrap_or_else(of_host)
}
