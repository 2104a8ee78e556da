//! A BPF program of two instructions, which return 0. Its time by the kernel's count is what that count itself takes.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};

/// `r0 = 0` and `exit`.
static INSTRUCTIONS: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
static LICENSE: &[u8; 4] = b"GPL\0";
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TYPE_TRACEPOINT: u32 = 5;
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;

/// The first fields of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct Load {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
}

/// The first fields of `struct perf_event_attr`, in its first published size.
#[repr(C)]
struct Event {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    rest: [u64; 5],
}

/// The program, attached to a tracepoint.
pub struct EmptyProgram {
    program: OwnedFd,
    _event: OwnedFd,
}

impl EmptyProgram {
    /// Loads the program and attaches it to the tracepoint `category/event`.
    pub fn attach(tracepoint: &str) -> Result<Self> {
        let program = load().context("loading an empty program")?;
        let path = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
            .map(|root| format!("{root}/events/{tracepoint}/id"))
            .into_iter()
            .find(|path| fs::exists(path).unwrap_or(false))
            .with_context(|| format!("there is no tracepoint {tracepoint}"))?;
        let id = fs::read_to_string(&path)?.trim().parse().with_context(|| format!("reading {path}"))?;
        let event = attach(&program, id).with_context(|| format!("attaching an empty program to {tracepoint}"))?;
        Ok(Self { program, _event: event })
    }

    /// Returns the runs and their nanoseconds since the program was loaded.
    pub fn runs(&self) -> Result<(u64, u64)> {
        let path = format!("/proc/self/fdinfo/{}", self.program.as_raw_fd());
        let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let figure = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse().ok()).with_context(|| format!("{path} has no {key}"))
        };
        Ok((figure("run_cnt")?, figure("run_time_ns")?))
    }
}

fn load() -> io::Result<OwnedFd> {
    let attributes = Load {
        program_type: BPF_PROG_TYPE_TRACEPOINT,
        instruction_count: 2,
        instructions: INSTRUCTIONS.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
    };
    // SAFETY: the kernel reads `size_of::<Load>()` bytes of the attributes, and through its two pointers statics of the stated sizes.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attributes, size_of::<Load>()) };
    owned(fd)
}

fn attach(program: &OwnedFd, tracepoint: u64) -> io::Result<OwnedFd> {
    let size = size_of::<Event>();
    let event = Event {
        kind: PERF_TYPE_TRACEPOINT,
        size: u32::try_from(size).unwrap_or_default(),
        config: tracepoint,
        sample_period: 1,
        rest: [0; 5],
    };
    // SAFETY: the kernel reads `size` bytes of the event. A tracepoint's program runs for each hit on every CPU, whichever CPU is named.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const event, -1, 0, -1, 8) };
    let event = owned(fd)?;
    // SAFETY: both descriptors are open, and the calls take no pointer.
    let results = unsafe {
        [
            libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()),
            libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_ENABLE, 0),
        ]
    };
    if results.contains(&-1) { Err(io::Error::last_os_error()) } else { Ok(event) }
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(fd) {
        // SAFETY: the kernel has just returned this descriptor to this call alone.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
