//! The Kubernetes API server: reflectors of this node and its pods, and what the loop sends: conditions, events, evictions.
//!
//! Two threads do the requests, so the loop never waits for the API server. An API server that is away, slow or refuses is a state with
//! a reason; the pods stay known as they were last read, with their age.

mod api_answer;
mod api_call;
mod api_client;
mod api_state;
mod api_threads;
mod api_time;
mod backoff;
pub mod condition_names;
pub mod events;
pub mod evictions;
pub mod fleet;
mod lease;
pub mod ledger;
mod lenient_json;
mod list_page;
mod list_stream;
mod maintenance;
pub mod name_resolution;
pub mod node_digest;
mod node_reflector;
pub mod own_node_policy;
pub mod own_permissions;
pub mod permissions;
mod pod_cache;
mod pod_reflector;
mod reflector;
mod resource_version;
pub mod reviews;
pub mod status;
pub mod sweeper;
mod watch_stream;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use crate::config::KubernetesOptions;

use api_state::{Reporter, Shared};
use api_threads::{Inbox, Start};
use evictions::overwritten::Overwritten;

pub use api_client::{Access, Timeouts};
pub use api_state::{CAPABILITY, Event, NodeFacts, State, View, WatchCounts};
pub use events::EventRequest;
pub use evictions::exchange::{Begun, EvictionUpdate, Verdict};
pub use evictions::intent::Intent;
pub use ledger::Ledger;
pub use node_digest::NodeDigest;
pub use pod_cache::cached_pods;
pub use reviews::{Review, Reviewer, Turn};
pub use status::NodeStatus;

/// Evictions that may wait for the working thread.
const WAITING_EVICTIONS: usize = 64;
/// Events that may wait for the working thread.
const WAITING_EVENTS: usize = 256;
/// Bytes of stack: TLS in a debug build needs most of it; unused pages cost nothing.
const STACK: usize = 2 << 20;

/// The working thread's queue is full, or there is no API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the thread that talks to the API server takes no more: its queue is full, or it has ended")]
pub struct NotTaken;

/// Reads what the API threads learned last; never waits.
#[derive(Debug, Clone)]
pub struct Viewer {
    shared: Arc<Shared>,
    is_there: bool,
}

impl Viewer {
    /// Returns whether an API server is configured, whether it answers or not.
    pub const fn is_there(&self) -> bool {
        self.is_there
    }

    pub fn view(&self) -> View {
        self.shared.with(|view| view.clone())
    }
}

