//! What `MemAvailable` counts wrongly, apart from refaults: ZFS's cache, free CMA pages, and protected page cache. Each correction has a
//! switch (`quirks`) and a metric.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{Quirk, Quirks};
use crate::units::{Bytes, CgroupId, Monotonic};

use super::hierarchy::Hierarchy;
use super::meminfo::MemInfo;
use super::protected_cache::{ProtectedCache, ProtectedCacheReader, Protections};
use super::zfs_arc::ZfsArc;

/// While ZFS drops its cache, `MemAvailable` rises by what the last reading still counts. A reading must therefore be young.
const ARC_AGE: Duration = Duration::from_millis(100);
/// How often the agent looks whether ZFS was loaded.
const NO_ARC_AGE: Duration = Duration::from_secs(10);
/// Protections change when pods come and go, and the cache below them changes slowly.
const CACHE_AGE: Duration = Duration::from_secs(1);
/// The next reading of the protections comes after so many times the length of the last one, but within this time.
const CACHE_REST: u32 = 50;
const OLDEST_CACHE: Duration = Duration::from_secs(2);

/// The figures of the last readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Miscounted {
    pub arc: Option<ZfsArc>,
    /// `None` on cgroup v1.
    pub protected: Option<ProtectedCache>,
}

impl Miscounted {
    /// Returns what the kernel can hand out: `MemAvailable` with all corrections that are switched on.
    pub fn available(&self, meminfo: &MemInfo, quirks: Quirks) -> Bytes {
        let [credit, debit] = self.corrections(meminfo, quirks);
        meminfo.available.saturating_add(credit).saturating_sub(debit)
    }

    /// Returns what is added to `MemAvailable`, and what is subtracted.
    pub fn corrections(&self, meminfo: &MemInfo, quirks: Quirks) -> [Bytes; 2] {
        let unless = |quirk: Quirk, bytes: Bytes| if quirks.has(quirk) { Bytes::ZERO } else { bytes };
        let credit = unless(Quirk::ArcIsUsed, self.arc.map_or(Bytes::ZERO, |arc| arc.credit(meminfo)));
        let cma = unless(Quirk::CmaIsAvailable, meminfo.cma_free);
        [credit, cma.saturating_add(withheld(self.protected.unwrap_or_default(), quirks))]
    }
}

/// Returns how much of the protected cache does not count as available.
fn withheld(ProtectedCache { min, low }: ProtectedCache, quirks: Quirks) -> Bytes {
    let unless = |quirk: Quirk, bytes: Bytes| if quirks.has(quirk) { Bytes::ZERO } else { bytes };
    unless(Quirk::ProtectedCacheIsAvailable, min).saturating_add(unless(Quirk::LowProtectedCacheIsAvailable, low))
}

/// Reads the figures at their pace.
#[derive(Debug)]
pub struct MiscountedReader {
    proc_root: PathBuf,
    protected: Option<ProtectedCacheReader>,
    last: Miscounted,
    /// The protections of the last reading, until they are taken.
    by_cgroup: Option<HashMap<CgroupId, ProtectedCache>>,
    arc_read: Option<Monotonic>,
    /// When the protections were read, and how long the reading is good for.
    cache_read: Option<(Monotonic, Duration)>,
}

impl MiscountedReader {
    pub fn new(proc_root: &Path, hierarchy: &Hierarchy) -> Self {
        Self {
            proc_root: proc_root.to_owned(),
            protected: ProtectedCacheReader::new(proc_root, hierarchy),
            last: Miscounted::default(),
            by_cgroup: None,
            arc_read: None,
            cache_read: None,
        }
    }

    /// Reads everything now, for a command that looks once.
    pub fn read_once(proc_root: &Path, hierarchy: &Hierarchy) -> Self {
        let mut reader = Self::new(proc_root, hierarchy);
        reader.renew_before_sample(Monotonic::now());
        reader
    }

    /// Reads the size of ZFS's cache if that is due. Reads the protections the first time only: their files take longer than a sample may.
    pub fn renew_before_sample(&mut self, now: Monotonic) {
        let age = if self.last.arc.is_some() { ARC_AGE } else { NO_ARC_AGE };
        if self.arc_read.is_none_or(|at| now.since(at) >= age) {
            (self.last.arc, self.arc_read) = (ZfsArc::read(&self.proc_root), Some(now));
        }
        if self.cache_read.is_none() {
            self.renew_after_decision();
        }
    }

    /// Reads the protections if that is due, which may take milliseconds.
    pub fn renew_after_decision(&mut self) {
        let now = Monotonic::now();
        let Some(reader) = &self.protected else { return };
        if self.cache_read.is_some_and(|(at, good_for)| now.since(at) < good_for) {
            return;
        }
        let Protections { all, by_cgroup } = reader.read();
        (self.last.protected, self.by_cgroup) = (Some(all), Some(by_cgroup));
        let took = Monotonic::now().since(now);
        self.cache_read = Some((now, CACHE_AGE.max(took * CACHE_REST).min(OLDEST_CACHE)));
    }

    /// Makes the next reading of the protections due: a workload was evicted, and its protected cache goes with it.
    pub fn expire(&mut self) {
        self.cache_read = self.cache_read.map(|(at, _)| (at, Duration::ZERO));
    }

    pub fn last(&self) -> &Miscounted {
        &self.last
    }

    /// Returns the protected cache of each cgroup that counts as available only once the cgroup is gone; `None` if it was taken before.
    pub fn take_withheld(&mut self, quirks: Quirks) -> Option<HashMap<CgroupId, Bytes>> {
        let of = |(id, cache)| (id, withheld(cache, quirks));
        Some(self.by_cgroup.take()?.into_iter().map(of).filter(|(_, bytes)| !bytes.is_zero()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Semantics;

    #[test]
    fn each_correction_has_its_switch() {
        let gib = |gib: u64| Bytes(gib << 30);
        let text = "name type data\nc_min 4 0\nsize 4 4294967296\n";
        let miscounted =
            Miscounted { arc: ZfsArc::parse(text), protected: Some(ProtectedCache { min: gib(2), low: gib(1) }) };
        let meminfo = MemInfo { total: gib(64), available: gib(10), cma_free: gib(3) };
        let corrected = Quirks::of(Semantics::Corrected);
        assert_eq!(miscounted.available(&meminfo, corrected), gib(10 + 4 - 3 - 2));
        for (quirk, on, expected) in [
            (Quirk::ArcIsUsed, true, 5),
            (Quirk::CmaIsAvailable, true, 12),
            (Quirk::ProtectedCacheIsAvailable, true, 11),
            (Quirk::LowProtectedCacheIsAvailable, false, 8),
        ] {
            let mut quirks = corrected;
            quirks.set(quirk, on);
            assert_eq!(miscounted.available(&meminfo, quirks), gib(expected), "{quirk:?}");
        }
        assert_eq!(miscounted.available(&meminfo, Quirks::of(Semantics::Kubelet)), gib(10));
        let little = MemInfo { available: gib(1), ..meminfo };
        assert_eq!(Miscounted::default().available(&little, corrected), Bytes::ZERO, "never below zero");
    }
}
