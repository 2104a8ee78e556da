//! The fastest possible loss of available memory: the rate at which this machine's CPUs can fault in pages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::units::Bytes;

const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
/// One thread touches so much. All threads together touch at most [`MOST_THREADS`] times as much at a time.
const REGION: usize = 8 << 20;
const MOST_THREADS: usize = 4;
/// Enough for a thread that only touches pages.
const STACK: usize = 64 << 10;
/// The fastest run counts: interference only makes a run slower.
const RUNS: usize = 3;

/// The size of the pages that the kernel is asked for. It grants huge pages where it has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pages {
    Small,
    Huge,
}

/// Measures the bytes per second that `cpus` CPUs together could fault in, with small or huge pages, whichever is faster. Returns `None` when
/// the measurement fails. At most 32 MiB are touched at a time, and given back at once.
pub fn measure(cpus: usize) -> Option<Bytes> {
    let threads = cpus.clamp(1, MOST_THREADS);
    let fastest = |threads| [Pages::Small, Pages::Huge].map(|pages| fastest(threads, pages));
    let (alone, together) = (fastest(1), fastest(threads));
    let rates = alone.into_iter().zip(together);
    let rates = rates.filter_map(|(alone, together)| Some(on_all_cpus(alone?, together?, threads, cpus)));
    let rate = rates.max_by(f64::total_cmp)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and saturating is right")]
    Some(Bytes(rate as u64))
}

/// Extends the rates of one thread and of some threads to all CPUs: each doubling of the CPUs multiplies the rate by as much as each doubling
/// up to `threads` did, `rate(cpus) = together × (cpus / threads)^share`, where `share = log(together / alone) / log(threads)` is from 0 to 1.
/// This is an upper bound in practice, because the threads share zone locks and memory channels: each further doubling gains less than
/// the one before.
fn on_all_cpus(alone: f64, together: f64, threads: usize, cpus: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
    let (threads, cpus) = (threads as f64, cpus as f64);
    let together = together.max(alone);
    if threads < 2.0 || cpus <= threads {
        return together;
    }
    let share = ((together / alone).ln() / threads.ln()).clamp(0.0, 1.0);
    together * (cpus / threads).powf(share)
}

fn fastest(threads: usize, pages: Pages) -> Option<f64> {
    (0..RUNS).filter_map(|_| run(threads, pages)).max_by(f64::total_cmp)
}

/// Returns the bytes per second of so many threads together; `None` if a thread cannot start or a region cannot be made.
fn run(threads: usize, pages: Pages) -> Option<f64> {
    let go = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let start = || {
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || {
                while !go.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                fault_in(pages)
            })
        };
        let started: Vec<_> = (0..threads).map(|_| start()).collect();
        go.store(true, Ordering::Release);
        let rates = started.into_iter().map(|thread| thread.ok()?.join().ok()?);
        rates.sum()
    })
}

/// Returns the bytes per second at which this thread touches every page of a new region.
fn fault_in(pages: Pages) -> Option<f64> {
    // Huge pages are aligned.
    let length = REGION + HUGE_PAGE;
    // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps no existing memory.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    let mapped = mapped.ok()?;
    let until_aligned = mapped.addr().wrapping_neg() % HUGE_PAGE;
    // SAFETY: fewer than HUGE_PAGE bytes further, the region and its end still lie inside the mapping.
    let region = unsafe { mapped.cast::<u8>().add(until_aligned) };
    let advice = if pages == Pages::Huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: the region lies inside the mapping, and the advice changes no content. A kernel without huge pages refuses it.
    let _refused = unsafe { rustix::mm::madvise(region.cast(), REGION, advice) };
    let started = Instant::now();
    for offset in (0..REGION).step_by(PAGE) {
        // SAFETY: the offset lies inside the mapping, which is private, writable, and mapped until the end of this function.
        unsafe { region.add(offset).write_volatile(1) };
    }
    let seconds = started.elapsed().as_secs_f64();
    // SAFETY: this is the whole mapping made above, and no reference to it is left.
    let _unmapped = unsafe { rustix::mm::munmap(mapped, length) };
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
    let rate = REGION as f64 / seconds;
    (seconds > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_rate_is_plausible() {
        let rate = measure(2).unwrap();
        assert!(rate > Bytes(10 << 20) && rate < Bytes(100 << 40), "{rate}");
        for (threads, pages) in [(1, Pages::Small), (1, Pages::Huge), (2, Pages::Small), (2, Pages::Huge)] {
            println!("{threads} threads, {pages:?}: {:.2} GB/s", fastest(threads, pages).unwrap() / 1e9);
        }
    }

    #[test]
    fn all_cpus_gain_no_more_than_the_threads_that_were_measured() {
        // Each case: one thread, all measured threads, their number, the CPUs, the rate on all CPUs.
        for (alone, together, threads, cpus, expected) in [
            (3.0, 3.0, 1, 1, 3.0),
            (3.0, 6.0, 2, 2, 6.0),
            (2.0, 8.0, 4, 448, 896.0),
            (2.0, 4.0, 4, 16, 8.0),
            (2.0, 2.0, 4, 448, 2.0),
            // The other CPUs were busy: never below one thread, nor above the linear rate.
            (2.0, 1.0, 4, 448, 2.0),
            (2.0, 9.0, 4, 8, 18.0),
        ] {
            let found = on_all_cpus(alone, together, threads, cpus);
            assert!((found - expected).abs() < 1e-9 * expected, "{alone} {together} {threads} {cpus}: {found}");
        }
    }
}
