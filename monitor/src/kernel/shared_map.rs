//! Access to the maps that the agent shares with the eBPF programs.

use aya::{
    Ebpf, Pod,
    maps::{Map, MapData, MapError, RingBuf},
};
use monitor_ebpf::{
    EventCounts, FieldOffsets, InodeCounters, InodeKey, KernelOffsets, KswapdCounters, OomKill, ReclaimCounters,
    ReclaimKey, Slot,
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
plain_old_data!(
    EventCounts,
    InodeCounters,
    InodeKey,
    KswapdCounters,
    OomKill,
    ReclaimCounters,
    ReclaimKey,
    Slot<InodeKey, InodeCounters>,
    Slot<ReclaimKey, ReclaimCounters>,
    KernelOffsets,
    FieldOffsets
);

pub(super) fn take<T: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, String> {
    let map = ebpf.take_map(name).ok_or_else(|| format!("the object has no map {name}"))?;
    T::try_from(map).map_err(|error| format!("map {name}: {error}"))
}

pub(super) fn ring(ebpf: &mut Ebpf) -> Result<RingBuf<MapData>, String> {
    take(ebpf, "EVENTS")
}
