//! How fast the kernel swaps out, and how much more it can. Read only while a threshold on memory is near, and only on a node with swap.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::eviction::decider::SwapOut;
use crate::eviction::fall::Fall;
use crate::node::swap_devices::SwapDevices;
use crate::units::{Bytes, CgroupId, Monotonic, kernel_text, page_size, signed};

/// Stalls are not averaged over more than this.
const LONGEST: Duration = Duration::from_secs(1);
/// A workload counts as growing for this long after it grew.
const REMEMBERED: Duration = Duration::from_secs(5);

/// The readings of a node with swap.
#[derive(Debug)]
pub struct SwapWatch {
    swaps: PathBuf,
    /// Whether the node has swap that counts. The list of swaps is read only then, or when nothing is urgent.
    pub(super) is_there: bool,
    /// The bytes that were swapped out, as a negative figure. Its fall is averaged as that of a signal, because kswapd swaps in bursts,
    /// with pauses of some seconds where the disk is slow.
    written: Fall,
    pub(super) growers: Growers,
    pub(super) reading: Option<Reading>,
    pub(super) latest: Option<SwapOut>,
    pub(super) missing: Option<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) at: Monotonic,
    /// The pages that were swapped out since boot.
    pub(super) written: u64,
    /// The time for which all tasks waited for memory since boot, and when that was read.
    pub(super) stalled: Option<(Duration, Monotonic)>,
}

impl SwapWatch {
    pub(super) fn new(proc_root: &Path) -> Self {
        let swaps = proc_root.join("swaps");
        let (written, growers) = (Fall::default(), Growers::default());
        Self { swaps, is_there: false, written, growers, reading: None, latest: None, missing: None }
    }

    pub(super) fn usable(&self) -> Option<Bytes> {
        SwapDevices::parse(&kernel_text::read(&self.swaps).ok()?).usable()
    }

    pub(super) fn forget(&mut self) {
        (self.written, self.growers, self.reading, self.latest) = (Fall::default(), Growers::default(), None, None);
    }

    pub(super) fn take_in(&mut self, reading: Reading, (free, room): (Bytes, Option<Bytes>)) {
        let left = -signed(reading.written.saturating_mul(page_size()));
        let per_second = self.written.per_second(left, 0, reading.at).map(|fall| fall.measured);
        self.written.observe(left, reading.at);
        let before = self.reading.replace(reading);
        self.latest = per_second.map(|per_second| SwapOut {
            at: reading.at,
            free,
            room,
            per_second: rounded(per_second),
            stalled: before.and_then(|before| share(before.stalled?, reading.stalled?)),
        });
    }
}

/// The workloads that grew last. A workload that the kernel swaps out does not grow in each second.
#[derive(Debug, Default)]
pub(super) struct Growers {
    ids: Vec<CgroupId>,
    seen: Option<Monotonic>,
}

impl Growers {
    pub(super) fn observe(&mut self, growing: impl Iterator<Item = CgroupId>, now: Monotonic) {
        let mut growing = growing.peekable();
        let is_old = self.seen.is_none_or(|seen| now.since(seen) >= REMEMBERED);
        if growing.peek().is_some() {
            self.seen = Some(now);
        }
        if growing.peek().is_some() || is_old {
            self.ids.clear();
            self.ids.extend(growing);
        }
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = CgroupId> {
        self.ids.iter().copied()
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and saturating is right")]
fn rounded(bytes: f64) -> Bytes {
    Bytes(bytes.max(0.0).round() as u64)
}

/// Returns the thousandths of the time between two readings for which all tasks waited; nothing after a long time between them.
fn share(before: (Duration, Monotonic), now: (Duration, Monotonic)) -> Option<u32> {
    let passed = now.1.since(before.1);
    let waited = now.0.saturating_sub(before.0).as_micros() * 1000 / passed.as_micros().max(1);
    (passed <= LONGEST).then(|| u32::try_from(waited).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Monotonic {
        Monotonic(milliseconds * 1_000_000)
    }

    /// Returns the rate in pages per second and the share of stalls after readings of milliseconds, pages, and milliseconds of stalls.
    fn watched(readings: &[(u64, u64, Option<u64>)]) -> Option<(u64, Option<u32>)> {
        let mut watch = SwapWatch::new(Path::new("/proc"));
        for (now, written, stalled) in readings {
            let stalled = stalled.map(|stalled| (Duration::from_millis(stalled), at(*now)));
            watch.take_in(Reading { at: at(*now), written: *written, stalled }, (Bytes(1), None));
        }
        watch.latest.map(|latest| (latest.per_second.0 / page_size(), latest.stalled))
    }

    #[test]
    fn a_workload_that_pauses_still_grows_for_some_seconds() {
        let mut growers = Growers::default();
        let mut seen = |id: Option<u64>, milliseconds| {
            growers.observe(id.map(CgroupId).into_iter(), at(milliseconds));
            growers.ids().map(|id| id.0).collect::<Vec<_>>()
        };
        for (growing, now, expected) in [
            (None, 0, &[][..]),
            (Some(7), 100, &[7]),
            (None, 5_000, &[7]),
            (Some(8), 5_050, &[8]),
            (None, 10_000, &[8]),
            (None, 10_050, &[]),
        ] {
            assert_eq!(seen(growing, now), expected, "at {now} ms");
        }
    }

    #[test]
    fn swap_out_is_averaged_as_the_fall_and_stalls_over_a_step() {
        let steady: Vec<_> = (0..40).map(|step| (step * 100, step * 500, Some(step))).collect();
        for (name, readings, expected) in [
            ("one reading", &[(0, 7_000, Some(900))][..], None),
            ("a first step", &[(0, 7_000, Some(900)), (100, 7_100, Some(920))], Some((1_000, Some(200)))),
            ("no PSI", &[(0, 0, None), (100, 100, None)], Some((1_000, None))),
            ("steady", &steady, Some((5_000, Some(10)))),
            (
                "a burst and a pause",
                &[(0, 0, Some(0)), (100, 900, Some(90)), (900, 900, Some(90))],
                Some((1_000, Some(0))),
            ),
            (
                "a pause of three seconds",
                &[(0, 0, None), (1_000, 1_000, None), (2_000, 2_000, None), (5_000, 2_000, None)],
                Some((400, None)),
            ),
            ("a long time without a reading", &[(0, 0, Some(0)), (2_000, 2_000, Some(9))], Some((1_000, None))),
        ] {
            assert_eq!(watched(readings), expected, "{name}");
        }
    }
}
