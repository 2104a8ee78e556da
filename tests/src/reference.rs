//! Scales time budgets to this machine's speed. The guest's scenarios and (through `#[path]`) the benches share this file.
//!
//! A budget holds for the machine on which it was measured. The scenario times a fixed piece of work in the minute of its own
//! measurement. A machine that takes twice the reference time for this work gets twice the budget.

use std::fs;
use std::hint::black_box;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The tolerance factor: equal runs on one machine differ by up to half, with or without other load.
const NOISE: f64 = 1.5;
/// Pieces of work between two sleeps, and the number of such rounds. Sleeps make the reference work meet the same conditions as the
/// measured program: cold caches and other load.
const PIECES: u32 = 100;
const ROUNDS: u32 = 20;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(20);

/// A fixed piece of work and its usual time.
#[derive(Debug, Clone, Copy)]
pub struct Reference {
    work: fn() -> io::Result<()>,
    /// The CPU time of one piece on the machine where the budgets were measured.
    usual: Duration,
}

/// Reads of `/proc/meminfo`, the agent's most frequent system call, in a guest under software emulation.
pub const EMULATED_READS: Reference = Reference { work: read_meminfo, usual: Duration::from_micros(43) };
/// The same reads on the host.
pub const NATIVE_READS: Reference = Reference { work: read_meminfo, usual: Duration::from_micros(11) };
/// Sorting, without a system call, compiled with optimization.
pub const NATIVE_SORTING: Reference = Reference { work: sort, usual: Duration::from_micros(3) };

impl Reference {
    /// Measures how slow this machine is now. It takes about half a second.
    pub fn slowness(self) -> io::Result<Slowness> {
        let (mut cpu, mut wall) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..ROUNDS {
            sleep(BETWEEN_ROUNDS);
            let (cpu_before, begun) = (thread_cpu(), Instant::now());
            for _ in 0..PIECES {
                (self.work)()?;
            }
            wall += begun.elapsed();
            cpu += thread_cpu().saturating_sub(cpu_before);
        }
        let usual = self.usual.as_secs_f64() * f64::from(ROUNDS * PIECES);
        Ok(Slowness { cpu: cpu.as_secs_f64() / usual, wall: wall.as_secs_f64() / usual })
    }
}

/// The time of the reference work as a multiple of its usual time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowness {
    /// The multiple of CPU time. Other processes change it little.
    pub cpu: f64,
    /// The multiple of wall-clock time, including the wait for a processor.
    pub wall: f64,
}

impl Slowness {
    /// Returns the slower of two measurements, because the machine may have slowed down between them.
    pub fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), wall: self.wall.max(other.wall) }
    }

    /// Returns the factor for budgets of CPU time. It is not below the value for a machine of usual speed.
    pub fn allowance(self) -> f64 {
        self.cpu.max(1.0) * NOISE
    }

    /// Returns the factor for latencies, in wall-clock time.
    pub fn patience(self) -> f64 {
        self.wall.max(1.0) * NOISE
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn read_meminfo() -> io::Result<()> {
    fs::read("/proc/meminfo").map(|text| drop(black_box(text)))
}

#[expect(clippy::unnecessary_wraps, reason = "the type of all references")]
fn sort() -> io::Result<()> {
    // A linear congruential generator with Knuth's constants.
    let mut state: u64 = 1;
    let mut numbers = [0_u64; 512];
    for number in &mut numbers {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *number = state;
    }
    numbers.sort_unstable();
    black_box(numbers);
    Ok(())
}

// This module has no `use`: a program without a test harness includes this file too.
#[cfg(test)]
mod tests {
    #[test]
    fn only_a_slower_machine_is_allowed_more() {
        let slow = super::Slowness { cpu: 2.0, wall: 3.0 };
        assert_eq!((slow.allowance(), slow.patience()), (2.0 * super::NOISE, 3.0 * super::NOISE));
        let quick = super::Slowness { cpu: 0.5, wall: 0.5 };
        assert_eq!(quick.allowance(), super::NOISE);
        assert_eq!(quick.max(slow), slow);
    }

    #[test]
    fn the_reference_work_takes_time() {
        let slowness = super::EMULATED_READS.slowness().unwrap();
        assert!(slowness.cpu > 0.0 && slowness.wall > 0.0, "{slowness:?}");
    }
}
