use std::time::Duration;

use super::*;
use crate::config::file_kinds::FileKind;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn policy(body: &str) -> Policy {
    let loaded = MonitorConfig::parse("k.yaml", &format!("{HEAD}{body}")).unwrap();
    assert_eq!(loaded.kind, FileKind::Kubelet);
    loaded.config.policy
}

fn shown(body: &str) -> String {
    let thresholds = policy(body).thresholds;
    thresholds.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn warnings(body: &str) -> Vec<String> {
    let loaded = MonitorConfig::parse("k.yaml", &format!("{HEAD}{body}")).unwrap();
    loaded.warnings.iter().map(ToString::to_string).collect()
}

const DEFAULTS: &str =
    "imagefs.available<15% imagefs.inodesFree<5% memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5%";
const COPY: &str = "allocatableMemory.available<100Mi";

#[test]
fn a_real_file_is_read() {
    let text = include_str!("../../../../tests/fixtures/config/kubelet.yaml");
    let loaded = MonitorConfig::parse("kubelet.yaml", text).unwrap();
    let policy = &loaded.config.policy;
    let shown: Vec<_> = policy.thresholds.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        ["imagefs.available<15%", "memory.available<100Mi", "nodefs.available<10%", "nodefs.inodesFree<5%", COPY]
    );
    assert_eq!(policy.pressure_transition_period, Duration::from_secs(300));
    assert_eq!(policy.reservations.system.len(), 3);
    let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
    assert!(
        warnings[0]
            .contains(": evictionHard: replaces all default thresholds; no longer in force: imagefs.inodesFree<5%")
    );
    assert!(warnings[1].contains(": failSwapOn: \"false\": swap may be used on this node"));
}

#[test]
fn json_is_read() {
    let text = "{\n\t\"kind\": \"KubeletConfiguration\",\n\t\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n\t\"evictionHard\": {\n\t\t\
                \"memory.available\": \"1Gi\"\n\t},\n\t\"evictionMaxPodGracePeriod\": -1,\n\t\"enforceNodeAllocatable\": [],\n\t\
                \"clusterDNS\": [\"10.96.0.10\"],\n\t\"nothing\": null\n}\n";
    let loaded = MonitorConfig::parse("k.json", text).unwrap();
    assert_eq!(loaded.config.policy.thresholds[0].to_string(), "memory.available<1Gi");
    assert_eq!(loaded.config.policy.max_pod_grace_period, -1);
    assert_eq!(loaded.config.policy.thresholds.len(), 1);
}

#[test]
fn the_kubelets_rules_apply() {
    let policy = policy("");
    assert_eq!(policy.semantics, Semantics::Kubelet);
    assert_eq!(policy.quirks, Quirks::ALL);
    assert_eq!(policy.ranking, Ranking::Kubernetes);
    assert_eq!(policy.oom_scores, OomScores::KUBERNETES);
    assert!(policy.reservations.hard_thresholds && policy.local_storage_isolation);
    assert_eq!(policy.max_pod_grace_period, 0);
    assert_eq!(policy.pressure_transition_period, Duration::from_secs(300));
}

#[test]
fn defaults_are_kept_replaced_or_merged() {
    let all = format!("{DEFAULTS} {COPY}");
    for (body, expected) in [
        ("", all.as_str()),
        ("evictionHard:", &all),
        ("evictionHard: null", &all),
        ("evictionHard: {}", ""),
        ("evictionHard: {}\nmergeDefaultEvictionSettings: true", &all),
        ("evictionHard: {nodefs.available: 1Gi}", "nodefs.available<1Gi"),
        (
            "evictionHard: {nodefs.available: 1Gi, memory.available: 0%}\nmergeDefaultEvictionSettings: true",
            "imagefs.available<15% imagefs.inodesFree<5% nodefs.available<1Gi nodefs.inodesFree<5%",
        ),
        ("mergeDefaultEvictionSettings: true", &all),
        ("enforceNodeAllocatable: []", DEFAULTS),
        ("enforceNodeAllocatable: [none]", DEFAULTS),
        ("enforceNodeAllocatable: [kube-reserved]", DEFAULTS),
        ("enforceNodeAllocatable: [pods, system-reserved-compressible]", &all),
        ("enforceNodeAllocatable: null", &all),
    ] {
        assert_eq!(shown(body), expected, "{body}");
    }
}

#[test]
fn single_fields_are_read() {
    let period = |body| policy(body).pressure_transition_period;
    assert_eq!(period("evictionPressureTransitionPeriod: 0s"), Duration::from_secs(300));
    assert_eq!(period("evictionPressureTransitionPeriod: 0"), Duration::from_secs(300));
    assert_eq!(period("evictionPressureTransitionPeriod: 30s"), Duration::from_secs(30));
    assert_eq!(policy("evictionMaxPodGracePeriod: -30").max_pod_grace_period, -30);
    assert!(!policy("localStorageCapacityIsolation: no").local_storage_isolation);
    // Names are case-sensitive, and unknown fields have no effect.
    assert_eq!(policy("EvictionMaxPodGracePeriod: x\nfuture: [{a: {b: c}}]\nmemoryThrottlingFactor: 0.9"), policy(""));
    assert_eq!(
        shown("evictionHard: {memory.available: '1e3', pid.available: \"1000\"}\nenforceNodeAllocatable: []"),
        "memory.available<1e3 pid.available<1k"
    );
}

