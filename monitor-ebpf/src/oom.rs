//! OOM kills, from the mark to the victim's own exit, and writes of `oom_score_adj`.
//!
//! In `mark_victim` the running task is the allocator, and the tracepoint names the victim by thread id alone. So the record
//! waits in `VICTIMS` until the victim exits, where the running task is the victim and its cgroup can be read.
//! Since 6.16 the exit tracepoint comes before `exit_mm`, so that a victim on another CPU can pass it before the mark:
//! its SIGKILL was sent before, under its signal lock, and `SIGKILLED` holds what it left behind.

use aya_ebpf::{
    Global,
    bindings::BPF_NOEXIST,
    macros::{map, tracepoint},
    maps::{Array, HashMap, LruHashMap},
    programs::TracePointContext,
};
use aya_log_ebpf::warn;
use monitor_ebpf::{
    COMM_LEN, EventKind, OomKill, OomMark, OomScoreAdj, Untracked,
    field::{mark_victim as mark, oom_score_adj_update as adj_update, signal_generate as signal},
};

use crate::{
    layout::Layout,
    reclaim::add,
    stream::{self, Wake},
    task,
};

const SIGKILL: i32 = 9;

/// A SIGKILL on its way, keyed by the thread it was sent to.
#[derive(Clone, Copy)]
#[repr(C)]
struct Sigkill {
    sender_tid: u32,
    exited: u32,
    /// From here on: known once it has exited.
    cgroup: u64,
    pid: u32,
    reserved: u32,
    comm: [u8; COMM_LEN],
}

/// Marked victims that have not exited yet, by thread id.
#[map]
static VICTIMS: HashMap<u32, OomKill> = HashMap::with_max_entries(1024, 0);

#[map]
static SIGKILLED: LruHashMap<u32, Sigkill> = LruHashMap::with_max_entries(1024, 0);

/// OOM kills by the victim's cgroup.
#[map]
static OOM_KILLS: HashMap<u64, u64> = HashMap::with_max_entries(4096, 0);

/// Element 0 is set by the loader once `signal_generate` is attached: a mark without a SIGKILL is then no kill.
#[map]
static SIGKILLS_SEEN: Array<u32> = Array::with_max_entries(1, 0);

#[unsafe(no_mangle)]
static OWN_PID: Global<u32> = Global::new(u32::MAX);
#[unsafe(no_mangle)]
static SIGNAL_GENERATE: Layout = Layout::new();
#[unsafe(no_mangle)]
static MARK_VICTIM: Layout = Layout::new();
#[unsafe(no_mangle)]
static OOM_SCORE_ADJ_UPDATE: Layout = Layout::new();

#[tracepoint]
pub fn signal_generate(ctx: TracePointContext) -> u32 {
    if SIGNAL_GENERATE.read::<i32>(&ctx, signal::SIG) != Some(SIGKILL) {
        return 0;
    }
    if let Some(victim_tid) = SIGNAL_GENERATE.read::<u32>(&ctx, signal::PID) {
        let (sender_tid, _) = task::ids();
        let sigkill = Sigkill { sender_tid, exited: 0, cgroup: 0, pid: 0, reserved: 0, comm: [0; COMM_LEN] };
        let _inserted = SIGKILLED.insert(victim_tid, sigkill, 0);
    }
    0
}

#[tracepoint]
pub fn mark_victim(ctx: TracePointContext) -> u32 {
    let Some(victim_tid) = MARK_VICTIM.read::<u32>(&ctx, mark::PID) else {
        return 0;
    };
    let now_ns = stream::now_ns();
    let (trigger_tid, trigger_pid) = task::ids();
    let trigger_comm = task::comm();
    let trigger_cgroup = task::memory_cgroup();
    let killed = !sigkills_seen() || sigkill(victim_tid).is_some_and(|sigkill| sigkill.sender_tid == trigger_tid);
    stream::send(
        EventKind::OomMark,
        Wake::Now,
        &OomMark {
            header: stream::header(now_ns, EventKind::OomMark, if killed { 0 } else { OomMark::ALREADY_DYING }),
            trigger_cgroup,
            victim_tid,
            trigger_pid,
            trigger_comm,
        },
    );
    if !killed {
        return 0;
    }

    let mut kill = OomKill {
        header: stream::header(now_ns, EventKind::OomKill, 0),
        marked_at_ns: now_ns,
        victim_cgroup: 0,
        trigger_cgroup,
        total_vm_kib: 0,
        anon_rss_kib: 0,
        file_rss_kib: 0,
        shmem_rss_kib: 0,
        pgtables_kib: 0,
        victim_tid,
        victim_pid: victim_tid,
        trigger_pid,
        uid: 0,
        oom_score_adj: 0,
        reserved: 0,
        victim_comm: [0; COMM_LEN],
        trigger_comm,
    };
    describe(&ctx, &mut kill);

    // Insert before looking whether the victim has exited; the exit does the two in the opposite order. One of both sees the other.
    if VICTIMS.insert(victim_tid, kill, 0).is_err() {
        stream::untracked(Untracked::OomKill);
        warn!(&ctx, "too many OOM victims at once: thread {} stays without its cgroup", victim_tid);
        stream::send(EventKind::OomKill, Wake::Now, &kill);
        return 0;
    }
    if let Some(sigkill) = sigkill(victim_tid)
        && sigkill.exited != 0
        && sigkill.sender_tid == trigger_tid
    {
        complete(&mut kill, sigkill.cgroup, sigkill.pid, &sigkill.comm);
    }
    0
}

