//! Reads the fields of the ring's records.

use std::fmt;

use bytes::Buf;
use monitor_ebpf::COMM_LEN;

use crate::config::config_error::is_unprintable;
use crate::units::{CgroupId, Pid};

/// A task's name in the kernel's form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Comm(pub [u8; COMM_LEN]);

impl Comm {
    /// Returns the bytes before the terminating zero.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A task chooses its own name: control characters must not reach terminals and logs.
        for chunk in self.as_bytes().utf8_chunks() {
            for character in chunk.valid().chars() {
                let shown = if is_unprintable(character) { char::REPLACEMENT_CHARACTER } else { character };
                write!(f, "{shown}")?;
            }
            if !chunk.invalid().is_empty() {
                write!(f, "{}", char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

pub(super) const SHORT: &str = "shorter than its kind";

pub(super) fn long(from: &mut impl Buf) -> Result<u64, &'static str> {
    from.try_get_u64_ne().map_err(|_| SHORT)
}

pub(super) fn word(from: &mut impl Buf) -> Result<u32, &'static str> {
    from.try_get_u32_ne().map_err(|_| SHORT)
}

pub(super) fn int(from: &mut impl Buf) -> Result<i32, &'static str> {
    from.try_get_i32_ne().map_err(|_| SHORT)
}

pub(super) fn pid(from: &mut impl Buf) -> Result<Pid, &'static str> {
    int(from).map(Pid)
}

pub(super) fn cgroup(from: &mut impl Buf) -> Result<CgroupId, &'static str> {
    long(from).map(CgroupId)
}

pub(super) fn comm(from: &mut impl Buf) -> Result<Comm, &'static str> {
    let mut comm = Comm::default();
    from.try_copy_to_slice(&mut comm.0).map_err(|_| SHORT)?;
    Ok(comm)
}

pub(super) fn skip(from: &mut impl Buf, bytes: usize) -> Result<(), &'static str> {
    if from.remaining() < bytes {
        return Err(SHORT);
    }
    from.advance(bytes);
    Ok(())
}
