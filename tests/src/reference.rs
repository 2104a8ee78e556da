//! Budgets in proportion to this machine's speed, shared by the guest's scenarios and (through `#[path]`) by the benches.
//!
//! A promised figure holds for the machine on which it was measured. A fixed piece of work is timed in the minute of the measurement and
//! held against what it took there: a machine that takes twice as long for it is allowed twice as much.

use std::fs;
use std::hint::black_box;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Equal runs on one machine, beside others or not, differ by up to half: so much more than promised is allowed.
const NOISE: f64 = 1.5;
/// Pieces of work between two sleeps, and how many such rounds. Rounds far apart see the machine as the measured program does: with cold
/// caches, and beside what else runs.
const PIECES: u32 = 100;
const ROUNDS: u32 = 20;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(20);

/// A fixed piece of work.
#[derive(Debug, Clone, Copy)]
pub struct Reference {
    work: fn() -> io::Result<()>,
    /// CPU time of one piece where the promises were measured.
    usual: Duration,
}

/// Reads of `/proc/meminfo`, the agent's commonest system call, in a guest under software emulation.
pub const EMULATED_READS: Reference = Reference { work: read_meminfo, usual: Duration::from_micros(43) };
/// The same on the machine itself.
pub const NATIVE_READS: Reference = Reference { work: read_meminfo, usual: Duration::from_micros(11) };
/// Sorting, without a system call, compiled with optimization.
pub const NATIVE_SORTING: Reference = Reference { work: sort, usual: Duration::from_micros(3) };

impl Reference {
    /// Measures how slow this machine is now. Takes about half a second.
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

/// How many times as long this machine takes for the reference work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowness {
    /// In CPU time: what other processes do meanwhile counts little.
    pub cpu: f64,
    /// In wall-clock time, the waiting for a processor included.
    pub wall: f64,
}

impl Slowness {
    /// The slower of two measurements: the machine may have become slower in between.
    pub fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), wall: self.wall.max(other.wall) }
    }

    /// How many times the promised figure of CPU time may be taken. A quick machine is held to the promise itself.
    pub fn allowance(self) -> f64 {
        self.cpu.max(1.0) * NOISE
    }

    /// The same for latencies, in wall-clock time.
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
    // A linear congruential generator, Knuth's constants.
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

// Without `use`: a program that has no test harness includes this file too.
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
