//! Creates and registers metrics under the agent's prefix, and keeps a catalogue of them for `config/METRICS.md`.

use std::sync::{Mutex, PoisonError};

use prometheus::core::{Atomic, Collector, GenericCounter, GenericCounterVec, GenericGauge, GenericGaugeVec};
use prometheus::proto::MetricFamily;
use prometheus::{Opts, Result};

/// Prefix of every metric name.
pub(super) const NAMESPACE: &str = "node_pressure_monitor";

/// Documentation of a metric.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    pub name: String,
    /// The Prometheus type: `gauge`, `counter` or `histogram`.
    pub kind: &'static str,
    pub help: String,
    pub labels: Vec<String>,
}

/// A Prometheus registry that can list its metrics. Each method fails if the name is already registered. The type of the receiving field
/// selects integers or floats.
#[derive(Debug, Default)]
pub(super) struct Registry {
    registry: prometheus::Registry,
    families: Mutex<Vec<Family>>,
}

impl Registry {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// Returns every registered metric, with a value or without, sorted by name.
    pub(super) fn families(&self) -> Vec<Family> {
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner).clone();
        families.sort();
        families
    }

    /// Registers a gauge that always has a value.
    pub(super) fn gauge<P: Atomic + 'static>(&self, name: &str, help: &str) -> Result<GenericGauge<P>> {
        self.register("gauge", GenericGauge::with_opts(options(name, help))?)
    }

    /// Registers gauges with these labels. An empty list yields one gauge that can be absent.
    pub(super) fn gauges<P: Atomic + 'static>(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<GenericGaugeVec<P>> {
        self.register("gauge", GenericGaugeVec::<P>::new(options(name, help), labels)?)
    }

    pub(super) fn counter<P: Atomic + 'static>(&self, name: &str, help: &str) -> Result<GenericCounter<P>> {
        self.register("counter", GenericCounter::with_opts(options(name, help))?)
    }

    pub(super) fn counters<P: Atomic + 'static>(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<GenericCounterVec<P>> {
        self.register("counter", GenericCounterVec::<P>::new(options(name, help), labels)?)
    }

    /// Registers one counter per value of a label. All start at zero: `increase()` misses the first increment of a counter that
    /// appears with it.
    pub(super) fn counters_of<P: Atomic + 'static>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = &'static str>,
    ) -> Result<GenericCounterVec<P>> {
        let counters = self.counters(name, help, &[label])?;
        for value in values {
            counters.with_label_values(&[value]);
        }
        Ok(counters)
    }

    pub(super) fn register<M: Collector + Clone + 'static>(&self, kind: &'static str, metric: M) -> Result<M> {
        self.registry.register(Box::new(metric.clone()))?;
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        families.extend(metric.desc().into_iter().map(|desc| Family {
            name: desc.fq_name.clone(),
            kind,
            help: desc.help.clone(),
            labels: desc.variable_labels.clone(),
        }));
        drop(families);
        Ok(metric)
    }
}

fn options(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace(NAMESPACE)
}

/// Raises a counter to a total kept elsewhere. A lower total means that its source restarted (e.g. a recreated cgroup): the counter then
/// stays until the total exceeds it.
pub(super) fn follow<P: Atomic>(counter: &GenericCounter<P>, total: P::T) {
    let before = counter.get();
    if total > before {
        let mut rise = total;
        rise -= before;
        counter.inc_by(rise);
    }
}

/// Stores a cumulative value and returns its increment. A decrease means that the source restarted at zero.
pub(super) fn increase(last: &mut u64, current: u64) -> u64 {
    let rise = current.checked_sub(*last).unwrap_or(current);
    *last = current;
    rise
}
