//! Measures the agent on a node of 500 pods. A hundred pods change every second; once in five seconds a pod is replaced.
//! Prints `pods PODS pods, RATE changes/s: CPU % of a core of BUDGET, MIB MiB of BUDGET`; the caller judges it.
//!
//! `PODS_AGENT` names the agent's program, and `PODS_SECONDS` is the duration of the changes. With `KUBECONFIG` the bench uses that API
//! server instead of the test server.

mod agent;
mod cluster;
#[path = "../../../src/http.rs"]
mod http;
mod node;
#[path = "../../../src/reference.rs"]
#[expect(dead_code, reason = "the guest uses the rest")]
mod reference;
mod server;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use node_pressure_apiserver::bench;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use agent::Agent;
use cluster::{Cluster, Known};
use node::Node;
use reference::NATIVE_READS;
use server::Server;

const PODS: usize = 500;
const CHANGES_PER_SECOND: u32 = 100;
/// The promised percentage of a core, on the reference machine; 1.50 were measured.
const CPU_PROMISED: f64 = 2.0;
const MEMORY_BUDGET_MIB: f64 = 40.0;
/// The number of changes between two replacements of a pod: one in five seconds, which is much for a node.
const REPLACED_EVERY: usize = 500;
const SECONDS: u64 = 60;
/// The time in which the agent reads the pods and measures each once, including disk usage.
const SETTLING: Duration = Duration::from_secs(30);
/// The minimum share of the intended rate. If the driver or the server is slower, the agent's figure would be too good, and is not judged.
const RATE_AT_LEAST: f64 = 0.95;
/// The thread that measures disk usage. It measures all pods in one burst, and again up to two minutes later. A span of seconds contains a
/// whole burst or none, so the thread counts with its mean since the agent's start.
const IN_BURSTS: &str = "disk-usage";

fn main() {
    bench::run(measure());
}

async fn measure() -> Result<()> {
    let Some(program) = std::env::var_os("PODS_AGENT").map(PathBuf::from) else {
        println!("SKIPPED pods: PODS_AGENT names no agent; cargo xtask bench pods builds one");
        return Ok(());
    };
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED pods: needs root");
        return Ok(());
    }
    let Some(mut node) = Node::make()? else {
        println!("SKIPPED pods: no memory controller in /sys/fs/cgroup");
        return Ok(());
    };
    let seconds = bench::variable("PODS_SECONDS", SECONDS)?;
    let directory = tempfile::tempdir()?;
    let server = Server::start(directory.path())?;
    let cluster = Cluster::new(server.client().await?).await?;

    let begun = Instant::now();
    let mut pods: VecDeque<Known> = cluster.create(0..PODS).await?.into();
    let uids: Vec<String> = pods.iter().map(|pod| pod.uid.clone()).collect();
    node.run(&uids)?;
    println!("pods: {PODS} pods made in {:.1} s, at {}", begun.elapsed().as_secs_f64(), server.kind());

    let mut agent = Agent::start(&program, directory.path(), &server.kubeconfig)?;
    agent.wait_for("pods", |agent| Ok(known_pods(agent)? == Some(PODS)))?;
    tokio::time::sleep(SETTLING).await;

    let slowness = NATIVE_READS.slowness()?;
    let quiet = Share::of(&agent, Duration::from_secs(seconds / 3)).await?;
    println!("pods: without changes {:.2} % of a core, {:.1} MiB", quiet.percent, quiet.mib);
    quiet.print_threads();

    let before = heard_changes(&agent)?;
    let outcome = changed(&cluster, &mut node, &mut pods, &agent, Duration::from_secs(seconds)).await;
    let (busy, made) = outcome.with_context(|| format!("the agent's log is\n{}", agent.log().unwrap_or_default()))?;
    let rate = f64::from(made) / busy.span.as_secs_f64();
    busy.print_threads();
    println!("pods: {:.1} MiB at most since the start", mib(agent.memory("VmHWM")?));
    // The measurement is valid only if the agent has received every change.
    let heard = |agent: &Agent| Ok(heard_changes(agent)? - before >= f64::from(made));
    agent.wait_for("word of all changes", heard)?;
    agent.wait_for("pods as they are now", |agent| Ok(known_pods(agent)? == Some(PODS)))?;
    let slowness = slowness.max(NATIVE_READS.slowness()?);
    let budget = CPU_PROMISED * slowness.allowance();
    let mean = percent(time_of(&agent.threads()?, IN_BURSTS), agent.age());
    let cpu = busy.percent - percent(time_of(&busy.threads, IN_BURSTS), busy.span) + mean;
    println!("pods: {IN_BURSTS}: {mean:.2} % of a core since the agent's start, which counts");
    println!("pods: this machine takes {:.2} times as long for the reference work", slowness.cpu);
    println!(
        "pods {PODS} pods, {rate:.1} changes/s: {cpu:.2} % of a core of {budget:.2}, {:.1} MiB of {MEMORY_BUDGET_MIB}",
        busy.mib
    );
    let ended = agent.stop()?;
    cluster.remove(pods.make_contiguous()).await?;
    ensure!(ended.success(), "the agent ended with {ended}");
    if rate < RATE_AT_LEAST * f64::from(CHANGES_PER_SECOND) {
        println!("SKIPPED pods: the API server or this machine makes {rate:.1} changes a second only");
    }
    Ok(())
}

