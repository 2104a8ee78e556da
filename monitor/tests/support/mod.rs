//! Cgroups of the test, and workloads inside them. The test's binary starts itself again as each workload, so that it also runs where no
//! other program exists (the initramfs of a test VM).

use std::{
    env,
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use node_pressure_monitor::units::{CgroupId, Pid};

pub const MIB: usize = 1 << 20;
/// The common limit of victim and allocator.
pub const LIMIT: usize = 64 * MIB;
pub const VICTIM_HOLDS: usize = 40 * MIB;
pub const FILES_MADE: u64 = 200;
pub const FILES_REMOVED: u64 = 150;

/// The memory controller's hierarchy, v1 or v2.
pub struct Hierarchy {
    root: PathBuf,
    limit_file: &'static str,
    is_v2: bool,
}

impl Hierarchy {
    pub fn find() -> Option<Self> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        if v1.join("memory.limit_in_bytes").exists() {
            return Some(Self { root: v1.into(), limit_file: "memory.limit_in_bytes", is_v2: false });
        }
        let v2 = Path::new("/sys/fs/cgroup");
        let controllers = fs::read_to_string(v2.join("cgroup.controllers")).ok()?;
        let has_memory = controllers.split_whitespace().any(|name| name == "memory");
        has_memory.then(|| Self { root: v2.into(), limit_file: "memory.max", is_v2: true })
    }

    fn allow_children(&self, directory: &Path) -> Result<()> {
        if self.is_v2 {
            fs::write(directory.join("cgroup.subtree_control"), "+memory").context("cgroup.subtree_control")?;
        }
        Ok(())
    }
}

/// A limited cgroup with two inside: one for the victim and one for the allocator. Dropping it removes them.
pub struct Cgroups {
    pub top: PathBuf,
    pub is_v2: bool,
    pub victim: PathBuf,
    pub allocator: PathBuf,
}

impl Cgroups {
    pub fn make(hierarchy: &Hierarchy) -> Result<Self> {
        hierarchy.allow_children(&hierarchy.root)?;
        let top = hierarchy.root.join(format!("npm-test-{}", std::process::id()));
        let cgroups =
            Self { victim: top.join("victim"), allocator: top.join("allocator"), is_v2: hierarchy.is_v2, top };
        fs::create_dir(&cgroups.top).with_context(|| cgroups.top.display().to_string())?;
        hierarchy.allow_children(&cgroups.top)?;
        fs::create_dir(&cgroups.victim)?;
        fs::create_dir(&cgroups.allocator)?;
        fs::write(cgroups.top.join(hierarchy.limit_file), LIMIT.to_string())?;
        // Swap is off, because the limit would otherwise only swap memory out. Some kernels do not account swap.
        let _absent = fs::write(cgroups.top.join("memory.swap.max"), "0");
        Ok(cgroups)
    }

