//! A replacement is scheduled within 50 to 800 ms after a pod has ended at the API server. The node's taint keeps it away if it is there
//! before: so a hard eviction waits a moment for the taint. The kill waits for nothing.

use std::time::Duration;

use tokio::sync::watch;

use crate::config::KubernetesOptions;
use crate::config::kubernetes_options::Authority;

use super::intent::Intent;

/// The longest wait. The status must follow the kill within half a second, or the kubelet restarts a container.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub(in crate::cluster) struct TaintFirst {
    /// The conditions whose taint is on the node.
    pub(in crate::cluster) taints: watch::Receiver<Vec<String>>,
    pub(in crate::cluster) options: watch::Receiver<KubernetesOptions>,
}

impl TaintFirst {
    /// Waits until the node has the taint of the eviction's cause, or for the longest wait.
    pub(super) async fn wait(mut self, intent: &Intent) {
        let is_expected = |condition: &&String| intent.is_hard() && self.is_expected(condition);
        let Some(condition) = intent.condition.as_ref().filter(is_expected) else { return };
        let is_there = self.taints.wait_for(|kinds| kinds.contains(condition));
        let _late = tokio::time::timeout(LONGEST_WAIT, is_there).await;
    }

    fn is_expected(&self, condition: &str) -> bool {
        let options = self.options.borrow();
        options.taints.effects.of(condition).is_some() && options.conditions != Authority::Off
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::cluster::evictions::intent::tests::intent;

    #[tokio::test]
    async fn a_condition_without_a_taint_is_not_waited_for() {
        let mut options = KubernetesOptions::default();
        options.taints.effects = crate::config::kubernetes_options::TaintEffects::all(None);
        let (_taints, of_taints) = watch::channel(Vec::new());
        let (_options, of_options) = watch::channel(options);
        let intent = Intent { condition: Some("DiskPressure".to_owned()), ..intent("u") };
        let begun = Instant::now();
        TaintFirst { taints: of_taints, options: of_options }.wait(&intent).await;
        assert!(begun.elapsed() < LONGEST_WAIT);
    }

    #[tokio::test]
    async fn a_hard_eviction_waits_a_moment_for_its_taint() {
        let of_memory = || Intent { condition: Some("MemoryPressure".to_owned()), ..intent("u") };
        for (name, intent, conditions, taints, waits) in [
            ("no taint", of_memory(), Authority::Own, &[][..], true),
            ("another taint", of_memory(), Authority::Own, &["DiskPressure"], true),
            ("its taint", of_memory(), Authority::Own, &["MemoryPressure"], false),
            ("soft", Intent { grace_seconds: 30, ..of_memory() }, Authority::Own, &[], false),
            ("a limit of its own", intent("u"), Authority::Own, &[], false),
            ("no conditions", of_memory(), Authority::Off, &[], false),
        ] {
            let (_taints, of_taints) = watch::channel(taints.iter().map(|kind| (*kind).to_owned()).collect());
            let (_options, of_options) =
                watch::channel(KubernetesOptions { conditions, ..KubernetesOptions::default() });
            let begun = Instant::now();
            TaintFirst { taints: of_taints, options: of_options }.wait(&intent).await;
            assert_eq!(begun.elapsed() >= LONGEST_WAIT, waits, "{name}");
        }
    }
}
