use super::*;
use crate::config::MonitorConfig;

const HEAD: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn mended(text: &str) -> Mended {
    let mended = mend("f", text);
    let is_valid = MonitorConfig::parse("f", &mended.text).is_ok();
    assert_eq!(is_valid, mended.left.is_none(), "{text}\n{mended:?}");
    let again = mend("f", &mended.text);
    assert_eq!((again.text, again.changes), (mended.text.clone(), Vec::new()), "{text}: a second time changes nothing");
    mended
}

#[test]
fn mistakes_that_leave_no_doubt_are_mended() {
    for (before, after, said) in [
        (
            "evictonHard: {memory.available: 1Gi}",
            "evictionHard: {memory.available: 1Gi}",
            "line 3: evictonHard: evictonHard -> evictionHard",
        ),
        (
            "evictionHard:\n  memory.avail: 1Gi # x",
            "evictionHard:\n  memory.available: 1Gi # x",
            "memory.avail -> memory.available",
        ),
        ("evictionHard: {memory.available: 100mi}", "evictionHard: {memory.available: 100Mi}", "100mi -> 100Mi"),
        ("evictionHard: {memory.available: 100 Mi}", "evictionHard: {memory.available: 100Mi}", "100 Mi -> 100Mi"),
        (
            "evictionHard:\n  memory.available: \"100MB\"  # keep",
            "evictionHard:\n  memory.available: \"100Mi\"  # keep",
            "100MB -> 100Mi; steps of 1024 are assumed; in steps of 1000 it is 100M",
        ),
        ("evictionHard: {memory.available: <1Gi}", "evictionHard: {memory.available: 1Gi}", "<1Gi -> 1Gi"),
        ("evictionHard: {nodefs.available: 10 %}", "evictionHard: {nodefs.available: 10%}", "10 % -> 10%"),
        ("evictionHard: memory.available 1Gi", "evictionHard: {memory.available: 1Gi}", "-> {memory.available: 1Gi}"),
        ("evictionHard: {memory.available<1Gi}", "evictionHard: {memory.available: 1Gi}", "-> memory.available: 1Gi"),
        (
            "evictionHard:\n  memory.available 1Gi\n  nodefs.available: 1%",
            "evictionHard:\n  memory.available: 1Gi\n  nodefs.available: 1%",
            "line 4:",
        ),
        ("systemReserved: {memory: 1GB}", "systemReserved: {memory: 1Gi}", "1GB -> 1Gi"),
        ("kernel: {ringBuffer: 256kb}", "kernel: {ringBuffer: 256Ki}", "256kb -> 256Ki"),
        ("sampling: {ceiling: 5}", "sampling: {ceiling: 5s}", "5 -> 5s; seconds are assumed"),
        ("evictionPressureTransitionPeriod: 5min", "evictionPressureTransitionPeriod: 5m", "5min -> 5m"),
        ("evictionMaxPodGracePeriod: '30'", "evictionMaxPodGracePeriod: 30", "\"30\" -> 30"),
        ("kubernetes: {events: \"true\"}", "kubernetes: {events: true}", "kubernetes.events: \"true\" -> true"),
        ("mode: Observe", "mode: observe", "Observe -> observe"),
        ("protected: postgresql.service", "protected: [postgresql.service]", "-> [postgresql.service]"),
        (
            "mode: observe\nsemantics: kubelet\nmode: observe",
            "mode: observe\nsemantics: kubelet\n",
            "line 5: mode: removed",
        ),
        ("mode: observe\nmode: observe # why", "mode: observe\n# why", "line 4: mode: removed"),
        (
            "# Soft.\nevictionSoft: {memory.available: 1Gi}",
            "evictionSoftGracePeriod:\n  memory.available: 30s\n# Soft.\nevictionSoft: {memory.available: 1Gi}",
            "added `memory.available: 30s` to evictionSoftGracePeriod; 30s is a guess",
        ),
        (
            "evictionSoftGracePeriod:\n  pid.available: 1m\nevictionSoft: {memory.available: 1Gi, pid.available: 1k}",
            "evictionSoftGracePeriod:\n  memory.available: 30s\n  pid.available: 1m\nevictionSoft: {memory.available: 1Gi, pid.available: 1k}",
            "added",
        ),
        (
            "evictionSoftGracePeriod: {}\nevictionSoft: {memory.available: 1Gi, pid.available: 1k}",
            "evictionSoftGracePeriod: {pid.available: 30s, memory.available: 30s}\nevictionSoft: {memory.available: 1Gi, pid.available: 1k}",
            "added",
        ),
        (
            "pools:\n  - name: a\n    nodeSelector: {a: b}\n    evictionHrd: {memory.available: 1gb}",
            "pools:\n  - name: a\n    nodeSelector: {a: b}\n    evictionHard: {memory.available: 1Gi}",
            "line 6: pools[0].evictionHrd",
        ),
    ] {
        for line_break in ["\n", "\r\n"] {
            let with = |text: &str| format!("{HEAD}{text}\n").replace('\n', line_break);
            let mended = mended(&with(before));
            let after = with(after);
            // A removed last line leaves no empty one.
            let after =
                after.strip_suffix(&line_break.repeat(2)).map_or(after.clone(), |text| format!("{text}{line_break}"));
            assert_eq!((mended.text.as_str(), mended.left), (after.as_str(), None), "{before}");
            assert!(mended.changes.iter().any(|change| change.contains(said)), "{before}: {:?}", mended.changes);
        }
    }
}

