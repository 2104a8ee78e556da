//! The table of scenarios. The guest, which runs them, and xtask (through `#[path]`) share this file, so that each name is
//! written once. The file uses only `std`, and both sides use every item.

/// One scenario that `vm-guest` can run.
#[derive(Debug)]
pub struct Entry {
    /// The scenario's name in `npm.scenarios=` and on the `@@` lines.
    pub name: &'static str,
    /// The scenario's description in one line.
    pub about: &'static str,
    /// The cgroup layouts on which the scenario makes sense: "v1", "v2".
    pub cgroups: &'static [&'static str],
    /// The guest that the scenario needs.
    pub guest: Guest,
    /// The boots of `cargo xtask test` that run the scenario.
    pub in_test: InTest,
    /// The limit of one run's wall time; generous, because the software emulation is slow.
    pub timeout_seconds: u32,
    /// The program of the host that looks at the agent in the guest. Without it the scenario is skipped.
    pub viewer: Option<Viewer>,
}

/// A program that runs beside the guest, and connects to the agent in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Viewer {
    /// A Prometheus that scrapes the agent every two seconds, with the rules of `config/prometheus`.
    Prometheus,
    /// A Chromium, which the guest drives over its DevTools protocol.
    Browser,
}

impl Viewer {
    /// Returns the word of the kernel command line with the viewer's port at [`HOST`].
    pub const fn key(self) -> &'static str {
        match self {
            Self::Prometheus => "npm.prometheus",
            Self::Browser => "npm.browser",
        }
    }
}

/// The host in the network of the guest, as QEMU's user network has it.
pub const HOST: [u8; 4] = [10, 0, 2, 2];
/// The guest in that network.
pub const GUEST: [u8; 4] = [10, 0, 2, 15];
/// The port of the agent that viewers look at.
pub const VIEWED_PORT: u16 = 9946;
/// The word of the kernel command line with the port of the host's loopback address that leads to that agent.
pub const FORWARDED: &str = "npm.forwarded";
/// The word with the port at [`HOST`] that keeps pictures of the status page. Present only if the developer asked for pictures.
pub const PICTURES: &str = "npm.pictures";

/// The parts of a guest besides the kernel and the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guest {
    /// A guest without other programs. It boots in a few seconds.
    Plain,
    /// A guest with systemd, containerd, and disks for the data of both.
    Containerd,
    /// As `Containerd`, with a Kubernetes cluster of one node: control plane and kubelet.
    Cluster,
}

/// The boots of `cargo xtask test` that run a scenario, and the number of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InTest {
    /// One run in each boot whose layout the scenario supports.
    Everywhere,
    /// One run on each kernel. The boots are chosen so that this also covers each layout.
    EachKernel,
    /// The reference boot only. For scenarios that run long or need the machine for themselves.
    Reference,
    /// In a long test this many runs in the reference boot; one run in every other boot.
    EverywhereAndReference(u32),
    /// In a long test this many runs in the reference boot; one run on the other kernel.
    EachKernelAndReference(u32),
    /// In a long test this many runs, without another boot beside them, and one run on each other kernel. Otherwise as
    /// `EachKernel`. In the guest with containers this many runs there.
    Repeated(u32),
    /// One run, in the guest with containers.
    Containers,
    /// One run, in a long test.
    Long,
}

/// The purpose of a boot of `cargo xtask test`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    /// The newest kernel on cgroup v2, alone on the machine. For scenarios that run long, count events or measure time.
    Reference,
    /// The same kernel and layout as the reference, beside another boot. For all other scenarios.
    Remainder,
    /// Another kernel on the other layout.
    Contrast,
    /// The kernel of `Contrast` on the layout of the reference.
    Between,
    /// The newest kernel on cgroup v2 with systemd and containerd.
    Containers,
    /// The newest kernel on cgroup v2 with a Kubernetes cluster. Long tests only.
    Cluster,
}

impl Boot {
    pub const fn guest(self) -> Guest {
        match self {
            Self::Containers => Guest::Containerd,
            Self::Cluster => Guest::Cluster,
            Self::Reference | Self::Remainder | Self::Contrast | Self::Between => Guest::Plain,
        }
    }
}

