//! One instance of the agent: its start, its log and metrics, its end.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cgroups::Cgroup;
use crate::config::AgentConfig;
use crate::http::{self, Metrics};
use crate::processes::{self, Ended, Reaper, Start};

/// The program under test.
pub const PROGRAM: &str = "/bin/node-pressure-monitor";
/// The files that the agent needs after a restart are beside this one.
pub const LOCK: &str = "/run/node-pressure-monitor/lock";

/// A running agent, with its log file.
#[derive(Debug, Clone)]
pub struct Agent {
    pub pid: i32,
    pub address: SocketAddr,
    log: PathBuf,
    pub config: PathBuf,
}

/// Removes what the agents of this boot remember over a restart, so that the budget of one scenario does not count in the next.
pub fn forget_decisions() -> Result<()> {
    let path = format!("{LOCK}.decisions");
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).with_context(|| format!("remove {path}")),
        _ => Ok(()),
    }
}

/// Parses one line of the log. A container runtime writes time, stream and a tag before the line.
fn record(line: &str) -> Option<Record> {
    let json = line.get(line.find('{')?..)?;
    serde_json::from_str(json).ok().map(Record)
}

/// One JSON record of the agent's log.
#[derive(Debug, Clone)]
pub struct Record(Value);

impl Record {
    /// Returns a field as text, or "" if the record has no such text.
    pub fn text(&self, field: &str) -> &str {
        self.0.get(field).and_then(Value::as_str).unwrap_or("")
    }

    /// Returns a field as a number. Some log writers print numbers as strings.
    pub fn number(&self, field: &str) -> Option<u64> {
        let value = self.0.get(field)?;
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    }

    /// Returns whether the record's workload is the pod with this UID, by the cgroup of the kubelet's systemd driver.
    pub fn is_of_pod(&self, uid: &str) -> bool {
        self.text("workload").contains(&uid.replace('-', "_"))
    }

    /// Returns whether the record's event is this one.
    pub fn is(&self, event: &str) -> bool {
        self.text("event") == event
    }
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Agent {
    /// Starts an agent without waiting for it.
    pub fn start(cgroup: &Cgroup, tag: &str, config: &AgentConfig) -> Result<Self> {
        let file = format!("/tmp/{tag}.yaml");
        fs::write(&file, config.yaml()).with_context(|| format!("write {file}"))?;
        let log = PathBuf::from(format!("/tmp/{tag}.log"));
        let stderr = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let arguments = ["run", "--config", file.as_str(), "--log-format", "json"];
        let start = Start {
            stderr: Stdio::from(stderr),
            without_capabilities: config.without_capabilities.clone(),
            ..Start::quiet(cgroup)
        };
        let pid = processes::spawn(PROGRAM, arguments, start)?;
        Ok(Self { pid, address: config.address(), log, config: file.into() })
    }

    /// Returns an agent that a container runtime has started. The runtime's format wraps each line of the log.
    pub fn attach(pid: i32, address: SocketAddr, log: PathBuf) -> Self {
        Self { pid, address, log, config: PathBuf::new() }
    }

    /// Writes another configuration and sends SIGHUP.
    pub fn reload(&self, config: &AgentConfig) -> Result<()> {
        fs::write(&self.config, config.yaml()).with_context(|| format!("write {}", self.config.display()))?;
        processes::signal(self.pid, libc::SIGHUP);
        Ok(())
    }

    /// Waits for the record with event="ready".
    pub fn wait_ready(&self, reaper: &mut Reaper) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if self.records().iter().any(|record| record.is("ready")) {
                return Ok(());
            }
            if let Some(ended) = reaper.ended(self.pid) {
                bail!("the agent ended before it was ready: {ended:?}; {}", self.tail(3).join(" / "));
            }
            sleep(Duration::from_millis(10));
        }
        bail!("the agent was not ready after 20 s; {}", self.tail(3).join(" / "))
    }

    /// Returns every JSON record logged so far.
    pub fn records(&self) -> Vec<Record> {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().filter_map(record).collect()
    }

    /// Returns the records of one event.
    pub fn events(&self, event: &str) -> Vec<Record> {
        self.records().into_iter().filter(|record| record.is(event)).collect()
    }

    /// Returns the last lines of the log, JSON or not.
    pub fn tail(&self, lines: usize) -> Vec<String> {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all.get(all.len().saturating_sub(lines)..).unwrap_or_default().iter().map(|line| (*line).to_owned()).collect()
    }

    /// Scrapes the agent's metrics.
    pub fn metrics(&self) -> Result<Metrics> {
        http::metrics(self.address)
    }

    /// Returns the ids of all threads. The kernel records a thread, not a process, as the sender of a signal.
    pub fn threads(&self) -> Vec<i32> {
        let Ok(entries) = fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            return vec![self.pid];
        };
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Returns whether the agent has a file of the bpf system call open: a map, a program or a link.
    pub fn has_probes(&self) -> bool {
        let files = fs::read_dir(format!("/proc/{}/fd", self.pid)).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|entry| fs::read_link(entry.path()).ok());
        targets.any(|target| target.to_string_lossy().starts_with("anon_inode:bpf"))
    }

    /// Sends SIGTERM to the agent, and returns how it ended.
    pub fn stop(&self, reaper: &mut Reaper) -> Option<Ended> {
        if reaper.ended(self.pid).is_none() {
            processes::signal(self.pid, libc::SIGTERM);
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if let Some(ended) = reaper.ended(self.pid) {
                return Some(ended);
            }
            sleep(Duration::from_millis(5));
        }
        processes::signal(self.pid, libc::SIGKILL);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_with_a_runtimes_prefix_is_read() {
        for line in ["{\"event\":\"ready\"}", "2026-11-22T00:00:00.1Z stderr F {\"event\":\"ready\"}"] {
            assert!(record(line).unwrap().is("ready"), "{line}");
        }
        assert!(record("not JSON").is_none());
    }
}
