//! Metrics and summary rows about the Kubernetes control plane, with the age of the data.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;
use std::time::Duration;

use prometheus::{GaugeVec, IntCounter, IntGaugeVec};

use super::register::{Registry, follow, metrics, replace, set_known};
use super::summary_figures::Page;
use crate::cluster::WatchCounts;
use crate::units::{format_go_duration, lock, signed};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterReport {
    pub node: String,
    /// The error, while the API server does not answer.
    pub down: Option<String>,
    pub pods: usize,
    /// Age of the pod data; `None` until the first listing.
    pub pods_age: Option<Duration>,
    pub counts: WatchCounts,
    /// Age of the node object; `None` until it is first read.
    pub node_age: Option<Duration>,
    /// The reason, while the node is in maintenance.
    pub maintenance: Option<String>,
    /// Whether soft evictions wait for the end of maintenance.
    pub defers: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PodInfo {
    pub workload: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The pod's node; empty without an API server.
    pub node: String,
    pub qos_class: &'static str,
    /// Kind and name of the pod's controller.
    pub owner: Option<(String, String)>,
}

/// Maximum normal age of the data: the API server sends a bookmark about once a minute.
const USUAL: Duration = Duration::from_secs(150);

/// Adds the rows about the control plane.
pub(super) fn rows(page: &mut Page, report: &ClusterReport) {
    let if_old = |age: Option<Duration>| {
        let old = age.filter(|age| report.down.is_some() || *age > USUAL)?;
        Some(format!("as of {} ago", format_go_duration(Duration::from_secs(old.as_secs()))))
    };
    let known = match (report.pods_age, if_old(report.pods_age)) {
        (None, _) => "no pod known".to_owned(),
        (Some(_), Some(as_of)) => format!("{} pods known, {as_of}", report.pods),
        (Some(_), None) => format!("{} pods known", report.pods),
    };
    page.row("cluster", &format!("node {}, {known}", report.node));
    if let Some(as_of) = if_old(report.node_age) {
        page.row("cluster", &format!("the node's object is known {as_of}"));
    }
    if let Some(reason) = &report.down {
        page.wrapped("cluster", &format!("the API server does not answer: {reason}"), 0, 2);
    }
    if let Some(reason) = &report.maintenance {
        let wait = if report.defers { "; soft evictions wait" } else { "" };
        page.wrapped("cluster", &format!("in maintenance: {reason}{wait}"), 0, 2);
    }
}

metrics! {
    /// Gauges about the API server are absent without one.
    struct Exported {
        /// 1 while the API server answers, 0 while it does not; absent where there is none.
        up: IntGaugeVec = "api_server_up"{},
        /// Pods of this node that are known from the API server; absent where there is none.
        pods: IntGaugeVec = "pods_known"{},
        /// How long ago what is known of the pods was true; absent while no pod was ever known.
        age: GaugeVec = "pods_age_seconds"{},
        /// How long ago what is known of the node's own object (maintenance) was true; absent while it was never read.
        node_age: GaugeVec = "node_object_age_seconds"{},
        /// Always 1; the labels say which pod the workload is, as kube-state-metrics names it, and whose.
        info: IntGaugeVec = "workload_info"{
            workload, namespace, pod, uid, node, qos_class, owner_kind, owner_name
        },
        /// 1 while the node is cordoned, drained or its machine configuration updated, 0 while it is not; absent where there is no API
        /// server.
        maintenance: IntGaugeVec = "node_in_maintenance"{},
        /// Times that all pods of this node were listed at the API server.
        lists: IntCounter = "pods_listed_total",
        /// Changes of pods that the API server reported.
        changes: IntCounter = "pod_changes_total",
    }
}

#[derive(Debug)]
pub(super) struct ClusterMetrics {
    metrics: Exported,
    /// Hash of the exported pods. Unchanged pods are not exported again: hundreds of pods have eight labels each.
    exported: Mutex<Option<u64>>,
    hasher: RandomState,
}

impl ClusterMetrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self { metrics: Exported::new(registry)?, exported: Mutex::default(), hasher: RandomState::new() })
    }

    /// Updates the metrics. `None` means that there is no API server.
    pub(super) fn observe(&self, report: Option<&ClusterReport>) {
        let metrics = &self.metrics;
        set_known(&metrics.up, report.map(|report| report.down.is_none().into()));
        set_known(&metrics.pods, report.map(|report| signed(report.pods)));
        set_known(&metrics.maintenance, report.map(|report| report.maintenance.is_some().into()));
        let Some(report) = report else { return };
        for (gauge, age) in [(&metrics.age, report.pods_age), (&metrics.node_age, report.node_age)] {
            if let Some(age) = age {
                set_known(gauge, Some(age.as_secs_f64()));
            }
        }
        follow(&metrics.lists, report.counts.lists);
        follow(&metrics.changes, report.counts.changes);
    }

    pub(super) fn pods(&self, pods: &[PodInfo]) {
        let these = Some(self.hasher.hash_one(pods));
        let before = std::mem::replace(&mut *lock(&self.exported), these);
        if before == these {
            return;
        }
        let series = pods.iter().map(|pod| {
            let PodInfo { workload, namespace, name, uid, node, qos_class, owner } = pod;
            let (owner_kind, owner_name) = owner.as_ref().map_or(("", ""), |(kind, name)| (kind, name));
            ([workload.as_str(), namespace, name, uid, node, qos_class, owner_kind, owner_name], 1)
        });
        replace(&self.metrics.info, series);
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    fn report(down: Option<&str>, age: Option<u64>) -> ClusterReport {
        let pods_age = age.map(Duration::from_secs);
        ClusterReport {
            node: "n-1".to_owned(),
            down: down.map(str::to_owned),
            pods: 3,
            pods_age,
            ..ClusterReport::default()
        }
    }

    #[test]
    fn the_age_is_shown_when_data_is_old() {
        let text = |report: &ClusterReport| {
            let mut page = Page::default();
            rows(&mut page, report);
            page.finish()
        };
        assert_eq!(text(&report(None, Some(59))), "cluster     node n-1, 3 pods known\n");
        assert!(text(&report(None, Some(200))).contains("as of 3m20s ago"));
        let down = text(&report(Some("connection refused"), Some(5)));
        assert!(down.contains("as of 5s ago") && down.contains("does not answer: connection refused"), "{down}");
        let maintenance =
            ClusterReport { maintenance: Some("cordoned".to_owned()), defers: true, ..report(None, None) };
        assert!(text(&maintenance).contains("in maintenance: cordoned; soft evictions wait"));
        assert!(text(&maintenance).contains("no pod known"));
        let node_age = |seconds| Some(Duration::from_secs(seconds));
        let fresh = ClusterReport { node_age: node_age(59), ..report(None, Some(59)) };
        assert_eq!(text(&fresh), "cluster     node n-1, 3 pods known\n");
        // Pods and node have separate watches: one may break while the other works.
        let old = ClusterReport { node_age: node_age(200), ..report(None, Some(59)) };
        let expected = "cluster     node n-1, 3 pods known\n            the node's object is known as of 3m20s ago\n";
        assert_eq!(text(&old), expected);
    }

    #[test]
    fn without_an_api_server_its_metrics_are_absent() {
        let registry = Registry::new();
        let metrics = ClusterMetrics::new(&registry).unwrap();
        let text = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        metrics.observe(None);
        assert!(!text().contains("api_server_up ") && !text().contains("pods_age_seconds"), "{}", text());
        let info = PodInfo {
            workload: "a/b".to_owned(),
            name: "web".to_owned(),
            qos_class: "Burstable",
            ..PodInfo::default()
        };
        metrics.pods(std::slice::from_ref(&info));
        assert!(text().contains("pod=\"web\"") && text().contains("workload=\"a/b\""), "{}", text());
        metrics.pods(std::slice::from_ref(&info));
        assert!(text().contains("pod=\"web\""), "it is still there");
        metrics.pods(&[]);
        assert!(!text().contains("pod=\"web\""), "it is gone");
        let counts = WatchCounts { lists: 2, changes: 7 };
        assert!(!text().contains("node_object_age_seconds"), "{}", text());
        let node_age = Some(Duration::from_secs(8));
        metrics.observe(Some(&ClusterReport { counts, node_age, ..report(Some("x"), Some(9)) }));
        for line in [
            "api_server_up 0\n",
            "pods_known 3\n",
            "pods_age_seconds 9\n",
            "node_object_age_seconds 8\n",
            "pods_listed_total 2\n",
            "pod_changes_total 7\n",
            "node_in_maintenance 0\n",
        ] {
            assert!(text().contains(line), "{line}: {}", text());
        }
    }
}
