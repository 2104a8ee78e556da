//! Metrics of the container runtime and of garbage collection.

use prometheus::{IntCounter, IntCounterVec, IntGaugeVec};

use super::register::Registry;
use crate::runtime::{CollectEnd, Collected, ContainerState, State, View};

const KINDS: [&str; 3] = ["container", "sandbox", "image"];

/// The metrics of the container runtime. An unknown value is absent, not zero.
#[derive(Debug)]
pub struct RuntimeMetrics {
    up: IntGaugeVec,
    containers: IntGaugeVec,
    images: IntGaugeVec,
    collections: IntCounterVec,
    collected: IntCounterVec,
    refused: IntCounter,
    bytes: IntCounter,
}

impl RuntimeMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// Returns an error if a name is already registered.
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            up: registry.gauges(
                "container_runtime_up",
                "1 while the container runtime answers, 0 while it does not; absent where there is none.",
                &[],
            )?,
            containers: registry.gauges(
                "container_runtime_containers",
                "Containers that the runtime has, by what they do.",
                &["state"],
            )?,
            images: registry.gauges(
                "container_runtime_images",
                "Images that the runtime has, by whether a container, dead or alive, uses them.",
                &["used"],
            )?,
            collections: registry.counters_of(
                "garbage_collections_total",
                "Collections of what no container needs, by how they ended (enough, exhausted: nothing was left, listed: observe mode, interrupted: the runtime was gone).",
                "outcome",
                ["enough", "exhausted", "listed", "interrupted"],
            )?,
            collected: registry.counters_of(
                "garbage_collected_total",
                "Dead containers, dead sandboxes and unused images that were removed.",
                "kind",
                KINDS,
            )?,
            refused: registry.counter("garbage_refused_total", "Times that the runtime would not remove something.")?,
            bytes: registry.counter(
                "garbage_collected_bytes_total",
                "Bytes that what was removed took, as the runtime counts: layers that images share are counted for each.",
            )?,
        })
    }

    /// Updates the metrics from the last view.
    pub fn observe(&self, view: &View) {
        match view.state {
            State::Up { .. } => self.up.with_label_values(&[""; 0]).set(1),
            State::Down { .. } => self.up.with_label_values(&[""; 0]).set(0),
            State::Looking | State::Off | State::Absent => self.up.reset(),
        }
        let Some(snapshot) = &view.snapshot else {
            self.containers.reset();
            self.images.reset();
            return;
        };
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for state in ContainerState::ALL {
            let those = snapshot.containers.iter().filter(|container| container.state == state).count();
            self.containers.with_label_values(&[state.as_str()]).set(count(those));
        }
        for (label, is_used) in [("true", true), ("false", false)] {
            let those = snapshot.images.iter().filter(|image| image.is_used == is_used).count();
            self.images.with_label_values(&[label]).set(count(those));
        }
    }

    /// Counts a garbage collection.
    pub fn collected(&self, collected: &Collected) {
        self.collections.with_label_values(&[collected.end.as_str()]).inc();
        self.refused.inc_by(collected.refusals as u64);
        if collected.end == CollectEnd::Listed {
            return;
        }
        let counts = collected.counts;
        for (kind, count) in KINDS.into_iter().zip([counts.containers, counts.sandboxes, counts.images]) {
            self.collected.with_label_values(&[kind]).inc_by(count as u64);
        }
        self.bytes.inc_by(collected.frees.0);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use prometheus::TextEncoder;

    use super::*;
    use crate::runtime::Counts;
    use crate::units::Bytes;
    use crate::units::Monotonic;

    #[test]
    fn a_list_counts_as_a_list_and_a_runtime_that_is_not_there_as_nothing() {
        let registry = Registry::new();
        let metrics = RuntimeMetrics::new(&registry).unwrap();
        let text = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let view = |state| View { state, ..View::default() };
        metrics.observe(&view(State::Absent));
        assert!(!text().contains("container_runtime_up "), "{}", text());
        metrics.observe(&view(State::Up { runtime: "x".to_owned(), socket: PathBuf::new() }));
        assert!(text().contains("container_runtime_up 1\n"));
        metrics.observe(&view(State::Down { reason: String::new(), since: Monotonic(1) }));
        assert!(text().contains("container_runtime_up 0\n"));
        let counts = Counts { containers: 2, sandboxes: 1, images: 3 };
        let listed =
            Collected { end: CollectEnd::Listed, counts, frees: Bytes(500), ..Collected::interrupted(String::new()) };
        metrics.collected(&listed);
        assert!(text().contains("garbage_collected_total{kind=\"image\"} 0\n"));
        metrics.collected(&Collected { end: CollectEnd::Enough, ..listed });
        for line in [
            "garbage_collections_total{outcome=\"listed\"} 1\n",
            "garbage_collections_total{outcome=\"enough\"} 1\n",
            "garbage_collections_total{outcome=\"interrupted\"} 0\n",
            "garbage_collected_total{kind=\"container\"} 2\n",
            "garbage_collected_total{kind=\"image\"} 3\n",
            "garbage_collected_bytes_total 500\n",
        ] {
            assert!(text().contains(line), "{line}");
        }
    }
}
