//! Metrics of reclaim per workload: number, duration and yield.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{CounterVec, IntCounterVec};

use super::register::{NAMESPACE, Registry, increase, metrics};
use crate::kernel::{HISTOGRAM_BUCKETS, ReclaimCounters};
use crate::units::lock;

/// Edges of the kernel side's buckets that are exported, as powers of two of 1,024 ns: 66 µs to 4.3 s.
const EDGES: [usize; 12] = [6, 8, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22];

metrics! {
    struct ReclaimCounts {
        /// Pages that tasks of a workload reclaimed while they stalled, by kind (direct, memcg).
        reclaimed: IntCounterVec = "reclaim_pages_reclaimed_total"{workload, kind},
        /// Pages of the inactive lists that tasks of a workload looked at while they stalled, by kind (direct, memcg); stays 0 where the
        /// kernel does not report it.
        scanned: IntCounterVec = "reclaim_pages_scanned_total"{workload, kind},
        /// Times that tasks of a workload were put to sleep inside a reclaim stall.
        throttled: IntCounterVec = "reclaim_throttled_total"{workload},
        /// Seconds that tasks of a workload were put to sleep inside a reclaim stall.
        throttled_seconds: CounterVec = "reclaim_throttled_seconds_total"{workload},
    }
}

#[derive(Debug)]
pub struct ReclaimSeries {
    stalls: StallHistogram,
    counts: ReclaimCounts,
}

impl ReclaimSeries {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let stalls = registry.register("histogram", StallHistogram::new()?)?;
        Ok(Self { stalls, counts: ReclaimCounts::new(registry)? })
    }

    /// Adds the increments since `last`, and stores the new values there.
    pub fn add(&self, workload: &str, kind: &'static str, last: &mut ReclaimCounters, current: &ReclaimCounters) {
        let mut rise = ReclaimCounters {
            stalls: increase(&mut last.stalls, current.stalls),
            stalled_ns: increase(&mut last.stalled_ns, current.stalled_ns),
            reclaimed_pages: increase(&mut last.reclaimed_pages, current.reclaimed_pages),
            scanned_pages: increase(&mut last.scanned_pages, current.scanned_pages),
            throttles: increase(&mut last.throttles, current.throttles),
            throttled_ns: increase(&mut last.throttled_ns, current.throttled_ns),
            histogram: [0; HISTOGRAM_BUCKETS],
        };
        for ((rise, last), current) in rise.histogram.iter_mut().zip(&mut last.histogram).zip(current.histogram) {
            *rise = increase(last, current);
        }
        self.stalls.add(workload, kind, &rise);
        self.counts.reclaimed.with_label_values(&[workload, kind]).inc_by(rise.reclaimed_pages);
        self.counts.scanned.with_label_values(&[workload, kind]).inc_by(rise.scanned_pages);
        self.counts.throttled.with_label_values(&[workload]).inc_by(rise.throttles);
        let seconds = Duration::from_nanos(rise.throttled_ns).as_secs_f64();
        self.counts.throttled_seconds.with_label_values(&[workload]).inc_by(seconds);
    }

    /// Removes the series of a workload. Removal fails only for a series that does not exist.
    pub fn remove(&self, workload: &str, kinds: impl IntoIterator<Item = &'static str>) {
        for kind in kinds {
            self.stalls.remove(workload, kind);
            let _ = self.counts.reclaimed.remove_label_values(&[workload, kind]);
            let _ = self.counts.scanned.remove_label_values(&[workload, kind]);
        }
        let _ = self.counts.throttled.remove_label_values(&[workload]);
        let _ = self.counts.throttled_seconds.remove_label_values(&[workload]);
    }
}

/// By workload and kind.
type Stalls = BTreeMap<(String, &'static str), ReclaimCounters>;

/// A histogram that is fed with counted stalls; Prometheus' own takes one observation at a time.
#[derive(Debug, Clone)]
struct StallHistogram {
    desc: Desc,
    stalls: Arc<Mutex<Stalls>>,
}

impl StallHistogram {
    fn new() -> prometheus::Result<Self> {
        let desc = Desc::new(
            format!("{NAMESPACE}_reclaim_stall_seconds"),
            "Seconds that tasks of a workload had to reclaim memory themselves, by kind (direct: the node's, memcg: the workload's own limit). A bucket holds what took less than its bound.".to_owned(),
            vec!["workload".to_owned(), "kind".to_owned()],
            std::collections::HashMap::new(),
        )?;
        Ok(Self { desc, stalls: Arc::default() })
    }

    fn with_stalls<T>(&self, act: impl FnOnce(&mut Stalls) -> T) -> T {
        act(&mut lock(&self.stalls))
    }

    fn add(&self, workload: &str, kind: &'static str, rise: &ReclaimCounters) {
        self.with_stalls(|stalls| {
            let sum = stalls.entry((workload.to_owned(), kind)).or_insert(ReclaimCounters::ZERO);
            sum.stalls = sum.stalls.saturating_add(rise.stalls);
            sum.stalled_ns = sum.stalled_ns.saturating_add(rise.stalled_ns);
            for (sum, rise) in sum.histogram.iter_mut().zip(rise.histogram) {
                *sum = sum.saturating_add(rise);
            }
        });
    }

    fn remove(&self, workload: &str, kind: &'static str) {
        self.with_stalls(|stalls| stalls.remove(&(workload.to_owned(), kind)));
    }
}

impl Collector for StallHistogram {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let metrics: Vec<Metric> = self.with_stalls(|stalls| {
            stalls.iter().map(|((workload, kind), stalls)| metric(workload, kind, stalls)).collect()
        });
        if metrics.is_empty() {
            return Vec::new();
        }
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(metrics);
        vec![family]
    }
}

fn metric(workload: &str, kind: &str, stalls: &ReclaimCounters) -> Metric {
    let label = |name: &str, value: &str| {
        let mut label = LabelPair::default();
        label.set_name(name.to_owned());
        label.set_value(value.to_owned());
        label
    };
    let bucket = |&edge: &usize| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(Duration::from_nanos(1024 << edge).as_secs_f64());
        bucket.set_cumulative_count(stalls.histogram.iter().take(edge + 1).sum());
        bucket
    };
    let mut histogram = Histogram::default();
    // Sum the buckets instead of using the separate counter. The kernel updates both during the read, and the sum must match the buckets.
    histogram.set_sample_count(stalls.histogram.iter().sum());
    histogram.set_sample_sum(Duration::from_nanos(stalls.stalled_ns).as_secs_f64());
    histogram.set_bucket(EDGES.iter().map(bucket).collect());
    let mut metric = Metric::from_label(vec![label("kind", kind), label("workload", workload)]);
    metric.set_histogram(histogram);
    metric
}

#[cfg(test)]
#[path = "reclaim_metrics_tests.rs"]
mod tests;
