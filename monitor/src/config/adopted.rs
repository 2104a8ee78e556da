//! A new configuration for an agent at work: what of it can be had without a restart.

use super::disk_usage_options::DiskUsageOptions;
use super::kubernetes_options::KubernetesOptions;
use super::policy::{MonitorConfig, Policy, Sampling};

/// What becomes of a new configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Adopted {
    /// What is in force from now on: the new one, and the old one where that needs a restart.
    pub config: MonitorConfig,
    /// Fields that are not what they were.
    pub changed: Vec<&'static str>,
    /// Fields that stay what they were until the agent is started anew.
    pub needs_restart: Vec<&'static str>,
}

impl Adopted {
    /// Puts a new configuration in the place of the one that runs.
    #[must_use]
    pub fn by(running: &MonitorConfig, wanted: MonitorConfig) -> Self {
        let mut fields = Fields::default();
        // Whoever adds a field has to decide here.
        let MonitorConfig {
            mode,
            policy,
            sampling,
            evictions,
            pressure_conditions,
            protected,
            kernel,
            pods,
            disk_usage,
            incidents,
            filesystems,
            runtime,
            kubernetes,
            listen,
            serving,
            lock_file,
            cgroup_root,
            proc_root,
        } = wanted;
        let config = MonitorConfig {
            mode: fields.live("mode", &running.mode, mode),
            policy: fields.policy(&running.policy, policy),
            sampling: fields.sampling(running.sampling, sampling),
            evictions: fields.live("evictions", &running.evictions, evictions),
            pressure_conditions: fields.live("pressureConditions", &running.pressure_conditions, pressure_conditions),
            protected: fields.live("protected", &running.protected, protected),
            kernel: fields.fixed("kernel", &running.kernel, kernel),
            pods: fields.fixed("pods", &running.pods, pods),
            disk_usage: fields.disk_usage(running.disk_usage, disk_usage),
            incidents: fields.fixed("incidents", &running.incidents, incidents),
            filesystems: fields.fixed("filesystems", &running.filesystems, filesystems),
            runtime: fields.fixed("runtime", &running.runtime, runtime),
            kubernetes: fields.kubernetes(&running.kubernetes, kubernetes),
            listen: fields.fixed("metrics.listen", &running.listen, listen),
            // The files that these name are read again by themselves.
            serving: fields.fixed("metrics.tls, metrics.bearerToken", &running.serving, serving),
            lock_file: fields.fixed("lockFile", &running.lock_file, lock_file),
            cgroup_root: fields.fixed("cgroupRoot", &running.cgroup_root, cgroup_root),
            proc_root: fields.fixed("procRoot", &running.proc_root, proc_root),
        };
        let Fields { changed, needs_restart } = fields;
        Self { config, changed, needs_restart }
    }
}

#[derive(Debug, Default)]
struct Fields {
    changed: Vec<&'static str>,
    needs_restart: Vec<&'static str>,
}

impl Fields {
    /// A field that the loop looks at whenever it needs it, or that is handed on at once.
    fn live<T: PartialEq>(&mut self, name: &'static str, running: &T, wanted: T) -> T {
        if *running != wanted {
            self.changed.push(name);
        }
        wanted
    }

    /// A field that something was started with.
    fn fixed<T: PartialEq + Clone>(&mut self, name: &'static str, running: &T, wanted: T) -> T {
        if *running == wanted {
            return wanted;
        }
        self.needs_restart.push(name);
        running.clone()
    }

    fn policy(&mut self, running: &Policy, wanted: Policy) -> Policy {
        let Policy {
            semantics,
            quirks,
            ranking,
            oom_scores,
            thresholds,
            hard_count,
            pods_enforced,
            max_pod_grace_period,
            pressure_transition_period,
            local_storage_isolation,
            reservations,
        } = wanted;
        Policy {
            semantics: self.live("semantics", &running.semantics, semantics),
            quirks: self.live("quirks", &running.quirks, quirks),
            ranking: self.live("ranking", &running.ranking, ranking),
            oom_scores: self.live("oomScoreAdj", &running.oom_scores, oom_scores),
            thresholds: self.live("thresholds", &running.thresholds, thresholds),
            hard_count,
            pods_enforced: self.live("enforceNodeAllocatable", &running.pods_enforced, pods_enforced),
            max_pod_grace_period: self.live(
                "evictionMaxPodGracePeriod",
                &running.max_pod_grace_period,
                max_pod_grace_period,
            ),
            pressure_transition_period: self.live(
                "evictionPressureTransitionPeriod",
                &running.pressure_transition_period,
                pressure_transition_period,
            ),
            local_storage_isolation: self.live(
                "localStorageCapacityIsolation",
                &running.local_storage_isolation,
                local_storage_isolation,
            ),
            reservations: self.live("systemReserved, kubeReserved", &running.reservations, reservations),
        }
    }

