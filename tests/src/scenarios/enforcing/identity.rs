//! What a node needs is known by what it holds and where it is, on hosts without pods (tests/FIELD.md, "Identity").

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::mount::{UnmountFlags, unmount};

use super::super::cache::mounted;
use super::super::culprit::evicted;
use super::super::pressure::EVERYTHING_MIB;
use super::{Crowd, LIMIT, config};
use crate::agent::forget_decisions;
use crate::cgroups::Cgroup;
use crate::config::AgentConfig;
use crate::stage::{Stage, Worker};

/// The time in which a FUSE daemon that holds its memory has mounted.
const MOUNTED_WITHIN: Duration = Duration::from_secs(20);

const QUADLET: &str = "system.slice/app.service";
const PODMAN_ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// MiB a second, from the start on: a service of the system goes only if it has half of the fall, which is averaged over ten seconds. After a
/// fast beginning that average is larger than the leak.
const RATE_MIB: u32 = 60;
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
const SESSION_RECORD: &str = "/run/systemd/sessions/2";
/// The session's id, which is also the name of its cgroup.
const SESSION: &str = "2";

/// Returns the command line of a process that leaks until it ends.
fn leak(name: &str) -> String {
    format!("ramp --name {name} --rate {RATE_MIB} --to {EVERYTHING_MIB}")
}

/// A file that a scenario makes in `/run`, in a directory of its own. Dropping it removes both.
#[derive(Debug)]
struct RunFile {
    path: &'static Path,
}

impl RunFile {
    /// Makes the directory, without a file.
    fn place(path: &'static str) -> Result<Self> {
        let path = Path::new(path);
        let directory = path.parent().with_context(|| format!("{} has no directory", path.display()))?;
        fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        Ok(Self { path })
    }

    fn remove(&self) {
        // The file may not be there yet.
        let _ = fs::remove_file(self.path);
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        self.remove();
        // A directory of session records decides for later scenarios which cgroups are sessions.
        let _ = self.path.parent().map(fs::remove_dir);
    }
}

/// OpenRC/openrc#681 and #910: services are cgroups `openrc.NAME` at the root. elogind/elogind#296: a session is a cgroup with its number. An
/// agent that judges by the names of systemd takes all of them for ordinary victims.
pub fn openrc_tree(stage: &mut Stage<'_>) -> Result<()> {
    // In the second round sshd is the largest workload, as by a leak in a session of it.
    for (sshd_mib, session_mib) in [(4, 420), (420, 40)] {
        stage.note(format!("sshd has {sshd_mib} MiB, the session {session_mib} MiB"));
        openrc_round(stage, sshd_mib, session_mib)?;
    }
    Ok(())
}

fn openrc_round(stage: &mut Stage<'_>, sshd_mib: u64, session_mib: u64) -> Result<()> {
    forget_decisions()?;
    let bus = RunFile::place(SYSTEM_BUS)?;
    let record = RunFile::place(SESSION_RECORD)?;
    let mut crowd = Crowd::default();
    // The names of the processes tell nothing: only the port and the socket do.
    let sshd = format!("listen --name first --port 22 --mib {sshd_mib}");
    let sshd = crowd.host_service(stage, "openrc.sshd", (&sshd, 0))?;
    bus.remove();
    let dbus = format!("listen --name second --socket {SYSTEM_BUS} --mib 30");
    let dbus = crowd.host_service(stage, "openrc.dbus", (&dbus, 0))?;
    let session = crowd.host_service(stage, SESSION, (&format!("hold --name third --mib {session_mib}"), 0))?;
    let text = format!("UID=0\nLEADER={}\n", session.pid);
    fs::write(record.path, text).with_context(|| format!("write {SESSION_RECORD}"))?;
    for (worker, mib) in [(&sshd, sshd_mib), (&dbus, 30), (&session, session_mib)] {
        stage.wait_resident(worker, mib)?;
    }
    let agent = stage.agent(&config())?;
    let app = crowd.host_service(stage, "openrc.app", (&leak("app"), 0))?;
    crowd.only_these_die(stage, &agent, &[&app], LIMIT)?;
    stage.check_killed(&app);
    let needed: [&Worker; 3] = [&sshd, &dbus, &session];
    stage.check_alive(&needed);
    stage.stop(&agent);
    crowd.end(stage);
    Ok(())
}

