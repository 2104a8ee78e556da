//! The memory of all pods together, from the cgroup in which the kubelet keeps them (`kubepods`).

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::hierarchy::{CgroupVersion, Hierarchy};
use super::pinned_file::{Buffer, FileError, PinnedFile, keyed_value};
use crate::units::{Bytes, CgroupId};

/// The cgroup of all pods: of the kubelet's systemd driver and its cgroupfs driver, then with the root that kind configures.
const KUBEPODS: [&str; 4] = ["kubepods.slice", "kubepods", "kubelet.slice/kubelet-kubepods.slice", "kubelet/kubepods"];
/// The kubelet takes a higher limit for none (`eviction-semantics.md` §1.1). v1 writes nearly 2^63 for none.
const HIGHEST_LIMIT: u64 = 1 << 62;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodsMemorySample {
    /// `memory.max`, v1: `memory.limit_in_bytes`; `None` without a limit.
    pub limit: Option<Bytes>,
    /// `memory.current`, v1: `memory.usage_in_bytes`.
    pub usage: Bytes,
    pub inactive_file: Bytes,
    pub active_file: Bytes,
    /// `slab_reclaimable`; zero on v1, which does not count it.
    pub reclaimable_slab: Bytes,
}

impl PodsMemorySample {
    /// Returns usage minus inactive file memory, at least zero.
    pub fn working_set(self) -> Bytes {
        self.usage.saturating_sub(self.inactive_file)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PodsMemoryError {
    #[error("no kubepods.slice or kubepods in {0}")]
    Absent(PathBuf),
    #[error(transparent)]
    File(#[from] FileError),
}

/// Returns the id of the cgroup of all pods, which the kernel reports when its limit is reached.
pub fn cgroup_of_all_pods(hierarchy: &Hierarchy) -> Option<CgroupId> {
    let metadata = std::fs::metadata(directory(hierarchy)?).ok()?;
    Some(CgroupId(metadata.ino()))
}

fn directory(hierarchy: &Hierarchy) -> Option<PathBuf> {
    KUBEPODS.iter().map(|name| hierarchy.memory.join(name)).find(|path| path.is_dir())
}

/// Reads the cgroup of all pods. Its files stay open, and are opened anew when the kubelet has made the cgroup again.
#[derive(Debug)]
pub struct PodsMemory {
    hierarchy: Hierarchy,
    files: Option<Files>,
    buffer: Buffer,
}

#[derive(Debug)]
struct Files {
    limit: PinnedFile,
    usage: PinnedFile,
    stat: PinnedFile,
}

impl PodsMemory {
    pub fn new(hierarchy: Hierarchy) -> Self {
        Self { hierarchy, files: None, buffer: Buffer::new() }
    }

    /// Reads the figures. The error says why there are none.
    pub fn sample(&mut self) -> Result<PodsMemorySample, PodsMemoryError> {
        if let Some(files) = &self.files
            && let Ok(sample) = files.sample(self.hierarchy.version, &mut self.buffer)
        {
            return Ok(sample);
        }
        self.files = None;
        let files = self.open()?;
        let sample = files.sample(self.hierarchy.version, &mut self.buffer)?;
        self.files = Some(files);
        Ok(sample)
    }

    /// Reads the limit and the usage, and keeps the other figures of `last`. Reading those makes the kernel sum up the counters of every
    /// cgroup below. Returns `None` where everything has to be read.
    pub fn renewed(&mut self, last: PodsMemorySample) -> Option<PodsMemorySample> {
        let (limit, usage) = self.files.as_ref()?.limit_and_usage(&mut self.buffer).ok()?;
        Some(PodsMemorySample { limit, usage, ..last })
    }

    fn open(&self) -> Result<Files, PodsMemoryError> {
        let directory =
            directory(&self.hierarchy).ok_or_else(|| PodsMemoryError::Absent(self.hierarchy.memory.clone()))?;
        let (limit, usage) = match self.hierarchy.version {
            CgroupVersion::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            CgroupVersion::V2 => ("memory.max", "memory.current"),
        };
        let open = |name| PinnedFile::open(directory.join(name));
        Ok(Files { limit: open(limit)?, usage: open(usage)?, stat: open("memory.stat")? })
    }
}

impl Files {
    fn limit_and_usage(&self, buffer: &mut Buffer) -> Result<(Option<Bytes>, Bytes), FileError> {
        let number = |file: &PinnedFile, buffer: &mut Buffer| {
            let text = file.read(buffer)?.trim();
            let none = (text == "max").then_some(u64::MAX);
            none.or_else(|| text.parse().ok()).ok_or_else(|| file.content("expected a number of bytes"))
        };
        let limit = Some(Bytes(number(&self.limit, buffer)?)).filter(|it| it.0 <= HIGHEST_LIMIT);
        Ok((limit, Bytes(number(&self.usage, buffer)?)))
    }

    fn sample(&self, version: CgroupVersion, buffer: &mut Buffer) -> Result<PodsMemorySample, FileError> {
        let (limit, usage) = self.limit_and_usage(buffer)?;
        let (inactive, active) = match version {
            CgroupVersion::V1 => ("total_inactive_file", "total_active_file"),
            CgroupVersion::V2 => ("inactive_file", "active_file"),
        };
        let stat = self.stat.read(buffer)?;
        let value = |key| keyed_value(stat, key).map(Bytes).ok_or_else(|| self.stat.content(format!("no {key} line")));
        let (inactive_file, active_file) = (value(inactive)?, value(active)?);
        let reclaimable_slab = keyed_value(stat, "slab_reclaimable").map_or(Bytes::ZERO, Bytes);
        Ok(PodsMemorySample { limit, usage, inactive_file, active_file, reclaimable_slab })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, cgroup: &str, files: &[(&str, &str)]) {
        fs::create_dir_all(root.join(cgroup)).unwrap();
        files.iter().for_each(|(name, text)| fs::write(root.join(cgroup).join(name), text).unwrap());
    }

    fn reader(version: CgroupVersion, root: &Path) -> PodsMemory {
        PodsMemory::new(Hierarchy { version, memory: root.to_owned(), freezer: None, hybrid: false })
    }

    #[test]
    fn the_cgroup_of_all_pods_is_read_on_both_versions() {
        let v1 = "inactive_file 1\nactive_file 1\ntotal_inactive_file 300\ntotal_active_file 100\n";
        let v2 = "anon 1\ninactive_file 300\nactive_file 100\n";
        for (version, cgroup, limit_file, limit, expected) in [
            (CgroupVersion::V2, "kubepods.slice", "memory.max", "5000\n", Some(5000)),
            (CgroupVersion::V2, "kubelet/kubepods", "memory.max", "5000\n", Some(5000)),
            (CgroupVersion::V2, "kubepods", "memory.max", "max\n", None),
            (CgroupVersion::V1, "kubepods", "memory.limit_in_bytes", "5000\n", Some(5000)),
            (CgroupVersion::V1, "kubepods", "memory.limit_in_bytes", "9223372036854771712\n", None),
        ] {
            let root = tempfile::tempdir().unwrap();
            let (usage, stat) = match version {
                CgroupVersion::V1 => ("memory.usage_in_bytes", v1),
                CgroupVersion::V2 => ("memory.current", v2),
            };
            write(root.path(), cgroup, &[(limit_file, limit), (usage, "2000\n"), ("memory.stat", stat)]);
            let sample = reader(version, root.path()).sample().unwrap();
            assert_eq!(sample.limit, expected.map(Bytes), "{version} {cgroup} {limit}");
            assert_eq!(
                (sample.usage, sample.working_set(), sample.active_file),
                (Bytes(2000), Bytes(1700), Bytes(100))
            );
        }
    }

    #[test]
    fn a_missing_or_odd_cgroup_has_a_reason() {
        let root = tempfile::tempdir().unwrap();
        let mut reader = reader(CgroupVersion::V2, root.path());
        assert!(reader.sample().unwrap_err().to_string().contains("no kubepods.slice or kubepods in"));
        write(root.path(), "kubepods", &[("memory.max", "x"), ("memory.current", "1"), ("memory.stat", "")]);
        assert!(reader.sample().unwrap_err().to_string().contains("memory.max: expected a number of bytes"));
        write(root.path(), "kubepods", &[("memory.max", "max")]);
        assert!(reader.sample().unwrap_err().to_string().contains("no inactive_file line"));
        write(root.path(), "kubepods", &[("memory.stat", "inactive_file 1\nactive_file 0\n")]);
        assert_eq!(reader.sample().unwrap().working_set(), Bytes(0));
    }

    #[test]
    fn limit_and_usage_are_renewed_alone() {
        let root = tempfile::tempdir().unwrap();
        let stat = "inactive_file 300\nactive_file 100\nslab_reclaimable 20\n";
        write(root.path(), "kubepods", &[("memory.max", "max"), ("memory.current", "2000"), ("memory.stat", stat)]);
        let mut reader = reader(CgroupVersion::V2, root.path());
        let first = PodsMemorySample {
            limit: None,
            usage: Bytes(2000),
            inactive_file: Bytes(300),
            active_file: Bytes(100),
            reclaimable_slab: Bytes(20),
        };
        assert_eq!(reader.renewed(first), None, "nothing is open yet");
        assert_eq!(reader.sample().unwrap(), first);
        write(root.path(), "kubepods", &[("memory.max", "5000"), ("memory.current", "4000"), ("memory.stat", "")]);
        assert_eq!(
            reader.renewed(first),
            Some(PodsMemorySample { limit: Some(Bytes(5000)), usage: Bytes(4000), ..first })
        );
    }
}
