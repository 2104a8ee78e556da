//! The figures beside the one that is compared with thresholds: refaults, swap, pressure, time to exhaustion.

use std::path::Path;
use std::time::Duration;

use crate::config::{MonitorConfig, PressureCondition, PressureKind, PressureResource, PressureScope, Semantics};
use crate::eviction::SignalValue;
use crate::eviction::exhaustion::{Slope, SmoothRate, seconds_until};
use crate::eviction::pressure::PressureState;
use crate::eviction::refaulting::Refaulting;
use crate::node::Hierarchy;
use crate::node::meminfo::MemDetails;
use crate::node::psi_figures::PressureFiles;
use crate::node::vmstat::{VmStat, VmStatReader, VmStatSample};
use crate::node::zoneinfo::reserved_pages;
use crate::report::{ExhaustionReport, FiguresReport, PressureReport, SwapReport};
use crate::units::{Amount, Bytes, Monotonic, Signal};

use super::{Agent, Wakeup};

/// `/proc/vmstat` is read at most this often, near a threshold.
const NEAR_AGE: Duration = Duration::from_millis(100);
/// So near, in time, refaulting file pages make a difference.
const NEAR: Duration = Duration::from_secs(1);
/// When the kernel rings, far from a threshold.
const RUNG_AGE: Duration = Duration::from_secs(1);
/// When nothing happens: as often as the house is kept.
const CALM_AGE: Duration = Duration::from_secs(20);
/// Watermarks change when somebody writes a sysctl; on a large machine they are a long read.
const WATERMARKS_AGE: Duration = Duration::from_secs(5);
/// The kernel renews its averages of pressure this often (`PSI_FREQ`).
const PRESSURE_EVERY: Duration = Duration::from_secs(2);

const VMSTAT_UNKNOWN: &str = "refaults, swap rates and the kernel's own counts are not known";

/// What is read and remembered for the figures.
#[derive(Debug)]
pub(super) struct Figures {
    proc_root: std::path::PathBuf,
    page_size: u64,
    vmstat: Option<VmStatReader>,
    sample: Option<VmStatSample>,
    refaulting: Refaulting,
    /// File pages that come back as fast as they are dropped: left out of what is available.
    correction: Bytes,
    details: MemDetails,
    watermarks: Option<(Bytes, Monotonic)>,
    swap_in: SmoothRate,
    swap_out: SmoothRate,
    available: Slope,
    pressure: PressureFiles,
    has_pressure: bool,
    conditions: Vec<Watched>,
    conditions_at: Option<Monotonic>,
}

/// A condition that follows from pressure, and how it stands.
#[derive(Debug)]
struct Watched {
    condition: PressureCondition,
    state: PressureState,
    /// That its figure cannot be had was said.
    is_told: bool,
}

impl Watched {
    fn new(condition: &PressureCondition) -> Self {
        Self { condition: condition.clone(), state: PressureState::default(), is_told: false }
    }
}

impl Figures {
    pub(super) fn new(config: &MonitorConfig, hierarchy: &Hierarchy) -> Self {
        let proc_root: &Path = &config.proc_root;
        let vmstat = VmStatReader::open(proc_root).map_err(|error| {
            tracing::warn!(event = "degraded", capability = "vmstat", reason = %error, "{VMSTAT_UNKNOWN}");
        });
        let pressure = PressureFiles::new(proc_root, hierarchy);
        Self {
            proc_root: proc_root.to_owned(),
            page_size: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
            vmstat: vmstat.ok(),
            sample: None,
            refaulting: Refaulting::default(),
            correction: Bytes::ZERO,
            details: MemDetails::default(),
            watermarks: None,
            swap_in: SmoothRate::default(),
            swap_out: SmoothRate::default(),
            available: Slope::default(),
            has_pressure: pressure.read(PressureScope::System, PressureResource::Memory).is_ok(),
            pressure,
            conditions: config.pressure_conditions.iter().map(Watched::new).collect(),
            conditions_at: None,
        }
    }

    /// What is to be left out of `MemAvailable`.
    pub(super) fn correction(&self) -> Bytes {
        self.correction
    }