/// Returns the number of this node's pods that the agent knows from the API server.
fn known_pods(agent: &Agent) -> Result<Option<usize>> {
    let known = agent.metric("pods_known")?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of pods")]
    Ok(known.map(|count| count as usize))
}

/// Returns the number of changes that the agent has received.
fn heard_changes(agent: &Agent) -> Result<f64> {
    Ok(agent.metric("pod_changes_total")?.unwrap_or(0.0))
}

/// Makes changes at the intended rate; returns the agent's usage meanwhile and the number of changes.
async fn changed(
    cluster: &Cluster,
    node: &mut Node,
    pods: &mut VecDeque<Known>,
    agent: &Agent,
    span: Duration,
) -> Result<(Share, u32)> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / CHANGES_PER_SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut made: u32 = 0;
    let begun = Instant::now();
    let mut measured = Measured::begin(agent)?;
    let mut under_way = JoinSet::new();
    let mut count = 0;
    while begun.elapsed() < span {
        ticks.tick().await;
        count += 1;
        while let Some(done) = under_way.try_join_next() {
            done??;
            made += 1;
        }
        if count % 50 == 0 {
            measured.look()?;
        }
        match count % REPLACED_EVERY {
            // Replaces a pod: one deletion, one creation, and one status.
            0 => {
                let old = pods.pop_front().context("a pod")?;
                cluster.delete(&old).await?;
                node.end(&old.uid);
                let new = cluster.create_one(PODS + count).await?;
                node.run(std::slice::from_ref(&new.uid))?;
                pods.push_back(new);
                made += 3;
            }
            // The replacement above counts as these changes too.
            1 | 2 => {}
            place => {
                // The chosen pod is not one that is being replaced.
                let pod = pods.get(PODS / 10 + count * 7 % (PODS * 9 / 10)).context("a pod")?.clone();
                let cluster = cluster.clone();
                under_way.spawn(async move {
                    if place % 10 == 3 {
                        cluster.annotate(&pod, count).await
                    } else {
                        cluster.change_status(&pod, count).await
                    }
                });
            }
        }
    }
    while let Some(done) = under_way.join_next().await {
        done??;
        made += 1;
    }
    Ok((measured.end()?, made))
}

/// The agent's usage in a span.
#[derive(Debug)]
struct Share {
    span: Duration,
    percent: f64,
    /// The maximum of resident memory.
    mib: f64,
    /// CPU time by thread.
    threads: Vec<(String, Duration)>,
}

impl Share {
    async fn of(agent: &Agent, span: Duration) -> Result<Self> {
        let measured = Measured::begin(agent)?;
        tokio::time::sleep(span).await;
        measured.end()
    }

    fn print_threads(&self) {
        for (name, time) in &self.threads {
            let share = percent(*time, self.span);
            if share >= 0.01 {
                println!("pods:   {name}: {share:.2} % of a core");
            }
        }
    }
}

/// A measurement in progress.
struct Measured<'a> {
    agent: &'a Agent,
    begun: Instant,
    cpu: Duration,
    threads: Vec<(String, Duration)>,
    most: u64,
}

impl<'a> Measured<'a> {
    fn begin(agent: &'a Agent) -> Result<Self> {
        Ok(Self { agent, begun: Instant::now(), cpu: agent.cpu()?, threads: agent.threads()?, most: 0 })
    }

    fn look(&mut self) -> Result<()> {
        self.most = self.most.max(self.agent.memory("VmRSS")?);
        Ok(())
    }

    fn end(mut self) -> Result<Share> {
        self.look()?;
        let (span, cpu) = (self.begun.elapsed(), self.agent.cpu()?.saturating_sub(self.cpu));
        let threads = self.agent.threads()?.into_iter().map(|(name, time)| {
            let took = time.saturating_sub(time_of(&self.threads, &name));
            (name, took)
        });
        Ok(Share { span, percent: percent(cpu, span), mib: mib(self.most), threads: threads.collect() })
    }
}

/// Returns the CPU time of a thread.
fn time_of(threads: &[(String, Duration)], name: &str) -> Duration {
    threads.iter().find(|(other, _)| other == name).map_or(Duration::ZERO, |(_, time)| *time)
}

fn percent(cpu: Duration, span: Duration) -> f64 {
    cpu.as_secs_f64() / span.as_secs_f64() * 100.0
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit behind the point")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}
