//! The fastest possible loss of available memory: the rate at which this machine's CPUs can fault in pages.

use std::time::Instant;

use rustix::mm::{MapFlags, ProtFlags};

use crate::units::Bytes;

const PAGE: usize = 4096;
const REGION: usize = 8 << 20;
/// The fastest run counts: interference only makes a run slower.
const RUNS: usize = 3;

/// Measures the bytes per second that `cpus` CPUs together could fault in if they did not share the path to memory. The measurement uses one
/// CPU and takes as long as faulting in 24 MiB. Returns `None` when it fails.
pub fn measure(cpus: usize) -> Option<Bytes> {
    let fastest = (0..RUNS).filter_map(|_| fault_in()).min_by(f64::total_cmp)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
    let all_cpus = REGION as f64 / fastest * cpus as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and saturating is right")]
    Some(Bytes(all_cpus as u64))
}

/// Returns the seconds that touching every page of a new region takes.
fn fault_in() -> Option<f64> {
    let flags = MapFlags::PRIVATE;
    // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps no existing memory.
    let region = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), REGION, ProtFlags::WRITE, flags) }.ok()?;
    let started = Instant::now();
    for offset in (0..REGION).step_by(PAGE) {
        // SAFETY: the offset lies inside the mapping, which is private, writable, and mapped until the end of this function.
        unsafe { region.cast::<u8>().add(offset).write_volatile(1) };
    }
    let seconds = started.elapsed().as_secs_f64();
    // SAFETY: this is the whole mapping made above, and no reference to it is left.
    let _unmapped = unsafe { rustix::mm::munmap(region, REGION) };
    (seconds > 0.0).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_rate_is_plausible() {
        let rate = measure(2).unwrap();
        assert!(rate > Bytes(10 << 20) && rate < Bytes(100 << 40), "{rate}");
    }
}