    /// A workload is gone: what it did to the file cache is no reason to evict another.
    pub(super) fn forget_refaults(&mut self) {
        self.refaulting.forget();
        self.correction = Bytes::ZERO;
    }

    /// Takes in one more value of `memory.available`.
    pub(super) fn observe(&mut self, available: Bytes, at: Monotonic) {
        self.available.observe(available.as_f64(), at);
    }

    /// Whether pressure of the whole system can be read.
    pub(super) fn knows_pressure(&self) -> bool {
        self.has_pressure
    }

    /// Whether the kernel's counts can be read.
    pub(super) fn knows_vmstat(&self) -> bool {
        self.sample.is_some()
    }

    /// Keeps these conditions from now on: those that stay go on as they stand. Returns the names of those that are kept no more.
    pub(super) fn watch_for(&mut self, conditions: &[PressureCondition]) -> Vec<String> {
        let mut before = std::mem::take(&mut self.conditions);
        let watched = |condition: &PressureCondition| {
            let known = before.iter().position(|watched| watched.condition == *condition);
            known.map_or_else(|| Watched::new(condition), |place| before.swap_remove(place))
        };
        self.conditions = conditions.iter().map(watched).collect();
        let is_kept = |name: &String| conditions.iter().any(|condition| condition.condition == *name);
        before.into_iter().map(|watched| watched.condition.condition).filter(|name| !is_kept(name)).collect()
    }

    /// How long until pressure must be looked at for the conditions; nothing when there are none.
    pub(super) fn until_conditions(&self, now: Monotonic) -> Option<Duration> {
        let since = self.conditions_at.map_or(PRESSURE_EVERY, |at| now.since(at));
        (!self.conditions.is_empty()).then(|| PRESSURE_EVERY.saturating_sub(since))
    }

    /// Reads `/proc/vmstat`; nothing when it cannot be, and then nothing stays of what it said before.
    fn read_vmstat(&mut self) -> Option<VmStat> {
        let before = self.sample.take();
        let sample = match self.vmstat.as_mut()?.sample() {
            Ok(sample) => sample,
            Err(error) => {
                if before.is_some() {
                    tracing::warn!(event = "degraded", capability = "vmstat", reason = %error, "{VMSTAT_UNKNOWN}");
                }
                self.refaulting = Refaulting::default();
                self.correction = Bytes::ZERO;
                return None;
            }
        };
        self.sample = Some(sample);
        self.refaulting.observe(&sample);
        let swapped = |of: fn(&VmStat) -> Option<u64>| {
            let pages = of(&sample.stat)?.saturating_sub(of(&before?.stat)?);
            Some(Bytes(pages.saturating_mul(self.page_size)).as_f64())
        };
        let (read, written) = (swapped(|stat| stat.swapped_in), swapped(|stat| stat.swapped_out));
        self.swap_in.observe(read.unwrap_or(0.0), sample.at);
        self.swap_out.observe(written.unwrap_or(0.0), sample.at);
        Some(sample.stat)
    }

    /// What the kernel keeps free for itself.
    fn watermarks(&mut self, now: Monotonic) -> Option<Bytes> {
        if self.watermarks.is_none_or(|(_, at)| now.since(at) >= WATERMARKS_AGE) {
            let text = std::fs::read_to_string(self.proc_root.join("zoneinfo")).ok()?;
            self.watermarks = Some((Bytes(reserved_pages(&text).saturating_mul(self.page_size)), now));
        }
        self.watermarks.map(|(bytes, _)| bytes)
    }

    fn corrections(&mut self, now: Monotonic) -> Vec<(&'static str, Bytes)> {
        let knows_refaults = self.sample.is_some_and(|sample| sample.stat.activated_file.is_some());
        let all = [
            ("hugepages", self.details.huge_pages),
            ("watermarks", self.watermarks(now)),
            ("refaulting_file", knows_refaults.then_some(self.correction)),
        ];
        all.into_iter().filter_map(|(name, bytes)| Some((name, bytes?))).collect()
    }

