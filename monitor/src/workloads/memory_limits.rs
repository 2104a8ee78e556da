//! The memory that a cgroup requests, and its limit.

use std::os::fd::OwnedFd;
use std::path::Path;

use crate::node::CgroupVersion;
use crate::node::pinned_file::{Buffer, FileError, PinnedFile, number_or_max};
use crate::units::Bytes;

/// Reads the request and the limit. On v2 the request is the larger of `memory.min` and `memory.low`, and the limit is `memory.max`. On v1
/// the request is the soft limit.
pub(super) fn read(
    version: CgroupVersion,
    (directory, path): (&OwnedFd, &Path),
    buffer: &mut Buffer,
) -> Result<(Bytes, Option<Bytes>), FileError> {
    let mut number = |name| {
        let file = PinnedFile::open_at(directory, path, name)?;
        number_or_max(file.read(buffer)?).map_err(|what| file.content(what))
    };
    match version {
        CgroupVersion::V2 => {
            let (min, low) = (number("memory.min")?, number("memory.low")?);
            // The value "max" in memory.min or memory.low protects all memory.
            let request = min.zip(low).map_or(u64::MAX, |(min, low)| min.max(low));
            Ok((Bytes(request), number("memory.max")?.map(Bytes)))
        }
        CgroupVersion::V1 => {
            // v1 prints "no limit" as the largest page count. As in the kubelet, a value above 2^62 is no limit.
            let mut set = |name| number(name).map(|number| number.filter(|number| *number < 1 << 62));
            let request = set("memory.soft_limit_in_bytes")?;
            Ok((Bytes(request.unwrap_or(0)), set("memory.limit_in_bytes")?.map(Bytes)))
        }
    }
}