    /// Makes another cgroup below the limit. The caller removes it.
    pub fn child(&self, name: &str) -> Result<PathBuf> {
        let path = self.top.join(name);
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

/// Removes a cgroup after its last process has exited.
pub fn remove_cgroup(path: &Path) -> Result<()> {
    let begun = Instant::now();
    loop {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > Duration::from_secs(5) => bail!("{}: {error}", path.display()),
            Err(_) => thread::yield_now(),
        }
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for directory in [&self.victim, &self.allocator, &self.top] {
            // A task that has just been killed keeps its cgroup busy for a moment.
            for _ in 0..50 {
                if fs::remove_dir(directory).is_ok() {
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// A workload that is killed when the test ends early.
pub struct Workload(Child);

impl Workload {
    /// Returns when the workload is inside its cgroup and says that it is ready.
    pub fn start(kind: &str, cgroup: &Path, rest: &[String]) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["workload", kind]).arg(cgroup).args(rest).stdout(Stdio::piped());
        let mut workload = Self(command.spawn().with_context(|| format!("workload {kind}"))?);
        let stdout = workload.0.stdout.take().context("stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line.trim() == "ready", "workload {kind} said {line:?}");
        Ok(workload)
    }

    pub fn pid(&self) -> Result<Pid> {
        Ok(Pid(self.0.id().try_into()?))
    }

    /// Waits until SIGKILL ends the workload.
    pub fn wait_killed(&mut self) -> Result<()> {
        let status = self.0.wait()?;
        ensure!(status.signal() == Some(libc::SIGKILL), "workload ended with {status}");
        Ok(())
    }

    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_none())
    }

    pub fn wait(&mut self) -> Result<()> {
        let status = self.0.wait()?;
        ensure!(status.success(), "workload ended with {status}");
        Ok(())
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// Runs as a workload.
pub fn workload(kind: &str, rest: &[&str]) -> Result<()> {
    let cgroup = Path::new(rest.first().context("cgroup")?);
    fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string())?;
    let ready = || -> Result<()> {
        println!("ready");
        Ok(io::stdout().flush()?)
    };
    match kind {
        "victim" => {
            fs::write("/proc/self/oom_score_adj", "1000")?;
            let held = touched(VICTIM_HOLDS);
            ready()?;
            thread::sleep(Duration::from_secs(60));
            drop(held);
        }
        "allocator" => {
            // Protects the allocator: it might allocate before the victim's memory is free, and be killed too. Needs CAP_SYS_RESOURCE.
            let _refused = fs::write("/proc/self/oom_score_adj", "-1000");
            ready()?;
            drop(touched(LIMIT - VICTIM_HOLDS + 8 * MIB));
        }
        "hog" => {
            fs::write("/proc/self/oom_score_adj", "1000")?;
            ready()?;
            drop(touched(2 * LIMIT));
        }
        "bystander" => {
            ready()?;
            thread::sleep(Duration::from_secs(60));
        }
        "parent" => {
            ready()?;
            let child =
                Command::new(env::current_exe()?).args(["workload", "hog"]).arg(cgroup).stdout(Stdio::null()).spawn();
            let status = child?.wait()?;
            ensure!(status.signal() == Some(libc::SIGKILL), "the child ended with {status}");
            // The container continues to run.
            thread::sleep(Duration::from_secs(60));
        }
        "cache" => {
            ready()?;
            // A sparse file uses no disk space and still fills the page cache.
            let path = Path::new(rest.get(1).context("file")?);
            File::create(path)?.set_len(4 * LIMIT as u64)?;
            let read = io::copy(&mut File::open(path)?, &mut io::sink());
            fs::remove_file(path)?;
            ensure!(read? == 4 * LIMIT as u64, "{} is short", path.display());
        }
        "files" => {
            ready()?;
            let directory = Path::new(rest.get(1).context("directory")?);
            let path = |number: u64| directory.join(number.to_string());
            for number in 0..FILES_MADE {
                fs::write(path(number), "")?;
            }
            for number in 0..FILES_REMOVED {
                fs::remove_file(path(number))?;
            }
        }
        other => bail!("no workload {other}"),
    }
    Ok(())
}

fn touched(bytes: usize) -> Vec<u8> {
    std::hint::black_box(vec![1; bytes])
}

/// Returns the kernfs id of a cgroup: the inode number of its directory.
pub fn id_of(cgroup: &Path) -> Result<CgroupId> {
    Ok(CgroupId(fs::metadata(cgroup).with_context(|| cgroup.display().to_string())?.ino()))
}

/// Returns the type of the filesystem that holds a directory, or `None` without such a directory.
pub fn file_system_of(path: &Path) -> Result<Option<String>> {
    if !path.is_dir() {
        return Ok(None);
    }
    let dev = fs::metadata(path)?.dev();
    let wanted = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let file_system = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let is_it = mount.split_whitespace().nth(2) == Some(&wanted);
        file_system.split_whitespace().next().filter(|_| is_it).map(str::to_owned)
    };
    Ok(mounts.lines().find_map(file_system))
}
