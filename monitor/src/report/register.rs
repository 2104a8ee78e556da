//! Creates and registers metrics under the agent's prefix, and keeps a catalogue of them for `config/METRICS.md`.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus::core::{Atomic, Collector, Desc, GenericCounter, GenericCounterVec, GenericGauge, GenericGaugeVec};
use prometheus::proto::MetricFamily;
use prometheus::{Error, HistogramOpts, HistogramVec, Opts, Result};

use super::cardinality;
use crate::units::lock;

pub(super) const NAMESPACE: &str = "node_pressure_monitor";

/// Upper bounds of the buckets of latencies, in seconds.
pub(super) const LATENCY_BUCKETS: [f64; 12] = [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    pub name: String,
    /// The Prometheus type: `gauge`, `counter` or `histogram`.
    pub kind: &'static str,
    pub help: String,
    pub labels: Vec<String>,
    /// The most combinations of label values.
    most_combinations: usize,
}

impl Family {
    /// Returns the most series that Prometheus keeps of the family.
    #[must_use]
    pub fn most_series(&self) -> usize {
        // A histogram has a series for each bucket and for `+Inf`, its sum and its count.
        let of_each = if self.kind == "histogram" { LATENCY_BUCKETS.len() + 3 } else { 1 };
        self.most_combinations.saturating_mul(of_each)
    }
}

/// A Prometheus registry that can list its metrics, and that bounds the number of their series.
#[derive(Debug, Default)]
pub(super) struct Registry {
    registry: prometheus::Registry,
    families: Mutex<Vec<Family>>,
    left_out: AtomicUsize,
}

impl Registry {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Returns the values. Beyond the bound of a family, the last combinations of label values in their order are left out.
    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        let mut gathered = self.registry.gather();
        let registered = lock(&self.families);
        let most: HashMap<&str, usize> = registered.iter().map(|it| (&*it.name, it.most_combinations)).collect();
        let mut left_out = 0;
        for family in &mut gathered {
            let most = most.get(family.name()).copied().unwrap_or(usize::MAX);
            left_out += family.get_metric().len().saturating_sub(most);
            family.mut_metric().truncate(most);
        }
        self.left_out.store(left_out, Ordering::Relaxed);
        gathered
    }

    /// Returns how many combinations of label values the last [`Registry::gather`] left out.
    pub(super) fn left_out(&self) -> usize {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Returns every registered metric, with a value or without, sorted by name.
    pub(super) fn families(&self) -> Vec<Family> {
        let mut families = lock(&self.families).clone();
        families.sort();
        families
    }

    pub(super) fn create<M: Metric>(&self, name: &str, help: &str, labels: &[&str]) -> Result<M> {
        let options = Opts::new(name, help.trim_start());
        // Every client of Prometheus has the same names for its process.
        let options = if name.starts_with("process_") { options } else { options.namespace(NAMESPACE) };
        self.register(M::KIND, M::with_labels(options, labels)?)
    }

    pub(super) fn register<M: Collector + Clone + 'static>(&self, kind: &'static str, metric: M) -> Result<M> {
        let family = |desc: &Desc| {
            let labels = desc.variable_labels.clone();
            let most_combinations = cardinality::most_combinations(&labels)
                .map_err(|label| Error::Msg(format!("{}: the label {label} has no bound", desc.fq_name)))?;
            Ok(Family { name: desc.fq_name.clone(), kind, help: desc.help.clone(), labels, most_combinations })
        };
        let families = metric.desc().into_iter().map(family).collect::<Result<Vec<_>>>()?;
        self.registry.register(Box::new(metric.clone()))?;
        lock(&self.families).extend(families);
        Ok(metric)
    }
}

/// A type of metric. Without labels, a vector holds one metric that can be absent.
pub(super) trait Metric: Collector + Clone + Sized + 'static {
    const KIND: &'static str;

    fn with_labels(options: Opts, labels: &[&str]) -> Result<Self>;
}

