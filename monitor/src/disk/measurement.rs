//! Measuring one workload, step by step.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::fstatvfs;
use rustix::io::Errno;

use super::claims::Claims;
use super::deleted::Deleted;
use super::host::{readable, status};
use super::places::{Finder, Found, Place, Shown, WorkloadPlaces};
use super::processes::{Container, Init, MOST_PROCESSES, has_mounts_of, is_of};
use super::quota::{charged, project_of};
use super::recount::Counted;
use super::tree::{Progress, TreeWalk, device};
use super::usage::{Held, Part, PartUsage, Source, Usage};
use crate::kernel::DeviceId;
use crate::units::Monotonic;
use crate::units::{Bytes, Pid};

/// A measurement that can be left and gone on with.
#[derive(Debug)]
pub struct Measurement {
    /// Of what.
    pub wanted: WorkloadPlaces,
    /// Since when.
    pub begun: Monotonic,
    /// What it has taken of a CPU.
    pub cpu: Duration,
    /// What cannot be measured.
    pub missing: BTreeSet<String>,
    places: Vec<Place>,
    walking: Option<Walking>,
    views: Vec<(Container, Shown)>,
    init: Init,
    /// By the number of the view.
    processes: Vec<(usize, Pid)>,
    deleted: Deleted,
    parts: Vec<PartUsage>,
    counted: Vec<Counted>,
    is_complete: bool,
    /// Of walks that are over.
    entries: u64,
}

/// What a measurement has found.
#[derive(Debug)]
pub struct Outcome {
    /// What the workload keeps.
    pub usage: Usage,
    /// Places that can be counted again at any time.
    pub counted: Vec<Counted>,
    /// What cannot be measured.
    pub missing: BTreeSet<String>,
}

#[derive(Debug)]
struct Walking {
    part: Part,
    path: PathBuf,
    at: Monotonic,
    walk: TreeWalk,
}

impl Walking {
    fn so_far(&self) -> PartUsage {
        PartUsage {
            part: self.part.clone(),
            device: self.walk.device(),
            held: self.walk.held(),
            at: self.at,
            source: Source::Walk,
            is_complete: self.walk.is_complete(),
        }
    }
}

impl Measurement {
    /// Finds out what there is to measure.
    pub fn begin(finder: &mut Finder, wanted: WorkloadPlaces, now: Monotonic) -> Self {
        let Found { places, views, missing, unseen, .. } = finder.find(&wanted);
        let all = || {
            views.iter().enumerate().flat_map(|(number, (of, _))| of.processes.iter().map(move |pid| (number, *pid)))
        };
        let is_complete = missing.is_empty() && unseen == 0 && all().nth(MOST_PROCESSES).is_none();
        let processes = all().take(MOST_PROCESSES).collect();
        let init = Init::of(finder.proc());
        Self {
            wanted,
            begun: now,
            cpu: Duration::ZERO,
            missing,
            places,
            walking: None,
            views,
            init,
            processes,
            deleted: Deleted::default(),
            parts: Vec::new(),
            counted: Vec::new(),
            is_complete,
            entries: 0,
        }
    }

    /// How many files were looked at.
    pub fn entries(&self) -> u64 {
        self.entries + self.deleted.entries() + self.walking.as_ref().map_or(0, |walking| walking.walk.entries())
    }

    /// Where it is to go on.
    pub fn place(&self) -> &Path {
        let walking = self.walking.as_ref().map(|walking| &walking.path);
        let place = walking.or_else(|| self.places.last().map(|place| &place.path));
        place.map_or(Path::new("/proc"), PathBuf::as_path)
    }

    /// Goes on for a little.
    pub fn step(&mut self, finder: &Finder, claims: &mut Claims, buffer: &mut [MaybeUninit<u8>]) -> Progress {
        if let Some(mut walking) = self.walking.take() {
            match walking.walk.step(buffer) {
                Progress::More => self.walking = Some(walking),
                Progress::Done => {
                    self.entries += walking.walk.entries();
                    self.missing.extend(walking.walk.left_out().map(|reason| format!("disk usage: {reason}")));
                    self.parts.push(walking.so_far());
                }
            }
            return Progress::More;
        }
        if let Some(place) = self.places.pop() {
            match self.begin_place(finder, claims, place) {
                // Gone since it was found.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(_) => self.is_complete = false,
            }
            return Progress::More;
        }
        // A quota knows of deleted files; only for a walk they are to be looked for.
        if self.parts.iter().all(|part| part.source != Source::Walk) {
            return Progress::Done;
        }
        let Some((number, pid)) = self.processes.pop() else { return Progress::Done };
        let process = finder.proc().join(pid.to_string());
        if let Some((container, shown)) = self.views.get(number)
            && is_of(&process, container)
        {
            finder.enter(&process);
            self.deleted.look(&process, shown, has_mounts_of(&process, &self.init));
        }
        Progress::More
    }

