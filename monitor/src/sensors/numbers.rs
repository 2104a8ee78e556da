//! Numbers that several sensors need.

/// Returns the kernel's page size in bytes.
pub(super) fn page_size() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}