/// Implements [`Metric`] for a type without labels, and for its vector.
macro_rules! metric_types {
    ($kind:literal: $single:ident, $vector:ident) => {
        impl<P: Atomic + 'static> Metric for $single<P> {
            const KIND: &'static str = $kind;

            fn with_labels(options: Opts, _: &[&str]) -> Result<Self> {
                Self::with_opts(options)
            }
        }

        impl<P: Atomic + 'static> Metric for $vector<P> {
            const KIND: &'static str = $kind;

            fn with_labels(options: Opts, labels: &[&str]) -> Result<Self> {
                Self::new(options, labels)
            }
        }
    };
}

metric_types!("gauge": GenericGauge, GenericGaugeVec);
metric_types!("counter": GenericCounter, GenericCounterVec);

impl Metric for HistogramVec {
    const KIND: &'static str = "histogram";

    fn with_labels(options: Opts, labels: &[&str]) -> Result<Self> {
        Self::new(HistogramOpts::from(options).buckets(LATENCY_BUCKETS.to_vec()), labels)
    }
}

/// Declares a group of metrics, and the function that registers them: `field: Type = "name"{label, …}`. The doc comment of a field is
/// the metric's help text. `{label: values}` starts a counter for each value at zero: `increase()` misses the first increment of a
/// counter that appears with it.
macro_rules! metrics {
    ($(#[$of_group:meta])* $visibility:vis struct $group:ident { $(
        $(#[doc = $help:literal])+
        $field:ident: $kind:ident = $name:literal $({ $($label:ident $(: $values:expr)?),* })?,
    )+ }) => {
        $(#[$of_group])*
        #[derive(Debug)]
        $visibility struct $group { $($(#[doc = $help])+ $field: $kind,)+ }

        impl $group {
            /// Registers the metrics. Fails if a name is registered already.
            pub(super) fn new(registry: &$crate::report::register::Registry) -> prometheus::Result<Self> {
                $(
                    let $field: $kind =
                        registry.create($name, concat!($($help),+), &[$($(stringify!($label)),*)?])?;
                    $($($(for value in $values { $field.with_label_values(&[value]); })?)*)?
                )+
                Ok(Self { $($field),+ })
            }
        }
    };
}

pub(super) use metrics;

/// Replaces all series of a gauge: a series that is not given again is removed.
pub(super) fn replace<'l, const LABELS: usize, P: Atomic>(
    gauge: &GenericGaugeVec<P>,
    series: impl IntoIterator<Item = ([&'l str; LABELS], P::T)>,
) {
    gauge.reset();
    for (labels, value) in series {
        gauge.with_label_values(&labels).set(value);
    }
}

/// Sets a gauge without labels. An unknown value is absent, not zero.
pub(super) fn set_known<P: Atomic>(gauge: &GenericGaugeVec<P>, value: Option<P::T>) {
    replace(gauge, value.map(|value| ([], value)));
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

#[cfg(test)]
mod tests {
    use prometheus::IntGaugeVec;

    use super::*;

    #[test]
    fn a_family_has_no_more_series_than_its_bound() {
        let registry = Registry::new();
        let gauge: IntGaugeVec = registry.create("a", "help", &["scope"]).unwrap();
        for scope in ["a", "b", "c", "d", "e"] {
            gauge.with_label_values(&[scope]).set(1);
        }
        let gathered = registry.gather();
        assert_eq!((gathered[0].get_metric().len(), registry.left_out()), (2, 3));
        assert_eq!(registry.families()[0].most_series(), 2);
        gauge.reset();
        registry.gather();
        assert_eq!(registry.left_out(), 0);
    }

    #[test]
    fn a_family_with_an_unbounded_label_is_refused() {
        let refused = Registry::new().create::<IntGaugeVec>("a", "help", &["user"]).map(drop);
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("the label user has no bound"), "{error}");
    }
}
