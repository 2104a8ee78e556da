//! The node's available memory, by the kernel's and by the kubelet's definition.

use std::path::Path;

use crate::units::{Bytes, Monotonic};

use super::hierarchy::{CgroupVersion, Hierarchy};
use super::meminfo::{MemDetails, MemInfo};
use super::pinned_file::{Buffer, FileError, PinnedFile, keyed_value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySample {
    pub meminfo: MemInfo,
    /// The time just before the read.
    pub at: Monotonic,
}

/// The usage of the root cgroup as the kubelet counts it (`eviction-semantics.md` §1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RootUsage {
    /// v1: `memory.usage_in_bytes`. v2: `anon` + `file`, because the root has no `memory.current`; this excludes kernel memory.
    pub usage: Bytes,
    /// v1: `total_inactive_file`; v2: `inactive_file`.
    pub inactive_file: Bytes,
    /// Huge pages that cgroups are charged with (v2, mount option `memory_hugetlb_accounting`, Linux 6.13; charged, but not shown, since 6.7).
    pub charged_huge_pages: Option<Bytes>,
}

impl RootUsage {
    /// Returns usage minus inactive file memory, at least zero.
    pub fn working_set(self) -> Bytes {
        self.usage.saturating_sub(self.inactive_file)
    }

    /// Returns the kubelet's `memory.available`: capacity minus working set, at least zero.
    pub fn available(self, capacity: Bytes) -> Bytes {
        capacity.saturating_sub(self.working_set())
    }

    fn parse(version: CgroupVersion, usage: Option<u64>, stat: &str) -> Result<Self, &'static str> {
        let key = |key| keyed_value(stat, key).ok_or(key);
        Ok(match version {
            CgroupVersion::V1 => {
                let inactive_file = Bytes(key("total_inactive_file")?);
                Self { usage: Bytes(usage.ok_or("usage_in_bytes")?), inactive_file, charged_huge_pages: None }
            }
            CgroupVersion::V2 => Self {
                usage: Bytes(key("anon")?.saturating_add(key("file")?)),
                inactive_file: Bytes(key("inactive_file")?),
                charged_huge_pages: keyed_value(stat, "hugetlb").map(Bytes),
            },
        })
    }
}

#[derive(Debug)]
pub struct MemoryReader {
    version: CgroupVersion,
    meminfo: PinnedFile,
    usage: Option<PinnedFile>,
    stat: PinnedFile,
    buffer: Buffer,
}

impl MemoryReader {
    pub fn open(proc_root: &Path, hierarchy: &Hierarchy) -> Result<Self, FileError> {
        let usage = match hierarchy.version {
            CgroupVersion::V1 => Some(PinnedFile::open(hierarchy.memory.join("memory.usage_in_bytes"))?),
            CgroupVersion::V2 => None,
        };
        Ok(Self {
            version: hierarchy.version,
            meminfo: PinnedFile::open(proc_root.join("meminfo"))?,
            usage,
            stat: PinnedFile::open(hierarchy.memory.join("memory.stat"))?,
            buffer: Buffer::new(),
        })
    }

    /// Reads `/proc/meminfo` with one system call.
    pub fn sample(&mut self) -> Result<MemorySample, FileError> {
        let at = Monotonic::now();
        let text = self.meminfo.read(&mut self.buffer)?;
        let meminfo = MemInfo::parse(text).map_err(|error| self.meminfo.content(error))?;
        Ok(MemorySample { meminfo, at })
    }

    /// Reads the further lines of `/proc/meminfo`.
    pub fn details(&mut self) -> Result<MemDetails, FileError> {
        Ok(MemDetails::parse(self.meminfo.read(&mut self.buffer)?))
    }

    /// Reads the root cgroup's usage. On v2 the kernel first sums per-CPU counters, which costs more than a sample.
    /// Fails when a file cannot be read or lacks a key.
    pub fn root_usage(&mut self) -> Result<RootUsage, FileError> {
        let usage = match &self.usage {
            Some(file) => {
                let text = file.read(&mut self.buffer)?;
                Some(text.trim().parse().map_err(|_| file.content("expected a number of bytes"))?)
            }
            None => None,
        };
        let stat = self.stat.read(&mut self.buffer)?;
        RootUsage::parse(self.version, usage, stat).map_err(|key| self.stat.content(format!("no {key} line")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_v1_root_counts_the_whole_tree() {
        let stat = "inactive_file 1\ntotal_inactive_file 300\n";
        let usage = RootUsage::parse(CgroupVersion::V1, Some(1000), stat).unwrap();
        assert_eq!(usage.working_set(), Bytes(700));
        assert_eq!(usage.available(Bytes(5000)), Bytes(4300));
    }

    #[test]
    fn the_v2_root_excludes_kernel_memory() {
        let stat = "anon 500\nfile 400\nkernel 900\nslab 800\ninactive_file 100\nactive_file 300\n";
        let usage = RootUsage::parse(CgroupVersion::V2, None, stat).unwrap();
        assert_eq!(usage.working_set(), Bytes(800));
    }

    #[test]
    fn working_set_and_available_are_at_least_zero() {
        let usage = RootUsage { usage: Bytes(10), inactive_file: Bytes(20), ..RootUsage::default() };
        assert_eq!(usage.working_set(), Bytes(0));
        let usage = RootUsage { usage: Bytes(90), ..RootUsage::default() };
        assert_eq!(usage.available(Bytes(50)), Bytes(0));
    }

    #[test]
    fn the_error_names_a_missing_key() {
        assert_eq!(RootUsage::parse(CgroupVersion::V2, None, "anon 1\n"), Err("file"));
    }
}
