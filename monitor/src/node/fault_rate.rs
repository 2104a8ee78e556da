//! The fastest possible loss of available memory: the rate at which this machine's CPUs can fault in pages.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::units::Bytes;

const PAGE: usize = 4096;
/// A huge page, for each of the CPUs that are measured.
const REGION: usize = 2 << 20;
/// So many CPUs fault at the same time. They share the path to memory.
const MOST_CPUS: usize = 16;
/// The measurement takes at most this share of the memory that is available.
const SHARE: u64 = 16;
/// The most that all CPUs together are assumed to reach, as a multiple of what was measured: the paths to memory of other sockets.
const MOST_TIMES: f64 = 4.0;
/// The fastest run counts: interference only makes a run slower.
const RUNS: usize = 3;

/// Measures the bytes per second that `cpus` CPUs fault in together, with small pages and with huge ones where the kernel gives them, which are
/// faster. Takes a few milliseconds, and at most 32 MiB and a part of what is available. Returns `None` when it fails.
pub fn measure(cpus: usize, available: Bytes) -> Option<Bytes> {
    let affordable = usize::try_from(available.0 / SHARE).unwrap_or(usize::MAX) / REGION;
    let threads = cpus.min(MOST_CPUS).min(affordable).max(1);
    // Other load, or a limit of the agent's own CPU time, slows many threads down more than one.
    let rates = [fastest(threads).map(|rate| (rate, threads)), fastest(1).map(|rate| (rate, 1))];
    let of_all = rates.into_iter().flatten().map(|(rate, threads)| rate * times(cpus, threads));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and saturating is right")]
    of_all.max_by(f64::total_cmp).map(|rate| Bytes(rate as u64))
}

/// Returns what many CPUs are assumed to reach, as a multiple of what some of them reach.
fn times(cpus: usize, measured: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a number of CPUs")]
    (cpus as f64 / measured as f64).clamp(1.0, MOST_TIMES)
}

/// Returns the bytes per second that so many threads fault in, of whichever kind of page is faster.
fn fastest(threads: usize) -> Option<f64> {
    let kinds = [Pages::Small, Pages::Huge];
    let runs = kinds.into_iter().flat_map(|pages| (0..RUNS).map(move |_| pages));
    runs.filter_map(|pages| together(threads, pages)).max_by(f64::total_cmp)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pages {
    Small,
    Huge,
}

/// Returns the bytes per second that so many threads fault in at the same time; `None` if one of them cannot.
fn together(threads: usize, pages: Pages) -> Option<f64> {
    // A thread that sleeps until the others have come would start late.
    let (ready, begin) = (AtomicUsize::new(0), AtomicBool::new(false));
    let fault = || {
        let region = Region::map(pages);
        ready.fetch_add(1, Ordering::Release);
        while !begin.load(Ordering::Acquire) {
            thread::yield_now();
        }
        region.map(Region::fault_in)
    };
    thread::scope(|scope| {
        let others: Vec<_> =
            (1..threads).filter_map(|_| thread::Builder::new().spawn_scoped(scope, fault).ok()).collect();
        let is_complete = others.len() + 1 == threads;
        while ready.load(Ordering::Acquire) < others.len() {
            thread::yield_now();
        }
        begin.store(true, Ordering::Release);
        let own = fault();
        let rates: Option<f64> = others.into_iter().map(|other| other.join().ok()?).chain([own]).sum();
        rates.filter(|_| is_complete)
    })
}

/// Private memory that is not there before it is touched.
struct Region(*mut u8);

impl Region {
    fn map(pages: Pages) -> Option<Self> {
        let flags = MapFlags::PRIVATE;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps no existing memory.
        let start =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), REGION, ProtFlags::WRITE, flags) }.ok()?;
        let region = Self(start.cast());
        let advice = if pages == Pages::Huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: this is the whole mapping made above. A kernel without huge pages refuses, and gives small ones.
        let _advised = unsafe { rustix::mm::madvise(start, REGION, advice) };
        Some(region)
    }

    /// Touches every page. Returns the bytes per second.
    fn fault_in(self) -> f64 {
        let started = Instant::now();
        for offset in (0..REGION).step_by(PAGE) {
            // SAFETY: the offset lies inside the mapping, which is private, writable, and mapped until the region is dropped.
            unsafe { self.0.add(offset).write_volatile(1) };
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
        let bytes = REGION as f64;
        bytes / started.elapsed().as_secs_f64().max(1e-9)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, and no reference to it is left.
        let _unmapped = unsafe { rustix::mm::munmap(self.0.cast(), REGION) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_rate_is_plausible() {
        // With little memory one thread measures.
        for available in [Bytes(8 << 30), Bytes::ZERO] {
            let rate = measure(2, available).unwrap();
            assert!(rate > Bytes(10 << 20) && rate < Bytes(100 << 40), "{rate}");
        }
    }

    #[test]
    fn a_large_machine_is_no_multiple_of_one_cpu() {
        for (cpus, measured, expected) in [(2, 2, 1.0), (2, 1, 2.0), (448, 16, 4.0), (448, 1, 4.0), (24, 16, 1.5)] {
            assert!((times(cpus, measured) - expected).abs() < 1e-9, "{cpus} {measured}");
        }
    }
}
