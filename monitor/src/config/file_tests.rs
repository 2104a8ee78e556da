use super::*;
use crate::config::threshold::{Threshold, ThresholdValue};

const HEAD: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";

fn parse(body: &str) -> Result<MonitorConfig, String> {
    MonitorConfig::parse("m.yaml", &format!("{HEAD}{body}")).map_err(|errors| errors.to_string())
}

#[test]
fn the_default_file_is_the_default() {
    let text = include_str!("../../../config/monitor.yaml");
    let parsed = MonitorConfig::parse("config/monitor.yaml", text);
    assert_eq!(parsed, Ok(MonitorConfig::default()));
    // Written out in full, so that the file cannot fall behind when a field is added.
    for field in FIELDS {
        let start = format!("\n{field}:");
        assert!(text.contains(&start), "{field} is missing from the default file");
    }
    assert_eq!(parse(""), Ok(MonitorConfig::default()));
}

#[test]
fn every_field_is_read() {
    let config = parse(
        r#"
mode: enforce
semantics: kubelet
ranking: qos
evictionHard: {memory.available: 5%, nodefs.available: "10%"}
evictionSoft: {memory.available: 300Mi}
evictionSoftGracePeriod: {memory.available: 1m30s}
evictionMinimumReclaim: {memory.available: 50Mi}
evictionMaxPodGracePeriod: 30
evictionPressureTransitionPeriod: 0s
sampling: {floor: 2ms, ceiling: 5s, fastestRate: 1Gi}
evictions: {coolDown: 0s, maxPerMinute: 60, killTimeout: 2s}
protected: ["db*.service"]
kernel: {ringBuffer: 1Mi, stallThreshold: 0, doorbellInterval: 1ms}
metrics: {listen: "[::1]:1234"}
lockFile: /tmp/lock
cgroupRoot: /host/cgroup
procRoot: /host/proc
"#,
    )
    .unwrap();
    assert_eq!(config.mode, Mode::Enforce);
    assert_eq!(config.policy.semantics, Semantics::Kubelet);
    let shown: Vec<_> = config.policy.thresholds.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["memory.available<5%", "nodefs.available<10%", "memory.available<300Mi"]);
    assert_eq!(
        config.policy.thresholds[2],
        Threshold {
            signal: Signal::MemoryAvailable,
            value: ThresholdValue::bytes(Bytes::from_mib(300)),
            grace_period: Duration::from_secs(90),
            min_reclaim: Some(ThresholdValue::bytes(Bytes::from_mib(50))),
        }
    );
    assert_eq!(config.policy.max_pod_grace_period, 30);
    assert_eq!(config.policy.pressure_transition_period, Duration::ZERO);
    assert_eq!(config.sampling.floor, Duration::from_millis(2));
    assert_eq!(config.sampling.ceiling, Duration::from_secs(5));
    assert_eq!(config.sampling.fastest_rate, Some(Bytes::from_gib(1)));
    assert_eq!(config.evictions.cool_down, Duration::ZERO);
    assert_eq!(config.evictions.max_per_minute, 60);
    assert_eq!(config.evictions.kill_timeout, Duration::from_secs(2));
    let protects = |name| config.protected.iter().any(|pattern| pattern.matches(name));
    assert!(protects("system.slice/db1.service"));
    assert!(protects("init.scope"), "the built-in list stays");
    assert_eq!(config.kernel.ring_buffer, Bytes::from_mib(1));
    assert_eq!(config.kernel.stall_threshold, Duration::ZERO);
    assert_eq!(config.kernel.doorbell_interval, Duration::from_millis(1));
    assert_eq!(config.listen.to_string(), "[::1]:1234");
    assert_eq!(config.lock_file, Path::new("/tmp/lock"));
    assert_eq!(config.cgroup_root, Path::new("/host/cgroup"));
    assert_eq!(config.proc_root, Path::new("/host/proc"));
}

