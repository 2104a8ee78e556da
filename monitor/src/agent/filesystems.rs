//! The node's filesystems, asked by a thread of its own: a disk that hangs must not keep the loop waiting.

mod asker;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::{MonitorConfig, Policy};
use crate::eviction::{Layout, SignalValue};
use crate::node::filesystem_roles::{Choice, FilesystemHints, Role};
use crate::node::statfs::{FsSample, NoSample, Statfs};
use crate::units::{Monotonic, Signal};

use self::asker::{Asker, serve};

/// How long the first answer is waited for, so that the agent starts with all its signals where disks are well.
const FIRST_ANSWER: Duration = Duration::from_millis(500);
/// A thread that waits this long for a filesystem is left there, and another one asks the others.
const PATIENCE: Duration = Duration::from_secs(2);
/// Older answers are none: the disk hangs.
const STALE: Duration = Duration::from_secs(30);

/// What a look at the filesystems found.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Those that answered.
    pub(super) samples: Vec<FsSample>,
    /// Those that could not be asked, and why.
    pub(super) missing: Vec<(Role, String)>,
    /// How they share devices.
    pub(super) layout: Layout,
}

impl Seen {
    /// The sample of a role.
    pub(super) fn of(&self, role: Role) -> Option<&FsSample> {
        self.samples.iter().find(|sample| sample.role == role)
    }

    /// When the value of a signal was true.
    pub(super) fn at(&self, signal: Signal) -> Option<Monotonic> {
        let of_signal = |sample: &&FsSample| signals(sample.role).contains(&signal);
        self.samples.iter().find(of_signal).map(|sample| sample.at)
    }

    /// The signals, as far as these filesystems have them.
    pub(super) fn values(&self) -> Vec<SignalValue> {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut values = Vec::with_capacity(2 * self.samples.len());
        for FsSample { role, space, inodes, at, .. } in &self.samples {
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
}

/// The signals of a role: bytes, and inodes.
pub(super) const fn signals(role: Role) -> [Signal; 2] {
    match role {
        Role::Node => [Signal::NodeFsAvailable, Signal::NodeFsInodesFree],
        Role::Image => [Signal::ImageFsAvailable, Signal::ImageFsInodesFree],
        Role::Container => [Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree],
    }
}

/// Who asks. Each thread has one of its own: the one that hangs keeps it.
trait Asks: std::fmt::Debug + Send + Sync {
    fn sample(&mut self, role: Role, choice: &Choice) -> Result<FsSample, NoSample>;
    fn another(&self) -> Box<dyn Asks>;
}

impl Asks for Statfs {
    fn sample(&mut self, role: Role, choice: &Choice) -> Result<FsSample, NoSample> {
        Self::sample(self, role, choice)
    }

    fn another(&self) -> Box<dyn Asks> {
        Box::new(self.clone())
    }
}

/// What the loop has to say to the thread: only the latest of each, for it may be long before it is heard.
#[derive(Debug, Default, PartialEq)]
struct Orders {
    /// The runtime tells where its stores are.
    hints: Option<FilesystemHints>,
    /// The programs saw inodes of these devices go, so many a second.
    growth: Vec<(String, f64)>,
    /// Other thresholds, and the longest time between two looks.
    policy: Option<(Policy, Duration)>,
    /// Something was done: look again.
    look: bool,
}

/// Who is asked, by whom.
#[derive(Debug)]
struct Duty {
    /// Which thread is on duty; those before it end when they come back.
    shift: u64,
    /// Whom it waits for, and since when.
    asking: Option<(Role, Monotonic)>,
    /// When it asks next.
    due: Monotonic,
    /// Those whom threads that are off duty wait for still.
    held: Vec<(Role, Monotonic)>,
    orders: Orders,
    has_ended: bool,
}

#[derive(Debug)]
struct Shared {
    seen: Mutex<Arc<Seen>>,
    duty: Mutex<Duty>,
    bell: Condvar,
    /// Held by the thread on duty, never while it waits for a disk.
    asker: Mutex<Asker>,
    news: Notify,
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
            seen: Mutex::default(),
            duty: Mutex::new(duty),
            bell: Condvar::new(),
            asker: Mutex::new(asker),
            news: Notify::new(),
        }
    }

