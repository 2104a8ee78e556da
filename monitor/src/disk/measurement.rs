//! Measures one workload in small steps.

use std::collections::{BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::fstatvfs;
use rustix::io::Errno;

use super::container_mounts::{Container, InitNamespaces, MAX_PROCESSES, has_mounts_of, is_of};
use super::deleted_files::DeletedFiles;
use super::directory_walk::{Progress, TreeWalk, device};
use super::host_files::{readable, status};
use super::last_complete::{Kind, LastComplete, Look};
use super::measured_usage::{Held, Part, PartUsage, Source, Usage};
use super::place_finder::Finder;
use super::project_quota::{Claims, charged, project_of};
use super::quota_recount::QuotaPlace;
use super::workload_places::{Found, Place, VisibleMounts, WorkloadPlaces};
use crate::kernel::DeviceId;
use crate::node::mountinfo::Inodes;
use crate::node::statfs::Space;
use crate::units::{Monotonic, Pid};

/// A measurement that can be suspended and resumed.
#[derive(Debug)]
pub struct Measurement {
    pub wanted: WorkloadPlaces,
    pub begun: Monotonic,
    pub cpu: Duration,
    pub missing: BTreeSet<String>,
    places: Vec<Place>,
    walking: Option<Walking>,
    views: Vec<(Container, VisibleMounts)>,
    init: InitNamespaces,
    /// The processes to scan for deleted files, each with the index of its view.
    processes: Vec<(usize, Pid)>,
    deleted: DeletedFiles,
    parts: Vec<PartUsage>,
    quota_places: Vec<QuotaPlace>,
    is_complete: bool,
    /// The number of files that finished walks have read.
    entries: u64,
}

#[derive(Debug)]
pub struct Outcome {
    pub usage: Usage,
    /// Places whose quota can be read again at any time.
    pub quota_places: Vec<QuotaPlace>,
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
        let held = self.walk.held();
        PartUsage {
            part: self.part.clone(),
            device: self.walk.device(),
            held,
            ranked: held,
            at: self.at,
            source: Source::Walk,
            is_complete: self.walk.is_complete(),
        }
    }
}