    fn begin_place(&mut self, finder: &Finder, claims: &mut Claims, place: Place) -> Result<(), Errno> {
        let at = Monotonic::now();
        finder.enter(&place.path);
        let top = finder.host().open(&place.path)?;
        let device = device(&status(&top)?);
        let counted = match &place.part {
            Part::MemoryVolume { .. } => of_filesystem(&top).map(|held| (held, Source::Filesystem)),
            _ => self.by_quota(claims, &place, &top, device).map(|held| (held, Source::Quota)),
        };
        match counted {
            Some((held, source)) => {
                self.parts.push(PartUsage { part: place.part, device, held, at, source, is_complete: true });
            }
            None => {
                self.walking = Some(Walking { part: place.part, path: place.path, at, walk: TreeWalk::begin(&top)? });
            }
        }
        Ok(())
    }

    fn by_quota(&mut self, claims: &mut Claims, place: &Place, top: &OwnedFd, device: DeviceId) -> Option<Held> {
        if !self.wanted.believes_quotas {
            return None;
        }
        let directory = readable(top).ok()?;
        let project = project_of(directory.as_fd())?;
        if !claims.is_sole(device, project, &self.wanted.workload, &place.path) {
            return None;
        }
        match charged(directory.as_fd(), project) {
            Ok(held) => {
                let (part, path) = (place.part.clone(), place.path.clone());
                self.counted.push(Counted { part, path, device, project });
                Some(held)
            }
            // Nothing is counted there, though a project was set.
            Err(Errno::SRCH) => None,
            Err(errno) => {
                self.missing.insert(format!(
                    "disk usage: project quotas cannot be read: {errno}; directories that have one are walked instead \
                     (needs Linux 5.14 and CAP_SYS_ADMIN)"
                ));
                None
            }
        }
    }

    /// What was found, when all is done.
    pub fn outcome(mut self) -> Outcome {
        if self.deleted.is_refused() {
            self.missing.insert(
                "disk usage: the open files of some processes cannot be seen: deleted ones among them are not counted \
                 (needs CAP_SYS_PTRACE)"
                    .to_owned(),
            );
        }
        let walked = self.parts.iter_mut().filter(|part| part.source == Source::Walk);
        let mut added: BTreeSet<Part> = BTreeSet::new();
        for part in walked {
            if added.insert(part.part.clone()) {
                part.held += self.deleted.of(&part.part);
            }
        }
        let is_complete = self.is_complete && self.deleted.is_complete();
        let usage = Usage::new(self.wanted.id, self.parts, self.begun, is_complete);
        Outcome { usage, counted: self.counted, missing: self.missing }
    }

    /// What is known already, where it is more than was known before: a workload that fills the disk is seen to before the walk is over.
    pub fn more_than(&self, before: Option<&Usage>) -> Option<Usage> {
        let mut parts = self.parts.clone();
        let of_before = || before.into_iter().flat_map(|before| &before.parts);
        if let Some(walking) = &self.walking {
            let mut part = PartUsage { is_complete: false, ..walking.so_far() };
            if let Some(known) = of_before().find(|known| known.part == part.part) {
                part.held.bytes = part.held.bytes.max(known.held.bytes);
                part.held.inodes = part.held.inodes.max(known.held.inodes);
            }
            parts.push(part);
        }
        for known in of_before() {
            if !parts.iter().any(|part| part.part == known.part) {
                parts.push(known.clone());
            }
        }
        let usage = Usage { is_under_way: true, ..Usage::new(self.wanted.id, parts, self.begun, false) };
        let is_more = before.is_none_or(|before| usage.bytes > before.bytes || usage.inodes > before.inodes);
        is_more.then_some(usage)
    }
}

/// What a filesystem of its own holds; nothing where it has no limit and so does not tell.
fn of_filesystem(top: &OwnedFd) -> Option<Held> {
    let stat = fstatvfs(top).ok().filter(|stat| stat.f_blocks > 0)?;
    let blocks = stat.f_blocks.saturating_sub(stat.f_bfree);
    Some(Held { bytes: Bytes(blocks.saturating_mul(stat.f_frsize)), inodes: stat.f_files.saturating_sub(stat.f_ffree) })
}

#[cfg(test)]
#[path = "measurement_tests.rs"]
mod tests;
