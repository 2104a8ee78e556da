//! `cargo xtask vm`: boots a virtual machine with the agent inside, runs scenarios there, and judges their outcomes.

pub mod accel;
mod boot;
mod cpio;
mod disks;
mod images;
mod initramfs;
pub mod kubernetes;
mod kvm;
mod modules;
mod outcomes;
mod pictures;
mod protocol;
mod qemu;
mod record;
mod report;
pub mod scenario;
mod verdict;
mod viewers;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::arch::Arch;
use crate::build;
use crate::console::Console;
use crate::paths::Workspace;
use crate::setup::guest_root::Root;
use crate::setup::kernel::{Kernel, Series};
use crate::setup::unpacked::CONTAINERD_2;
use crate::setup::{self, Part};
use accel::Accel;
use scenario::{Boot, Guest, Request};

pub use report::print_table;
pub use verdict::Verdict;

/// Boots a virtual machine with the agent inside and runs scenarios in it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask vm ramp\n  KUBERNETES_BIN=kubernetes/server/bin cargo xtask vm cluster\n  KUBERNETES_BIN=kubernetes/server/bin CRIO_BIN=cri-o/bin cargo xtask vm --runtime crio cluster-ramp\n  cargo xtask vm --kernel 6.1 --cgroup v1 'ramp*20' swarm\n  cargo xtask vm --list"
)]
pub struct Options {
    /// Kernel to boot: a series (6.12, 6.1, 5.10, unstable) or the path of an image. Modules are looked for beside it, in
    /// ../lib/modules/RELEASE. 5.10 is Debian 11's, and unstable the newest in Debian unstable; the suite boots neither. Default: 6.12, and
    /// 6.1 with cgroup v1.
    #[arg(long, value_name = "6.12|6.1|5.10|unstable|PATH")]
    kernel: Option<KernelChoice>,
    /// Architecture of the guest; default: this machine's. On the other one scenarios with containerd and earlyoom are left out, and the
    /// machine is emulated.
    #[arg(long, value_enum, default_value_t = Arch::host())]
    arch: Arch,
    /// Cgroup layout of the guest. Debian's 6.12 has no memory controller on v1.
    #[arg(long, value_enum, default_value_t = Cgroup::V2)]
    cgroup: Cgroup,
    /// Run all scenarios that need containerd when none is named. A named one brings the guest that it needs.
    #[arg(long)]
    containerd: bool,
    /// Container runtime: this Debian's containerd, Debian unstable's, or, with a cluster, CRI-O, whose programs, crio and pinns, come from
    /// the directory that CRIO_BIN names.
    #[arg(long, value_enum, default_value_t = Runtime::Containerd)]
    runtime: Runtime,
    /// Run the agent as packages and images have it, compiled for size.
    #[arg(long)]
    packed: bool,
    /// Memory of the guest. Default: 1024, and 3328 with a cluster.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(256..=65536))]
    memory: Option<u32>,
    /// Keep the serial log of a boot that passed too, and say where it is.
    #[arg(long)]
    keep_log: bool,
    /// Give the boot up after so many seconds in all. Default: what the scenarios may take, by their table.
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
    /// Give the boot up after so many seconds without a line from the guest.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    silence_limit: u64,
    #[command(flatten)]
    chaos: Chaos,
    /// Write the outcomes into the tables of tests/RESULTS.md.
    #[arg(long)]
    record: bool,
    /// List the scenarios and boot nothing.
    #[arg(long)]
    list: bool,
    /// Scenarios to run, `NAME` or `NAME*COUNT`; all that the cgroup layout supports when none is named.
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
}

/// The cgroup layout that the guest sets up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Cgroup {
    V1,
    V2,
}

impl Cgroup {
    pub fn word(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// The container runtime of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Runtime {
    Containerd,
    /// Debian unstable's.
    #[value(name = "containerd-2")]
    Containerd2,
    Crio,
}

impl Runtime {
    pub fn word(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Containerd2 => "containerd-2",
            Self::Crio => "crio",
        }
    }
}

