//! The fastest possible loss of available memory: the rate at which this machine's CPUs can fault in pages.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::units::Bytes;

const PAGE: usize = 4096;
/// A huge page of x86-64, and of arm64 with pages of 4 KiB. Larger ones exist, and are as fast.
const HUGE_PAGE: usize = 2 << 20;
const REGION: usize = HUGE_PAGE;
/// The fastest run counts: interference only makes a run slower.
const RUNS: usize = 3;
const STACK: usize = 64 * 1024;
/// So many CPUs fault in at once, with a region each: 16 MiB in all.
const MOST_AT_ONCE: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pages {
    Small,
    /// Huge ones, if the kernel has them for who asks (`transparent_hugepage`). They come in about three times as fast.
    Huge,
}

/// Measures the bytes per second that `cpus` CPUs can fault in together, with pages of either size. Up to eight of them do so at the same time,
/// since they share the path to memory. Returns `None` when it fails.
pub fn measure(cpus: usize) -> Option<Bytes> {
    let own = thread::available_parallelism().map_or(1, NonZero::get);
    let at_once = cpus.min(own).clamp(1, MOST_AT_ONCE);
    let runs = [Pages::Small, Pages::Huge].into_iter().flat_map(|pages| [pages; RUNS]);
    let fastest = runs.filter_map(|pages| of_each(at_once, pages)).max_by(f64::total_cmp)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
    let all_cpus = fastest * cpus.max(1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and saturating is right")]
    Some(Bytes(all_cpus as u64))
}

/// Returns the bytes per second of each of so many threads at the same time, on average.
fn of_each(threads: usize, pages: Pages) -> Option<f64> {
    let is_begun = AtomicBool::new(false);
    let rate = || {
        while !is_begun.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        fault_in(pages)
    };
    let rates: Vec<f64> = thread::scope(|scope| {
        let other = |_| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, rate).ok();
        let others: Vec<_> = (1..threads).filter_map(other).collect();
        is_begun.store(true, Ordering::Release);
        let own = rate();
        others.into_iter().map(|other| other.join().ok().flatten()).chain([own]).flatten().collect()
    });
    #[expect(clippy::cast_precision_loss, reason = "a few threads")]
    let count = rates.len() as f64;
    (count > 0.0).then(|| rates.iter().sum::<f64>() / count)
}

/// Touches every page of a new region. Returns the bytes per second.
fn fault_in(pages: Pages) -> Option<f64> {
    const MAPPED: usize = REGION + HUGE_PAGE;
    // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps no existing memory.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), MAPPED, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }
    .ok()?;
    let begin = mapped.addr().next_multiple_of(HUGE_PAGE) - mapped.addr();
    // SAFETY: the region begins less than a huge page after the begin of the mapping, which is a huge page longer.
    let region = unsafe { mapped.cast::<u8>().add(begin) };
    let advice = if pages == Pages::Huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: the region lies inside the mapping, and the advice changes no content.
    let _small_ones_only = unsafe { rustix::mm::madvise(region.cast(), REGION, advice) };
    let started = Instant::now();
    for offset in (0..REGION).step_by(PAGE) {
        // SAFETY: the offset lies inside the mapping, which is private, writable, and mapped until the end of this function.
        unsafe { region.add(offset).write_volatile(1) };
    }
    let seconds = started.elapsed().as_secs_f64();
    // SAFETY: this is the whole mapping made above, and no reference to it is left.
    let _unmapped = unsafe { rustix::mm::munmap(mapped, MAPPED) };
    #[expect(clippy::cast_precision_loss, reason = "a region is small")]
    let bytes = REGION as f64;
    (seconds > 0.0).then(|| bytes / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_rate_is_plausible() {
        let rate = measure(2).unwrap();
        assert!(rate > Bytes(10 << 20) && rate < Bytes(100 << 40), "{rate}");
    }

    #[test]
    fn more_cpus_than_this_process_may_use_are_estimated() {
        let (few, many) = (measure(1).unwrap(), measure(512).unwrap());
        assert!(many.0 > few.0.saturating_mul(20), "{few} {many}");
    }
}
