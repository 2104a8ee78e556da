//! Measures the agent's CPU time while `memory.available` stays a little above a threshold, in observe mode on this machine: at 60, 100 and
//! 200 MiB. Prints `near MIB MiB above: CPU % of a core of BUDGET, SAMPLES samples/s` for each; the caller judges it.
//!
//! `NEAR_AGENT` names the agent's program.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

#[path = "../../tests/src/reference.rs"]
#[expect(dead_code, reason = "the guest uses the rest")]
mod reference;

#[path = "support/start.rs"]
mod start;

use reference::NATIVE_READS;

const ABOVE_MIB: [u64; 3] = [60, 100, 200];
/// The promised percentage of a core, on the reference machine.
const PROMISED: f64 = 0.3;
/// The time in which the agent finishes what it does at its start.
const SETTLING: Duration = Duration::from_secs(5);
const SPAN: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    start::run(measure);
}

fn measure() -> Result<()> {
    let Some(program) = std::env::var_os("NEAR_AGENT").map(PathBuf::from) else {
        println!("SKIPPED near: NEAR_AGENT names no agent; cargo xtask bench near builds one");
        return Ok(());
    };
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED near: needs root");
        return Ok(());
    }
    let slowness = NATIVE_READS.slowness()?;
    for above in ABOVE_MIB {
        let directory = tempfile::tempdir()?;
        let mut agent = Agent::start(&program, directory.path(), above)?;
        sleep(SETTLING);
        let (cpu, wakeups, begun) = (agent.cpu()?, agent.switches()?, Instant::now());
        sleep(SPAN);
        let span = begun.elapsed().as_secs_f64();
        let percent = agent.cpu()?.saturating_sub(cpu).as_secs_f64() / span * 100.0;
        #[expect(clippy::cast_precision_loss, reason = "a count of some thousand")]
        let samples = agent.switches()?.saturating_sub(wakeups) as f64 / span;
        let left = available_mib()?.saturating_sub(agent.threshold);
        agent.stop()?;
        // Other programs have taken or returned memory meanwhile.
        if left < above / 2 || left > above * 2 {
            println!("SKIPPED near: memory has moved from {above} to {left} MiB above the threshold");
            return Ok(());
        }
        let budget = PROMISED * slowness.max(NATIVE_READS.slowness()?).allowance();
        println!("near {above} MiB above: {percent:.3} % of a core of {budget:.3}, {samples:.0} samples/s");
    }
    Ok(())
}

/// One agent, in observe mode. Dropping it kills it.
struct Agent {
    child: Child,
    /// In MiB.
    threshold: u64,
}

impl Agent {
    /// Starts the agent with a threshold of so many MiB below what is available now, and waits until it is ready.
    fn start(program: &Path, directory: &Path, above: u64) -> Result<Self> {
        let place = directory.display();
        let threshold = available_mib()?.saturating_sub(above);
        // The port was free when this listener closed.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config = directory.join("monitor.yaml");
        let text = format!(
            "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nmode: observe\nlockFile: {place}/lock\n\
             incidents: {{directory: {place}/incidents}}\nmetrics: {{listen: \"{address}\"}}\nevictionHard: {{memory.available: {threshold}Mi}}\n"
        );
        fs::write(&config, text)?;
        let log = directory.join("agent.log");
        let child = Command::new(program)
            .args(["run", "--log-format", "json", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let agent = Self { child, threshold };
        let begun = Instant::now();
        while !fs::read_to_string(&log)?.contains("\"event\":\"ready\"") {
            if begun.elapsed() > PATIENCE {
                bail!("the agent is not ready; its log is\n{}", fs::read_to_string(&log)?);
            }
            sleep(Duration::from_millis(50));
        }
        Ok(agent)
    }

    /// Returns the CPU time of all its threads.
    fn cpu(&self) -> Result<Duration> {
        let sum = |field: usize| {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()))?.flatten();
            let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
            let values = texts.filter_map(|text| text.split_whitespace().nth(field)?.parse::<u64>().ok());
            anyhow::Ok(values.sum())
        };
        Ok(Duration::from_nanos(sum(0)?))
    }

    /// Returns how often the loop has waited for something.
    fn switches(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).context("no voluntary_ctxt_switches")
    }

    fn stop(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ended = self.stop();
    }
}

fn available_mib() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).context("no MemAvailable")?;
    Ok(kib / 1024)
}
