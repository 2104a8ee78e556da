//! The filesystem thread's work: call statfs for each role, derive layout and rates, compute when to ask again.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::config::{FilesystemPaths, MonitorConfig, Policy};
use crate::eviction::deadline::{FallRate, Reach, until_reached};
use crate::eviction::{Armed, Layout, Observation, arm, is_below};
use crate::node::filesystem_roles::{Choice, FilesystemHints, Role};
use crate::node::statfs::{FsSample, NoSample};
use crate::units::{Bytes, Monotonic, Resource, Signal};

use super::filesystem_thread::{Answers, Duty, Orders, STALE, Shared, StatfsCaller, lock, signals};
use super::numbers::float;

/// The shortest wait: statfs for all three roles takes some 20 us, and no disk fills in less.
const FLOOR: Duration = Duration::from_millis(50);
/// While a threshold is crossed, to see it recover.
pub(super) const CROSSED: Duration = Duration::from_millis(500);
/// A good disk's write speed per second. fallocate reserves space faster than that, and is noticed afterwards.
const ASSUMED_BYTES: Bytes = Bytes(2 << 30);
/// Inodes that one busy task makes per second; where many tasks do, the eBPF programs' counters correct this.
const ASSUMED_INODES: f64 = 20_000.0;

#[derive(Debug)]
pub(super) enum Answer {
    Given(Result<FsSample, NoSample>),
    /// The filesystem has blocked an abandoned thread since then.
    Blocked(Monotonic),
}

/// Runs rounds until another thread replaces this one.
pub(super) fn serve(statfs: &mut dyn StatfsCaller, shift: u64, shared: &Shared, answered: Option<Sender<()>>) {
    // A thread started later inherits the loop's priority, which is for decisions only. Lowering it is always permitted.
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
        // The start of the agent waits for the first round only.
        if let Some(answered) = answered.take() {
            let _nobody_waits = answered.send(());
        }
        let Some(orders) = rest(wait, shift, shared) else { return };
        let answers = shared.answers();
        lock(&shared.asker).obey(orders, &answers);
    }
}

/// Calls statfs for a role, unless an abandoned thread still waits for it. Returns nothing when this thread was replaced meanwhile.
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

/// Waits until the next round is due or ordered. Returns nothing when this thread was replaced or has to end.
fn rest(wait: Duration, shift: u64, shared: &Shared) -> Option<Orders> {
    lock(&shared.duty).due = Monotonic::now().after(wait);
    // However many orders arrive, rounds keep this distance.
    std::thread::sleep(FLOOR.min(wait));
    let duty = lock(&shared.duty);
    let goes_on = |duty: &Duty| duty.shift == shift && !duty.has_ended;
    let rests = |duty: &mut Duty| goes_on(duty) && duty.orders == Orders::default();
    let woken = shared.wake.wait_timeout_while(duty, wait.saturating_sub(FLOOR), rests);
    let mut duty = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
    goes_on(&duty).then(|| std::mem::take(&mut duty.orders))
}

/// The device last found for each role.
#[derive(Debug, Default)]
struct Devices([Option<String>; Role::ALL.len()]);

impl Devices {
    fn of(&mut self, role: Role) -> &mut Option<String> {
        let [node, image, container] = &mut self.0;
        match role {
            Role::Node => node,
            Role::Image => image,
            Role::Container => container,
        }
    }

    fn layout(&self) -> Layout {
        let [node, image, container] = &self.0;
        Layout::of_known(node.as_ref(), image.as_ref(), container.as_ref())
    }
}

/// State that a replaced thread passes on to its successor.
#[derive(Debug)]
pub(super) struct Asker {
    configured: FilesystemPaths,
    hints: FilesystemHints,
    policy: Policy,
    ceiling: Duration,
    rates: Vec<(Signal, FallRate)>,
    devices: Devices,
    /// The layout found last; the next fields are its thresholds and which of them are crossed.
    layout: Option<Layout>,
    armed: Vec<Armed>,
    crossed: Vec<(bool, bool)>,
}

