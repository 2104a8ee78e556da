//! Where the API server is, and who we are to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::config::KubernetesOptions;
use crate::config::kubernetes::ApiUse;
use crate::node::Monotonic;

use super::{Event, Shared, State};

/// Where a pod finds the token of its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// A configuration that cannot be read now may be mended.
const AGAIN: Duration = Duration::from_secs(10);

/// How to reach the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    kubeconfig: Option<PathBuf>,
    node_name: String,
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
        let has_service_account = || std::path::Path::new(SERVICE_ACCOUNT).exists();
        (kubeconfig.is_some() || has_service_account()).then(|| Self { kubeconfig, node_name: node_name(options) })
    }

    /// Given by hand.
    #[must_use]
    pub fn by_kubeconfig(kubeconfig: PathBuf, node_name: &str) -> Self {
        Self { kubeconfig: Some(kubeconfig), node_name: node_name.to_owned() }
    }

    /// This node.
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.node_name
    }

    /// A client. Tries again while the configuration cannot be used; nothing when nobody wants it any more.
    pub(super) async fn connect(
        &self,
        shared: &Arc<Shared>,
        news: &mpsc::UnboundedSender<Event>,
        options: &watch::Receiver<KubernetesOptions>,
    ) -> Option<kube::Client> {
        loop {
            let reason = match self.client().await {
                Ok(client) => return Some(client),
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

    pub(super) async fn client(&self) -> Result<kube::Client, String> {
        let config = match &self.kubeconfig {
            Some(path) => {
                let file = kube::config::Kubeconfig::read_from(path).map_err(|error| error.to_string())?;
                kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default())
                    .await
                    .map_err(|error| error.to_string())?
            }
            None => kube::Config::incluster().map_err(|error| error.to_string())?,
        };
        kube::Client::try_from(config).map_err(|error| error.to_string())
    }
}

fn node_name(options: &KubernetesOptions) -> String {
    let from_environment = || std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty());
    let of_host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    options.node_name.clone().or_else(from_environment).unwrap_or_else(of_host)
}
