//! Labels of the kernel side's events in metrics.

use crate::kernel::{EventKind, Untracked};

/// Returns the label of what the kernel side could not count.
pub(super) fn untracked_name(what: Untracked) -> &'static str {
    match what {
        Untracked::Stall => "stall",
        Untracked::Reclaim => "reclaim",
        Untracked::Inode => "inode",
        Untracked::OomKill => "oom_kill",
    }
}

/// Returns the label of an event.
pub(super) fn event_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::KswapdWake => "kswapd_wake",
        EventKind::DirectReclaim => "direct_reclaim",
        EventKind::Stall => "stall",
        EventKind::OomMark => "oom_mark",
        EventKind::OomKill => "oom_kill",
        EventKind::OomScoreAdj => "oom_score_adj",
    }
}
