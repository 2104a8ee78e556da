//! HTTP server for metrics, health and incidents. It runs on a separate thread.

mod browser_sessions;
mod connections;
mod guard;
mod incident_pages;
pub mod material;
mod open_page;
mod own_host;
mod review_budgets;
mod secrets;
mod state_page;
mod stats_page;
pub mod status_page;
mod token_reviews;
mod turns;
mod watch_places;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tower::ServiceExt as _;

use self::connections::{Peer, Places};
pub use self::guard::Guard;
use self::state_page::{Client, StateServer, WATCH_TIME};
use self::turns::Turns;
use super::openmetrics;
use super::publications::{Needs, Publications};
use super::summary::render_page;
use super::{Health, Metrics};
use crate::incidents::IncidentIndex;
use crate::report::metrics::render;

/// Time limit of a connection, from the handshake to the end of the response.
const CONNECTION_TIME: Duration = Duration::from_secs(10);
const HEADER_TIME: Duration = Duration::from_secs(2);
/// Maximum size of a request's headers. Limits the memory that a client can make the agent hold.
const HEADER_BYTES: usize = 16 << 10;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const INDEX: &str = "node-pressure-monitor: see /metrics, /summary, /stats/summary, /incidents, /api/v1/state, /api/v1/watch, /healthz and \
                     /readyz\n";
/// The served paths, for documentation and tests. `/incidents/ID`, `/open`, `/logout` and `/api/v1/open` are served too.
pub const PATHS: [&str; 9] = [
    "/",
    "/metrics",
    "/summary",
    "/stats/summary",
    "/incidents",
    "/api/v1/state",
    "/api/v1/watch",
    "/healthz",
    "/readyz",
];
/// Media type of the Prometheus text format. Prometheus 3 rejects a response without a known one.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";

pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let (reason, fix) = match error.kind() {
            io::ErrorKind::AddrInUse => ("the port is in use", "stop what uses it, or choose another"),
            io::ErrorKind::AddrNotAvailable => ("no interface has this address", "choose another"),
            io::ErrorKind::PermissionDenied => ("permission denied", "choose a port above 1023"),
            _ => (&*error.to_string(), "choose another address"),
        };
        anyhow::anyhow!("cannot listen on {address}: {reason}; {fix} with --listen or metrics.listen")
    })
}

/// State that the handlers share with the loop.
#[derive(Debug, Clone)]
pub struct Shared {
    /// The loop increments the counters; the server updates the gauges and renders all.
    pub metrics: Arc<Metrics>,
    pub health: Arc<Health>,
    /// Maintained by the thread that writes incidents.
    pub incidents: Arc<IncidentIndex>,
    pub publications: Arc<Publications>,
    pub guard: Arc<Guard>,
}

/// Serves requests until the future is dropped.
///
/// Spawns a task per connection on the caller's runtime, at most 32 at a time. At the limit, a new connection displaces the oldest one of
/// the peer with the most connections, so that a flood cannot block kubelet probes. A connection serves one request and ends after 10 s,
/// including a TLS handshake, so that a slow client holds resources only briefly. A stream of states may last ten minutes.
pub async fn serve(listener: TcpListener, shared: Shared) {
    let incidents = incident_pages::router(Arc::clone(&shared.incidents));
    let stats = Router::new()
        .route("/stats/summary", get(stats_page::summary))
        .with_state((shared.clone(), stats_page::SummaryState::default()));
    let state = Router::new()
        .route("/api/v1/state", get(state_page::state))
        .route("/api/v1/watch", get(state_page::watch))
        .with_state(StateServer::new(shared.clone()));
    let page = Router::new().route("/summary", get(summary)).with_state((shared.clone(), Turns::default()));
    let observed = shared.clone();
    tokio::spawn(async move { observed.publications.observe(&observed.metrics).await });
    let guard = Arc::clone(&shared.guard);
    let router = Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async |State(shared): State<Shared>| shared.health.healthz(Instant::now())))
        .route("/readyz", get(async |State(shared): State<Shared>| shared.health.readyz()))
        .with_state(shared)
        .merge(incidents)
        .merge(stats)
        .merge(state)
        .merge(page)
        .merge(open_page::router(Arc::clone(&guard)))
        // The layer covers unknown paths too: an unauthorized client must not learn which paths exist.
        .layer(from_fn_with_state(Arc::clone(&guard), guard::authorize));
    let mut places = Places::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Either the client reset the connection or file descriptors are exhausted. Both are temporary.
                tracing::debug!(%error, "a connection to the metrics address was not accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (router, tls, peer) = (router.clone(), guard.tls(), Peer::of(peer.ip()));
        let task = tokio::spawn(async move {
            let client = Client::new(peer);
            let mut received = pin!(receive(stream, tls, router, client.clone()));
            let mut is_over = timeout(CONNECTION_TIME, received.as_mut()).await.is_ok();
            if !is_over && client.watches() {
                is_over = timeout(WATCH_TIME, received).await.is_ok();
            }
            if !is_over {
                tracing::debug!("a connection to the metrics address took too long");
            }
        });
        places.take(peer, task.abort_handle());
    }
}