/// The loop's end of the API threads.
#[derive(Debug)]
pub struct Cluster {
    evictions: mpsc::Sender<Intent>,
    events: mpsc::Sender<(Timestamp, EventRequest)>,
    status: watch::Sender<NodeStatus>,
    digest: watch::Sender<NodeDigest>,
    options: watch::Sender<KubernetesOptions>,
    reviewer: Reviewer,
    news: mpsc::UnboundedReceiver<Event>,
    shared: Arc<Shared>,
    ledger: Arc<Ledger>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Cluster {
    /// Starts the threads with a given API server and an empty ledger. Without `access` everything that is sent is refused.
    pub fn start_with(options: KubernetesOptions, access: Option<Access>) -> std::io::Result<Self> {
        Self::start_on(options, access, Ledger::default())
    }

    /// Starts the threads, if there is an API server, and finishes the evictions that `ledger` holds. Call it before the loop raises its own
    /// priority, which threads inherit.
    pub fn start_on(options: KubernetesOptions, access: Option<Access>, ledger: Ledger) -> std::io::Result<Self> {
        let ledger = Arc::new(ledger);
        let shared = Arc::new(Shared::default());
        let (sender, news) = mpsc::unbounded_channel();
        let (evictions, wanted_evictions) = mpsc::channel(WAITING_EVICTIONS);
        let (events, wanted_events) = mpsc::channel(WAITING_EVENTS);
        let (status, wanted_status) = watch::channel(NodeStatus::default());
        let (digest, latest_digest) = watch::channel(NodeDigest::default());
        let (options, wanted_options) = watch::channel(options);
        let (reviewer, reviews) = Reviewer::new();
        let inbox = Inbox {
            evictions: wanted_evictions,
            events: wanted_events,
            status: wanted_status,
            digest: latest_digest,
            reviews,
        };
        let thread = match access {
            None => {
                shared.with(|view| view.state = State::Off);
                None
            }
            Some(access) => {
                shared.with(|view| view.node_name = access.node_name().into());
                let reporter = Reporter { shared: Arc::clone(&shared), events: sender };
                let (ledger, node) = (Arc::clone(&ledger), watch::Sender::default());
                let overwritten = Overwritten::default();
                let start = Start { access, options: wanted_options, reporter, ledger, node, overwritten };
                // The watching thread leaves nothing behind, so stopping does not wait for it.
                let watching = start.clone();
                spawn("watches", || api_threads::watch_objects(watching))?;
                Some(spawn("cluster", || api_threads::work(start, inbox))?)
            }
        };
        Ok(Self { evictions, events, status, digest, options, reviewer, news, shared, ledger, thread })
    }

    /// Returns whether an API server is configured, whether it answers or not.
    pub const fn is_there(&self) -> bool {
        self.thread.is_some()
    }

    /// Returns the last view; never waits.
    pub fn view(&self) -> View {
        self.shared.with(|view| view.clone())
    }

    pub fn viewer(&self) -> Viewer {
        Viewer { shared: Arc::clone(&self.shared), is_there: self.is_there() }
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Evicts a pod through the API server. The intent must be in the ledger; [`Event::Eviction`] follows.
    pub fn evict(&self, intent: Intent) -> Result<(), NotTaken> {
        self.evictions.try_send(intent).map_err(|_| NotTaken)
    }

    pub fn send_event(&self, event: EventRequest) -> Result<(), NotTaken> {
        self.events.try_send((Timestamp::now(), event)).map_err(|_| NotTaken)
    }

    /// Sets the node's wanted conditions and taints. An equal status wakes no thread.
    pub fn publish(&self, status: NodeStatus) {
        self.status.send_if_modified(|before| {
            let is_new = *before != status;
            if is_new {
                *before = status;
            }
            is_new
        });
    }

    /// Sets what the node's next heartbeat tells about it.
    pub fn publish_digest(&self, digest: NodeDigest) {
        self.digest.send_replace(digest);
    }

    /// Returns the reviewer of bearer tokens; none without an API server.
    pub fn reviewer(&self) -> Option<Reviewer> {
        self.is_there().then(|| self.reviewer.clone())
    }

    /// Sets the options of a configuration that was read again.
    pub fn reload(&self, options: KubernetesOptions) {
        self.options.send_replace(options);
    }

    /// Returns the next event of the threads. Cancel-safe.
    pub async fn event(&mut self) -> Event {
        match self.news.recv().await {
            Some(event) => self.shared.taken(event),
            // Both threads have ended.
            None => std::future::pending().await,
        }
    }

    pub fn try_event(&mut self) -> Option<Event> {
        self.news.try_recv().ok().map(|event| self.shared.taken(event))
    }

    /// Ends the threads. Waits at most `deadline` until the working thread has removed conditions and taints from the node; unfinished
    /// evictions stay in the ledger.
    pub fn stop(self, deadline: Duration) {
        let Self { evictions, events, status, options, thread, .. } = self;
        // The working thread ends when all senders are dropped.
        drop((evictions, events, status, options));
        let Some(thread) = thread else { return };
        let begun = std::time::Instant::now();
        while !thread.is_finished() && begun.elapsed() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Starts a thread with its own tokio runtime.
fn spawn<F: Future<Output = ()>>(
    name: &str,
    begin: impl FnOnce() -> F + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = move || {
        runtime.block_on(begin());
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(run)
}
