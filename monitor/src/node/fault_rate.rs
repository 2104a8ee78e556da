//! How fast memory can vanish on this machine: as fast as its CPUs can fault in pages.

use std::time::Instant;

use rustix::mm::{MapFlags, ProtFlags};

use crate::units::Bytes;

const PAGE: usize = 4096;
const REGION: usize = 8 << 20;
/// The best of several runs: anything else that ran meanwhile made a run slower, never faster.
const RUNS: usize = 3;

/// Bytes per second that all CPUs together could take if they did not share the way to memory, measured with one (it takes as long as faulting in 24 MiB); `None` when
/// it cannot be measured.
#[must_use]
pub fn measure() -> Option<Bytes> {
    let fastest = (0..RUNS).filter_map(|_| fault_in()).min_by(f64::total_cmp)?;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
    let all_cpus = REGION as f64 / fastest * cpus as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and saturating is right")]
    Some(Bytes(all_cpus as u64))
}

/// Seconds that it takes to touch every page of a fresh region.
fn fault_in() -> Option<f64> {
    let flags = MapFlags::PRIVATE;
    // SAFETY: a new anonymous mapping at a place of the kernel's choice touches nothing that exists.
    let region = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), REGION, ProtFlags::WRITE, flags) }.ok()?;
    let started = Instant::now();
    for offset in (0..REGION).step_by(PAGE) {
        // SAFETY: the offset lies inside the mapping, which is ours alone, writable, and lives until the end of this function.
        unsafe { region.cast::<u8>().add(offset).write_volatile(1) };
    }
    let seconds = started.elapsed().as_secs_f64();
    // SAFETY: this is the whole mapping made above, and nothing refers to it any more.
    let _unmapped = unsafe { rustix::mm::munmap(region, REGION) };
    (seconds > 0.0).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_memory_a_second_is_found() {
        let rate = measure().unwrap();
        assert!(rate > Bytes(10 << 20) && rate < Bytes(100 << 40), "{rate}");
    }
}
