//! The signals of the filesystems: the latest answers of the thread, the layout, and the reasons for missing signals.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{MonitorConfig, Threshold};
use crate::eviction::{Layout, SignalValue};
use crate::node::filesystem_roles::{FilesystemHints, Role};
use crate::node::statfs::{FsSample, Place};
use crate::units::{Monotonic, Signal, kernel_text};

use super::capability::Capability;
use super::figure_report::RoleReport;
use super::filesystem_asker::{Answers, signals};
use super::filesystem_thread::FilesystemThread;

pub use super::filesystem_asker::values;

/// How often the inode counters of the eBPF programs are passed to the thread. The loop does not wake for this.
const GROWTH_EVERY: Duration = Duration::from_secs(1);

/// The name of the capability that stands for all filesystem signals.
const ALL: &str = "filesystems";
const EFFECT: &str = "the signal is not observed";

#[derive(Debug)]
pub struct FilesystemSignals {
    thread: FilesystemThread,
    /// The latest answers, without those that are out of date.
    answers: Arc<Answers>,
    /// The reason why the answers are out of date.
    hangs: Option<String>,
    layout: Layout,
    /// The reasons why a threshold cannot be evaluated, by capability.
    missing: Vec<(&'static str, String)>,
    is_reconfigured: bool,
    growth_passed: Option<Monotonic>,
}

impl FilesystemSignals {
    /// Starts the thread. The caller calls this before it raises the loop's priority, because threads inherit it.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(config: &MonitorConfig) -> std::io::Result<Self> {
        Ok(Self {
            thread: FilesystemThread::start(config)?,
            answers: Arc::default(),
            hangs: None,
            layout: Layout::default(),
            missing: Vec::new(),
            is_reconfigured: true,
            growth_passed: None,
        })
    }

    /// Sets the directories of the container runtime's stores. May be called again when they change.
    pub fn hint(&self, hints: FilesystemHints) {
        self.thread.hint(hints);
    }

    pub(super) fn reconfigure(&mut self, config: &MonitorConfig) {
        self.thread.reconfigure(config);
        // The missing capabilities depend on the thresholds.
        self.is_reconfigured = true;
    }

    /// Returns how the filesystems of this node share devices.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    pub fn samples(&self) -> &[FsSample] {
        &self.answers.samples
    }

    pub fn place(&self, role: Role) -> Option<&Place> {
        self.answers.of(role).map(|sample| &*sample.place)
    }

    /// Returns when a threshold is crossed or the layout has changed. Cancel-safe.
    pub async fn changed(&self) {
        self.thread.changed().await;
    }

    /// Has statfs called for all filesystems now, because space may have been freed.
    pub fn ask_now(&self) {
        self.thread.ask_now();
    }

    /// Takes the thread's latest answers. Returns the layout if it has changed. Replaces a thread that a filesystem blocks.
    pub(super) fn observe(&mut self, thresholds: &[Threshold], now: Monotonic) -> Option<Layout> {
        self.thread.replace_blocked(now);
        let hangs = self.thread.hangs(now);
        let was_hanging = std::mem::replace(&mut self.hangs, hangs).is_some();
        if self.hangs.is_some() {
            if !was_hanging {
                self.answers = Arc::default();
                self.missing.clear();
            }
            return None;
        }
        let answers = self.thread.answers();
        let is_new = !Arc::ptr_eq(&answers, &self.answers) || was_hanging;
        if !is_new && !std::mem::take(&mut self.is_reconfigured) {
            return None;
        }
        self.is_reconfigured = false;
        self.answers = answers;
        // These are the configured thresholds: a threshold on nodefs alone needs no containerfs, although the armed thresholds
        // include a copy for it.
        self.missing = missing(&self.answers, |signal| thresholds.iter().any(|it| it.signal == signal));
        let layout = self.answers.layout;
        (std::mem::replace(&mut self.layout, layout) != layout).then_some(layout)
    }

    pub(super) fn answers(&self) -> &Answers {
        &self.answers
    }

    pub(super) fn values(&self) -> Vec<SignalValue> {
        self.answers.values()
    }

    pub(super) fn capabilities(&self, mut set: impl FnMut(Capability, Option<&str>)) {
        set(Capability::new(ALL, EFFECT), self.hangs.as_deref());
        let of_roles = Role::ALL.into_iter().flat_map(|role| {
            let [bytes, inodes] = signals(role);
            [role.as_str(), bytes.as_str(), inodes.as_str()]
        });
        for name in of_roles {
            let reason = self.missing.iter().find(|(missing, _)| *missing == name).map(|(_, reason)| reason.as_str());
            set(Capability::new(name, EFFECT), reason);
        }
    }

    /// Returns whether the inode counters of the eBPF programs are due to be read.
    pub(super) fn is_growth_due(&self, now: Monotonic) -> bool {
        self.growth_passed.is_none_or(|at| now.since(at) >= GROWTH_EVERY)
    }

    /// Passes the number of inodes created per second on each device to the thread.
    pub(super) fn pass_growth(&mut self, growth: Vec<(String, f64)>, now: Monotonic) {
        self.growth_passed = Some(now);
        if !growth.is_empty() {
            self.thread.growth(growth);
        }
    }

    pub(super) fn roles(&self) -> Vec<RoleReport> {
        let report = |sample: &FsSample| RoleReport {
            role: sample.role.as_str(),
            device: sample.place.device.clone(),
            mount_point: kernel_text::of_path(&sample.place.mount_point).into_owned(),
            kind: sample.place.kind.clone(),
        };
        self.answers.samples.iter().map(report).collect()
    }
}

/// Returns the reasons why signals with a threshold are missing, by capability.
fn missing(answers: &Answers, is_armed: impl Fn(Signal) -> bool) -> Vec<(&'static str, String)> {
    let mut missing = Vec::new();
    for role in Role::ALL {
        let of_role = signals(role).map(|signal| (signal, is_armed(signal)));
        match answers.of(role) {
            None if of_role.iter().any(|(_, armed)| *armed) => {
                let of_it = |(missing, reason): &(Role, String)| (*missing == role).then(|| reason.clone());
                let reason = answers.missing.iter().find_map(of_it).unwrap_or_else(|| "not asked yet".to_owned());
                missing.push((role.as_str(), format!("{reason}; its signals are not there")));
            }
            None => {}
            Some(FsSample { place, is_read_only, space, inodes, .. }) => {
                let [(bytes, bytes_armed), (files, files_armed)] = of_role;
                let of = format!("{} at {}", place.kind, kernel_text::of_path(&place.mount_point));
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

#[cfg(test)]
#[path = "filesystem_signals_tests.rs"]
mod tests;
