//! The container runtime (containerd, CRI-O), spoken to over its socket by the Container Runtime Interface, `runtime.v1`.
//!
//! A thread of its own does it: the loop gives orders over a channel, hears of what came of them over another, and reads the last
//! snapshot, never waiting for anybody. A runtime that is down, slow or restarting is a state with a reason, and comes back by itself.

mod containerd;
mod cri;
mod cri_client;
mod deaths;
mod find;
mod garbage_collection;
mod garbage_plan;
mod logs;
mod observer;
mod pod_stop;
mod runtime_snapshot;
mod runtime_thread;
mod stopped_pods;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::config::{RuntimeEndpoint, RuntimeOptions};
use crate::units::Monotonic;

use find::Sockets;
use logs::Root;

pub use cri_client::CallError;
pub use find::{Identity, identify};
pub use garbage_collection::{CollectEnd, CollectOrder, Collected, Counts, IsEnough};
pub use garbage_plan::{Ages, Garbage, Step, Target, plan};
pub use pod_stop::{StopError, StopOrder, Stopped};
pub use runtime_snapshot::{
    Container, ContainerState, Details, Image, Limits, PodRef, Sandbox, Snapshot, Stores, UnixNanos,
};

/// What it is called among the capabilities that are missing.
pub const CAPABILITY: &str = "container runtime";
/// Orders that may wait.
const WAITING: usize = 64;
/// Enough for HTTP/2 in a debug build; what is not used costs nothing.
const STACK: usize = 1 << 20;
/// Threads that measure. One may hang with its disk, and the next need not.
const MEASURING: usize = 2;

/// How the runtime is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    /// Not asked yet.
    #[default]
    Looking,
    /// The configuration wants none.
    Off,
    /// This machine has none.
    Absent,
    /// It answers.
    Up {
        /// Which runtime: `containerd 1.6.20`.
        runtime: String,
        /// Where.
        socket: PathBuf,
    },
    /// It does not.
    Down {
        /// Why, and what to do about it.
        reason: String,
        /// Since when.
        since: Monotonic,
    },
}

impl State {
    /// Whether this machine has one, answering or not.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        match self {
            Self::Up { .. } | Self::Down { .. } => true,
            Self::Looking | Self::Off | Self::Absent => false,
        }
    }

    /// What does not work, for people; nothing when nothing is amiss.
    #[must_use]
    pub fn degradation(&self) -> Option<String> {
        match self {
            Self::Looking | Self::Off | Self::Absent | Self::Up { .. } => None,
            Self::Down { reason, .. } => Some(format!(
                "{CAPABILITY}: {reason}; until it answers, workloads are known by their cgroups alone, no garbage is \
                 collected, and pods are stopped by signals"
            )),
        }
    }
}

/// What the thread has to say.
#[derive(Debug)]
pub enum Event {
    /// The runtime came or went.
    State(State),
    /// An order to collect has been carried out.
    Collected(Collected),
    /// An order to stop a pod has been carried out.
    Stopped(Stopped),
}

#[derive(Debug)]
enum Order {
    Look,
    Pressure(bool),
    Collect(CollectOrder),
    Stop(StopOrder),
}

/// What both threads see. Held for as long as a pointer is copied.
#[derive(Debug, Default)]
struct Shared(Mutex<View>);

/// The runtime as it was last seen.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// How it is doing.
    pub state: State,
    /// What it has; nothing unless it is up.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Where it keeps things; stays known while it is down.
    pub stores: Stores,
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut View) -> T) -> T {
        // Nothing panics while holding it; if something did, the view is still whole.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn see(&self, snapshot: Snapshot) {
        let snapshot = Arc::new(snapshot);
        self.with(|view| {
            view.stores = snapshot.stores.clone();
            view.snapshot = Some(snapshot);
        });
    }

    fn forget(&self) {
        self.with(|view| view.snapshot = None);
    }

    /// True when that is news. Another reason while it is down is none: that it is was said.
    fn set_state(&self, state: State) -> bool {
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

    fn why_down(&self) -> String {
        self.with(|view| match &view.state {
            State::Down { reason, .. } => reason.clone(),
            State::Off | State::Absent => "there is none".to_owned(),
            State::Looking | State::Up { .. } => "it is being looked for".to_owned(),
        })
    }
}