impl Entry {
    /// Returns this entry's text for `npm.scenarios=` in a boot of the test suite, if the scenario belongs there. Only a long
    /// test repeats scenarios.
    pub fn expression(&self, cgroup: &str, boot: Boot, is_long: bool) -> Option<String> {
        let supported = self.cgroups.contains(&cgroup) && self.guest == boot.guest();
        let often = match self.in_test {
            InTest::EverywhereAndReference(times) | InTest::EachKernelAndReference(times) | InTest::Repeated(times)
                if is_long =>
            {
                times
            }
            InTest::Reference | InTest::EverywhereAndReference(_) | InTest::EachKernelAndReference(_) => 1,
            InTest::Everywhere | InTest::EachKernel | InTest::Repeated(_) | InTest::Containers | InTest::Long => 0,
        };
        let is_everywhere = match self.in_test {
            InTest::Everywhere | InTest::EverywhereAndReference(_) => true,
            InTest::Repeated(_) => is_long,
            _ => false,
        };
        let times = match boot {
            Boot::Reference => often,
            Boot::Remainder => u32::from(often == 0),
            Boot::Contrast => u32::from(!matches!(self.in_test, InTest::Reference)),
            Boot::Between => u32::from(is_everywhere),
            Boot::Containers => often.max(1),
            Boot::Cluster => u32::from(is_long),
        };
        match times {
            _ if !supported || self.in_test == InTest::Long && !is_long => None,
            0 => None,
            1 => Some(self.name.to_owned()),
            n => Some(format!("{}*{n}", self.name)),
        }
    }
}

const BOTH: &[&str] = &["v1", "v2"];
const V2: &[&str] = &["v2"];

const fn entry(
    name: &'static str,
    cgroups: &'static [&'static str],
    in_test: InTest,
    timeout_seconds: u32,
    about: &'static str,
) -> Entry {
    Entry { name, about, cgroups, guest: Guest::Plain, in_test, timeout_seconds, viewer: None }
}

const fn viewed_by(viewer: Viewer, name: &'static str, timeout_seconds: u32, about: &'static str) -> Entry {
    Entry { viewer: Some(viewer), ..entry(name, V2, EachKernel, timeout_seconds, about) }
}

const fn with_containerd(name: &'static str, in_test: InTest, timeout_seconds: u32, about: &'static str) -> Entry {
    Entry { name, about, cgroups: V2, guest: Guest::Containerd, in_test, timeout_seconds, viewer: None }
}

const fn with_cluster(name: &'static str, timeout_seconds: u32, about: &'static str) -> Entry {
    Entry { name, about, cgroups: BOTH, guest: Guest::Cluster, in_test: InTest::Long, timeout_seconds, viewer: None }
}

use InTest::{
    Containers, EachKernel, EachKernelAndReference, Everywhere, EverywhereAndReference, Long, Reference, Repeated,
};

