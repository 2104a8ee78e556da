//! The listener and its connections. They run on their own threads, since tests may block.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::{Identity, Shared};

/// The time limit until the port is free again.
const PORT_PATIENCE: Duration = Duration::from_secs(5);

/// A listener in front of a server.
#[derive(Debug)]
pub struct Front {
    threads: Threads,
    shared: Arc<Shared>,
    identity: Option<Identity>,
    address: SocketAddr,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

/// The threads of the connections. A drop does not wait for them, since it may run where blocking is forbidden.
#[derive(Debug)]
pub(crate) struct Threads(Option<Runtime>);

impl Threads {
    pub(crate) fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("test-apiserver")
            .enable_all()
            .build()
            .context("starting the test server's thread")?;
        Ok(Self(Some(runtime)))
    }

    pub(crate) fn handle(&self) -> Result<Handle> {
        self.0.as_ref().map(|runtime| runtime.handle().clone()).context("the test server has ended")
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Front {
    pub(crate) async fn start(
        threads: Threads,
        shared: Shared,
        address: SocketAddr,
        identity: Option<Identity>,
    ) -> Result<Self> {
        let mut front = Self { threads, shared: Arc::new(shared), identity, address, accepting: Mutex::default() };
        front.address = front.open().await?;
        Ok(front)
    }

    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    #[must_use]
    pub const fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Opens the port, after it was closed.
    pub async fn open(&self) -> Result<SocketAddr> {
        let address = self.address;
        let (shared, identity, cut) = (Arc::clone(&self.shared), self.identity.clone(), self.shared.cut.subscribe());
        let handle = self.threads.handle()?;
        let listener = handle.spawn(bind(address)).await.context("opening the test server's port")?;
        let listener = listener.with_context(|| format!("opening the test server's port {address}"))?;
        let address = listener.local_addr().context("asking for the test server's address")?;
        let accepting = handle.spawn(accept(listener, shared, identity, cut));
        *self.accepting.lock().unwrap_or_else(PoisonError::into_inner) = Some(accepting);
        Ok(address)
    }

    /// Closes the port and cuts all connections, as if the server were away.
    pub async fn close(&self) {
        let accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(accepting) = accepting {
            accepting.abort();
            // An aborted task has no result.
            let _aborted = accepting.await;
        }
    }

    /// Cuts all connections; new ones are accepted.
    pub fn cut_connections(&self) {
        self.shared.cut_connections();
    }
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let start = tokio::time::Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && start.elapsed() < PORT_PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => return other,
        }
    }
}

/// Accepts connections; when this task ends, they end and the port is closed.
async fn accept(listener: TcpListener, shared: Arc<Shared>, identity: Option<Identity>, mut cut: watch::Receiver<u64>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                // Small answers are sent at once.
                let _slower = stream.set_nodelay(true);
                let shared = Arc::clone(&shared);
                match identity.clone() {
                    None => drop(connections.spawn(serve(stream, shared))),
                    Some(identity) => drop(connections.spawn(async move {
                        // A client that refuses the certificate reports that itself.
                        if let Ok(stream) = identity.acceptor().accept(stream).await {
                            serve(stream, shared).await;
                        }
                    })),
                }
            }
            changed = cut.changed() => {
                if changed.is_err() {
                    return;
                }
                connections.abort_all();
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, shared: Arc<Shared>) {
    let service = service_fn(move |request: Request<Incoming>| Arc::clone(&shared).answer(request));
    // Tests cut connections on purpose, so their errors are ignored.
    let _cut = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
