//! The handle that tests hold.

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

/// How to start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Whether to speak TLS.
    pub tls: bool,
    /// The real server to stand before; a server in memory when there is none.
    pub kubeconfig: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { listen, tls: false, kubeconfig: None }
    }
}

/// An API server, in memory or real, behind a listener that can break connections.
#[derive(Debug)]
pub struct TestServer {
    front: Front,
}

impl TestServer {
    /// The real server that `KUBECONFIG` names, or one in memory when it names none.
    pub async fn of_environment() -> Result<Self> {
        let kubeconfig = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        Self::with(Settings { kubeconfig, ..Settings::default() }).await
    }

    /// As the settings say.
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

    /// Where clients reach it.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.front.identity().is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.front.address())
    }

    /// The certificate that clients are to trust; none without TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<&str> {
        self.front.identity().map(Identity::pem)
    }

    /// A kubeconfig of the one who may do everything.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_with(ADMIN_TOKEN)
    }

    /// A kubeconfig with a token.
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

    /// A client through the listener, faults and all; it repeats nothing by itself.
    pub async fn client(&self) -> Result<Client> {
        self.client_with(ADMIN_TOKEN).await
    }

    /// The same with another token.
    pub async fn client_with(&self, token: &str) -> Result<Client> {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig_with(token)).context("reading our own kubeconfig")?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .context("reading our own kubeconfig")?;
        config.default_retry = false;
        Client::try_from(config).context("making a client")
    }

    /// A client through the listener that does not say who it is.
    pub fn client_without_token(&self) -> Result<Client> {
        let mut config = Config::new(self.url().parse().context("reading our own address")?);
        config.root_cert = None;
        config.accept_invalid_certs = self.front.identity().is_some();
        config.default_retry = false;
        Client::try_from(config).context("making a client")
    }

    /// A client that meets no faults and leaves no trace in the log.
    #[must_use]
    pub fn admin(&self) -> Client {
        self.front.shared().backend.admin()
    }

    /// The faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.front.shared().faults
    }

    /// What was asked through the listener.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.front.shared().log
    }

    /// The server in memory; nothing before a real one.
    #[must_use]
    pub fn memory(&self) -> Option<&Arc<Api>> {
        match &self.front.shared().backend {
            Backend::Memory(api) => Some(api),
            Backend::Real { .. } => None,
        }
    }

    /// Whether a real server is behind it.
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

    /// Away for a time; what is stored is kept.
    pub async fn restart(&self, away: Duration) -> Result<()> {
        self.close().await;
        tokio::time::sleep(away).await;
        self.open().await
    }

    /// Cuts all connections; new ones are taken.
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
