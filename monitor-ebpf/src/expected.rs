//! Whose exit is waited for: a hint that costs the exits of all others one load.

use aya_ebpf::{macros::map, maps::Array};

use crate::{reclaim::add, stream};

const SLOTS: u32 = 4096;
/// Longer than a victim sits in uninterruptible sleep before it can exit.
const FOR_NS: u64 = 3600 * 1_000_000_000;

/// By the low bits of the thread id: when an exit was last waited for. Most exits are told here, without a call, to be nobody's
/// business. Not a count: the SIGKILL to a zombie, or the second one to the same thread, is followed by no exit that takes it back.
#[map]
static EXPECTED: Array<u64> = Array::with_max_entries(SLOTS, 0);

/// The thread's slot and since when an exit is waited for there, if one is.
#[inline(always)]
pub fn find(tid: u32) -> Option<(*mut u64, u64)> {
    let slot = EXPECTED.get_ptr_mut(tid & (SLOTS - 1))?;
    // SAFETY: the lookup gave a valid element; an aligned 64-bit access does not tear.
    let since_ns = unsafe { core::ptr::read_volatile(slot) };
    (since_ns != 0).then_some((slot, since_ns))
}

/// An exit of this thread is waited for from now on.
#[inline(always)]
pub fn note(tid: u32, now_ns: u64) {
    if let Some(slot) = EXPECTED.get_ptr_mut(tid & (SLOTS - 1)) {
        // SAFETY: as above.
        unsafe { core::ptr::write_volatile(slot, now_ns) };
    }
}

/// Lets go of an exit that never came.
#[inline(always)]
pub fn give_up(slot: *mut u64, since_ns: u64) {
    if stream::now_ns().wrapping_sub(since_ns) > FOR_NS {
        // To 0, unless somebody has set it meanwhile.
        // SAFETY: the lookup gave a valid element.
        unsafe { add(slot, since_ns.wrapping_neg()) };
    }
}
