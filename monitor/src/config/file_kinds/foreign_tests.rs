//! A kubelet's settings in the other forms in which people have them: flags, a ConfigMap, and the answer of `/configz`.

use crate::config::file_kinds::FileKind;
use crate::config::policy::{MonitorConfig, Ranking};
use crate::config::quirks::Semantics;

fn read(text: &str) -> (FileKind, String) {
    let loaded = MonitorConfig::parse("f", text).unwrap_or_else(|errors| panic!("{text}:\n{errors}"));
    assert_eq!(
        (loaded.config.policy.semantics, &loaded.config.policy.ranking),
        (Semantics::Kubelet, &Ranking::Kubernetes)
    );
    let allocatable = |it: &&crate::config::Threshold| !it.signal.as_str().starts_with("allocatable");
    let shown = loaded.config.policy.thresholds.iter().filter(allocatable).map(ToString::to_string);
    (loaded.kind, shown.collect::<Vec<_>>().join(" "))
}

fn refused(text: &str) -> String {
    MonitorConfig::parse("f", text).unwrap_err().to_string()
}

#[test]
fn flags_are_read_however_they_are_written() {
    let expected = "memory.available<500Mi nodefs.available<10%";
    for text in [
        "--eviction-hard=memory.available<500Mi,nodefs.available<10%",
        "memory.available<500Mi,nodefs.available<10%\n",
        "--eviction-hard memory.available<500Mi,nodefs.available<10%",
        "--eviction-hard='memory.available<500Mi,nodefs.available<10%' --v=2",
        "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/c.sock --eviction-hard=memory.available<500Mi,nodefs.available<10%\"",
        "[Service]\n# --eviction-hard=memory.available<1Gi\nExecStart=/usr/bin/kubelet \\\n  --fail-swap-on \\\n  --eviction-hard=memory.available<500Mi,nodefs.available<10% \\\n  --node-ip=::1\n",
        "- --eviction-hard=memory.available<500Mi,nodefs.available<10%\n- --fail-swap-on\n- --v=2\n",
        // A blank beside a comma does not end the list.
        "--eviction-hard=memory.available<500Mi, nodefs.available<10%",
        "KUBELET_ARGS='--eviction-hard=memory.available<500Mi , nodefs.available<10% --v=2'",
        "kubelet --v=2 --eviction-hard memory.available<500Mi ,nodefs.available<10% --max-pods=9",
        // canonical/k8s-operator#487: kubelet-extra-args of a charm.
        "system-reserved=memory=38Gi,cpu=12000m eviction-hard=memory.available<500Mi,nodefs.available<10%",
    ] {
        assert_eq!(read(text), (FileKind::KubeletFlags, expected.to_owned()), "{text}");
    }
    let soft = "kubelet --eviction-hard= --eviction-soft=memory.available<1Gi --eviction-soft-grace-period=memory.available=1m";
    assert_eq!(read(soft).1, "memory.available<1Gi", "an empty value replaces the defaults");
    assert_eq!(read("kubelet --max-pods=10").1.split(' ').count(), 5, "without the flag the defaults apply");
}

#[test]
fn mistakes_in_flags_are_named_with_their_place() {
    for (text, expected) in [
        (
            "kubelet \\\n  --eviction-hard=memory.available<500MB",
            "f:2: eviction-hard[0]: \"memory.available<500MB\": MB is no unit of Kubernetes; write 500Mi (steps of 1024) or 500M (steps of 1000)",
        ),
        (
            "--eviction-hard=memory.available=500Mi",
            "f:1: eviction-hard[0]: \"memory.available=500Mi\": malformed pair, expect string<string; write memory.available<500Mi",
        ),
        (
            "--eviction-hard=memory.avail<500Mi",
            "f:1: eviction-hard[0]: \"memory.avail<500Mi\": unsupported eviction signal memory.avail; did you mean memory.available?",
        ),
    ] {
        let found = refused(text);
        assert_eq!(found, expected);
    }
}

const INNER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard:
  memory.available: 500Mi
";

fn config_map(inner: &str) -> String {
    let block: String = inner.lines().map(|line| format!("    {line}\n")).collect();
    format!("apiVersion: v1\ndata:\n  kubelet: |\n{block}kind: ConfigMap\nmetadata:\n  name: kubelet-config\n")
}

#[test]
fn a_config_map_is_read() {
    let expected = (FileKind::Kubelet, "memory.available<500Mi".to_owned());
    assert_eq!(read(&config_map(INNER)), expected);
    let json = serde_json::json!({"kind": "ConfigMap", "data": {"config": INNER, "note": "nothing"}});
    assert_eq!(read(&serde_json::to_string_pretty(&json).unwrap()), expected);
    // The line is that of the file.
    let found = refused(&config_map(&INNER.replace("500Mi", "1,5Gi")));
    assert_eq!(
        found,
        "f:7: data.kubelet.evictionHard.memory.available: \"1,5Gi\": a comma is no decimal point; write 1.5Gi"
    );
    let found = refused(&config_map("a: [\n"));
    assert!(found.starts_with("f:") && found.contains("not valid YAML"), "{found}");
    let twice = serde_json::json!({"kind": "ConfigMap", "data": {"a": INNER, "b": INNER}});
    assert!(refused(&twice.to_string()).contains("or with several"));
}

