//! Derives from the answers of the filesystems: the layout, the rates, and when to call statfs again.

use std::time::Duration;

use crate::config::{FilesystemPaths, MonitorConfig, Policy};
use crate::eviction::deadline::{FallRate, Reach, until_reached};
use crate::eviction::{Armed, Layout, Observation, SignalValue, arm, is_below};
use crate::node::filesystem_roles::{Choice, FilesystemHints, Role};
use crate::node::statfs::{FsSample, NoSample};
use crate::units::{Bytes, Monotonic, Resource, Signal, signed, signed_float};

/// The shortest wait. statfs for all three roles takes about 20 us, and no disk fills in less than this wait.
pub(super) const FLOOR: Duration = Duration::from_millis(50);
/// The wait while a threshold is crossed, to notice the recovery.
pub(super) const CROSSED: Duration = Duration::from_millis(500);
/// The assumed write speed per second, that of a fast disk. fallocate reserves space faster; the agent notices that afterwards.
const ASSUMED_BYTES: Bytes = Bytes(2 << 30);
/// The assumed number of inodes that one busy task creates per second. Where many tasks do, the counters of the eBPF programs
/// correct the rate.
const ASSUMED_INODES: f64 = 20_000.0;
/// An answer older than this is discarded, because its disk hangs.
pub(super) const STALE: Duration = Duration::from_secs(30);

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

    pub(super) fn at(&self, signal: Signal) -> Option<Monotonic> {
        let of_signal = |sample: &&FsSample| signals(sample.role).contains(&signal);
        self.samples.iter().find(of_signal).map(|sample| sample.at)
    }

    pub(super) fn values(&self) -> Vec<SignalValue> {
        values(&self.samples)
    }
}

/// Returns the signals of these filesystems. A filesystem without a limit of inodes has no inode signal.
pub fn values(samples: &[FsSample]) -> Vec<SignalValue> {
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

/// The loop's orders to the thread. Only the latest order of each kind is kept, because the thread may be blocked for long.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Orders {
    /// The directories of the container runtime's stores.
    pub(super) hints: Option<FilesystemHints>,
    /// Inodes created per second, by device, as the eBPF programs count them.
    pub(super) growth: Vec<(String, f64)>,
    /// The new thresholds, and the longest time between two rounds.
    pub(super) policy: Option<(Policy, Duration)>,
    /// Whether to call statfs for all filesystems now.
    pub(super) asks_now: bool,
}

#[derive(Debug)]
pub(super) enum Answer {
    Given(Result<FsSample, NoSample>),
    /// The filesystem has blocked an abandoned thread since this time.
    Blocked(Monotonic),
}

/// The last known device of each role.
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

/// The state that a replaced thread leaves to its successor.
#[derive(Debug)]
pub(super) struct Asker {
    configured: FilesystemPaths,
    hints: FilesystemHints,
    policy: Policy,
    ceiling: Duration,
    rates: Vec<(Signal, FallRate)>,
    devices: Devices,
    /// The last known layout. The next fields are its thresholds and which of them are crossed.
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

    pub(super) fn choice(&self, role: Role) -> Choice {
        Choice::of(role, &self.configured, &self.hints)
    }

    /// Combines the answers of one round. The layout changes only if a filesystem was found or is certainly absent. A filesystem
    /// that does not answer keeps its place in the layout.
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

    /// Sets the device of a role. A new device restarts the rates.
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
                rate.observe_units(signed_float(value.available), at);
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
            // The list is indexed by threshold. Clearing it makes the next round count as a change.
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
