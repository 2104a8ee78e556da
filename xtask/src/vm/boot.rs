//! One boot: prepares it, starts it, reads its console, and judges the result.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use super::accel::Accel;
use super::initramfs::Initramfs;
use super::qemu::{self, Machine, Output, Running};
use super::record::{Ending, Record};
use super::report::Live;
use super::scenario::{self, Guest};
use super::verdict::Verdict;
use super::viewers::Viewers;
use super::{Cgroup, Plan, Runtime, check_command_line, disks, images, kubernetes, modules};
use crate::console::Console;
use crate::dist;
use crate::image;
use crate::paths::Workspace;
use crate::setup;
use crate::setup::guest_root::{self, Root};
use crate::setup::kernel::Kernel;
use crate::setup::unpacked::{CONTAINERD_2, EARLYOOM};

/// How long a guest that has finished or crashed may take to power off.
const FAREWELL: Duration = Duration::from_secs(20);
/// How far a scenario may exceed its time limit before xtask stops the boot. The guest's own watchdog acts earlier.
const SCENARIO_MARGIN: Duration = Duration::from_secs(30);

/// Further kernel parameters of the guest with systemd: the device of its root, and settings that keep systemd off the console.
const SYSTEMD: &str = " npm.root=/dev/vdc systemd.show_status=0 systemd.getty_auto=no systemd.log_target=kmsg";

/// Without these parameters systemd mounts cgroup v2 (systemd 252; the second has been needed since systemd 256).
const SYSTEMD_ON_V1: &str = " systemd.unified_cgroup_hierarchy=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1";

/// The device with the programs of Kubernetes.
const KUBERNETES: &str = " npm.kubernetes=/dev/vdd";

/// The name of the agent's own image among the archives of the guest with containers.
const OWN_IMAGE: &str = "node-pressure-monitor.tar";
/// How the names of scenarios with the agent's packages begin.
const OF_PACKAGES: &str = "package-";
/// The directory of the agent's manifests for the guest with containers.
const MANIFESTS: &str = "config/kubernetes";
const CHART: &str = "config/helm/node-pressure-monitor";
/// The directory of the example of a lifecycle hook.
const JOURNAL_HOOK: &str = "config/openshift/journal-hook";

#[derive(Debug)]
pub struct Boot<'a> {
    pub workspace: &'a Workspace,
    /// The directory of all boots, where logs are kept.
    pub dir: &'a Path,
    pub console: &'a Console,
    pub plan: &'a Plan,
    pub kernel: &'a Kernel,
    pub accel: Accel,
}

