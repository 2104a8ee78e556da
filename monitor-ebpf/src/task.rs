//! The running task: ids, name, and the cgroup that is charged for its memory.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_get_current_pid_tgid, bpf_probe_read_kernel,
    generated::{bpf_get_current_cgroup_id, bpf_get_current_comm, bpf_get_current_task, bpf_get_current_task_btf},
};
use monitor_ebpf::{Access, COMM_LEN, KernelOffsets};

#[unsafe(no_mangle)]
pub static KERNEL_OFFSETS: KernelOffsets = KernelOffsets::UNKNOWN;

/// Reads an offset that the loader has filled in.
macro_rules! offset {
    ($field:ident) => {
        $crate::task::overwritten(&$crate::task::KERNEL_OFFSETS.$field)
    };
}
pub(crate) use offset;

#[inline(always)]
pub fn overwritten(offset: &'static u32) -> u32 {
    // SAFETY: a reference is valid for reads. Volatile, because the loader overwrites it after compilation.
    unsafe { core::ptr::read_volatile(offset) }
}

/// Returns the thread id and the process (thread group) id in the initial pid namespace.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the helper packs two 32-bit ids")]
pub fn ids() -> (u32, u32) {
    let both = bpf_get_current_pid_tgid();
    (both as u32, (both >> 32) as u32)
}

/// Returns the thread id alone. Where the task is needed anyway, loading the id from it is cheaper than a helper call.
#[inline(always)]
pub fn tid() -> u32 {
    if offset!(access) == Access::Load as u32 && offset!(task_pid) != KernelOffsets::ABSENT {
        // SAFETY: a helper without arguments; the verifier knows the type of its result.
        unsafe { load(bpf_get_current_task_btf() as u64, offset!(task_pid)) }
    } else {
        ids().0
    }
}

#[inline(always)]
pub fn comm() -> [u8; COMM_LEN] {
    /// The buffer is aligned, so that the compiler moves it by words instead of bytes.
    #[repr(align(8))]
    struct Aligned([u8; COMM_LEN]);
    const LENGTH: u32 = 16;
    const _: () = assert!(LENGTH as usize == COMM_LEN);
    let mut name = Aligned([0; COMM_LEN]);
    // SAFETY: the helper writes at most `LENGTH` bytes; if it fails, the name stays empty.
    let _failed = unsafe { bpf_get_current_comm(name.0.as_mut_ptr().cast(), LENGTH) };
    name.0
}

/// Returns the kernfs id of the running task's cgroup in the memory controller's hierarchy, v1 or v2: the inode number of its directory.
///
/// The v2 helper cannot be used where memory is on v1: it returns 1 for every task there.
#[inline(always)]
pub fn memory_cgroup() -> u64 {
    let access = offset!(access);
    if access == Access::Load as u32 {
        load_memory_cgroup()
    } else if access == Access::ProbeRead as u32 {
        memory_node().and_then(|node| read(node, offset!(kn_id))).unwrap_or(0)
    } else {
        // SAFETY: a helper without arguments.
        unsafe { bpf_get_current_cgroup_id() }
    }
}

/// Follows the same pointers as [`memory_node`] by a few instructions instead of five calls. Every counting program uses this.
#[inline(always)]
fn load_memory_cgroup() -> u64 {
    // SAFETY: a helper without arguments. The verifier knows the type of its result, checks each load against the kernel's BTF, and makes a
    // load from a bad address return zero.
    unsafe {
        let task = bpf_get_current_task_btf() as u64;
        let css_set = load(task, offset!(task_cgroups));
        let css = load(css_set, offset!(css_set_memory));
        let cgroup = load(css, offset!(css_cgroup));
        let node = load(cgroup, offset!(cgroup_kn));
        load(node, offset!(kn_id))
    }
}

/// # Safety
/// `base` is the result of a helper or load whose type the verifier knows.
#[inline(always)]
unsafe fn load<T>(base: u64, offset: u32) -> T {
    let address = (base as *const u8).wrapping_add(offset as usize);
    // SAFETY: the caller's promise.
    unsafe { core::ptr::read_volatile(address.cast::<T>()) }
}

/// Returns the `kernfs_node` of the running task's memory cgroup.
#[inline(always)]
pub fn memory_node() -> Option<u64> {
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    let css_set: u64 = read(task, offset!(task_cgroups))?;
    let css: u64 = read(css_set, offset!(css_set_memory))?;
    css_node(css)
}

/// Returns the `kernfs_node` of a `cgroup_subsys_state`'s cgroup.
#[inline(always)]
pub fn css_node(css: u64) -> Option<u64> {
    let cgroup: u64 = read(css, offset!(css_cgroup))?;
    read(cgroup, offset!(cgroup_kn)).filter(|&node| node != 0)
}

/// Returns when the running task's process started, in `CLOCK_MONOTONIC` nanoseconds.
#[inline(always)]
pub fn process_start() -> Option<u64> {
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() };
    read(read(task, offset!(task_leader))?, offset!(task_start))
}

/// Returns when the running thread itself started.
#[inline(always)]
pub fn thread_start() -> Option<u64> {
    // SAFETY: a helper without arguments.
    read(unsafe { bpf_get_current_task() }, offset!(task_start))
}

/// Reads a member of a kernel struct; `None` where this kernel does not have it.
#[inline(always)]
pub fn read<T>(base: u64, offset: u32) -> Option<T> {
    if offset == KernelOffsets::ABSENT {
        return None;
    }
    let address = base.wrapping_add(u64::from(offset)) as *const c_void;
    // SAFETY: the helper returns an error for a bad address; the offsets are this kernel's own.
    unsafe { bpf_probe_read_kernel(address.cast::<T>()) }.ok()
}
