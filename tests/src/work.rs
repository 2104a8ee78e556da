//! The workloads. Each uses little memory of its own, prints nothing, and reports its end by the exit status.

mod cache;
pub mod doom;
mod files;
mod fuse;
mod memory;
mod stall;

use std::ffi::CString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Subcommand};

use crate::cgroups::Layout;
use crate::containers::stand_in;

/// The kinds of load.
#[derive(Debug, Subcommand)]
pub enum Work {
    /// Touch more and more anonymous memory.
    Ramp(Ramp),
    /// Touch anonymous memory and sleep.
    Hold(Hold),
    /// Listen on a Unix socket or a port, answer nothing, and hold memory.
    Listen(Listen),
    /// Answer calls on a Unix socket as a container runtime without containers does.
    Runtime(Runtime),
    /// Hold memory, and serve an empty FUSE mount.
    Fuse(Fuse),
    /// Touch anonymous memory in threads that are not the first, and sleep.
    Threads(Threads),
    /// Fork many processes that each touch a little.
    Swarm(Swarm),
    /// Map a file and keep touching it.
    Cache(Cache),
    /// Make inodes and remove some of them.
    Churn(Churn),
    /// Make files at a steady rate until there is no room for another.
    Fill(Fill),
    /// Write a few bytes to the end of a file that is there.
    Append(Append),
    /// Make files and remove them again, a few at a time.
    Turnover(Turnover),
    /// Make the own cgroup reclaim, over and over.
    MemcgStall(Stall),
    /// Fork children into containers that are too small for them.
    Doom(Doom),
}

/// Arguments all workloads share.
#[derive(Debug, Args)]
pub struct Common {
    /// The command name to be seen under; 15 bytes at most.
    #[arg(long)]
    name: Option<String>,
    /// Carry on when asked to end by SIGTERM.
    #[arg(long)]
    ignore_term: bool,
    /// Hold so many open files, also in each child.
    #[arg(long, default_value_t = 0)]
    open_files: u32,
    /// Fork so many children that only sleep.
    #[arg(long, default_value_t = 0)]
    children: u32,
}

#[derive(Debug, Args)]
pub struct Ramp {
    #[command(flatten)]
    common: Common,
    /// MiB a second, or "max".
    #[arg(long)]
    rate: Rate,
    /// Stop growing at so many MiB.
    #[arg(long)]
    to: u64,
    /// Grow as fast as possible until MemAvailable is below so many MiB, then at the rate.
    #[arg(long)]
    fast_until: Option<u64>,
    /// Stop growing when MemAvailable is below so many MiB.
    #[arg(long)]
    stop_at: Option<u64>,
    /// Stop growing when this process has exited.
    #[arg(long)]
    stop_when_gone: Option<i32>,
    /// Touch the pages of this new file instead of private memory.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Write to this file in another thread, over and over.
    #[arg(long)]
    write_to: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Hold {
    #[command(flatten)]
    common: Common,
    #[arg(long)]
    mib: u64,
    /// Shared memory instead of private.
    #[arg(long)]
    shared: bool,
    /// Touch it again and again.
    #[arg(long)]
    again: bool,
}

#[derive(Debug, Args)]
pub struct Listen {
    #[command(flatten)]
    common: Common,
    #[arg(long)]
    socket: Option<PathBuf>,
    /// A TCP port on every address.
    #[arg(long)]
    port: Option<u16>,
    #[arg(long)]
    mib: u64,
}

#[derive(Debug, Args)]
pub struct Runtime {
    #[command(flatten)]
    common: Common,
    #[arg(long)]
    socket: PathBuf,
}

#[derive(Debug, Args)]
pub struct Fuse {
    #[command(flatten)]
    common: Common,
    /// Where; made if it does not exist.
    #[arg(long)]
    mount: PathBuf,
    #[arg(long)]
    mib: u64,
}

#[derive(Debug, Args)]
pub struct Threads {
    #[command(flatten)]
    common: Common,
    /// All of them together.
    #[arg(long)]
    mib: u64,
    #[arg(long, default_value_t = 4)]
    count: u32,
}

#[derive(Debug, Args)]
pub struct Swarm {
    #[command(flatten)]
    common: Common,
    #[arg(long)]
    count: u32,
    /// Memory that each process touches in the end.
    #[arg(long)]
    kib_each: u64,
    /// Over so many milliseconds.
    #[arg(long, default_value_t = 4000)]
    over_ms: u64,
    /// Do not start before this FIFO is opened for writing.
    #[arg(long)]
    gate: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Cache {
    #[command(flatten)]
    common: Common,
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    mib: u64,
    /// Create this file once everything has been touched twice.
    #[arg(long)]
    ready: PathBuf,
    /// Then leave it alone.
    #[arg(long)]
    once: bool,
}

#[derive(Debug, Args)]
pub struct Churn {
    #[command(flatten)]
    common: Common,
    /// Where; exists already.
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    files: u32,
    #[arg(long, default_value_t = 0)]
    dirs: u32,
    #[arg(long, default_value_t = 0)]
    symlinks: u32,
    /// Remove so many of the files.
    #[arg(long, default_value_t = 0)]
    remove: u32,
    /// The number of the first file.
    #[arg(long, default_value_t = 0)]
    first: u32,
}

#[derive(Debug, Args)]
pub struct Fill {
    #[command(flatten)]
    common: Common,
    /// Where; exists already.
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    per_second: u32,
}

#[derive(Debug, Args)]
pub struct Append {
    #[command(flatten)]
    common: Common,
    #[arg(long)]
    file: PathBuf,
}

#[derive(Debug, Args)]
pub struct Turnover {
    #[command(flatten)]
    common: Common,
    /// Where; exists already.
    #[arg(long)]
    dir: PathBuf,
    /// So many in all.
    #[arg(long)]
    files: u32,
    /// So many there at a time.
    #[arg(long, default_value_t = 64)]
    window: u32,
}

#[derive(Debug, Args)]
pub struct Doom {
    #[command(flatten)]
    common: Common,
    #[arg(long)]
    layout: Layout,
    /// The container's path below the root of the hierarchies; NNN in it stands for the victim's number.
    #[arg(long)]
    container: String,
    /// Remove the container as soon as the child is dead.
    #[arg(long)]
    remove: bool,
    /// So many victims.
    #[arg(long)]
    count: u32,
    /// The container's limit; a child wants twice as much.
    #[arg(long, default_value_t = 256)]
    kib: u64,
    /// A child sleeps so long before it takes memory.
    #[arg(long, default_value_t = 0)]
    age_ms: u64,
    /// Only victims that lived shorter count.
    #[arg(long, default_value_t = u64::MAX)]
    younger_than_ms: u64,
    /// Live on when all are dead.
    #[arg(long)]
    stay: bool,
    /// Where to write who died where.
    #[arg(long)]
    account: PathBuf,
}

#[derive(Debug, Args)]
pub struct Stall {
    #[command(flatten)]
    common: Common,
    /// Read this file, larger than the cgroup's limit, over and over.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Write to this `memory.reclaim` or `memory.force_empty` over and over.
    #[arg(long)]
    knob: Option<PathBuf>,
    /// The file's size, or anonymous memory to hold.
    #[arg(long)]
    mib: u64,
}

/// How fast a ramp grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// MiB a second.
    MibPerSecond(u64),
    /// As fast as the guest can.
    Max,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "max" => Ok(Self::Max),
            _ => match text.parse() {
                Ok(rate) if rate > 0 => Ok(Self::MibPerSecond(rate)),
                _ => Err(format!("{text:?}: write MiB a second or \"max\"")),
            },
        }
    }
}

