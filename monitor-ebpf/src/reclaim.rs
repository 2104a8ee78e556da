//! Reclaim stalls. Begin and end run in the task that stalls.

use core::arch::asm;

use aya_ebpf::{
    Global,
    macros::{map, tracepoint},
    maps::{Array, HashMap},
    programs::TracePointContext,
};
use monitor_ebpf::{
    COUNTER_SLOTS, DirectReclaim, EventKind, HISTOGRAM_BUCKETS, OTHER_COUNTERS, ReclaimCounters, ReclaimKey,
    ReclaimKind, Slot, Stall, Untracked,
    field::{reclaim_begin, reclaim_end, shrink_inactive, throttled},
    histogram_bucket,
};

use crate::{
    counters::Counters,
    kswapd,
    layout::Layout,
    stream::{self, Wake},
    task,
};

/// A stall under way. A task in reclaim does not enter reclaim again (`PF_MEMALLOC`), so there is at most one per task.
#[repr(C)]
struct Stalling {
    /// The begin of the stall; 0 while the slot is free.
    began_ns: u64,
    /// The cgroup is read at the begin, because the begin has less work than the end.
    cgroup: u64,
    scanned_pages: u64,
    throttled_ns: u64,
    tid: u32,
    throttles: u32,
    kind: u32,
    reserved: u32,
}

const SLOTS: u32 = 8192;
/// A stall that began so long ago counts as ended. Stalls last milliseconds, or seconds if nothing can be freed.
const NEVER_ENDED_NS: u64 = 600 * 1_000_000_000;

/// Stalls by the low bits of the thread id. A slot is found without a helper call, and nothing has to be inserted or removed.
#[map]
static STALLING: Array<Stalling> = Array::with_max_entries(SLOTS, 0);

/// Stalls by thread id, for tasks whose slot another task uses.
#[map]
static OVERFLOW: HashMap<u32, Stalling> = HashMap::with_max_entries(1024, 0);

// SAFETY: all fields are integers.
static NOT_STALLING: Stalling = unsafe { core::mem::zeroed() };

#[map]
static RECLAIM_SLOTS: Array<Slot<ReclaimKey, ReclaimCounters>> = Array::with_max_entries(COUNTER_SLOTS, 0);
#[map]
static RECLAIM_OWNERS: HashMap<u32, ReclaimKey> = HashMap::with_max_entries(COUNTER_SLOTS, 0);
#[map]
static RECLAIM_OTHERS: HashMap<ReclaimKey, ReclaimCounters> = HashMap::with_max_entries(OTHER_COUNTERS, 0);

static RECLAIM: Counters<ReclaimKey, ReclaimCounters> =
    Counters { slots: &RECLAIM_SLOTS, owners: &RECLAIM_OWNERS, others: &RECLAIM_OTHERS };

#[unsafe(no_mangle)]
static STALL_THRESHOLD_NS: Global<u64> = Global::new(10_000_000);

/// The initial value of the counters. It is too large for the stack of a program (512 bytes in total).
static ZERO: ReclaimCounters = ReclaimCounters::ZERO;

#[unsafe(no_mangle)]
static DIRECT_RECLAIM_BEGIN: Layout = Layout::new();
#[unsafe(no_mangle)]
static DIRECT_RECLAIM_END: Layout = Layout::new();
#[unsafe(no_mangle)]
static MEMCG_RECLAIM_END: Layout = Layout::new();
#[unsafe(no_mangle)]
static SHRINK_INACTIVE: Layout = Layout::new();
#[unsafe(no_mangle)]
static THROTTLED: Layout = Layout::new();

#[tracepoint]
pub fn mm_vmscan_direct_reclaim_begin(ctx: TracePointContext) -> u32 {
    let (now_ns, cgroup) = begin(ReclaimKind::Direct);
    if stream::may_wake(EventKind::DirectReclaim, now_ns) {
        let (_, pid) = task::ids();
        stream::send(
            EventKind::DirectReclaim,
            Wake::Now,
            &DirectReclaim {
                header: stream::header(now_ns, EventKind::DirectReclaim, 0),
                cgroup,
                pid,
                order: DIRECT_RECLAIM_BEGIN.read(&ctx, reclaim_begin::ORDER).unwrap_or(0),
            },
        );
    }
    0
}

