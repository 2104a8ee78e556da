//! Reports writes of `oom_score_adj`.

use aya_ebpf::{Global, macros::tracepoint, programs::TracePointContext};
use monitor_ebpf::{COMM_LEN, EventKind, OomScoreAdj, field::oom_score_adj_update as adj_update};

use crate::{
    layout::Layout,
    stream::{self, Wake},
    task,
};

#[unsafe(no_mangle)]
static OWN_PID: Global<u32> = Global::new(u32::MAX);
#[unsafe(no_mangle)]
static OOM_SCORE_ADJ_UPDATE: Layout = Layout::new();

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
    // Any process may write its own value in a loop. Such a process must neither fill the ring nor keep the agent awake.
    if !stream::may_wake(EventKind::OomScoreAdj, now_ns) {
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
