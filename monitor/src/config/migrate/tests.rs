use super::*;
use crate::config::Policy;

const FILES: [(&str, &str); 24] = [
    ("kubeadm", include_str!("../../../../tests/fixtures/kubelets/kubeadm.yaml")),
    ("kubeadm's ConfigMap", include_str!("../../../../tests/fixtures/kubelets/kubeadm-config-map.yaml")),
    ("kind", include_str!("../../../../tests/fixtures/kubelets/kind.yaml")),
    ("minikube", include_str!("../../../../tests/fixtures/kubelets/minikube.yaml")),
    ("k3s", include_str!("../../../../tests/fixtures/kubelets/k3s.flags")),
    ("RKE2", include_str!("../../../../tests/fixtures/kubelets/rke2.flags")),
    ("GKE", include_str!("../../../../tests/fixtures/kubelets/gke.yaml")),
    ("EKS", include_str!("../../../../tests/fixtures/kubelets/eks-al2.json")),
    ("Bottlerocket", include_str!("../../../../tests/fixtures/kubelets/bottlerocket.yaml")),
    ("AKS", include_str!("../../../../tests/fixtures/kubelets/aks.env")),
    ("OpenShift 4", include_str!("../../../../tests/fixtures/kubelets/openshift4.yaml")),
    ("OpenShift 3", include_str!("../../../../tests/fixtures/kubelets/openshift3.yaml")),
    ("Talos", include_str!("../../../../tests/fixtures/kubelets/talos.yaml")),
    ("MicroK8s", include_str!("../../../../tests/fixtures/kubelets/microk8s.flags")),
    ("/configz", include_str!("../../../../tests/fixtures/kubelets/configz.json")),
    ("mistakes", include_str!("../../../../tests/fixtures/kubelets/mistakes.yaml")),
    ("the chapter", include_str!("../../../../tests/fixtures/chapter/node-config.yaml")),
    ("the chapter's hard thresholds", include_str!("../../../../tests/fixtures/chapter/hard.yaml")),
    ("the chapter's soft thresholds", include_str!("../../../../tests/fixtures/chapter/soft.yaml")),
    ("the chapter's reservation", include_str!("../../../../tests/fixtures/chapter/reserved.yaml")),
    ("the chapter's period", include_str!("../../../../tests/fixtures/chapter/transition.yaml")),
    ("k3s's own file", include_str!("../../../../tests/fixtures/kubelets/k3s-config.yaml")),
    ("k3s's own file without thresholds", "node-name: edge-2\nkubelet-arg: max-pods=50\n"),
    ("OpenShift 4's resource", include_str!("../../../../tests/fixtures/kubelets/openshift4-resource.yaml")),
];

