//! The signals beside memory: process ids, read by the loop, and the filesystems, which a thread of its own asks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{MonitorConfig, Threshold};
use crate::eviction::deadline::{FallRate, Reach, until_reached};
use crate::eviction::decider::{Pace, Rules};
use crate::eviction::exhaustion::Slope;
use crate::eviction::footprint::NotMeasured;
use crate::eviction::{Armed, DiskUsages, Layout, NodeCondition, Observation, SignalValue};
use crate::node::filesystem_roles::{FilesystemHints, Role};
use crate::node::statfs::{FsSample, Place};
use crate::node::{PidReader, PidSample};
use crate::report::{RoleReport, SignalReport};
use crate::units::{Monotonic, Resource, Signal};

use super::Agent;
use super::filesystems::{Filesystems, Seen, signals};

/// Process ids that one CPU can take a second, and a little more: a fork takes some 50 us.
const FORKS_PER_CPU: f64 = 20_000.0;
/// However near the threshold for process ids is.
const PIDS_FLOOR: Duration = Duration::from_millis(5);
/// While it is crossed, to see it recover.
const PIDS_CROSSED: Duration = Duration::from_millis(100);
/// For those who only look.
const PIDS_UNARMED: Duration = Duration::from_secs(5);
/// The programs' counters of inodes are read this often, when the loop is awake anyway.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// What the loop keeps of them.
#[derive(Debug)]
pub struct Signals {
    pids: Option<PidReader>,
    sample: Option<PidSample>,
    rate: FallRate,
    filesystems: Filesystems,
    /// What was found there at the last look.
    seen: Arc<Seen>,
    /// Process ids could not be read, the filesystems hang.
    troubles: (bool, bool),
    layout: Layout,
    usages: Box<dyn DiskUsages>,
    slopes: Vec<(Signal, Slope)>,
    /// Where the filesystems were for which there are slopes.
    places: Vec<(Role, Arc<Place>)>,
    /// By capability, what was said of it and still holds.
    told: BTreeMap<&'static str, String>,
    counted: Option<Monotonic>,
}