async fn receive(stream: TcpStream, tls: Option<Arc<ServerConfig>>, router: Router, client: Client) {
    let Some(tls) = tls else { return answer(stream, router, client).await };
    match timeout(HEADER_TIME, TlsAcceptor::from(tls).accept(stream)).await {
        Ok(Ok(stream)) => answer(stream, router, client).await,
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the metrics address failed in its handshake"),
        Err(_) => tracing::debug!("a connection to the metrics address took too long for its handshake"),
    }
}

/// Serves on a separate thread, so that the loop never waits for a handshake or a page.
pub fn serve_aside(listener: TcpListener, shared: Shared) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = listener.into_std()?;
    let run = move || {
        // The thread inherits the loop's raised priority. Lowering a priority needs no privilege.
        let _kept = rustix::process::setpriority_process(None, 0);
        runtime.block_on(async {
            match TcpListener::from_std(listener) {
                Ok(listener) => serve(listener, shared).await,
                Err(error) => tracing::error!(%error, "nothing is served: the listening socket cannot be used"),
            }
        });
    };
    std::thread::Builder::new().name("http".to_owned()).stack_size(1 << 20).spawn(run).map(drop)
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router, client: Client) {
    let service = router.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(client.clone());
        request
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the metrics address broke");
    }
}

/// Returns the header `Age`: the age of a publication in seconds (RFC 9111).
fn age(at: Instant) -> [(header::HeaderName, String); 1] {
    [(header::AGE, at.elapsed().as_secs().to_string())]
}

/// Returns the summary for people. A separate thread measures the working sets, for one page at a time.
async fn summary(State((shared, turns)): State<(Shared, Turns)>) -> Response {
    let Ok(turn) = turns.next().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let Some(publication) = shared.publications.take(Needs::Report).await else {
        return busy();
    };
    let age = age(publication.at);
    match turn.spend(move || render_page(&publication)).await {
        Ok(page) => (age, page).into_response(),
        Err(error) => failed("the summary cannot be rendered", &error),
    }
}

async fn metrics(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let _latest = shared.publications.take(Needs::Metrics).await;
    let age = age(shared.publications.measured().unwrap_or_else(Instant::now));
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if accept.is_some_and(openmetrics::is_accepted) {
        let text = shared.metrics.render_openmetrics();
        return (age, [(header::CONTENT_TYPE, openmetrics::CONTENT_TYPE)], text).into_response();
    }
    match render(&shared.metrics.gather()) {
        Ok(text) => (age, [(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(error) => failed("metrics cannot be rendered", &error),
    }
}

/// Returns the status page to a browser, and the paths to others.
async fn index(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    if status_page::is_asked_for(&headers) {
        status_page::page(shared.guard.session(&headers).is_some())
    } else {
        INDEX.into_response()
    }
}

/// Returns the response to a request that cannot be served.
fn failed(what: &str, error: &dyn std::error::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{what}: {error}\n")).into_response()
}

fn busy() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the loop is busy; try again\n").into_response()
}

/// Returns the value of a query parameter. The known values need no percent-decoding.
fn parameter<'q>(query: Option<&'q str>, name: &str) -> Option<&'q str> {
    let mut pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find_map(|(key, value)| (key == name).then_some(value))
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
