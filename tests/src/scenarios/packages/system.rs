//! The guest's system as an administrator sees it: packages, units, and traces of the agent.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cgroups::{self, Cgroup, Layout};
use crate::containers::run;
use crate::init::PACKAGES;

pub const NAME: &str = "node-pressure-monitor";
pub const PROGRAM: &str = "/usr/bin/node-pressure-monitor";
pub const CONFIG: &str = "/etc/node-pressure-monitor/monitor.yaml";
/// The address of the default configuration.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9946);

/// Where other scenarios' agent is kept while a package has its place.
const ASIDE: &str = "/opt/agent-under-test";
/// mmdebstrap's own setting leaves documents out of every later installation as well.
const LEAVES_OUT: &str = "/etc/dpkg/dpkg.cfg.d/99mmdebstrap";
/// The cgroup in which other scenarios start agents. systemd removes it with the service.
const SERVICE: &str = "system.slice/node-pressure-monitor.service";

/// The guest without the agent of the other scenarios. Dropping it restores that agent.
#[derive(Debug)]
pub struct Machine {
    layout: Layout,
}

impl Machine {
    pub fn prepare(layout: Layout) -> Result<Self> {
        fs::rename(PROGRAM, ASIDE).with_context(|| format!("move {PROGRAM} to {ASIDE}"))?;
        let machine = Self { layout };
        if Path::new(LEAVES_OUT).exists() {
            fs::remove_file(LEAVES_OUT).with_context(|| format!("remove {LEAVES_OUT}"))?;
        }
        Ok(machine)
    }

    /// Returns the path of the package of this kind: of the present version or of the next.
    pub fn package(&self, kind: &str, is_next: bool) -> Result<String> {
        let mut found: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(PACKAGES).with_context(|| format!("read {PACKAGES}"))? {
            found.push(entry.with_context(|| format!("read {PACKAGES}"))?.path());
        }
        let is_it = |path: &&PathBuf| {
            let name = path.display().to_string();
            name.ends_with(&format!(".{kind}")) && name.contains("+next") == is_next
        };
        let path = found.iter().find(is_it).with_context(|| format!("{PACKAGES} has no such .{kind}: {found:?}"))?;
        Ok(path.display().to_string())
    }

    pub fn main_pid(&self) -> Result<String> {
        main_pid()
    }

    pub fn is_enabled(&self) -> bool {
        output("systemctl", &["is-enabled", NAME]).is_ok_and(|text| text.trim() == "enabled")
    }

    /// Returns everything in the system that has to do with the agent: files, units, cgroups, and the users.
    pub fn traces(&self) -> Result<Vec<String>> {
        let find = "find / -xdev -path /proc -prune -o -path /sys -prune -o -path /tmp -prune -o -path /var/log -prune -o \
                    \\( -name '*node-pressure*' -o -name '*node_pressure*' \\) -print; \
                    find /run /sys/fs/cgroup -name '*node-pressure*' -not -path '/run/systemd/*' -print; \
                    systemctl list-units --all --plain --no-legend '*node-pressure*'; cut -d: -f1 /etc/passwd /etc/group; \
                    grep -A1 node-pressure /var/lib/dpkg/status; true";
        let text = output("sh", &["-c", find])?;
        // The cgroup exists before: other scenarios start agents there.
        Ok(text.lines().filter(|line| !line.ends_with(SERVICE)).map(str::to_owned).collect())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Without these the following scenarios of the boot fail, each with its reason.
        if Path::new(CONFIG).exists() {
            let _ = run("dpkg", &["--purge", NAME]);
            let _ = run("rpm", &["-e", "--nodeps", NAME]);
        }
        let _ = fs::rename(ASIDE, PROGRAM);
        let _ = Cgroup::create(self.layout, SERVICE);
    }
}

/// Returns the directory of the service's cgroup, which systemd removes with the service.
pub fn cgroup() -> PathBuf {
    Path::new(cgroups::ROOT).join(SERVICE)
}

pub fn main_pid() -> Result<String> {
    Ok(output("systemctl", &["show", "--property=MainPID", "--value", NAME])?.trim().to_owned())
}

/// A workload of this program as a service of systemd.
#[derive(Debug)]
pub struct Unit {
    name: &'static str,
    pid: String,
}

impl Unit {
    pub fn start(name: &'static str, work: &str) -> Result<Self> {
        let unit = format!("--unit={name}");
        let mut arguments = vec!["--quiet", "--slice=work.slice", "--collect", &unit, "/bin/vm-guest", "work"];
        arguments.extend(work.split_whitespace());
        run("systemd-run", &arguments)?;
        let pid = output("systemctl", &["show", "--property=MainPID", "--value", name])?.trim().to_owned();
        Ok(Self { name, pid })
    }

    pub fn score(&self) -> Result<String> {
        let path = format!("/proc/{}/oom_score_adj", self.pid);
        fs::read_to_string(&path).with_context(|| format!("read {path}"))
    }

    /// Whether the kernel still has the process.
    pub fn is_process(&self) -> bool {
        self.pid != "0" && Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    /// Whether the process still has memory of its own; a process that was killed has none.
    pub fn has_memory(&self) -> bool {
        fs::read_to_string(format!("/proc/{}/status", self.pid)).is_ok_and(|text| text.contains("VmRSS"))
    }

    pub fn stop(&self) -> Result<()> {
        // A unit that has ended is no longer loaded.
        let _ = run("systemctl", &["stop", self.name]);
        Ok(())
    }
}

/// Runs a program and returns its standard output; the error has both streams.
pub fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()
        .with_context(|| format!("start {program}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let story = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}: {} {}", arguments.join(" "), output.status, story.trim(), text.trim());
    }
    Ok(text)
}
