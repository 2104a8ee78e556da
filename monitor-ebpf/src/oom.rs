//! OOM kills, from the mark to the victim's exit.
//!
//! In `mark_victim` the running task is the allocator, and the tracepoint names the victim only by its thread id. The record waits in
//! `VICTIMS` until the victim exits: then the running task is the victim, and its cgroup can be read. Since 6.16 the exit tracepoint comes
//! before `exit_mm`, so a victim on another CPU can pass it before the mark. The victim's SIGKILL is always earlier, under its signal lock,
//! so `SIGKILLED` then has the facts of the exit.

use aya_ebpf::{
    EbpfContext as _,
    bindings::BPF_NOEXIST,
    macros::{kprobe, map, tracepoint},
    maps::{Array, HashMap, LruHashMap, PerCpuArray},
    programs::{ProbeContext, TracePointContext},
};
use aya_log_ebpf::{debug, warn};
use monitor_ebpf::{
    COMM_LEN, CgroupPath, EventKind, KernelOffsets, OomKill, OomKillRecord, OomMark, Untracked,
    field::{mark_victim as mark, signal_generate as signal},
};

use crate::{
    awaited_exits,
    layout::Layout,
    path,
    reclaim::add,
    stream,
    task::{self, offset},
};

const SIGKILL: u32 = 9;
/// Codes of signals from processes are not above this (`SI_FROMUSER`). The OOM killer's have the kernel's own code.
const SI_USER: i32 = 0;

/// A SIGKILL of the kernel under way, keyed by the thread that it was sent to.
#[derive(Clone, Copy)]
#[repr(C)]
struct Sigkill {
    sender_tid: u32,
    /// `RUNS`, `EXITED` or `REPORTED`.
    state: u32,
    /// Valid once the thread has exited.
    exit_facts: ExitFacts,
}

/// The thread has not exited yet.
const RUNS: u32 = 0;
/// The thread has exited, and no OOM kill has been reported.
const EXITED: u32 = 1;
/// The OOM kill has been reported. A group kill (`memory.oom.group`) marks its first victim twice.
const REPORTED: u32 = 2;

/// The facts that can be read only in the context of the exiting task.
#[derive(Clone, Copy)]
#[repr(C)]
struct ExitFacts {
    cgroup: u64,
    started_at_ns: u64,
    comm: [u8; COMM_LEN],
    pid: u32,
    reserved: u32,
}

impl ExitFacts {
    const NOTHING: Self = Self { cgroup: 0, started_at_ns: 0, comm: [0; COMM_LEN], pid: 0, reserved: 0 };
}

/// The arguments of an invocation of the OOM killer. `oom_lock` allows one invocation at a time.
#[repr(C)]
struct Invocation {
    at_ns: u64,
    limit_cgroup: u64,
    trigger_tid: u32,
    constraint: u32,
    order: i32,
    /// As in [`OomKill`].
    flags: u32,
}

/// A record under construction, too large for the stack of a program. The path's slack is not sent.
#[repr(C)]
struct Scratch {
    kill: OomKill,
    workspace: path::Workspace,
}

/// Marked victims that have not exited yet, by thread id.
#[map]
static VICTIMS: HashMap<u32, OomKill> = HashMap::with_max_entries(1024, 0);

/// Signals from processes are left out: a process that sends many would displace the victim's entry before its mark.
#[map]
static SIGKILLED: LruHashMap<u32, Sigkill> = LruHashMap::with_max_entries(1024, 0);

/// Cgroup paths of threads that exited from a SIGKILL of the kernel, by thread id.
#[map]
static EXITED_PATHS: LruHashMap<u32, CgroupPath> = LruHashMap::with_max_entries(128, 0);

#[map]
static INVOCATION: Array<Invocation> = Array::with_max_entries(1, 0);

#[map]
static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// OOM kills by the victim's cgroup.
#[map]
static OOM_KILLS: HashMap<u64, u64> = HashMap::with_max_entries(4096, 0);

/// The loader sets element 0 once `signal_generate` is attached. From then on a mark without a SIGKILL is not a kill.
#[map]
static SIGKILLS_SEEN: Array<u32> = Array::with_max_entries(1, 0);

#[unsafe(no_mangle)]
static SIGNAL_GENERATE: Layout = Layout::new();
#[unsafe(no_mangle)]
static MARK_VICTIM: Layout = Layout::new();

