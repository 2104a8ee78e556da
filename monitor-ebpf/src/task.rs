//! The running task: ids, name, and the cgroup that its memory is charged to.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_probe_read_kernel,
    generated::{bpf_get_current_cgroup_id, bpf_get_current_task},
};
use monitor_ebpf::{COMM_LEN, CgroupWalk};

#[unsafe(no_mangle)]
static CGROUP_WALK: CgroupWalk = CgroupWalk::UNKNOWN;

macro_rules! walk {
    ($field:ident) => {
        // SAFETY: a static is valid for reads. Volatile, for the loader overwrites it after compilation.
        unsafe { core::ptr::read_volatile(&raw const CGROUP_WALK.$field) }
    };
}

/// Thread id and process (thread group) id in the initial pid namespace.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the helper packs two 32-bit ids")]
pub fn ids() -> (u32, u32) {
    let both = bpf_get_current_pid_tgid();
    (both as u32, (both >> 32) as u32)
}

#[inline(always)]
pub fn comm() -> [u8; COMM_LEN] {
    bpf_get_current_comm().unwrap_or([0; COMM_LEN])
}

/// kernfs id of the running task's cgroup in the hierarchy of the memory controller, v1 or v2: the inode number of its directory.
///
/// The v2 helper is no substitute where memory is on v1: it answers 1 for every task there.
#[inline(always)]
pub fn memory_cgroup() -> u64 {
    if walk!(known) == 0 {
        // SAFETY: a helper without arguments.
        return unsafe { bpf_get_current_cgroup_id() };
    }
    walk_to_memory_cgroup().unwrap_or(0)
}

#[inline(always)]
fn walk_to_memory_cgroup() -> Option<u64> {
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    let css_set: u64 = read(task, walk!(task_cgroups))?;
    let css: u64 = read(css_set, walk!(css_set_memory))?;
    let cgroup: u64 = read(css, walk!(css_cgroup))?;
    let node: u64 = read(cgroup, walk!(cgroup_kn))?;
    read(node, walk!(kn_id))
}

#[inline(always)]
fn read(base: u64, offset: u32) -> Option<u64> {
    let address = base.wrapping_add(u64::from(offset)) as *const c_void;
    // SAFETY: the helper faults softly on a bad address; the offsets are this kernel's own.
    unsafe { bpf_probe_read_kernel(address.cast::<u64>()) }.ok()
}
