//! Metrics of the node's figures.

use prometheus::{Counter, CounterVec, GaugeVec};

use super::register::{Registry, follow};
use super::{ExhaustionReport, FiguresReport, FilesystemReport, PressureReport, RoleReport, SignalReport, SwapReport};
use crate::units::float;

/// The windows over which the kernel averages pressure.
const WINDOWS: [&str; 3] = ["10s", "60s", "300s"];

/// The metrics made of [`FiguresReport`].
#[derive(Debug)]
pub struct FiguresMetrics {
    corrections: GaugeVec,
    swap: GaugeVec,
    swap_free: GaugeVec,
    swap_in: Counter,
    swap_out: Counter,
    pressure: GaugeVec,
    pressure_stalls: CounterVec,
    exhaustion: GaugeVec,
    threshold_seconds: GaugeVec,
    inodes: GaugeVec,
    inodes_free: GaugeVec,
    inode_growth: GaugeVec,
    inodes_exhaustion: GaugeVec,
    available: GaugeVec,
    capacity: GaugeVec,
    roles: GaugeVec,
}

impl FiguresMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// Returns an error if a name is already registered.
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            corrections: registry.gauges(
                "memory_correction_bytes",
                "Memory that cannot be handed out, in bytes. hugepages, watermarks: left out of MemAvailable, and counted as available by the kubelet; refaulting_file: file pages that come back from disk as fast as they are dropped, left out of the corrected figure.",
                &["correction"],
            )?,
            swap: registry.gauges("swap_bytes", "Swap that is switched on, in bytes.", &[])?,
            swap_free: registry.gauges("swap_free_bytes", "Swap that is not in use, in bytes.", &[])?,
            swap_in: registry.counter("swap_in_bytes_total", "Bytes read back from swap.")?,
            swap_out: registry.counter("swap_out_bytes_total", "Bytes written to swap.")?,
            pressure: registry.gauges(
                "pressure_ratio",
                "Share of the window (10s, 60s, 300s) in which tasks waited for a resource (PSI), 0 to 1.",
                &["scope", "resource", "kind", "window"],
            )?,
            pressure_stalls: registry.counters(
                "pressure_stall_seconds_total",
                "Seconds in which tasks waited for a resource (PSI), by scope (system, kubepods), resource and kind (some: at least one, full: all that were not idle).",
                &["scope", "resource", "kind"],
            )?,
            exhaustion: registry.gauges(
                "exhaustion_seconds",
                "Seconds until nothing is left of the signal at the rate of the last seconds; +Inf when it does not fall.",
                &["signal"],
            )?,
            threshold_seconds: registry.gauges(
                "threshold_seconds",
                "Seconds until the nearest eviction threshold at the rate of the last seconds; +Inf when the signal does not fall, 0 when the threshold is met.",
                &["signal", "kind"],
            )?,
            inodes: registry.gauges(
                "filesystem_inodes",
                "Inodes that there can be on a local filesystem; absent where it keeps no count (btrfs).",
                &["device", "mountpoint"],
            )?,
            inodes_free: registry.gauges(
                "filesystem_inodes_free",
                "Inodes of a local filesystem that are not in use.",
                &["device", "mountpoint"],
            )?,
            inode_growth: registry.gauges(
                "inode_growth_per_second",
                "Inodes made less inodes removed on a local filesystem, a second, over the last seconds.",
                &["device"],
            )?,
            inodes_exhaustion: registry.gauges(
                "inodes_exhaustion_seconds",
                "Seconds until no inode is left on a local filesystem at that growth; +Inf when it does not grow.",
                &["device"],
            )?,
            available: registry.gauges(
                "signal_available",
                "What is left of an eviction signal, as its thresholds see it: bytes, inodes or process ids; absent while it cannot be observed.",
                &["signal"],
            )?,
            capacity: registry.gauges(
                "signal_capacity",
                "What percentages of thresholds on the signal are relative to, in the same unit.",
                &["signal"],
            )?,
            roles: registry.gauges(
                "filesystem_role_info",
                "Always 1; the labels say which filesystem is nodefs, imagefs and containerfs.",
                &["role", "device", "mountpoint", "type"],
            )?,
        })
    }

    /// Updates the metrics from an observation. A missing figure is absent.
    pub fn observe(&self, report: &FiguresReport) {
        self.corrections.reset();
        for (correction, bytes) in &report.corrections {
            self.corrections.with_label_values(&[correction]).set(bytes.as_f64());
        }
        self.observe_swap(report.swap.as_ref());
        self.pressure.reset();
        for pressure in &report.pressure {
            self.observe_pressure(pressure);
        }
        for gauge in [&self.exhaustion, &self.threshold_seconds] {
            gauge.reset();
        }
        for ExhaustionReport { signal, seconds, thresholds } in &report.exhaustion {
            self.exhaustion.with_label_values(&[signal]).set(*seconds);
            for (kind, seconds) in thresholds {
                self.threshold_seconds.with_label_values(&[signal, kind]).set(*seconds);
            }
        }
        // Remove the series of unmounted filesystems.
        for gauge in [&self.inodes, &self.inodes_free, &self.inode_growth, &self.inodes_exhaustion] {
            gauge.reset();
        }
        for filesystem in &report.filesystems {
            self.observe_filesystem(filesystem);
        }
        self.observe_signals(report);
    }

    fn observe_signals(&self, report: &FiguresReport) {
        for gauge in [&self.available, &self.capacity, &self.roles] {
            gauge.reset();
        }
        for SignalReport { signal, available, capacity } in &report.signals {
            self.available.with_label_values(&[signal.as_str()]).set(signed(*available));
            self.capacity.with_label_values(&[signal.as_str()]).set(signed(*capacity));
        }
        for RoleReport { role, device, mount_point, kind } in &report.roles {
            self.roles.with_label_values(&[*role, device, mount_point, kind]).set(1.0);
        }
    }

    fn observe_swap(&self, swap: Option<&SwapReport>) {
        let none: &[&str] = &[];
        let Some(swap) = swap else {
            self.swap.reset();
            self.swap_free.reset();
            return;
        };
        self.swap.with_label_values(none).set(swap.total.as_f64());
        self.swap_free.with_label_values(none).set(swap.free.as_f64());
        follow(&self.swap_in, swap.read.as_f64());
        follow(&self.swap_out, swap.written.as_f64());
    }

    fn observe_pressure(&self, pressure: &PressureReport) {
        let labels = [pressure.scope.as_str(), pressure.resource.as_str(), pressure.kind.as_str()];
        let [scope, resource, kind] = labels;
        for (window, share) in WINDOWS.iter().zip(pressure.averages) {
            self.pressure.with_label_values(&[scope, resource, kind, window]).set(share);
        }
        follow(&self.pressure_stalls.with_label_values(&labels), pressure.total.as_secs_f64());
    }

    fn observe_filesystem(&self, filesystem: &FilesystemReport) {
        let device = filesystem.device.as_str();
        let labels = [device, filesystem.mount_point.as_str()];
        if let Some((total, free)) = filesystem.inodes {
            self.inodes.with_label_values(&labels).set(float(total));
            self.inodes_free.with_label_values(&labels).set(float(free));
        }
        if let Some(growth) = filesystem.growth {
            self.inode_growth.with_label_values(&[device]).set(growth);
        }
        if let Some(seconds) = filesystem.seconds {
            self.inodes_exhaustion.with_label_values(&[device]).set(seconds);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
fn signed(number: i64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::{Encoder as _, TextEncoder};

    use super::*;
    use crate::config::{PressureKind, PressureResource, PressureScope};
    use crate::report::DiskUsageReport;
    use crate::units::{Bytes, Signal};

    fn report() -> FiguresReport {
        FiguresReport {
            corrections: vec![("hugepages", Bytes(64)), ("refaulting_file", Bytes(0))],
            swap: Some(SwapReport {
                total: Bytes(100),
                free: Bytes(40),
                read: Bytes(7),
                written: Bytes(9),
                ..SwapReport::default()
            }),
            pressure: vec![PressureReport {
                scope: PressureScope::System,
                resource: PressureResource::Io,
                kind: PressureKind::Full,
                averages: [0.25, 0.125, 0.0625],
                total: Duration::from_millis(1500),
            }],
            exhaustion: vec![ExhaustionReport {
                signal: "memory.available",
                seconds: f64::INFINITY,
                thresholds: vec![("hard", 2.5)],
            }],
            filesystems: vec![
                FilesystemReport {
                    device: "8:1".to_owned(),
                    mount_point: "/data".to_owned(),
                    kind: "ext4".to_owned(),
                    inodes: Some((1000, 250)),
                    growth: Some(-0.5),
                    seconds: Some(f64::INFINITY),
                    makers: Vec::new(),
                },
                FilesystemReport {
                    device: "0:40".to_owned(),
                    mount_point: "/home".to_owned(),
                    kind: "btrfs".to_owned(),
                    inodes: None,
                    growth: None,
                    seconds: None,
                    makers: Vec::new(),
                },
            ],
            signals: vec![SignalReport { signal: Signal::NodeFsInodesFree, available: 250, capacity: 1000 }],
            roles: vec![RoleReport {
                role: "imagefs",
                device: "8:1".to_owned(),
                mount_point: "/data".to_owned(),
                kind: "ext4".to_owned(),
            }],
            disk_usage: DiskUsageReport::default(),
        }
    }

    fn text(registry: &Registry) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_figure_under_its_name_and_absent_when_unknown() {
        let registry = Registry::new();
        let metrics = FiguresMetrics::new(&registry).unwrap();
        metrics.observe(&report());
        // Observe twice: totals must not be added up.
        metrics.observe(&report());
        let found = text(&registry);
        for sample in [
            r#"memory_correction_bytes{correction="hugepages"} 64"#,
            r#"memory_correction_bytes{correction="refaulting_file"} 0"#,
            "swap_bytes 100",
            "swap_free_bytes 40",
            "swap_in_bytes_total 7",
            "swap_out_bytes_total 9",
            r#"pressure_ratio{kind="full",resource="io",scope="system",window="10s"} 0.25"#,
            r#"pressure_ratio{kind="full",resource="io",scope="system",window="300s"} 0.0625"#,
            r#"pressure_stall_seconds_total{kind="full",resource="io",scope="system"} 1.5"#,
            r#"exhaustion_seconds{signal="memory.available"} inf"#,
            r#"threshold_seconds{kind="hard",signal="memory.available"} 2.5"#,
            r#"filesystem_inodes{device="8:1",mountpoint="/data"} 1000"#,
            r#"filesystem_inodes_free{device="8:1",mountpoint="/data"} 250"#,
            r#"inode_growth_per_second{device="8:1"} -0.5"#,
            r#"inodes_exhaustion_seconds{device="8:1"} inf"#,
            r#"signal_available{signal="nodefs.inodesFree"} 250"#,
            r#"signal_capacity{signal="nodefs.inodesFree"} 1000"#,
            r#"filesystem_role_info{device="8:1",mountpoint="/data",role="imagefs",type="ext4"} 1"#,
        ] {
            assert!(
                found.contains(&format!("\nnode_pressure_monitor_{sample}\n")),
                "{sample} is missing from\n{found}"
            );
        }
        assert!(!found.contains("0:40"), "{found}");
        metrics.observe(&FiguresReport::default());
        let found = text(&registry);
        let left: Vec<&str> = found.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(left.iter().all(|line| line.contains("_total")), "only what was counted stays: {left:?}");
    }
}