impl Boot<'_> {
    pub fn run(&self) -> Result<Verdict> {
        let Self { dir, plan, kernel, accel, console, .. } = self;
        let expressions: Vec<String> = plan.requests.iter().map(super::Request::expression).collect();
        // A kernel oops ends the boot at once, because later results would prove nothing. Console messages below critical are
        // off, because they would interrupt the guest's lines. The guest reads them from /dev/kmsg. The kernel's check of the timer
        // fails at times on a busy machine: an emulated interrupt comes too late for it.
        let mut append = format!(
            "console={} no_timer_check panic=-1 oops=panic quiet loglevel=3 psi=1 npm.cgroup={} npm.pages={} npm.chaos={} npm.scenarios={}",
            qemu::console(plan.arch),
            plan.cgroup.word(),
            u32::from(plan.pages),
            plan.chaos,
            expressions.join(",")
        );
        if plan.guest != Guest::Plain {
            append.push_str(SYSTEMD);
            if plan.cgroup == Cgroup::V1 {
                append.push_str(SYSTEMD_ON_V1);
            }
        }
        if plan.guest == Guest::Cluster {
            append.push_str(KUBERNETES);
            append.push_str(" npm.runtime=");
            append.push_str(plan.runtime.word());
        }
        let name = file_name(&plan.label());
        let scratch = Scratch::create(dir.join(&name))?;
        let viewers = Viewers::start(self.workspace, &plan.requests, &scratch.path, console)?;
        append.push_str(&viewers.as_ref().map(Viewers::append).unwrap_or_default());
        check_command_line(&append)?;
        let initramfs = scratch.path.join("initramfs.cpio");
        self.initramfs(&scratch.path, viewers.is_some())?.write(&initramfs)?;
        let machine = Machine {
            arch: plan.arch,
            accel: *accel,
            kernel: kernel.image.clone(),
            initramfs,
            append,
            memory_mib: plan.memory_mib,
            yields: plan.yields,
            forwarded: viewers.as_ref().map(|viewers| viewers.forwarded),
            disks: match plan.guest {
                Guest::Plain => disks::plain(&scratch.path)?,
                Guest::Containerd => {
                    disks::with_containers(&scratch.path, self.root(Root::Containers, &scratch.path)?)?
                }
                Guest::Cluster => {
                    let programs = kubernetes::image_of_programs(plan.runtime, &scratch.path)?;
                    disks::with_cluster(&scratch.path, self.root(Root::Cluster, &scratch.path)?, programs)?
                }
            },
        };
        console.say(format_args!(
            "== {} (Linux {}, {}, {} MiB): {}",
            plan.label(),
            kernel.release,
            accel.word(),
            plan.memory_mib,
            expressions.join(" ")
        ));
        let log = dir.join(format!("serial-{name}.log"));
        let start = Instant::now();
        let mut record = Record::default();
        let ending = self.listen(&machine, &log, start, &mut record)?;
        drop(viewers);
        scratch.remove()?;
        let problems = record.problems(&plan.requests, &ending);
        let retry = record.is_worth_a_retry();
        let mut verdict = Verdict {
            label: plan.label(),
            environment: self.environment(record.versions.as_deref()),
            is_known: record.versions.is_some(),
            release: kernel.release.clone(),
            missing: record.missing(&plan.requests),
            counts: record.counts(),
            runs: record.runs,
            problems,
            retried: false,
            seconds: start.elapsed().as_secs_f64(),
            retry,
            log: None,
        };
        if !verdict.passed() || plan.keep_log {
            let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let kept = log.with_extension(format!("{seconds}.log"));
            fs::copy(&log, &kept).with_context(|| format!("keeping {}", kept.display()))?;
            console.say(format_args!("serial log: {}", kept.display()));
            verdict.log = Some(kept);
        }
        Ok(verdict)
    }

    /// Returns what runs, with its versions: `Kubernetes 1.36.2, containerd 1.6.20, Linux 6.12.117, cgroup v2, amd64, emulated`.
    fn environment(&self, versions: Option<&str>) -> String {
        let plan = self.plan;
        let versions = versions.map(|versions| format!("{versions}, ")).unwrap_or_default();
        let packed = if plan.agent.is_some() { ", compiled for size" } else { "" };
        let machine = if self.accel == Accel::Tcg { "emulated" } else { "KVM" };
        let (release, cgroup, arch) = (&self.kernel.release, plan.cgroup.word(), plan.arch);
        let release = release.trim_end_matches(&format!("-{arch}"));
        format!("{versions}Linux {release}, cgroup {cgroup}, {arch}, {machine}{packed}")
    }

    /// Returns the image of the root file system. With another containerd than its own it is a copy for this boot.
    fn root(&self, root: Root, scratch: &Path) -> Result<PathBuf> {
        let cache = self.workspace.cache();
        let image = root.path(&cache);
        if self.plan.runtime != Runtime::Containerd2 {
            return Ok(image);
        }
        let copy = scratch.join("root.img");
        let programs = CONTAINERD_2.programs.iter().map(|program| CONTAINERD_2.directory(&cache).join(program.name));
        guest_root::replace_programs(&image, &copy, &programs.collect::<Vec<_>>())?;
        Ok(copy)
    }

    fn initramfs(&self, scratch: &Path, with_viewers: bool) -> Result<Initramfs> {
        let mut root = Initramfs::default();
        let arch = self.plan.arch;
        let release = self.workspace.release_for(arch, "node-pressure-monitor");
        let agent = self.plan.agent.as_ref().unwrap_or(&release);
        let [init, worlds] = ["vm-guest", "worlds"].map(|name| self.workspace.release_for(arch, name));
        for (path, program) in [("/init", &init), ("/bin/worlds", &worlds), ("/bin/node-pressure-monitor", agent)] {
            root.files.own_program(path, (program, arch), scratch)?;
        }
        let busybox = setup::busybox(&self.workspace.cache(), arch);
        root.files.program("/bin/busybox", &busybox)?;
        if arch.is_host() {
            let earlyoom = EARLYOOM.program(&self.workspace.cache(), "earlyoom");
            let earlyoom = earlyoom.context("earlyoom is not there: run `cargo xtask setup`")?;
            root.files.program("/bin/earlyoom", &earlyoom)?;
        }
        let modules = match &self.kernel.modules {
            Some(dir) => modules::load(dir, self.plan.guest == Guest::Cluster, with_viewers)?,
            None => Vec::new(),
        };
        root.modules(modules);
        if self.plan.guest != Guest::Plain {
            let own = scratch.join(OWN_IMAGE);
            image::write(self.workspace, &[(arch, agent.clone())], image::DEFAULT_REFERENCE, &own)?;
            for archive in images::make(&busybox, scratch)?.into_iter().chain([own]) {
                let name = archive.file_name().unwrap_or_default().to_string_lossy();
                root.files.file(&format!("/archives/{name}"), &archive)?;
            }
            if self.plan.requests.iter().any(|request| request.entry.name.starts_with(OF_PACKAGES)) {
                for package in dist::for_guest(self.workspace, arch, agent, scratch)? {
                    let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    root.files.file(&format!("/packages/{name}"), &package)?;
                }
            }
            for (path, directory) in [("/manifests", MANIFESTS), ("/chart", CHART), ("/journal-hook", JOURNAL_HOOK)] {
                root.files.tree(path, &self.workspace.root.join(directory))?;
            }
        }
        Ok(root)
    }

    /// Reads the console to the end, or stops the machine when it hangs.
    fn listen(&self, machine: &Machine, log: &Path, start: Instant, record: &mut Record) -> Result<Ending> {
        let mut running = machine.start(log)?;
        let mut live = Live::new(self.console);
        let mut last_line = start;
        let mut deadline = start + self.plan.time_limit;
        let mut complaints = Vec::new();
        let ending = loop {
            let now = Instant::now();
            let finished = record.end.is_some() || record.crash.is_some();
            if finished {
                deadline = deadline.min(last_line + FAREWELL);
            }
            if now >= deadline {
                break match record.end {
                    // The guest printed all outcomes. A guest that does not power off is not the agent's fault.
                    Some(_) => Ending::Exited,
                    None => Ending::Stopped(format!("stopped after {} s in all", (now - start).as_secs())),
                };
            }
            if let Some(reason) = self.hang(record, start, last_line, now) {
                break Ending::Stopped(reason);
            }
            match running.next(Duration::from_millis(500)) {
                Ok(Some(Output::Console(text))) => {
                    last_line = Instant::now();
                    let at = last_line - start;
                    if let Some(line) = record.take(&text, at) {
                        live.show(&line, record, at);
                    }
                }
                Ok(Some(Output::Emulator(text))) => complaints.push(text),
                Ok(None) => live.tick(record, start.elapsed()),
                Err(_) => break Ending::Exited,
            }
        };
        live.finish();
        self.emulator_failure(&mut running, record, &complaints)?;
        Ok(ending)
    }

    fn hang(&self, record: &Record, start: Instant, last_line: Instant, now: Instant) -> Option<String> {
        if now - last_line >= self.plan.silence_limit {
            return Some(format!(
                "stopped after {} s without a line from the guest",
                self.plan.silence_limit.as_secs()
            ));
        }
        let running = record.running.as_ref()?;
        let request = self.plan.requests.iter().find(|request| request.entry.name == running.name)?;
        let limit = scenario::time_limit(std::slice::from_ref(request), self.plan.chaos.span()) + SCENARIO_MARGIN;
        let took = (now - start).saturating_sub(running.since);
        (took > limit).then(|| format!("stopped: {} ran for {} s", running.name, took.as_secs()))
    }

    /// Fails if QEMU failed before the guest ran a scenario: the set-up is broken, and no scenario has failed.
    fn emulator_failure(&self, running: &mut Running, record: &Record, complaints: &[String]) -> Result<()> {
        let code = running.exit_code(Duration::from_millis(200))?;
        for complaint in complaints {
            self.console.say(format_args!("QEMU says: {complaint}"));
        }
        match code {
            Some(code) if code != 0 && record.runs.is_empty() && record.running.is_none() => {
                bail!("`{}` failed with exit code {code}: {}", running.shown, complaints.join("; "))
            }
            _ => Ok(()),
        }
    }
}

/// The files of one boot: initramfs, disks, archives. Concurrent boots have different labels, and therefore different files.
#[derive(Debug)]
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates an empty directory. Removes the files of an aborted boot.
    fn create(path: PathBuf) -> Result<Self> {
        let scratch = Self { path };
        if scratch.path.exists() {
            scratch.remove()?;
        }
        fs::create_dir_all(&scratch.path).with_context(|| format!("creating {}", scratch.path.display()))?;
        Ok(scratch)
    }

    fn remove(&self) -> Result<()> {
        fs::remove_dir_all(&self.path).with_context(|| format!("removing {}", self.path.display()))
    }
}

/// Returns a label as part of a file name.
fn file_name(label: &str) -> String {
    label.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect()
}