/// Every scenario, in the order in which a boot runs them.
#[rustfmt::skip]
pub const CATALOGUE: &[Entry] = &[
    entry("ramp", BOTH, Everywhere, 60, "a BestEffort ramp beside Guaranteed and Burstable bystanders: the right one dies, no OOM kill"),
    entry("innocent", BOTH, EachKernel, 60, "the fattest process is a Guaranteed one within its request: it lives"),
    entry("swarm", BOTH, EverywhereAndReference(10), 90, "200 small processes of one pod exceed its request: all go in one act, no bystander is touched"),
    entry("cache", BOTH, EachKernel, 90, "hot mapped page cache crosses the working-set figure and not MemAvailable: nothing dies"),
    entry("soft", BOTH, EachKernel, 60, "soft threshold: SIGTERM after the grace period, SIGKILL after evictionMaxPodGracePeriod"),
    entry("soft-hard", BOTH, EachKernel, 60, "a hard threshold crossed during a soft eviction does not wait for it"),
    entry("observe", BOTH, EachKernel, 60, "observe mode touches nothing, says and counts what it would do"),
    entry("memcg-oom", BOTH, Everywhere, 60, "a memory-cgroup OOM kill is attributed to the victim, not the allocator"),
    entry("global-oom", BOTH, EachKernel, 90, "a global OOM kill is attributed to the victim, not the allocator"),
    entry("inodes", BOTH, EachKernel, 60, "inodes made and removed on ext4 and xfs are counted exactly, per workload"),
    entry("reclaim", BOTH, EachKernel, 90, "direct and memory-cgroup reclaim stalls: as many as the kernel counts, each in the right bill"),
    entry("oom-many", BOTH, Everywhere, 90, "200 OOM kills, half of processes younger than 50 ms, half in containers gone at once: every one attributed"),
    entry("oom-gallery", BOTH, EachKernel, 240, "ten different OOM kills: each record against the kernel's own words; run by itself it prints them"),
    entry("inodes-100k", BOTH, Reference, 240, "100,000 files made and removed by three workloads at once are counted exactly"),
    entry("inodes-overlay", BOTH, EachKernel, 60, "a file made through overlayfs is counted once, to its container"),
    entry("inode-exhaustion", BOTH, EachKernel, 90, "a small ext4 runs out of inodes: the time foretold against what happens"),
    entry("project-quota", BOTH, EachKernel, 90, "volumes with a project quota on ext4 and xfs: exact, and followed within seconds without a walk; one without is walked"),
    entry("available", BOTH, EachKernel, 90, "huge pages, min_free_kbytes and refaults lower the corrected figure, not the kubelet's"),
    entry("protected-cache", V2, EachKernel, 120, "300 MiB of page cache under memory.min: the ramp ends by an eviction, although MemAvailable stays above the threshold"),
    entry("swap", BOTH, EachKernel, 90, "size, free, in and out of a swap file"),
    entry("psi-conditions", BOTH, EachKernel, 120, "a condition on PSI is set and cleared once, each after its time"),
    entry("reclaim-first", V2, Everywhere, 120, "before a kill memory.reclaim: enough for a cache, not for what cannot be reclaimed"),
    entry("incidents", BOTH, EachKernel, 120, "records are complete, HTTP and the journal agree, a crash in mid-write loses nothing written"),
    entry("ladder", BOTH, EachKernel, 120, "without BPF on PSI, without PSI by polling: each degradation logged, OOM kills attributed, the ramp ends well"),
    entry("oom-score-drift", BOTH, EachKernel, 60, "drift is counted, mended and counted as mended; the agent's own score; without CAP_SYS_RESOURCE"),
    entry("probes", BOTH, EachKernel, 90, "every program in the kernel is hit, and what each hit costs under emulation"),
    entry("restart", BOTH, EachKernel, 60, "the agent is killed and restarted in mid-pressure: pressure is resolved, once"),
    entry("accounts", BOTH, EachKernel, 60, "generated = delivered + lost + malformed for every kind of event, with real loss"),
    entry("second-instance", BOTH, EachKernel, 30, "a second agent on the same machine is refused with exit code 3"),
    entry("protected-early", BOTH, EachKernel, 30, "a starting agent has lowered its oom_score_adj before it has a probe"),
    entry("degraded", BOTH, EachKernel, 60, "without CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN it says so and still saves the node"),
    entry("oom-score-adj", BOTH, EachKernel, 60, "enforce sets oom_score_adj by QoS class for every process; observe reports drift only"),
    entry("omit", V2, Everywhere, 90, "user.oomd_omit spares the first candidate, user.oomd_avoid goes last"),
    entry("ramp-max", BOTH, EachKernelAndReference(20), 60, "a ramp at the fastest rate of the guest: the right victim, no OOM kill"),
    entry("crossing-calls", V2, Reference, 300, "from the sample that crosses to the signal: at most 12 system calls for a pod, 20 for a service, and no more for one of 100 processes with 500 files each"),
    entry("dwarfs", V2, Repeated(10), 60, "six BestEffort pods of 3 MiB beside a Burstable pod that leaks 80 MiB/s: only the leaker dies"),
    entry("neighbours", V2, Repeated(10), 90, "BestEffort pods of 20 and 50 MiB and host services beside a leaker of 80 MiB/s, in two rankings: only the leaker dies"),
    entry("slow-leak", V2, Repeated(10), 120, "beside a leak of 1 MiB/s one or two BestEffort pods go, then the leaker"),
    entry("two-leakers", V2, Repeated(10), 60, "two equal leakers: both die, and no other pod"),
    entry("late-free", V2, Repeated(10), 60, "the victim's tmpfs is freed 2 s after its processes: no other pod dies meanwhile"),
    entry("protected-leak", BOTH, Repeated(10), 90, "a protected service leaks: it is reported, and the other pods are not evicted one after the other"),
    entry("others-victim", V2, Repeated(10), 60, "a pod that another process killed is slow to exit: no second pod dies for the same shortage"),
    entry("undying", BOTH, Repeated(10), 60, "the victim cannot exit and its memory does not come: one more pod goes, one that helps"),
    entry("reload-would-kill", V2, Repeated(10), 60, "a reload brings a threshold that is met already: no eviction before the signal falls by a quarter"),
    entry("terminating", V2, Repeated(10), 60, "a Terminating pod leaks: its grace period is cut, and no other pod dies"),
    entry("restart-protected", BOTH, Repeated(10), 60, "the agent restarts under pressure without an API server: critical pods of a DaemonSet live"),
    entry("limits-and-memory", BOTH, Repeated(10), 150, "six pods exceed limits of their own: a hard memory eviction has a budget of its own"),
    entry("swap-keeps-up", V2, Repeated(10), 300, "the kernel swaps a slow leak out while available memory falls below the threshold: no workload is killed"),
    entry("swap-does-not", V2, Repeated(10), 360, "swap that is nearly full, and a leak as fast as the guest can: the leaker dies, no OOM kill"),
    entry("zram", V2, Repeated(10), 300, "swap in zram does not delay an eviction: the leaker dies"),
    entry("openrc-tree", V2, EachKernel, 90, "sshd, the system bus and a session in the cgroups of OpenRC and elogind outlive a leaking service, however large sshd is"),
    entry("quadlet", V2, EachKernel, 60, "a service of Podman's that is one container and its conmon leaks: all of it goes, and another service stays"),
    entry("fuse-mount", V2, EachKernel, 60, "the daemons of FUSE mounts, in a .mount unit and in a scope, outlive a leaking service that is smaller"),
    entry("own-limit", V2, EachKernel, 60, "a pod thrashes at its own limit beside a threshold that was met at the start: nothing is armed, and no workload is evicted"),
    entry("any-name", V2, EachKernel, 90, "workloads in cgroups whose names are not UTF-8 leak: each is evicted, and named in log, incident and metrics"),
    entry("pools", V2, Reference, 240, "labels of the node bring it into a pool that enforces, which an agent remembers while the API server is away"),
    viewed_by(Viewer::Prometheus, "dashboards", 300, "a Prometheus scrapes the agent through a ramp: every query of the dashboards and rules returns what it should"),
    viewed_by(Viewer::Browser, "status-page", 300, "the status page in a browser before and after a ramp: the traffic light, the victim's name, and its incident, which opens"),
    entry("chaos", V2, Repeated(1), 120, "random pods, leaks and faults for `--seconds` from `--seed`: an oracle finds no wrong kill and no late one"),
    entry("storm", BOTH, Reference, 240, "100,000 reclaim events: loss counted exactly, at most 1.5 µs of the agent for each, by the guest's speed"),
    entry("idle", BOTH, Reference, 120, "60 s idle: at most 0.2 % of one core, by the guest's speed, and 16 MiB resident; watched by two clients at most three times that"),
    entry("near", BOTH, Long, 180, "60 s with 100 MiB above a threshold: what the agent costs"),
    entry("earlyoom", BOTH, Reference, 300, "from crossing to the first kill signal, beside earlyoom under the same ramp: at least 5 times sooner by the guest's speed, and 2 times on every machine"),
    with_containerd("package-deb", Containers, 420, "the .deb on a bare Debian: observes, enforces after one edited line, upgraded in mid-eviction, purged without a trace"),
    with_containerd("package-rpm", Containers, 300, "the .rpm installed, upgraded and erased by rpm: its scripts, files and configuration"),
    with_containerd("containers", Containers, 180, "containerd runs a pod through CRI, and the agent sees it as the kubelet would have made it"),
    with_containerd("writable-layer", Containers, 300, "a pod fills its writable layer on the one shared file system: that pod goes, alone"),
    with_containerd("dead-containers", Containers, 300, "a dead container's layer and log go first, before an image and before a pod"),
    with_containerd("tiny-files", Containers, 600, "100,000 tiny files exhaust the inodes: the culprit goes, nodefs.inodesFree recovers"),
    with_containerd("volume-limit", Containers, 300, "an emptyDir volume over its sizeLimit: that pod goes, on a disk with room enough"),
    with_containerd("runtime-slice", Repeated(10), 180, "containerd and a kubelet in runtime.slice, as on EKS: a ramp costs neither, and doctor names them"),
    with_containerd("fork-bomb", Containers, 240, "a fork bomb against 4096 process ids is stopped, and its neighbour lives"),
    with_containerd("unused-images", Containers, 300, "unused images fill a file system of their own: as many go as needed, and no pod"),
    with_containerd("doctor", Containers, 180, "what doctor and rank find on a node with containerd, beside an agent at work; run by itself it prints it"),
    with_containerd("kubernetes", Containers, 240, "containerd's pods at an API server: ramp, eviction, event, condition, taint and metrics, and when each came"),
    with_containerd("image", Containers, 240, "the agent's image run by containerd as the DaemonSet says: ready, every probe, an eviction; its configuration changes"),
    with_containerd("imagefs-layer", Containers, 300, "a pod fills its writable layer on the images' file system: that pod goes, alone"),
    with_containerd("runtime-outage", Containers, 300, "containerd stops in mid-pressure: the pod goes all the same, its remains when containerd is back"),
    with_containerd("earlyoom-systemd", Long, 420, "`earlyoom` beside systemd and forty more services: at least 8 times sooner by the guest's speed, and 2 times on every machine"),
    with_cluster("cluster-install", 900, "the agent installed by kubectl apply -k and by the Helm chart, as config/README.md describes: ready, upgraded, removed"),
    with_cluster("cluster-figures", 900, "the agent's /stats/summary beside the kubelet's, and the answers of rank and doctor in the agent's pod"),
    with_cluster("cluster-ramp", 900, "beside a real kubelet a pod of a Deployment leaks: it ends as Failed and Evicted, a replacement runs, the node has the condition and the taint"),
    with_cluster("cluster-elsewhere", 900, "with a second node: the replacement of an evicted pod is scheduled there, though its affinity prefers the node with the taint"),
    with_cluster("cluster-owners", 1500, "bare pods of each restartPolicy, a StatefulSet, a Job and a DaemonSet leak one after the other: the end of each, and its replacement"),
    with_cluster("cluster-swarm", 900, "eight pods of a Deployment leak at once: no more are evicted than the shortage needs, and each eviction is reported once"),
    with_cluster("cluster-outage", 900, "the API server is killed at the decision to evict: a pod that the kubelet has restarted is left alone until a new shortage"),
    with_cluster("cluster-killed", 900, "the agent is killed right after it has killed a pod: the next agent finishes the eviction, or leaves a restarted pod alone"),
    with_cluster("cluster-kubelet", 900, "the kubelet is stopped while a pod is killed: once started, it finds the pod failed, and restarts no container"),
    with_cluster("cluster-instead", 900, "the kubelet's eviction is off, and the agent evicts: one pod for one shortage"),
    with_cluster("cluster-disk", 900, "a pod fills the node's file system: it ends as Failed and Evicted, one event reports it, and the space is freed"),
    with_cluster("cluster-disk-both", 900, "a pod crosses the disk thresholds of the agent and the kubelet at once: the kubelet evicts it, the agent evicts no pod, and no second pod dies"),
    with_cluster("cluster-oom", 900, "a pod takes all memory at once, and the kernel kills it: the agent names the pod, and SystemOOM comes from the kubelet alone"),
    with_cluster("cluster-thrash", 900, "page cache refaults for two minutes: the agent answers its liveness probe, and is not restarted"),
    with_cluster("cluster-budget", 900, "a disruption budget refuses a soft eviction: the next pod goes through the Eviction API"),
    with_cluster("cluster-drain", 900, "a soft threshold is met while the node is drained: the agent evicts no pod"),
    with_cluster("cluster-no-execute", 900, "a condition that lasts sets a taint NoExecute: one pod is evicted at once, one after its tolerationSeconds, one stays"),
    with_cluster("cluster-preemption", 900, "pods wait for CPUs: the scheduler preempts those that rank predicts, and rank sums up the requests as kubectl describe node does"),
    with_cluster("cluster-resize", 900, "two pods are resized in place, and the kubelet grants one and defers one: rank counts the requests in force, as kubectl does, and the other pod is evicted"),
    with_cluster("cluster-journal-hook", 900, "the example of a machine's lifecycle hook: a machine is released when it is drained and its journal is stored"),
    with_cluster("cluster-removal", 900, "the agent is removed by one kubectl delete under pressure, before and after the Job of removal is applied: nothing is left on the node"),
    with_cluster("cluster-watch", 900, "the agent observes, and the kubelet evicts: one pod for one shortage, and no taint of the agent"),
];
