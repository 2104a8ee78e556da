//! Programs of the host that look at the agent in the guest. The guest's user network forwards a port of the loopback address to
//! the agent, and the guest reaches the programs at the address of the host.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use anyhow::{Context as _, Result};

use super::pictures;
use super::scenario::{FORWARDED, PICTURES, Request, Viewer};
use crate::background::{Background, bound_to_this_process, free_port};
use crate::console::Console;
use crate::paths::Workspace;
use crate::setup;
use crate::setup::unpacked::PROMETHEUS;

/// The seconds after which a browser ends by itself.
const BROWSER_SECONDS: &str = "300";

/// The viewers of one boot. Dropping them ends the Prometheus; a browser ends with its connection.
#[derive(Debug)]
pub struct Viewers {
    /// The port of the loopback address that leads to the agent.
    pub forwarded: u16,
    ports: Vec<(Viewer, u16)>,
    /// The port that keeps pictures.
    pictures: Option<u16>,
    prometheus: Option<Background>,
}

impl Viewers {
    /// Starts the viewers that the scenarios need and this machine has; `None` if no scenario needs one.
    pub fn start(
        workspace: &Workspace,
        requests: &[Request],
        scratch: &Path,
        console: &Console,
    ) -> Result<Option<Self>> {
        let wanted = |viewer| requests.iter().any(|request| request.entry.viewer == Some(viewer));
        if !wanted(Viewer::Prometheus) && !wanted(Viewer::Browser) {
            return Ok(None);
        }
        let mut viewers = Self { forwarded: free_port()?, ports: Vec::new(), pictures: None, prometheus: None };
        if wanted(Viewer::Prometheus) {
            match PROMETHEUS.program(&workspace.cache(), "prometheus") {
                Ok(program) => viewers.prometheus(workspace, &program, scratch)?,
                Err(lack) => console.say(format_args!("Prometheus: {lack}; the scenarios that need it are skipped")),
            }
        }
        if wanted(Viewer::Browser) {
            match setup::browser() {
                Ok(program) => {
                    viewers.browser(program, scratch.parent().unwrap_or(scratch))?;
                    viewers.pictures = pictures::listen()?;
                }
                Err(lack) => console.say(format_args!("Chromium: {lack}; the scenarios that need it are skipped")),
            }
        }
        Ok(Some(viewers))
    }

    /// Returns the words of the kernel command line that name the ports.
    pub fn append(&self) -> String {
        let viewers = self.ports.iter().map(|(viewer, port)| format!(" {}={port}", viewer.key()));
        let pictures = self.pictures.map(|port| format!(" {PICTURES}={port}")).unwrap_or_default();
        format!(" {FORWARDED}={}{}{pictures}", self.forwarded, viewers.collect::<String>())
    }

    fn prometheus(&mut self, workspace: &Workspace, program: &Path, scratch: &Path) -> Result<()> {
        let rules = workspace.root.join("config/prometheus/rules.yaml");
        let file = scratch.join("prometheus.yml");
        let text = prometheus_configuration(&rules, self.forwarded);
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        let port = free_port()?;
        let mut command = bound_to_this_process(program);
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", scratch.join("prometheus").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        self.prometheus = Some(Background::start(&mut command, scratch.join("prometheus.log"))?);
        self.ports.push((Viewer::Prometheus, port));
        Ok(())
    }

    /// Listens for the guest. Each connection gets a browser of its own, whose protocol it carries.
    fn browser(&mut self, program: PathBuf, directory: &Path) -> Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening for the guest")?;
        let port = listener.local_addr().context("the port for the browser")?.port();
        let directory = directory.to_owned();
        thread::Builder::new()
            .name("browser".to_owned())
            .spawn(move || {
                for (number, connection) in listener.incoming().flatten().enumerate() {
                    let profile = directory.join(format!("browser-{port}-{number}"));
                    if let Err(error) = serve_browser(&program, &profile, connection) {
                        eprintln!("warning: {error:#}; the scenario that asked for a browser fails");
                    }
                }
            })
            .context("starting the thread that listens for the guest")?;
        self.ports.push((Viewer::Browser, port));
        Ok(())
    }
}

/// Runs a browser whose DevTools protocol is this connection, until it ends.
fn serve_browser(program: &Path, profile: &Path, connection: TcpStream) -> Result<()> {
    let output = connection.try_clone().context("the connection of the guest")?;
    // Chromium reads the protocol from its file descriptor 3, and writes it to 4.
    let mut command = bound_to_this_process(Path::new("timeout"));
    let shell = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
    let ended = command
        .args([BROWSER_SECONDS, "sh", "-c", shell, "sh"])
        .arg(program)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--disable-background-networking", "--remote-debugging-pipe"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .stdin(OwnedFd::from(connection))
        .stdout(OwnedFd::from(output))
        .stderr(Stdio::null())
        .status();
    // The browser may have ended before it made its profile.
    let _ = fs::remove_dir_all(profile);
    ended.with_context(|| format!("cannot run {}", program.display())).map(drop)
}

/// A scrape has as much time as the interval: an emulated guest beside other work does not always answer within a second.
fn prometheus_configuration(rules: &Path, forwarded: u16) -> String {
    format!(
        "global: {{scrape_interval: 2s, evaluation_interval: 1s}}\n\
         rule_files: [\"{}\"]\n\
         scrape_configs:\n\
         - job_name: node-pressure-monitor\n  \
           honor_labels: true\n  \
           static_configs: [{{targets: [\"127.0.0.1:{forwarded}\"], labels: {{node: guest}}}}]\n",
        rules.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_are_words_of_the_command_line() {
        let ports = vec![(Viewer::Prometheus, 9090), (Viewer::Browser, 9222)];
        let viewers = Viewers { forwarded: 40_000, ports, pictures: None, prometheus: None };
        assert_eq!(viewers.append(), " npm.forwarded=40000 npm.prometheus=9090 npm.browser=9222");
        let viewers = Viewers { pictures: Some(9333), ports: Vec::new(), ..viewers };
        assert_eq!(viewers.append(), " npm.forwarded=40000 npm.pictures=9333");
    }

    #[test]
    fn a_prometheus_scrapes_the_forwarded_port() {
        let text = prometheus_configuration(Path::new("/rules.yaml"), 40_000);
        assert!(text.contains("rule_files: [\"/rules.yaml\"]\n"), "{text}");
        assert!(text.contains("\n- job_name: node-pressure-monitor\n  honor_labels: true\n  static"), "{text}");
        assert!(text.contains("\"127.0.0.1:40000\""), "{text}");
    }
}
