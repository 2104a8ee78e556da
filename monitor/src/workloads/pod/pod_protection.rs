//! Determines which pods are exempt. No I/O.

use super::identity::Exemption;
use super::object::{Pod, shortened};
use crate::config::kubernetes_options::PodProtection;
use crate::workloads::protection::Protection;

impl Pod {
    /// Returns the reason why the pod is exempt. System pods are always exempt, other pods by the operator's rules.
    pub fn protection(&self, rules: &PodProtection) -> Option<Protection> {
        let PodProtection {
            daemon_sets,
            annotations,
            namespaces,
            priority_at_least,
            local_storage,
            persistent_volumes,
            unowned,
        } = rules;
        if let Some(exemption) = self.exemption() {
            return Some(match exemption {
                Exemption::StaticPod => Protection::StaticPod,
                Exemption::MirrorPod => Protection::MirrorPod,
                Exemption::CriticalPriority => Protection::CriticalPriority,
            });
        }
        let volumes = &self.spec.volumes;
        let checks = [
            (annotations.iter().any(|wanted| self.carries(wanted)), Protection::Annotation),
            (namespaces.contains(&self.metadata.namespace), Protection::Namespace),
            (priority_at_least.is_some_and(|least| self.priority() >= least), Protection::Priority),
            (
                *local_storage && volumes.iter().any(|volume| volume.empty_dir.is_some() || volume.host_path.is_some()),
                Protection::LocalStorage,
            ),
            (
                *persistent_volumes && volumes.iter().any(|volume| volume.persistent_volume_claim),
                Protection::PersistentVolume,
            ),
            (*unowned && self.metadata.owners.is_empty(), Protection::Unowned),
            // The DaemonSet recreates its pod on the same node, whatever the conditions of the node. An eviction therefore frees
            // little. It is the last reason, because a leak overrides it alone.
            (*daemon_sets && self.is_of_daemon_set(), Protection::DaemonSet),
        ];
        checks.into_iter().find_map(|(holds, protection)| holds.then_some(protection))
    }

    /// Returns whether the pod has the annotation: `key` with any value, or `key=value`.
    fn carries(&self, wanted: &str) -> bool {
        match wanted.split_once('=') {
            Some((key, value)) => self.annotation(key) == Some(shortened(value)),
            None => self.annotation(wanted).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KubernetesOptions;

    fn pod(metadata: &str, spec: &str) -> Pod {
        let mut pod: Pod =
            serde_json::from_str(&format!(r#"{{"metadata": {{{metadata}}}, "spec": {{{spec}}}}}"#)).unwrap();
        pod.metadata.annotations.push(("example.com/keep".to_owned(), "yes".to_owned()));
        pod
    }

    const OWNED: &str = r#""namespace": "shop", "ownerReferences": [{"kind": "ReplicaSet"}]"#;
    const DAEMON: &str = r#""namespace": "shop", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": true}]"#;

    #[test]
    fn system_pods_are_exempt_under_any_rules() {
        let none = PodProtection { daemon_sets: false, ..KubernetesOptions::default().protect };
        for (metadata, spec, expected) in [
            (r#""annotations": {"kubernetes.io/config.source": "file"}"#, "", Some(Protection::StaticPod)),
            (r#""annotations": {"kubernetes.io/config.mirror": "x"}"#, "", Some(Protection::MirrorPod)),
            ("", r#""priority": 2000001000"#, Some(Protection::CriticalPriority)),
            (DAEMON, "", None),
            ("", "", None),
        ] {
            assert_eq!(pod(metadata, spec).protection(&none), expected, "{metadata} {spec}");
        }
    }

    #[test]
    fn other_pods_follow_the_rules() {
        let default = KubernetesOptions::default().protect;
        let of = |rules: &PodProtection, metadata: &str, spec: &str| pod(metadata, spec).protection(rules);
        assert_eq!(of(&default, DAEMON, ""), Some(Protection::DaemonSet));
        // A pod cannot exempt itself against the operator's rules.
        assert_eq!(of(&default, OWNED, r#""priority": 1000000, "volumes": [{"emptyDir": {}}]"#), None);

        let keep = |text: &str| PodProtection { annotations: vec![text.to_owned()], ..default.clone() };
        for (text, holds) in [
            ("example.com/keep", true),
            ("example.com/keep=yes", true),
            ("example.com/keep=no", false),
            ("other", false),
        ] {
            assert_eq!(of(&keep(text), OWNED, "").is_some(), holds, "{text}");
        }
        let namespaces = PodProtection { namespaces: vec!["shop".to_owned()], ..default.clone() };
        assert_eq!(of(&namespaces, OWNED, ""), Some(Protection::Namespace));
        let priority = PodProtection { priority_at_least: Some(-3), ..default.clone() };
        assert_eq!(of(&priority, OWNED, r#""priority": -3"#), Some(Protection::Priority));
        assert_eq!(of(&priority, OWNED, r#""priority": -4"#), None);
        let local = PodProtection { local_storage: true, ..default.clone() };
        for (volume, holds) in
            [(r#""emptyDir": {}"#, true), (r#""hostPath": {"path": "/"}"#, true), (r#""configMap": {}"#, false)]
        {
            assert_eq!(of(&local, OWNED, &format!(r#""volumes": [{{{volume}}}]"#)).is_some(), holds, "{volume}");
        }
        let claims = PodProtection { persistent_volumes: true, ..default.clone() };
        let claim = r#""volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "c"}}]"#;
        assert_eq!(of(&claims, OWNED, claim), Some(Protection::PersistentVolume));
        let unowned = PodProtection { unowned: true, ..default };
        assert_eq!((of(&unowned, "", ""), of(&unowned, OWNED, "")), (Some(Protection::Unowned), None));
    }
}
