//! The thread that speaks to the runtime. It looks from time to time, carries out orders, and begins anew when the runtime is gone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::cri_client::CallError;
use super::find::{Found, Missing, Sockets, find, with_pods};
use super::garbage_collection::{Collected, Collection};
use super::garbage_plan::Ages;
use super::logs::Root;
use super::observer::{Observation, Observer};
use super::pod_stop::{Ended, StopError, StopOrder, Stopped, stop};
use super::stopped_pods::{Owed, StoppedPods};
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
/// After so many looks that failed, some three minutes, it does not come back: another may have taken its place.
const GIVEN_UP: u32 = 10;

/// What a task ends with.
enum Done {
    Looked(Box<Result<(Found, Observation), Missing>>),
    Collected(Collected),
    /// With how often it was tried before.
    Stopped(Box<Ended>, u32),
}

/// The thread's state.
pub(super) struct Keeper {
    options: RuntimeOptions,
    sockets: Sockets,
    logs: Root,
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<Event>,
    watcher: Arc<Mutex<Observer>>,
    found: Option<Found>,
    /// Where it was when it last answered.
    before: Option<PathBuf>,
    /// There was one, or something that should have been.
    was_there: bool,
    departed: StoppedPods,
    tasks: JoinSet<Done>,
    is_looking: bool,
    is_collecting: bool,
    is_pressed: bool,
    /// Looks that failed, one after the other.
    failures: u32,
    next_look: Instant,
    /// What a look that is under way came too early for wants another by then.
    again: Option<Instant>,
}

impl Keeper {
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
            watcher: Arc::default(),
            found: None,
            before: None,
            was_there: false,
            departed: StoppedPods::default(),
            tasks: JoinSet::new(),
            is_looking: false,
            is_collecting: false,
            is_pressed: false,
            failures: 0,
            next_look: Instant::now(),
            again: None,
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
            Order::Stop(order) => {
                if !order.remove {
                    self.departed.tell(&order.uid);
                }
                self.stop(Owed { order, tries: 0, due: None });
            }
        }
    }

    fn stop(&mut self, owed: Owed) {
        if let Some(found) = self.found.clone() {
            let Owed { order, tries, due: _ } = owed;
            let (logs, had) = (self.logs.clone(), self.departed.of(&order.uid));
            self.tasks.spawn(async move { Done::Stopped(Box::new(stop(found, logs, order, had).await), tries) });
            return;
        }
        let mut reason = self.why_down();
        let StopOrder { uid, remove, .. } = owed.order.clone();
        if remove && self.was_there && self.departed.owe(owed) {
            reason.push_str("; what is left is removed once it answers");
        }
        let result = Err(StopError::Down(reason));
        self.tell(Event::Stopped(Stopped { remove, uid, result, took: Duration::ZERO }));
    }

    fn note_stopped(&mut self, ended: Ended, tries: u32) {
        let Ended { order, mut stopped, sandboxes } = ended;
        if !order.remove {
            self.departed.had(&order.uid, sandboxes);
        } else if matches!(&stopped.result, Err(StopError::Failed(_))) {
            self.departed.owe_again(order, tries);
        } else {
            self.departed.forget(&order.uid);
            // Nobody waits for what was owed, and what is not there is removed.
            if tries > 0 && matches!(stopped.result, Err(StopError::Unknown)) {
                stopped.result = Ok(0);
            }
        }
        self.tell(Event::Stopped(stopped));
    }

    fn look(&mut self) {
        self.is_looking = true;
        let search = Search {
            sockets: self.sockets.clone(),
            before: self.before.clone(),
            may_move: self.failures >= GIVEN_UP,
            timeout: self.options.timeout,
        };
        let (found, watcher) = (self.found.clone(), Arc::clone(&self.watcher));
        self.tasks.spawn(async move { Done::Looked(Box::new(look(search, found, watcher).await)) });
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
            Done::Stopped(ended, tries) => {
                self.look_within(Duration::ZERO);
                self.note_stopped(*ended, tries);
            }
        }
    }

    fn note_look(&mut self, result: Result<(Found, Observation), Missing>) {
        let (state, wait) = match result {
            Ok((found, Observation { snapshot, is_cut_short, .. })) => {
                self.failures = 0;
                self.was_there = true;
                let state = found.state();
                self.before = Some(found.socket.clone());
                self.found = Some(found);
                self.departed.see(&snapshot);
                self.shared.see(snapshot);
                let wait = if self.is_pressed { UNDER_PRESSURE } else { AT_REST };
                (state, if is_cut_short { FILLING } else { wait })
            }
            Err(Missing::Absent) if !self.was_there => {
                let wait = if self.is_pressed { UNDER_PRESSURE } else { AT_REST };
                (Missing::Absent.into_state(), wait)
            }
            Err(missing) => {
                self.was_there = true;
                self.found = None;
                self.shared.forget();
                self.departed.away();
                let wait = FIRST_RETRY.saturating_mul(1 << self.failures.min(10)).min(LAST_RETRY);
                self.failures = self.failures.saturating_add(1);
                (missing.or_gone().into_state(), wait)
            }
        };
        self.next_look = Instant::now() + wait;
        if let Some(again) = self.again.take() {
            self.next_look = self.next_look.min(again);
        }
        if self.shared.set_state(state.clone()) {
            self.tell(Event::State(state));
        }
        if self.found.is_some() {
            for owed in self.departed.take_due() {
                self.stop(Owed { tries: owed.tries.max(1), ..owed });
            }
            if let Some(due) = self.departed.next_due() {
                self.next_look = self.next_look.min(due);
            }
        }
    }

    fn look_within(&mut self, wait: Duration) {
        let then = Instant::now() + wait;
        if self.is_looking {
            self.again = Some(self.again.map_or(then, |again| again.min(then)));
        } else {
            self.next_look = self.next_look.min(then);
        }
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
    let sockets = Sockets::from(&options.endpoint);
    let search = Search { sockets, before: None, may_move: false, timeout: options.timeout };
    match look(search, None, Arc::default()).await {
        Ok((found, Observation { snapshot, .. })) => {
            View { state: found.state(), stores: snapshot.stores.clone(), snapshot: Some(Arc::new(snapshot)) }
        }
        Err(missing) => View { state: missing.into_state(), ..View::default() },
    }
}

