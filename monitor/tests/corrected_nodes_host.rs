//! Runs the agent in observe mode on nodes made of files whose figures are known to mislead: ZFS, CMA, protected cache, stalls at a
//! container's own limit, and names that are not UTF-8. Each is made after a public report; `tests/FIELD.md` lists them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "support/agent.rs"]
#[expect(dead_code, reason = "other tests ask the agent's pages")]
mod agent;

use agent::Agent;

const MIB: u64 = 1 << 20;
const STEP: Duration = Duration::from_millis(50);

/// A node with cgroup v2 and without Kubernetes.
struct Node {
    root: tempfile::TempDir,
    total_mib: u64,
}

impl Node {
    fn new(total_mib: u64) -> Self {
        let node = Self { root: tempfile::tempdir().unwrap(), total_mib };
        for (path, text) in [
            ("cg/cgroup.controllers", "cpu memory pids\n"),
            ("cg/cgroup.procs", ""),
            ("cg/memory.stat", "anon 0\nfile 0\ninactive_file 0\nactive_file 0\n"),
            ("proc/loadavg", "0 0 0 1/100 5\n"),
            ("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n"),
            ("proc/1/cgroup", "0::/init.scope\n"),
        ] {
            node.write(path, text.as_bytes());
        }
        node.write("proc/1/mountinfo", &fs::read("/proc/self/mountinfo").unwrap());
        std::os::unix::fs::symlink("/proc/self", node.path("proc/self")).unwrap();
        node
    }

    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        fs::create_dir_all(self.path(&path).parent().unwrap()).unwrap();
        fs::write(self.path(path), bytes).unwrap();
    }

    /// Makes a workload of one process with anonymous memory.
    fn workload(&self, name: &[u8], pid: u32, mib: u64) -> PathBuf {
        let cgroup = Path::new("cg").join(OsStr::from_bytes(name));
        let bytes = mib * MIB;
        for (file, text) in [
            ("cgroup.procs", format!("{pid}\n")),
            ("cgroup.events", "populated 1\nfrozen 0\n".to_owned()),
            ("cgroup.kill", String::new()),
            ("memory.current", format!("{bytes}\n")),
            (
                "memory.stat",
                format!("anon {bytes}\nfile 0\nkernel 0\nshmem 0\ninactive_file 0\nactive_file 0\nunevictable 0\n"),
            ),
            ("memory.min", "0\n".to_owned()),
            ("memory.low", "0\n".to_owned()),
            ("memory.max", "max\n".to_owned()),
            ("memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n".to_owned()),
        ] {
            self.write(cgroup.join(file), text.as_bytes());
        }
        let process = PathBuf::from(format!("proc/{pid}"));
        self.write(process.join("cgroup"), &[b"0::/", name, b"\n"].concat());
        self.write(process.join("comm"), b"a\n");
        self.write(process.join("oom_score_adj"), b"0\n");
        self.write(
            process.join("stat"),
            format!("{pid} (a) S 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 100 0\n").as_bytes(),
        );
        self.write(process.join("status"), b"Name:\ta\nUid:\t1000\t1000\t1000\t1000\nSigPnd:\t0\nShdPnd:\t0\n");
        cgroup
    }

    fn available(&self, mib: u64, more: &str) {
        let text =
            format!("MemTotal: {} kB\nMemFree: {1} kB\nMemAvailable: {1} kB\n{more}", self.total_mib << 10, mib << 10);
        self.over("proc/meminfo", &text);
    }

    /// Replaces a file by one write, so that a reader sees no half of one.
    fn over(&self, path: impl AsRef<Path>, text: &str) {
        fs::create_dir_all(self.path(&path).parent().unwrap()).unwrap();
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(self.path(path)).unwrap();
        file.write_all_at(format!("{text:\n<1024}").as_bytes(), 0).unwrap();
    }

    fn start(&self, rest: &str) -> Agent {
        let root = self.root.path().display();
        Agent::start(
            &format!(
                "cgroupRoot: {root}/cg\nprocRoot: {root}/proc\nkubernetes: {{api: off}}\nruntime: {{endpoint: none}}\n{rest}"
            ),
            "json",
        )
    }
}

fn records(agent: &Agent, event: &str) -> Vec<Value> {
    let log = agent.text("err");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["event"] == event).collect()
}

/// Calls `change` with the milliseconds that have passed, for `long`.
fn meanwhile(long: Duration, mut change: impl FnMut(u64)) {
    let begun = Instant::now();
    while begun.elapsed() < long {
        change(u64::try_from(begun.elapsed().as_millis()).unwrap());
        std::thread::sleep(STEP);
    }
}

