//! A limit of local storage, from the pod's cgroup and its volume to the decision. The real agent runs in its own namespaces, with a test
//! directory in place of the kubelet's.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use node_pressure_monitor::node::Hierarchy;
use serde_json::Value;

/// Prints directly to stderr: the test harness shows output only of failed tests, and a skipped test must be visible.
macro_rules! tell {
    ($($text:tt)*) => {
        let _unheard = writeln!(std::io::stderr(), $($text)*);
    };
}

const UID: &str = "5e0c1a2b-0000-4000-8000-00000000beef";
const PODS: &str = r#"{"kind": "List", "items": [{"kind": "Pod",
    "metadata": {"name": "scratch", "namespace": "test", "uid": "5e0c1a2b-0000-4000-8000-00000000beef"},
    "spec": {"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Mi"}}]}}]}"#;
/// The script of process 1 of a PID namespace. It mounts the test's /var/lib for the agent, and the pod is a process that sleeps.
const STAGE: &str = r#"
    mount --bind "$DIRECTORY/lib" /var/lib || exit 77
    sleep 600 &
    echo $! > "$CGROUP/cgroup.procs"
    "$AGENT" run --config "$DIRECTORY/monitor.yaml" --log-format json 2> "$DIRECTORY/log" > "$DIRECTORY/out"
"#;

/// The cgroup and the files of a test. They are made before the agent starts, and removed at the end with all processes.
struct Stage {
    child: Child,
    cgroup: PathBuf,
    directory: tempfile::TempDir,
}

impl Stage {
    fn set() -> Option<Self> {
        let hierarchy = match Hierarchy::detect(Path::new("/sys/fs/cgroup")) {
            Ok(hierarchy) => hierarchy,
            Err(error) => {
                tell!("SKIPPED limits: {error}");
                return None;
            }
        };
        let parent = hierarchy.memory.join(format!("npm-test-limits-{}", std::process::id()));
        let cgroup = parent.join(format!("kubepods-besteffort-pod{}.slice", UID.replace('-', "_")));
        if let Err(error) = fs::create_dir(&parent) {
            tell!("SKIPPED limits: cannot make a cgroup: {error}");
            return None;
        }
        let _v1_has_none = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        fs::create_dir(&cgroup).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path().join(format!("lib/kubelet/pods/{UID}/volumes/kubernetes.io~empty-dir/tmp"));
        fs::create_dir_all(&volume).unwrap();
        fs::write(volume.join("data"), vec![1; 2 << 20]).unwrap();
        fs::write(directory.path().join("pods.json"), PODS).unwrap();
        let place = directory.path().display();
        let config = format!(
            "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nlockFile: {place}/lock\n\
             incidents: {{directory: {place}/incidents}}\nmetrics: {{listen: \"127.0.0.1:0\"}}\npods: {place}/pods.json\n"
        );
        fs::write(directory.path().join("monitor.yaml"), config).unwrap();
        let child = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", STAGE])
            .env("DIRECTORY", directory.path())
            .env("CGROUP", &cgroup)
            .env("AGENT", env!("CARGO_BIN_EXE_node-pressure-monitor"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self { child, cgroup, directory })
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Returns the first log record of an event.
    fn record(&self, event: &str) -> Option<Value> {
        let log = self.log();
        let mut records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.find(|record| record["event"] == event)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_gone = self.child.wait();
        for _ in 0..200 {
            let _busy = fs::remove_dir(&self.cgroup);
            if self.cgroup.parent().is_none_or(|parent| fs::remove_dir(parent).is_ok()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_pod_with_a_volume_above_its_limit_would_be_evicted() {
    let Some(mut stage) = Stage::set() else { return };
    let begun = Instant::now();
    let eviction = loop {
        if let Some(record) = stage.record("eviction") {
            break record;
        }
        if let Some(status) = stage.child.try_wait().unwrap() {
            assert!(stage.log().is_empty(), "the agent ended with {status}: {}", stage.log());
            tell!("SKIPPED limits: no namespaces of one's own here ({status})");
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing was decided; the log is\n{}", stage.log());
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(eviction["pod"], "test/scratch");
    assert_eq!(eviction["signal"], "emptydirfs.limit");
    assert_eq!((&eviction["kind"], &eviction["action"]), (&"limit".into(), &"would_kill".into()));
    let reason = eviction["reason"].as_str().unwrap();
    assert!(reason.contains("Usage of EmptyDir volume \"tmp\" exceeds the limit \"1Mi\""), "{reason}");
    assert!(eviction["measured_ms_ago"].as_f64().unwrap() < 120_000.0, "{eviction}");
    println!("decided {:.1} s after the start", begun.elapsed().as_secs_f64());
    let incident = || fs::read_dir(stage.directory.path().join("incidents")).is_ok_and(|it| it.count() > 0);
    assert!(incident(), "the journal has no incident");
}
