//! The memory of workloads that were killed, by the agent or by another program, until it has come back. A workload whose grace period
//! ends soon counts as well.

use std::time::Duration;

use crate::eviction::decider::DyingMemory;
use crate::node::CgroupVersion;
use crate::node::pinned_file::Buffer;
use crate::units::{Bytes, CgroupId, Monotonic};
use crate::workloads::{GainFiles, Tracked};

/// A workload is dropped this long after its kill. No eviction waits longer.
const DROPPED_AFTER: Duration = Duration::from_secs(12);

#[derive(Debug, Default)]
pub struct DyingWorkloads {
    all: Vec<Dying>,
    buffer: Buffer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KilledBy {
    Agent,
    /// Another program, which has killed all processes of the workload.
    Other,
    /// The kernel's OOM killer. Other processes of the workload may live on.
    OomKiller,
    /// No program has killed it yet. Its grace period ends at this time.
    EndOfGrace(Monotonic),
}

#[derive(Debug)]
struct Dying {
    memory: DyingMemory,
    /// The memory that the workload held when `memory.expected` was expected.
    held: Bytes,
    files: GainFiles,
}

impl DyingWorkloads {
    /// Notes that a workload was killed, with the memory that is expected from it and its growth until then. Without an expectation it is
    /// what the workload holds now. A workload whose kill is noted already stays as it is.
    pub fn note(
        &mut self,
        (tracked, version): (&Tracked, CgroupVersion),
        (expected, growth): (Option<Bytes>, i64),
        killed_by: KilledBy,
        now: Monotonic,
    ) {
        let id = tracked.workload().id;
        let grace_ends = if let KilledBy::EndOfGrace(ends) = killed_by { Some(ends) } else { None };
        if grace_ends.is_none() {
            self.all.retain(|dying| dying.memory.id != id || dying.memory.grace_ends.is_none());
        }
        if self.all.iter().any(|dying| dying.memory.id == id) {
            return;
        }
        let Some(files) = tracked.gain_files(version) else { return };
        let left = files.read(&mut self.buffer).unwrap_or(Bytes::ZERO);
        let expected = expected.unwrap_or(left);
        let is_own = killed_by == KilledBy::Agent;
        let is_whole = matches!(killed_by, KilledBy::Agent | KilledBy::Other);
        // The agent reads what its victim holds before the kill. Of another program's victim only processes may have been killed.
        let held = if is_own { expected } else { left };
        let (left, is_populated) = (expected, is_own);
        let memory =
            DyingMemory { id, expected, left, killed: now, grace_ends, growth, is_own, is_whole, is_populated };
        self.all.push(Dying { memory, held, files });
    }

    /// Returns what is left of each. `is_populated` tells whether an own victim has processes.
    pub fn read(&mut self, is_populated: impl Fn(CgroupId) -> bool, now: Monotonic) -> Vec<DyingMemory> {
        let buffer = &mut self.buffer;
        self.all.retain_mut(|Dying { memory, held, files }| {
            let Some(holds) = files.read(buffer) else { return false };
            let came = held.saturating_sub(holds);
            memory.left = memory.left.min(memory.expected.saturating_sub(came));
            memory.is_populated = memory.is_own && is_populated(memory.id);
            // A workload that was restarted holds memory again, and that is not what was expected.
            let is_awaited = memory.is_populated || !memory.is_back();
            is_awaited && now.since(memory.killed) < DROPPED_AFTER
        });
        self.all.iter().map(|dying| dying.memory).collect()
    }
}
