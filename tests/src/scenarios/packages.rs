//! The packages, installed on a Debian with systemd: the service observes, enforces after one edited line, is upgraded in mid-eviction, and
//! leaves nothing behind.

mod system;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::enforcing::pending::Frozen;
use crate::containers::{run, systemctl, wait_for};
use crate::evidence::meminfo;
use crate::init::{EXT4, mount_at};
use crate::stage::Stage;
use crate::units::MIB;
use system::{CONFIG, Machine, NAME, PROGRAM, Unit, output};

/// Emulated machines are slow, and dpkg writes every file to the disk.
const LIMIT: Duration = Duration::from_secs(90);
/// The disk that the victim writes to. containerd uses it in other scenarios.
const DISK: &str = "/dev/vda";
const KEEPER: &str = "keeper";
const HOG: &str = "hog";

/// Files of the package for Debian. RPM's has the completions for zsh elsewhere.
const FILES: [&str; 12] = [
    PROGRAM,
    "/usr/bin/kubectl-node_pressure",
    CONFIG,
    "/usr/lib/systemd/system/node-pressure-monitor.service",
    "/usr/share/man/man1/node-pressure-monitor.1.gz",
    "/usr/share/man/man1/node-pressure-monitor-run.1.gz",
    "/usr/share/bash-completion/completions/node-pressure-monitor",
    "/usr/share/fish/vendor_completions.d/node-pressure-monitor.fish",
    "/usr/share/doc/node-pressure-monitor/LICENSE-MIT",
    "/usr/share/doc/node-pressure-monitor/prometheus/rules.yaml",
    "/usr/share/doc/node-pressure-monitor/runbooks/NodeOOMKill.md",
    "/usr/share/node-pressure-monitor/monitor.schema.json",
];

/// Installs, upgrades and purges the package for Debian.
pub fn debian(stage: &mut Stage<'_>) -> Result<()> {
    if stage.boot.storage.get().is_some() {
        stage.skip("containerd already uses the disk: run this scenario first");
        return Ok(());
    }
    let machine = Machine::prepare(stage.layout())?;
    let before = machine.traces()?;
    let keeper = Unit::start(KEEPER, "hold --name keeper --mib 60")?;
    let score = keeper.score()?;

    let text = output("dpkg", &["-i", &machine.package("deb", false)?])?;
    stage.note(text.lines().last().unwrap_or_default().to_owned());
    check_installed(stage, "/usr/share/zsh/vendor-completions/_node-pressure-monitor")?;
    let service = ready(stage, "after the installation")?;
    check_mode(stage, "observe");
    stage.check(machine.is_enabled(), || "the service is not enabled".to_owned());

    enforce()?;
    let enforces = stage.until(LIMIT, |_| mode().is_ok_and(|mode| mode == "enforce"));
    stage.check(enforces, || format!("mode: enforce is not in force: {:?}", mode()));
    stage.check_equal("the agent's process after the reload", &machine.main_pid()?, &service);

    upgrade_in_mid_eviction(stage, &machine, &service)?;

    let purge = output("dpkg", &["--purge", NAME])?;
    stage.note(purge.lines().last().unwrap_or_default().to_owned());
    stage.check_equal("oom_score_adj of another service after the purge", &keeper.score()?, &score);
    keeper.stop()?;
    check_no_trace(stage, &machine, &before)
}

