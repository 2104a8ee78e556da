//! The thread that calls statfs on the node's filesystems: a disk that hangs must not block the loop.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::{MonitorConfig, Policy};
use crate::eviction::{Layout, SignalValue};
use crate::node::filesystem_roles::{Choice, FilesystemHints, Role};
use crate::node::statfs::{FsSample, NoSample, Statfs};
use crate::units::{Monotonic, Signal};

use super::filesystem_asker::{Asker, serve};

/// How long the agent's start waits for the first answers, so that the first observation has all signals.
const FIRST_ANSWER: Duration = Duration::from_millis(500);
/// A thread that a filesystem blocks for this long is abandoned, and a new thread asks the other filesystems.
const BLOCKED_AFTER: Duration = Duration::from_secs(2);
/// An answer older than this is discarded: the disk hangs.
pub(super) const STALE: Duration = Duration::from_secs(30);

/// The answers of one round.
#[derive(Debug, Clone, Default)]
pub(super) struct Answers {
    pub(super) samples: Vec<FsSample>,
    /// Roles without a sample, with the reason.
    pub(super) missing: Vec<(Role, String)>,
    pub(super) layout: Layout,
}

impl Answers {
    pub(super) fn of(&self, role: Role) -> Option<&FsSample> {
        self.samples.iter().find(|sample| sample.role == role)
    }

    /// Returns when a signal's value was sampled.
    pub(super) fn at(&self, signal: Signal) -> Option<Monotonic> {
        let of_signal = |sample: &&FsSample| signals(sample.role).contains(&signal);
        self.samples.iter().find(of_signal).map(|sample| sample.at)
    }

    pub(super) fn values(&self) -> Vec<SignalValue> {
        values(&self.samples)
    }
}

/// Returns the signals that these filesystems have: a filesystem without a limit of inodes has no inode signal.
#[must_use]
pub fn values(samples: &[FsSample]) -> Vec<SignalValue> {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut values = Vec::with_capacity(2 * samples.len());
    for FsSample { role, space, inodes, at, .. } in samples {
        let [bytes, files] = signals(*role);
        let value = |signal, available, capacity| SignalValue {
            signal,
            available: signed(available),
            capacity: signed(capacity),
            at: Some((*at).into()),
        };
        values.extend(space.map(|space| value(bytes, space.available.0, space.capacity.0)));
        values.extend(inodes.map(|inodes| value(files, inodes.free, inodes.total)));
    }
    values
}

/// Returns the signals of a role: bytes, then inodes.
pub(super) const fn signals(role: Role) -> [Signal; 2] {
    match role {
        Role::Node => [Signal::NodeFsAvailable, Signal::NodeFsInodesFree],
        Role::Image => [Signal::ImageFsAvailable, Signal::ImageFsInodesFree],
        Role::Container => [Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree],
    }
}

/// Calls statfs. Each thread has an instance of its own, since a thread that hangs keeps it.
pub(super) trait StatfsCaller: std::fmt::Debug + Send + Sync {
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

/// What the loop asks of the thread. Only the latest order of each kind is kept, since the thread may be blocked for long.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Orders {
    /// Where the container runtime has its stores.
    pub(super) hints: Option<FilesystemHints>,
    /// Inodes made per second, by device, as the eBPF programs count them.
    pub(super) growth: Vec<(String, f64)>,
    /// Other thresholds, and the longest time between two rounds.
    pub(super) policy: Option<(Policy, Duration)>,
    /// Asks all filesystems now.
    pub(super) asks_now: bool,
}

/// Which thread asks which filesystem.
#[derive(Debug)]
pub(super) struct Duty {
    /// The number of the thread on duty; a thread of an earlier number ends when statfs returns.
    pub(super) shift: u64,
    /// The role whose filesystem it waits for, and since when.
    pub(super) asking: Option<(Role, Monotonic)>,
    /// When it asks next.
    pub(super) due: Monotonic,
    /// Roles whose filesystems still block abandoned threads.
    pub(super) held: Vec<(Role, Monotonic)>,
    pub(super) orders: Orders,
    pub(super) has_ended: bool,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) answers: Mutex<Arc<Answers>>,
    pub(super) duty: Mutex<Duty>,
    pub(super) wake: Condvar,
    /// Locked by the thread on duty, never while statfs blocks it.
    pub(super) asker: Mutex<Asker>,
    pub(super) changed: Notify,
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

    pub(super) fn answers(&self) -> Arc<Answers> {
        Arc::clone(&lock(&self.answers))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The loop's handle of the thread, which ends with it.
#[derive(Debug)]
pub(super) struct FilesystemThread {
    shared: Arc<Shared>,
    statfs: Box<dyn StatfsCaller>,
}

impl FilesystemThread {
    /// Starts the thread, and waits at most half a second for its first answers.
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

    /// Returns when a threshold is crossed, in either direction or still, or the layout has changed. Cancel-safe.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Abandons a thread that a filesystem has blocked for too long, and starts another. An abandoned thread keeps its role from being
    /// asked, so there is at most one thread more than there are roles.
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

    /// Returns why the latest answers are out of date: no thread has finished a round for long.
    pub(super) fn hangs(&self, now: Monotonic) -> Option<String> {
        let duty = lock(&self.shared.duty);
        // Between two rounds no role is being asked.
        let (name, since) = duty.asking.map_or(("the thread", duty.due), |(role, since)| (role.as_str(), since));
        let waited = now.since(since);
        (waited > STALE).then(|| format!("{name} has not answered for {} s: no disk signal", waited.as_secs()))
    }

    pub(super) fn hint(&self, hints: FilesystemHints) {
        self.order(|orders| orders.hints = Some(hints));
    }

    /// Sets how many inodes per second are made on these devices (`major:minor`).
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

#[cfg(test)]
#[path = "filesystem_thread_tests.rs"]
mod tests;
