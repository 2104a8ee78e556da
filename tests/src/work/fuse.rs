//! The smallest daemon of a FUSE mount: it mounts an empty file system, and answers every request with an error.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;

use anyhow::{Context, Result};

use super::Fuse;
use super::memory::Memory;
use crate::init::mount_at;
use crate::units::MIB;

/// Larger than any request without data, and than the kernel's least (`FUSE_MIN_READ_BUFFER` of `linux/fuse.h`).
const LONGEST_REQUEST: usize = 64 * 1024;
const OUT_HEADER: u32 = 16;
/// `struct fuse_init_out` since version 7.23.
const INIT_ANSWER: u32 = 64;
const VERSION: [u32; 2] = [7, 31];
const MAX_WRITE: u32 = 4096;

const FORGET: u32 = 2;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// Holds memory, mounts, and serves the mount until it is unmounted.
pub fn fuse(fuse: &Fuse) -> Result<()> {
    let memory = Memory::reserve(fuse.mib * MIB)?;
    memory.touch_all();
    let mut device = File::options().read(true).write(true).open("/dev/fuse").context("open /dev/fuse")?;
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    mount_at("vm-guest", &fuse.mount.to_string_lossy(), "fuse", &data)?;
    let mut request = vec![0_u8; LONGEST_REQUEST];
    loop {
        let length = device.read(&mut request).context("read a request")?;
        if let Some(answer) = request.get(..length).and_then(answer) {
            // The kernel refuses an answer to a request that was interrupted.
            let _ = device.write(&answer);
        }
    }
}

/// Returns the answer to a request, if it has one. A request begins with its length, its opcode and its number.
fn answer(request: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| request.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let opcode = word(4)?;
    let number = request.get(8..16)?;
    let head = |length: u32, error: i32| [&length.to_ne_bytes()[..], &error.to_ne_bytes(), number].concat();
    match opcode {
        FORGET | BATCH_FORGET | INTERRUPT => None,
        INIT => {
            let mut answer = head(OUT_HEADER + INIT_ANSWER, 0);
            // No readahead, no flags, the default limits of the queue.
            for field in [VERSION[0], VERSION[1], 0, 0, 0, MAX_WRITE] {
                answer.extend(field.to_ne_bytes());
            }
            answer.resize((OUT_HEADER + INIT_ANSWER) as usize, 0);
            Some(answer)
        }
        _ => Some(head(OUT_HEADER, -libc::ENOSYS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_is_answered_and_any_other_refused() {
        let request = |opcode: u32| [&40_u32.to_ne_bytes()[..], &opcode.to_ne_bytes(), &7_u64.to_ne_bytes()].concat();
        let init = answer(&request(INIT)).unwrap();
        assert_eq!((init.len(), init.get(8..20).unwrap()), (80, &[7, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0][..]));
        assert_eq!(answer(&request(3)).unwrap().len(), 16);
        assert_eq!(answer(&request(FORGET)), None);
        assert_eq!(answer(&[0; 3]), None);
    }
}