    fn swap(&self) -> Option<SwapReport> {
        let stat = self.sample?.stat;
        let bytes = |pages: Option<u64>| Bytes(pages.unwrap_or(0).saturating_mul(self.page_size));
        Some(SwapReport {
            total: self.details.swap_total?,
            free: self.details.swap_free?,
            read: bytes(stat.swapped_in),
            written: bytes(stat.swapped_out),
            read_per_second: self.swap_in.per_second(),
            written_per_second: self.swap_out.per_second(),
        })
    }

    pub(super) fn pressures(&mut self) -> Vec<PressureReport> {
        let mut reports = Vec::new();
        for scope in PressureScope::ALL {
            for resource in PressureResource::ALL {
                let read = self.pressure.read(scope, resource);
                if (scope, resource) == (PressureScope::System, PressureResource::Memory) {
                    self.has_pressure = read.is_ok();
                }
                let Ok(pressure) = read else { continue };
                let report = |kind| {
                    let stall = pressure.of(kind)?;
                    Some(PressureReport { scope, resource, kind, averages: stall.averages, total: stall.total })
                };
                reports.extend(PressureKind::ALL.into_iter().filter_map(report));
            }
        }
        reports
    }

    /// The conditions that follow from PSI, and their status.
    pub(super) fn pressure_conditions(&self) -> impl Iterator<Item = (&str, bool)> + Clone {
        self.conditions.iter().map(|watched| (watched.condition.condition.as_str(), watched.state.status()))
    }
}

impl Agent {
    /// Reads what the figures need, as seldom as will do; called once a look, after what is urgent.
    pub(super) fn refresh_figures(&mut self, wakeup: Wakeup) {
        let now = Monotonic::now();
        let age = self.sensors.figures.sample.map_or(Duration::MAX, |sample| now.since(sample.at));
        let rang = matches!(wakeup, Wakeup::KernelEvent | Wakeup::Psi);
        let is_due = age >= CALM_AGE || rang && age >= RUNG_AGE || age >= NEAR_AGE && self.next_event().0 <= NEAR;
        if is_due {
            self.read_figures();
        }
        if self.sensors.figures.until_conditions(now).is_some_and(|left| left.is_zero()) {
            self.watch_pressure(now);
        }
    }

    /// Reads the kernel's counts, and what follows from them.
    pub(super) fn read_figures(&mut self) {
        let Some(stat) = self.sensors.figures.read_vmstat() else { return };
        // Most of the time nothing refaults, and nothing more is to be read.
        let uncapped = self.sensors.figures.refaulting.bytes(self.sensors.figures.page_size, Bytes::MAX);
        if !uncapped.is_zero()
            && let Ok(details) = self.sensors.memory.details()
        {
            self.sensors.figures.details = details;
        }
        let active_file = self.sensors.figures.details.active_file.unwrap_or(Bytes::ZERO);
        self.sensors.figures.correction = uncapped.min(active_file);
        self.check_hearing(stat.allocstall);
    }

    /// OOM kills that the kernel has counted since it booted, read now (Linux 4.13).
    pub(super) fn counted_oom_kills(&mut self) -> Option<u64> {
        self.read_figures();
        self.sensors.figures.sample?.stat.oom_kills
    }

    /// Takes one sample of pressure for each condition, and tells what changed.
    fn watch_pressure(&mut self, now: Monotonic) {
        self.sensors.figures.conditions_at = Some(now);
        for Watched { condition, state, is_told } in &mut self.sensors.figures.conditions {
            let PressureCondition { scope, resource, kind, .. } = *condition;
            let read = self.sensors.figures.pressure.read(scope, resource);
            let [average, ..] = match &read {
                Ok(pressure) => pressure.of(kind).map_or([None; 3], |stall| stall.averages.map(Some)),
                Err(_) => [None; 3],
            };
            if let Err(reason) = &read
                && !std::mem::replace(is_told, true)
            {
                tracing::warn!(
                    event = "degraded",
                    capability = "pressureConditions",
                    condition = condition.condition,
                    reason,
                    "the condition stays as it is until there are figures"
                );
            }
            *is_told &= read.is_err();
            *state = state.after(condition, average, now.into());
            let status = state.status();
            self.reporter.report_condition(&condition.condition, status, None, now);
        }
    }