/// Runs in the task that triggered the OOM killer, once for all victims of an invocation (`memory.oom.group`).
#[kprobe]
pub fn oom_kill_process(ctx: ProbeContext) -> u32 {
    let Some(invocation) = INVOCATION.get_ptr_mut(0) else {
        return 0;
    };
    let (trigger_tid, _) = task::ids();
    let mut flags = OomKill::HAS_INVOCATION;
    let (mut limit_cgroup, mut constraint, mut order) = (0, 0, 0);
    let control: Option<u64> = task::read(ctx.as_ptr() as u64, offset!(first_argument));
    if let Some(control) = control {
        if let Some(value) = task::read(control, offset!(oom_constraint)) {
            constraint = value;
            flags |= OomKill::HAS_CONSTRAINT;
        }
        if let Some(value) = task::read(control, offset!(oom_order)) {
            order = value;
            flags |= OomKill::HAS_ORDER;
        }
        // The pointer is null unless the limit of a cgroup was hit.
        let memcg: u64 = task::read(control, offset!(oom_memcg)).unwrap_or(0);
        if memcg != 0
            && offset!(memcg_css) != KernelOffsets::ABSENT
            && let Some(node) = task::css_node(memcg + u64::from(offset!(memcg_css)))
            && let Some(id) = task::read(node, offset!(kn_id))
        {
            limit_cgroup = id;
            flags |= OomKill::HAS_LIMIT_CGROUP;
        }
    }
    // SAFETY: the lookup returned a valid element, and `oom_lock` excludes other writers.
    unsafe {
        *invocation = Invocation { at_ns: stream::now_ns(), limit_cgroup, trigger_tid, constraint, order, flags };
    }
    0
}

#[tracepoint]
pub fn signal_generate(ctx: TracePointContext) -> u32 {
    if SIGNAL_GENERATE.read_u32(&ctx, signal::SIG) != Some(SIGKILL)
        || SIGNAL_GENERATE.read::<i32>(&ctx, signal::CODE).is_some_and(|code| code <= SI_USER)
    {
        return 0;
    }
    if let Some(victim_tid) = SIGNAL_GENERATE.read::<u32>(&ctx, signal::PID) {
        let (sender_tid, _) = task::ids();
        let is_reported = |sigkill: Sigkill| sigkill.state == REPORTED && sigkill.sender_tid == sender_tid;
        if sigkill(victim_tid).is_some_and(is_reported) {
            return 0;
        }
        let sigkill = Sigkill { sender_tid, state: RUNS, exit_facts: ExitFacts::NOTHING };
        let _inserted = SIGKILLED.insert(victim_tid, sigkill, 0);
        awaited_exits::note(victim_tid, stream::now_ns());
    }
    0
}

#[tracepoint]
pub fn mark_victim(ctx: TracePointContext) -> u32 {
    let (Some(victim_tid), Some(scratch)) = (MARK_VICTIM.read::<u32>(&ctx, mark::PID), scratch()) else {
        return 0;
    };
    let kill = &mut scratch.kill;
    *kill = OomKill::EMPTY;
    let now_ns = stream::now_ns();
    let (trigger_tid, trigger_pid) = task::ids();
    kill.header.at_ns = now_ns;
    kill.marked_at_ns = now_ns;
    kill.trigger_cgroup = task::memory_cgroup();
    kill.victim_tid = victim_tid;
    kill.victim_pid = victim_tid;
    kill.trigger_pid = trigger_pid;
    kill.trigger_tid = trigger_tid;
    kill.trigger_comm = task::comm();
    let killed = !sigkills_seen() || sigkill(victim_tid).is_some_and(|sigkill| sigkill.sender_tid == trigger_tid);
    // A victim that was already exiting may belong to no invocation; the element would describe an earlier one.
    if killed
        && let Some(invocation) = INVOCATION.get(0)
        && invocation.trigger_tid == trigger_tid
    {
        kill.header.flags |= invocation.flags;
        kill.invoked_at_ns = invocation.at_ns;
        kill.limit_cgroup = invocation.limit_cgroup;
        kill.constraint = invocation.constraint;
        kill.order = invocation.order;
    }
    stream::send_oom(
        EventKind::OomMark,
        &OomMark {
            header: stream::header(now_ns, EventKind::OomMark, if killed { 0 } else { OomMark::ALREADY_DYING }),
            invoked_at_ns: kill.invoked_at_ns,
            trigger_cgroup: kill.trigger_cgroup,
            victim_tid,
            trigger_pid,
            trigger_tid,
            reserved: 0,
            trigger_comm: kill.trigger_comm,
        },
    );
    if !killed || sigkill(victim_tid).is_some_and(|sigkill| sigkill.state == REPORTED) {
        return 0;
    }
    describe(&ctx, kill);
    // Tells a record that was lost on its way from a kill that the program did not see.
    debug!(&ctx, "thread {} is marked as a victim of the OOM killer", victim_tid);

    awaited_exits::note(victim_tid, now_ns);
    // Inserts before checking whether the victim has exited; the exit does both in the opposite order, so one of them sees the other.
    // Passed by reference, because a copy is too large for the stack.
    let victim: &OomKill = kill;
    if VICTIMS.insert(victim_tid, victim, 0).is_err() {
        stream::untracked(Untracked::OomKill);
        warn!(&ctx, "too many OOM victims at once: thread {} stays without its cgroup", victim_tid);
        scratch.workspace.path.levels = 0;
        send(scratch);
        return 0;
    }
    if let Some(sigkill) = sigkill(victim_tid)
        && sigkill.state == EXITED
        && sigkill.sender_tid == trigger_tid
    {
        // SAFETY: the element of an exited thread is not written again.
        match unsafe { EXITED_PATHS.get(victim_tid) } {
            Some(path) => scratch.workspace.path = *path,
            None => scratch.workspace.path.levels = 0,
        }
        complete(scratch, &sigkill.exit_facts);
    }
    0
}