impl Work {
    /// Runs the workload. Most workloads never return.
    pub fn run(self) -> ExitCode {
        let common = match &self {
            Self::Ramp(Ramp { common, .. })
            | Self::Hold(Hold { common, .. })
            | Self::Listen(Listen { common, .. })
            | Self::Runtime(Runtime { common, .. })
            | Self::Fuse(Fuse { common, .. })
            | Self::Threads(Threads { common, .. })
            | Self::Swarm(Swarm { common, .. })
            | Self::Cache(Cache { common, .. })
            | Self::Churn(Churn { common, .. })
            | Self::Fill(Fill { common, .. })
            | Self::Append(Append { common, .. })
            | Self::Turnover(Turnover { common, .. })
            | Self::MemcgStall(Stall { common, .. })
            | Self::Doom(Doom { common, .. }) => common,
        };
        prepare(common);
        let outcome = match self {
            Self::Ramp(ramp) => memory::ramp(&ramp),
            Self::Hold(hold) => memory::hold(&hold),
            Self::Listen(listen) => memory::listen(&listen),
            Self::Runtime(runtime) => stand_in::serve(&runtime.socket),
            Self::Fuse(fuse) => fuse::fuse(&fuse),
            Self::Threads(threads) => memory::threads(&threads),
            Self::Swarm(swarm) => memory::swarm(&swarm),
            Self::Cache(cache) => cache::cache(&cache),
            Self::Churn(churn) => files::churn(&churn),
            Self::Fill(fill) => files::fill(&fill),
            Self::Append(append) => files::append(&append),
            Self::Turnover(turnover) => files::turnover(&turnover),
            Self::MemcgStall(stall) => stall::stall(&stall),
            Self::Doom(doom) => doom::doom(&doom),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        }
    }
}

fn prepare(common: &Common) {
    if let Some(name) = common.name.as_deref().and_then(|name| CString::new(name).ok()) {
        // SAFETY: the name is NUL-terminated and lives across the call; the kernel copies 16 bytes at most.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
    if common.ignore_term {
        // SAFETY: SIG_IGN is a valid disposition for SIGTERM.
        unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    }
    for _ in 0..common.open_files {
        // SAFETY: this makes a new descriptor of the standard input, which stays open.
        unsafe { libc::dup(0) };
    }
    for _ in 0..common.children {
        // SAFETY: this process has one thread, so the child may do anything.
        if unsafe { libc::fork() } == 0 {
            memory::sleep_for_ever();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert_eq!("40".parse(), Ok(Rate::MibPerSecond(40)));
        assert!("0".parse::<Rate>().is_err());
        assert!("fast".parse::<Rate>().is_err());
    }
}