/// Value of `--kernel`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelChoice {
    Series(Series),
    Image(PathBuf),
}

impl FromStr for KernelChoice {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let series = Series::ALL.into_iter().find(|series| series.to_string() == text);
        Ok(series.map_or_else(|| Self::Image(PathBuf::from(text)), Self::Series))
    }
}

impl KernelChoice {
    fn parts(&self, arch: Arch) -> Vec<Part> {
        match self {
            Self::Series(series) => vec![Part::Kernel(*series, arch)],
            Self::Image(_) => Vec::new(),
        }
    }

    fn resolve(&self, workspace: &Workspace, arch: Arch) -> Result<Kernel> {
        match self {
            Self::Series(series) => setup::kernel::find(&workspace.cache(), *series, arch)
                .with_context(|| format!("kernel {series} is not there: run `cargo xtask setup`")),
            Self::Image(path) => Kernel::from_image(path),
        }
    }

    /// Returns a short name for tables and file names.
    fn label(&self) -> String {
        match self {
            Self::Series(series) => series.to_string(),
            Self::Image(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }
}

/// Exit status when everything is skipped, as Automake has it.
pub const SKIPPED: u8 = 77;
/// The time for booting and powering off.
const BOOT_TIME: Duration = Duration::from_secs(120);
/// Seconds of the scenario `chaos` in a long test.
const LONG_CHAOS: u64 = 3600;

/// How long the scenario `chaos` lasts, and its seed.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Chaos {
    /// Duration of the scenario `chaos`.
    #[arg(long = "seconds", value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Seed of the scenario `chaos`. The same seed makes the same episodes.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Number of the first episode of the scenario `chaos`, to see one again.
    #[arg(long = "first", value_name = "EPISODE", default_value_t = 0)]
    first: u64,
}

impl Chaos {
    /// The longest duration: the scenario goes on for half as long again where the machine is too slow for 1,000 decisions.
    fn span(self) -> Duration {
        Duration::from_secs(self.seconds) * 3 / 2
    }
}

impl std::fmt::Display for Chaos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.seconds, self.seed, self.first)
    }
}

/// Returns the memory of a guest: a control plane takes 1.25 GiB, of which its programs in memory are a quarter.
const fn memory_mib(guest: Guest) -> u32 {
    match guest {
        Guest::Plain | Guest::Containerd => 1024,
        Guest::Cluster => 3328,
    }
}

/// Returns the time limit of one boot.
fn boot_limit(requests: &[Request], chaos: Chaos) -> Duration {
    scenario::time_limit(requests, chaos.span()) + BOOT_TIME
}

/// One boot to run.
#[derive(Debug)]
pub struct Plan {
    pub kernel: KernelChoice,
    pub arch: Arch,
    pub cgroup: Cgroup,
    pub guest: Guest,
    pub runtime: Runtime,
    /// The agent; without it that of the release build.
    pub agent: Option<PathBuf>,
    pub memory_mib: u32,
    /// Whether a concurrent boot has priority on the CPUs.
    pub yields: bool,
    pub requests: Vec<Request>,
    pub chaos: Chaos,
    pub keep_log: bool,
    /// Whether the guest prints whole pages of text. In a suite the pages would hide the outcomes.
    pub pages: bool,
    pub time_limit: Duration,
    pub silence_limit: Duration,
}

impl Plan {
    /// Returns the plan of a boot of `cargo xtask test`, or of `cargo xtask test --long`.
    pub fn for_test(series: Series, cgroup: Cgroup, boot: Boot, runtime: Runtime, is_long: bool) -> Result<Self> {
        let requests = scenario::in_test(cgroup, boot, is_long)?;
        let chaos =
            Chaos { seconds: if is_long && boot == Boot::Reference { LONG_CHAOS } else { 30 }, seed: 1, first: 0 };
        Ok(Self {
            kernel: KernelChoice::Series(series),
            arch: Arch::host(),
            cgroup,
            guest: boot.guest(),
            runtime,
            agent: None,
            memory_mib: memory_mib(boot.guest()),
            yields: false,
            time_limit: boot_limit(&requests, chaos),
            requests,
            chaos,
            keep_log: false,
            pages: false,
            silence_limit: Duration::from_secs(300),
        })
    }