#[test]
fn the_answer_of_configz_is_read() {
    let text = r#"{"kubeletconfig": {"syncFrequency": "1m0s", "evictionHard": {"memory.available": "500Mi", "nodefs.available": "10%"},
        "evictionPressureTransitionPeriod": "5m0s", "evictionMaxPodGracePeriod": 0, "systemReserved": null,
        "enforceNodeAllocatable": ["pods"], "localStorageCapacityIsolation": true, "failSwapOn": true}}"#;
    assert_eq!(read(text), (FileKind::Kubelet, "memory.available<500Mi nodefs.available<10%".to_owned()));
    let found = refused(&text.replace("500Mi", "500mb"));
    assert!(found.starts_with("f:1: kubeletconfig.evictionHard.memory.available: \"500mb\": mb is no unit"), "{found}");
}

#[test]
fn the_flags_in_a_configuration_of_k3s_are_read() {
    for (text, expected) in [
        ("kubelet-arg:\n- eviction-hard=memory.available<200Mi\n", "memory.available<200Mi"),
        ("server: x\nkubelet-arg: --eviction-hard=memory.available<200Mi\n", "memory.available<200Mi"),
        ("kubelet-arg+:\n- fail-swap-on\n- eviction-hard=memory.available<1Gi\n", "memory.available<1Gi"),
        (
            "kubelet-arg: [eviction-hard+=memory.available<200Mi]\n",
            "imagefs.available<5% memory.available<200Mi nodefs.available<5%",
        ),
        ("kubelet-arg: [max-pods=50]\n", "imagefs.available<5% nodefs.available<5%"),
    ] {
        assert_eq!(read(text), (FileKind::KubeletFlags, expected.to_owned()), "{text}");
    }
    let found = refused("node-name: a\nkubelet-arg:\n- eviction-hard=memory.available<200mb\n");
    assert!(found.starts_with("f:3: kubelet-arg.eviction-hard"), "{found}");
    for malformed in ["kubelet-arg: {eviction-hard: x}\n", "kubelet-arg:\n- eviction-hard: memory.available<1Gi\n"] {
        assert!(refused(malformed).contains("eviction-hard"), "{malformed}");
    }
    // A stated kind counts more than a stray field.
    assert_eq!(read(&format!("{INNER}kubelet-arg: [max-pods=50]\n")).0, FileKind::Kubelet);
    assert!(refused("kind: MonitorConfiguration\nkubelet-arg: [max-pods=50]\n").contains("kubelet-arg"));
    let loaded = MonitorConfig::parse("f", "kubelet-arg: [max-pods=50]\n").unwrap();
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert!(
        warnings.iter().any(|it| it.contains("k3s and RKE2 start the kubelet with --eviction-hard=")),
        "{warnings:?}"
    );
}

#[test]
fn the_fields_in_the_resource_of_openshift_4_are_read() {
    let inner: String = INNER.lines().skip(2).map(|line| format!("    {line}\n")).collect();
    let text = format!("kind: KubeletConfig\nspec:\n  kubeletConfig:\n{inner}");
    assert_eq!(read(&text), (FileKind::Kubelet, "memory.available<500Mi".to_owned()));
    let found = refused(&text.replace("500Mi", "500mb"));
    assert!(found.starts_with("f:5: spec.kubeletConfig.evictionHard.memory.available"), "{found}");
}

#[test]
fn the_agents_own_fields_in_a_kubelets_file_are_errors() {
    let found = refused(&format!("{INNER}mode: enforce\nprotected: []\ncgroupRoot: /\n"));
    let expected = [
        "f:5: mode: \"enforce\": a field of the agent's own kind, MonitorConfiguration; a kubelet has none; leave it out and start the \
         agent with --mode enforce, or write a MonitorConfiguration",
        "f:6: protected: a field of the agent's own kind, MonitorConfiguration; a kubelet has none; write it into a MonitorConfiguration",
    ];
    assert_eq!(found, expected.join("\n"));
}

#[test]
fn a_missing_colon_is_named_with_its_line() {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    for (text, expected) in [
        (
            "evictionHard: memory.available 100Mi\n",
            "f:3: evictionHard: \"memory.available 100Mi\": no colon with a blank after it is between the name and the value; write `memory.available: 100Mi` in a line below it, indented",
        ),
        ("evictionHard:\n  memory.available:100Mi\n", "f:4: evictionHard: \"memory.available:100Mi\": no colon"),
        ("evictionHard: {memory.available 100Mi}\n", "f:3: evictionHard: \"memory.available 100Mi\": no colon"),
        ("evictionHard: {memory.available<100Mi}\n", "f:3: evictionHard: \"memory.available<100Mi\": no colon"),
        (
            "evictionHard:\n  memory.available 100Mi\n  nodefs.available: 10%\n",
            "a colon with a blank after it is missing in line 4: write `memory.available: 100Mi`",
        ),
        (
            "evictionHard:\n  nodefs.available: 10%\n  memory.available 100Mi\nfailSwapOn: true\n",
            "a colon with a blank after it is missing in line 5: write `memory.available: 100Mi`",
        ),
    ] {
        let found = refused(&format!("{head}{text}"));
        assert!(found.contains(expected), "{text}:\n{found}");
    }
}