#[test]
fn unquoted_numbers_are_warnings() {
    let errors = |body: &str| match MonitorConfig::parse("k.yaml", &format!("{HEAD}{body}")) {
        Ok(_) => String::new(),
        Err(errors) => errors.to_string(),
    };
    let reason = "a kubelet does not start with a number here; put it in quotes:";
    for text in ["100", "+5", "010", "1.5", ".5", "5.", "1e3", "1E3", "1.5e-1"] {
        for (body, field) in [
            (format!("evictionHard: {{memory.available: {text}}}"), "evictionHard.memory.available"),
            (format!("systemReserved:\n  cpu: {text}\n"), "systemReserved.cpu"),
            (format!("kubeReserved: {{\"pid\": {text}}}"), "kubeReserved.pid"),
        ] {
            let said = warnings(&body);
            let told = format!(": {field}: {text:?}: {reason} {text:?}");
            assert_eq!(said.iter().filter(|said| said.contains(&told)).count(), 1, "{body}: {said:?}");
        }
    }
    // In JSON too. An invalid value has its error only.
    let json = "{\"kind\": \"KubeletConfiguration\", \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",
        \"evictionSoft\": {\"memory.available\": 100}, \"evictionSoftGracePeriod\": {\"memory.available\": 30},
        \"systemReserved\": {\"cpu\": 1, \"gpu\": 1}}";
    let said = MonitorConfig::parse("k.json", json).unwrap_err().to_string();
    let starts = [
        "k.json:2: evictionSoftGracePeriod.memory.available: \"30\": time: missing unit",
        "k.json:3: systemReserved.gpu: gpu cannot be reserved;",
    ];
    assert_eq!(said.lines().count(), starts.len(), "{said}");
    for (line, start) in said.lines().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    for text in ["0x10", "1_000", "true", "yes", "off", "12:30", ".inf", "0b1", "0o7", "null"] {
        assert_ne!(errors(&format!("evictionHard: {{memory.available: {text}}}")), "", "{text}");
    }
    // Text with a unit, in quotes, in a block, or with a tag.
    for text in ["100Mi", "10%", "1.5Gi", "1e1%", "500m", "\"100\"", "'1e3'", "!!str 100", "|-\n    100"] {
        let said = warnings(&format!("evictionHard:\n  memory.available: {text}\n"));
        assert!(!said.iter().any(|said| said.contains(reason)), "{text}: {said:?}");
    }
    // Fields that are numbers need no quotes.
    assert_eq!(errors("evictionMaxPodGracePeriod: 30\npodPidsLimit: 100"), "");
}

#[test]
fn all_errors_are_reported() {
    let errors = MonitorConfig::parse(
        "k.yaml",
        "kind: KubeletConfiguration
evictionHard: {memory.available: }
evictionSoft: {memory.available: 1Gi, memory.availabl: 1}
evictionSoftGracePeriod: []
evictionMaxPodGracePeriod: \"30\"
evictionMaxPodGracePeriod: 30
evictionPressureTransitionPeriod: -1s
systemReserved: {hugepages-2Mi: 1, memory: [1]}
failSwapOn: maybe
memorySwap: on
",
    )
    .unwrap_err();
    let expected = r#"k.yaml:1: apiVersion: missing; add `apiVersion: kubelet.config.k8s.io/v1beta1`
k.yaml:2: evictionHard.memory.available: must be a plain value, not nothing; write e.g. 100Mi or 10%
k.yaml:3: evictionSoft.memory.available: "1Gi": grace period must be specified for the soft eviction threshold memory.available; add `memory.available: 30s` to evictionSoftGracePeriod
k.yaml:3: evictionSoft.memory.availabl: unsupported eviction signal memory.availabl; did you mean memory.available?
k.yaml:4: evictionSoftGracePeriod: must be a map, not a list; fields: memory.available, allocatableMemory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, containerfs.available, containerfs.inodesFree, pid.available
k.yaml:5: evictionMaxPodGracePeriod: "30": must be a number, not text; remove the quotes
k.yaml:6: evictionMaxPodGracePeriod: given twice, first in line 5; remove one of them
k.yaml:7: evictionPressureTransitionPeriod: "-1s": must not be negative; write e.g. 5m
k.yaml:8: systemReserved.hugepages-2Mi: hugepages-2Mi cannot be reserved; known here: cpu, memory, ephemeral-storage, pid
k.yaml:8: systemReserved.memory: must be a plain value, not a list; write e.g. 1Gi
k.yaml:9: failSwapOn: "maybe": must be true or false; write true or false
k.yaml:10: memorySwap: "on": must be a map, not a plain value; write its fields, or leave it out"#;
    assert_eq!(errors.to_string(), expected);
}

#[test]
fn swap_and_similar_names_are_warnings() {
    assert_eq!(warnings("failSwapOn: true\nmemorySwap: {swapBehavior: NoSwap}"), [""; 0]);
    assert_eq!(warnings("memorySwap: {}"), [""; 0]);
    for (body, start) in [
        (
            "failSwapOn: false",
            "k.yaml:3: failSwapOn: \"false\": swap may be used on this node, and evictions do not see it",
        ),
        (
            "memorySwap:\n  swapBehavior: LimitedSwap",
            "k.yaml:4: memorySwap.swapBehavior: \"LimitedSwap\": swap may be used",
        ),
        ("kernelMemcgNotification: true", "k.yaml:3: kernelMemcgNotification: \"true\": has no effect on cgroup v2"),
        ("evictonHard: {}", "k.yaml:3: evictonHard: an unknown field, which has no effect; did you mean evictionHard?"),
        (
            "evictionhard: {}",
            "k.yaml:3: evictionhard: an unknown field, which has no effect; did you mean evictionHard?",
        ),
        (
            "evictionHard: {imagefs.available: 5%, nodefs.available: 5%}",
            "k.yaml:3: evictionHard: replaces all default thresholds; no longer in force: memory.available<100Mi, nodefs.inodesFree<5%, imagefs.inodesFree<5%; add them",
        ),
    ] {
        let warnings = warnings(body);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with(start), "{}", warnings[0]);
    }
}
