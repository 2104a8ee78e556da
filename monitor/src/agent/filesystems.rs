//! The node's filesystems, asked by a thread of its own: a disk that hangs must not keep the loop waiting.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::{Bytes, FilesystemPaths, MonitorConfig, Policy, Resource, Signal};
use crate::eviction::deadline::{FallRate, Reach, until_reached};
use crate::eviction::{Armed, Layout, Observation, SignalValue, arm, is_below};
use crate::node::Monotonic;
use crate::node::layout::{Choice, FilesystemHints, Role};
use crate::node::statfs::{FsSample, Statfs};

/// However near a threshold is: asking takes some 20 us for all three, and no disk is filled in less.
const FLOOR: Duration = Duration::from_millis(50);
/// While a threshold is crossed, to see it recover.
const CROSSED: Duration = Duration::from_millis(500);
/// As fast as a good disk of today is written. What reserves space without writing it (fallocate) is seen when it is done.
const ASSUMED_BYTES: Bytes = Bytes(2 << 30);
/// Inodes that one busy task makes a second; where many do, the programs' counters tell.
const ASSUMED_INODES: f64 = 20_000.0;
/// How long the first answer is waited for, so that the agent starts with all its signals where disks are well.
const FIRST_ANSWER: Duration = Duration::from_millis(500);
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

    fn layout(samples: &[FsSample]) -> Layout {
        let device = |role| samples.iter().find(|sample| sample.role == role).map(|sample| &sample.place.device);
        // A node without a store of images has nothing that could lie elsewhere.
        let image = device(Role::Image).or_else(|| device(Role::Node));
        Layout::of(&device(Role::Node), &image, &device(Role::Container).or(image))
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

/// What the loop has to say to the thread.
#[derive(Debug)]
enum Order {
    /// The runtime tells where its stores are.
    Hints(FilesystemHints),
    /// The programs saw inodes of a device go.
    Growth { device: String, per_second: f64 },
    /// Something was done: look again.
    Now,
}

#[derive(Debug)]
struct Shared {
    seen: Mutex<Arc<Seen>>,
    /// Which is being asked, and since when.
    asking: Mutex<(Role, Monotonic)>,
    news: Notify,
}

/// The thread, as the loop sees it.
#[derive(Debug)]
pub(super) struct Filesystems {
    orders: Sender<Order>,
    shared: Arc<Shared>,
}

impl Filesystems {
    /// Starts the thread, which ends with the value, and waits a little for its first answer.
    pub(super) fn start(config: &MonitorConfig) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            asking: Mutex::new((Role::Node, Monotonic::now())),
            news: Notify::new(),
        });
        let (orders, work) = channel();
        let (answered, first_answer) = channel();
        let mut asker = Asker::new(config);
        let of_thread = Arc::clone(&shared);
        let run = move || asker.serve(&work, &of_thread, &answered);
        std::thread::Builder::new().name("filesystems".to_owned()).stack_size(128 * 1024).spawn(run)?;
        // One that hangs is said when its answer is late.
        let _late = first_answer.recv_timeout(FIRST_ANSWER);
        Ok(Self { orders, shared })
    }

    /// What was found last, at once.
    pub(super) fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns when a threshold was crossed either way, is crossed still, or filesystems are found elsewhere. Cancel-safe.
    pub(super) async fn news(&self) {
        self.shared.news.notified().await;
    }

    /// Why what was found last is not to be believed: a filesystem has not answered for long.
    pub(super) fn hangs(&self, now: Monotonic) -> Option<String> {
        let (role, since) = *self.shared.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = now.since(since);
        // Between two looks it is nobody's turn, for as long as the next one takes to come.
        (waited > STALE)
            .then(|| format!("{} has not answered for {} s: no disk signal", role.as_str(), waited.as_secs()))
    }

    /// Takes the runtime's word for where its stores are.
    pub(super) fn hint(&self, hints: FilesystemHints) {
        self.tell(Order::Hints(hints));
    }

    /// Inodes of `device` (`major:minor`) go so fast.
    pub(super) fn growth(&self, device: String, per_second: f64) {
        self.tell(Order::Growth { device, per_second });
    }

    /// Asks for a look now.
    pub(super) fn look(&self) {
        self.tell(Order::Now);
    }

    fn tell(&self, order: Order) {
        // A thread that has ended is noticed by the age of its answers.
        let _ended = self.orders.send(order);
    }
}

/// The thread's own.
#[derive(Debug)]
struct Asker {
    statfs: Statfs,
    configured: FilesystemPaths,
    hints: FilesystemHints,
    policy: Policy,
    ceiling: Duration,
    rates: Vec<(Signal, FallRate)>,
    /// The thresholds of the layout found last, and which of them are crossed.
    layout: Option<Layout>,
    armed: Vec<Armed>,
    crossed: Vec<(bool, bool)>,
}

