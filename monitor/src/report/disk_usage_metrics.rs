//! Disk usage of workloads, with its source and age.

use std::time::Duration;

use prometheus::{Counter, GaugeVec, IntCounter};

use super::NodeReport;
use super::register::{follow, metrics};
use super::series::OTHER;
use super::summary_figures::Page;
use super::{DiskUsageReport, KeptReport};
use crate::units::{Bytes, float};

/// Workloads named in the summary.
const LARGEST_SHOWN: usize = 3;
/// Maximum number of workloads with own series. Those with the highest usage have one.
const MOST_SERIES: usize = 1000;

metrics! {
    pub struct DiskUsageMetrics {
        /// Space that a workload takes on the node's disks (writable layers, logs, volumes), by how that is known: quota (a project quota),
        /// walk (directories were walked), filesystem (a volume that is a filesystem).
        bytes: GaugeVec = "workload_disk_bytes"{workload, source},
        /// Inodes that a workload takes on the node's disks, by how that is known.
        inodes: GaugeVec = "workload_disk_inodes"{workload, source},
        /// How long ago the oldest part of these figures was measured, in seconds.
        age: GaugeVec = "workload_disk_age_seconds"{workload, source},
        /// Files looked at to find out what workloads keep on disks.
        walked: IntCounter = "disk_usage_files_walked_total",
        /// Times that the project quotas of a workload were read again, between two measurements.
        recounts: IntCounter = "disk_usage_quota_reads_total",
        /// CPU time taken to find out what workloads keep on disks, in seconds.
        cpu: Counter = "disk_usage_cpu_seconds_total",
    }
}

impl DiskUsageMetrics {
    pub fn observe(&self, report: &DiskUsageReport) {
        for gauge in [&self.bytes, &self.inodes, &self.age] {
            gauge.reset();
        }
        let mut kept: Vec<&KeptReport> = report.kept.iter().collect();
        if kept.len() > MOST_SERIES {
            kept.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.workload.cmp(&b.workload)));
        }
        for (index, kept) in kept.into_iter().enumerate() {
            let workload = if index < MOST_SERIES { kept.workload.as_str() } else { OTHER };
            let labels = [workload, kept.source];
            self.bytes.with_label_values(&labels).add(kept.bytes.as_f64());
            self.inodes.with_label_values(&labels).add(float(kept.inodes));
            let age = self.age.with_label_values(&labels);
            age.set(age.get().max(kept.age.as_secs_f64()));
        }
        follow(&self.walked, report.walked);
        follow(&self.recounts, report.recounts);
        follow(&self.cpu, report.cpu.as_secs_f64());
    }
}

/// Adds the total by source, and the workloads with the highest usage.
pub(super) fn disk_usage(page: &mut Page, node: &NodeReport) {
    let kept = &node.figures.disk_usage.kept;
    let mut by_source: Vec<(&str, Bytes, u64, Duration)> = Vec::new();
    let mut by_workload: Vec<(&str, Bytes)> = Vec::new();
    for KeptReport { workload, source, bytes, inodes, age } in kept {
        match by_source.iter_mut().find(|(known, ..)| known == source) {
            Some((_, sum, all, oldest)) => {
                (*sum, *all, *oldest) = (sum.saturating_add(*bytes), *all + inodes, (*oldest).max(*age));
            }
            None => by_source.push((source, *bytes, *inodes, *age)),
        }
        // Reports of one workload are adjacent.
        match by_workload.last_mut().filter(|(known, _)| known == workload) {
            Some((_, sum)) => *sum = sum.saturating_add(*bytes),
            None => by_workload.push((workload, *bytes)),
        }
    }
    by_source.sort_unstable_by_key(|(source, ..)| *source);
    for (source, bytes, inodes, age) in by_source {
        let text = format!("{bytes} and {inodes} inodes by {source}, up to {} s old", age.as_secs());
        page.row("kept", &text);
    }
    by_workload.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    for (workload, bytes) in by_workload.iter().filter(|(_, bytes)| !bytes.is_zero()).take(LARGEST_SHOWN) {
        page.largest("kept", *bytes, workload);
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;
    use crate::report::register::Registry;

    fn kept(workload: &str, source: &'static str, bytes: u64, age: u64) -> KeptReport {
        let (bytes, age) = (Bytes(bytes), Duration::from_secs(age));
        KeptReport { workload: workload.to_owned(), source, bytes, inodes: 3, age }
    }

    fn report() -> DiskUsageReport {
        let kept = vec![kept("a", "quota", 4096, 1), kept("a", "walk", 8192, 50), kept("b", "walk", 0, 60)];
        DiskUsageReport { kept, walked: 1000, recounts: 7, cpu: Duration::from_millis(1500) }
    }

    fn text(registry: &Registry) -> String {
        TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn each_workload_by_source_and_gone_when_it_is_gone() {
        let registry = Registry::new();
        let metrics = DiskUsageMetrics::new(&registry).unwrap();
        metrics.observe(&report());
        // Observe twice: values must not be added up.
        metrics.observe(&report());
        let found = text(&registry);
        for sample in [
            r#"workload_disk_bytes{source="quota",workload="a"} 4096"#,
            r#"workload_disk_bytes{source="walk",workload="a"} 8192"#,
            r#"workload_disk_inodes{source="walk",workload="b"} 3"#,
            r#"workload_disk_age_seconds{source="walk",workload="a"} 50"#,
            "disk_usage_files_walked_total 1000",
            "disk_usage_quota_reads_total 7",
            "disk_usage_cpu_seconds_total 1.5",
        ] {
            assert!(found.contains(&format!("\nnode_pressure_monitor_{sample}\n")), "{sample} is not in\n{found}");
        }
        metrics.observe(&DiskUsageReport::default());
        assert!(!text(&registry).contains("workload=\""));
    }

    #[test]
    fn the_smallest_share_a_series() {
        let registry = Registry::new();
        let metrics = DiskUsageMetrics::new(&registry).unwrap();
        let many = (0..MOST_SERIES as u64 + 2).map(|number| kept(&format!("w{number}"), "walk", number, number));
        metrics.observe(&DiskUsageReport { kept: many.collect(), ..DiskUsageReport::default() });
        let found = text(&registry);
        let other = |name: &str, value: &str| {
            found.contains(&format!("{name}{{source=\"walk\",workload=\"(other)\"}} {value}\n"))
        };
        assert!(other("bytes", "1") && other("inodes", "6") && other("age_seconds", "1"), "{found}");
        assert!(!found.contains("\"w0\"") && !found.contains("\"w1\"") && found.contains("\"w2\""));
    }

    #[test]
    fn the_summary_shows_usage_with_source_and_age() {
        let mut page = Page::default();
        let mut node = NodeReport::default();
        disk_usage(&mut page, &node);
        assert_eq!(page.finish(), "", "nothing was measured yet");
        let mut page = Page::default();
        node.figures.disk_usage = report();
        disk_usage(&mut page, &node);
        let expected = "\
kept        4.0 KiB and 3 inodes by quota, up to 1 s old
            8.0 KiB and 6 inodes by walk, up to 60 s old
                               12.0 KiB  a
";
        assert_eq!(page.finish(), expected);
    }
}
