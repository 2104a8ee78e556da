use super::*;
use crate::config::file_kinds::FileKind;
use crate::units::format_go_duration;
use std::time::Duration;

fn policy(text: &str) -> Policy {
    let loaded = MonitorConfig::parse("n.yaml", text).unwrap_or_else(|errors| panic!("{text}: {errors}"));
    assert_eq!(loaded.kind, FileKind::OpenShift3);
    loaded.config.policy
}

fn shown(text: &str) -> String {
    let one = |threshold: &crate::config::Threshold| match threshold.is_hard() {
        true => threshold.to_string(),
        false => format!("{threshold} for {}", format_go_duration(threshold.grace_period)),
    };
    policy(text).thresholds.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn warnings(text: &str) -> Vec<String> {
    MonitorConfig::parse("n.yaml", text).unwrap().warnings.iter().map(ToString::to_string).collect()
}

/// The example of OpenShift's documentation: 10Gi of memory, 1Gi for the system, and 1Gi that evictions keep free.
const SCENARIO: &str = "kubeletArguments:
  system-reserved:
  - \"memory=2Gi\"
  eviction-hard:
  - \"memory.available<.5Gi\"
  eviction-soft:
  - \"memory.available<1Gi\"
  eviction-soft-grace-period:
  - \"memory.available=30s\"
  enforce-node-allocatable: [none]
";

#[test]
fn the_documented_example_is_read() {
    let policy = policy(SCENARIO);
    assert_eq!(shown(SCENARIO), "memory.available<512Mi memory.available<1Gi for 30s");
    assert_eq!(policy.ranking, Ranking::OpenShift3);
    assert_eq!(policy.oom_scores, OomScores::OPENSHIFT3);
    assert_eq!(policy.quirks, crate::config::Quirks::ALL);
    assert!(!policy.reservations.hard_thresholds);
    assert_eq!(policy.reservations.system[0].1.to_string(), "2Gi");
    assert!(!warnings(SCENARIO).iter().any(|warning| warning.contains("does not cover")));
    let less = SCENARIO.replace("memory=2Gi", "memory=512Mi");
    let warnings = warnings(&less);
    assert!(
        warnings[0].starts_with("n.yaml:3: kubeletArguments.system-reserved[0]: \"memory=512Mi\": the memory reserved (512Mi) does not cover the largest threshold, memory.available<1Gi: "),
        "{warnings:?}"
    );
}

#[test]
fn a_whole_node_configuration_is_read() {
    let text = include_str!("../../../../tests/fixtures/config/node-config.yaml");
    assert_eq!(
        shown(text),
        "imagefs.available<100Mi imagefs.inodesFree<100Mi memory.available<500Mi nodefs.available<500Mi nodefs.inodesFree<100Mi \
         memory.available<1536Mi for 1m30s allocatableMemory.available<500Mi"
    );
    let policy = policy(text);
    assert_eq!(policy.max_pod_grace_period, 60);
    assert_eq!(policy.pressure_transition_period, Duration::from_secs(120));
}

#[test]
fn arguments_are_read_as_flags() {
    let defaults = "imagefs.available<15% memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5%";
    let none = "enforce-node-allocatable: none";
    for (body, expected) in [
        ("x: [y]", format!("{defaults} allocatableMemory.available<100Mi")),
        (none, defaults.to_owned()),
        ("eviction-hard: []\n  enforce-node-allocatable: [\"\"]", defaults.to_owned()),
        ("eviction-hard: [\"\"]", String::new()),
        ("experimental-allocatable-ignore-eviction: [\"true\"]", defaults.to_owned()),
        // Several in one value, spaces, empty items. The last text of a signal takes the place of the first.
        (
            "eviction-hard: [\" memory.available < 1Gi,,nodefs.available<5%\", \"memory.available<2Gi\"]\n  enforce-node-allocatable: [none]",
            "memory.available<2Gi nodefs.available<5%".to_owned(),
        ),
        ("eviction-hard: memory.available<1Gi\n  enforce-node-allocatable: none", "memory.available<1Gi".to_owned()),
        ("eviction-hard: [memory.available<100%]", String::new()),
    ] {
        assert_eq!(shown(&format!("kubeletArguments:\n  {body}\n")), expected, "{body}");
    }
    let period = |value: &str| {
        policy(&format!("kubeletArguments: {{eviction-pressure-transition-period: {value}}}"))
            .pressure_transition_period
    };
    assert_eq!(period("[0s]"), Duration::ZERO);
    assert_eq!(period("[10s, 30s]"), Duration::from_secs(30));
    assert_eq!(period("[]"), Duration::from_secs(300));
    // As printed in the documentation.
    let text = "kubeletArguments:\n  eviction-pressure-transition-period=\"30s\"\n";
    assert_eq!(policy(text).pressure_transition_period, Duration::from_secs(30));
    assert!(warnings(text)[0].contains("write `eviction-pressure-transition-period: [\"30s\"]` below it"));
    let reserved = |value: &str| {
        policy(&format!("kubeletArguments: {{experimental-allocatable-ignore-eviction: {value}}}"))
            .reservations
            .hard_thresholds
    };
    assert_eq!([reserved("[]"), reserved("['true']"), reserved("['false']")], [false, false, true]);
    assert!(!policy("kubeletArguments: {local-storage-capacity-isolation: [F]}").local_storage_isolation);
    assert_eq!(policy("kind: NodeConfig\napiVersion: v1\n").thresholds.len(), 5);
}

#[test]
fn all_errors_are_reported() {
    let errors = MonitorConfig::parse(
        "n.yaml",
        "kind: NodeConfig
kubeletArguments:
  eviction-hard:
  - memory.available<100Mx
  - \"nodefs.available=5%, imagefs.available<5%\"
  - memory.avail<1
  eviction-soft: [memory.available<1Gi]
  eviction-soft-grace-period: [nodefs.available=30]
  eviction-minimum-reclaim: [memory.available=-1]
  eviction-max-pod-grace-period: [30s]
  eviction-pressure-transition-period: [-5m]
  system-reserved: [\"memory=x,gpu=1\", cpu]
  enforce-node-allocatable: [\"pods,none\", users]
  fail-swap-on: [maybe]
  kube-reserved: {memory: 1Gi}
",
    )
    .unwrap_err();
    let expected = r#"n.yaml:4: kubeletArguments.eviction-hard[0]: "memory.available<100Mx": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'; write e.g. 100Mi or 10%
n.yaml:5: kubeletArguments.eviction-hard[1]: "nodefs.available=5%": malformed pair, expect string<string; write nodefs.available<5%
n.yaml:6: kubeletArguments.eviction-hard[2]: "memory.avail<1": unsupported eviction signal memory.avail; did you mean memory.available?
n.yaml:7: kubeletArguments.eviction-soft[0]: "memory.available<1Gi": grace period must be specified for the soft eviction threshold memory.available; add `memory.available=30s` to eviction-soft-grace-period
n.yaml:8: kubeletArguments.eviction-soft-grace-period[0]: "nodefs.available=30": time: missing unit in duration "30"; write e.g. 1m30s
n.yaml:9: kubeletArguments.eviction-minimum-reclaim[0]: "memory.available=-1": negative eviction minimum reclaim specified for memory.available; write e.g. 100Mi or 5%
n.yaml:10: kubeletArguments.eviction-max-pod-grace-period[0]: "30s": must be a whole number from -2147483648 to 2147483647; write e.g. 30, in seconds
n.yaml:11: kubeletArguments.eviction-pressure-transition-period[0]: "-5m": must not be negative; write e.g. 5m
n.yaml:12: kubeletArguments.system-reserved[0]: "memory=x": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'; write e.g. 500m for cpu, 1Gi for memory, 1000 for pid
n.yaml:12: kubeletArguments.system-reserved[0]: "gpu=1": gpu cannot be reserved; what can: cpu, memory, ephemeral-storage, pid
n.yaml:12: kubeletArguments.system-reserved[1]: "cpu": malformed pair, expect string=string; write e.g. memory=1Gi
n.yaml:13: kubeletArguments.enforce-node-allocatable[0]: "none": cannot stand with others; leave out either none or everything else
n.yaml:13: kubeletArguments.enforce-node-allocatable[1]: "users": not one of the choices; write none or pods or system-reserved or kube-reserved or system-reserved-compressible or kube-reserved-compressible
n.yaml:14: kubeletArguments.fail-swap-on[0]: "maybe": must be true or false; write e.g. true
n.yaml:15: kubeletArguments.kube-reserved: must be a list of values, not a map; write a list of values in quotes"#;
    assert_eq!(errors.to_string(), expected);
}

#[test]
fn swap_and_misspelt_arguments_are_warnings() {
    let said = warnings(
        "kubeletArguments:\n  fail-swap-on: [\"false\"]\n  eviction-hards: [x]\n  kernel-memcg-notification: [\"true\"]\n",
    );
    assert!(
        said[0].starts_with("n.yaml:2: kubeletArguments.fail-swap-on[0]: \"false\": swap may be used on this node")
    );
    assert!(said[1].starts_with(
        "n.yaml:3: kubeletArguments.eviction-hards: an unknown field, which has no effect; did you mean eviction-hard?"
    ));
    assert!(said[2].contains("has no effect on cgroup v2"));
}
