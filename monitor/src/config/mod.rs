//! STUB: the real room comes from the config branch, with the same names.

use std::{fmt, time::Duration};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

impl Bytes {
    #[must_use]
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1024))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CgroupId(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pid(pub i32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug, Clone)]
pub struct KernelOptions {
    pub ring_buffer: Bytes,
    pub stall_threshold: Duration,
    pub doorbell_interval: Duration,
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self {
            ring_buffer: Bytes(256 << 10),
            stall_threshold: Duration::from_millis(10),
            doorbell_interval: Duration::from_millis(10),
        }
    }
}
