//! The signals other than memory: process ids and filesystems.

use crate::config::MonitorConfig;
use crate::eviction::{Layout, SignalValue};
use crate::units::Monotonic;

use super::filesystem_signals::FilesystemSignals;
use super::pid_signal::PidSignal;
use super::signal_slopes::Slopes;

#[derive(Debug)]
pub struct OtherSignals {
    pub pids: PidSignal,
    pub filesystems: FilesystemSignals,
    pub(super) slopes: Slopes,
    /// A buffer for the values of the last observation.
    pub(super) values: Vec<SignalValue>,
}

impl OtherSignals {
    pub fn new(pids: PidSignal, filesystems: FilesystemSignals) -> Self {
        Self { pids, filesystems, slopes: Slopes::default(), values: Vec::new() }
    }

    /// Applies another configuration.
    pub fn reconfigure(&mut self, config: &MonitorConfig) {
        self.filesystems.reconfigure(config);
        self.pids.reconfigure(&config.policy);
    }

    /// Observes all these signals. Returns the layout if it has changed: the caller then arms the thresholds again.
    pub(super) fn observe(&mut self, config: &MonitorConfig, is_pid_armed: bool, now: Monotonic) -> Option<Layout> {
        self.pids.observe(is_pid_armed, now);
        let layout = self.filesystems.observe(&config.policy.thresholds, now);
        self.values.clear();
        self.values.extend(self.pids.value());
        self.values.extend(self.filesystems.values());
        self.slopes.observe(self.filesystems.answers(), &self.values, self.pids.sampled());
        layout
    }

    /// Returns the values of the last observation.
    pub fn values(&self) -> &[SignalValue] {
        &self.values
    }
}
