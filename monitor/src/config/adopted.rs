//! Which fields of a new configuration a running agent adopts, and which need a restart.

use super::disk_usage_options::DiskUsageOptions;
use super::kubernetes_options::KubernetesOptions;
use super::policy::{MonitorConfig, Policy, Sampling};

/// The result of applying a new configuration to a running agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Adopted {
    /// The configuration in force from now on: the new one, with the old values of fields that need a restart.
    pub config: MonitorConfig,
    /// The fields that changed.
    pub changed: Vec<&'static str>,
    /// The fields that keep their old values until a restart.
    pub needs_restart: Vec<&'static str>,
}

impl Adopted {
    /// Applies the configuration `wanted` to an agent that runs by `running`.
    #[must_use]
    pub fn by(running: &MonitorConfig, mut wanted: MonitorConfig) -> Self {
        let mut fields = Fields::default();
        // Without `..`, so that a new field does not compile before it is handled here.
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
        } = &mut wanted;
        fields.live("mode", &running.mode, mode);
        fields.policy(&running.policy, policy);
        fields.sampling(&running.sampling, sampling);
        fields.live("evictions", &running.evictions, evictions);
        fields.live("pressureConditions", &running.pressure_conditions, pressure_conditions);
        fields.live("protected", &running.protected, protected);
        fields.fixed("kernel", &running.kernel, kernel);
        fields.fixed("pods", &running.pods, pods);
        fields.disk_usage(&running.disk_usage, disk_usage);
        fields.fixed("incidents", &running.incidents, incidents);
        fields.fixed("filesystems", &running.filesystems, filesystems);
        fields.fixed("runtime", &running.runtime, runtime);
        fields.kubernetes(&running.kubernetes, kubernetes);
        fields.fixed("metrics.listen", &running.listen, listen);
        // The agent watches the content of these files by itself.
        fields.fixed("metrics.tls, metrics.bearerToken", &running.serving, serving);
        fields.fixed("lockFile", &running.lock_file, lock_file);
        fields.fixed("cgroupRoot", &running.cgroup_root, cgroup_root);
        fields.fixed("procRoot", &running.proc_root, proc_root);
        let Fields { changed, needs_restart } = fields;
        Self { config: wanted, changed, needs_restart }
    }
}

#[derive(Debug, Default)]
struct Fields {
    changed: Vec<&'static str>,
    needs_restart: Vec<&'static str>,
}

impl Fields {
    /// A field that takes effect at once.
    fn live<T: PartialEq>(&mut self, name: &'static str, running: &T, wanted: &T) {
        if running != wanted {
            self.changed.push(name);
        }
    }

    /// A field that is used at the start only.
    fn fixed<T: PartialEq + Clone>(&mut self, name: &'static str, running: &T, wanted: &mut T) {
        if running != wanted {
            self.needs_restart.push(name);
            wanted.clone_from(running);
        }
    }

    fn policy(&mut self, running: &Policy, wanted: &Policy) {
        let Policy {
            semantics,
            quirks,
            ranking,
            oom_scores,
            thresholds,
            // Follows from the thresholds.
            hard_count: _,
            pods_enforced,
            max_pod_grace_period,
            pressure_transition_period,
            local_storage_isolation,
            reservations,
        } = wanted;
        self.live("semantics", &running.semantics, semantics);
        self.live("quirks", &running.quirks, quirks);
        self.live("ranking", &running.ranking, ranking);
        self.live("oomScoreAdj", &running.oom_scores, oom_scores);
        self.live("thresholds", &running.thresholds, thresholds);
        self.live("enforceNodeAllocatable", &running.pods_enforced, pods_enforced);
        self.live("evictionMaxPodGracePeriod", &running.max_pod_grace_period, max_pod_grace_period);
        let transition = "evictionPressureTransitionPeriod";
        self.live(transition, &running.pressure_transition_period, pressure_transition_period);
        self.live("localStorageCapacityIsolation", &running.local_storage_isolation, local_storage_isolation);
        self.live("systemReserved, kubeReserved", &running.reservations, reservations);
    }

    fn sampling(&mut self, running: &Sampling, wanted: &mut Sampling) {
        let Sampling { floor, ceiling, fastest_rate } = wanted;
        self.live("sampling.floor", &running.floor, floor);
        self.live("sampling.ceiling", &running.ceiling, ceiling);
        if fastest_rate.is_some() {
            self.live("sampling.fastestRate", &running.fastest_rate, fastest_rate);
        } else {
            // The agent measures the rate only at its start, because the measurement takes memory.
            self.fixed("sampling.fastestRate", &running.fastest_rate, fastest_rate);
        }
    }

    fn kubernetes(&mut self, running: &KubernetesOptions, wanted: &mut KubernetesOptions) {
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
        self.fixed("kubernetes.api", &running.api, api);
        self.fixed("kubernetes.kubeconfig", &running.kubeconfig, kubeconfig);
        self.fixed("kubernetes.nodeName", &running.node_name, node_name);
        self.live("kubernetes.evictions", &running.evictions, evictions);
        self.live("kubernetes.protect", &running.protect, protect);
        self.live("kubernetes.conditions", &running.conditions, conditions);
        self.live("kubernetes.heartbeat", &running.heartbeat, heartbeat);
        self.live("kubernetes.taints", &running.taints, taints);
        self.live("kubernetes.events", &running.events, events);
        self.live("kubernetes.maintenance", &running.defer_soft_in_maintenance, defer_soft_in_maintenance);
    }

    fn disk_usage(&mut self, running: &DiskUsageOptions, wanted: &mut DiskUsageOptions) {
        let DiskUsageOptions { cpu_share, pressure_cpu_share, project_quotas } = wanted;
        self.fixed("diskUsage.cpuShare", &running.cpu_share, cpu_share);
        self.fixed("diskUsage.pressureCpuShare", &running.pressure_cpu_share, pressure_cpu_share);
        self.live("diskUsage.projectQuotas", &running.project_quotas, project_quotas);
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
    fn an_equal_configuration_changes_nothing() {
        let running = parse("");
        let Adopted { config, changed, needs_restart } = Adopted::by(&running, running.clone());
        assert_eq!((config, changed, needs_restart), (running, Vec::new(), Vec::new()));
    }

    #[test]
    fn fields_that_need_a_restart_keep_their_values() {
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
        // The next configuration is compared with the one in force.
        let again = Adopted::by(&config, parse(wanted));
        assert_eq!((again.changed, again.needs_restart), (Vec::new(), expected.to_vec()));
    }
}
