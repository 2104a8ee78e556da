//! Memory that each workload uses, and what the node's pods request of the scheduler.

use std::collections::HashMap;

use prometheus::{GaugeVec, IntGaugeVec};

use super::register::{metrics, set_known};
use super::series::OTHER;
use super::{NodeReport, PodInfo};
use crate::units::{Amount, Bytes, signed};
use crate::workloads::PodSpecs;

/// Maximum number of workloads with own series. Those with the highest usage have one.
const MOST_SERIES: usize = 1000;

metrics! {
    pub struct UsageMetrics {
        /// Working set of a workload, in bytes: usage minus inactive file memory. Only with `metrics.workloadMemory`; `namespace` and
        /// `pod` are empty where the workload is no known pod.
        memory: GaugeVec = "workload_memory_working_set_bytes"{workload, namespace, pod},
        /// CPU that the pods on the node request, as the scheduler counts it, in cores; absent while no pod is known.
        requested_cpu: GaugeVec = "pods_requested_cpu_cores"{},
        /// Memory that the pods on the node request, as the scheduler counts it, in bytes; absent while no pod is known.
        requested_memory: GaugeVec = "pods_requested_memory_bytes"{},
        /// Local storage that the pods on the node request, as the scheduler counts it, in bytes; absent while no pod is known.
        requested_storage: GaugeVec = "pods_requested_ephemeral_storage_bytes"{},
        /// Pods on the node that have not terminated, which the scheduler counts; absent while no pod is known.
        scheduled: IntGaugeVec = "pods_scheduled"{},
    }
}

/// The sum of the requests of a node's pods, as the scheduler counts them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RequestsReport {
    pub cpu_cores: f64,
    pub memory_bytes: f64,
    pub ephemeral_storage_bytes: f64,
    pub pods: usize,
}

impl RequestsReport {
    /// Adds up the pods that have not terminated; `None` while no pod is known.
    pub fn of(specs: &PodSpecs) -> Option<Self> {
        if specs.pods().is_empty() {
            return None;
        }
        let mut report = Self::default();
        for pod in specs.pods().iter().filter(|pod| pod.is_active()) {
            let of = |resource| pod.scheduled_request(resource).amount();
            // The scheduler counts milli-CPUs, rounded up.
            report.cpu_cores += Amount::from_billionths(of("cpu").billionths().saturating_mul(1000)).as_f64() / 1000.0;
            report.memory_bytes += of("memory").as_f64();
            report.ephemeral_storage_bytes += of("ephemeral-storage").as_f64();
            report.pods += 1;
        }
        Some(report)
    }
}

impl UsageMetrics {
    pub fn observe(&self, report: &NodeReport) {
        self.observe_memory(&report.workload_memory, &report.pods);
        let requests = report.requests;
        set_known(&self.requested_cpu, requests.map(|it| it.cpu_cores));
        set_known(&self.requested_memory, requests.map(|it| it.memory_bytes));
        set_known(&self.requested_storage, requests.map(|it| it.ephemeral_storage_bytes));
        set_known(&self.scheduled, requests.map(|it| signed(it.pods)));
    }

    fn observe_memory(&self, memory: &[(String, Bytes)], pods: &[PodInfo]) {
        self.memory.reset();
        let pods: HashMap<&str, &PodInfo> = pods.iter().map(|pod| (pod.workload.as_str(), pod)).collect();
        let mut largest: Vec<&(String, Bytes)> = memory.iter().collect();
        if largest.len() > MOST_SERIES {
            largest.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        }
        for (index, (workload, bytes)) in largest.into_iter().enumerate() {
            let labels = match pods.get(workload.as_str()) {
                _ if index >= MOST_SERIES => [OTHER, "", ""],
                Some(pod) => [workload.as_str(), &pod.namespace, &pod.name],
                None => [workload.as_str(), "", ""],
            };
            self.memory.with_label_values(&labels).add(bytes.as_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;
    use crate::report::register::Registry;

    fn text(report: &NodeReport) -> String {
        let registry = Registry::new();
        let metrics = UsageMetrics::new(&registry).unwrap();
        // Observe twice: values must not be added up.
        metrics.observe(report);
        metrics.observe(report);
        TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn a_known_pod_has_its_names_and_a_service_has_none() {
        let pod = PodInfo {
            workload: "kubepods.slice/a".to_owned(),
            namespace: "shop".to_owned(),
            name: "web-1".to_owned(),
            ..PodInfo::default()
        };
        let memory = vec![("kubepods.slice/a".to_owned(), Bytes(7)), ("b.service".to_owned(), Bytes(9))];
        let found = text(&NodeReport { workload_memory: memory, pods: vec![pod], ..NodeReport::default() });
        for sample in [
            r#"{namespace="shop",pod="web-1",workload="kubepods.slice/a"} 7"#,
            r#"{namespace="",pod="",workload="b.service"} 9"#,
        ] {
            assert!(found.contains(&format!("workload_memory_working_set_bytes{sample}\n")), "{sample}: {found}");
        }
        assert!(!found.contains("pods_requested"), "{found}");
    }

    #[test]
    fn the_smallest_share_a_series() {
        let memory = (0..MOST_SERIES as u64 + 2).map(|number| (format!("w{number}"), Bytes(number))).collect();
        let found = text(&NodeReport { workload_memory: memory, ..NodeReport::default() });
        assert!(found.contains("{namespace=\"\",pod=\"\",workload=\"(other)\"} 1\n"), "{found}");
        assert!(!found.contains("\"w0\"") && !found.contains("\"w1\"") && found.contains("\"w2\""));
    }

    #[test]
    fn requests_are_summed_over_pods_that_run() {
        let pod = |name: &str, phase: &str| {
            format!(
                r#"{{"metadata": {{"name": "{name}", "uid": "{name}"}}, "status": {{"phase": "{phase}"}}, "spec": {{
                    "containers": [{{"resources": {{"requests": {{"cpu": "250m", "memory": "64Mi"}}}}}},
                                   {{"resources": {{"requests": {{"ephemeral-storage": "1Gi"}}}}}}],
                    "overhead": {{"memory": "1Mi"}}}}}}"#
            )
        };
        let list = [pod("a", "Running"), pod("b", "Pending"), pod("c", "Succeeded")].join(",");
        let specs = PodSpecs::parse(&format!(r#"{{"kind": "PodList", "items": [{list}]}}"#)).unwrap();
        let requests = RequestsReport::of(&specs);
        let found = text(&NodeReport { requests, ..NodeReport::default() });
        for sample in [
            "pods_requested_cpu_cores 0.5",
            "pods_requested_memory_bytes 136314880",
            "pods_requested_ephemeral_storage_bytes 2147483648",
            "pods_scheduled 2",
        ] {
            assert!(found.contains(&format!("\nnode_pressure_monitor_{sample}\n")), "{sample}: {found}");
        }
        assert_eq!(RequestsReport::of(&PodSpecs::default()), None);
    }
}
