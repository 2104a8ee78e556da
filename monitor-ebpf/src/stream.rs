//! The ring buffers of events, their counts, and the rate limits.

use aya_ebpf::{
    Global,
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::generated::bpf_ktime_get_ns,
    macros::map,
    maps::{Array, PerCpuArray, RingBuf},
};
use monitor_ebpf::{EventCounts, EventKind, Header, Untracked};

/// The ring buffer of everything but OOM kills. The loader sets the configured size.
#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(256 * 1024, 0);

/// The ring buffer of marks and OOM kills, of the same size. No workload can fill it by stalling.
#[map]
static OOM_EVENTS: RingBuf = RingBuf::with_byte_size(256 * 1024, 0);

#[map]
static COUNTS: PerCpuArray<EventCounts> = PerCpuArray::with_max_entries(EventKind::COUNT, 0);

#[map]
static UNTRACKED: PerCpuArray<u64> = PerCpuArray::with_max_entries(Untracked::COUNT, 0);

/// When each kind of event last woke the agent.
#[map]
static LAST_WAKES: Array<u64> = Array::with_max_entries(EventKind::COUNT, 0);

/// How many stalls a CPU may stream in an interval. The counters have the others.
const MOST_STALLS: u32 = 64;
const STALLS_INTERVAL_NS: u64 = 100_000_000;

#[repr(C)]
struct StallBudget {
    began_ns: u64,
    sent: u32,
    reserved: u32,
}

#[map]
static STALL_BUDGET: PerCpuArray<StallBudget> = PerCpuArray::with_max_entries(1, 0);

#[unsafe(no_mangle)]
static RING_BYTES: Global<u64> = Global::new(256 * 1024);
#[unsafe(no_mangle)]
static WAKE_INTERVAL_NS: Global<u64> = Global::new(10_000_000);

/// Whether a record wakes the agent.
#[derive(Clone, Copy)]
pub enum Wake {
    Now,
    /// The record wakes the agent only if the ring is more than half full. Otherwise the record can wait for the next turn.
    WhenFilling,
}

#[inline(always)]
pub fn now_ns() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
pub fn header(at_ns: u64, kind: EventKind, flags: u32) -> Header {
    Header { at_ns, kind: kind.index(), flags }
}

/// Streams a record.
#[inline(always)]
pub fn send<T>(kind: EventKind, wake: Wake, record: &T) {
    let flags = match wake {
        Wake::Now => BPF_RB_FORCE_WAKEUP,
        Wake::WhenFilling if EVENTS.query(u64::from(BPF_RB_AVAIL_DATA)) > RING_BYTES.load() / 2 => BPF_RB_FORCE_WAKEUP,
        Wake::WhenFilling => BPF_RB_NO_WAKEUP,
    };
    output(&EVENTS, kind, flags, record);
}

/// Streams a mark or an OOM kill, and wakes the agent.
#[inline(always)]
pub fn send_oom<T>(kind: EventKind, record: &T) {
    output(&OOM_EVENTS, kind, BPF_RB_FORCE_WAKEUP, record);
}

/// Counts the record before it is streamed, so that no loss is missed.
#[inline(always)]
fn output<T>(ring: &RingBuf, kind: EventKind, flags: u32, record: &T) {
    count(kind, |counts| counts.generated += 1);
    if ring.output::<T>(record, u64::from(flags)).is_err() {
        count(kind, |counts| counts.lost += 1);
    }
}

/// Returns whether this CPU may stream another stall now.
#[inline(always)]
pub fn may_send_stall(now_ns: u64) -> bool {
    // SAFETY: this CPU's own element, as in `count`.
    let Some(budget) = STALL_BUDGET.get_ptr_mut(0).map(|budget| unsafe { &mut *budget }) else {
        return false;
    };
    if now_ns.wrapping_sub(budget.began_ns) >= STALLS_INTERVAL_NS {
        budget.began_ns = now_ns;
        budget.sent = 0;
    }
    let may_send = budget.sent < MOST_STALLS;
    if may_send {
        budget.sent += 1;
    } else {
        count(EventKind::Stall, |counts| counts.suppressed += 1);
    }
    may_send
}

/// Returns whether an event of this kind may wake the agent now. Two CPUs at the same instant may both get true, which is harmless.
#[inline(always)]
pub fn may_wake(kind: EventKind, now_ns: u64) -> bool {
    let Some(last) = LAST_WAKES.get_ptr_mut(kind.index()) else {
        return false;
    };
    // SAFETY: the lookup returned a valid element; an aligned 64-bit access does not tear.
    let last_ns = unsafe { core::ptr::read_volatile(last) };
    // The clock of another CPU may be slightly ahead: the difference then wraps, and the event is sent.
    if last_ns != 0 && now_ns.wrapping_sub(last_ns) < WAKE_INTERVAL_NS.load() {
        count(kind, |counts| counts.suppressed += 1);
        return false;
    }
    // SAFETY: as above.
    unsafe { core::ptr::write_volatile(last, now_ns) };
    true
}

/// Counts an event that could not be counted in its own map.
#[inline(always)]
pub fn untracked(what: Untracked) {
    if let Some(count) = UNTRACKED.get_ptr_mut(what as u32) {
        // SAFETY: this CPU's own element.
        unsafe { *count += 1 };
    }
}

#[inline(always)]
fn count(kind: EventKind, update: impl FnOnce(&mut EventCounts)) {
    if let Some(counts) = COUNTS.get_ptr_mut(kind.index()) {
        // SAFETY: this CPU's own element, and tracepoint programs run with preemption disabled.
        update(unsafe { &mut *counts });
    }
}
