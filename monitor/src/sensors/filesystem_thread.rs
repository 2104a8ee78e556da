//! The thread that calls statfs on the node's filesystems. A disk that hangs does not block the loop.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::MonitorConfig;
use crate::eviction::Observation;
use crate::node::filesystem_roles::{Choice, FilesystemHints, Role};
use crate::node::statfs::{FsSample, NoSample, Statfs};
use crate::units::{Monotonic, lock};

use super::filesystem_asker::{Answer, Answers, Asker, FLOOR, Orders, STALE};

/// How long the agent waits at its start for the first answers, so that the first observation has all signals.
const FIRST_ANSWER: Duration = Duration::from_millis(500);
/// A thread that a filesystem blocks for this long is abandoned, and a new thread asks the other filesystems.
const BLOCKED_AFTER: Duration = Duration::from_secs(2);

/// Calls statfs. Each thread has its own instance, because a thread that hangs keeps the instance.
trait StatfsCaller: std::fmt::Debug + Send + Sync {
    fn sample(&mut self, role: Role, choice: &Choice) -> Result<FsSample, NoSample>;
    fn boxed_clone(&self) -> Box<dyn StatfsCaller>;
}

impl StatfsCaller for Statfs {
    fn sample(&mut self, role: Role, choice: &Choice) -> Result<FsSample, NoSample> {
        Self::sample(self, role, choice)
    }

    fn boxed_clone(&self) -> Box<dyn StatfsCaller> {
        Box::new(self.clone())
    }
}

/// The thread on duty, and the filesystem that it waits for.
#[derive(Debug)]
struct Duty {
    /// The number of the thread on duty; a thread of an earlier number ends when statfs returns.
    shift: u64,
    /// The role of the filesystem that the thread waits for, and since when.
    asking: Option<(Role, Monotonic)>,
    /// When the next round is due.
    due: Monotonic,
    /// Roles whose filesystems still block abandoned threads.
    held: Vec<(Role, Monotonic)>,
    orders: Orders,
    has_ended: bool,
}

#[derive(Debug)]
struct Shared {
    answers: Mutex<Arc<Answers>>,
    duty: Mutex<Duty>,
    wake: Condvar,
    /// The thread on duty holds this lock, but never while statfs may block it.
    asker: Mutex<Asker>,
    changed: Notify,
}

impl Shared {
    fn new(asker: Asker) -> Self {
        let duty = Duty {
            shift: 0,
            asking: None,
            due: Monotonic::now(),
            held: Vec::new(),
            orders: Orders::default(),
            has_ended: false,
        };
        Self {
            answers: Mutex::default(),
            duty: Mutex::new(duty),
            wake: Condvar::new(),
            asker: Mutex::new(asker),
            changed: Notify::new(),
        }
    }

    fn answers(&self) -> Arc<Answers> {
        Arc::clone(&lock(&self.answers))
    }
}

/// The loop's handle of the thread. Dropping the handle ends the thread.
#[derive(Debug)]
pub(super) struct FilesystemThread {
    shared: Arc<Shared>,
    statfs: Box<dyn StatfsCaller>,
}

impl FilesystemThread {
    /// Starts the thread. Waits at most half a second for the first answers.
    pub(super) fn start(config: &MonitorConfig) -> std::io::Result<Self> {
        Self::start_with(config, Box::new(Statfs::new(&config.proc_root)))
    }

    fn start_with(config: &MonitorConfig, statfs: Box<dyn StatfsCaller>) -> std::io::Result<Self> {
        let filesystems = Self { shared: Arc::new(Shared::new(Asker::new(config))), statfs };
        let (answered, first_answer) = channel();
        filesystems.spawn(0, Some(answered))?;
        let _late = first_answer.recv_timeout(FIRST_ANSWER);
        Ok(filesystems)
    }

    fn spawn(&self, shift: u64, answered: Option<Sender<()>>) -> std::io::Result<()> {
        let (mut statfs, shared) = (self.statfs.boxed_clone(), Arc::clone(&self.shared));
        let run = move || serve(&mut *statfs, shift, &shared, answered);
        std::thread::Builder::new().name("filesystems".to_owned()).stack_size(128 * 1024).spawn(run).map(drop)
    }

    /// Returns the latest answers without waiting.
    pub(super) fn answers(&self) -> Arc<Answers> {
        self.shared.answers()
    }

    /// Returns when a threshold becomes, stays or ceases to be crossed, or when the layout has changed. Cancel-safe.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Abandons a thread that a filesystem has blocked for too long, and starts another. No other thread calls statfs for the
    /// role of an abandoned thread, so there is at most one thread more than there are roles.
    pub(super) fn replace_blocked(&self, now: Monotonic) {
        let mut duty = lock(&self.shared.duty);
        let Some((role, since)) = duty.asking.filter(|(_, since)| now.since(*since) > BLOCKED_AFTER) else { return };
        duty.shift += 1;
        duty.asking = None;
        duty.due = now;
        duty.held.push((role, since));
        // The new thread waits for this lock before it does anything.
        if self.spawn(duty.shift, None).is_err() {
            duty.shift -= 1;
            duty.asking = Some((role, since));
            duty.held.retain(|(held, _)| *held != role);
        }
    }

