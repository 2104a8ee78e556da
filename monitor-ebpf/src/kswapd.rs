//! The activity of kswapd per NUMA node. kswapd reclaims for all cgroups, so its work is attributed to no cgroup.

use aya_ebpf::{
    macros::{map, tracepoint},
    maps::HashMap,
    programs::TracePointContext,
};
use monitor_ebpf::{EventKind, KswapdCounters, KswapdWake, field::kswapd};

use crate::{
    layout::Layout,
    stream::{self, Wake},
    task,
};

/// Activity by node. There is one kswapd thread per node, so each element has one writer.
#[map]
static KSWAPD: HashMap<i32, KswapdCounters> = HashMap::with_max_entries(256, 0);

#[unsafe(no_mangle)]
static KSWAPD_WAKE: Layout = Layout::new();
#[unsafe(no_mangle)]
static KSWAPD_SLEEP: Layout = Layout::new();

/// Adds the pages that kswapd scanned and freed. Does nothing if the running task is not the kswapd of this node.
#[inline(always)]
pub fn reclaimed(node: i32, tid: u32, scanned_pages: u64, reclaimed_pages: u64) {
    // SAFETY: the lookup returned a valid element, and only this thread writes it.
    let counters = KSWAPD.get_ptr_mut(node).map(|counters| unsafe { &mut *counters });
    if let Some(counters) = counters.filter(|counters| counters.tid == tid) {
        counters.scanned_pages += scanned_pages;
        counters.reclaimed_pages += reclaimed_pages;
    }
}

#[tracepoint]
pub fn mm_vmscan_kswapd_wake(ctx: TracePointContext) -> u32 {
    let node = KSWAPD_WAKE.read(&ctx, kswapd::NID).unwrap_or(0);
    let now_ns = stream::now_ns();
    let (tid, _) = task::ids();
    if let Some(counters) = KSWAPD.get_ptr_mut(node) {
        // SAFETY: the lookup returned a valid element, and only this thread writes it.
        let counters = unsafe { &mut *counters };
        counters.wakes += 1;
        counters.tid = tid;
        // A wake-up without a sleep before it continues the current period of activity.
        if counters.woke_at_ns == 0 {
            counters.woke_at_ns = now_ns;
        }
    } else {
        let counters = KswapdCounters { wakes: 1, woke_at_ns: now_ns, tid, ..KswapdCounters::ZERO };
        let _inserted = KSWAPD.insert(node, counters, 0);
    }
    if stream::may_wake(EventKind::KswapdWake, now_ns) {
        stream::send(
            EventKind::KswapdWake,
            Wake::Now,
            &KswapdWake {
                header: stream::header(now_ns, EventKind::KswapdWake, 0),
                node,
                order: KSWAPD_WAKE.read(&ctx, kswapd::ORDER).unwrap_or(0),
            },
        );
    }
    0
}

#[tracepoint]
pub fn mm_vmscan_kswapd_sleep(ctx: TracePointContext) -> u32 {
    let node: i32 = KSWAPD_SLEEP.read(&ctx, kswapd::NID).unwrap_or(0);
    if let Some(counters) = KSWAPD.get_ptr_mut(node) {
        // SAFETY: the lookup returned a valid element, and only this thread writes it.
        let counters = unsafe { &mut *counters };
        if counters.woke_at_ns != 0 {
            counters.active_ns += stream::now_ns().saturating_sub(counters.woke_at_ns);
            counters.woke_at_ns = 0;
        }
    }
    0
}
