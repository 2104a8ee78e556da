//! A running agent with its own lock file, port and output files.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_node-pressure-monitor");
/// A time limit longer than any step takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running agent. Dropping it kills it.
pub struct Agent {
    pub child: Child,
    pub address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Agent {
    /// Starts an agent in observe mode with this configuration, and waits until it is ready.
    pub fn start(config: &str, format: &str) -> Self {
        let own = |arguments: &[&str]| {
            let mut command = Command::new(PROGRAM);
            command.args(arguments);
            command
        };
        Self::start_by(config, format, own)
    }

    /// Starts the agent by the command that `wrap` makes of its arguments.
    pub fn start_by(config: &str, format: &str, wrap: impl FnOnce(&[&str]) -> Command) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = free_address();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("monitor.yaml"), whole(&path("incidents"), config)).unwrap();
        let (file, lock) = (path("monitor.yaml").display().to_string(), path("lock").display().to_string());
        let listen = address.to_string();
        let arguments = [
            "run",
            "--config",
            &file,
            "--lock-file",
            &lock,
            "--listen",
            &listen,
            "--log-format",
            format,
            "--mode",
            "observe",
        ];
        let child = wrap(&arguments)
            .stdout(fs::File::create(path("out")).unwrap())
            .stderr(fs::File::create(path("err")).unwrap())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut agent = Self { child, address, directory };
        agent.wait("the agent listens and samples", 0);
        agent
    }

    /// Waits until the log contains `what` after position `from`.
    pub fn wait(&mut self, what: &str, from: usize) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self.text("err");
            let new = log.get(from..).unwrap_or_default();
            if let Some(line) = new.lines().find(|line| line.contains(what)) {
                return line.to_owned();
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("it ended with {status}: {log}");
            }
            assert!(Instant::now() < deadline, "no {what:?} in {new}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the whole response: head and body.
    pub fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_gone = self.child.wait();
    }
}

/// Returns a complete configuration file. Incidents are in the test's own directory, so that no file stays on this machine.
pub fn whole(incidents: &Path, config: &str) -> String {
    let incidents = format!("incidents: {{directory: {}}}\n", incidents.display());
    let own = if config.contains("incidents:") { "" } else { &incidents };
    configuration(&format!("{own}{config}"))
}

/// Returns a complete configuration file, except for the incidents' directory.
pub fn configuration(rest: &str) -> String {
    format!("apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n{rest}")
}

/// Returns an address whose port was free a moment ago.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
