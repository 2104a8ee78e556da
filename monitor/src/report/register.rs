//! How metrics are made: under this agent's prefix, and registered at once.

use prometheus::core::{Atomic, Collector, GenericCounter, GenericCounterVec, GenericGauge, GenericGaugeVec};
use prometheus::{Opts, Registry, Result};

/// What every metric's name begins with.
pub(super) const NAMESPACE: &str = "node_pressure_monitor";

/// Makes metrics, and registers them, which fails when a name is taken already. Whether one counts in integers or in floats follows from the
/// field that it is for.
pub(super) trait Register {
    /// A gauge without labels: for what is always known.
    fn gauge<P: Atomic + 'static>(&self, name: &str, help: &str) -> Result<GenericGauge<P>>;

    /// Gauges with these labels. Without labels, one that can be absent.
    fn gauges<P: Atomic + 'static>(&self, name: &str, help: &str, labels: &[&str]) -> Result<GenericGaugeVec<P>>;

    /// A counter without labels.
    fn counter<P: Atomic + 'static>(&self, name: &str, help: &str) -> Result<GenericCounter<P>>;

    /// Counters with these labels.
    fn counters<P: Atomic + 'static>(&self, name: &str, help: &str, labels: &[&str]) -> Result<GenericCounterVec<P>>;

    /// Counters for each of these values of a label, all there from the start: one that appears with its first increment hides that increment
    /// from `increase()`.
    fn counters_of<P: Atomic + 'static>(
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
}

impl Register for Registry {
    fn gauge<P: Atomic + 'static>(&self, name: &str, help: &str) -> Result<GenericGauge<P>> {
        registered(self, GenericGauge::with_opts(options(name, help))?)
    }

    fn gauges<P: Atomic + 'static>(&self, name: &str, help: &str, labels: &[&str]) -> Result<GenericGaugeVec<P>> {
        registered(self, GenericGaugeVec::<P>::new(options(name, help), labels)?)
    }

    fn counter<P: Atomic + 'static>(&self, name: &str, help: &str) -> Result<GenericCounter<P>> {
        registered(self, GenericCounter::with_opts(options(name, help))?)
    }

    fn counters<P: Atomic + 'static>(&self, name: &str, help: &str, labels: &[&str]) -> Result<GenericCounterVec<P>> {
        registered(self, GenericCounterVec::<P>::new(options(name, help), labels)?)
    }
}

fn registered<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> Result<M> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn options(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace(NAMESPACE)
}

/// Lets a counter follow a total that somebody else keeps; one that began anew (a cgroup made again) is waited for.
pub(super) fn follow<P: Atomic>(counter: &GenericCounter<P>, total: P::T) {
    let before = counter.get();
    if total > before {
        let mut rise = total;
        rise -= before;
        counter.inc_by(rise);
    }
}
