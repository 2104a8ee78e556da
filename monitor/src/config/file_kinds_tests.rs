use std::time::Duration;

use super::*;
use crate::config::candidate_options::Candidates;
use crate::config::disk_options::{DiskUsageOptions, FilesystemPaths};
use crate::config::policy::{Mode, OomScores, Ranking, RankingKey};
use crate::config::quirks::{Quirk, Quirks, Semantics};
use crate::config::serving_options::{ServingOptions, TlsFiles};
use crate::config::threshold::{Threshold, ThresholdValue};
use crate::units::amount::Bytes;
use crate::units::signal::Signal;

const HEAD: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";

fn parse(body: &str) -> Result<MonitorConfig, String> {
    let loaded = MonitorConfig::parse("m.yaml", &format!("{HEAD}{body}"));
    loaded.map(|loaded| loaded.config).map_err(|errors| errors.to_string())
}

fn warnings(body: &str) -> Vec<String> {
    let loaded = MonitorConfig::parse("m.yaml", &format!("{HEAD}{body}")).unwrap();
    loaded.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn the_default_file_is_the_default() {
    let text = include_str!("../../../config/monitor.yaml");
    let parsed = MonitorConfig::parse("config/monitor.yaml", text);
    let parsed = parsed.map(|loaded| Loaded { written: Vec::new(), ..loaded });
    // A threshold that is written is not fitted to the machine.
    let config = MonitorConfig { has_default_hard: false, ..MonitorConfig::default() };
    let expected = Loaded { kind: FileKind::Monitor, what: None, config, warnings: Vec::new(), written: Vec::new() };
    assert_eq!(parsed, Ok(expected));
    // The default file must name every field, quirk and key.
    for field in monitor_configuration::FIELDS.split(' ') {
        let start = format!("\n{field}:");
        assert!(text.contains(&start), "{field} is missing from the default file");
    }
    for quirk in Quirk::ALL {
        let line = format!("\n#   {}: ", quirk.as_str());
        assert!(text.contains(&line), "{} is missing from the default file", quirk.as_str());
    }
    for key in RankingKey::ALL {
        assert!(text.contains(key.as_str()), "{} is missing from the default file", key.as_str());
    }
    assert_eq!(parse(""), Ok(MonitorConfig::default()));
}

#[test]
fn serving_options_are_read() {
    let config = parse(
        "metrics: {listen: \"0.0.0.0:9946\", tls: {certificate: /tls/tls.crt, key: /tls/tls.key}, bearerToken: {file: /tokens, review: true, audiences: [monitor], opaque: true}, \
         hostNames: [node1.example.com]}\n",
    )
    .unwrap();
    let tls = TlsFiles { certificate: "/tls/tls.crt".into(), key: "/tls/tls.key".into() };
    let expected = ServingOptions {
        tls: Some(tls),
        token_file: Some("/tokens".into()),
        token_review: true,
        audiences: vec!["monitor".to_owned()],
        opaque_tokens: true,
        host_names: vec!["node1.example.com".to_owned()],
    };
    assert_eq!((config.serving, config.listen.port()), (expected, 9946));
    let refused = parse("metrics: {tls: {certificate: /tls/tls.crt}}\n").unwrap_err().to_string();
    assert!(refused.contains("metrics.tls: key is missing; add `key: "), "{refused}");
    let warned = warnings("metrics: {listen: \"0.0.0.0:9946\", bearerToken: {review: true}}\n");
    assert!(
        warned.iter().any(|it| it.contains("metrics.bearerToken: without TLS the token can be read")),
        "{warned:?}"
    );
    assert_eq!(warnings("metrics: {bearerToken: {review: true}}\n"), [""; 0]);
}

#[test]
fn every_field_is_read() {
    let config = parse(
        r#"
mode: enforce
semantics: kubelet
quirks: {float32Percentages: false, negativeMaxGrace: true}
ranking: [qosClass, excess, usage]
oomScoreAdj: openshift3
evictionHard: {memory.available: 5%, nodefs.available: "10%"}
mergeDefaultEvictionSettings: true
evictionSoft: {memory.available: 300Mi}
evictionSoftGracePeriod: {memory.available: 1m30s}
evictionMinimumReclaim: {memory.available: 50Mi}
evictionMaxPodGracePeriod: -1
evictionPressureTransitionPeriod: 0s
localStorageCapacityIsolation: false
systemReserved: {memory: 1Gi, cpu: 500m}
kubeReserved: {pid: 1000}
enforceNodeAllocatable: [pods]
sampling: {floor: 2ms, ceiling: 5s, fastestRate: 1Gi}
pressureConditions: [{condition: A, scope: kubepods, resource: io, kind: some, set: {level: 20%, for: 1s}, clear: {level: 10%, for: 2s}}]
evictions: {coolDown: 0s, maxPerMinute: 60, killTimeout: 2s, reclaimDeadline: 150ms, actOnPresentPressure: true, waitForSwap: false, candidates: everything, services: ["pg@*.service"]}
protected: ["db*.service"]
kernel: {ringBuffer: 1Mi, stallThreshold: 0, doorbellInterval: 1ms}
filesystems: {nodefs: /n, containerfs: /c}
diskUsage: {cpuShare: 1%, pressureCpuShare: 50%}
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
    assert_eq!(
        shown,
        ["memory.available<5%", "nodefs.available<10%", "memory.available<300Mi", "allocatableMemory.available<5%"]
    );
    let mut quirks = Quirks::of(Semantics::Kubelet);
    quirks.set(Quirk::Float32Percentages, false);
    assert_eq!(config.policy.quirks, quirks);
    use RankingKey::{Excess, QosClass, Usage};
    assert_eq!(config.policy.ranking, Ranking::Custom(vec![QosClass, Excess, Usage]));
    assert_eq!(config.policy.oom_scores, OomScores::OPENSHIFT3);
    assert!(!config.policy.local_storage_isolation);
    let amounts = |list: &[(String, _)]| -> Vec<String> {
        list.iter().map(|(name, amount): &(String, crate::units::Quantity)| format!("{name}={amount}")).collect()
    };
    assert_eq!(amounts(&config.policy.reservations.system), ["memory=1Gi", "cpu=500m"]);
    assert_eq!(amounts(&config.policy.reservations.kube), ["pid=1k"]);
    assert!(config.policy.reservations.hard_thresholds);
    assert_eq!(
        config.policy.thresholds[2],
        Threshold {
            signal: Signal::MemoryAvailable,
            value: ThresholdValue::bytes(Bytes::from_mib(300)),
            grace_period: Duration::from_secs(90),
            min_reclaim: Some(ThresholdValue::bytes(Bytes::from_mib(50))),
        }
    );
    assert_eq!(config.policy.max_pod_grace_period, -1);
    assert_eq!(config.policy.pressure_transition_period, Duration::ZERO);
    assert_eq!(config.sampling.floor, Duration::from_millis(2));
    assert_eq!(config.sampling.ceiling, Duration::from_secs(5));
    assert_eq!(config.sampling.fastest_rate, Some(Bytes::from_gib(1)));
    assert_eq!(config.evictions.cool_down, Duration::ZERO);
    let filesystems = FilesystemPaths { node: Some("/n".into()), image: None, container: Some("/c".into()) };
    assert_eq!(config.filesystems, filesystems);
    assert_eq!(config.evictions.max_per_minute, 60);
    assert!(config.evictions.act_on_present_pressure && !config.evictions.wait_for_swap);
    assert_eq!(config.evictions.kill_timeout, Duration::from_secs(2));
    assert_eq!(config.pressure_conditions.len(), 1);
    assert_eq!(config.evictions.reclaim_deadline, Duration::from_millis(150));
    assert_eq!(config.candidates.candidates, Some(Candidates::Everything));
    assert!(config.candidates.services[0].matches("system.slice/pg@1.service"));
    let protects = |name| config.protected.iter().any(|pattern| pattern.matches(name));
    assert!(protects("system.slice/db1.service"));
    assert!(protects("init.scope"), "the built-in list stays");
    assert_eq!(config.kernel.ring_buffer, Bytes::from_mib(1));
    assert_eq!(config.kernel.stall_threshold, Duration::ZERO);
    assert_eq!(config.kernel.doorbell_interval, Duration::from_millis(1));
    assert_eq!(
        config.disk_usage,
        DiskUsageOptions { cpu_share: 0.01, pressure_cpu_share: 0.5, ..DiskUsageOptions::default() }
    );
    assert_eq!(config.listen.to_string(), "[::1]:1234");
    assert_eq!(config.lock_file, Path::new("/tmp/lock"));
    assert_eq!(config.cgroup_root, Path::new("/host/cgroup"));
    assert_eq!(config.proc_root, Path::new("/host/proc"));
}

#[test]
fn an_empty_eviction_hard_replaces_the_defaults() {
    let count = |body: &str| parse(body).unwrap().policy.hard_count;
    assert_eq!(count(""), 1);
    assert_eq!(count("evictionHard:\n"), 1);
    assert_eq!(count("evictionHard: null\n"), 1);
    assert_eq!(count("evictionHard: {}\n"), 0);
    assert_eq!(count("evictionHard: {memory.available: 0%}\n"), 0);
    // A field that is present replaces the defaults, and is not merged with them.
    let config = parse("evictionHard: {pid.available: 10%}\n").unwrap();
    assert_eq!(config.policy.thresholds.len(), 1);
    assert_eq!(config.policy.thresholds[0].signal, Signal::PidAvailable);
    let merged = |body: &str| count(&format!("mergeDefaultEvictionSettings: true\nevictionHard: {body}\n"));
    assert_eq!(
        [merged("{pid.available: 10%}"), merged("{}"), merged("{memory.available: 0%}"), merged("")],
        [2, 1, 0, 1]
    );
}

#[test]
fn hard_thresholds_count_for_all_pods_where_they_have_a_limit() {
    const MEMORY: &str = "memory.available<100Mi";
    const COPY: &str = "allocatableMemory.available<100Mi";
    for (body, expected, by_default) in [
        ("", &[MEMORY, COPY][..], true),
        ("enforceNodeAllocatable:\n", &[MEMORY, COPY], true),
        ("enforceNodeAllocatable: [pods]\n", &[MEMORY, COPY], false),
        ("enforceNodeAllocatable: []\n", &[MEMORY], false),
        ("enforceNodeAllocatable: [none]\n", &[MEMORY], false),
        ("enforceNodeAllocatable: [system-reserved]\n", &[MEMORY], false),
        ("semantics: kubelet\n", &[MEMORY], false),
        ("semantics: kubelet\nenforceNodeAllocatable: [pods]\n", &[MEMORY, COPY], false),
        ("evictionHard: {}\n", &[], true),
        // A threshold that is written for all pods replaces the copy.
        ("evictionHard: {memory.available: 100Mi, allocatableMemory.available: 0%}\n", &[MEMORY], false),
        (
            "evictionHard: {memory.available: 1Gi, allocatableMemory.available: 100Mi}\n",
            &[COPY, "memory.available<1Gi"],
            false,
        ),
    ] {
        let crate::config::Policy { thresholds, pods_by_default, .. } = parse(body).unwrap().policy;
        let thresholds: Vec<_> = thresholds.iter().map(ToString::to_string).collect();
        assert_eq!(
            (thresholds, pods_by_default),
            (expected.iter().map(ToString::to_string).collect(), by_default),
            "{body}"
        );
    }
}

#[test]
fn all_errors_are_reported_with_place_and_fix() {
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
m.yaml:13: evictions: must be a map, not a list; fields: coolDown, maxPerMinute, killTimeout, minimumGain, reclaimDeadline, actOnPresentPressure, waitForSwap, candidates, services
m.yaml:14: evictionMaxPodGracePeriod: "30": must be a number, not text; remove the quotes
m.yaml:15: metrics.listen: "localhost:9946": must be an IP address and a port; write e.g. 127.0.0.1:9946 or "[::1]:9946"
m.yaml:16: procRoot: "proc": must be an absolute path; write e.g. /proc
m.yaml:17: protected[0]: "": an empty pattern matches no workload; write e.g. "postgresql@*.service"
m.yaml:18: kernel.ringBuffer: "1Gi": more than 64Mi of kernel memory while the agent runs; write e.g. 256Ki
m.yaml:18: kernel.stallThreshold: "-1s": must not be negative; write e.g. 10ms"#;
    assert_eq!(errors, expected);
}

#[test]
fn wrong_types_are_errors() {
    for (body, message) in [
        ("mode: [observe]", "m.yaml:3: mode: must be a plain value, not a list; write observe or enforce"),
        ("evictionHard: 100Mi", r#"m.yaml:3: evictionHard: "100Mi": must be a map, not a plain value; fields: "#),
        (
            "evictionHard: {memory.available: {}}",
            "m.yaml:3: evictionHard.memory.available: must be a plain value, not a map; write e.g. 100Mi or 10%",
        ),
        (
            "evictionMaxPodGracePeriod: 30s",
            r#"m.yaml:3: evictionMaxPodGracePeriod: "30s": must be a whole number from -2147483648 to 2147483647; write e.g. 30, in seconds"#,
        ),
        ("evictions: {maxPerMinute: 0}", r#"m.yaml:3: evictions.maxPerMinute: "0": must be a whole number from 1 to"#),
        ("sampling: {fastestRate: -1}", r#"m.yaml:3: sampling.fastestRate: "-1": must be positive; write e.g. 6Gi"#),
        (
            "evictions: {candidates: all}",
            r#"m.yaml:3: evictions.candidates: "all": not one of the choices; write pods or everything"#,
        ),
        ("evictions: {services: [/a]}", r#"m.yaml:3: evictions.services[0]: "/a": workload names do not start with"#),
        ("protected: all", r#"m.yaml:3: protected: "all": must be a list of patterns, not a plain value"#),
        (
            "evictionHard: {memory.available: 1, memory.available: 2}",
            "m.yaml:3: evictionHard.memory.available: given twice, first in line 3; remove one of them",
        ),
        ("semantics: real", r#"m.yaml:3: semantics: "real": not one of the choices; write corrected or kubelet"#),
        ("podPidsLimit: 1", "m.yaml:3: podPidsLimit: unknown field; known here: apiVersion, kind, mode"),
        (
            "evictionHard: {memory.available: }",
            "m.yaml:3: evictionHard.memory.available: must be a plain value, not nothing; write e.g. 100Mi or 10%",
        ),
        (
            "evictionHard: {memory.available: 100.0%}",
            r#"m.yaml:3: evictionHard.memory.available: "100.0%": eviction percentage threshold memory.available is always met: 100.0%; to switch it off, write exactly 100%; else write e.g. 10%"#,
        ),
        ("quirks: {float32: true}", "m.yaml:3: quirks.float32: unknown quirk; known here: containerFsFirstPass"),
        (
            "quirks: {inodesMinusByte: true}",
            "m.yaml:3: quirks.inodesMinusByte: unknown quirk; did you mean inodesMinusBytes?",
        ),
        (
            r#"quirks: {inodesMinusBytes: "true"}"#,
            r#"m.yaml:3: quirks.inodesMinusBytes: "true": must be true or false, not text; remove the quotes"#,
        ),
        ("quirks: {inodesMinusBytes: 1}", r#"m.yaml:3: quirks.inodesMinusBytes: "1": must be true or false; write"#),
        ("ranking: []", "m.yaml:3: ranking: an empty list ranks no workload; write qos or kubernetes"),
        (
            "ranking: [usage, priority, usage]",
            r#"m.yaml:3: ranking[2]: "usage": given twice: the second has no effect; remove one of them"#,
        ),
        ("ranking: [age]", r#"m.yaml:3: ranking[0]: "age": not one of the choices; write preference or qosClass or"#),
        (
            "ranking: fair",
            r#"m.yaml:3: ranking: "fair": not one of the choices; write qos or kubernetes or openshift3 or openshift3.9"#,
        ),
        (
            "oomScoreAdj: linux",
            r#"m.yaml:3: oomScoreAdj: "linux": not one of the choices; write kubernetes or openshift3"#,
        ),
        (
            "systemReserved: {memory: -1}",
            r#"m.yaml:3: systemReserved.memory: "-1": a reserved amount cannot be negative"#,
        ),
        (
            "systemReserved: {disk: 1}",
            "m.yaml:3: systemReserved.disk: disk cannot be reserved; known here: cpu, memory",
        ),
        ("kubeReserved: {memory: 1Q}", r#"m.yaml:3: kubeReserved.memory: "1Q": quantities must match"#),
        (
            "enforceNodeAllocatable: pods",
            r#"m.yaml:3: enforceNodeAllocatable: "pods": must be a list of names, not a plain"#,
        ),
        (
            "enforceNodeAllocatable: [pod]",
            r#"m.yaml:3: enforceNodeAllocatable[0]: "pod": not one of the choices; write none"#,
        ),
        (
            "enforceNodeAllocatable: [none, pods]",
            r#"m.yaml:3: enforceNodeAllocatable[0]: "none": cannot stand with others; leave out either"#,
        ),
    ] {
        let errors = parse(body).unwrap_err();
        assert!(errors.starts_with(message), "{body}:\n{errors}\nexpected\n{message}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn probably_unintended_values_are_warnings() {
    assert_eq!(warnings("evictionHard: {}"), [""; 0]);
    for (body, expected) in [
        (
            "evictionHard: {pid.available: 10%}",
            "m.yaml:3: evictionHard: replaces all default thresholds; no longer in force: memory.available<100Mi; add them, set \
             mergeDefaultEvictionSettings: true, or switch them off by name with 0%",
        ),
        (
            "evictionSoft: {memory.available: 50Mi}\nevictionSoftGracePeriod: {memory.available: 30s}",
            r#"m.yaml:3: evictionSoft.memory.available: "50Mi": not above the hard threshold of 100Mi, which is met no later and evicts at once; raise the soft threshold, or leave it out"#,
        ),
        (
            "evictionSoft: {memory.available: 200Mi}\nevictionSoftGracePeriod: {memory.available: 0s}",
            r#"m.yaml:4: evictionSoftGracePeriod.memory.available: "0s": without a grace period the soft threshold is a hard one; write e.g. 1m30s"#,
        ),
        (
            "evictionSoftGracePeriod: {memory.available: 30s}",
            r#"m.yaml:3: evictionSoftGracePeriod.memory.available: "30s": has no effect: there is no soft threshold for this signal; add one to evictionSoft, or leave this out"#,
        ),
        (
            "evictionMinimumReclaim: {nodefs.available: 1Gi}",
            r#"m.yaml:3: evictionMinimumReclaim.nodefs.available: "1Gi": has no effect: there is no threshold for this signal; add a threshold, or leave this out"#,
        ),
        (
            "mergeDefaultEvictionSettings: true\nevictionHard: {containerfs.available: 1Gi}",
            r#"m.yaml:4: evictionHard.containerfs.available: "1Gi": has no effect: containerfs has the thresholds of the filesystem that it is on; write a threshold for nodefs or imagefs instead"#,
        ),
        (
            "evictionHard: {memory.available: 0.0%}",
            r#"m.yaml:3: evictionHard.memory.available: "0.0%": never met; to switch it off, write exactly 0%"#,
        ),
        (
            "semantics: kubelet\nevictionHard: {memory.available: 1e2%}",
            r#"m.yaml:4: evictionHard.memory.available: "1e2%": always met: it evicts one pod after another; to switch it off, write exactly 100%"#,
        ),
    ] {
        assert_eq!(warnings(body), [expected], "{body}");
    }
}