    /// Returns the reason why the latest answers are out of date: no thread has finished a round for a long time.
    pub(super) fn hangs(&self, now: Monotonic) -> Option<String> {
        let duty = lock(&self.shared.duty);
        // Between two rounds the thread waits for no role.
        let (name, since) = duty.asking.map_or(("the thread", duty.due), |(role, since)| (role.as_str(), since));
        let waited = now.since(since);
        (waited > STALE).then(|| format!("{name} has not answered for {} s: no disk signal", waited.as_secs()))
    }

    pub(super) fn hint(&self, hints: FilesystemHints) {
        self.order(|orders| orders.hints = Some(hints));
    }

    /// Sets the number of inodes created per second on these devices (`major:minor`).
    pub(super) fn growth(&self, growth: Vec<(String, f64)>) {
        self.order(|orders| orders.growth = growth);
    }

    pub(super) fn reconfigure(&self, config: &MonitorConfig) {
        self.order(|orders| orders.policy = Some((config.policy.clone(), config.sampling.ceiling)));
    }

    pub(super) fn ask_now(&self) {
        self.order(|orders| orders.asks_now = true);
    }

    fn order(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut lock(&self.shared.duty).orders);
        self.shared.wake.notify_one();
    }
}

impl Drop for FilesystemThread {
    fn drop(&mut self) {
        lock(&self.shared.duty).has_ended = true;
        self.shared.wake.notify_one();
    }
}

/// Runs rounds until another thread replaces this one.
fn serve(statfs: &mut dyn StatfsCaller, shift: u64, shared: &Shared, answered: Option<Sender<()>>) {
    // A thread that is started later inherits the loop's priority, which is only for decisions. Lowering the priority is always
    // permitted.
    let _kept = rustix::process::setpriority_process(None, 0);
    let mut answered = answered;
    loop {
        let choices = {
            let asker = lock(&shared.asker);
            Role::ALL.map(|role| (role, asker.choice(role)))
        };
        let mut answers = Vec::with_capacity(Role::ALL.len());
        for (role, choice) in choices {
            let Some(answer) = ask(statfs, role, &choice, shift, shared) else { return };
            answers.push((role, answer));
        }
        let before = shared.answers();
        let (answers, is_change, wait) = {
            let mut asker = lock(&shared.asker);
            let answers = asker.combine(answers, &before, Monotonic::now());
            let observation = Observation { signals: answers.values() };
            let is_change = asker.learn(&answers, &observation);
            (answers, is_change, asker.until_next(&observation))
        };
        *lock(&shared.answers) = Arc::new(answers);
        if is_change {
            shared.changed.notify_one();
        }
        // At its start the agent waits only for the first round.
        if let Some(answered) = answered.take() {
            let _nobody_waits = answered.send(());
        }
        let Some(orders) = rest(wait, shift, shared) else { return };
        let answers = shared.answers();
        lock(&shared.asker).obey(orders, &answers);
    }
}

/// Calls statfs for a role, unless an abandoned thread still waits for it. Returns nothing if another thread has replaced this
/// one.
fn ask(statfs: &mut dyn StatfsCaller, role: Role, choice: &Choice, shift: u64, shared: &Shared) -> Option<Answer> {
    {
        let mut duty = lock(&shared.duty);
        if duty.shift != shift || duty.has_ended {
            return None;
        }
        if let Some((_, since)) = duty.held.iter().find(|(held, _)| *held == role) {
            return Some(Answer::Blocked(*since));
        }
        duty.asking = Some((role, Monotonic::now()));
    }
    let answer = statfs.sample(role, choice);
    let mut duty = lock(&shared.duty);
    if duty.shift != shift {
        duty.held.retain(|(held, _)| *held != role);
        return None;
    }
    duty.asking = None;
    duty.due = Monotonic::now();
    Some(Answer::Given(answer))
}

/// Waits until the next round is due or ordered. Returns nothing if another thread has replaced this one, or if the thread must
/// end.
fn rest(wait: Duration, shift: u64, shared: &Shared) -> Option<Orders> {
    lock(&shared.duty).due = Monotonic::now().after(wait);
    // Rounds keep this distance, whatever the number of orders.
    std::thread::sleep(FLOOR.min(wait));
    let duty = lock(&shared.duty);
    let goes_on = |duty: &Duty| duty.shift == shift && !duty.has_ended;
    let rests = |duty: &mut Duty| goes_on(duty) && duty.orders == Orders::default();
    let woken = shared.wake.wait_timeout_while(duty, wait.saturating_sub(FLOOR), rests);
    let mut duty = woken.unwrap_or_else(PoisonError::into_inner).0;
    goes_on(&duty).then(|| std::mem::take(&mut duty.orders))
}

#[cfg(test)]
#[path = "filesystem_thread_tests.rs"]
mod tests;
