//! Metrics of the node's figures.

use prometheus::{Counter, CounterVec, GaugeVec};

use super::register::{follow, metrics, replace, set_known};
use super::{ExhaustionReport, FiguresReport, FilesystemReport, PressureReport, SwapReport};
use crate::units::float;

/// The windows over which the kernel averages pressure.
const WINDOWS: [&str; 3] = ["10s", "60s", "300s"];

metrics! {
    pub struct FiguresMetrics {
        /// Memory that a figure of available memory counts wrongly, in bytes. hugepages, watermarks: left out of MemAvailable, and counted
        /// as available by the kubelet; refaulting_file: file pages that come back from disk as fast as they are dropped; cma_free: free CMA
        /// pages; protected_file_min, protected_file_low: file pages that memory.min and memory.low protect; zfs_arc: what ZFS can drop of
        /// its cache, added to MemAvailable; charged_hugepages: huge pages that cgroups are charged with, no part of a workload's usage.
        corrections: GaugeVec = "memory_correction_bytes"{correction},
        /// Swap that is switched on, in bytes.
        swap: GaugeVec = "swap_bytes"{},
        /// Swap that is not in use, in bytes.
        swap_free: GaugeVec = "swap_free_bytes"{},
        /// Bytes read back from swap.
        swap_in: Counter = "swap_in_bytes_total",
        /// Bytes written to swap.
        swap_out: Counter = "swap_out_bytes_total",
        /// Share of the window (10s, 60s, 300s) in which tasks waited for a resource (PSI), 0 to 1.
        pressure: GaugeVec = "pressure_ratio"{scope, resource, kind, window},
        /// Seconds in which tasks waited for a resource (PSI), by scope (system, kubepods), resource and kind (some: at least one, full:
        /// all that were not idle).
        pressure_stalls: CounterVec = "pressure_stall_seconds_total"{scope, resource, kind},
        /// Seconds until nothing is left of the signal at the rate of the last seconds; +Inf when it does not fall.
        exhaustion: GaugeVec = "exhaustion_seconds"{signal},
        /// Seconds until the nearest eviction threshold at the rate of the last seconds; +Inf when the signal does not fall, 0 when the
        /// threshold is met.
        threshold_seconds: GaugeVec = "threshold_seconds"{signal, kind},
        /// Inodes that there can be on a local filesystem; absent where it keeps no count (btrfs).
        inodes: GaugeVec = "filesystem_inodes"{device, mountpoint},
        /// Inodes of a local filesystem that are not in use.
        inodes_free: GaugeVec = "filesystem_inodes_free"{device, mountpoint},
        /// Inodes made less inodes removed on a local filesystem, a second, over the last seconds.
        inode_growth: GaugeVec = "inode_growth_per_second"{device},
        /// Seconds until no inode is left on a local filesystem at that growth; +Inf when it does not grow.
        inodes_exhaustion: GaugeVec = "inodes_exhaustion_seconds"{device},
        /// By how much the memory outside of pods exceeds systemReserved plus kubeReserved, in bytes; 0 when it does not, absent without a
        /// reservation.
        daemons_above: GaugeVec = "system_memory_above_reservation_bytes"{},
        /// Always 1; the labels say which filesystem is nodefs, imagefs and containerfs.
        roles: GaugeVec = "filesystem_role_info"{role, device, mountpoint, type},
    }
}

impl FiguresMetrics {
    /// Updates the metrics from an observation. A missing figure is absent.
    pub fn observe(&self, report: &FiguresReport) {
        replace(&self.corrections, report.corrections.iter().map(|(name, bytes)| ([*name], bytes.as_f64())));
        self.observe_swap(report.swap.as_ref());
        self.observe_pressure(&report.pressure);
        let exhaustion = &report.exhaustion;
        replace(&self.exhaustion, exhaustion.iter().map(|it| ([it.signal], it.seconds)));
        let thresholds = exhaustion.iter().flat_map(|it| {
            let ExhaustionReport { signal, thresholds, .. } = it;
            thresholds.iter().map(|(kind, seconds)| ([*signal, *kind], *seconds))
        });
        replace(&self.threshold_seconds, thresholds);
        self.observe_filesystems(&report.filesystems);
        set_known(&self.daemons_above, report.daemons.as_ref().map(|daemons| daemons.above.as_f64()));
        replace(&self.roles, report.roles.iter().map(|it| ([it.role, &it.device, &it.mount_point, &it.kind], 1.0)));
    }

    fn observe_swap(&self, swap: Option<&SwapReport>) {
        set_known(&self.swap, swap.map(|swap| swap.total.as_f64()));
        set_known(&self.swap_free, swap.map(|swap| swap.free.as_f64()));
        if let Some(swap) = swap {
            follow(&self.swap_in, swap.read.as_f64());
            follow(&self.swap_out, swap.written.as_f64());
        }
    }

    fn observe_pressure(&self, reports: &[PressureReport]) {
        let labels = |it: &PressureReport| [it.scope.as_str(), it.resource.as_str(), it.kind.as_str()];
        let averages = |it| {
            let [scope, resource, kind] = labels(it);
            WINDOWS.into_iter().zip(it.averages).map(move |(window, share)| ([scope, resource, kind, window], share))
        };
        replace(&self.pressure, reports.iter().flat_map(averages));
        for report in reports {
            follow(&self.pressure_stalls.with_label_values(&labels(report)), report.total.as_secs_f64());
        }
    }

    fn observe_filesystems(&self, filesystems: &[FilesystemReport]) {
        let counts = filesystems.iter().filter_map(|it| Some(([it.device.as_str(), &it.mount_point], it.inodes?)));
        replace(&self.inodes, counts.clone().map(|(labels, (total, _))| (labels, float(total))));
        replace(&self.inodes_free, counts.map(|(labels, (_, free))| (labels, float(free))));
        let growth = filesystems.iter().filter_map(|it| Some(([it.device.as_str()], it.growth?)));
        replace(&self.inode_growth, growth);
        let seconds = filesystems.iter().filter_map(|it| Some(([it.device.as_str()], it.seconds?)));
        replace(&self.inodes_exhaustion, seconds);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::{Encoder as _, TextEncoder};

    use super::*;
    use crate::config::{PressureKind, PressureResource, PressureScope};
    use crate::report::register::Registry;
    use crate::report::{DaemonsReport, DiskUsageReport, RoleReport};
    use crate::units::Bytes;

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
            signals: Vec::new(),
            roles: vec![RoleReport {
                role: "imagefs",
                device: "8:1".to_owned(),
                mount_point: "/data".to_owned(),
                kind: "ext4".to_owned(),
            }],
            disk_usage: DiskUsageReport::default(),
            daemons: Some(DaemonsReport { reserved: Bytes(7), above: Bytes(5), largest: Vec::new() }),
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
            "system_memory_above_reservation_bytes 5",
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
