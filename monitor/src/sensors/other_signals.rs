//! The signals other than the node's memory: process ids, the memory of all pods, and filesystems.

use crate::config::MonitorConfig;
use crate::eviction::{Layout, SignalValue};
use crate::units::{Monotonic, Signal};

use super::allocatable_signal::AllocatableSignal;
use super::filesystem_signals::FilesystemSignals;
use super::pid_signal::PidSignal;
use super::signal_slopes::Slopes;

#[derive(Debug)]
pub struct OtherSignals {
    pub pids: PidSignal,
    pub allocatable: AllocatableSignal,
    pub filesystems: FilesystemSignals,
    pub(super) slopes: Slopes,
    /// A buffer for the values of the last observation.
    pub(super) values: Vec<SignalValue>,
}

impl OtherSignals {
    pub fn new(pids: PidSignal, allocatable: AllocatableSignal, filesystems: FilesystemSignals) -> Self {
        Self { pids, allocatable, filesystems, slopes: Slopes::default(), values: Vec::new() }
    }

    pub fn reconfigure(&mut self, config: &MonitorConfig) {
        self.filesystems.reconfigure(config);
        self.pids.reconfigure(&config.policy);
    }

    /// Observes all these signals; those that are armed, anew. Returns the layout if it has changed: the caller then arms the thresholds again.
    pub(super) fn observe(
        &mut self,
        config: &MonitorConfig,
        is_armed: impl Fn(Signal) -> bool,
        now: Monotonic,
    ) -> Option<Layout> {
        self.pids.observe(is_armed(Signal::PidAvailable), now);
        self.allocatable.observe(&config.policy, is_armed(Signal::AllocatableMemoryAvailable), now);
        let layout = self.filesystems.observe(&config.policy.thresholds, now);
        self.values.clear();
        self.values.extend(self.allocatable.value(&config.policy));
        self.values.extend(self.pids.value());
        self.values.extend(self.filesystems.values());
        self.slopes.observe(self.filesystems.answers(), &self.values, self.pids.sampled());
        layout
    }

    pub fn values(&self) -> &[SignalValue] {
        &self.values
    }
}