#[test]
fn absent_null_and_empty_hard_thresholds() {
    let count = |body| parse(body).unwrap().policy.thresholds.len();
    assert_eq!(count(""), 1);
    assert_eq!(count("evictionHard:\n"), 1);
    assert_eq!(count("evictionHard: null\n"), 1);
    assert_eq!(count("evictionHard: {}\n"), 0);
    assert_eq!(count("evictionHard: {memory.available: 0%}\n"), 0);
    // Given at all, the defaults are replaced and not merged.
    let config = parse("evictionHard: {pid.available: 10%}\n").unwrap();
    assert_eq!(config.policy.thresholds.len(), 1);
    assert_eq!(config.policy.thresholds[0].signal, Signal::PidAvailable);
}

#[test]
fn all_errors_at_once_each_with_its_place_and_fix() {
    let errors = parse(
        "mode: force
evictonHard: {}
evictionSoft:
  memory.available: 100Mx
  memory.avail: 1
  nodefs.available: 10%
evictionSoftGracePeriod:
  memory.available: 30
sampling: {floor: 20s, ceiling: 0s}
mode: observe
evictions: [1]
evictionMaxPodGracePeriod: \"30\"
metrics: {listen: localhost:9946}
procRoot: proc
protected: ['', x]
kernel: {ringBuffer: 1Gi, stallThreshold: -1s}
",
    )
    .unwrap_err();
    let expected = r#"m.yaml:3: mode: "force": not one of the choices; write observe or enforce
m.yaml:4: evictonHard: unknown field; did you mean evictionHard?
m.yaml:6: evictionSoft.memory.available: "100Mx": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'; write e.g. 100Mi or 10%
m.yaml:7: evictionSoft.memory.avail: unsupported eviction signal memory.avail; did you mean memory.available?
m.yaml:8: evictionSoft.nodefs.available: "10%": grace period must be specified for the soft eviction threshold nodefs.available; add `nodefs.available: 30s` to evictionSoftGracePeriod
m.yaml:10: evictionSoftGracePeriod.memory.available: "30": time: missing unit in duration "30"; write e.g. 1m30s
m.yaml:11: sampling: the floor is longer than the ceiling; lower sampling.floor or raise sampling.ceiling
m.yaml:11: sampling.ceiling: "0s": must be longer than zero; write e.g. 10s
m.yaml:12: mode: given twice, first in line 3; remove one of them
m.yaml:13: evictions: must be a map, not a list; fields: coolDown, maxPerMinute, killTimeout
m.yaml:14: evictionMaxPodGracePeriod: "30": must be a number, not text; remove the quotes
m.yaml:15: metrics.listen: "localhost:9946": must be an IP address and a port; write e.g. 127.0.0.1:9946 or "[::1]:9946"
m.yaml:16: procRoot: "proc": must be an absolute path; write e.g. /proc
m.yaml:17: protected[0]: "": an empty pattern matches no workload; write e.g. "postgresql@*.service"
m.yaml:18: kernel.ringBuffer: "1Gi": more than 64Mi of kernel memory held for good; write e.g. 256Ki
m.yaml:18: kernel.stallThreshold: "-1s": must not be negative; write e.g. 10ms"#;
    assert_eq!(errors, expected);
}

