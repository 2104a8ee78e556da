//! Which fields of a new configuration a running agent adopts, and which need a restart.

use super::disk_options::DiskUsageOptions;
use super::kubernetes_options::KubernetesOptions;
use super::policy::{MonitorConfig, Policy, Sampling};

/// The result of applying a new configuration to a running agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Adopted {
    /// The configuration in force from now on: the new one, with the old values of fields that need a restart.
    pub config: MonitorConfig,
    pub changed: Vec<&'static str>,
    /// The fields that keep their old values until a restart.
    pub needs_restart: Vec<&'static str>,
}

/// Calls for every field of a struct the method of [`Fields`] that handles it: `method field "name in the file"`. The pattern has no `..`,
/// so that a new field does not compile before it has a row.
macro_rules! compare {
    ($fields:expr, $running:expr, $wanted:expr, $type:ident { $($how:ident $field:ident $($name:literal)?,)+ }) => {
        let $type { $($field),+ } = $wanted;
        $($fields.$how($($name,)? &$running.$field, $field);)+
    };
}

impl Adopted {
    /// Applies the configuration `wanted` to an agent that runs by `running`.
    pub fn by(running: &MonitorConfig, mut wanted: MonitorConfig) -> Self {
        let mut fields = Fields::default();
        compare!(fields, running, &mut wanted, MonitorConfig {
            live pool "pool",
            derived pools,
            live mode "mode",
            policy policy,
            derived has_default_hard,
            sampling sampling,
            live evictions "evictions",
            live candidates "evictions.candidates, evictions.services",
            live pressure_conditions "pressureConditions",
            live protected "protected",
            fixed kernel "kernel",
            fixed pods "pods",
            disk_usage disk_usage,
            fixed incidents "incidents",
            live notifications "notifications",
            fixed filesystems "filesystems",
            fixed runtime "runtime",
            kubernetes kubernetes,
            fixed listen "metrics.listen",
            live workload_memory "metrics.workloadMemory",
            fixed serving "metrics.tls, metrics.bearerToken",
            fixed lock_file "lockFile",
            fixed cgroup_root "cgroupRoot",
            fixed proc_root "procRoot",
        });
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
        // One field of the file may set two of the configuration.
        if running != wanted && self.changed.last() != Some(&name) {
            self.changed.push(name);
        }
    }

    /// A field that is used at the start only, or names a file whose content the agent watches by itself.
    fn fixed<T: PartialEq + Clone>(&mut self, name: &'static str, running: &T, wanted: &mut T) {
        if running != wanted {
            self.needs_restart.push(name);
            wanted.clone_from(running);
        }
    }

    /// A field that follows from others.
    #[expect(clippy::unused_self, reason = "called like its siblings")]
    fn derived<T>(&mut self, _running: &T, _wanted: &T) {}

    /// A rate that the agent measures where it is not configured, and only at its start, because the measurement takes memory.
    fn measured<T: PartialEq + Copy>(&mut self, name: &'static str, running: &Option<T>, wanted: &mut Option<T>) {
        if wanted.is_some() {
            self.live(name, running, wanted);
        } else {
            self.fixed(name, running, wanted);
        }
    }

    fn policy(&mut self, running: &Policy, wanted: &Policy) {
        compare!(self, running, wanted, Policy {
            live semantics "semantics",
            live quirks "quirks",
            derived kubelet,
            live ranking "ranking",
            live oom_scores "oomScoreAdj",
            live thresholds "thresholds",
            derived hard_count,
            live pods_enforced "enforceNodeAllocatable",
            live pods_by_default "enforceNodeAllocatable",
            live max_pod_grace_period "evictionMaxPodGracePeriod",
            live pressure_transition_period "evictionPressureTransitionPeriod",
            live local_storage_isolation "localStorageCapacityIsolation",
            live reservations "systemReserved, kubeReserved",
        });
    }

    fn sampling(&mut self, running: &Sampling, wanted: &mut Sampling) {
        compare!(self, running, wanted, Sampling {
            live floor "sampling.floor",
            live ceiling "sampling.ceiling",
            measured fastest_rate "sampling.fastestRate",
        });
    }

    fn kubernetes(&mut self, running: &KubernetesOptions, wanted: &mut KubernetesOptions) {
        compare!(self, running, wanted, KubernetesOptions {
            fixed api "kubernetes.api",
            fixed kubeconfig "kubernetes.kubeconfig",
            fixed node_name "kubernetes.nodeName",
            live evictions "kubernetes.evictions",
            live protect "kubernetes.protect",
            live conditions "kubernetes.conditions",
            live heartbeat "kubernetes.heartbeat",
            live taints "kubernetes.taints",
            live events "kubernetes.events",
            live pod_oom_events "kubernetes.podOomEvents",
            live defer_soft_in_maintenance "kubernetes.maintenance",
        });
    }

    fn disk_usage(&mut self, running: &DiskUsageOptions, wanted: &mut DiskUsageOptions) {
        compare!(self, running, wanted, DiskUsageOptions {
            fixed cpu_share "diskUsage.cpuShare",
            fixed pressure_cpu_share "diskUsage.pressureCpuShare",
            live project_quotas "diskUsage.projectQuotas",
        });
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
