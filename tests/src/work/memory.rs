//! Workloads that use anonymous memory.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Hold, Listen, Ramp, Rate, Swarm, Threads};
use crate::sampler::parse_available;
use crate::units::MIB;

const PAGE: usize = 4096;
/// One step of a ramp: small enough to be smooth over a millisecond, large enough to be cheap.
const STEP: usize = 256 * 1024;

/// Anonymous memory that costs nothing until touched.
pub struct Memory {
    start: *mut u8,
    length: usize,
}

impl Memory {
    pub fn reserve(bytes: u64) -> Result<Self> {
        Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// Returns memory that the kernel counts as shared, like the files of a tmpfs.
    fn shared(bytes: u64) -> Result<Self> {
        Self::map(bytes, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
    }

    /// Returns the pages of a new file.
    fn file(path: &Path, bytes: u64) -> Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.with_context(|| format!("create {}", path.display()))?;
        file.set_len(bytes).with_context(|| format!("truncate {}", path.display()))?;
        Self::map(bytes, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(bytes: u64, kind: libc::c_int, file: RawFd) -> Result<Self> {
        // An empty mapping is an error.
        let length = usize::try_from(bytes).context("size")?.max(PAGE);
        // SAFETY: a new mapping aliases nothing in this process; it is never unmapped.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                kind | libc::MAP_NORESERVE,
                file,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("mmap");
        }
        Ok(Self { start: start.cast(), length })
    }

    /// Disables huge pages. A ramp is smooth only with small pages, since a huge page is a step of 2 MiB.
    fn small_pages(&self) {
        // SAFETY: the range is this mapping. Without huge pages in the kernel it fails, and that is as good.
        unsafe { libc::madvise(self.start.cast(), self.length, libc::MADV_NOHUGEPAGE) };
    }

    pub fn touch_all(&self) {
        self.touch(0, self.length);
    }

    fn touch(&self, from: usize, to: usize) {
        let to = to.min(self.length);
        let mut at = from;
        while at < to {
            // SAFETY: at is below length, inside the mapping. Volatile: the write is the purpose.
            unsafe { self.start.add(at).write_volatile(1) };
            at += PAGE;
        }
    }
}

fn available(meminfo: &File) -> u64 {
    let mut buffer = [0_u8; 512];
    let length = meminfo.read_at(&mut buffer, 0).unwrap_or(0);
    buffer.get(..length).and_then(parse_available).unwrap_or(u64::MAX)
}

pub fn sleep_for_ever() -> ! {
    loop {
        sleep(Duration::from_secs(3600));
    }
}

/// Sleeps in open(2) until the FIFO is opened for writing: hundreds of waiting processes cost nothing.
fn wait_for(gate: Option<&Path>) -> Result<()> {
    if let Some(gate) = gate {
        File::open(gate).with_context(|| format!("open {}", gate.display()))?;
    }
    Ok(())
}

fn gone(pid: i32) -> bool {
    // SAFETY: signal 0 only asks whether the process exists.
    unsafe { libc::kill(pid, 0) != 0 }
}

pub fn ramp(ramp: &Ramp) -> Result<()> {
    let memory = match &ramp.file {
        Some(path) => Memory::file(path, ramp.to * MIB)?,
        None => Memory::reserve(ramp.to * MIB)?,
    };
    if let Some(path) = ramp.write_to.clone() {
        std::thread::Builder::new().spawn(move || write_for_ever(&path)).context("start a thread")?;
    }
    if ramp.rate != Rate::Max {
        memory.small_pages();
    }
    let meminfo = File::open("/proc/meminfo").context("open /proc/meminfo")?;
    let mut touched = 0;
    let mut paced_since: Option<(Instant, usize)> = None;
    while touched < memory.length {
        let now_available = available(&meminfo);
        if ramp.stop_at.is_some_and(|floor| now_available < floor * MIB) || ramp.stop_when_gone.is_some_and(gone) {
            break;
        }
        let fast = paced_since.is_none() && ramp.fast_until.is_some_and(|limit| now_available >= limit * MIB);
        if let (Rate::MibPerSecond(rate), false) = (ramp.rate, fast) {
            let (since, base) = *paced_since.get_or_insert((Instant::now(), touched));
            // Due times count from the start, so that a late wake-up is compensated.
            let done = u64::try_from(touched - base).unwrap_or(u64::MAX);
            let due = Duration::from_nanos(done.saturating_mul(1_000_000_000) / (rate * MIB));
            let elapsed = since.elapsed();
            if due > elapsed {
                sleep(due - elapsed);
            }
        }
        memory.touch(touched, touched + STEP);
        touched += STEP;
    }
    sleep_for_ever()
}

fn write_for_ever(path: &Path) {
    while std::fs::write(path, "x").is_ok() {
        sleep(Duration::from_millis(10));
    }
}

pub fn listen(listen: &Listen) -> Result<()> {
    let bind = |path: &PathBuf| UnixListener::bind(path).with_context(|| format!("bind {}", path.display()));
    let socket = listen.socket.as_ref().map(bind).transpose()?;
    let bind = |port: u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).with_context(|| format!("bind {port}"));
    let port = listen.port.map(bind).transpose()?;
    let memory = Memory::reserve(listen.mib * MIB)?;
    memory.touch_all();
    // The sockets stay open until the process ends.
    std::mem::forget((socket, port));
    sleep_for_ever()
}

pub fn hold(hold: &Hold) -> Result<()> {
    let bytes = hold.mib * MIB;
    let memory = if hold.shared { Memory::shared(bytes)? } else { Memory::reserve(bytes)? };
    memory.touch_all();
    loop {
        if !hold.again {
            sleep_for_ever();
        }
        sleep(Duration::from_millis(100));
        memory.touch_all();
    }
}

/// Allocates in other threads than the main thread, so that the allocating thread's id differs from the process id.
pub fn threads(threads: &Threads) -> Result<()> {
    let each = threads.mib * MIB / u64::from(threads.count.max(1));
    for _ in 0..threads.count {
        std::thread::Builder::new()
            .spawn(move || {
                if let Ok(memory) = Memory::reserve(each) {
                    memory.touch_all();
                }
                sleep_for_ever()
            })
            .context("start a thread")?;
    }
    sleep_for_ever()
}

pub fn swarm(swarm: &Swarm) -> Result<()> {
    let steps = swarm.kib_each.div_ceil(64).max(1);
    let pause = Duration::from_millis(swarm.over_ms) / u32::try_from(steps).context("steps")?;
    for _ in 0..swarm.count {
        // SAFETY: this process has one thread, so the child may do anything.
        if unsafe { libc::fork() } == 0 {
            return member(swarm, pause);
        }
    }
    sleep_for_ever()
}

fn member(swarm: &Swarm, pause: Duration) -> Result<()> {
    let memory = Memory::reserve(swarm.kib_each * 1024)?;
    memory.small_pages();
    wait_for(swarm.gate.as_deref())?;
    let mut touched = 0;
    while touched < memory.length {
        memory.touch(touched, touched + 64 * 1024);
        touched += 64 * 1024;
        sleep(pause);
    }
    sleep_for_ever()
}