    /// Keeps only the named scenarios, and runs each once.
    pub fn only(mut self, names: &[&str]) -> Self {
        self.requests.retain(|request| names.contains(&request.entry.name));
        self.requests.iter_mut().for_each(|request| request.times = 1);
        self.time_limit = boot_limit(&self.requests, self.chaos);
        self
    }

    pub fn label(&self) -> String {
        let mut label = label(&self.kernel, self.guest, self.runtime, self.cgroup);
        if self.agent.is_some() {
            label.insert_str(0, "packed ");
        }
        if self.arch.is_host() { label } else { format!("{label} {}", self.arch) }
    }

    /// Returns the parts that this boot needs and others do not.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = self.kernel.parts(self.arch);
        match self.guest {
            Guest::Plain => {}
            Guest::Containerd => parts.push(Part::GuestRoot(Root::Containers)),
            Guest::Cluster => parts.push(Part::GuestRoot(Root::Cluster)),
        }
        if self.runtime == Runtime::Containerd2 {
            parts.push(Part::Unpacked(CONTAINERD_2));
        }
        parts
    }
}

/// Returns the short name of a boot: `6.12+containerd v2`. The names of its files contain it, so concurrent boots must have
/// different labels.
pub fn label(kernel: &KernelChoice, guest: Guest, runtime: Runtime, cgroup: Cgroup) -> String {
    let guest = match (guest, runtime) {
        (Guest::Plain, _) => "",
        (Guest::Containerd, Runtime::Containerd2) => "+containerd-2",
        (Guest::Containerd, _) => "+containerd",
        (Guest::Cluster, Runtime::Containerd) => "+cluster",
        (Guest::Cluster, Runtime::Containerd2) => "+cluster+containerd-2",
        (Guest::Cluster, Runtime::Crio) => "+cluster+crio",
    };
    format!("{}{guest} {}", kernel.label(), cgroup.word())
}

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    if options.list {
        report::print_catalogue();
        return Ok(ExitCode::SUCCESS);
    }
    let of_layout = if options.cgroup == Cgroup::V1 { Series::V6_1 } else { Series::V6_12 };
    let kernel = options.kernel.clone().unwrap_or(KernelChoice::Series(of_layout));
    if kernel == KernelChoice::Series(Series::V6_12) && options.cgroup == Cgroup::V1 {
        bail!("Debian's 6.12 has no memory controller on cgroup v1 (CONFIG_MEMCG_V1 is unset): use --kernel 6.1");
    }
    let wanted = if options.containerd { Guest::Containerd } else { Guest::Plain };
    let mut requests = scenario::choose(&options.scenarios, options.cgroup, wanted)?;
    if !options.arch.is_host() {
        // earlyoom is linked with libraries, which the guest does not have.
        requests.retain(|request| request.entry.name != "earlyoom");
    }
    let guest = scenario::guest(&requests)?;
    if guest != Guest::Plain && !options.arch.is_host() {
        bail!("scenarios with containerd run on {} only: name others", Arch::host());
    }
    if guest != Guest::Cluster && options.runtime == Runtime::Crio {
        bail!("only scenarios with a cluster run with CRI-O: `cargo xtask vm --list` names them");
    }
    if guest == Guest::Plain && options.runtime == Runtime::Containerd2 {
        bail!("only scenarios with containers run with containerd: `cargo xtask vm --list` names them");
    }
    if guest == Guest::Cluster
        && let Some(reason) = kubernetes::unset(options.runtime)
    {
        for request in &requests {
            println!("skipped: {}: {reason}", request.entry.name);
        }
        return Ok(ExitCode::from(SKIPPED));
    }
    let time_limit = options.time_limit.map_or_else(|| boot_limit(&requests, options.chaos), Duration::from_secs);
    let plan = Plan {
        kernel,
        arch: options.arch,
        cgroup: options.cgroup,
        guest,
        runtime: options.runtime,
        agent: options.packed.then(|| build::packed(workspace, options.arch)).transpose()?,
        memory_mib: options.memory.unwrap_or(memory_mib(guest)),
        yields: false,
        requests,
        chaos: options.chaos,
        keep_log: options.keep_log,
        pages: true,
        time_limit,
        silence_limit: Duration::from_secs(options.silence_limit),
    };
    let lab = Lab::open(workspace, plan.arch, &plan.parts())?;
    let verdict = lab.boot(&plan, &Console::alone())?;
    print_table(std::slice::from_ref(&verdict));
    if options.record {
        outcomes::write(&workspace.root, guest, &verdict)?;
    }
    Ok(if verdict.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The state that boots share. A target directory has one lab at a time, because scenarios measure time. The owner of the lab
/// decides which boots run concurrently; boots with different labels share no file.
#[derive(Debug)]
pub struct Lab<'a> {
    workspace: &'a Workspace,
    dir: PathBuf,
    /// The lock of the trial of accelerators: the first boot runs the trial, and the others read its result.
    trial: Mutex<()>,
    _lock: File,
}