#[tracepoint]
pub fn mm_vmscan_direct_reclaim_end(ctx: TracePointContext) -> u32 {
    end(ReclaimKind::Direct, DIRECT_RECLAIM_END.read_u64(&ctx, reclaim_end::NR_RECLAIMED).unwrap_or(0));
    0
}

#[tracepoint]
pub fn mm_vmscan_memcg_reclaim_begin(_ctx: TracePointContext) -> u32 {
    begin(ReclaimKind::Memcg);
    0
}

#[tracepoint]
pub fn mm_vmscan_memcg_reclaim_end(ctx: TracePointContext) -> u32 {
    end(ReclaimKind::Memcg, MEMCG_RECLAIM_END.read_u64(&ctx, reclaim_end::NR_RECLAIMED).unwrap_or(0));
    0
}

/// Part of an inactive list was scanned, in a stall or by kswapd.
#[tracepoint]
pub fn mm_vmscan_lru_shrink_inactive(ctx: TracePointContext) -> u32 {
    let (tid, _) = task::ids();
    let scanned_pages = SHRINK_INACTIVE.read_u64(&ctx, shrink_inactive::NR_SCANNED).unwrap_or(0);
    if let Some(stall) = stall_of(tid) {
        stall.scanned_pages += scanned_pages;
    } else if let Some(node) = SHRINK_INACTIVE.read(&ctx, shrink_inactive::NID) {
        let reclaimed_pages = SHRINK_INACTIVE.read_u64(&ctx, shrink_inactive::NR_RECLAIMED).unwrap_or(0);
        kswapd::reclaimed(node, tid, scanned_pages, reclaimed_pages);
    }
    0
}

/// The running task was put to sleep, for writeback or because nothing could be reclaimed.
#[tracepoint]
pub fn mm_vmscan_throttled(ctx: TracePointContext) -> u32 {
    let (tid, _) = task::ids();
    if let (Some(stall), Some(usec)) = (stall_of(tid), THROTTLED.read_u32(&ctx, throttled::USEC_DELAYED)) {
        stall.throttles += 1;
        stall.throttled_ns += u64::from(usec) * 1000;
    }
    0
}

/// Returns the running task's slot, while that task stalls in it.
#[inline(always)]
fn slot_of(tid: u32) -> Option<&'static mut Stalling> {
    // SAFETY: the lookup returned a valid element, and only its own task writes it until the stall ends.
    let slot = STALLING.get_ptr_mut(tid & (SLOTS - 1)).map(|slot| unsafe { &mut *slot });
    slot.filter(|stall| stall.tid == tid && stall.began_ns != 0)
}

#[inline(always)]
fn stall_of(tid: u32) -> Option<&'static mut Stalling> {
    slot_of(tid).or_else(|| overflowed(tid))
}

#[inline(always)]
fn overflowed(tid: u32) -> Option<&'static mut Stalling> {
    // SAFETY: as above.
    OVERFLOW.get_ptr_mut(tid).map(|element| unsafe { &mut *element })
}

/// Returns the time and the cgroup of the begin.
#[inline(always)]
fn begin(kind: ReclaimKind) -> (u64, u64) {
    let (tid, _) = task::ids();
    let cgroup = task::memory_cgroup();
    let now_ns = stream::now_ns();
    // SAFETY: the lookup returned a valid element. If two tasks of one slot begin within nanoseconds, one stall is missed.
    let slot = STALLING.get_ptr_mut(tid & (SLOTS - 1)).map(|slot| unsafe { &mut *slot });
    // The kernel skips an end while another program runs on that CPU. Without this limit such a stall would keep its slot for ever.
    let is_free = |slot: &&mut Stalling| {
        slot.began_ns == 0 || slot.tid == tid || now_ns.saturating_sub(slot.began_ns) > NEVER_ENDED_NS
    };
    let place = slot.filter(is_free).or_else(|| {
        // The insertion fails if the overflow map is full. The program of the end then finds no stall, and counts that.
        let _inserted = OVERFLOW.insert(tid, &NOT_STALLING, 0);
        overflowed(tid)
    });
    if let Some(place) = place {
        place.began_ns = now_ns;
        place.cgroup = cgroup;
        place.tid = tid;
        place.kind = kind as u32;
        // SAFETY: references are valid for writes. Volatile, because the compiler would call memset, byte by byte, for these few: 20 ns.
        unsafe {
            core::ptr::write_volatile(&raw mut place.scanned_pages, 0);
            core::ptr::write_volatile(&raw mut place.throttled_ns, 0);
            core::ptr::write_volatile(&raw mut place.throttles, 0);
        }
    }
    (now_ns, cgroup)
}