#[tracepoint]
pub fn sched_process_exit(_ctx: TracePointContext) -> u32 {
    let (tid, pid) = task::ids();
    let Some((slot, since_ns)) = awaited_exits::find(tid) else {
        return 0;
    };
    if SIGKILLED.get_ptr(tid).is_none() && VICTIMS.get_ptr(tid).is_none() {
        awaited_exits::give_up(slot, since_ns);
        return 0;
    }
    let Some(scratch) = scratch() else {
        return 0;
    };
    let exit_facts = ExitFacts {
        cgroup: task::memory_cgroup(),
        started_at_ns: task::process_start().unwrap_or(0),
        comm: task::comm(),
        pid,
        reserved: 0,
    };
    // SAFETY: this CPU's own element.
    unsafe { path::read_own(&raw mut scratch.workspace) };
    if let Some(sigkill) = sigkill(tid) {
        let path: &CgroupPath = &scratch.workspace.path;
        let _inserted = EXITED_PATHS.insert(tid, path, 0);
        let _updated = SIGKILLED.insert(tid, Sigkill { state: EXITED, exit_facts, ..sigkill }, 0);
    }
    // SAFETY: the element of an exiting thread is only removed, by the program that completes it; it is copied at once.
    if let Some(kill) = unsafe { VICTIMS.get(tid) } {
        scratch.kill = *kill;
        // A mark that came after its victim's exit waits for a thread that no longer exists, and this thread only has the same
        // id. The start of this thread shows that: its process may be older than the mark.
        if task::thread_start().is_some_and(|started_at_ns| started_at_ns > kill.marked_at_ns) {
            let _removed = VICTIMS.remove(tid);
            return 0;
        }
        complete(scratch, &exit_facts);
        if let Some(sigkill) = sigkill(tid) {
            let _updated = SIGKILLED.insert(tid, Sigkill { state: REPORTED, ..sigkill }, 0);
        }
    }
    0
}

#[inline(always)]
fn sigkills_seen() -> bool {
    SIGKILLS_SEEN.get(0).is_some_and(|&seen| seen != 0)
}

#[inline(always)]
fn sigkill(tid: u32) -> Option<Sigkill> {
    // SAFETY: copied at once. A reused element belongs to another thread and fails the sender check.
    unsafe { SIGKILLED.get(tid) }.copied()
}

/// Copies the fields of this kernel's tracepoint. Kernels before 6.9 without the backport have none.
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

/// Completes a record once both mark and exit are known. The program that removes the element streams the record, so exactly one does.
#[inline(always)]
fn complete(scratch: &mut Scratch, exit_facts: &ExitFacts) {
    let kill = &mut scratch.kill;
    if VICTIMS.remove(kill.victim_tid).is_err() {
        return;
    }
    kill.header.at_ns = stream::now_ns();
    kill.header.flags |= OomKill::HAS_COMM;
    kill.victim_pid = exit_facts.pid;
    kill.victim_comm = exit_facts.comm;
    if exit_facts.started_at_ns != 0 {
        kill.started_at_ns = exit_facts.started_at_ns;
        kill.header.flags |= OomKill::HAS_START;
    }
    // No cgroup has id 0. The walk met memory that cannot be read.
    let cgroup = exit_facts.cgroup;
    if cgroup != 0 {
        kill.victim_cgroup = cgroup;
        kill.header.flags |= OomKill::HAS_VICTIM_CGROUP;
        let counter = OOM_KILLS.get_ptr_mut(cgroup).or_else(|| {
            let _inserted = OOM_KILLS.insert(cgroup, 0, u64::from(BPF_NOEXIST));
            OOM_KILLS.get_ptr_mut(cgroup)
        });
        match counter {
            // SAFETY: the lookup returned a valid element.
            Some(counter) => unsafe { add(counter, 1) },
            None => stream::untracked(Untracked::OomKill),
        }
    }
    send(scratch);
}

#[inline(always)]
fn send(scratch: &Scratch) {
    // SAFETY: both begin with the kill and its path.
    let record = unsafe { &*core::ptr::from_ref(scratch).cast::<OomKillRecord>() };
    stream::send_oom(EventKind::OomKill, record);
}

/// Returns this CPU's scratch element. No program of this object interrupts another (`bpf_prog_active`).
#[inline(always)]
fn scratch() -> Option<&'static mut Scratch> {
    // SAFETY: the lookup returned a valid element, and no other program uses it meanwhile.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &mut *scratch })
}
