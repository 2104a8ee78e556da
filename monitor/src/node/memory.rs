//! What the node as a whole has left, by both definitions of available.

use std::path::Path;

use crate::units::Bytes;

use super::hierarchy::{CgroupVersion, Hierarchy};
use super::meminfo::{MemDetails, MemInfo};
use super::pinned_file::{Buffer, FileError, PinnedFile, keyed_value};
use crate::units::Monotonic;

/// One look at the node's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySample {
    /// `/proc/meminfo`.
    pub meminfo: MemInfo,
    /// When it was true: the moment before the read.
    pub at: Monotonic,
}

/// Usage of the root cgroup as the kubelet counts it, and what follows from it (`eviction-semantics.md` §1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RootUsage {
    /// v1: `memory.usage_in_bytes`; v2, whose root has no `memory.current`: `anon` + `file`, which leaves out kernel memory.
    pub usage: Bytes,
    /// v1: `total_inactive_file`; v2: `inactive_file`.
    pub inactive_file: Bytes,
}

impl RootUsage {
    /// Usage minus inactive file memory, never below zero.
    #[must_use]
    pub fn working_set(self) -> Bytes {
        self.usage.saturating_sub(self.inactive_file)
    }

    /// The kubelet's `memory.available`: capacity minus working set.
    #[must_use]
    pub fn available(self, capacity: Bytes) -> Bytes {
        capacity.saturating_sub(self.working_set())
    }

    fn parse(version: CgroupVersion, usage: Option<u64>, stat: &str) -> Result<Self, &'static str> {
        let key = |key| keyed_value(stat, key).ok_or(key);
        Ok(match version {
            CgroupVersion::V1 => {
                Self { usage: Bytes(usage.ok_or("usage_in_bytes")?), inactive_file: Bytes(key("total_inactive_file")?) }
            }
            CgroupVersion::V2 => Self {
                usage: Bytes(key("anon")?.saturating_add(key("file")?)),
                inactive_file: Bytes(key("inactive_file")?),
            },
        })
    }
}

/// The open files behind the two figures.
#[derive(Debug)]
pub struct MemoryReader {
    version: CgroupVersion,
    meminfo: PinnedFile,
    usage: Option<PinnedFile>,
    stat: PinnedFile,
    buffer: Buffer,
}

impl MemoryReader {
    /// Opens the files, once.
    ///
    /// # Errors
    /// When one of them cannot be opened.
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

    /// Reads `/proc/meminfo`: one system call.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub fn sample(&mut self) -> Result<MemorySample, FileError> {
        let at = Monotonic::now();
        let text = self.meminfo.read(&mut self.buffer)?;
        let meminfo = MemInfo::parse(text).map_err(|error| self.meminfo.content(error.to_string()))?;
        Ok(MemorySample { meminfo, at })
    }

    /// Reads the lines of `/proc/meminfo` that no look needs.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn details(&mut self) -> Result<MemDetails, FileError> {
        Ok(MemDetails::parse(self.meminfo.read(&mut self.buffer)?))
    }

    /// Reads the root cgroup's usage. On v2 the kernel folds its per-CPU counters first, which costs more than a sample.
    ///
    /// # Errors
    /// When a file cannot be read or lacks a key.
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
    fn v1_root_counts_the_whole_tree() {
        let stat = "inactive_file 1\ntotal_inactive_file 300\n";
        let usage = RootUsage::parse(CgroupVersion::V1, Some(1000), stat).unwrap();
        assert_eq!(usage.working_set(), Bytes(700));
        assert_eq!(usage.available(Bytes(5000)), Bytes(4300));
    }

    #[test]
    fn v2_root_has_no_current_and_leaves_out_kernel_memory() {
        let stat = "anon 500\nfile 400\nkernel 900\nslab 800\ninactive_file 100\nactive_file 300\n";
        let usage = RootUsage::parse(CgroupVersion::V2, None, stat).unwrap();
        assert_eq!(usage.working_set(), Bytes(800));
    }

    #[test]
    fn working_set_and_available_stop_at_zero() {
        let usage = RootUsage { usage: Bytes(10), inactive_file: Bytes(20) };
        assert_eq!(usage.working_set(), Bytes(0));
        let usage = RootUsage { usage: Bytes(90), inactive_file: Bytes(0) };
        assert_eq!(usage.available(Bytes(50)), Bytes(0));
    }

    #[test]
    fn a_missing_key_is_named() {
        assert_eq!(RootUsage::parse(CgroupVersion::V2, None, "anon 1\n"), Err("file"));
    }
}
