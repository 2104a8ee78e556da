//! What the thread does: it asks each filesystem, learns from the answers, and computes when to ask again.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::config::{FilesystemPaths, MonitorConfig, Policy};
use crate::eviction::deadline::{FallRate, Reach, until_reached};
use crate::eviction::{Armed, Layout, Observation, arm, is_below};
use crate::node::filesystem_roles::{Choice, FilesystemHints, Role};
use crate::node::statfs::{FsSample, NoSample};
use crate::units::{Bytes, Monotonic, Resource, Signal};

use super::{Asks, Orders, STALE, Seen, Shared, lock, signals};

/// However near a threshold is: asking takes some 20 us for all three, and no disk is filled in less.
const FLOOR: Duration = Duration::from_millis(50);
/// While a threshold is crossed, to see it recover.
pub(super) const CROSSED: Duration = Duration::from_millis(500);
/// As fast as a good disk of today is written. What reserves space without writing it (fallocate) is seen when it is done.
const ASSUMED_BYTES: Bytes = Bytes(2 << 30);
/// Inodes that one busy task makes a second; where many do, the programs' counters tell.
const ASSUMED_INODES: f64 = 20_000.0;

/// What came of asking for a role.
#[derive(Debug)]
pub(super) enum Answer {
    /// It was asked.
    Given(Result<FsSample, NoSample>),
    /// Another thread waits for it since then.
    Awaited(Monotonic),
}

/// Asks until it is not this thread's turn any more.
pub(super) fn serve(asks: &mut dyn Asks, shift: u64, shared: &Shared, answered: Option<Sender<()>>) {
    // One that is started later inherits the loop's precedence, which is for those who decide. Lowering it is always allowed.
    let _kept = rustix::process::setpriority_process(None, 0);
    let mut answered = answered;
    loop {
        let choices = {
            let asker = lock(&shared.asker);
            Role::ALL.map(|role| (role, asker.choice(role)))
        };
        let mut answers = Vec::with_capacity(Role::ALL.len());
        for (role, choice) in choices {
            let Some(answer) = ask(asks, role, &choice, shift, shared) else { return };
            answers.push((role, answer));
        }
        let before = shared.seen();
        let (seen, is_news, wait) = {
            let mut asker = lock(&shared.asker);
            let seen = asker.combine(answers, &before, Monotonic::now());
            let observation = Observation { signals: seen.values() };
            let is_news = asker.take_in(&seen, &observation);
            (seen, is_news, asker.until_next(&observation))
        };
        *lock(&shared.seen) = Arc::new(seen);
        if is_news {
            shared.news.notify_one();
        }
        // Only the first one is waited for.
        if let Some(answered) = answered.take() {
            let _nobody_waits = answered.send(());
        }
        let Some(orders) = rest(wait, shift, shared) else { return };
        let seen = shared.seen();
        lock(&shared.asker).follow(orders, &seen);
    }
}

/// Asks for a role, unless another thread still waits for it; nothing when this thread is off duty by now.
fn ask(asks: &mut dyn Asks, role: Role, choice: &Choice, shift: u64, shared: &Shared) -> Option<Answer> {
    {
        let mut duty = lock(&shared.duty);
        if duty.shift != shift || duty.has_ended {
            return None;
        }
        if let Some((_, since)) = duty.held.iter().find(|(held, _)| *held == role) {
            return Some(Answer::Awaited(*since));
        }
        duty.asking = Some((role, Monotonic::now()));
    }
    let answer = asks.sample(role, choice);
    let mut duty = lock(&shared.duty);
    if duty.shift != shift {
        duty.held.retain(|(held, _)| *held != role);
        return None;
    }
    duty.asking = None;
    duty.due = Monotonic::now();
    Some(Answer::Given(answer))
}

/// Rests until the next look is due or ordered; nothing when there is none.
fn rest(wait: Duration, shift: u64, shared: &Shared) -> Option<Orders> {
    lock(&shared.duty).due = Monotonic::now().after(wait);
    // However many orders there are, looks stay apart.
    std::thread::sleep(FLOOR.min(wait));
    let duty = lock(&shared.duty);
    let goes_on = |duty: &super::Duty| duty.shift == shift && !duty.has_ended;
    let rests = |duty: &mut super::Duty| goes_on(duty) && duty.orders == Orders::default();
    let woken = shared.bell.wait_timeout_while(duty, wait.saturating_sub(FLOOR), rests);
    let mut duty = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
    goes_on(&duty).then(|| std::mem::take(&mut duty.orders))
}

/// The device of a role, as far as it was ever told.
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

/// What the threads have learnt.
#[derive(Debug)]
pub(super) struct Asker {
    configured: FilesystemPaths,
    hints: FilesystemHints,
    policy: Policy,
    ceiling: Duration,
    rates: Vec<(Signal, FallRate)>,
    devices: Devices,
    /// The thresholds of the layout found last, and which of them are crossed.
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

    /// Makes one picture of the answers. Only where a filesystem was found, or is certainly not there, does the layout follow: one that
    /// cannot be asked now is where it was.
    pub(super) fn combine(&mut self, answers: Vec<(Role, Answer)>, before: &Seen, now: Monotonic) -> Seen {
        let mut seen = Seen::default();
        for (role, answer) in answers {
            match answer {
                Answer::Given(Ok(sample)) => {
                    self.is_at(role, &sample.place.device);
                    seen.samples.push(sample);
                }
                Answer::Given(Err(NoSample::Absent(reason))) => {
                    *self.devices.of(role) = None;
                    seen.missing.push((role, reason));
                }
                Answer::Given(Err(NoSample::Failed(reason))) => seen.missing.push((role, reason)),
                // It may be slow only.
                Answer::Awaited(since) if now.since(since) <= STALE => seen.samples.extend(before.of(role).cloned()),
                Answer::Awaited(since) => {
                    let seconds = now.since(since).as_secs();
                    seen.missing.push((role, format!("{} has not answered for {seconds} s", role.as_str())));
                }
            }
        }
        seen.layout = self.devices.layout();
        seen
    }

    /// What was left on one device less what is left on another is no rate.
    fn is_at(&mut self, role: Role, device: &str) {
        let known = self.devices.of(role);
        if known.as_deref() == Some(device) {
            return;
        }
        *known = Some(device.to_owned());
        for (signal, rate) in self.rates.iter_mut().filter(|(signal, _)| signals(role).contains(signal)) {
            *rate = assumed(*signal);
        }
    }

    /// Learns from a look, and tells whether the loop is to be woken for it.
    pub(super) fn take_in(&mut self, seen: &Seen, observation: &Observation) -> bool {
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

    pub(super) fn follow(&mut self, orders: Orders, seen: &Seen) {
        if let Some(hints) = orders.hints {
            self.hints = hints;
        }
        if let Some((policy, ceiling)) = orders.policy {
            self.policy = policy;
            self.ceiling = ceiling.max(FLOOR);
            self.armed = arm(&self.policy, seen.layout);
            // Known by place: which of them are crossed is news in any case.
            self.crossed.clear();
        }
        for (device, per_second) in orders.growth {
            for sample in seen.samples.iter().filter(|sample| sample.place.device == device) {
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

#[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
fn float(number: i64) -> f64 {
    number as f64
}
