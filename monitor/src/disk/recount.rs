//! What project quotas count is read again and again between two measurements: that is a few calls to the kernel, and no walk.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use super::claims::Claims;
use super::host::{Host, readable, status};
use super::quota::{ProjectId, charged, project_of};
use super::tree::device;
use super::usage::{Held, Part, PartUsage, Source, Usage};
use crate::kernel::DeviceId;
use crate::units::CgroupId;
use crate::units::Monotonic;

/// Not more often…
const PAUSE: Duration = Duration::from_secs(1);
/// …and no more than a thousandth of a CPU for all of it.
const FACTOR: u32 = 1000;
/// While a filesystem runs full.
const PRESSED: Duration = Duration::from_millis(200);
const PRESSED_FACTOR: u32 = 50;

/// A place that is a project of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// What it is.
    pub part: Part,
    /// Where, in the eyes of the machine's init.
    pub path: PathBuf,
    /// On which filesystem.
    pub device: DeviceId,
    /// The project there.
    pub project: ProjectId,
}

impl Counted {
    /// What it holds now; nothing when it is not what it was.
    fn held(&self, host: &Host, claims: &mut Claims, workload: &str) -> Option<Held> {
        let top = host.open(&self.path).ok()?;
        let directory = readable(&top).ok()?;
        // Both may have changed: another volume of the same name, a project taken away or given to somebody else too.
        let is_same = device(&status(&top).ok()?) == self.device && project_of(directory.as_fd()) == Some(self.project);
        if !is_same || !claims.is_sole(self.device, self.project, workload, &self.path) {
            return None;
        }
        charged(directory.as_fd(), self.project).ok()
    }
}

/// All such places, by workload.
#[derive(Debug, Default)]
pub struct Recount {
    by_workload: HashMap<String, (CgroupId, Vec<Counted>)>,
    /// When it was done last, and what it took of a CPU.
    last: Option<(Monotonic, Duration)>,
}

impl Recount {
    /// Takes over what a measurement found.
    pub fn set(&mut self, workload: &str, id: CgroupId, mut counted: Vec<Counted>) {
        // As the parts of a usage are; two layers of one container stay in the order in which they were found.
        counted.sort_by(|a, b| a.part.cmp(&b.part));
        if counted.is_empty() {
            self.by_workload.remove(workload);
        } else {
            self.by_workload.insert(workload.to_owned(), (id, counted));
        }
    }

    /// Forgets workloads that are not wanted any more.
    pub fn keep(&mut self, is_wanted: impl Fn(&str, CgroupId) -> bool) {
        self.by_workload.retain(|workload, (id, _)| is_wanted(workload, *id));
    }

    /// Whose places are known.
    pub fn workloads(&self) -> Vec<String> {
        self.by_workload.keys().cloned().collect()
    }

    /// How long all can wait; nothing where there is nothing to read.
    pub fn due(&self, now: Monotonic, is_pressed: bool) -> Option<Duration> {
        if self.by_workload.is_empty() {
            return None;
        }
        let Some((at, cost)) = self.last else { return Some(Duration::ZERO) };
        let (pause, factor) = if is_pressed { (PRESSED, PRESSED_FACTOR) } else { (PAUSE, FACTOR) };
        Some(at.after(pause.max(cost.saturating_mul(factor))).since(now))
    }

    /// All were read.
    pub fn done(&mut self, at: Monotonic, cost: Duration) {
        self.last = Some((at, cost));
    }

    /// What is known of a workload, with what its projects hold now.
    pub fn refreshed(&self, host: &Host, claims: &mut Claims, workload: &str, known: &Usage) -> Refreshed {
        let Some((_, counted)) = self.by_workload.get(workload).filter(|(id, _)| *id == known.id) else {
            return Refreshed::Unknown;
        };
        let mut parts = known.parts.clone();
        let mut of_quota: Vec<&mut PartUsage> = parts.iter_mut().filter(|part| part.source == Source::Quota).collect();
        // Something else is published while a new measurement is under way.
        if !of_quota.iter().map(|part| &part.part).eq(counted.iter().map(|place| &place.part)) {
            return Refreshed::Unknown;
        }
        let mut now = Monotonic::now();
        for (part, place) in of_quota.iter_mut().zip(counted) {
            now = Monotonic::now();
            let Some(held) = place.held(host, claims, workload) else { return Refreshed::Changed };
            (part.held, part.at) = (held, now);
        }
        let usage = Usage::new(known.id, parts, now, known.is_complete);
        Refreshed::Known(Usage { is_under_way: known.is_under_way, ..usage })
    }
}

/// What came of reading the quotas of a workload.
#[derive(Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// They were read.
    Known(Usage),
    /// A place is not what it was: the workload is to be measured anew.
    Changed,
    /// It has none, as far as is known.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn recount() -> Recount {
        let mut recount = Recount::default();
        let part = Part::Volume { name: "cache".to_owned() };
        let counted = Counted { part, path: "/nonexistent".into(), device: DeviceId(1), project: ProjectId(7) };
        recount.set("a", CgroupId(1), vec![counted]);
        recount
    }

    #[test]
    fn it_takes_a_thousandth_of_a_cpu_and_a_second_at_least() {
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
        assert_eq!(due(&recount, 5, true), None, "nothing wakes the thread where there is no quota");
    }

    #[test]
    fn what_is_not_wanted_or_of_another_is_forgotten() {
        let mut recount = recount();
        recount.keep(|workload, id| workload == "a" && id == CgroupId(1));
        assert_eq!(recount.workloads(), ["a"]);
        let part = PartUsage {
            part: Part::Volume { name: "cache".to_owned() },
            device: DeviceId(1),
            held: Held::default(),
            at: Monotonic(0),
            source: Source::Quota,
            is_complete: true,
        };
        let known = Usage::new(CgroupId(1), vec![part.clone()], Monotonic(0), true);
        let refreshed = |known: &Usage| recount.refreshed(&Host::at("/".into()), &mut Claims::default(), "a", known);
        assert_eq!(refreshed(&known), Refreshed::Changed, "the volume is not there");
        assert_eq!(refreshed(&Usage { id: CgroupId(2), ..known.clone() }), Refreshed::Unknown);
        let walked = PartUsage { source: Source::Walk, ..part };
        assert_eq!(refreshed(&Usage::new(CgroupId(1), vec![walked], Monotonic(0), true)), Refreshed::Unknown);
        recount.keep(|_, id| id == CgroupId(2));
        assert_eq!(recount.workloads(), Vec::<String>::new());
    }
}