/// containers/podman#16589 and #23664: Podman splits the cgroup of a quadlet's service into `runtime`, with conmon, and the container's. conmon has
/// the name of a container monitor and an `oom_score_adj` of -1000, and each of the two would exempt the service.
pub fn quadlet(stage: &mut Stage<'_>) -> Result<()> {
    let service = Cgroup::create(stage.layout(), QUADLET)?;
    stage.remove_at_end(service.clone());
    let mut crowd = Crowd::default();
    let ballast = crowd.host_service(stage, "ballast.service", ("hold --name ballast --mib 300", -1000))?;
    stage.wait_resident(&ballast, 300)?;
    // A service outside system.slice is a candidate like any other, also if it does not leak.
    let innocent = crowd.host_service(stage, "app.slice/web.service", ("hold --name web --mib 120", 0))?;
    stage.wait_resident(&innocent, 120)?;
    let monitor = crowd.host_service(stage, &format!("{QUADLET}/runtime"), ("hold --name conmon --mib 1", -1000))?;
    stage.wait_resident(&monitor, 1)?;
    // The container runs when the agent starts, and leaks later.
    let container = format!("{QUADLET}/libpod-payload-{PODMAN_ID}");
    let first = crowd.host_service(stage, &container, ("hold --name first --mib 20", 0))?;
    stage.wait_resident(&first, 20)?;
    let extra = "evictions:\n  services: [\"app.service\"]\n".to_owned();
    let agent = stage.agent(&AgentConfig { extra, ..config() })?;
    let payload = crowd.host_service(stage, &container, (&leak("payload"), 0))?;
    // One workload has one label, whichever of its processes the kernel ends first.
    for (_, worker) in &mut crowd.members {
        if worker.label.starts_with(QUADLET) {
            QUADLET.clone_into(&mut worker.label);
        }
    }
    let expected = Worker { label: QUADLET.to_owned(), ..payload.clone() };
    crowd.only_these_die(stage, &agent, &[&expected], LIMIT)?;
    for worker in [&payload, &first, &monitor] {
        stage.check_killed(worker);
    }
    stage.check_equal("processes left in the service", &service.processes(), &Vec::new());
    stage.check_alive(&[&innocent, &ballast]);
    let evicted = evicted(&agent);
    stage.check_equal("evicted", &evicted, &vec![QUADLET.to_owned()]);
    stage.stop(&agent);
    Ok(())
}

/// A place for a mount of a daemon that may have ended. Dropping it unmounts it.
#[derive(Debug)]
struct MountPoint(&'static str);

impl Drop for MountPoint {
    fn drop(&mut self) {
        // Lazily: a request to a daemon that has ended would fail, and the daemon may not have mounted at all.
        let _ = unmount(self.0, UnmountFlags::DETACH);
        let _ = fs::remove_dir(self.0);
    }
}

/// rclone/rclone#7936 and #2982: after the end of a FUSE daemon every access to its mount fails. systemd puts the daemon of an entry in
/// `/etc/fstab` into the `.mount` unit. One that a person has started is in a scope, where only its open device tells what it is.
pub fn fuse_mount(stage: &mut Stage<'_>) -> Result<()> {
    if !Path::new("/dev/fuse").exists() {
        stage.skip("this guest has no /dev/fuse");
        return Ok(());
    }
    let mut crowd = Crowd::default();
    let mut daemons = Vec::new();
    let places = ["/mnt/fuse-unit", "/mnt/fuse-scope"].map(MountPoint);
    // Both are larger than the leak ever is.
    let cgroups = ["system.slice/data.mount", "run-rclone.scope"];
    for (MountPoint(place), cgroup) in places.iter().zip(cgroups) {
        let work = format!("fuse --name daemon --mount {place} --mib 270");
        let daemon = crowd.host_service(stage, cgroup, (&work, 0))?;
        stage.wait_resident(&daemon, 270)?;
        if !stage.until(MOUNTED_WITHIN, |_| mounted(place)) {
            bail!("{place} is not mounted after {MOUNTED_WITHIN:?}");
        }
        daemons.push(daemon);
    }
    let agent = stage.agent(&config())?;
    let leaker = crowd.host_service(stage, "system.slice/leaky.service", (&leak("leaky"), 0))?;
    crowd.only_these_die(stage, &agent, &[&leaker], LIMIT)?;
    stage.check_killed(&leaker);
    stage.check_alive(&daemons.iter().collect::<Vec<_>>());
    for MountPoint(place) in &places {
        stage.check(mounted(place), || format!("{place} is not mounted any more"));
    }
    stage.stop(&agent);
    Ok(())
}