#[test]
fn other_kinds_of_files_are_mended_too() {
    for (before, after) in [
        (
            "kind: KubeletConfiguration\nevictionHard: {}\n",
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard: {}\n",
        ),
        (
            "{\"kind\": \"KubeletConfiguration\", \"evictionSoft\": {\"memory.available\": \"1GB\"}}",
            "{\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\", \"kind\": \"KubeletConfiguration\", \"evictionSoftGracePeriod\": {\"memory.available\": \"30s\"}, \"evictionSoft\": {\"memory.available\": \"1Gi\"}}",
        ),
        (
            "kubelet --eviction-hard=memory.avail<500MB,nodefs.available=10% --v=2\n",
            "kubelet --eviction-hard=memory.available<500Mi,nodefs.available<10% --v=2\n",
        ),
        (
            "kubeletArguments:\n  eviction-hard:\n  - \"memory.available<1GB\"\n",
            "kubeletArguments:\n  eviction-hard:\n  - \"memory.available<1Gi\"\n",
        ),
        (
            "kind: ConfigMap\ndata:\n  kubelet: |\n    apiVersion: kubelet.config.k8s.io/v1beta1\n    kind: KubeletConfiguration\n    evictionHard:\n      memory.available: 100mb # x\n",
            "kind: ConfigMap\ndata:\n  kubelet: |\n    apiVersion: kubelet.config.k8s.io/v1beta1\n    kind: KubeletConfiguration\n    evictionHard:\n      memory.available: 100Mi # x\n",
        ),
    ] {
        let mended = mended(before);
        assert_eq!((mended.text.as_str(), &mended.left), (after, &None), "{before}: {mended:?}");
    }
}

#[test]
fn what_is_in_doubt_stays_and_is_reported() {
    for (text, left) in [
        ("mode: enforc", "line 3"),
        ("mode: observe\nmode: enforce", "given twice"),
        ("evictionHard: {memory.available: \"1,024Mi\"}", "a comma is no decimal point"),
        ("evictionHard: {memory.available: \">1Gi\"}", "quantities must match"),
        ("evictionHard: {memory.available: soon}", "quantities must match"),
        ("foo: 1", "unknown field"),
        ("evictionHard:\n\tmemory.available: 1Gi", "indent with spaces"),
        ("evictionHard: {memory.available: -1Gi}", "must be positive"),
        ("sampling: {floor: 10s, ceiling: 1s}", "the floor is longer"),
        ("evictionHard: {}\nevictionhard: {memory.available: 1Gi}", "evictionhard: unknown field"),
    ] {
        let text = format!("{HEAD}{text}\n");
        let mended = mended(&text);
        assert_eq!(mended.text, text);
        let errors = mended.left.map(|errors| errors.to_string()).unwrap_or_default();
        let left = left.replace("line 3", "f:3: mode: \"enforc\"");
        assert!(errors.contains(&left), "{text}: {errors}");
    }
    // Certain corrections are made beside it.
    let mended = mended(&format!("{HEAD}mode: enforc\nevictonHard: {{memory.available: 1GB}}\n"));
    assert_eq!(mended.text, format!("{HEAD}mode: enforc\nevictionHard: {{memory.available: 1Gi}}\n"));
    assert_eq!((mended.changes.len(), mended.left.map(|errors| errors.0.len())), (2, Some(1)));
}

#[test]
fn a_valid_file_stays_as_it_is() {
    let bytes =
        "\u{feff}# é\r\napiVersion: node-pressure-monitor/v1alpha1\r\nkind: MonitorConfiguration   \r\n\r\n\r\n";
    let warned = format!("{KUBELET}evictionhard: {{memory.available: 1Gi}}\nfailSwapOn: false");
    for text in [
        include_str!("../../../../config/monitor.yaml"),
        include_str!("../../../../tests/fixtures/config/kubelet.yaml"),
        include_str!("../../../../tests/fixtures/config/node-config.yaml"),
        bytes,
        &warned,
    ] {
        let mended = mended(text);
        assert_eq!((mended.text.as_str(), mended.changes.len(), mended.left), (text, 0, None));
    }
    let mended = mended(&bytes.replace("kind: Mon", "mode: Observe\r\nkind: Mon"));
    assert_eq!(mended.text, bytes.replace("kind: Mon", "mode: observe\r\nkind: Mon"));
}

proptest::proptest! {
    /// Mistakes of several kinds at once, in random places of a file.
    #[test]
    fn a_mended_file_is_valid_or_says_what_is_left(
        mistakes in proptest::collection::vec((0..8_usize, 0..4_usize), 0..6),
        noise in "[ -~\n]{0,40}",
        is_noisy in proptest::bool::weighted(0.2),
    ) {
        let names = ["memory.available", "nodefs.available", "imagefs.available", "pid.available"];
        let mut values = names.map(|name| (name.to_owned(), "10%".to_owned()));
        for (mistake, which) in mistakes {
            let (name, value) = &mut values[which];
            match mistake {
                0 => *value = "100mi".to_owned(),
                1 => *value = "100 MB".to_owned(),
                2 => *value = "\"1,5Gi\"".to_owned(),
                3 => *value = "< 5%".to_owned(),
                4 => { name.truncate(names[which].len() - 1); }
                5 => *name = names[which].to_uppercase(),
                6 => *value = "10 %   # percent".to_owned(),
                _ => *value = "'20GiB' # é".to_owned(),
            }
        }
        let lines: String = values.iter().map(|(name, value)| format!("  {name}: {value}\n")).collect();
        let noise = if is_noisy { noise } else { String::new() };
        let text = format!("{HEAD}evictionHard:\n{lines}evictionSoft: {{memory.available: 20%}}\n{noise}");
        let mended = mended(&text);
        proptest::prop_assert!(is_noisy || mended.left.is_none(), "{text}\n{mended:?}");
    }
}