/// Begins an eviction that cannot end, upgrades the package meanwhile, and lets the eviction end.
fn upgrade_in_mid_eviction(stage: &mut Stage<'_>, machine: &Machine, service: &str) -> Result<()> {
    mount_at(DISK, EXT4, "ext4", "")?;
    let frozen = Frozen::freeze(EXT4)?;
    // The thread that writes to the frozen disk cannot end, so the eviction stays under way. The memory comes back all the same.
    let hog = Unit::start(HOG, &format!("ramp --name hog --rate 60 --to 900 --fast-until 190 --write-to {EXT4}/hog"))?;
    let killed = stage.until(LIMIT, |_| !hog.has_memory());
    stage.check(killed, || "the ramp was not evicted".to_owned());
    let is_back = stage.until(LIMIT, |_| meminfo("MemAvailable").is_ok_and(|bytes| bytes > 150 * MIB));
    stage.check(is_back, || "the memory of the victim did not come back".to_owned());
    stage.check(hog.is_process(), || "the victim has ended: the upgrade is not in mid-eviction".to_owned());

    output("dpkg", &["-i", &machine.package("deb", true)?])?;
    let version = output("dpkg-query", &["-W", "-f=${Version}", NAME])?;
    stage.check(version.ends_with("+next"), || format!("the version is {version}"));
    let next = ready(stage, "after the upgrade")?;
    stage.check(next != service, || format!("the upgrade did not restart the service: process {next}"));
    check_mode(stage, "enforce");
    stage.check(hog.is_process(), || "the victim ended before the upgrade was complete".to_owned());

    drop(frozen);
    let gone = stage.until(LIMIT, |_| !hog.is_process());
    stage.check(gone, || "the victim did not end".to_owned());
    // Time for a second record to appear.
    stage.pause(Duration::from_secs(3));
    let recorded = evictions(HOG)?;
    if recorded != 1 {
        note_log(stage)?;
    }
    stage.check_equal("incidents of this eviction", &recorded, &1);
    stage.check_equal("incidents of all evictions", &evictions("")?, &1);
    stage.check_no_oom_kill()?;
    hog.stop()?;
    run("umount", &[EXT4])
}

/// Installs, upgrades and erases the package for RPM with the program `rpm`, which runs the package's scripts.
pub fn red_hat(stage: &mut Stage<'_>) -> Result<()> {
    if !Path::new("/usr/bin/rpm").exists() {
        stage.skip("this guest has no rpm: the image of the guest is of an earlier recipe");
        return Ok(());
    }
    let machine = Machine::prepare(stage.layout())?;
    let before = machine.traces()?;
    // Debian's rpm refuses to install without the first option; its database does not know Debian's systemd.
    let rpm = |action: &str, package: &str| output("rpm", &["--force-debian", "--nodeps", action, package]);
    let first = machine.package("rpm", false)?;
    let scripts = output("rpm", &["-qp", "--scripts", &first])?;
    for script in ["postinstall", "preuninstall", "postuninstall"] {
        stage.check(scripts.contains(script), || format!("no {script} script: {scripts}"));
    }
    let configuration = output("rpm", &["-qpc", &first])?;
    stage.check_equal("configuration files", &configuration.trim(), &CONFIG);

    rpm("-i", &first)?;
    check_installed(stage, "/usr/share/zsh/site-functions/_node-pressure-monitor")?;
    // Debian has no presets, and without presets a unit is enabled. RPM starts no service.
    stage.check(machine.is_enabled(), || "the preset was not applied".to_owned());
    stage.check_equal("the process before the start", &machine.main_pid()?.as_str(), &"0");
    systemctl(&["start", NAME])?;
    let service = ready(stage, "after the installation")?;
    enforce()?;

    rpm("-U", &machine.package("rpm", true)?)?;
    let next = ready(stage, "after the upgrade")?;
    stage.check(next != service, || format!("the upgrade did not restart the service: process {next}"));
    check_mode(stage, "enforce");

    rpm("-e", NAME)?;
    stage.check_equal("the process after the removal", &machine.main_pid()?.as_str(), &"0");
    // RPM keeps a changed configuration under another name, and leaves the journal.
    let saved = format!("{CONFIG}.rpmsave");
    stage.check(Path::new(&saved).exists(), || format!("{saved} is not there"));
    for directory in ["/etc/node-pressure-monitor", "/var/lib/node-pressure-monitor"] {
        fs::remove_dir_all(directory).with_context(|| format!("remove {directory}"))?;
    }
    check_no_trace(stage, &machine, &before)
}

fn check_installed(stage: &mut Stage<'_>, zsh: &'static str) -> Result<()> {
    for file in FILES.into_iter().chain([zsh]) {
        stage.check(Path::new(file).exists(), || format!("{file} is not there"));
    }
    let mode = output("stat", &["-c", "%a %U:%G", CONFIG])?;
    stage.check_equal("the permissions of the configuration", &mode.trim(), &"600 root:root");
    let page = output("sh", &["-c", "zcat /usr/share/man/man1/node-pressure-monitor-run.1.gz"])?;
    stage.check(page.contains(".TH") && page.contains("config"), || format!("no manual page: {page}"));
    let words = output("bash", &["-c", COMPLETE])?;
    stage.check(words.contains("incidents") && words.contains("doctor"), || format!("bash completes to {words:?}"));
    Ok(())
}

