//! The thread that speaks to the runtime. It looks from time to time, carries out orders, and begins anew when the runtime is gone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::client::CallError;
use super::collect::{Collected, Collection};
use super::find::{Found, Missing, find};
use super::plan::Ages;
use super::stop::{StopError, Stopped, stop};
use super::watch::{Seeing, Watcher};
use super::{Event, Order, Shared, View};
use crate::config::RuntimeOptions;

/// How old a snapshot may be when nothing is short.
const AT_REST: Duration = Duration::from_secs(60);
/// How old it may be under pressure.
const UNDER_PRESSURE: Duration = Duration::from_secs(10);
/// A snapshot with gaps is filled so soon.
const FILLING: Duration = Duration::from_secs(1);
/// A runtime that restarts is back within a second or two.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// One that stays away is looked for this often.
const LAST_RETRY: Duration = Duration::from_secs(30);

/// What a task ends with.
enum Done {
    Looked(Box<Result<(Found, Seeing), Missing>>),
    Collected(Collected),
    Stopped(Stopped),
}

/// The thread's state.
pub(super) struct Keeper {
    options: RuntimeOptions,
    logs: PathBuf,
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<Event>,
    watcher: Arc<Mutex<Watcher>>,
    found: Option<Found>,
    tasks: JoinSet<Done>,
    is_looking: bool,
    is_collecting: bool,
    is_pressed: bool,
    /// Looks that failed, one after the other.
    failures: u32,
    next_look: Instant,
}

impl Keeper {
    pub(super) fn new(
        options: RuntimeOptions,
        logs: PathBuf,
        shared: Arc<Shared>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Self {
            options,
            logs,
            shared,
            events,
            watcher: Arc::default(),
            found: None,
            tasks: JoinSet::new(),
            is_looking: false,
            is_collecting: false,
            is_pressed: false,
            failures: 0,
            next_look: Instant::now(),
        }
    }

    /// Until nobody can give orders any more.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        loop {
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return,
                },
                Some(done) = self.tasks.join_next() => {
                    match done {
                        Ok(done) => self.note(done),
                        // A defect, which its panic has told of; nothing must wait for it for ever.
                        Err(_) => (self.is_looking, self.is_collecting) = (false, false),
                    }
                }
                () = sleep_until(self.next_look), if !self.is_looking => self.look(),
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Look => self.look_within(Duration::ZERO),
            Order::Pressure(is_pressed) => {
                self.is_pressed = is_pressed;
                if is_pressed {
                    self.look_within(UNDER_PRESSURE);
                }
            }
            Order::Collect(order) => match (&self.found, self.is_collecting) {
                (Some(found), false) => {
                    let collection = Collection {
                        found: found.clone(),
                        watcher: Arc::clone(&self.watcher),
                        ages: Ages::from(&self.options),
                        logs: self.logs.clone(),
                    };
                    self.is_collecting = true;
                    self.tasks.spawn(async move { Done::Collected(collection.run(order).await) });
                }
                (None, _) => self.tell(Event::Collected(Collected::interrupted(self.why_down()))),
                (Some(_), true) => {
                    let reason = "another collection is under way".to_owned();
                    self.tell(Event::Collected(Collected::interrupted(reason)));
                }
            },
            Order::Stop(order) => match &self.found {
                Some(found) => {
                    let (found, logs) = (found.clone(), self.logs.clone());
                    self.tasks.spawn(async move { Done::Stopped(stop(found, logs, order).await) });
                }
                None => {
                    let result = Err(StopError::Down(self.why_down()));
                    self.tell(Event::Stopped(Stopped {
                        remove: order.remove,
                        uid: order.uid,
                        result,
                        took: Duration::ZERO,
                    }));
                }
            },
        }
    }

    fn look(&mut self) {
        self.is_looking = true;
        let (options, found, watcher) = (self.options.clone(), self.found.clone(), Arc::clone(&self.watcher));
        self.tasks.spawn(async move { Done::Looked(Box::new(look(options, found, watcher).await)) });
    }

    fn note(&mut self, done: Done) {
        match done {
            Done::Looked(result) => {
                self.is_looking = false;
                self.note_look(*result);
            }
            Done::Collected(collected) => {
                self.is_collecting = false;
                self.look_within(Duration::ZERO);
                self.tell(Event::Collected(collected));
            }
            Done::Stopped(stopped) => {
                self.look_within(Duration::ZERO);
                self.tell(Event::Stopped(stopped));
            }
        }
    }

    fn note_look(&mut self, result: Result<(Found, Seeing), Missing>) {
        let (state, wait) = match result {
            Ok((found, Seeing { snapshot, is_whole })) => {
                self.failures = 0;
                let state = found.state();
                self.found = Some(found);
                self.shared.see(snapshot);
                let wait = if self.is_pressed { UNDER_PRESSURE } else { AT_REST };
                (state, if is_whole { wait } else { FILLING })
            }
            Err(missing) => {
                self.found = None;
                self.shared.forget();
                let wait = FIRST_RETRY.saturating_mul(1 << self.failures.min(10)).min(LAST_RETRY);
                self.failures = self.failures.saturating_add(1);
                let wait = if missing == Missing::Absent { AT_REST } else { wait };
                (missing.into_state(), wait)
            }
        };
        self.next_look = Instant::now() + wait;
        if self.shared.set_state(state.clone()) {
            self.tell(Event::State(state));
        }
    }

    fn look_within(&mut self, wait: Duration) {
        self.next_look = self.next_look.min(Instant::now() + wait);
    }

    fn why_down(&self) -> String {
        self.shared.why_down()
    }

    fn tell(&self, event: Event) {
        // Nobody listens any more: the agent stops.
        let _unheard = self.events.send(event);
    }
}

/// One look without a thread.
pub(super) async fn look_once(options: RuntimeOptions) -> View {
    match look(options, None, Arc::default()).await {
        Ok((found, Seeing { snapshot, .. })) => {
            View { state: found.state(), stores: snapshot.stores.clone(), snapshot: Some(Arc::new(snapshot)) }
        }
        Err(missing) => View { state: missing.into_state(), ..View::default() },
    }
}

/// Finds the runtime if need be, and looks at what it has.
async fn look(
    options: RuntimeOptions,
    found: Option<Found>,
    watcher: Arc<Mutex<Watcher>>,
) -> Result<(Found, Seeing), Missing> {
    let mut watcher = watcher.lock().await;
    if let Some(found) = found {
        match watcher.look(&found.client, &found.name).await {
            Ok(seeing) => return Ok((found, seeing)),
            // It has been restarted, perhaps as something else; or it is gone, and is asked why.
            Err(CallError::Broken { .. }) => {}
            Err(error) => return Err(Missing::Unusable(format!("{}: {error}", found.name))),
        }
    }
    let found = find(&options.endpoint, options.timeout).await?;
    watcher.set_sandbox_image(found.sandbox_image.clone());
    match watcher.look(&found.client, &found.name).await {
        Ok(seeing) => Ok((found, seeing)),
        Err(error) => Err(Missing::Unusable(format!("{}: {error}", found.name))),
    }
}
