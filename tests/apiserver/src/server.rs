//! The tests' handle of a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::watch;

use crate::access::ADMIN_TOKEN;
use crate::api::Api;
use crate::front::{Backend, Faults, Front, Identity, Log, Shared, Threads};

#[derive(Debug, Clone)]
pub struct Settings {
    pub listen: SocketAddr,
    pub tls: bool,
    /// The kubeconfig of the real server behind the listener; `None` for a server in memory.
    pub kubeconfig: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { listen, tls: false, kubeconfig: None }
    }
}

/// An API server, in memory or real, behind a listener with faults.
#[derive(Debug)]
pub struct TestServer {
    front: Front,
}

impl TestServer {
    /// Starts a listener before the real server that `KUBECONFIG` names, or before one in memory.
    pub async fn of_environment() -> Result<Self> {
        let kubeconfig = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        Self::with(Settings { kubeconfig, ..Settings::default() }).await
    }

    pub async fn with(settings: Settings) -> Result<Self> {
        let threads = Threads::start()?;
        let backend = match settings.kubeconfig {
            None => Backend::Memory(Arc::new(Api::default())),
            Some(path) => {
                let config = read(&path).await?;
                threads
                    .handle()?
                    .spawn(async move { Backend::real(&config) })
                    .await
                    .map_err(|error| anyhow!("making a client: {error}"))??
            }
        };
        let identity = if settings.tls { Some(Identity::new()?) } else { None };
        let shared = Shared { backend, faults: Faults::default(), log: Log::default(), cut: watch::Sender::new(0) };
        Ok(Self { front: Front::start(threads, shared, settings.listen, identity).await? })
    }

    /// Returns the listener's URL.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.front.identity().is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.front.address())
    }

    /// Returns the certificate that clients have to trust; `None` without TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<&str> {
        self.front.identity().map(Identity::pem)
    }

    /// Returns an administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_with(ADMIN_TOKEN)
    }

    /// Returns a kubeconfig with this token.
    #[must_use]
    pub fn kubeconfig_with(&self, token: &str) -> String {
        use base64::Engine as _;
        let authority = self.front.identity().map_or_else(String::new, |identity| {
            let pem = base64::engine::general_purpose::STANDARD.encode(identity.pem());
            format!("\n    certificate-authority-data: {pem}")
        });
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\ncontexts:\n- name: test\n  context:\n    cluster: test\n    \
             user: test\nclusters:\n- name: test\n  cluster:\n    server: {}{authority}\nusers:\n- name: test\n  user:\n    \
             token: {token}\n",
            self.url()
        )
    }

    /// Returns a client that uses the listener, with faults and without retries.
    pub async fn client(&self) -> Result<Client> {
        self.client_with(ADMIN_TOKEN).await
    }

    /// Returns such a client with another token.
    pub async fn client_with(&self, token: &str) -> Result<Client> {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig_with(token)).context("reading our own kubeconfig")?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .context("reading our own kubeconfig")?;
        config.default_retry = false;
        Client::try_from(config).context("making a client")
    }

    /// Returns a client that uses the listener without credentials.
    pub fn client_without_token(&self) -> Result<Client> {
        let mut config = Config::new(self.url().parse().context("reading our own address")?);
        config.root_cert = None;
        config.accept_invalid_certs = self.front.identity().is_some();
        config.default_retry = false;
        Client::try_from(config).context("making a client")
    }

    /// Returns a client without faults, whose requests are not logged.
    #[must_use]
    pub fn admin(&self) -> Client {
        self.front.shared().backend.admin()
    }

    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.front.shared().faults
    }

    /// Returns the log of the listener's requests.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.front.shared().log
    }

    /// Returns the server in memory; `None` if the server is real.
    #[must_use]
    pub fn memory(&self) -> Option<&Arc<Api>> {
        match &self.front.shared().backend {
            Backend::Memory(api) => Some(api),
            Backend::Real(_) => None,
        }
    }

    /// Returns whether the server is a real one.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.memory().is_none()
    }

    /// Closes the port and cuts all connections.
    pub async fn close(&self) {
        self.front.close().await;
    }

    /// Opens the port again.
    pub async fn open(&self) -> Result<()> {
        self.front.open().await.map(|_| ())
    }

    /// Closes the port for a time. The objects stay.
    pub async fn restart(&self, away: Duration) -> Result<()> {
        self.close().await;
        tokio::time::sleep(away).await;
        self.open().await
    }

    /// Cuts all connections; new ones are accepted.
    pub fn cut_connections(&self) {
        self.front.cut_connections();
    }
}

async fn read(path: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("reading {}", path.display()))
}
