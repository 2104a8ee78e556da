//! Metrics of the container runtime and of garbage collection.

use prometheus::{IntCounter, IntCounterVec, IntGaugeVec};

use super::register::{metrics, replace, set_known};
use crate::runtime::{CollectEnd, Collected, ContainerState, State, View};
use crate::units::signed;

const KINDS: [&str; 3] = ["container", "sandbox", "image"];

metrics! {
    /// The metrics of the container runtime. An unknown value is absent, not zero.
    pub struct RuntimeMetrics {
        /// 1 while the container runtime answers, 0 while it does not; absent where there is none.
        up: IntGaugeVec = "container_runtime_up"{},
        /// Containers that the runtime has, by what they do.
        containers: IntGaugeVec = "container_runtime_containers"{state},
        /// Images that the runtime has, by whether a container, dead or alive, uses them.
        images: IntGaugeVec = "container_runtime_images"{used},
        /// Collections of what no container needs, by how they ended (enough, exhausted: nothing was left, listed: observe mode,
        /// interrupted: the runtime was gone).
        collections: IntCounterVec = "garbage_collections_total"{outcome: ["enough", "exhausted", "listed", "interrupted"]},
        /// Dead containers, dead sandboxes and unused images that were removed.
        collected: IntCounterVec = "garbage_collected_total"{kind: KINDS},
        /// Times that the runtime would not remove something.
        refused: IntCounter = "garbage_refused_total",
        /// Bytes that what was removed took, as the runtime counts: layers that images share are counted for each.
        bytes: IntCounter = "garbage_collected_bytes_total",
    }
}

impl RuntimeMetrics {
    pub fn observe(&self, view: &View) {
        let up = match view.state {
            State::Up { .. } => Some(1),
            State::Down { .. } => Some(0),
            State::Looking | State::Off | State::Absent => None,
        };
        set_known(&self.up, up);
        let snapshot = view.snapshot.as_ref();
        let containers = |state: ContainerState| {
            let those = snapshot?.containers.iter().filter(|container| container.state == state);
            Some(([state.as_str()], signed(those.count())))
        };
        replace(&self.containers, ContainerState::ALL.into_iter().filter_map(containers));
        let images = |(label, is_used)| {
            let those = snapshot?.images.iter().filter(|image| image.is_used == is_used);
            Some(([label], signed(those.count())))
        };
        replace(&self.images, [("true", true), ("false", false)].into_iter().filter_map(images));
    }

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
    use crate::report::register::Registry;
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
