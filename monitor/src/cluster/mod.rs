//! The Kubernetes control plane, spoken to by its API server.
//!
//! A thread of its own does it: it watches this node and its pods, and carries out what the loop hands over: the node's status, events,
//! evictions. The loop never waits for it. An API server that is away, slow or refuses is a state with a reason; what was last known of
//! the pods stays known, with its age.

mod api_answer;
mod api_call;
mod api_client;
mod api_threads;
mod api_time;
mod backoff;
pub mod condition_names;
pub mod events;
pub mod evictions;
pub mod ledger;
mod lenient_json;
mod list_stream;
mod maintenance;
mod node_reflector;
pub mod permissions;
mod pod_cache;
mod pod_reflector;
mod reflector;
pub mod reviews;
pub mod status;
pub mod sweeper;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use crate::config::KubernetesOptions;
use crate::units::Monotonic;
use crate::workloads::PodSpecs;

pub use api_client::{Access, Timeouts};
pub use events::EventRequest;
pub use evictions::{EvictionUpdate, Intent, Verdict};
pub use ledger::Ledger;
pub use node_reflector::NodeFacts;
pub use pod_cache::cached_pods;
pub use reviews::{Review, Reviewer};
pub use status::NodeStatus;

/// What it is called among the capabilities that are missing.
pub const CAPABILITY: &str = "API server";
/// Evictions that may wait to be carried out.
const WAITING_EVICTIONS: usize = 64;
/// Events that may wait to be sent.
const WAITING_EVENTS: usize = 256;
/// Enough for TLS in a debug build; what is not used costs nothing.
const STACK: usize = 2 << 20;

/// How the API server is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    /// Not asked yet.
    #[default]
    Looking,
    /// There is none, or the configuration wants none.
    Off,
    /// It answers.
    Up,
    /// It does not.
    Down {
        /// Why, and what to do about it.
        reason: String,
        /// Since when.
        since: Monotonic,
    },
}

impl State {
    /// What does not work, for people; nothing when nothing is amiss.
    #[must_use]
    pub fn degradation(&self) -> Option<String> {
        match self {
            Self::Looking | Self::Off | Self::Up => None,
            Self::Down { reason, .. } => Some(format!("{CAPABILITY}: {reason}")),
        }
    }
}

/// The cluster as it was last seen.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// How the API server is doing.
    pub state: State,
    /// This node's name; empty when there is no API server.
    pub node_name: Arc<str>,
    /// The pods of this node.
    pub pods: Arc<PodSpecs>,
    /// When these pods were true; nothing while they were never read.
    pub pods_as_of: Option<Monotonic>,
    /// The node's object.
    pub node: Arc<NodeFacts>,
    /// When that was true; nothing while it was never read.
    pub node_as_of: Option<Monotonic>,
    /// What it took to know the pods.
    pub counts: WatchCounts,
    /// That there are other pods was said, and not looked at yet.
    is_pods_told: bool,
    /// The same of the node.
    is_node_told: bool,
}

/// What it took to know the pods, since the thread was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WatchCounts {
    /// Times that all of them were listed.
    pub lists: u64,
    /// Changes that the API server told of.
    pub changes: u64,
}

/// What the thread has to say.
#[derive(Debug)]
pub enum Event {
    /// The API server came or went.
    State(State),
    /// Other pods than before, or changed ones; many changes in a moment are told once.
    Pods,
    /// The node's object has changed in a way that matters.
    Node,
    /// What came of an eviction.
    Eviction(EvictionUpdate),
    /// Something that the API server does not let us do, or does again.
    Degradation {
        /// What it is called among the capabilities that are missing.
        capability: &'static str,
        /// Why, and what to do about it; nothing when it works again.
        reason: Option<String>,
    },
}

/// What both threads see. Held for as long as a pointer is copied.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<View>);

impl Shared {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut View) -> T) -> T {
        // Nothing panics while holding it; if something did, the view is still whole.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the loop is to be told: what it has been told already, and not looked at, it is not told again.
    pub(crate) fn is_news(&self, event: &Event) -> bool {
        self.with(|view| match event {
            Event::Pods => !std::mem::replace(&mut view.is_pods_told, true),
            Event::Node => !std::mem::replace(&mut view.is_node_told, true),
            Event::State(_) | Event::Eviction(_) | Event::Degradation { .. } => true,
        })
    }

    fn heard(&self, event: Event) -> Event {
        self.with(|view| match event {
            Event::Pods => view.is_pods_told = false,
            Event::Node => view.is_node_told = false,
            Event::State(_) | Event::Eviction(_) | Event::Degradation { .. } => {}
        });
        event
    }

    /// True when that is news. Another reason while it is down is none: that it is was said.
    pub(crate) fn set_state(&self, state: State) -> bool {
        self.with(|view| match (&mut view.state, state) {
            (State::Down { reason, since: _ }, State::Down { reason: newer, .. }) => {
                *reason = newer;
                false
            }
            (before, now) if *before == now => false,
            (before, now) => {
                *before = now;
                true
            }
        })
    }
}

/// The other end of what the loop hands over, for the thread.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) evictions: mpsc::Receiver<Intent>,
    pub(crate) events: mpsc::Receiver<(Timestamp, EventRequest)>,
    pub(crate) status: watch::Receiver<NodeStatus>,
    pub(crate) reviews: mpsc::Receiver<reviews::Question>,
}