#[tracepoint]
pub fn sched_process_exit(_ctx: TracePointContext) -> u32 {
    let (tid, pid) = task::ids();
    if let Some(sigkill) = sigkill(tid) {
        let left_behind = Sigkill {
            sender_tid: sigkill.sender_tid,
            exited: 1,
            cgroup: task::memory_cgroup(),
            pid,
            reserved: 0,
            comm: task::comm(),
        };
        let _updated = SIGKILLED.insert(tid, left_behind, 0);
    }
    // SAFETY: an element of a dying thread is only removed, by whoever completes it; it is copied at once.
    if let Some(&kill) = unsafe { VICTIMS.get(tid) } {
        let mut kill = kill;
        complete(&mut kill, task::memory_cgroup(), pid, &task::comm());
    }
    0
}

#[tracepoint]
pub fn oom_score_adj_update(ctx: TracePointContext) -> u32 {
    let (_, writer_pid) = task::ids();
    if writer_pid == OWN_PID.load() {
        return 0;
    }
    let (Some(pid), Some(oom_score_adj)) = (
        OOM_SCORE_ADJ_UPDATE.read::<u32>(&ctx, adj_update::PID),
        OOM_SCORE_ADJ_UPDATE.read::<i16>(&ctx, adj_update::OOM_SCORE_ADJ),
    ) else {
        return 0;
    };
    let now_ns = stream::now_ns();
    // Anybody may write their own value in a loop: that must not fill the ring or keep the agent awake.
    if !stream::doorbell(EventKind::OomScoreAdj, now_ns) {
        return 0;
    }
    stream::send(
        EventKind::OomScoreAdj,
        Wake::WhenFilling,
        &OomScoreAdj {
            header: stream::header(now_ns, EventKind::OomScoreAdj, 0),
            pid,
            oom_score_adj: i32::from(oom_score_adj),
            writer_pid,
            reserved: 0,
            comm: OOM_SCORE_ADJ_UPDATE.read(&ctx, adj_update::COMM).unwrap_or([0; COMM_LEN]),
        },
    );
    0
}

#[inline(always)]
fn sigkills_seen() -> bool {
    SIGKILLS_SEEN.get(0).is_some_and(|&seen| seen != 0)
}

#[inline(always)]
fn sigkill(tid: u32) -> Option<Sigkill> {
    // SAFETY: copied at once; an element reused in between would be of another thread and fail the sender check.
    unsafe { SIGKILLED.get(tid) }.copied()
}

/// Takes over what this kernel's tracepoint says of the victim; kernels before 6.9 without the backport say nothing.
#[inline(always)]
fn describe(ctx: &TracePointContext, kill: &mut OomKill) {
    let flags = &mut kill.header.flags;
    let mut size = |field, flag, into: &mut u64| {
        if let Some(kib) = MARK_VICTIM.read::<u64>(ctx, field) {
            *into = kib;
            *flags |= flag;
        }
    };
    size(mark::TOTAL_VM, OomKill::HAS_TOTAL_VM, &mut kill.total_vm_kib);
    size(mark::ANON_RSS, OomKill::HAS_ANON_RSS, &mut kill.anon_rss_kib);
    size(mark::FILE_RSS, OomKill::HAS_FILE_RSS, &mut kill.file_rss_kib);
    size(mark::SHMEM_RSS, OomKill::HAS_SHMEM_RSS, &mut kill.shmem_rss_kib);
    size(mark::PGTABLES, OomKill::HAS_PGTABLES, &mut kill.pgtables_kib);
    if let Some(uid) = MARK_VICTIM.read(ctx, mark::UID) {
        kill.uid = uid;
        kill.header.flags |= OomKill::HAS_UID;
    }
    if let Some(oom_score_adj) = MARK_VICTIM.read::<i16>(ctx, mark::OOM_SCORE_ADJ) {
        kill.oom_score_adj = i32::from(oom_score_adj);
        kill.header.flags |= OomKill::HAS_OOM_SCORE_ADJ;
    }
    if let Some(comm) = MARK_VICTIM.read_text(ctx, mark::COMM) {
        kill.victim_comm = comm;
        kill.header.flags |= OomKill::HAS_COMM;
    }
}

/// Mark and exit have met. Whoever removes the element streams the record: exactly one does.
#[inline(always)]
fn complete(kill: &mut OomKill, cgroup: u64, pid: u32, comm: &[u8; COMM_LEN]) {
    if VICTIMS.remove(kill.victim_tid).is_err() {
        return;
    }
    kill.header.at_ns = stream::now_ns();
    kill.header.flags |= OomKill::HAS_COMM;
    kill.victim_pid = pid;
    kill.victim_comm = *comm;
    // 0 is no cgroup's id: the walk hit something it could not read.
    if cgroup != 0 {
        kill.victim_cgroup = cgroup;
        kill.header.flags |= OomKill::HAS_VICTIM_CGROUP;
        let counter = OOM_KILLS.get_ptr_mut(cgroup).or_else(|| {
            let _inserted = OOM_KILLS.insert(cgroup, 0, u64::from(BPF_NOEXIST));
            OOM_KILLS.get_ptr_mut(cgroup)
        });
        match counter {
            // SAFETY: the lookup gave a valid element.
            Some(counter) => unsafe { add(counter, 1) },
            None => stream::untracked(Untracked::OomKill),
        }
    }
    stream::send(EventKind::OomKill, Wake::Now, kill);
}