fn migrated(text: &str, semantics: Semantics) -> String {
    migrate("kubelet", text, semantics).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

fn policy(text: &str) -> Policy {
    MonitorConfig::parse("m", text).unwrap_or_else(|errors| panic!("{text}\n{errors}")).config.policy
}

/// The text of all comments, without the breaks of lines.
fn comments(text: &str) -> String {
    let words = text.lines().filter_map(|line| Some(line.split_once('#')?.1)).flat_map(str::split_whitespace);
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn with_the_kubelets_semantics_the_policy_is_the_same() {
    for (name, text) in FILES {
        let mut before = policy(text);
        // It changes what check-config computes of a capacity, and no decision; the file says so.
        before.reservations.hard_thresholds = true;
        assert_eq!(policy(&migrated(text, Semantics::Kubelet)), before, "{name}");
    }
}

#[test]
fn every_line_has_a_reason_and_every_warning_an_explanation() {
    for (name, text) in FILES {
        for semantics in [Semantics::Kubelet, Semantics::Corrected] {
            let migrated = migrated(text, semantics);
            let loaded = MonitorConfig::parse("m", &migrated).unwrap();
            assert_eq!(loaded.config.policy.semantics, semantics, "{name}");
            let comments = comments(&migrated);
            for ConfigWarning(warning) in &loaded.warnings {
                let reason: Vec<_> = warning.reason.split_whitespace().collect();
                assert!(comments.contains(&reason.join(" ")), "{name}: {warning}\n{migrated}");
            }
            let mut is_explained = false;
            for line in migrated.lines() {
                let is_header = line.is_empty()
                    || line.ends_with(':')
                    || line.starts_with("apiVersion")
                    || line.starts_with("kind");
                let has_own = line.contains('#');
                assert!(is_header || has_own || is_explained, "{name}: {line}\n{migrated}");
                is_explained = line.trim_start().starts_with('#');
            }
        }
    }
}

/// Returns whether the text names this line, and not one with more digits.
fn names_line(text: &str, line: impl std::fmt::Display) -> bool {
    let named = format!("line {line}");
    let mut after = text.split(&*named).skip(1);
    after.any(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

#[test]
fn nothing_of_the_source_is_lost() {
    for (name, text) in FILES {
        let source = Source::locate("f", text).unwrap();
        let kind = source.read(&mut crate::config::document_walk::Walk::new("f")).unwrap().0;
        let migrated = migrated(text, Semantics::Kubelet);
        for (field, line, _) in Settings::of(&source, kind).names() {
            let is_there = ["apiVersion", "kind"].contains(&field.as_str())
                // The value of an argument is in the next line.
                || (line..line + 2).any(|line| names_line(&migrated, line))
                || migrated.contains(&field);
            assert!(is_there, "{name}: {field} of line {line}\n{migrated}");
        }
    }
}

#[test]
fn values_change_only_with_a_reason() {
    for (name, source, expected) in [
        (
            "a file without thresholds",
            FILES[0].1,
            &[
                "memory.available: 100Mi  # the kubelet's default\n",
                "imagefs.inodesFree: 5%  # the kubelet's default\n",
                "The source has no evictionHard",
                "evictionPressureTransitionPeriod: 5m0s  # line 13: 0s\n",
                "Zero in a KubeletConfiguration stands for the default",
                "enforceNodeAllocatable: [pods]  # the kubelet's default\n",
                "- imageMinimumGCAge (line 15, 0s): zero stands for the default",
            ][..],
        ),
        (
            "merged defaults",
            FILES[1].1,
            &[
                "memory.available: 5%  # line 9\n",
                "imagefs.available: 15%  # line 11: mergeDefaultEvictionSettings keeps the kubelet's default\n",
                "evictionMaxPodGracePeriod: 60  # line 18\n",
            ],
        ),
        (
            "no threshold on memory",
            FILES[2].1,
            &["memory.available: 0%\n", "nodefs.available: 0%  # line 8\n", "Switched off."],
        ),
        (
            "flags",
            FILES[4].1,
            &[
                "nodefs.available: 5%  # line 1: nodefs.available<5%\n",
                "endpoint: unix:///run/k3s/containerd/containerd.sock  # line 1",
                "nodeName: edge-1  # line 1\n",
                "- fail-swap-on (line 1, false): the agent starts with and without swap.",
                "- kubeconfig (line 1, /var/lib/rancher/k3s/agent/kubelet.kubeconfig): the kubelet's own credentials.",
            ],
        ),
        (
            "variables of a unit",
            FILES[13].1,
            &[
                "- root-dir (line 5, ${SNAP_COMMON}/var/lib/kubelet): no plain path",
                "- container-runtime-endpoint (line 8,",
            ],
        ),
        ("a negative grace period", FILES[14].1, &["evictionMaxPodGracePeriod: -1", "(quirk negativeMaxGrace)"]),
        (
            "OpenShift 3",
            FILES[11].1,
            &[
                "ranking: openshift3\n",
                "oomScoreAdj: openshift3\n",
                "memory.available: 1.5Gi  # line 30: memory.available<1.5Gi\n",
                "memory: 2Gi  # line 36: memory=2Gi\n",
                "nodefs: /var/lib/origin/openshift.local.volumes",
                "because they do not concern evictions: allowDisabledDocker, authConfig",
            ],
        ),
    ] {
        let migrated = migrated(source, Semantics::Kubelet);
        // Texts are compared without line breaks.
        let comments = comments(&migrated);
        for text in expected {
            assert!(migrated.contains(text) || comments.contains(text), "{name}: {text}\n{migrated}");
        }
    }
}

#[test]
fn corrected_semantics_change_what_they_refuse() {
    let text = FILES[15].1;
    let (kubelet, corrected) = (migrated(text, Semantics::Kubelet), migrated(text, Semantics::Corrected));
    assert!(kubelet.contains("imagefs.available: 100.0%  # line 8\n"), "{kubelet}");
    assert!(corrected.contains("imagefs.available: 100%  # line 8: 100.0%\n"), "{corrected}");
    assert!(comments(&corrected).contains("With corrected semantics it is an error"), "{corrected}");
}

#[test]
fn what_cannot_be_migrated_is_refused() {
    for (text, expected) in [
        (
            "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n",
            "f: already a MonitorConfiguration",
        ),
        ("kind: KubeletConfiguration\nevictionHard: {memory.available: 1XB}\n", "f:1: apiVersion: missing"),
        ("kind: MachineConfig\n", "name the file that they write on the node"),
        ("a: [\n", "not valid YAML"),
    ] {
        let errors = migrate("f", text, Semantics::Kubelet).unwrap_err().to_string();
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn a_hostile_name_stays_in_the_comment() {
    let text = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n\"x\\nmode: enforce\\ny\": 1\n";
    let migrated = migrate("a\nmode: enforce\n", text, Semantics::Kubelet).unwrap();
    assert_eq!(policy(&migrated), policy(text));
    assert!(!migrated.lines().any(|line| line.starts_with("mode: enforce")), "{migrated}");
}

proptest::proptest! {
    /// Thresholds of all kinds, as a file and as flags.
    #[test]
    fn any_thresholds_keep_their_meaning(
        hard in proptest::option::of(proptest::collection::btree_map(0..9_usize, 0..9_usize, 0..6)),
        soft in proptest::collection::btree_map(0..9_usize, 0..9_usize, 0..4),
        reclaim in proptest::collection::btree_map(0..9_usize, 0..5_usize, 0..3),
        merge in proptest::bool::ANY,
        pods in proptest::option::of(proptest::bool::ANY),
    ) {
        const VALUES: [&str; 9] = ["100Mi", "1Gi", "10%", "5.5%", "0%", "100%", "1e9", "90%", "100.0%"];
        let signal = |index: usize| crate::units::Signal::ALL[index].as_str();
        let all = |map: &std::collections::BTreeMap<usize, usize>, between: &str| -> Vec<String> {
            map.iter().map(|(at, value)| format!("{}{between}{}", signal(*at), VALUES[*value])).collect()
        };
        let grace = |between: &str| -> Vec<String> { soft.keys().map(|at| format!("{}{between}1m", signal(*at))).collect() };
        let scopes = pods.map(|is_pods| if is_pods { "pods" } else { "none" });
        let mut file = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n".to_owned();
        let mut flags = "kubelet --v=2".to_owned();
        if let Some(hard) = &hard {
            file += &format!("evictionHard: {{{}}}\n", all(hard, ": ").join(", "));
            flags += &format!(" --eviction-hard={}", all(hard, "<").join(","));
        }
        file += &format!("mergeDefaultEvictionSettings: {merge}\nevictionSoft: {{{}}}\n", all(&soft, ": ").join(", "));
        file += &format!("evictionSoftGracePeriod: {{{}}}\n", grace(": ").join(", "));
        file += &format!("evictionMinimumReclaim: {{{}}}\n", all(&reclaim, ": ").join(", ").replace("0%", "1%"));
        if let Some(scopes) = scopes {
            file += &format!("enforceNodeAllocatable: [{scopes}]\n");
            flags += &format!(" --enforce-node-allocatable={scopes}");
        }
        if !soft.is_empty() {
            flags += &format!(" --eviction-soft={} --eviction-soft-grace-period={}", all(&soft, "<").join(","), grace("=").join(","));
        }
        for text in [file, flags] {
            let migrated = migrated(&text, Semantics::Kubelet);
            proptest::prop_assert_eq!(policy(&migrated), policy(&text), "{}\n{}", text, migrated);
            let corrected = migrate("kubelet", &text, Semantics::Corrected);
            proptest::prop_assert!(corrected.is_ok(), "{text}\n{corrected:?}");
        }
    }
}
