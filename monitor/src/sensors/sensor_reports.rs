//! The figures, the sources and the missing capabilities of the sensors, for reports.

use crate::config::Policy;
use crate::eviction::{Armed, SignalValue};
use crate::units::{Monotonic, Signal};

use super::capability::{ALLOCATABLE, CUT, Capability, DISK_USAGE, INODES, PIDS, PRESSURE, SWAP, VMSTAT, WORKLOADS};
use super::figure_report::{ExhaustionReport, FiguresReport, FilesystemReport};
use super::signal_slopes::exhaustion;
use super::{Sensors, sources};

impl Sensors {
    pub fn source_reports(&self) -> Vec<(&'static str, &'static str)> {
        sources::reports(self.facts())
    }

    /// Returns all figures for reports, except memory and the state of thresholds.
    pub fn figures(&mut self, policy: &Policy, armed: &[Armed], now: Monotonic) -> FiguresReport {
        if self.counts.is_old(now) {
            self.read_counts();
        }
        self.memory.read_details();
        FiguresReport {
            corrections: self.memory.corrections(self.counts.knows_refaults(), now),
            swap: self.counts.swap(self.memory.details()),
            pressure: self.pressure.reports(),
            exhaustion: self.exhaustion(policy, armed),
            filesystems: self.filesystems(now),
            signals: self.values(policy.semantics).collect(),
            roles: self.signals.filesystems.roles(),
            disk_usage: self.disk.report(now),
            daemons: self.daemons(policy),
        }
    }

    fn filesystems(&mut self, now: Monotonic) -> Vec<FilesystemReport> {
        let (events, workloads) = (&self.events, &self.workloads);
        self.inodes.reports(|kind| events.counts_inodes_of(kind), |id| workloads.owner(id).to_string(), now)
    }

    /// Returns the change of a signal in its unit per second, smoothed over the last seconds. It is negative while the signal falls, and
    /// `None` while it is unknown.
    pub fn per_second(&self, signal: Signal) -> Option<f64> {
        match signal {
            Signal::MemoryAvailable => self.memory.slope(),
            signal => self.signals.slopes.of(signal)?,
        }
        .per_second()
    }

    /// Returns when each signal is exhausted. Omits signals whose slope is not known yet.
    fn exhaustion(&self, policy: &Policy, armed: &[Armed]) -> Vec<ExhaustionReport> {
        let report =
            |value: SignalValue| Some(exhaustion(value, -self.per_second(value.signal)?, armed, policy.quirks));
        self.observation(policy.semantics).iter().flat_map(|it| it.signals.iter().copied()).filter_map(report).collect()
    }

    /// Passes each capability of the sensors to `set`. A missing capability has a reason.
    pub fn capabilities(&self, mut set: impl FnMut(Capability, Option<&str>)) {
        set(VMSTAT, self.counts.missing());
        set(PIDS, self.signals.pids.missing());
        set(ALLOCATABLE, self.signals.allocatable.missing());
        set(PRESSURE, self.pressure.missing().as_deref());
        set(SWAP, self.swap_missing());
        set(INODES, self.inodes.missing());
        set(DISK_USAGE, self.disk.missing());
        set(WORKLOADS, self.workloads.missing());
        set(CUT, self.workloads.cut());
        self.signals.filesystems.capabilities(set);
    }
}
