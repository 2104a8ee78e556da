//! Metrics of the eviction signals and their thresholds. A family has one unit: a signal counts bytes, inodes or process ids.

use prometheus::{GaugeVec, IntGaugeVec};

use super::register::{metrics, replace};
use super::{NodeReport, ThresholdReport};
use crate::units::{Resource, Signal, float, signed_float};

metrics! {
    pub struct SignalMetrics {
        /// Available amount of an eviction signal that counts bytes, as its thresholds see it; absent while it cannot be observed.
        available_bytes: GaugeVec = "signal_available_bytes"{signal},
        /// Available amount of an eviction signal that counts inodes; absent while it cannot be observed.
        available_inodes: GaugeVec = "signal_available_inodes"{signal},
        /// Available amount of an eviction signal that counts process ids; absent while it cannot be observed.
        available_pids: GaugeVec = "signal_available_pids"{signal},
        /// Capacity that percentages of thresholds on the signal are relative to, in bytes.
        capacity_bytes: GaugeVec = "signal_capacity_bytes"{signal},
        /// Capacity that percentages of thresholds on the signal are relative to, in inodes.
        capacity_inodes: GaugeVec = "signal_capacity_inodes"{signal},
        /// Capacity that percentages of thresholds on the signal are relative to, in process ids.
        capacity_pids: GaugeVec = "signal_capacity_pids"{signal},
        /// Value of an eviction threshold at the signal's present capacity, in bytes.
        threshold_bytes: GaugeVec = "threshold_bytes"{signal, kind},
        /// Value of an eviction threshold at the signal's present capacity, in inodes.
        threshold_inodes: GaugeVec = "threshold_inodes"{signal, kind},
        /// Value of an eviction threshold at the signal's present capacity, in process ids.
        threshold_pids: GaugeVec = "threshold_pids"{signal, kind},
        /// Whether the signal is below the eviction threshold (1) or not (0).
        met: IntGaugeVec = "threshold_met"{signal, kind},
        /// Whether the eviction threshold is armed (1), or evicts nothing yet because it was met when it arrived or cannot be meant for this
        /// node (0).
        armed: IntGaugeVec = "threshold_armed"{signal, kind},
    }
}

impl SignalMetrics {
    /// Updates the metrics from an observation. A missing figure is absent.
    pub fn observe(&self, report: &NodeReport) {
        let signals = &report.figures.signals;
        by_unit(
            [&self.available_bytes, &self.available_inodes, &self.available_pids],
            signals.iter().map(|it| (it.signal, [it.signal.as_str()], signed_float(it.available))),
        );
        by_unit(
            [&self.capacity_bytes, &self.capacity_inodes, &self.capacity_pids],
            signals.iter().map(|it| (it.signal, [it.signal.as_str()], signed_float(it.capacity))),
        );
        let thresholds = report.thresholds.iter();
        let labels = |it: &ThresholdReport| [it.threshold.signal.as_str(), it.threshold.kind()];
        by_unit(
            [&self.threshold_bytes, &self.threshold_inodes, &self.threshold_pids],
            thresholds.clone().filter_map(|it| Some((it.threshold.signal, labels(it), float(it.bytes?.0)))),
        );
        replace(&self.met, thresholds.clone().map(|it| (labels(it), it.met.into())));
        replace(&self.armed, thresholds.map(|it| (labels(it), it.unarmed.is_none().into())));
    }
}

/// Replaces the series of three gauges: of bytes, of inodes, and of process ids.
fn by_unit<'l, const LABELS: usize>(
    [bytes, inodes, pids]: [&GaugeVec; 3],
    series: impl Iterator<Item = (Signal, [&'l str; LABELS], f64)>,
) {
    for gauge in [bytes, inodes, pids] {
        gauge.reset();
    }
    for (signal, labels, value) in series {
        let gauge = match signal.resource() {
            Resource::Memory | Resource::EphemeralStorage => bytes,
            Resource::Inodes => inodes,
            Resource::Pids => pids,
        };
        gauge.with_label_values(&labels).set(value);
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;
    use crate::config::{Threshold, ThresholdValue};
    use crate::eviction::SignalValue;
    use crate::report::FiguresReport;
    use crate::report::register::Registry;
    use crate::units::Bytes;

    #[test]
    fn a_family_has_one_unit() {
        let cases =
            [(Signal::MemoryAvailable, "bytes"), (Signal::NodeFsInodesFree, "inodes"), (Signal::PidAvailable, "pids")];
        let threshold = |signal| Threshold {
            signal,
            value: ThresholdValue::bytes(Bytes(7)),
            grace_period: std::time::Duration::ZERO,
            min_reclaim: None,
        };
        let report = NodeReport {
            thresholds: cases
                .map(|(signal, _)| ThresholdReport {
                    threshold: threshold(signal),
                    bytes: Some(Bytes(7)),
                    met: false,
                    unarmed: None,
                    reported_only: None,
                    evicts: None,
                })
                .into(),
            figures: FiguresReport {
                signals: cases
                    .map(|(signal, _)| SignalValue { signal, available: 250, capacity: 1000, at: None })
                    .into(),
                ..FiguresReport::default()
            },
            ..NodeReport::default()
        };
        let registry = Registry::new();
        let metrics = SignalMetrics::new(&registry).unwrap();
        let text = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        // Observe twice: series must be replaced.
        metrics.observe(&report);
        metrics.observe(&report);
        for (signal, unit) in cases.map(|(signal, unit)| (signal.as_str(), unit)) {
            for line in [
                format!("signal_available_{unit}{{signal=\"{signal}\"}} 250\n"),
                format!("signal_capacity_{unit}{{signal=\"{signal}\"}} 1000\n"),
                format!("threshold_{unit}{{kind=\"hard\",signal=\"{signal}\"}} 7\n"),
                format!("threshold_met{{kind=\"hard\",signal=\"{signal}\"}} 0\n"),
                format!("threshold_armed{{kind=\"hard\",signal=\"{signal}\"}} 1\n"),
            ] {
                assert!(text().contains(&line), "{line} is not in\n{}", text());
            }
        }
        let samples = text().lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(samples, 5 * cases.len());
        metrics.observe(&NodeReport::default());
        assert!(!text().contains("{"), "{}", text());
    }
}