/// Lets `MemAvailable` fall from `from` to `to` MiB in two seconds. Returns the workloads that would be evicted.
fn fall(node: &Node, config: &str, (from, to): (u64, u64), also: impl Fn(u64) -> String) -> Vec<String> {
    node.available(from, &also(0));
    let agent = node.start(config);
    meanwhile(Duration::from_secs(3), |passed| {
        let fallen = (from - to) * passed.min(2000) / 2000;
        node.available(from - fallen, &also(fallen));
    });
    records(&agent, "eviction").iter().map(|it| it["workload"].as_str().unwrap().to_owned()).collect()
}

/// Returns what `rank` says of the node as it is.
fn rank(node: &Node, config: &str) -> String {
    let root = node.root.path().display();
    let own = format!(
        "cgroupRoot: {root}/cg\nprocRoot: {root}/proc\nkubernetes: {{api: off}}\nruntime: {{endpoint: none}}\n"
    );
    let file = node.path("rank.yaml");
    fs::write(&file, agent::configuration(&format!("{own}{config}"))).unwrap();
    let output = std::process::Command::new(agent::PROGRAM).arg("rank").arg("--config").arg(file).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn arc(node: &Node, mib: u64, minimum_mib: u64, more: &str) {
    let text = format!(
        "12 1 0x01 147 39984 1920163911 654183491814\nname type data\nc_min 4 {}\nc_max 4 99\nsize 4 {}\n{more}",
        minimum_mib * MIB,
        mib * MIB
    );
    node.over("proc/spl/kstat/zfs/arcstats", &text);
}

/// openzfs/zfs#10255 (Proxmox), openzfs/zfs#15775, rfjakob/earlyoom#191: a file cache that grows is no shortage. openzfs/zfs#14686: one that
/// cannot be dropped is.
#[test]
fn the_cache_of_zfs_that_can_be_dropped_is_available() {
    let clean = |mib: u64| {
        format!(
            "mru_evictable_data 4 {}\nmru_evictable_metadata 4 0\nmfu_evictable_data 4 0\nmfu_evictable_metadata 4 0\n",
            mib * MIB
        )
    };
    let hard = "evictionHard: {memory.available: 10%}\n";
    let off = format!("{hard}quirks: {{arcIsUsed: true}}\n");
    for (name, config, clean, may_evict) in [
        ("Proxmox", hard, None, false),
        ("TrueNAS", hard, Some(clean(40_000)), false),
        ("all of it is referenced or dirty", hard, Some(clean(100)), true),
        ("switched off", off.as_str(), None, true),
    ] {
        let node = Node::new(65_536);
        node.workload(b"qemu.slice/100.scope", 101, 20_000);
        let more = clean.as_deref().unwrap_or_default();
        arc(&node, 28_000, 2_048, more);
        let evicted = fall(&node, config, (9_000, 6_000), |fallen| {
            arc(&node, 28_000 + fallen, 2_048, more);
            String::new()
        });
        assert_eq!(!evicted.is_empty(), may_evict, "{name}: {evicted:?}");
    }
}

/// raspberrypi/linux#5297: 512 MiB of CMA are free, and the OOM killer acts. raspberrypi/linux#4964: most of it is not handed out.
#[test]
fn free_cma_pages_are_not_available() {
    for (config, free_kib, may_evict) in [
        ("evictionHard: {memory.available: 100Mi}\n", 516_604, true),
        ("evictionHard: {memory.available: 100Mi}\n", 0, false),
        ("evictionHard: {memory.available: 100Mi}\nquirks: {cmaIsAvailable: true}\n", 516_604, false),
    ] {
        let node = Node::new(8_192);
        node.workload(b"app.service", 101, 4_000);
        let cma = format!("CmaTotal: 524288 kB\nCmaFree: {free_kib} kB\n");
        let evicted = fall(&node, config, (1_000, 520), |_| cma.clone());
        assert_eq!(!evicted.is_empty(), may_evict, "{config} {free_kib}: {evicted:?}");
    }
}

/// kubernetes/kubernetes#126485, #126498: `memory.min` of a Guaranteed pod keeps its cache from being reclaimed.
#[test]
fn cache_under_memory_min_is_not_available() {
    for (name, min, low, config, may_evict) in [
        ("memory.min", 300, 0, "", true),
        ("memory.low", 0, 300, "", false),
        ("memory.low, by choice", 0, 300, "quirks: {lowProtectedCacheIsAvailable: false}\n", true),
        ("no protection", 0, 0, "", false),
        ("switched off", 300, 0, "quirks: {protectedCacheIsAvailable: true}\n", false),
    ] {
        let node = Node::new(4_096);
        node.workload(b"hog.service", 101, 2_000);
        let cache = node.workload(b"cache.service", 102, 300);
        let bytes = 300 * MIB;
        node.write(
            cache.join("memory.stat"),
            format!("anon 0\nfile {bytes}\nshmem 0\ninactive_file {bytes}\nactive_file 0\n").as_bytes(),
        );
        node.write(cache.join("memory.min"), format!("{}\n", min * MIB).as_bytes());
        node.write(cache.join("memory.low"), format!("{}\n", low * MIB).as_bytes());
        let config = format!("evictionHard: {{memory.available: 100Mi}}\n{config}");
        let evicted = fall(&node, &config, (1_000, 350), |_| String::new());
        assert_eq!(!evicted.is_empty(), may_evict, "{name}: {evicted:?}");
    }
}

/// The cache is withheld from the node while its workload is there, and its end gives it back: the whole way from the reader of protections to
/// the choice. Without it the workload has 4 MiB to give, which is less than what is missing.
#[test]
fn the_end_of_a_workload_gives_its_protected_cache_back() {
    for (name, file, config) in [
        ("memory.min", "memory.min", ""),
        ("memory.low, by choice", "memory.low", "quirks: {lowProtectedCacheIsAvailable: false}\n"),
    ] {
        let node = Node::new(4_096);
        let cache = node.workload(b"cache.service", 102, 604);
        let stat = format!("anon {}\nfile {1}\nshmem 0\ninactive_file {1}\nactive_file 0\n", 4 * MIB, 600 * MIB);
        node.write(cache.join("memory.stat"), stat.as_bytes());
        node.write(cache.join(file), format!("{}\n", 604 * MIB).as_bytes());
        let config = format!("evictionHard: {{memory.available: 100Mi}}\n{config}");
        let evicted = fall(&node, &config, (720, 690), |_| String::new());
        assert_eq!(evicted, ["cache.service"], "{name}");
        let ranked = rank(&node, &config);
        assert!(ranked.contains("cache.service uses 604.0 MiB"), "{name}: {ranked}");
    }
}

fn pressure(stalled_us: u64) -> String {
    ["some", "full"]
        .map(|kind| format!("{kind} avg10=20.00 avg60=20.00 avg300=20.00 total={stalled_us:020}\n"))
        .concat()
}

/// siderolabs/talos#13746, #13895, #12526: a container that reclaims at its own limit makes the pressure of the whole node.
#[test]
fn stalls_at_an_own_limit_arm_no_threshold() {
    for (name, limit, has_cgroup_psi, may_arm) in [
        ("memory.max with PSI", Some("memory.max"), true, false),
        ("memory.high without PSI", Some("memory.high"), false, false),
        ("no limit", None, true, true),
    ] {
        let node = Node::new(8_192);
        node.workload(
            b"system.slice/docker-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.scope",
            101,
            1_500,
        );
        let tar = node.workload(b"tar.service", 102, 256);
        for kind in ["cpu", "io", "memory"] {
            node.over(format!("proc/pressure/{kind}"), &pressure(0));
        }
        node.available(2_048, "");
        let agent = node.start("evictionHard: {memory.available: 3Gi}\n");
        meanwhile(Duration::from_secs(5), |passed| {
            let hits = if limit.is_some() { passed } else { 0 };
            let key = limit.map_or("max", |file| file.trim_start_matches("memory."));
            let (high, max) = if key == "high" { (hits, 0) } else { (0, hits) };
            node.over(tar.join("memory.events"), &format!("low 0\nhigh {high}\nmax {max}\noom 0\noom_kill 0\n"));
            if has_cgroup_psi && limit.is_some() {
                node.over(tar.join("memory.pressure"), &pressure(passed * 900));
            }
            node.over("proc/pressure/memory", &pressure(passed * 900));
        });
        let armed = records(&agent, "threshold_armed");
        assert_eq!(!armed.is_empty(), may_arm, "{name}: {}", agent.text("err"));
    }
}

/// The owner of a delegated cgroup chooses the names in it. edgebitio/edgebit-agent#39 and GuillaumeGomez/sysinfo#1190: such a name makes
/// readers of `/proc` fail.
#[test]
fn a_workload_of_any_name_is_found_and_named() {
    for (name, shown) in [
        (b"\xff".as_slice(), r"\377"),
        (b"caf\xc3.service", r"caf\303.service"),
        (br"a\x2db.service", r"a\x2db.service"),
    ] {
        let node = Node::new(8_192);
        node.workload(name, 101, 4_000);
        node.write("proc/101/comm", b"process-name-t\xc3\n");
        node.write("proc/101/stat", b"101 (process-name-t\xc3) S 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 100 0\n");
        let evicted = fall(&node, "evictionHard: {memory.available: 500Mi}\n", (1_000, 300), |_| String::new());
        assert_eq!(evicted, [shown]);
    }
}