    pub(super) fn figures_report(&mut self) -> FiguresReport {
        let now = Monotonic::now();
        if self.sensors.figures.sample.is_none_or(|sample| now.since(sample.at) >= NEAR_AGE) {
            self.read_figures();
        }
        if let Ok(details) = self.sensors.memory.details() {
            self.sensors.figures.details = details;
        }
        FiguresReport {
            corrections: self.sensors.figures.corrections(now),
            swap: self.sensors.figures.swap(),
            pressure: self.sensors.figures.pressures(),
            exhaustion: self.exhaustion_reports(),
            filesystems: self.filesystem_reports(),
            signals: self.signal_reports(),
            roles: self.role_reports(),
            disk_usage: self.disk_usage_report(),
        }
    }

    /// When each signal will have run out; nothing of those whose slope is not known yet.
    fn exhaustion_reports(&self) -> Vec<ExhaustionReport> {
        let Some(sample) = self.sensors.sample else { return Vec::new() };
        let observation = self.observation(sample);
        let report = |value: &SignalValue| {
            let slope = match value.signal {
                Signal::MemoryAvailable => &self.sensors.figures.available,
                signal => self.sensors.signals.slope(signal)?,
            };
            let rate = -slope.per_second()?;
            Some(self.exhaustion_report(*value, rate))
        };
        observation.signals.iter().filter_map(report).collect()
    }

    /// When a signal will have run out, and have reached its thresholds, if it goes on falling so fast.
    fn exhaustion_report(&self, value: SignalValue, rate: f64) -> ExhaustionReport {
        let mut thresholds: Vec<(&'static str, f64)> = Vec::new();
        let of_signal = self.decision.armed().iter().map(|armed| &armed.threshold);
        for threshold in of_signal.filter(|threshold| threshold.signal == value.signal) {
            let quantity = threshold.value.resolve(value.capacity, self.config.policy.quirks);
            let distance = Amount::from_units(value.available) - quantity;
            let distance = if distance.is_negative() { 0.0 } else { distance.bytes().as_f64() };
            let seconds = seconds_until(distance, rate);
            match thresholds.iter_mut().find(|(kind, _)| *kind == threshold.kind()) {
                Some((_, nearest)) => *nearest = nearest.min(seconds),
                None => thresholds.push((threshold.kind(), seconds)),
            }
        }
        let seconds = seconds_until(value.available_bytes().as_f64(), rate);
        ExhaustionReport { signal: value.signal.as_str(), seconds, thresholds }
    }

    /// The figure that falls as memory is taken, refaulting file pages included: they come and go by whole samples, which is no rate at which
    /// memory vanishes.
    pub(super) fn uncorrected(&self, sample: crate::node::MemorySample) -> Bytes {
        match self.config.policy.semantics {
            Semantics::Corrected => sample.meminfo.available,
            Semantics::Kubelet => self.sensors.root_usage.available(sample.meminfo.total),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::CgroupVersion;

    #[test]
    fn counts_that_cannot_be_read_any_more_correct_nothing() {
        let root = tempfile::tempdir().unwrap();
        let vmstat = root.path().join("vmstat");
        std::fs::write(&vmstat, "pswpin 1\noom_kill 2\n").unwrap();
        let config = MonitorConfig { proc_root: root.path().to_owned(), ..MonitorConfig::default() };
        let memory = root.path().to_owned();
        let hierarchy = Hierarchy { version: CgroupVersion::V2, memory, freezer: None, hybrid: false };
        let mut figures = Figures::new(&config, &hierarchy);
        assert_eq!(figures.read_vmstat().and_then(|stat| stat.oom_kills), Some(2));
        figures.correction = Bytes(5);
        std::fs::write(&vmstat, [0xff]).unwrap();
        assert_eq!(figures.read_vmstat(), None);
        assert_eq!((figures.correction(), figures.knows_vmstat()), (Bytes::ZERO, false));
        std::fs::write(&vmstat, "oom_kill 3\n").unwrap();
        assert_eq!(figures.read_vmstat().and_then(|stat| stat.oom_kills), Some(3), "it may come back");
    }
}