/// Looks once, for a command that has no loop. Takes as long as the runtime does, within its timeout for each question.
///
/// # Errors
/// When there can be no event loop.
pub fn look_once(options: RuntimeOptions) -> std::io::Result<View> {
    if options.endpoint == RuntimeEndpoint::Off {
        return Ok(View { state: State::Off, ..View::default() });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(runtime_thread::look_once(options)))
}

/// Why an order was not taken: too many wait, or there is nobody to carry it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the thread that speaks to the container runtime takes no more orders")]
pub struct NotTaken;

/// The loop's end of the thread; the thread ends with it.
#[derive(Debug)]
pub struct Runtime {
    orders: Option<mpsc::Sender<Order>>,
    events: mpsc::UnboundedReceiver<Event>,
    shared: Arc<Shared>,
}

impl Runtime {
    /// Starts the thread, unless the configuration wants no runtime. Best before the loop takes a priority of its own, which threads
    /// made from then on would share.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(options: RuntimeOptions) -> std::io::Result<Self> {
        let sockets = Sockets::from(&options.endpoint);
        Self::start_with(options, sockets, Root::of_machine())
    }

    fn start_with(options: RuntimeOptions, sockets: Sockets, logs: Root) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (tell, events) = mpsc::unbounded_channel();
        if sockets == Sockets::None {
            shared.set_state(State::Off);
            return Ok(Self { orders: None, events, shared });
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(MEASURING)
            .thread_stack_size(STACK)
            .build()?;
        let (orders, taken) = mpsc::channel(WAITING);
        let seen = Arc::clone(&shared);
        let speak = move || {
            let keeper = runtime_thread::Keeper::new(options, sockets, logs, seen, tell);
            runtime.block_on(keeper.run(taken));
            // One that measures may hang with its disk.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("runtime".to_owned()).stack_size(STACK).spawn(speak)?;
        Ok(Self { orders: Some(orders), events, shared })
    }

    /// The runtime as it was last seen; takes no time.
    #[must_use]
    pub fn view(&self) -> View {
        self.shared.with(|view| view.clone())
    }

    /// Asks for a snapshot now.
    ///
    /// # Errors
    /// When the order is not taken.
    pub fn look(&self) -> Result<(), NotTaken> {
        self.give(Order::Look)
    }

    /// Under pressure it looks every 10 s, else every 60 s.
    ///
    /// # Errors
    /// When the order is not taken.
    pub fn set_pressure(&self, is_pressed: bool) -> Result<(), NotTaken> {
        self.give(Order::Pressure(is_pressed))
    }

    /// Has garbage collected; [`Event::Collected`] follows. One collection at a time.
    ///
    /// # Errors
    /// When the order is not taken.
    pub fn collect(&self, order: CollectOrder) -> Result<(), NotTaken> {
        self.give(Order::Collect(order))
    }

    /// Has a pod stopped; [`Event::Stopped`] follows, some 30 s after its grace period at the latest. A static pod is left alone.
    ///
    /// # Errors
    /// When the order is not taken.
    pub fn stop_pod(&self, order: StopOrder) -> Result<(), NotTaken> {
        self.give(Order::Stop(order))
    }

    fn give(&self, order: Order) -> Result<(), NotTaken> {
        self.orders.as_ref().ok_or(NotTaken)?.try_send(order).map_err(|_| NotTaken)
    }

    /// The next thing that the thread has to say. Cancel-safe.
    pub async fn event(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => event,
            // Nobody speaks, and nobody will.
            None => std::future::pending().await,
        }
    }

    /// The same, if there is something already.
    pub fn try_event(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
