//! A thread that records MemAvailable about every millisecond. Scenarios measure all times against this curve.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::units::monotonic_ns;

/// The capacity of the curve: more than three minutes of samples.
const CAPACITY: usize = 200_000;

/// One reading of MemAvailable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    pub at_ns: u64,
    pub available: u64,
}

#[derive(Debug)]
struct Shared {
    running: AtomicBool,
    count: AtomicUsize,
    samples: Mutex<Vec<Sample>>,
}

/// The recorder: one thread for the whole boot, which records between `start` and `stop`.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
}

impl Sampler {
    /// Starts the thread, with its memory allocated and touched.
    pub fn new() -> Result<Self> {
        let shared = Arc::new(Shared {
            running: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            // The vector is written, not only reserved: under MCL_ONFAULT the kernel locks pages only after they exist.
            samples: Mutex::new(vec![Sample { at_ns: 1, available: 1 }; CAPACITY]),
        });
        let meminfo = File::open("/proc/meminfo").context("open /proc/meminfo")?;
        let its = Arc::clone(&shared);
        thread::Builder::new()
            .name("sampler".to_owned())
            .stack_size(64 * 1024)
            .spawn(move || record(&its, &meminfo))
            .context("start the sampler's thread")?;
        Ok(Self { shared })
    }

    /// Discards the old curve and starts to record a new one.
    pub fn start(&self) {
        self.shared.count.store(0, Ordering::Release);
        self.shared.running.store(true, Ordering::Release);
    }

    /// Stops recording, so that idle measurements are undisturbed.
    pub fn stop(&self) {
        self.shared.running.store(false, Ordering::Release);
    }

    /// Returns the curve so far.
    pub fn curve(&self) -> Vec<Sample> {
        let count = self.shared.count.load(Ordering::Acquire);
        let samples = self.shared.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.get(..count).unwrap_or_default().to_vec()
    }
}

fn record(shared: &Shared, meminfo: &File) {
    // The sampler has real-time priority: if it waited for the workload's time slice, it would date the crossing too late.
    // SAFETY: sched_setscheduler reads one sched_param, which lives across the call.
    unsafe {
        let parameter = libc::sched_param { sched_priority: 1 };
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter);
    }
    let mut buffer = [0_u8; 512];
    loop {
        if !shared.running.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(20));
            continue;
        }
        let length = meminfo.read_at(&mut buffer, 0).unwrap_or(0);
        let at_ns = monotonic_ns();
        if let Some(available) = buffer.get(..length).and_then(parse_available) {
            let index = shared.count.load(Ordering::Acquire);
            if index < CAPACITY {
                let mut samples = shared.samples.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(slot) = samples.get_mut(index) {
                    *slot = Sample { at_ns, available };
                }
                shared.count.store(index + 1, Ordering::Release);
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns MemAvailable in bytes, without allocating.
pub fn parse_available(text: &[u8]) -> Option<u64> {
    const KEY: &[u8] = b"MemAvailable:";
    let start = text.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let mut kib: u64 = 0;
    let mut digits = 0;
    for byte in text.get(start..)?.iter().skip_while(|byte| **byte == b' ') {
        if !byte.is_ascii_digit() {
            break;
        }
        kib = kib.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        digits += 1;
    }
    (digits > 0).then(|| kib.saturating_mul(1024))
}

/// Returns when the curve first fell below the threshold at or after `from_ns`, interpolated between two samples.
pub fn crossing_down(curve: &[Sample], threshold: u64, from_ns: u64) -> Option<u64> {
    curve.windows(2).find_map(|pair| match pair {
        [before, after] if after.at_ns >= from_ns && before.available >= threshold && after.available < threshold => {
            Some(interpolate(*before, *after, threshold))
        }
        _ => None,
    })
}

/// Returns when the curve first rose to the threshold again after `from_ns`.
pub fn crossing_up(curve: &[Sample], threshold: u64, from_ns: u64) -> Option<u64> {
    curve.windows(2).find_map(|pair| match pair {
        [before, after] if after.at_ns >= from_ns && before.available < threshold && after.available >= threshold => {
            Some(interpolate(*before, *after, threshold))
        }
        _ => None,
    })
}

fn interpolate(before: Sample, after: Sample, threshold: u64) -> u64 {
    let whole = before.available.abs_diff(after.available);
    let part = before.available.abs_diff(threshold);
    let span = after.at_ns.saturating_sub(before.at_ns);
    // The product of memory in bytes and nanoseconds can exceed 2^64.
    let offset = u128::from(span) * u128::from(part) / u128::from(whole.max(1));
    before.at_ns + u64::try_from(offset).unwrap_or(span)
}

/// Returns the longest time between two samples within a span.
pub fn longest_gap(curve: &[Sample], from_ns: u64, to_ns: u64) -> u64 {
    curve
        .windows(2)
        .filter_map(|pair| match pair {
            [before, after] if after.at_ns >= from_ns && before.at_ns <= to_ns => {
                Some(after.at_ns.saturating_sub(before.at_ns))
            }
            _ => None,
        })
        .max()
        .unwrap_or(0)
}

/// Returns the lowest value of the curve.
pub fn lowest(curve: &[Sample]) -> Option<u64> {
    curve.iter().map(|sample| sample.available).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_is_read_without_the_rest_of_the_file() {
        let text = b"MemTotal:  990076 kB\nMemFree:  1 kB\nMemAvailable:   886916 kB\nBuffers: 0 kB\n";
        assert_eq!(parse_available(text), Some(886_916 * 1024));
        assert_eq!(parse_available(b"MemTotal: 1 kB\n"), None);
        assert_eq!(parse_available(b"MemAvailable: kB\n"), None);
    }

    #[test]
    fn crossings_are_interpolated_and_directed() {
        let curve: Vec<Sample> = [(0, 300), (100, 200), (200, 0), (300, 50), (400, 150)]
            .map(|(at_ns, available)| Sample { at_ns, available })
            .to_vec();
        assert_eq!(crossing_down(&curve, 100, 0), Some(150));
        assert_eq!(crossing_up(&curve, 100, 0), Some(350));
        assert_eq!(crossing_down(&curve, 100, 250), None);
        assert_eq!(lowest(&curve), Some(0));
        assert_eq!(longest_gap(&curve, 0, 400), 100);
    }
}