/// Asks bash's completion for the commands.
const COMPLETE: &str = "source /usr/share/bash-completion/completions/node-pressure-monitor; COMP_WORDS=(node-pressure-monitor ''); \
                        COMP_CWORD=1; set -- $(complete -p node-pressure-monitor); while [ $1 != -F ]; do shift; done; \
                        $2 node-pressure-monitor '' node-pressure-monitor; echo ${COMPREPLY[@]}";

/// Waits until the service is ready, and returns its process.
fn ready(stage: &mut Stage<'_>, when: &str) -> Result<String> {
    let is_ready = wait_for("the agent's answer", LIMIT, || {
        let answer = crate::http::get(system::ADDRESS, "/readyz");
        Ok(answer.is_ok_and(|(status, _)| status == 200))
    });
    if is_ready.is_err() {
        let log = output("journalctl", &["-u", NAME, "-n", "20", "-o", "cat", "--no-pager"]).unwrap_or_default();
        stage.note(format!("{when}: {log}"));
    }
    is_ready?;
    stage.check_equal(when, &output("systemctl", &["is-active", NAME])?.trim(), &"active");
    system::main_pid()
}

/// Notes the messages of the agent's log with the figures that say why no workload was evicted.
fn note_log(stage: &mut Stage<'_>) -> Result<()> {
    let log = output("journalctl", &["-u", NAME, "-o", "json", "-n", "60", "--no-pager"])?;
    for line in log.lines() {
        let fields: serde_json::Value = serde_json::from_str(line).context("a line of the journal")?;
        let figures = ["MESSAGE", "WORKLOAD", "REASON", "GROWTH_BYTES_PER_SECOND", "FALL_BYTES_PER_SECOND"];
        let figures: Vec<_> = figures.iter().filter_map(|name| fields[name].as_str()).collect();
        stage.note(format!("agent: {}", figures.join(" · ")));
    }
    Ok(())
}

/// Edits the one line, and reloads.
fn enforce() -> Result<()> {
    let text = fs::read_to_string(CONFIG).with_context(|| format!("read {CONFIG}"))?;
    fs::write(CONFIG, text.replace("\nmode: observe", "\nmode: enforce")).with_context(|| format!("write {CONFIG}"))?;
    systemctl(&["reload", NAME])
}

/// Returns the agent's mode, by the state that it serves.
fn mode() -> Result<String> {
    let (_, state) = crate::http::get(system::ADDRESS, "/api/v1/state")?;
    let state: serde_json::Value = serde_json::from_str(&state).context("/api/v1/state is not JSON")?;
    Ok(state.pointer("/agent/mode").and_then(serde_json::Value::as_str).unwrap_or("no mode").to_owned())
}

fn check_mode(stage: &mut Stage<'_>, expected: &'static str) {
    let found = mode().unwrap_or_else(|error| format!("{error:#}"));
    stage.check_equal("mode", &found.as_str(), &expected);
}

/// Returns how many incidents are evictions of a workload with this part in its name.
fn evictions(name: &str) -> Result<usize> {
    let text = output(PROGRAM, &["incidents", "--config", CONFIG, "--limit", "1000", "--output", "json"])?;
    let is_of_it = |line: &&str| {
        let incident: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        !incident["eviction"].is_null() && line.contains(name)
    };
    Ok(text.lines().filter(is_of_it).count())
}

fn check_no_trace(stage: &mut Stage<'_>, machine: &Machine, before: &[String]) -> Result<()> {
    let after = machine.traces()?;
    let left: Vec<&String> = after.iter().filter(|trace| !before.contains(trace)).collect();
    stage.check(left.is_empty(), || format!("left behind: {left:?}"));
    let gone: Vec<&String> = before.iter().filter(|trace| !after.contains(trace)).collect();
    stage.check(gone.is_empty(), || format!("removed besides: {gone:?}"));
    let cgroup = system::cgroup();
    stage.check(!cgroup.exists(), || format!("{} is there", cgroup.display()));
    Ok(())
}