impl Asker {
    fn new(config: &MonitorConfig) -> Self {
        let rate = |signal: Signal| {
            let assumed = if signal.resource() == Resource::Inodes { ASSUMED_INODES } else { ASSUMED_BYTES.as_f64() };
            (signal, FallRate::of_units(assumed))
        };
        Self {
            statfs: Statfs::new(&config.proc_root),
            configured: config.filesystems.clone(),
            hints: FilesystemHints::default(),
            policy: config.policy.clone(),
            ceiling: config.sampling.ceiling.max(FLOOR),
            rates: Role::ALL.into_iter().flat_map(signals).map(rate).collect(),
            layout: None,
            armed: Vec::new(),
            crossed: Vec::new(),
        }
    }

    fn serve(&mut self, orders: &Receiver<Order>, shared: &Shared, answered: &Sender<()>) {
        loop {
            let seen = self.ask(shared);
            let observation = Observation { signals: seen.values() };
            let is_news = self.take_in(&seen, &observation);
            let wait = self.until_next(&observation);
            *shared.seen.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(seen);
            if is_news {
                shared.news.notify_one();
            }
            // Only the first one is waited for.
            let _nobody_waits = answered.send(());
            *shared.asking.lock().unwrap_or_else(PoisonError::into_inner) = (Role::Node, Monotonic::now().after(wait));
            // However many orders there are, looks stay apart.
            std::thread::sleep(FLOOR.min(wait));
            match orders.recv_timeout(wait.saturating_sub(FLOOR)) {
                Ok(order) => self.follow(order, shared),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Ok(order) = orders.try_recv() {
                self.follow(order, shared);
            }
        }
    }

    fn ask(&mut self, shared: &Shared) -> Seen {
        let mut seen = Seen::default();
        for role in Role::ALL {
            *shared.asking.lock().unwrap_or_else(PoisonError::into_inner) = (role, Monotonic::now());
            let choice = Choice::of(role, &self.configured, &self.hints);
            match self.statfs.sample(role, &choice) {
                Ok(sample) => seen.samples.push(sample),
                Err(reason) => seen.missing.push((role, reason)),
            }
        }
        seen.layout = Seen::layout(&seen.samples);
        seen
    }

    /// Learns from a look, and tells whether the loop is to be woken for it.
    fn take_in(&mut self, seen: &Seen, observation: &Observation) -> bool {
        let is_elsewhere = self.layout.replace(seen.layout) != Some(seen.layout);
        if is_elsewhere {
            self.armed = arm(&self.policy, seen.layout);
        }
        for (signal, rate) in &mut self.rates {
            if let Some((value, at)) = observation.get(*signal).zip(seen.at(*signal)) {
                rate.observe_units(float(value.available), at);
            }
        }
        let policy = &self.policy;
        let below = |armed: &Armed| {
            let is_below = |with_reclaim| is_below(policy, &armed.threshold, observation, with_reclaim);
            (is_below(false), is_below(true))
        };
        let crossed: Vec<(bool, bool)> = self.armed.iter().map(below).collect();
        let has_changed = self.crossed != crossed;
        self.crossed = crossed;
        is_elsewhere || has_changed || self.crossed.iter().any(|(plain, _)| *plain)
    }

    /// The computed deadline of the next look.
    fn until_next(&self, observation: &Observation) -> Duration {
        let until = |armed: &Armed| {
            let (_, rate) = self.rates.iter().find(|(signal, _)| *signal == armed.threshold.signal)?;
            Some(match until_reached(&self.policy, &armed.threshold, observation, rate)? {
                Reach::Crossed => CROSSED,
                Reach::In(until) => until,
            })
        };
        self.armed.iter().filter_map(until).min().unwrap_or(self.ceiling).clamp(FLOOR, self.ceiling)
    }

    fn follow(&mut self, order: Order, shared: &Shared) {
        match order {
            Order::Hints(hints) => self.hints = hints,
            Order::Growth { device, per_second } => {
                let seen = Arc::clone(&shared.seen.lock().unwrap_or_else(PoisonError::into_inner));
                for sample in seen.samples.iter().filter(|sample| sample.place.device == device) {
                    let [_, inodes] = signals(sample.role);
                    let of_it = self.rates.iter_mut().filter(|(signal, _)| *signal == inodes);
                    of_it.for_each(|(_, rate)| rate.believe(per_second));
                }
            }
            Order::Now => {}
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
fn float(number: i64) -> f64 {
    number as f64
}

#[cfg(test)]
#[path = "filesystems_tests.rs"]
mod tests;
