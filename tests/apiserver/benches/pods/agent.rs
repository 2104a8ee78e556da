//! Starts the agent and measures its CPU time and memory.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::cluster::NODE;
use super::http;

const PATIENCE: Duration = Duration::from_secs(60);

/// One agent, in observe mode. Dropping it kills it.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
    started: Instant,
}

impl Agent {
    /// Starts the agent and waits until it is ready.
    pub fn start(program: &Path, directory: &Path, kubeconfig: &Path) -> Result<Self> {
        // The port was free when this listener closed. Another process may take it first.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let place = directory.display();
        let config = directory.join("monitor.yaml");
        let text = format!(
            "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nmode: observe\nlockFile: {place}/lock\n\
             incidents: {{directory: {place}/incidents}}\nmetrics: {{listen: \"{address}\"}}\n"
        );
        fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
        let log = directory.join("agent.log");
        let child = Command::new(program)
            .args(["run", "--log-format", "json", "--node-name", NODE, "--config"])
            .arg(&config)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut agent = Self { child, address, log, started: Instant::now() };
        agent.wait_for("ready", |agent| Ok(agent.log()?.contains("\"event\":\"ready\"")))?;
        Ok(agent)
    }

    pub fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("cannot read {}", self.log.display()))
    }

    /// Polls until the condition holds. The error of a timeout contains the agent's log.
    pub fn wait_for(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !is_so(self)? {
            if let Some(status) = self.child.try_wait()? {
                bail!("the agent ended with {status}; its log is\n{}", self.log()?);
            }
            ensure!(begun.elapsed() < PATIENCE, "no {what} within {PATIENCE:?}; the agent's log is\n{}", self.log()?);
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Returns the sum of a metric's series, or `None` without such a series.
    pub fn metric(&self, name: &str) -> Result<Option<f64>> {
        Ok(http::metrics(self.address)?.sum(name, &[]))
    }

    /// Returns the CPU time of all threads so far.
    pub fn cpu(&self) -> Result<Duration> {
        // utime + stime, in ticks of 10 ms, include ended threads.
        let text = self.proc("stat")?;
        let ticks = ticks(&text).with_context(|| format!("no utime and stime in {text:?}"))?;
        // The scheduler counts nanoseconds for living threads: finer, but without ended threads.
        let fine: Duration = self.threads()?.iter().map(|(_, time)| *time).sum();
        Ok(Duration::from_millis(ticks * 10).max(fine))
    }

    /// Returns the names of the threads, and the CPU time of each.
    pub fn threads(&self) -> Result<Vec<(String, Duration)>> {
        let mut threads = Vec::new();
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let thread = thread?.path();
            let read = |file: &str| fs::read_to_string(thread.join(file));
            // The thread may have ended meanwhile.
            let (Ok(name), Ok(schedstat)) = (read("comm"), read("schedstat")) else { continue };
            let time = schedstat.split_whitespace().next().and_then(|word| word.parse().ok());
            threads.push((name.trim().to_owned(), Duration::from_nanos(time.unwrap_or(0))));
        }
        Ok(threads)
    }

    /// Returns the time since the start.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns a line of `/proc/PID/status` in bytes.
    pub fn memory(&self, key: &str) -> Result<u64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.map(|kib| kib << 10).with_context(|| format!("/proc/PID/status has no {key}"))
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(mut self) -> Result<ExitStatus> {
        let pid = i32::try_from(self.child.id())?;
        // SAFETY: kill has no memory arguments, and the child was not waited for: the id is still its own.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            sleep(Duration::from_millis(20));
        }
        bail!("the agent does not end; its log is\n{}", self.log()?)
    }

    fn proc(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_gone = self.child.wait();
    }
}

/// Returns utime + stime. The command name may contain spaces and parentheses, so fields are counted after the last `)`.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}
