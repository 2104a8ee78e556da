//! The thread that calls the runtime. It observes the runtime at intervals, carries out orders, and reconnects.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::cri_client::CallError;
use super::find::{Found, Missing, Sockets, find, with_pods};
use super::garbage_collection::Collection;
use super::garbage_plan::Ages;
use super::logs::Root;
use super::observer::{Observation, Observer};
use super::pod_stop::{StopTask, stop};
use super::runtime_orders::{Collected, Event, Order, StopError, StopOrder, Stopped};
use super::runtime_state::{Shared, View};
use super::stopped_pods::{PendingRemoval, StoppedPods};
use crate::config::RuntimeOptions;

/// The interval of snapshots without pressure.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
/// The interval of snapshots under pressure.
const PRESSURE_INTERVAL: Duration = Duration::from_secs(10);
/// The time until the thread completes an incomplete snapshot.
const COMPLETION_INTERVAL: Duration = Duration::from_secs(1);
/// The first retry. A restarting runtime is back within a second or two.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// The number of failed observations, about three minutes, after which another runtime may have replaced this one.
const GIVEN_UP: u32 = 10;

enum Done {
    Observed(Box<Result<(Found, Observation), Missing>>),
    Collected(Collected),
    /// The result of a stop, with the number of earlier attempts.
    Stopped(Box<StopTask>, u32),
}

pub(super) struct Worker {
    options: RuntimeOptions,
    sockets: Sockets,
    logs: Root,
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<Event>,
    observer: Arc<Mutex<Observer>>,
    found: Option<Found>,
    /// The socket at which the runtime last answered.
    last_socket: Option<PathBuf>,
    /// Whether the machine has, or should have, a runtime.
    was_there: bool,
    stopped_pods: StoppedPods,
    tasks: JoinSet<Done>,
    is_observing: bool,
    is_collecting: bool,
    is_pressed: bool,
    /// The number of failed observations in a row.
    failures: u32,
    next_observation: Instant,
    /// The time of an observation that is needed after the one under way.
    again: Option<Instant>,
}

impl Worker {
    pub(super) fn new(
        options: RuntimeOptions,
        sockets: Sockets,
        logs: Root,
        shared: Arc<Shared>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Self {
            options,
            sockets,
            logs,
            shared,
            events,
            observer: Arc::default(),
            found: None,
            last_socket: None,
            was_there: false,
            stopped_pods: StoppedPods::default(),
            tasks: JoinSet::new(),
            is_observing: false,
            is_collecting: false,
            is_pressed: false,
            failures: 0,
            next_observation: Instant::now(),
            again: None,
        }
    }

