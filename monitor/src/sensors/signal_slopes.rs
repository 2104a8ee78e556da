//! The rate at which each signal falls, for reports of the time to exhaustion.

use std::sync::Arc;

use crate::config::Quirks;
use crate::eviction::exhaustion::{Slope, seconds_until};
use crate::eviction::{Armed, SignalValue};
use crate::node::filesystem_roles::Role;
use crate::node::statfs::{FsSample, Place};
use crate::units::{Amount, Monotonic, Signal, signed_float};

use super::figure_report::ExhaustionReport;
use super::filesystem_asker::{Answers, signals};

/// The slopes of the signals other than memory.
#[derive(Debug, Default)]
pub(super) struct Slopes {
    slopes: Vec<(Signal, Slope)>,
    /// The filesystems on which the slopes were measured.
    places: Vec<(Role, Arc<Place>)>,
}

impl Slopes {
    pub(super) fn of(&self, signal: Signal) -> Option<&Slope> {
        self.slopes.iter().find(|(known, _)| *known == signal).map(|(_, slope)| slope)
    }

    /// Adds new values. `pids_at` is when process ids were read.
    pub(super) fn observe(&mut self, answers: &Answers, values: &[SignalValue], pids_at: Option<Monotonic>) {
        for FsSample { role, place, .. } in &answers.samples {
            let known = self.places.iter().position(|(known, _)| known == role);
            let known = known.map(|index| self.places.swap_remove(index).1);
            // The difference between the values of two devices is not a slope.
            if known.is_some_and(|known| known.device != place.device) {
                self.slopes.retain(|(signal, _)| !signals(*role).contains(signal));
            }
            self.places.push((*role, Arc::clone(place)));
        }
        for value in values {
            let of_pids = pids_at.filter(|_| value.signal == Signal::PidAvailable);
            let Some(at) = of_pids.or_else(|| answers.at(value.signal)) else { continue };
            let place = self.slopes.iter().position(|(known, _)| *known == value.signal);
            let place = place.unwrap_or_else(|| {
                self.slopes.push((value.signal, Slope::default()));
                self.slopes.len() - 1
            });
            if let Some((_, slope)) = self.slopes.get_mut(place) {
                slope.observe(signed_float(value.available), at);
            }
        }
    }
}

/// Returns when a signal that changes by `rate` per second is exhausted, and when it reaches its nearest threshold of each kind.
pub(super) fn exhaustion(value: SignalValue, rate: f64, armed: &[Armed], quirks: Quirks) -> ExhaustionReport {
    let mut thresholds: Vec<(&'static str, f64)> = Vec::new();
    let of_signal = armed.iter().map(|armed| &armed.threshold).filter(|threshold| threshold.signal == value.signal);
    for threshold in of_signal {
        let quantity = threshold.value.resolve(value.capacity, quirks);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MonitorConfig;
    use crate::eviction::{Layout, arm};
    use crate::node::statfs::Space;
    use crate::units::Bytes;

    #[test]
    fn a_change_of_device_is_not_a_slope() {
        let mut slopes = Slopes::default();
        let mut step = |device: &str, available: u64, second: u64| {
            let place = Place {
                path: "/p".into(),
                device: device.to_owned(),
                mount_point: "/m".into(),
                kind: "ext4".to_owned(),
            };
            let sample = FsSample {
                role: Role::Node,
                place: Arc::new(place),
                is_read_only: false,
                space: Some(Space { available: Bytes(available), capacity: Bytes(1 << 40), used: Bytes(0) }),
                inodes: None,
                at: Monotonic(second * 1_000_000_000),
            };
            let answers = Answers { samples: vec![sample], ..Answers::default() };
            slopes.observe(&answers, &answers.values(), None);
            slopes.of(Signal::NodeFsAvailable).and_then(Slope::per_second)
        };
        step("8:1", 1 << 39, 1);
        assert!(step("8:1", 1 << 38, 2).is_some_and(|slope| slope < -1e9));
        assert_eq!(step("8:2", 1 << 20, 3), None);
        assert_eq!(step("8:2", 1 << 20, 4), Some(0.0));
    }

    #[test]
    fn exhaustion_names_the_nearest_threshold_of_each_kind() {
        let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
        let text = format!(
            "{head}evictionHard: {{memory.available: 1Ki}}\nevictionSoft: {{memory.available: 5Ki}}\n\
             evictionSoftGracePeriod: {{memory.available: 1m}}\n"
        );
        let policy = MonitorConfig::parse("m.yaml", &text).unwrap().config.policy;
        let armed = arm(&policy, Layout::Single);
        let value = SignalValue::now(Signal::MemoryAvailable, Bytes(4096), Bytes(1 << 20));
        let report = exhaustion(value, 1024.0, &armed, policy.quirks);
        assert!((report.seconds - 4.0).abs() < 1e-9, "{report:?}");
        let of = |kind| report.thresholds.iter().find(|(known, _)| *known == kind).map(|(_, seconds)| *seconds);
        assert_eq!((of("hard"), of("soft")), (Some(3.0), Some(0.0)));
        assert!(exhaustion(value, -1.0, &armed, policy.quirks).seconds.is_infinite(), "it rises");
    }
}