impl Signals {
    /// Opens what is read, and starts the thread that asks the filesystems: before the loop takes a priority of its own.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(config: &MonitorConfig, degradations: &mut Vec<String>) -> std::io::Result<Self> {
        let pids = PidReader::open(&config.proc_root).map_err(|error| {
            if config.policy.thresholds.iter().any(|it| it.signal == Signal::PidAvailable) {
                degradations.push(format!("{}: {error}; there is no such signal", Signal::PidAvailable));
            }
        });
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        #[expect(clippy::cast_precision_loss, reason = "there are fewer CPUs than 2^53")]
        let rate = FallRate::of_units(cpus as f64 * FORKS_PER_CPU);
        Ok(Self {
            pids: pids.ok(),
            sample: None,
            rate,
            filesystems: Filesystems::start(config)?,
            seen: Arc::default(),
            troubles: (false, false),
            layout: Layout::default(),
            usages: Box::new(NotMeasured),
            slopes: Vec::new(),
            places: Vec::new(),
            told: BTreeMap::new(),
            counted: None,
        })
    }

    /// Who knows what workloads have on the disks.
    #[must_use]
    pub fn measured_by(self, usages: Box<dyn DiskUsages>) -> Self {
        Self { usages, ..self }
    }

    /// Takes the container runtime's word for where its stores are; may be called again when it changes.
    pub fn hint(&self, hints: FilesystemHints) {
        self.filesystems.hint(hints);
    }

    /// Another configuration is in force. Returns why there are no process ids, where they were not asked for before and are now.
    pub(super) fn follow(&mut self, config: &MonitorConfig) -> Option<String> {
        self.filesystems.follow(config);
        // What is missing depends on what is asked for: it is told anew.
        self.seen = Arc::default();
        let is_wanted = config.policy.thresholds.iter().any(|it| it.signal == Signal::PidAvailable);
        if self.pids.is_some() || !is_wanted {
            return None;
        }
        match PidReader::open(&config.proc_root) {
            Ok(reader) => {
                self.pids = Some(reader);
                None
            }
            Err(error) => Some(format!("{error}; there is no such signal")),
        }
    }

    /// How the filesystems of this node share devices.
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// The filesystems as they were last seen.
    pub(super) fn samples(&self) -> &[FsSample] {
        &self.seen.samples
    }

    /// The filesystem of a role, where it is known.
    pub(super) fn place(&self, role: Role) -> Option<&Place> {
        self.seen.of(role).map(|sample| &*sample.place)
    }

    /// What workloads have on the disks, as far as it is known.
    pub(super) fn usages(&self) -> &dyn DiskUsages {
        &*self.usages
    }

    /// Returns when there is something to look at on the filesystems. Cancel-safe.
    pub(super) async fn news(&self) {
        self.filesystems.news().await;
    }

    /// Something was done about a disk: its filesystem is asked again at once.
    pub(super) fn look_at_disks(&self) {
        self.filesystems.look();
    }

    /// How fast a signal falls.
    pub(super) fn slope(&self, signal: Signal) -> Option<&Slope> {
        self.slopes.iter().find(|(known, _)| *known == signal).map(|(_, slope)| slope)
    }

    fn follow_slopes(&mut self, seen: &Seen, values: &[SignalValue]) {
        for FsSample { role, place, .. } in &seen.samples {
            let known = self.places.iter().position(|(known, _)| known == role);
            let known = known.map(|index| self.places.swap_remove(index).1);
            // From one device to another there is no slope.
            if known.is_some_and(|known| known.device != place.device) {
                self.slopes.retain(|(signal, _)| !signals(*role).contains(signal));
            }
            self.places.push((*role, Arc::clone(place)));
        }
        for value in values {
            let of_pids = self.sample.as_ref().filter(|_| value.signal == Signal::PidAvailable).map(|sample| sample.at);
            let Some(at) = of_pids.or_else(|| seen.at(value.signal)) else { continue };
            let place = self.slopes.iter().position(|(known, _)| *known == value.signal);
            let place = place.unwrap_or_else(|| {
                self.slopes.push((value.signal, Slope::default()));
                self.slopes.len() - 1
            });
            if let Some((_, slope)) = self.slopes.get_mut(place) {
                slope.observe(float(value.available), at);
            }
        }
    }

    /// How long until process ids must be looked at again; nothing where nobody waits for them.
    pub(super) fn until_pids(&self, config: &MonitorConfig, now: Monotonic) -> Option<Duration> {
        let sample = self.sample?;
        let observation = Observation { signals: vec![value(&sample)] };
        let reach = |threshold: &Threshold| until_reached(&config.policy, threshold, &observation, &self.rate);
        let until = config.policy.thresholds.iter().filter_map(reach).map(|reach| match reach {
            Reach::Crossed => PIDS_CROSSED,
            Reach::In(until) => until,
        });
        let ceiling = config.sampling.ceiling.max(PIDS_FLOOR);
        until.min().map(|until| until.clamp(PIDS_FLOOR, ceiling).saturating_sub(now.since(sample.at)))
    }

    /// Reads process ids. Where that fails they are no signal, and why is returned. Where nothing is decided by them an old figure will do.
    fn sample_pids(&mut self, is_armed: bool, now: Monotonic) -> Option<String> {
        if !is_armed && self.sample.is_some_and(|sample| now.since(sample.at) < PIDS_UNARMED) {
            return None;
        }
        let sampled = self.pids.as_mut()?.sample();
        self.sample = sampled.as_ref().ok().copied();
        if let Some(sample) = self.sample {
            self.rate.observe_units(float(value(&sample).available), sample.at);
        }
        sampled.err().map(|error| format!("{error}; there is no such signal"))
    }
}

