//! The binary with `check-config`: its output and its exit status.
#![expect(clippy::unwrap_used, reason = "a command that cannot be run fails its test")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn check(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_node-pressure-monitor"))
        .arg("check-config")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The command does not read its input when it refuses the arguments.
    let _unread = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn texts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn answer(arguments: &[&str], input: &str) -> Value {
    let (status, stdout, stderr) = texts(&check(arguments, input));
    assert_eq!(status, 0, "{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

#[test]
fn thresholds_are_printed() {
    let text = format!(
        "{KUBELET}evictionHard: {{memory.available: 0.5Gi, nodefs.available: 15%, pid.available: \"1E3\"}}
evictionSoft: {{memory.available: 10%}}
evictionSoftGracePeriod: {{memory.available: 1.5s}}
evictionMinimumReclaim: {{memory.available: \"1.500\", nodefs.available: 5%}}
"
    );
    let answer = answer(&["--output", "json", "-"], &text);
    let threshold = |signal, quantity: Value, percentage: Value, grace: Value, reclaim: Value| {
        json!({"signal": signal, "operator": "LessThan", "quantity": quantity, "percentage": percentage,
               "gracePeriodSeconds": grace, "minReclaim": reclaim})
    };
    let null = Value::Null;
    assert_eq!(
        answer["thresholds"],
        json!([
            threshold("memory.available", json!("512Mi"), null.clone(), json!(0), json!({"quantity": "1500m"})),
            threshold("nodefs.available", null.clone(), json!(0.15), json!(0), json!({"percentage": 0.05})),
            threshold("pid.available", json!("1e3"), null.clone(), json!(0), null.clone()),
            threshold("memory.available", null.clone(), json!(0.1), json!(1.5), json!({"quantity": "1500m"})),
            threshold("allocatableMemory.available", json!("512Mi"), null, json!(0), json!({"quantity": "1500m"})),
        ])
    );
    assert_eq!(answer["kind"], "KubeletConfiguration");
    assert_eq!(answer["semantics"], "kubelet");
    assert_eq!(answer["ranking"]["name"], "kubernetes");
    assert_eq!(answer["ranking"]["keys"]["memory"], json!(["exceedsRequests", "priority", "usageAboveRequest"]));
    assert_eq!(answer["ranking"]["keys"]["pids"], json!(["priority", "usage"]));
    assert_eq!(answer["quirks"]["float32Percentages"], true);
    assert_eq!(answer["evictionPressureTransitionPeriodSeconds"], 300);
    assert_eq!(answer["warnings"][0]["line"], 3);
}

#[test]
fn each_kind_of_file_has_its_own_rules() {
    let file = |path| repository(path).display().to_string();
    for (path, kind, semantics, ranking, guaranteed, thresholds) in [
        ("config/monitor.yaml", "MonitorConfiguration", "corrected", "qos", -997, 2),
        ("tests/fixtures/config/kubelet.yaml", "KubeletConfiguration", "kubelet", "kubernetes", -997, 5),
        ("tests/fixtures/config/node-config.yaml", "NodeConfig", "kubelet", "openshift3", -998, 7),
    ] {
        let answer = answer(&["--output=json", &file(path)], "");
        assert_eq!(answer["kind"], kind);
        assert_eq!(answer["semantics"], semantics);
        assert_eq!(answer["ranking"]["name"], ranking);
        assert_eq!(answer["oomScoreAdj"]["guaranteed"], guaranteed);
        assert_eq!(answer["thresholds"].as_array().unwrap().len(), thresholds, "{path}");
        let (status, table, _) = texts(&check(&[&file(path)], ""));
        assert_eq!(status, 0);
        for line in [kind, "THRESHOLD", "memory.available<", "ranking         ", "reserved        "] {
            assert!(table.contains(line), "{line}\n{table}");
        }
    }
}

#[test]
fn node_allocatable_is_printed() {
    let text = "kubeletArguments:\n  system-reserved: [\"memory=2Gi\"]\n  eviction-hard: [\"memory.available<.5Gi\"]\n";
    let arguments = ["--output", "json", "--capacity", "memory=10Gi,cpu=4", "-"];
    let answer = answer(&arguments, text);
    assert_eq!(answer["allocatable"]["memory"]["allocatable"], "8Gi");
    assert_eq!(answer["allocatable"]["cpu"]["allocatable"], "4");
    let (status, table, _) = texts(&check(&["--capacity", "memory=10Gi", "-"], text));
    assert_eq!(status, 0);
    assert!(table.contains("allocatable     memory 8Gi of 10Gi (system 2Gi, kube 0, hard threshold 0)"), "{table}");
    let (status, _, stderr) = texts(&check(&["--capacity", "memory=1Gi", "-"], text));
    assert_eq!(status, 1);
    assert!(stderr.contains("Resource \"memory\" has a reservation of 2Gi but capacity of 1Gi."), "{stderr}");
}

#[test]
fn warnings_do_not_change_the_status() {
    let (status, stdout, stderr) = texts(&check(&["-"], &format!("{KUBELET}failSwapOn: false\n")));
    assert_eq!(status, 0);
    assert!(
        stderr.starts_with("warning: standard input:3: failSwapOn: \"false\": swap may be used on this node"),
        "{stderr}"
    );
    assert!(stdout.starts_with("standard input: a valid KubeletConfiguration\n"), "{stdout}");
}

#[test]
fn errors_go_to_stderr_with_status_1() {
    let text = format!("{KUBELET}evictionSoft: {{memory.available: 1Gi}}\nevictionMaxPodGracePeriod: soon\n");
    let (status, stdout, stderr) = texts(&check(&["--output", "json", "-"], &text));
    assert_eq!((status, stdout.as_str()), (1, ""));
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{stderr}");
    assert!(
        lines[1]
            .starts_with("standard input:3: evictionSoft.memory.available: \"1Gi\": grace period must be specified")
    );
    assert!(lines[2].starts_with("standard input:4: evictionMaxPodGracePeriod: \"soon\": must be a whole number"));
}

#[test]
fn wrong_usage_and_unreadable_files_exit_with_2() {
    for arguments in [
        &["/nonexistent.yaml"][..],
        &["/"],
        &[],
        &["--output", "xml", "-"],
        &["--capacity", "memory", "-"],
        &["--capacity", "memory=-1", "-"],
        &["--capacity", "memory=10Gi,memory=20Gi", "-"],
        &["--capacity", "memory=10Gi", "--capacity", "memory=10Gi", "-"],
    ] {
        let (status, stdout, stderr) = texts(&check(arguments, ""));
        assert_eq!((status, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(!stderr.is_empty());
    }
    let (status, stdout, _) = texts(&check(&["--help"], ""));
    assert_eq!(status, 0);
    assert!(stdout.contains("Exit status: 0"), "{stdout}");
}

#[test]
fn an_unwritable_stderr_keeps_the_answer() {
    let directory = tempfile::tempdir().unwrap();
    let swap = directory.path().join("swap.yaml");
    std::fs::write(&swap, format!("{KUBELET}failSwapOn: false\n")).unwrap();
    let run = |file: &str, stderr: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_node-pressure-monitor"));
        command.args(["check-config", file]).stdout(Stdio::piped()).stderr(stderr).output().unwrap()
    };
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    for stderr in [&full as &dyn Fn() -> Stdio, &closed] {
        let (status, stdout, _) = texts(&run(swap.to_str().unwrap(), stderr()));
        assert_eq!(status, 0);
        assert!(stdout.contains(": a valid KubeletConfiguration\n"), "{stdout}");
        assert_eq!(run("/nonexistent", stderr()).status.code(), Some(2));
    }
}

#[test]
fn a_directory_as_standard_input_is_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_node-pressure-monitor"));
    let directory = File::open(std::env::temp_dir()).unwrap();
    let (status, _, stderr) = texts(&command.args(["check-config", "-"]).stdin(directory).output().unwrap());
    assert_eq!(status, 2);
    assert!(stderr.contains("standard input: cannot be read: Is a directory"), "{stderr}");
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let text = format!("{KUBELET}systemReserved: {{\"a\\e[31mb\\nc\": 1}}\nevictionHard: {{\"x\\e]0;y\": 1}}\n");
    let (_, stdout, stderr) = texts(&check(&["-"], &text));
    assert!(!stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'), "{stdout:?} {stderr:?}");
    assert!(stderr.contains('\u{fffd}'), "{stderr:?}");
}

/// Returns the warnings about thresholds: line, field, value, reason and fix.
fn warnings(arguments: &[&str], thresholds: &str) -> Vec<String> {
    let text = format!("{KUBELET}mergeDefaultEvictionSettings: true\nevictionHard: {{{thresholds}}}\n");
    let answer = answer(&[&["--output", "json"], arguments, &["-"]].concat(), &text);
    let warning = |it: &Value| {
        let text = |field: &str| it[field].as_str().unwrap_or("?").to_owned();
        format!("{}: {}: {}: {}; {}", it["line"], text("field"), text("value"), text("reason"), text("fix"))
    };
    answer["warnings"].as_array().unwrap().iter().map(warning).collect()
}

#[test]
fn quantities_that_cannot_be_meant_get_a_warning() {
    for (thresholds, expected) in [
        ("nodefs.inodesFree: 100Mi", Some("104,857,600 inodes: Ki, Mi and Gi are for bytes; write e.g. 5%")),
        ("imagefs.inodesFree: 1Ki", Some("1,024 inodes")),
        ("pid.available: 2Ki", Some("2,048 process ids")),
        ("nodefs.inodesFree: 100k", None),
        ("pid.available: '1000'", None),
        (
            "memory.available: '10'",
            Some("less than 1 MiB: the node has nothing left before the threshold is met; write e.g. 10Mi or 10%"),
        ),
        ("nodefs.available: 500Ki", Some("less than 1 MiB")),
        ("memory.available: 1Mi", None),
        ("memory.available: 51%", Some("above half of the capacity")),
        ("memory.available: 50%", None),
    ] {
        let found = warnings(&[], thresholds);
        assert_eq!(found.len(), usize::from(expected.is_some()), "{thresholds}: {found:?}");
        let signal = thresholds.split(':').next().unwrap();
        let place = format!("4: evictionHard.{signal}: ");
        assert!(found.iter().all(|it| it.starts_with(&place) && it.contains(expected.unwrap())), "{found:?}");
    }
    let minimum = format!("{KUBELET}evictionMinimumReclaim: {{nodefs.inodesFree: 1Mi}}\n");
    assert!(texts(&check(&["-"], &minimum)).2.contains("1,048,576 inodes"));
}

#[test]
fn a_capacity_judges_the_thresholds() {
    for (capacity, thresholds, is_warned) in [
        ("memory.available=24Gi", "memory.available: 900Gi", true),
        ("memory=24Gi", "memory.available: 20Gi", true),
        ("memory=24Gi", "memory.available: 12Gi", false),
        ("nodefs.inodesFree=6M", "nodefs.inodesFree: 4M", true),
        ("ephemeral-storage=100Gi", "nodefs.available: 60Gi", true),
        ("memory=24Gi,memory.available=48Gi", "memory.available: 20Gi", false),
    ] {
        let found = warnings(&["--capacity", capacity], thresholds);
        assert_eq!(found.len(), usize::from(is_warned), "{capacity} {thresholds}: {found:?}");
        let is_meant = |it: &String| it.starts_with("4: evictionHard.") && it.contains("--capacity has");
        assert!(found.iter().all(is_meant), "{found:?}");
    }
}

#[test]
fn a_kubelets_flags_config_map_and_configz_are_read() {
    let map = json!({"kind": "ConfigMap", "data": {"kubelet": format!("{KUBELET}evictionHard: {{memory.available: 500Mi}}\n")}});
    let configz = json!({"kubeletconfig": {"evictionHard": {"memory.available": "500Mi"}}});
    for (input, kind) in [
        ("--eviction-hard=memory.available<500Mi".to_owned(), "KubeletFlags"),
        ("memory.available<500Mi".to_owned(), "KubeletFlags"),
        (map.to_string(), "KubeletConfiguration"),
        (configz.to_string(), "KubeletConfiguration"),
    ] {
        let answer = answer(&["--output", "json", "-"], &input);
        assert_eq!((&answer["kind"], &answer["semantics"]), (&json!(kind), &json!("kubelet")), "{input}");
        assert_eq!(answer["thresholds"][0]["quantity"], "500Mi", "{input}");
    }
    for (input, sentence) in [
        (
            "evictionHard: {memory.available: 100MB}",
            ":3: evictionHard.memory.available: \"100MB\": MB is no unit of Kubernetes; write 100Mi",
        ),
        ("evictionHard: {memory.available: '1,5Gi'}", ": a comma is no decimal point; write 1.5Gi"),
        (
            "evictionHard: {memory.available 1Gi}",
            ": no colon with a blank after it is between the name and the value; write `memory.available: 1Gi`",
        ),
        ("mode: enforce", ":3: mode: \"enforce\": a field of the agent's own kind, MonitorConfiguration"),
    ] {
        let (status, _, stderr) = texts(&check(&["-"], &format!("{KUBELET}{input}\n")));
        assert!(status == 1 && stderr.contains(sentence), "{input}: {stderr}");
    }
}

#[test]
fn a_mended_file_is_printed_and_its_changes_are_named() {
    let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
    let text = format!("{head}# Why.\nevictonHard:\n  memory.available: 100MB  # as before\n");
    let (status, stdout, stderr) = texts(&check(&["--fix", "-"], &text));
    assert_eq!(status, 0, "{stderr}");
    assert_eq!(stdout, format!("{head}# Why.\nevictionHard:\n  memory.available: 100Mi  # as before\n"));
    let lines: Vec<&str> = stderr.lines().collect();
    let expected = [
        "node-pressure-monitor: standard input: line 4: evictonHard: evictonHard -> evictionHard",
        "node-pressure-monitor: standard input: line 5: evictionHard.memory.available: 100MB -> 100Mi; steps of 1024 are assumed; in steps of \
         1000 it is 100M",
    ];
    assert_eq!(lines, expected);
    assert_eq!(texts(&check(&["-"], &stdout)).0, 0);
    // Mistakes that are left keep their places, and the exit status is 1.
    let (status, stdout, stderr) = texts(&check(&["--fix", "-"], &text.replace("# Why.", "mode: enforc")));
    assert_eq!(status, 1);
    assert!(stdout.contains("mode: enforc\nevictionHard:\n  memory.available: 100Mi"), "{stdout}");
    assert!(
        stderr.contains("standard input:3: mode: \"enforc\": not one of the choices; write observe or enforce"),
        "{stderr}"
    );
    let ours = repository("config/monitor.yaml");
    let (status, stdout, stderr) = texts(&check(&["--fix", &ours.display().to_string()], ""));
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert_eq!(stdout, std::fs::read_to_string(&ours).unwrap());
    for arguments in [&["--fix"][..], &["--fix", "--output", "json", "-"], &["--fix", "/nowhere"], &["--schema", "-"]] {
        assert_eq!(texts(&check(arguments, "")).0, 2, "{arguments:?}");
    }
}

#[test]
fn the_schema_is_that_of_the_repository() {
    let (status, stdout, _) = texts(&check(&["--schema"], ""));
    assert_eq!((status, stdout), (0, std::fs::read_to_string(repository("config/monitor.schema.json")).unwrap()));
}

/// kubernetes-sigs/karpenter#2852: 5% beside 500Mi, for which no word was said.
#[test]
fn a_capacity_compares_shares_with_quantities() {
    let file = format!(
        "{KUBELET}systemReserved: {{memory: 1Gi}}\nevictionHard: {{memory.available: 5%, nodefs.available: 10%, imagefs.available: 15%}}\n\
         evictionSoft: {{memory.available: 500Mi}}\nevictionSoftGracePeriod: {{memory.available: 1m}}\n"
    );
    for (capacity, expected) in [
        ("memory=4Gi", &[][..]),
        ("memory=16Gi", &["5:evictionSoft.memory.available"]),
        ("memory.available=64Gi", &["5:evictionSoft.memory.available"]),
        ("memory=4Gi,ephemeral-storage=100Gi", &["4:evictionHard.nodefs.available"]),
        ("memory=4Gi,nodefs.available=100Gi,imagefs.available=50Gi", &[]),
        ("memory=64Gi,nodefs.available=100Gi", &["5:evictionSoft.memory.available", "4:evictionHard.nodefs.available"]),
    ] {
        let found = answer(&["--output", "json", "--capacity", capacity, "-"], &file);
        let warnings = found["warnings"].as_array().unwrap().iter();
        let of_capacity = warnings.filter(|it| it["reason"].as_str().unwrap().contains("never acts"));
        let places = of_capacity.map(|it| format!("{}:{}", it["line"], it["field"].as_str().unwrap()));
        assert_eq!(places.collect::<Vec<_>>(), expected, "{capacity}: {found}");
    }
    let (status, table, stderr) = texts(&check(&["--capacity", "memory=64Gi,nodefs.available=100Gi", "-"], &file));
    assert_eq!(status, 0, "{stderr}");
    for line in ["AT THIS CAPACITY", "3.2 GiB of 64.0 GiB", "15.0 GiB of 100.0 GiB", "500.0 MiB of 64.0 GiB"] {
        assert!(table.contains(line), "{line}\n{table}");
    }
    let found = answer(&["--output", "json", "--capacity", "memory=64Gi", "-"], &file);
    assert_eq!(
        (&found["thresholds"][0]["signal"], &found["thresholds"][2]["amount"]),
        (&json!("imagefs.available"), &Value::Null)
    );
    assert_eq!(found["thresholds"][1]["amount"], json!(3_435_973_888_u64), "{found}");
}

#[test]
fn a_kubelets_files_are_read_together() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).display().to_string();
    let write = |name: &str, text: &str| {
        std::fs::create_dir_all(place.path().join(name).parent().unwrap()).unwrap();
        std::fs::write(place.path().join(name), text).unwrap();
    };
    write("etc/k.yaml", &format!("{KUBELET}evictionHard: {{memory.available: 100Mi, nodefs.available: 10%}}\n"));
    write("etc/d/40-nodeadm.conf", &format!("{KUBELET}evictionHard: {{memory.available: 5%}}\n"));
    write("running.flags", "kubelet --config=/etc/k.yaml --config-dir=/etc/d --max-pods=9\n");
    write("more.flags", "--eviction-hard=pid.available<10%\n");
    let (file, directory, root) = (path("etc/k.yaml"), path("etc/d"), place.path().display().to_string());
    let shown = |arguments: &[&str]| {
        let found = answer(&[&["--output", "json"], arguments].concat(), "");
        let own = found["thresholds"].as_array().unwrap().iter();
        let own = own.filter(|it| !it["signal"].as_str().unwrap().starts_with("allocatable"));
        own.map(|it| format!("{}<{}{}", it["signal"].as_str().unwrap(), it["quantity"], it["percentage"]))
            .collect::<Vec<_>>()
    };
    let merged = ["memory.available<null0.05", "nodefs.available<null0.1"];
    assert_eq!(shown(&[&file, "--config-dir", &directory]), merged);
    assert_eq!(shown(&[&path("running.flags"), "--root", &root]), merged);
    assert_eq!(shown(&[&file, "--config-dir", &directory, "--flags", &path("more.flags")]), ["pid.available<null0.1"]);
    let (status, stdout, stderr) = texts(&check(&[&path("running.flags")], ""));
    assert_eq!((status, stdout.as_str()), (1, ""));
    for named in ["config: \"/etc/k.yaml\": names a file", "config-dir: \"/etc/d\": names a directory", "--root"] {
        assert!(stderr.contains(named), "{named}\n{stderr}");
    }
    let ours = repository("config/monitor.yaml").display().to_string();
    let (status, _, stderr) = texts(&check(&[&ours, "--config-dir", &directory], ""));
    assert!(status == 1 && stderr.contains("drop-ins and flags belong to a KubeletConfiguration"), "{stderr}");
    assert_eq!(texts(&check(&[&file, "--config-dir", &path("none")], "")).0, 1);
}