impl Asker {
    pub(super) fn new(config: &MonitorConfig) -> Self {
        Self {
            configured: config.filesystems.clone(),
            hints: FilesystemHints::default(),
            policy: config.policy.clone(),
            ceiling: config.sampling.ceiling.max(FLOOR),
            rates: Role::ALL.into_iter().flat_map(signals).map(|signal| (signal, assumed(signal))).collect(),
            devices: Devices::default(),
            layout: None,
            armed: Vec::new(),
            crossed: Vec::new(),
        }
    }

    fn choice(&self, role: Role) -> Choice {
        Choice::of(role, &self.configured, &self.hints)
    }

    /// Combines the answers of one round. The layout changes only where a filesystem was found or is certainly absent: a filesystem that
    /// cannot be asked now is assumed to be where it was.
    pub(super) fn combine(&mut self, answers: Vec<(Role, Answer)>, before: &Answers, now: Monotonic) -> Answers {
        let mut found = Answers::default();
        for (role, answer) in answers {
            match answer {
                Answer::Given(Ok(sample)) => {
                    self.set_device(role, &sample.place.device);
                    found.samples.push(sample);
                }
                Answer::Given(Err(NoSample::Absent(reason))) => {
                    *self.devices.of(role) = None;
                    found.missing.push((role, reason));
                }
                Answer::Given(Err(NoSample::Failed(reason))) => found.missing.push((role, reason)),
                Answer::Blocked(since) if now.since(since) <= STALE => found.samples.extend(before.of(role).cloned()),
                Answer::Blocked(since) => {
                    let seconds = now.since(since).as_secs();
                    found.missing.push((role, format!("{} has not answered for {seconds} s", role.as_str())));
                }
            }
        }
        found.layout = self.devices.layout();
        found
    }

    /// Sets the device of a role. On another device the rates start anew.
    fn set_device(&mut self, role: Role, device: &str) {
        let known = self.devices.of(role);
        if known.as_deref() == Some(device) {
            return;
        }
        *known = Some(device.to_owned());
        for (signal, rate) in self.rates.iter_mut().filter(|(signal, _)| signals(role).contains(signal)) {
            *rate = assumed(*signal);
        }
    }

    /// Updates rates, layout and crossed thresholds. Returns whether to wake the loop.
    pub(super) fn learn(&mut self, latest: &Answers, observation: &Observation) -> bool {
        let is_elsewhere = self.layout.replace(latest.layout) != Some(latest.layout);
        if is_elsewhere {
            self.armed = arm(&self.policy, latest.layout);
        }
        for (signal, rate) in &mut self.rates {
            if let Some((value, at)) = observation.get(*signal).zip(latest.at(*signal)) {
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

    /// Returns how long until the next round.
    pub(super) fn until_next(&self, observation: &Observation) -> Duration {
        let until = |armed: &Armed| {
            let (_, rate) = self.rates.iter().find(|(signal, _)| *signal == armed.threshold.signal)?;
            Some(match until_reached(&self.policy, &armed.threshold, observation, rate)? {
                Reach::Crossed => CROSSED,
                Reach::In(until) => until,
            })
        };
        self.armed.iter().filter_map(until).min().unwrap_or(self.ceiling).clamp(FLOOR, self.ceiling)
    }

    pub(super) fn obey(&mut self, orders: Orders, latest: &Answers) {
        if let Some(hints) = orders.hints {
            self.hints = hints;
        }
        if let Some((policy, ceiling)) = orders.policy {
            self.policy = policy;
            self.ceiling = ceiling.max(FLOOR);
            self.armed = arm(&self.policy, latest.layout);
            // Indexed by threshold, so that the next round counts as a change.
            self.crossed.clear();
        }
        for (device, per_second) in orders.growth {
            for sample in latest.samples.iter().filter(|sample| sample.place.device == device) {
                let [_, inodes] = signals(sample.role);
                let of_it = self.rates.iter_mut().filter(|(signal, _)| *signal == inodes);
                of_it.for_each(|(_, rate)| rate.believe(per_second));
            }
        }
    }
}

fn assumed(signal: Signal) -> FallRate {
    FallRate::of_units(if signal.resource() == Resource::Inodes { ASSUMED_INODES } else { ASSUMED_BYTES.as_f64() })
}
