//! The ring of events: waits for it, drains it in bounded pieces, and counts every record.
//!
//! A record is decoded in place, from the slice that lies in the mapped ring, and is no `bytes::Bytes`. The slice is valid only until the next
//! record is taken, because dropping it gives its room back to the programs; `Bytes` would have to own a copy, which costs an allocation
//! for each record at the moment when the node has no memory left. Decoded events are small and `Copy`, so nothing has to share them.
//! Answers of the API server, which are shared and cut, are `bytes::Bytes` (`cluster::api_answer`).

use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::{MapData, RingBuf};
use monitor_ebpf::{EventKind, Untracked};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    decode::{Event, Record, decode},
    decoded_oom_kill::OomKill,
    maps::Maps,
};

const KINDS: usize = EventKind::ALL.len();

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    pub delivered: usize,
    pub malformed: usize,
    /// The budget was used up: there may be more records.
    pub exhausted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventAccount {
    pub kind: EventKind,
    pub generated: u64,
    pub delivered: u64,
    /// Dropped because the ring was full.
    pub lost: u64,
    pub malformed: u64,
    /// Wake-up events that the rate limit in the kernel suppressed, not counted as generated.
    pub suppressed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accounts {
    pub events: Vec<EventAccount>,
    /// Records of unknown kind: the agent and the programs do not match.
    pub unknown: u64,
    /// Events that full maps kept from being counted.
    pub untracked: Vec<(Untracked, u64)>,
}

impl Accounts {
    pub fn of(&self, kind: EventKind) -> Option<&EventAccount> {
        self.events.iter().find(|account| account.kind == kind)
    }
}

pub(super) struct Stream {
    ring: RingBuf<MapData>,
    /// A copy of the ring's descriptor, registered with the async runtime on the first wait.
    readiness: Option<AsyncFd<OwnedFd>>,
    /// The last drain stopped at its budget, so records are left and the ring need not wake again.
    more: bool,
    delivered: [u64; KINDS],
    malformed: [u64; KINDS],
    unknown: u64,
}

impl Stream {
    pub const fn new(ring: RingBuf<MapData>) -> Self {
        Self { ring, readiness: None, more: false, delivered: [0; KINDS], malformed: [0; KINDS], unknown: 0 }
    }

    pub async fn readable(&mut self) {
        if self.more {
            return;
        }
        if self.readiness.is_none() {
            self.register();
        }
        if let Some(readiness) = &self.readiness
            && let Ok(mut guard) = readiness.readable().await
        {
            // Cleared before the drain: a record that arrives meanwhile must wake again.
            guard.clear_ready();
            return;
        }
        // The ring cannot be waited for. The agent reads it in every turn.
        std::future::pending::<()>().await;
    }

    fn register(&mut self) {
        let registered = self.ring.as_fd().try_clone_to_owned().and_then(|copy| {
            // SAFETY: an `OwnedFd` owns its descriptor, and returns the same one each time.
            let registered = unsafe { AsyncFd::register_with_interest(copy, Interest::READABLE) };
            registered.map_err(|error| error.into_parts().1)
        });
        match registered {
            Ok(readiness) => self.readiness = Some(readiness),
            Err(error) => {
                tracing::warn!(%error, "cannot wait for the eBPF ring; it is read only when the loop turns for another reason");
            }
        }
    }

    pub fn drain(&mut self, budget: usize, out: &mut Vec<Event>, kills: &mut Vec<OomKill>) -> Drained {
        let Self { ring, more, delivered, malformed, unknown, .. } = self;
        let mut drained = Drained::default();
        let bump = |counters: &mut [u64; KINDS], kind: EventKind| {
            if let Some(counter) = counters.get_mut(kind.index() as usize) {
                *counter += 1;
            }
        };
        while drained.delivered + drained.malformed < budget {
            let Some(record) = ring.next() else {
                *more = false;
                return drained;
            };
            match decode(&record) {
                Ok(record) => {
                    bump(delivered, record.kind());
                    drained.delivered += 1;
                    match record {
                        Record::Event(event) => out.push(event),
                        Record::OomKill(kill) => kills.push(kill),
                    }
                }
                Err(error) => {
                    match error.kind {
                        Some(kind) => bump(malformed, kind),
                        None => *unknown += 1,
                    }
                    drained.malformed += 1;
                }
            }
        }
        *more = true;
        drained.exhausted = true;
        drained
    }

    pub fn accounts(&self, maps: &mut Maps) -> Accounts {
        let events =
            EventKind::ALL.iter().zip(self.delivered).zip(self.malformed).map(|((&kind, delivered), malformed)| {
                let counts = maps.counts(kind);
                EventAccount {
                    kind,
                    generated: counts.generated,
                    delivered,
                    lost: counts.lost,
                    malformed,
                    suppressed: counts.suppressed,
                }
            });
        let events = events.collect();
        let untracked = [Untracked::Stall, Untracked::Reclaim, Untracked::Inode, Untracked::OomKill]
            .map(|what| (what, maps.untracked(what)));
        Accounts { events, unknown: self.unknown, untracked: untracked.to_vec() }
    }
}
