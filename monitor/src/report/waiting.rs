//! Why no workload is evicted although a threshold is met, in one sentence for the state's document.

use std::time::Duration;

use super::LoopState;
use crate::eviction::decider::Note;
use crate::runtime::Names;
use crate::units::{CgroupId, Monotonic};

/// Returns the reason; `None` for a note about something else.
pub(super) fn because(note: &Note, state: &mut LoopState<'_>, names: &Names, now: Monotonic) -> Option<String> {
    let name = |id: CgroupId| names.of(&state.sensors.workloads.owner(id)).display;
    Some(match *note {
        Note::AwaitsPods { .. } => "the API server's list of pods is awaited, for up to 2 s".to_owned(),
        Note::Deferred { .. } => {
            let reason = state.sensors.platform.cluster.why_deferred(now);
            format!("the node is, or may be, in maintenance: {reason}")
        }
        Note::BudgetSpent { left } => {
            format!("evictions.maxPerMinute is reached; the next eviction may begin in {}", seconds(left))
        }
        Note::Expected { .. } => {
            "the files of pods that were evicted or have ended are being removed, which suffices".to_owned()
        }
        Note::LeftToKubelet { .. } => "the disk is below the kubelet's own threshold, so the kubelet evicts".to_owned(),
        Note::PutOff { id, .. } => {
            format!("{} cannot be evicted now: {}", name(id), state.sensors.platform.cluster.why_put_off())
        }
        Note::MemoryExpected { left, of, .. } => {
            let of = of.map(name).unwrap_or_else(|| "workloads that were killed".to_owned());
            format!("{left} of memory of {of} are coming back")
        }
        Note::SwapKeepsUp { .. } => "the kernel swaps out as fast as memory falls".to_owned(),
        Note::ProtectedLeak { id, .. } => {
            let what = id.map(name).unwrap_or_else(|| "what is no candidate".to_owned());
            format!("evictions did not help: {what} uses up the memory")
        }
        Note::RefaultsOnly { .. } => {
            "only file pages that are read back make memory scarce, and no candidate reads them".to_owned()
        }
        Note::Exhausted { candidates, .. } => format!("none of {candidates} candidates may be evicted, or would help"),
        Note::Unarmed { .. }
        | Note::Armed { .. }
        | Note::SwapFallsShort { .. }
        | Note::ReclaimFutile { .. }
        | Note::ReclaimDryRun { .. } => return None,
    })
}

fn seconds(left: Duration) -> String {
    format!("{:.0} s", left.as_secs_f64().ceil())
}
