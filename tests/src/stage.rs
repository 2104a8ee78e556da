//! The fixture of every scenario: pods, workloads, agents and evidence, and their removal afterwards.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::agent::{Agent, forget_decisions};
use crate::catalogue::Guest;
use crate::cgroups::{Cgroup, Layout, Pod, PodSpec, pod_uid, remove_directory};
use crate::cluster::Cluster;
use crate::config::AgentConfig;
use crate::console;
use crate::containers::{self, Storage};
use crate::evidence::kmsg::{Kmsg, OomReport, oom_reports};
use crate::evidence::trace::{SignalEvent, Trace};
use crate::evidence::{meminfo, oom_kills};
use crate::processes::{self, Ended, Reaper, Start};
use crate::sampler::Sampler;
use crate::units::MIB;

/// The host of an emulated machine may pause it for half a minute.
const RESIDENT_WITHIN: Duration = Duration::from_secs(120);

/// The state of the whole boot.
#[derive(Debug)]
pub struct Boot {
    pub layout: Layout,
    pub guest: Guest,
    /// The layout of containerd's disks, once they have one.
    pub storage: Cell<Option<Storage>>,
    /// The Kubernetes cluster, once a scenario has started it.
    pub cluster: RefCell<Option<Rc<Cluster>>>,
    pub sampler: Sampler,
    pub trace: Trace,
    /// Whether scenarios print texts in full.
    pages: bool,
    /// The cgroup in which agents run as a service.
    service: Cgroup,
    pods_made: Cell<u32>,
}

impl Boot {
    /// Moves this program into a cgroup for process 1, as systemd does, and opens the evidence. In that cgroup no agent takes this
    /// program for a service.
    pub fn new(layout: Layout, guest: Guest, pages: bool) -> Result<Self> {
        let own = Cgroup::create(layout, "init.scope")?;
        for directory in own.directories() {
            let path = directory.join("cgroup.procs");
            fs::write(&path, "0").with_context(|| format!("write {}", path.display()))?;
        }
        Ok(Self {
            layout,
            guest,
            storage: Cell::new(None),
            cluster: RefCell::new(None),
            sampler: Sampler::new()?,
            trace: Trace::open()?,
            pages,
            service: Cgroup::create(layout, "system.slice/node-pressure-monitor.service")?,
            pods_made: Cell::new(0),
        })
    }
}

/// One running workload.
#[derive(Debug, Clone)]
pub struct Worker {
    pub label: String,
    pub pid: i32,
}

/// One run of one scenario.
#[derive(Debug)]
pub struct Stage<'a> {
    pub boot: &'a Boot,
    pub name: &'static str,
    pub reaper: Reaper,
    kmsg: Kmsg,
    oom_before: u64,
    agents: Vec<Agent>,
    others: Vec<i32>,
    /// The cgroups of services that the scenario has made.
    hosts: Vec<Cgroup>,
    /// The directories of such cgroups whose names are not UTF-8.
    unnameable: Vec<PathBuf>,
    checked: u32,
    failures: Vec<String>,
    skipped: Option<String>,
    figures: Vec<(Cow<'static, str>, f64, &'static str)>,
    timeline: Vec<(f64, String)>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    pub checked: u32,
    pub failures: Vec<String>,
    pub skipped: Option<String>,
    pub figures: Vec<(Cow<'static, str>, f64, &'static str)>,
    pub timeline: Vec<(f64, String)>,
}

impl<'a> Stage<'a> {
    pub fn new(boot: &'a Boot, name: &'static str) -> Result<Self> {
        let mut reaper = Reaper::default();
        reaper.forget();
        boot.trace.clear()?;
        forget_decisions()?;
        Ok(Self {
            boot,
            name,
            reaper,
            kmsg: Kmsg::open()?,
            oom_before: oom_kills()?,
            agents: Vec::new(),
            others: Vec::new(),
            hosts: Vec::new(),
            unnameable: Vec::new(),
            checked: 0,
            failures: Vec::new(),
            skipped: None,
            figures: Vec::new(),
            timeline: Vec::new(),
        })
    }

