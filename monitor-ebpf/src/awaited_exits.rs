//! The threads whose exit is awaited. For every other exit the check costs only one load.

use aya_ebpf::{macros::map, maps::Array};

use crate::{reclaim::add, stream};

const SLOTS: u32 = 4096;
/// The longest time that an exit is awaited. A victim never stays in uninterruptible sleep for longer before it exits.
const FOR_NS: u64 = 3600 * 1_000_000_000;

/// The time since when an exit is awaited, indexed by the low bits of the thread id. It dismisses most exits without a helper
/// call. It is not a count: a SIGKILL to a zombie, and the second SIGKILL to a thread, are followed by no exit that would
/// decrement it.
#[map]
static AWAITED: Array<u64> = Array::with_max_entries(SLOTS, 0);

/// Returns the thread's slot, and since when an exit is awaited there; `None` if no exit is.
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
        // The slot becomes 0, unless another CPU has set it meanwhile.
        // SAFETY: `slot` points to a value of the map, which stays where it is.
        unsafe { add(slot, since_ns.wrapping_neg()) };
    }
}
