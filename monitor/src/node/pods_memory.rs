//! The memory of all pods together, from the cgroup in which the kubelet keeps them (`kubepods`).

use super::hierarchy::{CgroupVersion, Hierarchy};
use super::pinned_file::{Buffer, FileError, PinnedFile, keyed_value};
use crate::units::Bytes;

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
}

impl PodsMemorySample {
    /// Returns usage minus inactive file memory, at least zero.
    pub fn working_set(self) -> Bytes {
        self.usage.saturating_sub(self.inactive_file)
    }
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
    pub fn sample(&mut self) -> Result<PodsMemorySample, String> {
        if let Some(files) = &self.files
            && let Ok(sample) = files.sample(self.hierarchy.version, &mut self.buffer)
        {
            return Ok(sample);
        }
        self.files = None;
        let files = self.open()?;
        let sample = files.sample(self.hierarchy.version, &mut self.buffer).map_err(|error| error.to_string())?;
        self.files = Some(files);
        Ok(sample)
    }

    fn open(&self) -> Result<Files, String> {
        let root = &self.hierarchy.memory;
        let found = KUBEPODS.iter().map(|name| root.join(name)).find(|path| path.is_dir());
        let directory = found.ok_or_else(|| format!("no kubepods.slice or kubepods in {}", root.display()))?;
        let (limit, usage) = match self.hierarchy.version {
            CgroupVersion::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            CgroupVersion::V2 => ("memory.max", "memory.current"),
        };
        let open = |name| PinnedFile::open(directory.join(name)).map_err(|error| error.to_string());
        Ok(Files { limit: open(limit)?, usage: open(usage)?, stat: open("memory.stat")? })
    }
}

impl Files {
    fn sample(&self, version: CgroupVersion, buffer: &mut Buffer) -> Result<PodsMemorySample, FileError> {
        let number = |file: &PinnedFile, buffer: &mut Buffer| {
            let text = file.read(buffer)?.trim();
            let none = (text == "max").then_some(u64::MAX);
            none.or_else(|| text.parse().ok()).ok_or_else(|| file.content("expected a number of bytes"))
        };
        let limit = number(&self.limit, buffer)?;
        let usage = Bytes(number(&self.usage, buffer)?);
        let (inactive, active) = match version {
            CgroupVersion::V1 => ("total_inactive_file", "total_active_file"),
            CgroupVersion::V2 => ("inactive_file", "active_file"),
        };
        let stat = self.stat.read(buffer)?;
        let value = |key| keyed_value(stat, key).map(Bytes).ok_or_else(|| self.stat.content(format!("no {key} line")));
        let (inactive_file, active_file) = (value(inactive)?, value(active)?);
        Ok(PodsMemorySample {
            limit: Some(Bytes(limit)).filter(|it| it.0 <= HIGHEST_LIMIT),
            usage,
            inactive_file,
            active_file,
        })
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
        assert!(reader.sample().unwrap_err().contains("no kubepods.slice or kubepods in"));
        write(root.path(), "kubepods", &[("memory.max", "x"), ("memory.current", "1"), ("memory.stat", "")]);
        assert!(reader.sample().unwrap_err().contains("memory.max: expected a number of bytes"));
        write(root.path(), "kubepods", &[("memory.max", "max")]);
        assert!(reader.sample().unwrap_err().contains("no inactive_file line"));
        write(root.path(), "kubepods", &[("memory.stat", "inactive_file 1\nactive_file 0\n")]);
        assert_eq!(reader.sample().unwrap().working_set(), Bytes(0));
    }
}
