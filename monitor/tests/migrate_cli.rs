//! The binary with `migrate`: what it answers for the configurations of distributions, and that both files mean the same.
#![expect(clippy::unwrap_used, reason = "a command that cannot be run fails its test")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_node-pressure-monitor");

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

/// The configurations of kubelets among the fixtures.
fn sources() -> Vec<PathBuf> {
    let all = |directory: &str| fs::read_dir(fixtures().join(directory)).unwrap().map(|entry| entry.unwrap().path());
    let is_source = |path: &PathBuf| {
        path.extension().is_none_or(|it| it != "jsonl")
            && !path.ends_with("pods.json")
            && !path.ends_with("summary.json")
    };
    let mut sources: Vec<PathBuf> = all("kubelets").chain(all("chapter")).filter(is_source).collect();
    sources.sort();
    assert!(sources.len() >= 20, "{sources:?}");
    sources
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

fn stdout(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A node with two pods on which first memory, then a disk, then its inodes, then process ids run out, and all come back.
fn trace(is_dedicated: bool) -> String {
    let mib = 1_u64 << 20;
    let mut trace = String::new();
    for step in 0..240_u64 {
        let at = format!("2026-01-01T{:02}:{:02}:{:02}Z", step / 360, step / 6 % 60, step % 6 * 10);
        // From plenty to nothing in 24 steps, then a rest.
        let left = |turn: u64| match step.checked_sub(turn * 50) {
            Some(passed @ 0..24) => 1.0 - f64::from(u32::try_from(passed).unwrap()) / 24.0,
            Some(24..27) => 0.01,
            _ => 0.9,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and small")]
        let of = |capacity: f64, turn: u64| (capacity * left(turn)) as u64;
        let memory = of(10240.0, 0) * mib;
        let used = 10240 * mib - memory;
        let disk = |turn: u64| {
            json!({"time": at, "availableBytes": of(102_400.0, turn) * mib, "capacityBytes": 102_400 * mib,
            "inodesFree": of(6_000_000.0, turn + 1), "inodes": 6_000_000})
        };
        let pod = |name: &str, uid: &str, share: u64| {
            json!({"podRef": {"name": name, "namespace": "shop", "uid": uid},
            "containers": [{"name": "main", "memory": {"time": at, "workingSetBytes": used / share},
                "rootfs": {"usedBytes": (102_400 * mib - of(102_400.0, 1) * mib) / share, "inodesUsed": 100 * step / share},
                "logs": {"usedBytes": 5 * mib, "inodesUsed": 2}}],
            "memory": {"time": at, "workingSetBytes": used / share},
            "ephemeral-storage": {"usedBytes": (102_400 * mib - of(102_400.0, 1) * mib) / share, "inodesUsed": 100 * step / share},
            "process_stats": {"process_count": 10 * share}})
        };
        let object = |name: &str, uid: &str, resources: serde_json::Value| {
            json!({"metadata": {"name": name, "namespace": "shop", "uid": uid},
            "spec": {"terminationGracePeriodSeconds": 30, "containers": [{"name": "main", "resources": resources}]},
            "status": {"phase": "Running", "qosClass": if resources == json!({}) { "BestEffort" } else { "Burstable" }}})
        };
        let line = json!({"time": at,
            "node": {"capacity": {"memory": "10Gi"}, "allocatable": {"memory": "9Gi"}, "dedicatedImageFs": is_dedicated, "splitImageFs": false},
            "summary": {"node": {"nodeName": "n", "memory": {"time": at, "availableBytes": memory, "usageBytes": used, "workingSetBytes": used},
                    "fs": disk(1), "runtime": {"imageFs": disk(1), "containerFs": disk(1)},
                    "systemContainers": [{"name": "pods", "memory": {"time": at, "availableBytes": memory, "workingSetBytes": used}}],
                    "rlimit": {"time": at, "maxpid": 32768, "curproc": 32768 - of(32768.0, 3)}},
                "pods": [pod("web", "uid-1", 2), pod("job", "uid-2", 3)]},
            "pods": [object("web", "uid-1", json!({"requests": {"memory": "2Gi"}})), object("job", "uid-2", json!({}))]});
        writeln!(trace, "{line}").unwrap();
    }
    trace
}

#[test]
fn a_trace_is_answered_equally_for_both_files() {
    let place = tempfile::tempdir().unwrap();
    let traces = [false, true].map(|is_dedicated| {
        let path = place.path().join(format!("{is_dedicated}.jsonl"));
        fs::write(&path, trace(is_dedicated)).unwrap();
        path.display().to_string()
    });
    let mut evictions = 0;
    for source in sources() {
        let (source, file) = (source.display().to_string(), place.path().join("monitor.yaml").display().to_string());
        assert!(run(&["migrate", &source, "--output-file", &file, "--force"]).status.success(), "{source}");
        for trace in &traces {
            let [before, after] = [&source, &file].map(|config| stdout(run(&["simulate", "--config", config, trace])));
            assert!(
                before == after,
                "{source}, {trace}: {:?}",
                before.lines().zip(after.lines()).find(|(a, b)| a != b)
            );
            evictions += before.lines().filter(|line| !line.contains("\"evict\":null")).count();
        }
    }
    assert!(evictions > 100, "only {evictions} evictions were compared");
}

#[test]
fn check_config_accepts_each_file_and_warns_of_nothing_unexplained() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("monitor.yaml").display().to_string();
    for source in sources() {
        for semantics in ["kubelet", "corrected"] {
            let name = source.display().to_string();
            let migrated = stdout(run(&["migrate", "--semantics", semantics, &name]));
            fs::write(&file, &migrated).unwrap();
            let checked = run(&["check-config", &file]);
            assert_eq!(checked.status.code(), Some(0), "{name}\n{}", String::from_utf8_lossy(&checked.stderr));
            let comments: Vec<&str> = migrated
                .lines()
                .filter_map(|line| Some(line.split_once('#')?.1))
                .flat_map(str::split_whitespace)
                .collect();
            let comments = comments.join(" ");
            for warning in String::from_utf8(checked.stderr).unwrap().lines() {
                // The reason follows the file, the line, the field and the value.
                let reason = warning.split(": ").skip(2).map(str::trim).find(|part| part.contains(' '));
                let reason = reason.unwrap_or_else(|| panic!("{warning}"));
                let reason = reason.split("; ").next().unwrap_or_default();
                assert!(comments.contains(reason), "{name}: {warning}\n{migrated}");
            }
        }
    }
}

#[test]
fn a_file_that_exists_is_kept_without_force() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("monitor.yaml").display().to_string();
    let source = fixtures().join("kubelets/gke.yaml").display().to_string();
    let migrate = |more: &[&str]| run(&[&["migrate", &source, "--output-file", &file], more].concat());
    let first = migrate(&[]);
    assert_eq!((first.status.code(), first.stdout.len()), (Some(0), 0));
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(written, stdout(run(&["migrate", &source])));
    fs::write(&file, "mine").unwrap();
    let second = migrate(&[]);
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8(second.stderr).unwrap().contains("exists already, and is kept; replace it with --force"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(migrate(&["--force"]).status.code(), Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    for arguments in [&["migrate", "--force", &source][..], &["migrate", "/nowhere"], &["migrate"]] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
    assert_eq!(migrate(&["--output-file", "/nowhere/x"]).status.code(), Some(2), "twice");
    assert_eq!(run(&["migrate", &source, "--output-file", "/nowhere/x"]).status.code(), Some(1));
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/monitor.yaml").display().to_string();
    let refused = run(&["migrate", &ours]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("already a MonitorConfiguration"));
}

/// k3s-io/k3s#10399, rancher/rke2#4200: the thresholds are in a file that the flags name.
#[test]
fn a_file_that_flags_name_is_migrated_too_or_named() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().display().to_string();
    fs::create_dir_all(place.path().join("etc/rancher/k3s")).unwrap();
    let header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let kubelet = format!("{header}evictionHard:\n  memory.available: 500Mi\n  nodefs.available: 3%\nmaxPods: 9\n");
    fs::write(place.path().join("etc/rancher/k3s/kubelet.yaml"), kubelet).unwrap();
    let own = place.path().join("config.yaml").display().to_string();
    fs::write(&own, "kubelet-arg:\n  - \"config=/etc/rancher/k3s/kubelet.yaml\"\n  - \"max-pods=150\"\n").unwrap();
    let refused = run(&["migrate", &own]);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{stderr}");
    assert!(stderr.contains("\"/etc/rancher/k3s/kubelet.yaml\": names a file of the kubelet's settings"), "{stderr}");
    let migrated = stdout(run(&["migrate", &own, "--root", &root]));
    for line in [
        "  memory.available: 500Mi  # line 4 of /etc/rancher/k3s/kubelet.yaml\n",
        "  nodefs.available: 3%  # line 5 of /etc/rancher/k3s/kubelet.yaml\n",
        "  imagefs.available: 5%  # line 1 of 00-k3s-defaults.conf\n",
    ] {
        assert!(migrated.contains(line), "{line}\n{migrated}");
    }
    assert!(!migrated.contains("the kubelet's default\n  "), "{migrated}");
}

#[test]
fn a_misspelt_name_is_named_and_not_called_unimportant() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("k.yaml").display().to_string();
    let header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    for (name, meant) in
        [("evictonHard", "evictionHard"), ("evictionSofts", "evictionSoft"), ("systemReserve", "systemReserved")]
    {
        fs::write(&file, format!("{header}{name}: {{memory.available: 1Gi}}\nmaxPods: 9\n")).unwrap();
        let output = run(&["migrate", &file]);
        let stderr = String::from_utf8(output.stderr.clone()).unwrap();
        let expected = format!("{name}: an unknown field, which has no effect; did you mean {meant}?");
        assert!(stderr.contains(&expected), "{stderr}");
        let migrated = stdout(output);
        assert!(migrated.contains("because they do not concern evictions: maxPods."), "{migrated}");
        assert!(migrated.contains(&format!("- {name} (line 3): an unknown field")), "{migrated}");
    }
}

/// The chapter's example: of 10Gi, 8Gi are left for pods, because OpenShift 3 does not subtract hard thresholds.
#[test]
fn what_is_left_for_pods_is_named_where_it_changes() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("node-config.yaml").display().to_string();
    for (system, hard, before, after) in
        [("2Gi", ".5Gi", "8Gi", "7680Mi"), ("1Gi", "1Gi", "9Gi", "8Gi"), ("1536Mi", "25%", "8704Mi", "6Gi")]
    {
        let text = format!(
            "kubeletArguments:\n  system-reserved: [\"memory={system}\"]\n  eviction-hard: [\"memory.available<{hard}\"]\n"
        );
        fs::write(&file, text).unwrap();
        let migrated = stdout(run(&["migrate", &file]));
        let comments: Vec<&str> =
            migrated.lines().filter_map(|line| Some(line.split_once('#')?.1)).flat_map(str::split_whitespace).collect();
        let comments = comments.join(" ");
        let expected = format!(
            "of 10Gi of memory it leaves {before}. A present kubelet subtracts them, and so does check-config --capacity for this file: {after}."
        );
        assert!(comments.contains(&expected), "{expected}\n{migrated}");
    }
    // A present kubelet subtracts them itself.
    fs::write(&file, "kubelet --system-reserved=memory=2Gi --eviction-hard=memory.available<.5Gi").unwrap();
    assert!(!stdout(run(&["migrate", &file])).contains("does not subtract"));
}
