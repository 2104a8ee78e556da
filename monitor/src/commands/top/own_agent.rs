//! An agent that `top` starts where none runs: it only observes, and ends with the view.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use rustix::rand::{GetRandomFlags, getrandom};
use tempfile::TempDir;

use super::super::agent_client::Agent;
use super::super::input::{self, CommandError};
use super::super::run::{LOG_FOR_TOP, TOKEN_FOR_TOP};

/// How long the agent may take to end.
const END_TIME: Duration = Duration::from_secs(3);

/// A child process that measures this node. Dropping it ends the process and removes its files. The kernel ends the process, too, when the thread
/// that has started it ends.
pub struct OwnAgent {
    pub agent: Agent,
    child: Child,
    directory: TempDir,
}

impl OwnAgent {
    /// Starts the agent with the thresholds of this configuration file.
    pub fn start(config: Option<&Path>) -> Result<Self, CommandError> {
        if config.is_some_and(input::is_stdin) {
            let reason =
                "top: no agent runs, and top cannot measure with a configuration from standard input; name a file";
            return Err(CommandError::Usage(reason.to_owned()));
        }
        let failed = |what: &str, error: std::io::Error| {
            CommandError::Wrong(format!("top: cannot measure this node: {what}: {error}"))
        };
        let directory = tempfile::Builder::new()
            .prefix("node-pressure-top-")
            // The log names workloads of all users.
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir();
        let directory = directory.map_err(|error| failed("a temporary directory cannot be made", error))?;
        let token = token().map_err(|error| failed("no random numbers", error))?;
        let kept = secret(&directory.path().join(TOKEN_FOR_TOP), &token);
        kept.map_err(|error| failed("the token cannot be written", error))?;
        let log = File::create(directory.path().join(LOG_FOR_TOP));
        let log = log.map_err(|error| failed("the log cannot be written", error))?;
        // The agent inherits the socket: no other process can take its port in between.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| failed("cannot listen", error))?;
        let address = listener.local_addr().map_err(|error| failed("cannot listen", error))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("node-pressure-monitor").args(["run", "--log-format", "json", "--listen", &address.to_string()]);
        command.arg("--for-top").arg(directory.path()).args(["--parent", &std::process::id().to_string()]);
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        command.stdin(OwnedFd::from(listener)).stdout(Stdio::null()).stderr(log);
        // Signals of the terminal are for the view alone, which ends the agent.
        command.process_group(0);
        let child = command.spawn().map_err(|error| failed("the agent cannot be started", error))?;
        let agent = Agent::new(&address.to_string(), Some(token.as_str().into()));
        Ok(Self { agent, child, directory })
    }

    pub fn log(&self) -> PathBuf {
        self.directory.path().join(LOG_FOR_TOP)
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for OwnAgent {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ended_already = rustix::process::kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + END_TIME;
        while Instant::now() < deadline {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

/// Returns 128 random bits in hexadecimal digits.
fn token() -> std::io::Result<String> {
    let mut random = [0_u8; 16];
    let filled = getrandom(&mut random[..], GetRandomFlags::empty())?;
    if filled < random.len() {
        return Err(std::io::Error::other("too few"));
    }
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a file that only this user can read.
fn secret(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file: fs::File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
