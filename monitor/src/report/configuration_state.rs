//! State of the configuration and of its last reload, for node conditions and metrics.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{Gauge, GaugeVec, IntCounterVec, IntGauge};

use super::register::{metrics, replace};
use crate::config::{Fingerprint, Mode};
use crate::units::named_enum;

/// Begin of the message while the file has fields that need a restart.
pub(super) const RESTART_NEEDED: &str = "in force, but for what needs a restart of the agent";

named_enum! {
    pub enum ReloadOutcome {
        /// The file is in force, except for fields that need a restart.
        Applied = "applied",
        /// The file equals the configuration in force.
        Unchanged = "unchanged",
        /// The file is invalid; the previous configuration stays in force.
        Refused = "refused",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigState {
    /// The error of the current file; `None` if the file is in force.
    pub refused: Option<String>,
    /// Changed fields that take effect only after a restart.
    pub needs_restart: Vec<&'static str>,
    pub since: SystemTime,
    /// Fingerprint of the file in force; `None` if the defaults are in force.
    pub fingerprint: Option<Fingerprint>,
    /// `None` if the defaults are in force.
    pub file: Option<PathBuf>,
}

impl ConfigState {
    /// `file`: the path and the fingerprint of the file that was read.
    pub fn started(file: Option<(PathBuf, Fingerprint)>, now: SystemTime) -> Self {
        let (file, fingerprint) = file.unzip();
        Self { refused: None, needs_restart: Vec::new(), since: now, fingerprint, file }
    }

    /// Whether the file is in force, except for fields that need a restart.
    pub fn is_accepted(&self) -> bool {
        self.refused.is_none()
    }

    /// Returns the reason in CamelCase, as Kubernetes conditions require, and the message for people.
    pub fn words(&self) -> (&'static str, String) {
        match &self.refused {
            Some(reason) => ("Refused", format!("the configuration before stays in force: {reason}")),
            None if self.needs_restart.is_empty() => ("InForce", "the configuration is in force".to_owned()),
            None => {
                let fields = self.needs_restart.join(", ");
                ("RestartNeeded", format!("{RESTART_NEEDED}: {fields}"))
            }
        }
    }
}

metrics! {
    pub struct ConfigMetrics {
        /// Times that the configuration file was read again, by outcome (applied, unchanged: it asked for what was in force already,
        /// refused: it cannot be used and the one before stays in force).
        reloads: IntCounterVec = "config_reloads_total"{outcome: ReloadOutcome::ALL.map(ReloadOutcome::as_str)},
        /// Whether the configuration file, when it was read last, could be used (1) or was refused (0).
        last_successful: IntGauge = "config_last_reload_successful",
        /// When a configuration came into force or was confirmed, in seconds since 1970.
        last_success: Gauge = "config_last_reload_success_timestamp_seconds",
        /// Whether the configuration file asks for what needs a restart of the agent (1) or not (0).
        restart_needed: IntGauge = "config_restart_needed",
        /// 1 with the name of the pool whose fields are in force on this node; empty where the node is in none. Absent without `pools`, and
        /// while it is not known.
        pool: GaugeVec = "pool_info"{pool},
        /// 1 for the mode in force, 0 for the other one.
        mode: GaugeVec = "mode"{mode},
        /// Hash of the configuration file in force, the same on every node with the same file; 0 without one.
        hash: Gauge = "config_hash",
    }
}

impl ConfigMetrics {
    /// Sets the name of the pool; none: there are no pools, or it is not known.
    pub fn set_pool(&self, name: Option<&str>) {
        self.pool.reset();
        if let Some(name) = name {
            self.pool.with_label_values(&[name]).set(1.0);
        }
    }

    pub fn set_mode(&self, mode: Mode) {
        replace(&self.mode, Mode::ALL.map(|known| ([known.as_str()], f64::from(u8::from(known == mode)))));
    }

    /// Updates the state and counts the outcome of a reload. `outcome` is `None` at the start.
    pub fn observe(&self, state: &ConfigState, outcome: Option<ReloadOutcome>) {
        if let Some(outcome) = outcome {
            self.reloads.with_label_values(&[outcome.as_str()]).inc();
        }
        self.last_successful.set(state.is_accepted().into());
        self.restart_needed.set((!state.needs_restart.is_empty()).into());
        if state.is_accepted() {
            self.last_success.set(state.since.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()));
        }
        self.hash.set(state.fingerprint.map_or(0.0, short));
    }
}

/// Returns the bits of the fingerprint that a Prometheus sample holds without rounding.
#[expect(clippy::cast_precision_loss, reason = "52 bits are held exactly")]
fn short(Fingerprint(hash): Fingerprint) -> f64 {
    (hash >> 12) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::register::Registry;

    #[test]
    fn the_state_has_a_reason_and_a_message() {
        let now = SystemTime::now();
        let started = ConfigState::started(None, now);
        assert_eq!((started.is_accepted(), started.words().0), (true, "InForce"));
        let restart = ConfigState { needs_restart: vec!["kernel", "lockFile"], ..started.clone() };
        assert_eq!((restart.is_accepted(), restart.words().0), (true, "RestartNeeded"));
        assert!(restart.words().1.ends_with("a restart of the agent: kernel, lockFile"));
        let refused = ConfigState { refused: Some("m.yaml:3: mode".to_owned()), ..restart };
        assert_eq!((refused.is_accepted(), refused.words().0), (false, "Refused"));
        assert_eq!(refused.words().1, "the configuration before stays in force: m.yaml:3: mode");
    }

    #[test]
    fn the_metrics_follow() {
        let registry = Registry::new();
        let metrics = ConfigMetrics::new(&registry).unwrap();
        let at = |seconds| UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let text = || prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let started = ConfigState::started(Some(("/etc/x".into(), Fingerprint(0xabc0_0000_0000_0fff))), at(100));
        metrics.observe(&started, None);
        metrics.observe(
            &ConfigState { refused: Some(String::new()), since: at(200), ..started },
            Some(ReloadOutcome::Refused),
        );
        metrics.set_mode(Mode::Observe);
        metrics.set_mode(Mode::Enforce);
        let text = text();
        for line in [
            "config_reloads_total{outcome=\"refused\"} 1",
            "config_reloads_total{outcome=\"applied\"} 0",
            "config_last_reload_successful 0",
            "config_last_reload_success_timestamp_seconds 100",
            "config_restart_needed 0",
            "mode{mode=\"enforce\"} 1",
            "mode{mode=\"observe\"} 0",
            "config_hash 3021457953128448",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