/// Why something was not taken: too much waits, or there is nobody to carry it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the thread that speaks to the API server takes no more")]
pub struct NotTaken;

/// The loop's end of the thread.
#[derive(Debug)]
pub struct Cluster {
    evictions: mpsc::Sender<Intent>,
    events: mpsc::Sender<(Timestamp, EventRequest)>,
    status: watch::Sender<NodeStatus>,
    options: watch::Sender<KubernetesOptions>,
    reviewer: Reviewer,
    news: mpsc::UnboundedReceiver<Event>,
    shared: Arc<Shared>,
    ledger: Arc<Ledger>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Cluster {
    /// Starts the thread where there is an API server to speak to. Best before the loop takes a priority of its own, which threads made
    /// from then on would share. What is to outlive this agent is written down beside its lock file.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(options: KubernetesOptions, ledger: Ledger, lock_file: &Path) -> std::io::Result<Self> {
        let access = Access::find(&options).map(|access| access.beside(lock_file));
        Self::start_on(options, access, ledger)
    }

    /// The same, with an API server that was found already; none: everything that is handed over is refused.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start_with(options: KubernetesOptions, access: Option<Access>) -> std::io::Result<Self> {
        Self::start_on(options, access, Ledger::default())
    }

    /// The same, and what an earlier agent left unfinished is finished.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start_on(options: KubernetesOptions, access: Option<Access>, ledger: Ledger) -> std::io::Result<Self> {
        let ledger = Arc::new(ledger);
        let shared = Arc::new(Shared::default());
        let (tell, news) = mpsc::unbounded_channel();
        let (evictions, wanted_evictions) = mpsc::channel(WAITING_EVICTIONS);
        let (events, wanted_events) = mpsc::channel(WAITING_EVENTS);
        let (status, wanted_status) = watch::channel(NodeStatus::default());
        let (options, wanted_options) = watch::channel(options);
        let (reviewer, reviews) = Reviewer::new();
        let inbox = Inbox { evictions: wanted_evictions, events: wanted_events, status: wanted_status, reviews };
        let thread = match access {
            None => {
                shared.set_state(State::Off);
                None
            }
            Some(access) => {
                shared.with(|view| view.node_name = access.node_name().into());
                let (shared, ledger) = (Arc::clone(&shared), Arc::clone(&ledger));
                let start = api_threads::Start { access, options: wanted_options, shared, ledger, news: tell };
                // It ends by itself, and leaves nothing to be waited for.
                let listening = start.clone();
                spawn("watches", || api_threads::listen(listening))?;
                Some(spawn("cluster", || api_threads::work(start, inbox))?)
            }
        };
        Ok(Self { evictions, events, status, options, reviewer, news, shared, ledger, thread })
    }

    /// Whether there is an API server, answering or not.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.thread.is_some()
    }

    /// The cluster as it was last seen; takes no time.
    #[must_use]
    pub fn view(&self) -> View {
        self.shared.with(|view| view.clone())
    }

    /// Evictions that are not finished.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Has a pod taken off the node whose eviction is in the ledger; [`Event::Eviction`] follows.
    ///
    /// # Errors
    /// When it is not taken.
    pub fn evict(&self, intent: Intent) -> Result<(), NotTaken> {
        self.evictions.try_send(intent).map_err(|_| NotTaken)
    }

    /// Has an event sent, if there is room for it.
    ///
    /// # Errors
    /// When it is not taken.
    pub fn send_event(&self, happening: EventRequest) -> Result<(), NotTaken> {
        self.events.try_send((Timestamp::now(), happening)).map_err(|_| NotTaken)
    }

    /// What the node's conditions and taints are to be from now on. Costs nothing where it is as before.
    pub fn publish(&self, status: NodeStatus) {
        self.status.send_if_modified(|before| {
            let is_new = *before != status;
            if is_new {
                *before = status;
            }
            is_new
        });
    }

    /// Who has tokens reviewed; nobody where there is no API server.
    #[must_use]
    pub fn reviewer(&self) -> Option<Reviewer> {
        self.is_there().then(|| self.reviewer.clone())
    }

    /// Other options, after the configuration was read again.
    pub fn reload(&self, options: KubernetesOptions) {
        self.options.send_replace(options);
    }

    /// The next thing that the thread has to say. Cancel-safe.
    pub async fn event(&mut self) -> Event {
        match self.news.recv().await {
            Some(event) => self.shared.heard(event),
            // Nobody speaks, and nobody will.
            None => std::future::pending().await,
        }
    }

    /// The same, if there is something already.
    pub fn try_event(&mut self) -> Option<Event> {
        self.news.try_recv().ok().map(|event| self.shared.heard(event))
    }

    /// Ends the thread: what it has put on the node is taken away, evictions under way stay in their ledger. Waits for that, but not
    /// for longer than `deadline`.
    pub fn stop(self, deadline: Duration) {
        let Self { evictions, events, status, options, thread, .. } = self;
        // The thread ends when nobody can hand anything over any more.
        drop((evictions, events, status, options));
        let Some(thread) = thread else { return };
        let begun = std::time::Instant::now();
        while !thread.is_finished() && begun.elapsed() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A thread with a runtime of its own.
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