    fn sampling(&mut self, running: Sampling, wanted: Sampling) -> Sampling {
        let Sampling { floor, ceiling, fastest_rate } = wanted;
        Sampling {
            floor: self.live("sampling.floor", &running.floor, floor),
            ceiling: self.live("sampling.ceiling", &running.ceiling, ceiling),
            fastest_rate: match fastest_rate {
                // It is measured before there is anything to protect from the measurement.
                None => self.fixed("sampling.fastestRate", &running.fastest_rate, None),
                rate => self.live("sampling.fastestRate", &running.fastest_rate, rate),
            },
        }
    }

    fn kubernetes(&mut self, running: &KubernetesOptions, wanted: KubernetesOptions) -> KubernetesOptions {
        let KubernetesOptions {
            api,
            kubeconfig,
            node_name,
            evictions,
            protect,
            conditions,
            heartbeat,
            taints,
            events,
            defer_soft_in_maintenance,
        } = wanted;
        KubernetesOptions {
            api: self.fixed("kubernetes.api", &running.api, api),
            kubeconfig: self.fixed("kubernetes.kubeconfig", &running.kubeconfig, kubeconfig),
            node_name: self.fixed("kubernetes.nodeName", &running.node_name, node_name),
            evictions: self.live("kubernetes.evictions", &running.evictions, evictions),
            protect: self.live("kubernetes.protect", &running.protect, protect),
            conditions: self.live("kubernetes.conditions", &running.conditions, conditions),
            heartbeat: self.live("kubernetes.heartbeat", &running.heartbeat, heartbeat),
            taints: self.live("kubernetes.taints", &running.taints, taints),
            events: self.live("kubernetes.events", &running.events, events),
            defer_soft_in_maintenance: self.live(
                "kubernetes.maintenance",
                &running.defer_soft_in_maintenance,
                defer_soft_in_maintenance,
            ),
        }
    }

    fn disk_usage(&mut self, running: DiskUsageOptions, wanted: DiskUsageOptions) -> DiskUsageOptions {
        let DiskUsageOptions { cpu_share, pressure_cpu_share, project_quotas } = wanted;
        DiskUsageOptions {
            cpu_share: self.fixed("diskUsage.cpuShare", &running.cpu_share, cpu_share),
            pressure_cpu_share: self.fixed(
                "diskUsage.pressureCpuShare",
                &running.pressure_cpu_share,
                pressure_cpu_share,
            ),
            project_quotas: self.live("diskUsage.projectQuotas", &running.project_quotas, project_quotas),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mode;
    use crate::units::Bytes;

    fn parse(fields: &str) -> MonitorConfig {
        let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
        MonitorConfig::parse("m.yaml", &format!("{head}{fields}")).unwrap().config
    }

    #[test]
    fn the_same_changes_nothing() {
        let running = parse("");
        let Adopted { config, changed, needs_restart } = Adopted::by(&running, running.clone());
        assert_eq!((config, changed, needs_restart), (running, Vec::new(), Vec::new()));
    }

    #[test]
    fn what_needs_a_restart_is_named_and_stays_and_the_rest_is_had() {
        let running = parse("sampling: {fastestRate: 1Gi}\n");
        let wanted = "mode: enforce
ranking: kubernetes
evictionHard: {memory.available: 1Gi}
evictions: {maxPerMinute: 1}
sampling: {ceiling: 5s}
diskUsage: {cpuShare: 1%, projectQuotas: off}
protected: [a.service]
kernel: {ringBuffer: 64Ki}
metrics: {listen: \"127.0.0.1:1\"}
lockFile: /run/other.lock
";
        let Adopted { config, changed, needs_restart } = Adopted::by(&running, parse(wanted));
        let expected_changed =
            ["mode", "ranking", "thresholds", "sampling.ceiling", "evictions", "protected", "diskUsage.projectQuotas"];
        assert_eq!(changed, expected_changed);
        let expected = ["sampling.fastestRate", "kernel", "diskUsage.cpuShare", "metrics.listen", "lockFile"];
        assert_eq!(needs_restart, expected);
        assert_eq!((config.mode, config.evictions.max_per_minute), (Mode::Enforce, 1));
        assert_eq!(config.policy.thresholds, parse("evictionHard: {memory.available: 1Gi}\n").policy.thresholds);
        assert_eq!(config.sampling.fastest_rate, Some(Bytes(1 << 30)));
        assert_eq!((config.listen, &config.lock_file), (running.listen, &running.lock_file));
        // What is in force now is what the next one is compared with.
        let again = Adopted::by(&config, parse(wanted));
        assert_eq!((again.changed, again.needs_restart), (Vec::new(), expected.to_vec()));
    }
}