    pub fn layout(&self) -> Layout {
        self.boot.layout
    }

    /// Asserts a condition. `story` is evaluated only if the condition does not hold.
    pub fn check(&mut self, holds: bool, story: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            let story = story();
            self.note(format_args!("FAILED {story}"));
            self.failures.push(story);
        }
    }

    /// Asserts equality; a failure prints both values.
    pub fn check_equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, found: &T, expected: &T) {
        self.check(found == expected, || format!("{what}: found {found:?}, expected {expected:?}"));
    }

    pub fn skip(&mut self, reason: impl Display) {
        self.skipped = Some(reason.to_string());
    }

    pub fn note(&self, text: impl Display) {
        console::note(self.name, text);
    }

    /// Prints what runs in the guest beside the kernel, with its versions.
    pub fn versions(&self, text: &str) {
        console::versions(self.name, text);
    }

    /// Prints a text for readers, unchanged.
    pub fn page(&self, text: &str) {
        if self.boot.pages {
            text.lines().for_each(|line| console::page(self.name, line));
        }
    }

    /// Prints a text as a person sees it, to be kept with the results.
    pub fn screen(&self, text: &str) {
        if self.boot.pages {
            text.lines().for_each(|line| console::screen(self.name, line));
        }
    }

    pub fn figure(&mut self, key: impl Into<Cow<'static, str>>, value: f64, unit: &'static str) {
        self.figures.push((key.into(), value, unit));
    }

    pub fn timeline(&mut self, ms: f64, what: impl Into<String>) {
        self.timeline.push((ms, what.into()));
    }

    /// Makes the cgroups of a pod.
    pub fn pod(&self, label: &str, spec: PodSpec) -> Result<Pod> {
        Pod::create(self.boot.layout, label, &pod_uid(self.next_pod()), spec)
    }

    /// Returns the number of a new pod, unique within the boot.
    pub fn next_pod(&self) -> u32 {
        let number = self.boot.pods_made.get() + 1;
        self.boot.pods_made.set(number);
        number
    }

    /// Starts a workload in the pod's first container. `work` is its command line in one string.
    pub fn work(&self, pod: &Pod, work: &str) -> Result<Worker> {
        self.work_in(pod.container()?, &pod.label, work, 0)
    }

    /// Starts a workload in a cgroup.
    pub fn work_in(&self, cgroup: &Cgroup, label: &str, work: &str, oom_score_adj: i32) -> Result<Worker> {
        let arguments = ["work"].into_iter().chain(work.split_whitespace());
        let start = Start { oom_score_adj, ..Start::quiet(cgroup) };
        let pid = processes::spawn("/proc/self/exe", arguments, start)?;
        Ok(Worker { label: label.to_owned(), pid })
    }

    /// Starts a workload that holds memory, and waits until it has touched it.
    pub fn holder(&mut self, pod: &Pod, mib: u64) -> Result<Worker> {
        let worker = self.work(pod, &format!("hold --name {} --mib {mib}", pod.label))?;
        self.wait_resident(&worker, mib)?;
        Ok(worker)
    }

    /// Waits until a worker has touched this much memory.
    pub fn wait_resident(&mut self, worker: &Worker, mib: u64) -> Result<()> {
        let pid = worker.pid;
        let full = self.until(RESIDENT_WITHIN, |_| processes::resident(pid).is_ok_and(|bytes| bytes >= mib * MIB));
        if !full {
            bail!("{} did not reach {mib} MiB in {RESIDENT_WITHIN:?}", worker.label);
        }
        Ok(())
    }

    /// Starts a workload as a service of the host, with this `oom_score_adj`.
    pub fn host_service(&mut self, path: &str, work: &str, oom_score_adj: i32) -> Result<Worker> {
        let cgroup = Cgroup::create(self.layout(), path)?;
        let worker = self.work_in(&cgroup, path, work, oom_score_adj)?;
        self.others.push(worker.pid);
        self.hosts.push(cgroup);
        Ok(worker)
    }

    /// Starts a workload in a cgroup of v2 whose name may be any bytes, and makes the cgroup if it does not exist. The one above it exists.
    pub fn work_in_directory(&mut self, directory: &Path, label: &str, work: &str) -> Result<Worker> {
        if !directory.exists() {
            fs::create_dir(directory).with_context(|| format!("create cgroup {}", directory.display()))?;
            self.unnameable.push(directory.to_owned());
        }
        let arguments = ["work"].into_iter().chain(work.split_whitespace());
        let start = Start { cgroup: None, directory: Some(directory), ..Start::quiet(&self.boot.service) };
        let pid = processes::spawn("/proc/self/exe", arguments, start)?;
        self.others.push(pid);
        Ok(Worker { label: label.to_owned(), pid })
    }

    /// Has a cgroup removed at the end, with the cgroups below it.
    pub fn remove_at_end(&mut self, cgroup: Cgroup) {
        self.hosts.push(cgroup);
    }

    /// Starts an agent and waits until it is ready.
    pub fn agent(&mut self, config: &AgentConfig) -> Result<Agent> {
        let agent = self.agent_unready(config)?;
        agent.wait_ready(&mut self.reaper)?;
        Ok(agent)
    }

    /// Starts an agent.
    pub fn agent_unready(&mut self, config: &AgentConfig) -> Result<Agent> {
        let tag = format!("{}-{}", self.name, self.agents.len());
        let agent = Agent::start(&self.boot.service, &tag, config)?;
        self.agents.push(agent.clone());
        Ok(agent)
    }

    /// Starts another program as a service.
    pub fn service(&mut self, program: &str, arguments: &[&str]) -> Result<i32> {
        let pid = processes::spawn(program, arguments, Start::quiet(&self.boot.service))?;
        self.others.push(pid);
        Ok(pid)
    }

    /// Stops an agent, and asserts that it exited with success.
    pub fn stop(&mut self, agent: &Agent) {
        let ended = agent.stop(&mut self.reaper);
        if ended.is_none() {
            self.note(format!("the threads of the agent: {}", processes::threads(agent.pid).join("; ")));
        }
        self.check_equal("the agent's end after SIGTERM", &ended, &Some(Ended::Exited(0)));
    }

    /// Polls until the condition holds or the time limit is over; returns whether it holds.
    pub fn until(&mut self, limit: Duration, mut holds: impl FnMut(&mut Self) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            self.reaper.reap();
            if holds(self) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            sleep(Duration::from_millis(3));
        }
    }

    /// Waits for a time, and collects exited children meanwhile.
    pub fn pause(&mut self, span: Duration) {
        self.until(span, |_| false);
    }

    /// Asserts that SIGKILL ended this worker.
    pub fn check_killed(&mut self, worker: &Worker) {
        let ended = self.reaper.ended(worker.pid);
        self.check(ended == Some(Ended::Signaled(libc::SIGKILL)), || {
            format!("{} (pid {}) ended with {ended:?}, not by SIGKILL", worker.label, worker.pid)
        });
    }

    pub fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Asserts that these workers are alive.
    pub fn check_alive(&mut self, workers: &[&Worker]) {
        for worker in workers {
            let ended = self.reaper.ended(worker.pid);
            self.check(ended.is_none(), || format!("{} (pid {}) has exited: {ended:?}", worker.label, worker.pid));
        }
    }

    /// Returns the number of OOM kills since the scenario began, from `/proc/vmstat`.
    pub fn oom_kills(&self) -> Result<u64> {
        Ok(oom_kills()?.saturating_sub(self.oom_before))
    }

    /// Asserts that the kernel killed no process.
    pub fn check_no_oom_kill(&mut self) -> Result<()> {
        let kills = self.oom_kills()?;
        self.check_equal("kernel OOM kills", &kills, &0);
        Ok(())
    }

    /// Returns the OOM kills since the last call, from `/dev/kmsg`.
    pub fn oom_reports(&mut self) -> Vec<OomReport> {
        oom_reports(&self.kmsg.messages())
    }

    /// Returns all recorded signals, and those that this agent sent. The agent must be alive, because its thread ids are read.
    pub fn signals_of(&self, agent: &Agent) -> Result<(Vec<SignalEvent>, Vec<SignalEvent>)> {
        let threads = agent.threads();
        let all = self.boot.trace.signals()?;
        Ok(all.into_iter().partition(|signal| threads.contains(&signal.sender_tid)))
    }

    /// Ends all processes and removes every cgroup. A cleanup that fails is a failure of the scenario.
    pub fn finish(mut self, outcome: Result<()>) -> Report {
        if let Err(error) = outcome {
            self.failures.push(format!("{error:#}"));
        }
        self.boot.sampler.stop();
        if !self.failures.is_empty() {
            // The serial line is slow, so only the end of the last agent's log is printed, with shortened lines.
            if let Some(agent) = self.agents.last() {
                for line in agent.tail(40) {
                    let line: String = line.chars().take(600).collect();
                    console::note(self.name, format!("agent {}: {line}", agent.pid));
                }
            }
        }
        if let Err(error) = self.clean_up() {
            self.failures.push(format!("cleaning up: {error:#}"));
        }
        Report {
            checked: self.checked,
            failures: self.failures,
            skipped: self.skipped,
            figures: self.figures,
            timeline: self.timeline,
        }
    }

    fn clean_up(&mut self) -> Result<()> {
        // The kubelet of a cluster owns its pods.
        let is_cluster = self.boot.guest == Guest::Cluster;
        let pods = Cgroup::create(self.layout(), "kubepods.slice")?;
        let owned: Vec<i32> = self.agents.iter().map(|agent| agent.pid).chain(self.others.iter().copied()).collect();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            self.reaper.reap();
            // A container cannot end before this process has collected the workloads in its pid namespace.
            let mut left = if is_cluster { processes::workloads()? } else { pods.processes() };
            left.extend(self.boot.service.processes());
            for pid in owned.iter().copied() {
                if self.reaper.ended(pid).is_none() {
                    left.push(pid);
                }
            }
            if left.is_empty() {
                break;
            }
            if Instant::now() > deadline {
                bail!("these processes do not end: {left:?}");
            }
            for pid in left {
                processes::signal(pid, libc::SIGKILL);
                // A stopped process must be continued before it can end.
                processes::signal(pid, libc::SIGCONT);
            }
            sleep(Duration::from_millis(10));
        }
        self.hosts.iter().try_for_each(Cgroup::remove)?;
        self.unnameable.iter().try_for_each(|directory| remove_directory(directory))?;
        self.thaw(&pods);
        match self.boot.guest {
            Guest::Plain => pods.remove()?,
            // systemd made these cgroups, and has to forget them.
            Guest::Containerd => {
                containers::systemctl(&["stop", "kubepods.slice"])?;
                // systemd leaves a cgroup that it did not make, and where there is one only pods are candidates.
                pods.remove()?;
            }
            // The kubelet's pods end with their objects.
            Guest::Cluster => {}
        }
        for directory in [crate::init::EXT4, crate::init::SMALL, crate::init::XFS] {
            empty(Path::new(directory));
        }
        self.settle();
        Ok(())
    }

    /// Thaws a v1 freezer that a killed agent left frozen: its processes could never exit.
    fn thaw(&self, pods: &Cgroup) {
        if self.layout() == Layout::V1 {
            for directory in pods.directories() {
                let _ = fs::write(directory.join("freezer.state"), "THAWED");
            }
        }
    }

    /// Waits until the memory of exited processes is free, which happens some time after they exit.
    fn settle(&mut self) {
        let mut last = 0;
        for _ in 0..40 {
            let now = meminfo("MemAvailable").unwrap_or(0);
            if now.abs_diff(last) < MIB {
                return;
            }
            last = now;
            self.pause(Duration::from_millis(40));
        }
    }
}

/// Removes the files that workloads left on a disk.
fn empty(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name() == "lost+found" {
            continue;
        }
        let path = entry.path();
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
}
