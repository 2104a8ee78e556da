//! The container runtime (containerd, CRI-O). The agent calls it over its socket by the Container Runtime Interface,
//! `runtime.v1`.
//!
//! A separate thread makes the calls. The loop sends orders, receives events, and reads the last snapshot without waiting. A
//! runtime that is down, slow or restarting is a state with a reason; the thread reconnects by itself.

mod containerd;
mod cri;
mod cri_client;
mod deaths;
mod find;
mod garbage_collection;
mod garbage_plan;
mod image_use;
mod kubelet_tear_down;
mod logs;
mod names;
mod observer;
mod pod_objects;
mod pod_stop;
mod runtime_orders;
mod runtime_snapshot;
mod runtime_state;
mod runtime_thread;
mod stopped_pods;

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::config::{RuntimeEndpoint, RuntimeOptions};

use find::Sockets;
use logs::Root;
use runtime_orders::Order;
use runtime_state::Shared;

pub use cri_client::CallError;
pub use find::{Identity, identify};
pub use garbage_plan::{Ages, Garbage, Step, Target, plan};
pub use names::{Names, container_name};
pub use runtime_orders::{
    CollectEnd, CollectOrder, Collected, Counts, Event, IsEnough, KubeletWait, StopError, StopOrder, Stopped, TearDown,
};
pub use runtime_snapshot::{
    Container, ContainerState, Details, Image, Limits, PodRef, Sandbox, Snapshot, Stores, UnixNanos,
};
pub use runtime_state::{CAPABILITY, State, View};

/// Limit of orders in the queue.
const WAITING: usize = 64;
/// Bytes of stack. HTTP/2 in a debug build needs most of it; unused pages cost nothing.
const STACK: usize = 1 << 20;
/// Threads that measure disks. If one hangs with its disk, the other still measures.
const MEASURING: usize = 2;

/// Observes the runtime once, for commands without a loop. Waits for the runtime, for each call at most the timeout.
pub fn observe_once(options: RuntimeOptions) -> std::io::Result<View> {
    if options.endpoint == RuntimeEndpoint::Off {
        return Ok(View { state: State::Off, ..View::default() });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(runtime_thread::observe_once(options)))
}

/// The error of an order that cannot be queued: the queue is full, or there is no thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the thread that talks to the container runtime takes no more orders: its queue is full, or it has ended")]
pub struct NotTaken;

/// Reads the latest view of the runtime thread without waiting.
#[derive(Debug, Clone)]
pub struct Viewer(Arc<Shared>);

impl Viewer {
    pub fn view(&self) -> View {
        self.0.view()
    }

    /// Returns the snapshot of the view, without copying the rest.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.0.snapshot()
    }
}

/// The loop's handle of the runtime thread. Dropping the handle ends the thread.
#[derive(Debug)]
pub struct Runtime {
    orders: Option<mpsc::Sender<Order>>,
    events: mpsc::UnboundedReceiver<Event>,
    shared: Arc<Shared>,
}

impl Runtime {
    /// Starts the thread, unless the options switch the runtime off. The caller calls this before it raises the loop's priority,
    /// because threads inherit it.
    pub fn start(options: RuntimeOptions) -> std::io::Result<Self> {
        let sockets = Sockets::from(&options.endpoint);
        Self::start_with(options, sockets, Root::of_machine())
    }

    fn start_with(options: RuntimeOptions, sockets: Sockets, logs: Root) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (sender, events) = mpsc::unbounded_channel();
        if sockets == Sockets::None {
            shared.set_state(State::Off);
            return Ok(Self { orders: None, events, shared });
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(MEASURING)
            .thread_stack_size(STACK)
            .build()?;
        let (orders, received) = mpsc::channel(WAITING);
        let thread_shared = Arc::clone(&shared);
        let run = move || {
            let worker = runtime_thread::Worker::new(options, sockets, logs, thread_shared, sender);
            runtime.block_on(worker.run(received));
            // A measuring thread may hang with its disk.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("runtime".to_owned()).stack_size(STACK).spawn(run)?;
        Ok(Self { orders: Some(orders), events, shared })
    }

    /// Returns the latest view without waiting.
    pub fn view(&self) -> View {
        self.shared.view()
    }

    pub fn viewer(&self) -> Viewer {
        Viewer(Arc::clone(&self.shared))
    }

    pub fn observe(&self) -> Result<(), NotTaken> {
        self.send(Order::Observe)
    }

    /// Sets the interval of snapshots: 10 s under pressure, else 60 s.
    pub fn set_pressure(&self, is_pressed: bool) -> Result<(), NotTaken> {
        self.send(Order::Pressure(is_pressed))
    }

    /// Orders a garbage collection, one at a time; [`Event::Collected`] follows.
    pub fn collect(&self, order: CollectOrder) -> Result<(), NotTaken> {
        self.send(Order::Collect(order))
    }

    /// Orders the thread to stop a pod. [`Event::Stopped`] follows at most about 30 s after the grace period, or after the time that the
    /// kubelet has. Static pods are refused.
    pub fn stop_pod(&self, order: StopOrder) -> Result<(), NotTaken> {
        self.send(Order::Stop(order))
    }

    fn send(&self, order: Order) -> Result<(), NotTaken> {
        self.orders.as_ref().ok_or(NotTaken)?.try_send(order).map_err(|_| NotTaken)
    }

    /// Returns the next event of the thread. Cancel-safe.
    pub async fn event(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => event,
            // The thread has ended, so no event will follow.
            None => std::future::pending().await,
        }
    }

    pub fn try_event(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }
}

#[cfg(test)]
#[path = "tests/fake.rs"]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
