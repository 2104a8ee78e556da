//! A node whose container runtime and kubelet are not in `system.slice`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::super::pressure::EVERYTHING_MIB;
use super::{AFTERMATH, LIMIT, config, note_evictions};
use crate::agent::PROGRAM;
use crate::cgroups::{Cgroup, Qos};
use crate::console;
use crate::containers::{Node, Storage, cri, systemctl};
use crate::stage::Stage;

const SLICE: &str = "runtime.slice";
const UNITS: &str = "/run/systemd/system";
const KUBELET_SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";

/// containerd in [`SLICE`], and a process with the kubelet's socket. Dropping it moves containerd back.
#[derive(Debug)]
struct RuntimeSlice;

impl RuntimeSlice {
    /// Starts both services. The disks must be mounted.
    fn arrange() -> Result<Self> {
        let program = fs::read_link("/proc/self/exe").context("the path of this program")?;
        let kubelet = format!(
            "[Service]\nSlice={SLICE}\nExecStart={} work listen --name kubelet --socket {KUBELET_SOCKET} --mib 40\n",
            program.display()
        );
        let slice = Self;
        for (name, text) in
            [("containerd.service.d/slice.conf", &format!("[Service]\nSlice={SLICE}\n")), ("kubelet.service", &kubelet)]
        {
            let path = Path::new(UNITS).join(name);
            fs::create_dir_all(path.parent().context("no directory")?).context("create a drop-in directory")?;
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        if let Some(directory) = Path::new(KUBELET_SOCKET).parent() {
            fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        }
        let _ = fs::remove_file(KUBELET_SOCKET);
        systemctl(&["daemon-reload"])?;
        systemctl(&["restart", "containerd.service", "kubelet.service"])?;
        Ok(slice)
    }

    fn restore() -> Result<()> {
        systemctl(&["stop", "kubelet.service", "containerd.service"])?;
        for name in ["containerd.service.d/slice.conf", "kubelet.service"] {
            let path = Path::new(UNITS).join(name);
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
        systemctl(&["daemon-reload"])?;
        systemctl(&["start", "containerd.service"])
    }
}

impl Drop for RuntimeSlice {
    fn drop(&mut self) {
        if let Err(error) = Self::restore() {
            console::note("runtime-slice", format!("moving containerd back: {error:#}"));
        }
    }
}

/// A ramp on a node that is laid out as EKS's nodes are.
pub fn runtime_slice(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::Shared)?;
    let slice = RuntimeSlice::arrange()?;
    node.start_runtime()?;
    let services = [format!("{SLICE}/containerd.service"), format!("{SLICE}/kubelet.service")];
    let cgroups = services.each_ref().map(|path| Cgroup::absent(stage.layout(), path));
    let leaker = node.pod(stage, "leaker", Qos::Burstable, &[])?;
    let id = leaker.run("main", "while :; do sleep 5; done")?;
    let before = cgroups.each_ref().map(Cgroup::processes);
    stage.check(before.iter().all(|pids| !pids.is_empty()), || format!("no processes in {services:?}"));

    let doctor = Command::new(PROGRAM).arg("doctor").output().context("start doctor")?;
    let text = String::from_utf8_lossy(&doctor.stdout);
    stage.page("$ node-pressure-monitor doctor");
    stage.page(&text);
    for service in &services {
        stage.check(text.contains(service.as_str()), || format!("doctor does not name {service}"));
    }

    let agent = stage.agent(&config())?;
    let work = format!("ramp --name leaker --rate 60 --to {EVERYTHING_MIB} --fast-until 200");
    let worker = stage.work_in(&leaker.scope(stage.layout(), &id), "leaker", &work, 0)?;
    stage.until(LIMIT, |stage| stage.reaper.ended(worker.pid).is_some());
    stage.pause(AFTERMATH);
    stage.check_killed(&worker);
    let after = cgroups.each_ref().map(Cgroup::processes);
    for ((service, before), after) in services.iter().zip(&before).zip(&after) {
        // A shim ends with its pod. The first process is the service's own.
        let lives = before.first().is_some_and(|first| after.contains(first));
        stage.check(lives, || format!("{service}: processes before {before:?}, after {after:?}"));
    }
    let (by_agent, _) = stage.signals_of(&agent)?;
    let hit: Vec<i32> = by_agent
        .iter()
        .map(|signal| signal.target)
        .filter(|pid| before.iter().flatten().any(|one| one == pid))
        .collect();
    stage.check(hit.is_empty(), || format!("the agent signalled processes of the runtime or the kubelet: {hit:?}"));
    let version = cri::version();
    stage.check(version.is_ok(), || format!("containerd does not answer: {version:?}"));
    let evicted = super::super::culprit::evicted(&agent);
    stage.check_equal("evicted", &evicted, &vec![leaker.workload().to_owned()]);
    if evicted.len() != 1 {
        note_evictions(stage, &agent);
    }
    stage.check_no_oom_kill()?;
    stage.stop(&agent);
    drop(slice);
    drop(node);
    Ok(())
}