/// Where a runtime is looked for.
struct Search {
    sockets: Sockets,
    before: Option<PathBuf>,
    may_move: bool,
    timeout: Duration,
}

/// Finds the runtime if need be, and looks at what it has.
async fn look(
    search: Search,
    found: Option<Found>,
    watcher: Arc<Mutex<Observer>>,
) -> Result<(Found, Observation), Missing> {
    let mut watcher = watcher.lock().await;
    let Search { sockets, before, may_move, timeout } = &search;
    if let Some(found) = found {
        match watcher.look(&found.client, &found.name).await {
            // It may be Docker's, and the other was not up yet.
            Ok(seeing) if seeing.snapshot.sandboxes.is_empty() => {
                let Sockets::AnyOf(sockets) = sockets else { return Ok((found, seeing)) };
                let Some(other) = with_pods(sockets, &found.socket, *timeout).await else { return Ok((found, seeing)) };
                *watcher = Observer::default();
                return look_at(other, &mut watcher).await;
            }
            Ok(seeing) => return Ok((found, seeing)),
            // It has been restarted, perhaps as something else; or it is gone, and is asked why.
            Err(CallError::Broken { .. }) => {}
            Err(error) => return Err(Missing::Unusable(format!("{}: {error}", found.name))),
        }
    }
    let found = find(sockets, before.as_deref(), *may_move, *timeout).await?;
    look_at(found, &mut watcher).await
}

async fn look_at(found: Found, watcher: &mut Observer) -> Result<(Found, Observation), Missing> {
    watcher.set_sandbox_image(found.sandbox_image.clone());
    match watcher.look(&found.client, &found.name).await {
        Ok(seeing) => Ok((found, seeing)),
        Err(error) => Err(Missing::Unusable(format!("{}: {error}", found.name))),
    }
}