#[test]
fn wrong_types_are_named() {
    for (body, message) in [
        ("mode: [observe]", "m.yaml:3: mode: must be a plain value, not a list; write observe or enforce"),
        ("evictionHard: 100Mi", r#"m.yaml:3: evictionHard: "100Mi": must be a map, not a plain value; fields: "#),
        (
            "evictionHard: {memory.available: {}}",
            "m.yaml:3: evictionHard.memory.available: must be a plain value, not a map; write e.g. 100Mi or 10%",
        ),
        (
            "evictionMaxPodGracePeriod: -1",
            r#"m.yaml:3: evictionMaxPodGracePeriod: "-1": must be a whole number from 0 to 4294967295; write e.g. 30, in seconds"#,
        ),
        ("evictions: {maxPerMinute: 0}", r#"m.yaml:3: evictions.maxPerMinute: "0": must be a whole number from 1 to"#),
        ("sampling: {fastestRate: -1}", r#"m.yaml:3: sampling.fastestRate: "-1": must be positive; write e.g. 6Gi"#),
        ("protected: all", r#"m.yaml:3: protected: "all": must be a list of patterns, not a plain value"#),
        (
            "evictionHard: {memory.available: 1, memory.available: 2}",
            "m.yaml:3: evictionHard.memory.available: given twice, first in line 3; remove one of them",
        ),
        ("semantics: real", r#"m.yaml:3: semantics: "real": not one of the choices; write corrected or kubelet"#),
        ("kubeReserved: {}", "m.yaml:3: kubeReserved: unknown field; known here: apiVersion, kind, mode"),
    ] {
        let errors = parse(body).unwrap_err();
        assert!(errors.starts_with(message), "{body}:\n{errors}\nexpected\n{message}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn other_kinds_are_refused_by_name() {
    for (text, message) in [
        (
            "",
            "f:1: the file is empty; start with `apiVersion: node-pressure-monitor/v1alpha1` and `kind: MonitorConfiguration`",
        ),
        ("- a", "f:1: the file must be a map of fields, not a list; start with"),
        (
            "mode: observe",
            "f:1: apiVersion: missing; add `apiVersion: node-pressure-monitor/v1alpha1`\nf:1: kind: missing; add `kind: MonitorConfiguration`",
        ),
        (
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard: {}",
            r#"f:2: kind: "KubeletConfiguration": KubeletConfiguration files are not read yet; write the same eviction fields in a MonitorConfiguration, see config/monitor.yaml"#,
        ),
        (
            "kubeletArguments:\n  eviction-hard: [memory.available<500Mi]\n",
            r#"f:1: kubeletArguments: "kubeletArguments": OpenShift 3 node configuration files are not read yet; write"#,
        ),
        (
            "apiVersion: node-pressure-monitor/v2\nkind: MonitorConfiguration",
            r#"f:1: apiVersion: "node-pressure-monitor/v2": not one of the choices; write node-pressure-monitor/v1alpha1"#,
        ),
        ("a: [", "f:2: not valid YAML: "),
    ] {
        let errors = MonitorConfig::parse("f", text).unwrap_err().to_string();
        assert!(errors.starts_with(message), "{text}:\n{errors}");
    }
}

#[test]
fn unreadable_files_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.yaml");
    let errors = MonitorConfig::load(&missing).unwrap_err().to_string();
    assert_eq!(
        errors,
        format!(
            "{}: cannot be read: No such file or directory (os error 2); check the path and its permissions, or leave --config out for the defaults",
            missing.display()
        )
    );
    let binary = folder.path().join("binary.yaml");
    std::fs::write(&binary, [0xff, 0xfe]).unwrap();
    let errors = MonitorConfig::load(&binary).unwrap_err().to_string();
    assert!(errors.contains("not UTF-8"), "{errors}");
    let good = folder.path().join("good.yaml");
    std::fs::write(&good, HEAD).unwrap();
    assert_eq!(MonitorConfig::load(&good), Ok(MonitorConfig::default()));
}

/// Every broken file ends in a message, never in a panic: a thousand ways to damage the default file.
#[test]
fn damaged_files_are_refused_calmly() {
    let whole = include_str!("../../../config/monitor.yaml");
    let pieces =
        ["\n", ": ", "- ", "[", "{", "}", "\"", "'", "%", "1e99", "-", "&a ", "*a", "!x ", "µ", "\t", "~", "0x1p9999%"];
    // A linear congruential generator: the same damage in every run.
    let mut state: u64 = 1;
    let mut random = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % limit
    };
    let mut refused = 0;
    for _ in 0..1000 {
        let mut text = whole.to_owned();
        for _ in 0..=random(4) {
            let mut at = random(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            match random(3) {
                0 => text.insert_str(at, pieces[random(pieces.len())]),
                1 => text.truncate(at.max(1)),
                _ => drop(text.remove(at)),
            }
        }
        if let Err(errors) = MonitorConfig::parse("f", &text) {
            refused += 1;
            assert!(errors.0.iter().all(|error| error.line > 0 && !error.reason.is_empty()), "{text}");
        }
    }
    assert!((100..1000).contains(&refused), "{refused}");
}
