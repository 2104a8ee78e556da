//! Access to the maps that the agent shares with the eBPF programs.

use std::cmp::Ordering;

use aya::{
    Ebpf, Pod,
    maps::{Map, MapError},
};
use monitor_ebpf::{
    DirectReclaim, EventCounts, FieldOffsets, Header, InodeCounters, InodeKey, KernelOffsets, KswapdCounters,
    KswapdWake, OomKill, OomKillRecord, OomMark, OomScoreAdj, ReclaimCounters, ReclaimKey, Slot, Stall,
};

/// Wraps a shared type for aya's `Pod` trait: both the type and the trait are from other crates.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Shared<T>(pub T);

macro_rules! plain_old_data {
    ($($shared:ty),+) => { $(
        // SAFETY: repr(C), integers only, no padding (sizes are asserted in monitor_ebpf).
        unsafe impl Pod for Shared<$shared> {}
    )+ };
}
plain_old_data!(EventCounts, KswapdCounters, OomKill, KernelOffsets, FieldOffsets);
plain_old_data!(InodeKey, InodeCounters, Slot<InodeKey, InodeCounters>);
plain_old_data!(ReclaimKey, ReclaimCounters, Slot<ReclaimKey, ReclaimCounters>);
plain_old_data!(Header, KswapdWake, DirectReclaim, Stall, OomMark, OomKillRecord, OomScoreAdj);

/// Copies a record out of the ring, where it has exactly the bytes of its type.
pub(super) fn record<T>(bytes: &[u8]) -> Result<T, &'static str>
where
    Shared<T>: Pod,
{
    match bytes.len().cmp(&size_of::<T>()) {
        Ordering::Less => Err("shorter than its kind"),
        Ordering::Greater => Err("longer than its kind"),
        // SAFETY: `bytes` has the size of `T`, any bytes are a valid `T` because `Shared<T>` is `Pod`, and the read needs no alignment.
        Ordering::Equal => Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }),
    }
}

pub(super) fn take<T: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, String> {
    let map = ebpf.take_map(name).ok_or_else(|| format!("the object has no map {name}"))?;
    T::try_from(map).map_err(|error| format!("map {name}: {error}"))
}