fn value(sample: &PidSample) -> SignalValue {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    SignalValue {
        signal: Signal::PidAvailable,
        available: signed(sample.available()),
        capacity: signed(sample.most),
        at: None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
fn float(count: i64) -> f64 {
    count as f64
}

/// What keeps a filesystem from having a signal on which there is a threshold, by capability.
fn missing(seen: &Seen, is_armed: impl Fn(Signal) -> bool) -> Vec<(&'static str, String)> {
    let mut missing = Vec::new();
    for role in Role::ALL {
        let of_role = signals(role).map(|signal| (signal, is_armed(signal)));
        match seen.of(role) {
            None if of_role.iter().any(|(_, armed)| *armed) => {
                let of_it = |(missing, reason): &(Role, String)| (*missing == role).then(|| reason.clone());
                let reason = seen.missing.iter().find_map(of_it).unwrap_or_else(|| "not asked yet".to_owned());
                missing.push((role.as_str(), format!("{reason}; its signals are not there")));
            }
            None => {}
            Some(FsSample { place, is_read_only, space, inodes, .. }) => {
                let [(bytes, bytes_armed), (files, files_armed)] = of_role;
                let of = format!("{} at {}", place.kind, place.mount_point.display());
                if *is_read_only {
                    let armed = of_role.into_iter().filter(|(_, armed)| *armed);
                    let reason = format!("{of} is read-only: there is no such signal");
                    missing.extend(armed.map(|(signal, _)| (signal.as_str(), reason.clone())));
                    continue;
                }
                if bytes_armed && space.is_none() {
                    missing.push((bytes.as_str(), format!("{of} has no size of its own: there is no such signal")));
                }
                if files_armed && inodes.is_none() {
                    missing.push((files.as_str(), format!("{of} has no limit of inodes: there is no such signal")));
                }
            }
        }
    }
    missing
}

impl Agent {
    /// Looks at the other signals, and arms the thresholds of the layout that was found.
    pub(super) fn observe_others(&mut self) {
        let now = Monotonic::now();
        let is_armed = self.decision.armed().iter().any(|armed| armed.threshold.signal == Signal::PidAvailable);
        let pids_failed = self.sensors.signals.sample_pids(is_armed, now);
        self.sensors.signals.filesystems.relieve(now);
        let hangs = self.sensors.signals.filesystems.hangs(now);
        // What is not believed any more is as if it had not been seen.
        let seen = if hangs.is_some() { Arc::default() } else { self.sensors.signals.filesystems.seen() };
        self.sensors.others.clear();
        self.sensors.others.extend(self.sensors.signals.sample.as_ref().map(value));
        self.sensors.others.extend(seen.values());
        self.sensors.signals.follow_slopes(&seen, &self.sensors.others);
        let troubles = (pids_failed.is_some(), hangs.is_some());
        let is_new = !Arc::ptr_eq(&seen, &self.sensors.signals.seen);
        if !is_new && troubles == self.sensors.signals.troubles {
            return;
        }
        self.sensors.signals.troubles = troubles;
        self.sensors.signals.seen = Arc::clone(&seen);
        let mut missing_now: Vec<(&'static str, String)> = Vec::new();
        missing_now.extend(pids_failed.map(|reason| (Signal::PidAvailable.as_str(), reason)));
        match hangs {
            Some(reason) => missing_now.push(("filesystems", reason)),
            None => {
                self.rearm(&seen);
                // As configured: who asked for nodefs alone need not hear that its copies have no containerfs.
                let thresholds = &self.config.policy.thresholds;
                missing_now.extend(missing(&seen, |signal| thresholds.iter().any(|it| it.signal == signal)));
            }
        }
        self.tell_missing(missing_now);
    }

    /// The filesystems share devices in another way than the thresholds are armed for.
    fn rearm(&mut self, seen: &Seen) {
        if self.sensors.signals.layout == seen.layout {
            return;
        }
        self.sensors.signals.layout = seen.layout;
        self.arm_anew(seen.layout);
        let device = |role| seen.of(role).map(|sample| sample.place.device.as_str());
        tracing::info!(
            event = "filesystems",
            layout = seen.layout.as_str(),
            nodefs = device(Role::Node),
            imagefs = device(Role::Image),
            containerfs = device(Role::Container),
            "filesystems were found to be laid out so"
        );
    }

    /// Arms the thresholds of the configuration for this layout; what is remembered of those that stay is kept.
    pub(super) fn arm_anew(&mut self, layout: Layout) {
        self.decision.arm(Rules { policy: &self.config.policy, pace: Pace::Kubelet }, layout);
        self.reporter.rearm(self.decision.armed());
    }

    /// Says once of each capability that it is missing, and once that it is back.
    fn tell_missing(&mut self, missing: Vec<(&'static str, String)>) {
        let now = Monotonic::now();
        let told = &mut self.sensors.signals.told;
        let is_gone = |capability: &&'static str| !missing.iter().any(|(missing, _)| missing == capability);
        let back: Vec<&'static str> = told.keys().copied().filter(is_gone).collect();
        for capability in back {
            told.remove(capability);
            self.reporter.set_capability(capability, None, "", now);
        }
        for (capability, reason) in missing {
            self.reporter.set_capability(capability, Some(&reason), "the signal is not observed", now);
            told.insert(capability, reason);
        }
    }

    /// Tells the thread how fast the programs saw inodes go, where a threshold waits for that.
    pub(super) fn steer_disks(&mut self) {
        let now = Monotonic::now();
        let is_due = self.sensors.signals.counted.is_none_or(|at| now.since(at) >= COUNT_EVERY);
        let is_inodes = |armed: &Armed| armed.threshold.signal.resource() == Resource::Inodes;
        if !is_due || !self.counts_inodes() || !self.decision.armed().iter().any(is_inodes) {
            return;
        }
        self.sensors.signals.counted = Some(now);
        let mut inodes = Vec::new();
        self.sensors.kernel.inodes(&mut inodes);
        self.sensors.disks.take_in(&inodes, now);
        let growing = self.sensors.disks.growing();
        if !growing.is_empty() {
            self.sensors.signals.filesystems.growth(growing);
        }
        self.hurry_makers();
    }

    /// The conditions that thresholds of this node can raise, and how they stand.
    pub(super) fn node_conditions(&self) -> impl Iterator<Item = (NodeCondition, bool)> + '_ {
        let is_watched = |condition: &NodeCondition| {
            // That of memory is always shown.
            *condition == NodeCondition::MemoryPressure
                || self.decision.armed().iter().any(|armed| NodeCondition::of(armed.threshold.signal) == *condition)
        };
        let holds = &self.decision.assessment().conditions;
        NodeCondition::ALL.into_iter().filter(is_watched).map(|condition| (condition, holds.contains(&condition)))
    }

    /// The other signals as others are shown them.
    pub(super) fn signal_reports(&self) -> Vec<SignalReport> {
        let report = |value: &SignalValue| SignalReport {
            signal: value.signal,
            available: value.available,
            capacity: value.capacity,
        };
        let memory = self.sensors.sample.map(|sample| self.observation(sample));
        let memory = memory.and_then(|observation| observation.get(Signal::MemoryAvailable));
        memory.iter().chain(&self.sensors.others).map(report).collect()
    }

    /// Which filesystem plays which part.
    pub(super) fn role_reports(&self) -> Vec<RoleReport> {
        let report = |sample: &FsSample| RoleReport {
            role: sample.role.as_str(),
            device: sample.place.device.clone(),
            mount_point: sample.place.mount_point.display().to_string(),
            kind: sample.place.kind.clone(),
        };
        self.sensors.signals.seen.samples.iter().map(report).collect()
    }
}

#[cfg(test)]
#[path = "signals_tests.rs"]
mod tests;
