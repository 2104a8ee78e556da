//! Reclaim stalls: begin and end run in the task that stalls.

use core::arch::asm;

use aya_ebpf::{
    Global,
    bindings::BPF_NOEXIST,
    macros::{map, tracepoint},
    maps::HashMap,
    programs::TracePointContext,
};
use monitor_ebpf::{
    DirectReclaim, EventKind, HISTOGRAM_BUCKETS, ReclaimCounters, ReclaimKey, ReclaimKind, Stall,
    Untracked,
    field::{reclaim_begin, reclaim_end},
    histogram_bucket,
};

use crate::{
    layout::Layout,
    stream::{self, Wake},
    task,
};

/// Tasks in reclaim now: kind and thread id -> begin.
#[map]
static STALLING: HashMap<u64, u64> = HashMap::with_max_entries(8192, 0);

#[map]
static RECLAIM: HashMap<ReclaimKey, ReclaimCounters> = HashMap::with_max_entries(4096, 0);

#[unsafe(no_mangle)]
static STALL_THRESHOLD_NS: Global<u64> = Global::new(10_000_000);

/// Too large for the stack of a program (512 bytes, shared with everything else).
static ZERO: ReclaimCounters = ReclaimCounters::ZERO;

#[unsafe(no_mangle)]
static DIRECT_RECLAIM_BEGIN: Layout = Layout::new();
#[unsafe(no_mangle)]
static DIRECT_RECLAIM_END: Layout = Layout::new();
#[unsafe(no_mangle)]
static MEMCG_RECLAIM_END: Layout = Layout::new();

#[tracepoint]
pub fn mm_vmscan_direct_reclaim_begin(ctx: TracePointContext) -> u32 {
    let now_ns = begin(ReclaimKind::Direct);
    if stream::doorbell(EventKind::DirectReclaim, now_ns) {
        let (_, pid) = task::ids();
        stream::send(
            EventKind::DirectReclaim,
            Wake::Now,
            &DirectReclaim {
                header: stream::header(now_ns, EventKind::DirectReclaim, 0),
                cgroup: task::memory_cgroup(),
                pid,
                order: DIRECT_RECLAIM_BEGIN
                    .read(&ctx, reclaim_begin::ORDER)
                    .unwrap_or(0),
            },
        );
    }
    0
}

#[tracepoint]
pub fn mm_vmscan_direct_reclaim_end(ctx: TracePointContext) -> u32 {
    end(
        ReclaimKind::Direct,
        DIRECT_RECLAIM_END
            .read(&ctx, reclaim_end::NR_RECLAIMED)
            .unwrap_or(0),
    );
    0
}

#[tracepoint]
pub fn mm_vmscan_memcg_reclaim_begin(_ctx: TracePointContext) -> u32 {
    begin(ReclaimKind::Memcg);
    0
}

#[tracepoint]
pub fn mm_vmscan_memcg_reclaim_end(ctx: TracePointContext) -> u32 {
    end(
        ReclaimKind::Memcg,
        MEMCG_RECLAIM_END
            .read(&ctx, reclaim_end::NR_RECLAIMED)
            .unwrap_or(0),
    );
    0
}

#[inline(always)]
fn stalling_key(kind: ReclaimKind, tid: u32) -> u64 {
    (kind as u64) << 32 | u64::from(tid)
}

#[inline(always)]
fn begin(kind: ReclaimKind) -> u64 {
    let (tid, _) = task::ids();
    let now_ns = stream::now_ns();
    if STALLING.insert(stalling_key(kind, tid), now_ns, 0).is_err() {
        stream::untracked(Untracked::Stall);
    }
    now_ns
}

#[inline(always)]
fn end(kind: ReclaimKind, reclaimed_pages: u64) {
    let (tid, pid) = task::ids();
    let key = stalling_key(kind, tid);
    // SAFETY: only this task writes or removes its own element.
    let Some(&began_ns) = (unsafe { STALLING.get(key) }) else {
        // Began before the program was attached, or was counted as untracked.
        return;
    };
    let _removed = STALLING.remove(key);
    let now_ns = stream::now_ns();
    let duration_ns = now_ns.saturating_sub(began_ns);
    let cgroup = task::memory_cgroup();
    account(
        &ReclaimKey {
            cgroup,
            kind: kind as u32,
            reserved: 0,
        },
        duration_ns,
        reclaimed_pages,
    );
    if duration_ns >= STALL_THRESHOLD_NS.load() {
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
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "by value it would be copied to the stack, which is too small"
)]
fn account(key: &ReclaimKey, duration_ns: u64, reclaimed_pages: u64) {
    let counters = RECLAIM.get_ptr_mut(key).or_else(|| {
        // Another CPU may have been first: then this insertion fails and the lookup finds its element.
        let _inserted = RECLAIM.insert(key, &ZERO, u64::from(BPF_NOEXIST));
        RECLAIM.get_ptr_mut(key)
    });
    let Some(counters) = counters else {
        stream::untracked(Untracked::Reclaim);
        return;
    };
    let bucket = masked(histogram_bucket(duration_ns));
    // SAFETY: the lookup gave a valid element, shared with other CPUs: atomics only.
    unsafe {
        add(&raw mut (*counters).stalls, 1);
        add(&raw mut (*counters).stalled_ns, duration_ns);
        add(&raw mut (*counters).reclaimed_pages, reclaimed_pages);
        add(
            (&raw mut (*counters).histogram).cast::<u64>().add(bucket),
            1,
        );
    }
}

/// Keeps the index inside the histogram by an instruction that the verifier can see: the compiler proves a mask superfluous
/// and drops it, and the verifier cannot follow that proof.
#[inline(always)]
fn masked(mut bucket: usize) -> usize {
    // SAFETY: touches the one register only.
    unsafe {
        asm!("{bucket} &= {mask}", bucket = inout(reg) bucket, mask = const HISTOGRAM_BUCKETS - 1, options(pure, nomem, nostack));
    };
    bucket
}

/// Adds to a counter that other CPUs add to as well.
///
/// In assembly, since core has no `fetch_add` for this target; the instruction is as old as BPF itself.
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
