//! Reads a cgroup's path from the kernel's own tree, where it stays readable although the directory may be removed a moment later.

use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;
use monitor_ebpf::{CgroupPath, PATH_LEVELS, PATH_TEXT};

use crate::task::{self, offset};

/// The longest name of a level. The scope of a container has less than 100 bytes.
const NAME_BYTES: usize = 128;

/// A path followed by slack, so that the verifier sees the last name inside bounds whatever its length.
#[repr(C)]
pub struct Workspace {
    pub path: CgroupPath,
    slack: [u8; NAME_BYTES],
}

/// Reads the path of the running task's memory cgroup, from the leaf up.
///
/// # Safety
/// `into` is a map element that no other program uses meanwhile.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "at most PATH_LEVELS and PATH_TEXT, and lengths above 0"
)]
pub unsafe fn read_own(into: *mut Workspace) {
    let mut node = task::memory_node().unwrap_or(0);
    let mut at = 0_usize;
    let mut levels = 0_usize;
    let mut truncated = 0;
    // SAFETY: the caller's promise; the verifier checks the bounds again.
    unsafe {
        let path = &raw mut (*into).path;
        while levels < PATH_LEVELS {
            // The root has no parent and is not a level.
            let parent: u64 = task::read(node, offset!(kn_parent)).unwrap_or(0);
            if parent == 0 {
                break;
            }
            let (Some(id), Some(name)) =
                (task::read::<u64>(node, offset!(kn_id)), task::read::<u64>(node, offset!(kn_name)))
            else {
                truncated = 1;
                break;
            };
            if at >= PATH_TEXT {
                truncated = 1;
                break;
            }
            let place = (&raw mut (*path).text).cast::<u8>().add(at);
            let length = bpf_probe_read_kernel_str(place.cast(), NAME_BYTES as u32, name as *const _);
            // The length includes the terminating zero. A name that just fits may have been truncated.
            if length <= 0 || length >= NAME_BYTES as i64 || at + length as usize > PATH_TEXT {
                truncated = 1;
                break;
            }
            (&raw mut (*path).ids).cast::<u64>().add(levels).write(id);
            at += length as usize;
            levels += 1;
            node = parent;
        }
        if levels == PATH_LEVELS && task::read::<u64>(node, offset!(kn_parent)).unwrap_or(0) != 0 {
            truncated = 1;
        }
        (*path).levels = levels as u32;
        (*path).truncated = truncated;
        (*path).text_bytes = at as u32;
        (*path).reserved = 0;
    }
}
