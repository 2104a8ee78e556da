//! The threads whose exit is awaited: a hint that costs every other exit only one load.

use aya_ebpf::{macros::map, maps::Array};

use crate::{reclaim::add, stream};

const SLOTS: u32 = 4096;
/// A victim never stays in uninterruptible sleep for longer than this before it exits.
const FOR_NS: u64 = 3600 * 1_000_000_000;

/// By the low bits of the thread id: when an exit was last awaited. Most exits are dismissed by this, without a helper call. This is not a
/// count: a SIGKILL to a zombie, and the second SIGKILL to a thread, are followed by no exit that would decrement it.
#[map]
static AWAITED: Array<u64> = Array::with_max_entries(SLOTS, 0);

/// Returns the thread's slot and since when an exit is awaited there, if one is.
#[inline(always)]
pub fn find(tid: u32) -> Option<(*mut u64, u64)> {
    let slot = AWAITED.get_ptr_mut(tid & (SLOTS - 1))?;
    // SAFETY: the lookup returned a valid element; an aligned 64-bit access does not tear.
    let since_ns = unsafe { core::ptr::read_volatile(slot) };
    (since_ns != 0).then_some((slot, since_ns))
}

/// Records that this thread's exit is awaited from now on.
#[inline(always)]
pub fn note(tid: u32, now_ns: u64) {
    if let Some(slot) = AWAITED.get_ptr_mut(tid & (SLOTS - 1)) {
        // SAFETY: as above.
        unsafe { core::ptr::write_volatile(slot, now_ns) };
    }
}

/// Stops waiting for an exit that never came.
#[inline(always)]
pub fn give_up(slot: *mut u64, since_ns: u64) {
    if stream::now_ns().wrapping_sub(since_ns) > FOR_NS {
        // Becomes 0, unless another CPU has set it meanwhile.
        // SAFETY: `slot` points to a value of the map, which stays where it is.
        unsafe { add(slot, since_ns.wrapping_neg()) };
    }
}