    fn seen(&self) -> Arc<Seen> {
        Arc::clone(&lock(&self.seen))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread, as the loop sees it.
#[derive(Debug)]
pub(super) struct Filesystems {
    shared: Arc<Shared>,
    asks: Box<dyn Asks>,
}

impl Filesystems {
    /// Starts the thread, which ends with the value, and waits a little for its first answer.
    pub(super) fn start(config: &MonitorConfig) -> std::io::Result<Self> {
        Self::start_with(config, Box::new(Statfs::new(&config.proc_root)))
    }

    fn start_with(config: &MonitorConfig, asks: Box<dyn Asks>) -> std::io::Result<Self> {
        let filesystems = Self { shared: Arc::new(Shared::new(Asker::new(config))), asks };
        let (answered, first_answer) = channel();
        filesystems.spawn(0, Some(answered))?;
        // One that hangs is said when its answer is late.
        let _late = first_answer.recv_timeout(FIRST_ANSWER);
        Ok(filesystems)
    }

    fn spawn(&self, shift: u64, answered: Option<Sender<()>>) -> std::io::Result<()> {
        let (mut asks, shared) = (self.asks.another(), Arc::clone(&self.shared));
        let run = move || serve(&mut *asks, shift, &shared, answered);
        std::thread::Builder::new().name("filesystems".to_owned()).stack_size(128 * 1024).spawn(run).map(drop)
    }

    /// What was found last, at once.
    pub(super) fn seen(&self) -> Arc<Seen> {
        self.shared.seen()
    }

    /// Returns when a threshold was crossed either way, is crossed still, or filesystems are found elsewhere. Cancel-safe.
    pub(super) async fn news(&self) {
        self.shared.news.notified().await;
    }

    /// Leaves a thread that waits for a filesystem too long, and has another one ask the others. There are never more threads than
    /// roles and one: each that was left keeps one role from being asked.
    pub(super) fn relieve(&self, now: Monotonic) {
        let mut duty = lock(&self.shared.duty);
        let Some((role, since)) = duty.asking.filter(|(_, since)| now.since(*since) > PATIENCE) else { return };
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

    /// Why nothing that was found last is to be believed: nobody has looked for long.
    pub(super) fn hangs(&self, now: Monotonic) -> Option<String> {
        let duty = lock(&self.shared.duty);
        // Between two looks it is nobody's turn, for as long as the next one takes to come.
        let (name, since) = duty.asking.map_or(("the thread", duty.due), |(role, since)| (role.as_str(), since));
        let waited = now.since(since);
        (waited > STALE).then(|| format!("{name} has not answered for {} s: no disk signal", waited.as_secs()))
    }

    /// Takes the runtime's word for where its stores are.
    pub(super) fn hint(&self, hints: FilesystemHints) {
        self.tell(|orders| orders.hints = Some(hints));
    }

    /// Inodes of these devices (`major:minor`) go so fast.
    pub(super) fn growth(&self, growth: Vec<(String, f64)>) {
        self.tell(|orders| orders.growth = growth);
    }

    /// Another configuration is in force.
    pub(super) fn follow(&self, config: &MonitorConfig) {
        self.tell(|orders| orders.policy = Some((config.policy.clone(), config.sampling.ceiling)));
    }

    /// Asks for a look now.
    pub(super) fn look(&self) {
        self.tell(|orders| orders.look = true);
    }

    fn tell(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut lock(&self.shared.duty).orders);
        self.shared.bell.notify_one();
    }
}

impl Drop for Filesystems {
    fn drop(&mut self) {
        lock(&self.shared.duty).has_ended = true;
        self.shared.bell.notify_one();
    }
}

#[cfg(test)]
#[path = "filesystems_tests.rs"]
mod tests;