    /// Runs until the sender of orders is dropped.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        loop {
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(order) => self.carry_out(order),
                    None => return,
                },
                Some(done) = self.tasks.join_next() => {
                    match done {
                        Ok(done) => self.finish(done),
                        // A task has panicked. The next one must not wait for it for ever.
                        Err(_) => (self.is_observing, self.is_collecting) = (false, false),
                    }
                }
                () = sleep_until(self.next_observation), if !self.is_observing => self.observe(),
            }
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Observe => self.observe_within(Duration::ZERO),
            Order::Pressure(is_pressed) => {
                self.is_pressed = is_pressed;
                if is_pressed {
                    self.observe_within(PRESSURE_INTERVAL);
                }
            }
            Order::Collect(order) => match (&self.found, self.is_collecting) {
                (Some(found), false) => {
                    let collection = Collection {
                        found: found.clone(),
                        observer: Arc::clone(&self.observer),
                        ages: Ages::from(&self.options),
                        logs: self.logs.clone(),
                    };
                    self.is_collecting = true;
                    self.tasks.spawn(async move { Done::Collected(collection.run(order).await) });
                }
                (None, _) => self.report(Event::Collected(Collected::interrupted(self.shared.why_down()))),
                (Some(_), true) => {
                    let reason = "another collection is under way".to_owned();
                    self.report(Event::Collected(Collected::interrupted(reason)));
                }
            },
            Order::Stop(order) => {
                if !order.remove {
                    self.stopped_pods.stopping(&order.uid);
                }
                self.stop(PendingRemoval { order, attempts: 0, due: None });
            }
        }
    }

    fn stop(&mut self, pending: PendingRemoval) {
        if let Some(found) = self.found.clone() {
            let PendingRemoval { order, attempts, due: _ } = pending;
            let (logs, had) = (self.logs.clone(), self.stopped_pods.sandboxes_of(&order.uid));
            self.tasks.spawn(async move { Done::Stopped(Box::new(stop(found, logs, order, had).await), attempts) });
            return;
        }
        let mut reason = self.shared.why_down();
        let StopOrder { uid, remove, .. } = pending.order.clone();
        if remove && self.was_there && self.stopped_pods.postpone(pending) {
            reason.push_str("; what is left is removed once it answers");
        }
        let result = Err(StopError::Down(reason));
        self.report(Event::Stopped(Stopped { remove, uid, result, took: Duration::ZERO }));
    }

    fn finish_stop(&mut self, task: StopTask, attempts: u32) {
        let StopTask { order, mut stopped, sandboxes } = task;
        if !order.remove {
            self.stopped_pods.had(&order.uid, sandboxes);
        } else if matches!(&stopped.result, Err(StopError::Failed(_))) {
            self.stopped_pods.retry(order, attempts);
        } else {
            self.stopped_pods.forget(&order.uid);
            // An unknown pod at a retry was removed by an earlier attempt.
            if attempts > 0 && matches!(stopped.result, Err(StopError::Unknown)) {
                stopped.result = Ok(0);
            }
        }
        self.report(Event::Stopped(stopped));
    }

    fn observe(&mut self) {
        self.is_observing = true;
        let search = Search {
            sockets: self.sockets.clone(),
            before: self.last_socket.clone(),
            may_move: self.failures >= GIVEN_UP,
            timeout: self.options.timeout,
        };
        let (found, observer) = (self.found.clone(), Arc::clone(&self.observer));
        self.tasks.spawn(async move { Done::Observed(Box::new(observe(search, found, observer).await)) });
    }

    fn finish(&mut self, done: Done) {
        match done {
            Done::Observed(result) => {
                self.is_observing = false;
                self.finish_observation(*result);
            }
            Done::Collected(collected) => {
                self.is_collecting = false;
                self.observe_within(Duration::ZERO);
                self.report(Event::Collected(collected));
            }
            Done::Stopped(task, attempts) => {
                self.observe_within(Duration::ZERO);
                self.finish_stop(*task, attempts);
            }
        }
    }

    fn finish_observation(&mut self, result: Result<(Found, Observation), Missing>) {
        let interval = if self.is_pressed { PRESSURE_INTERVAL } else { IDLE_INTERVAL };
        let (state, wait) = match result {
            Ok((found, Observation { snapshot, is_cut_short, .. })) => {
                self.failures = 0;
                self.was_there = true;
                let state = found.state();
                self.last_socket = Some(found.socket.clone());
                self.found = Some(found);
                self.stopped_pods.see(&snapshot);
                self.shared.set_snapshot(snapshot);
                (state, if is_cut_short { COMPLETION_INTERVAL } else { interval })
            }
            Err(Missing::Absent) if !self.was_there => (Missing::Absent.into_state(), interval),
            Err(missing) => {
                self.was_there = true;
                self.found = None;
                self.shared.forget_snapshot();
                self.stopped_pods.runtime_down();
                let wait = FIRST_RETRY.saturating_mul(1 << self.failures.min(10)).min(LONGEST_RETRY);
                self.failures = self.failures.saturating_add(1);
                (missing.or_gone().into_state(), wait)
            }
        };
        self.next_observation = Instant::now() + wait;
        if let Some(again) = self.again.take() {
            self.next_observation = self.next_observation.min(again);
        }
        if self.shared.set_state(state.clone()) {
            self.report(Event::State(state));
        }
        if self.found.is_some() {
            for pending in self.stopped_pods.take_due() {
                self.stop(PendingRemoval { attempts: pending.attempts.max(1), ..pending });
            }
            if let Some(due) = self.stopped_pods.next_due() {
                self.next_observation = self.next_observation.min(due);
            }
        }
    }

    fn observe_within(&mut self, wait: Duration) {
        let then = Instant::now() + wait;
        if self.is_observing {
            self.again = Some(self.again.map_or(then, |again| again.min(then)));
        } else {
            self.next_observation = self.next_observation.min(then);
        }
    }

    fn report(&self, event: Event) {
        // The send fails when the agent stops.
        let _no_loop = self.events.send(event);
    }
}

pub(super) async fn observe_once(options: RuntimeOptions) -> View {
    let sockets = Sockets::from(&options.endpoint);
    let search = Search { sockets, before: None, may_move: false, timeout: options.timeout };
    match observe(search, None, Arc::default()).await {
        Ok((found, Observation { snapshot, .. })) => {
            View { state: found.state(), stores: snapshot.stores.clone(), snapshot: Some(Arc::new(snapshot)) }
        }
        Err(missing) => View { state: missing.into_state(), ..View::default() },
    }
}

struct Search {
    sockets: Sockets,
    before: Option<PathBuf>,
    may_move: bool,
    timeout: Duration,
}

/// Finds the runtime, unless `found` still answers, and observes it.
async fn observe(
    search: Search,
    found: Option<Found>,
    observer: Arc<Mutex<Observer>>,
) -> Result<(Found, Observation), Missing> {
    let mut observer = observer.lock().await;
    let Search { sockets, before, may_move, timeout } = &search;
    if let Some(found) = found {
        match observer.observe(&found.client, &found.name).await {
            // A runtime without pods may be Docker's containerd, found before the kubelet's runtime was up.
            Ok(seen) if seen.snapshot.sandboxes.is_empty() => {
                let Sockets::AnyOf(sockets) = sockets else { return Ok((found, seen)) };
                let Some(other) = with_pods(sockets, &found.socket, *timeout).await else { return Ok((found, seen)) };
                *observer = Observer::default();
                return observe_found(other, &mut observer).await;
            }
            Ok(seen) => return Ok((found, seen)),
            // The runtime was restarted, perhaps as another version, or is down. The thread connects again.
            Err(CallError::Broken { .. }) => {}
            Err(error) => return Err(Missing::Unusable(format!("{}: {error}", found.name))),
        }
    }
    let found = find(sockets, before.as_deref(), *may_move, *timeout).await?;
    observe_found(found, &mut observer).await
}

async fn observe_found(found: Found, observer: &mut Observer) -> Result<(Found, Observation), Missing> {
    observer.set_sandbox_image(found.sandbox_image.clone());
    match observer.observe(&found.client, &found.name).await {
        Ok(seen) => Ok((found, seen)),
        Err(error) => Err(Missing::Unusable(format!("{}: {error}", found.name))),
    }
}