impl Measurement {
    pub fn begin(finder: &mut Finder, wanted: WorkloadPlaces, now: Monotonic) -> Self {
        let Found { places, views, missing, unreadable, .. } = finder.find(&wanted);
        let all = || {
            views.iter().enumerate().flat_map(|(number, (of, _))| of.processes.iter().map(move |pid| (number, *pid)))
        };
        let is_complete = missing.is_empty() && unreadable == 0 && all().nth(MAX_PROCESSES).is_none();
        let processes = all().take(MAX_PROCESSES).collect();
        let init = InitNamespaces::of(finder.proc());
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
            deleted: DeletedFiles::default(),
            parts: Vec::new(),
            quota_places: Vec::new(),
            is_complete,
            entries: 0,
        }
    }

    /// Returns the number of files read so far.
    pub fn entries(&self) -> u64 {
        self.entries + self.deleted.entries() + self.walking.as_ref().map_or(0, |walking| walking.walk.entries())
    }

    /// Returns the place that the next step reads.
    pub fn place(&self) -> &Path {
        let walking = self.walking.as_ref().map(|walking| &walking.path);
        let place = walking.or_else(|| self.places.last().map(|place| &place.path));
        place.map_or(Path::new("/proc"), PathBuf::as_path)
    }

    pub fn step(&mut self, finder: &Finder, claims: &mut Claims, buffer: &mut [MaybeUninit<u8>]) -> Progress {
        if let Some(mut walking) = self.walking.take() {
            match walking.walk.step(buffer) {
                Progress::More => self.walking = Some(walking),
                Progress::Done => {
                    self.entries += walking.walk.entries();
                    self.missing.extend(walking.walk.omission().map(|reason| format!("disk usage: {reason}")));
                    self.parts.push(walking.so_far());
                }
            }
            return Progress::More;
        }
        if let Some(place) = self.places.pop() {
            match self.begin_place(finder, claims, place) {
                // The place was removed after it was found.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(_) => self.is_complete = false,
            }
            return Progress::More;
        }
        // A quota includes deleted files. Only after a walk they must be searched for.
        if self.parts.iter().all(|part| part.source != Source::Walk) {
            return Progress::Done;
        }
        let Some((number, pid)) = self.processes.pop() else { return Progress::Done };
        let process = finder.proc().join(pid.to_string());
        if let Some((container, shown)) = self.views.get(number)
            && is_of(&process, container)
        {
            finder.enter(&process);
            self.deleted.scan(&process, shown, has_mounts_of(&process, &self.init));
        }
        Progress::More
    }

    fn begin_place(&mut self, finder: &Finder, claims: &mut Claims, place: Place) -> Result<(), Errno> {
        let at = Monotonic::now();
        finder.enter(&place.path);
        let top = finder.host().open(&place.path)?;
        let device = device(&status(&top)?);
        let quota_places = match &place.part {
            Part::MemoryVolume { .. } => of_filesystem(&top).map(|held| (held, Source::Filesystem)),
            _ => self.by_quota(claims, &place, &top, device).map(|held| (held, Source::Quota)),
        };
        match quota_places {
            Some((held, source)) => {
                let part = place.part;
                self.parts.push(PartUsage { part, device, held, ranked: held, at, source, is_complete: true });
            }
            None => {
                self.walking = Some(Walking { part: place.part, path: place.path, at, walk: TreeWalk::begin(&top)? });
            }
        }
        Ok(())
    }

    fn by_quota(&mut self, claims: &mut Claims, place: &Place, top: &OwnedFd, device: DeviceId) -> Option<Held> {
        if !self.wanted.trusts_quotas {
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
                self.quota_places.push(QuotaPlace { part, path, device, project });
                Some(held)
            }
            // The filesystem does not count projects, although the directory has one.
            Err(Errno::SRCH) => None,
            Err(errno) => {
                self.missing.insert(format!(
                    "disk usage: project quotas cannot be read: {errno}; directories with a quota are walked instead \
                     (needs Linux 5.14 and CAP_SYS_ADMIN)"
                ));
                None
            }
        }
    }

    pub fn outcome(mut self, last: &mut LastComplete) -> Outcome {
        if self.deleted.is_refused() {
            self.missing.insert(
                "disk usage: the open files of some processes cannot be read: deleted files among them are not counted \
                 (needs CAP_SYS_PTRACE)"
                    .to_owned(),
            );
        }
        self.add_deleted_files(last);
        let is_complete = self.is_complete && self.deleted.is_complete();
        let usage = Usage::new(self.wanted.id, self.parts, self.begun, is_complete);
        Outcome { usage, quota_places: self.quota_places, missing: self.missing }
    }

    fn add_deleted_files(&mut self, last: &mut LastComplete) {
        let mut numbers: HashMap<Part, usize> = HashMap::new();
        for part in self.parts.iter_mut().filter(|part| part.source == Source::Walk) {
            let number = numbers.entry(part.part.clone()).or_default();
            let deleted = if *number == 0 { self.deleted.of(&part.part) } else { Held::default() };
            let mut at_least = |kind, found, is_complete| {
                let (workload, part) = (&self.wanted.workload, (part.part.clone(), *number));
                last.at_least(workload, self.wanted.id, part, kind, Look { found, is_complete })
            };
            part.ranked = at_least(Kind::Walk, part.held, part.is_complete);
            part.ranked += at_least(Kind::DeletedFiles, deleted, self.deleted.is_complete());
            part.held += deleted;
            *number += 1;
        }
    }

    /// Returns a partial result if it exceeds the previous one, so that a workload that fills the disk is detected before the
    /// walk ends.
    pub fn partial_usage(&self, before: Option<&Usage>) -> Option<Usage> {
        let mut parts = self.parts.clone();
        let of_before = || before.into_iter().flat_map(|before| &before.parts);
        if let Some(walking) = &self.walking {
            let mut part = PartUsage { is_complete: false, ..walking.so_far() };
            if let Some(known) = of_before().find(|known| known.part == part.part) {
                part.held = part.held.max(known.held);
                part.ranked = part.held.max(known.ranked);
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

/// Returns the usage of a filesystem; `None` if it has no size limit and so does not report usage.
fn of_filesystem(top: &OwnedFd) -> Option<Held> {
    let answer = fstatvfs(top).ok()?;
    Some(Held { bytes: Space::of(&answer)?.used, inodes: Inodes::of(&answer).map_or(0, Inodes::used) })
}

#[cfg(test)]
#[path = "measurement_tests.rs"]
mod tests;