#[inline(always)]
fn end(kind: ReclaimKind, reclaimed_pages: u64) {
    let tid = task::tid();
    let slot = slot_of(tid);
    let has_slot = slot.is_some();
    let Some(stall) = slot.or_else(|| overflowed(tid)).filter(|stall| stall.kind == kind as u32) else {
        // The stall began before the program was attached, or the maps were full, or another task took its slot at the same
        // moment.
        stream::untracked(Untracked::Stall);
        return;
    };
    let now_ns = stream::now_ns();
    let duration_ns = now_ns.saturating_sub(stall.began_ns);
    let cgroup = stall.cgroup;
    account(&ReclaimKey { cgroup, kind: kind as u32, reserved: 0 }, stall, duration_ns, reclaimed_pages);
    if has_slot {
        stall.began_ns = 0;
    } else {
        let _removed = OVERFLOW.remove(tid);
    }
    let threshold_ns = STALL_THRESHOLD_NS.load();
    // With the threshold 0 the user wants every stall.
    if duration_ns >= threshold_ns && (threshold_ns == 0 || stream::may_send_stall(now_ns)) {
        let (_, pid) = task::ids();
        stream::send(
            EventKind::Stall,
            Wake::WhenFilling,
            &Stall {
                header: stream::header(now_ns, EventKind::Stall, 0),
                cgroup,
                duration_ns,
                reclaimed_pages,
                pid,
                tid,
                kind: kind as u32,
                reserved: 0,
                comm: task::comm(),
            },
        );
    }
}

#[inline(always)]
fn account(key: &ReclaimKey, stall: &Stalling, duration_ns: u64, reclaimed_pages: u64) {
    let Some(counters) = RECLAIM.of(key, key.cgroup ^ u64::from(key.kind), &ZERO) else {
        stream::untracked(Untracked::Reclaim);
        return;
    };
    let bucket = masked(histogram_bucket(duration_ns));
    // SAFETY: the lookup returned a valid element, shared with other CPUs: atomics only.
    unsafe {
        add(&raw mut (*counters).stalled_ns, duration_ns);
        if reclaimed_pages != 0 {
            add(&raw mut (*counters).reclaimed_pages, reclaimed_pages);
        }
        if stall.scanned_pages != 0 {
            add(&raw mut (*counters).scanned_pages, stall.scanned_pages);
        }
        if stall.throttles != 0 {
            add(&raw mut (*counters).throttles, u64::from(stall.throttles));
            add(&raw mut (*counters).throttled_ns, stall.throttled_ns);
        }
        add((&raw mut (*counters).histogram).cast::<u64>().add(bucket), 1);
    }
}

/// Bounds the index by an instruction that the verifier sees. The compiler proves a mask redundant and drops it, and the verifier cannot
/// follow that proof.
#[inline(always)]
fn masked(mut bucket: usize) -> usize {
    // SAFETY: uses only the one register.
    unsafe {
        asm!("{bucket} &= {mask}", bucket = inout(reg) bucket, mask = const HISTOGRAM_BUCKETS - 1, options(pure, nomem, nostack));
    };
    bucket
}

/// Adds to a counter that other CPUs add to as well.
///
/// The addition is in assembly, because core has no `fetch_add` for this target. The instruction is as old as BPF itself.
///
/// # Safety
/// `counter` is 8-byte aligned and inside a map element.
#[inline(always)]
pub unsafe fn add(counter: *mut u64, amount: u64) {
    // SAFETY: the caller's promise; the verifier checks the bounds again.
    unsafe {
        asm!("lock *(u64 *)({counter} + 0) += {amount}", counter = in(reg) counter, amount = in(reg) amount, options(nostack));
    }
}