impl<'a> Lab<'a> {
    /// Installs and builds what the VM needs.
    pub fn open(workspace: &'a Workspace, arch: Arch, further: &[Part]) -> Result<Self> {
        setup::ensure(workspace, &[setup::to_build(arch), setup::to_boot(arch), further.to_vec()].concat())?;
        build::release_for(workspace, arch, &build::BINARIES)?;
        let dir = workspace.vm();
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let lock_path = dir.join("lock");
        let lock = File::create(&lock_path).with_context(|| format!("creating {}", lock_path.display()))?;
        if lock.try_lock().is_err() {
            println!("another VM runs from this target directory; waiting for it to end");
            lock.lock().with_context(|| format!("locking {}", lock_path.display()))?;
        }
        Ok(Self { workspace, dir, trial: Mutex::new(()), _lock: lock })
    }

    /// Boots the VM. Boots again if the kernel itself faulted under software emulation.
    pub fn boot(&self, plan: &Plan, console: &Console) -> Result<Verdict> {
        let kernel = plan.kernel.resolve(self.workspace, plan.arch)?;
        let accel = if plan.arch.is_host() { self.accel(&kernel, console)? } else { Accel::Tcg };
        let boot = boot::Boot { workspace: self.workspace, dir: &self.dir, console, plan, kernel: &kernel, accel };
        let first = boot.run()?;
        // Under TCG about one guest in 250 faults while the kernel patches its own code. This is a race of the emulator, not a
        // defect of the agent.
        if accel != Accel::Tcg || !first.is_worth_a_retry() {
            return Ok(first);
        }
        console.say(
            "RETRY: the guest's kernel faulted under emulation, which happens once in some 250 boots; booting once more.",
        );
        for problem in &first.problems {
            console.say(format_args!("  first attempt: {problem}"));
        }
        let mut second = boot.run()?;
        second.retried = true;
        Ok(second)
    }

    fn accel(&self, kernel: &Kernel, console: &Console) -> Result<Accel> {
        // A trial that panicked leaves no incomplete state that the next trial would read.
        let _one = self.trial.lock().unwrap_or_else(PoisonError::into_inner);
        let busybox = setup::busybox(&self.workspace.cache(), Arch::host());
        kvm::choose(&kernel.image, &busybox, &self.dir, console)
    }
}

/// Refuses a command line that the kernel would truncate: COMMAND_LINE_SIZE of x86 is 2048 with the terminating zero.
fn check_command_line(line: &str) -> Result<()> {
    if line.len() >= 2048 {
        bail!(
            "the kernel command line would be {} bytes long, and the kernel takes 2047: name fewer scenarios",
            line.len()
        );
    }
    Ok(())
}
