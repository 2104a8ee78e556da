//! Reads project quotas again between two measurements. This costs a few system calls and no walk.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use super::directory_walk::device;
use super::host_files::{Host, readable, status};
use super::measured_usage::{Held, Part, PartUsage, Source, Usage};
use super::project_quota::{Claims, ProjectId, charged, project_of};
use crate::kernel::DeviceId;
use crate::units::{CgroupId, Monotonic};

/// The minimum interval between two recounts.
const PAUSE: Duration = Duration::from_secs(1);
/// The interval is also at least this multiple of the cost: recounts take at most a thousandth of a CPU.
const FACTOR: u32 = 1000;
/// The minimum interval while a filesystem is running full.
const PRESSED: Duration = Duration::from_millis(200);
const PRESSED_FACTOR: u32 = 50;

/// A place that is the root of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaPlace {
    pub part: Part,
    /// The path in the mounts of the machine's init.
    pub path: PathBuf,
    pub device: DeviceId,
    pub project: ProjectId,
}

impl QuotaPlace {
    /// Returns the usage of the place; `None` if the place has changed.
    fn held(&self, host: &Host, claims: &mut Claims, workload: &str) -> Option<Held> {
        let top = host.open(&self.path).ok()?;
        let directory = readable(&top).ok()?;
        // The directory may be another volume of the same name now, and the project may be removed or shared.
        let is_same = device(&status(&top).ok()?) == self.device && project_of(directory.as_fd()) == Some(self.project);
        if !is_same || !claims.is_sole(self.device, self.project, workload, &self.path) {
            return None;
        }
        charged(directory.as_fd(), self.project).ok()
    }
}

#[derive(Debug, Default)]
pub struct Recount {
    by_workload: HashMap<String, (CgroupId, Vec<QuotaPlace>)>,
    /// When the last recount ended, and its CPU time.
    last: Option<(Monotonic, Duration)>,
}

impl Recount {
    pub fn set(&mut self, workload: &str, id: CgroupId, mut quota_places: Vec<QuotaPlace>) {
        // The places have the order of the parts of a usage. Two layers of one container keep the order in which they were found.
        quota_places.sort_by(|a, b| a.part.cmp(&b.part));
        if quota_places.is_empty() {
            self.by_workload.remove(workload);
        } else {
            self.by_workload.insert(workload.to_owned(), (id, quota_places));
        }
    }

    /// Drops the workloads for which `is_wanted` is false.
    pub fn keep(&mut self, is_wanted: impl Fn(&str, CgroupId) -> bool) {
        self.by_workload.retain(|workload, (id, _)| is_wanted(workload, *id));
    }

    pub fn workloads(&self) -> Vec<String> {
        self.by_workload.keys().cloned().collect()
    }

    /// Returns how long the next recount can wait; `None` if there is no quota to read.
    pub fn due(&self, now: Monotonic, is_pressed: bool) -> Option<Duration> {
        if self.by_workload.is_empty() {
            return None;
        }
        let Some((at, cost)) = self.last else { return Some(Duration::ZERO) };
        let (pause, factor) = if is_pressed { (PRESSED, PRESSED_FACTOR) } else { (PAUSE, FACTOR) };
        Some(at.after(pause.max(cost.saturating_mul(factor))).since(now))
    }

    pub fn done(&mut self, at: Monotonic, cost: Duration) {
        self.last = Some((at, cost));
    }

    /// Returns a usage with the current values of its quotas.
    pub fn refreshed(&self, host: &Host, claims: &mut Claims, workload: &str, known: &Usage) -> Refreshed {
        let Some((_, quota_places)) = self.by_workload.get(workload).filter(|(id, _)| *id == known.id) else {
            return Refreshed::Unknown;
        };
        let mut parts = known.parts.clone();
        let mut of_quota: Vec<&mut PartUsage> = parts.iter_mut().filter(|part| part.source == Source::Quota).collect();
        // A partial result has other parts than the places.
        if !of_quota.iter().map(|part| &part.part).eq(quota_places.iter().map(|place| &place.part)) {
            return Refreshed::Unknown;
        }
        let mut now = Monotonic::now();
        for (part, place) in of_quota.iter_mut().zip(quota_places) {
            now = Monotonic::now();
            let Some(held) = place.held(host, claims, workload) else { return Refreshed::Changed };
            (part.held, part.ranked, part.at) = (held, held, now);
        }
        let usage = Usage::new(known.id, parts, now, known.is_complete);
        Refreshed::Known(Usage { is_under_way: known.is_under_way, ..usage })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Refreshed {
    Known(Usage),
    /// A place has changed, so the workload must be measured again.
    Changed,
    /// The workload has no known quotas.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn recount() -> Recount {
        let mut recount = Recount::default();
        let part = Part::Volume { name: "cache".to_owned() };
        let quota_places = QuotaPlace { part, path: "/nonexistent".into(), device: DeviceId(1), project: ProjectId(7) };
        recount.set("a", CgroupId(1), vec![quota_places]);
        recount
    }

    #[test]
    fn recounts_take_a_thousandth_of_a_cpu_at_most() {
        let mut recount = recount();
        let due = |recount: &Recount, at, is_pressed| recount.due(Monotonic(at * SECOND), is_pressed);
        assert_eq!(due(&recount, 5, false), Some(Duration::ZERO));
        recount.done(Monotonic(5 * SECOND), Duration::from_micros(10));
        assert_eq!(due(&recount, 5, false), Some(Duration::from_secs(1)));
        assert_eq!(due(&recount, 6, false), Some(Duration::ZERO));
        recount.done(Monotonic(5 * SECOND), Duration::from_millis(10));
        assert_eq!(due(&recount, 6, false), Some(Duration::from_secs(9)));
        assert_eq!(due(&recount, 5, true), Some(Duration::from_millis(500)));
        recount.set("a", CgroupId(1), Vec::new());
        assert_eq!(due(&recount, 5, true), None, "without a quota nothing wakes the thread");
    }

    #[test]
    fn unwanted_and_changed_places_are_dropped() {
        let mut recount = recount();
        recount.keep(|workload, id| workload == "a" && id == CgroupId(1));
        assert_eq!(recount.workloads(), ["a"]);
        let part = PartUsage {
            part: Part::Volume { name: "cache".to_owned() },
            device: DeviceId(1),
            held: Held::default(),
            ranked: Held::default(),
            at: Monotonic(0),
            source: Source::Quota,
            is_complete: true,
        };
        let known = Usage::new(CgroupId(1), vec![part.clone()], Monotonic(0), true);
        let refreshed = |known: &Usage| recount.refreshed(&Host::at("/".into()), &mut Claims::default(), "a", known);
        assert_eq!(refreshed(&known), Refreshed::Changed, "the volume does not exist");
        assert_eq!(refreshed(&Usage { id: CgroupId(2), ..known.clone() }), Refreshed::Unknown);
        let walked = PartUsage { source: Source::Walk, ..part };
        assert_eq!(refreshed(&Usage::new(CgroupId(1), vec![walked], Monotonic(0), true)), Refreshed::Unknown);
        recount.keep(|_, id| id == CgroupId(2));
        assert_eq!(recount.workloads(), Vec::<String>::new());
    }
}
