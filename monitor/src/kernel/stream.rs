//! The ring: woken by it, drained in bounds, every record accounted for.

use aya::maps::{MapData, RingBuf};
use monitor_ebpf::{EventKind, Untracked};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    decode::{Event, Record, decode},
    maps::Maps,
    oom::OomKill,
};

const KINDS: usize = EventKind::ALL.len();

/// What one call of `drain` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    pub delivered: usize,
    pub malformed: usize,
    /// The budget was used up: there may be more.
    pub exhausted: bool,
}

/// The books of one kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventAccount {
    pub kind: EventKind,
    pub generated: u64,
    pub delivered: u64,
    /// The ring was full.
    pub lost: u64,
    pub malformed: u64,
    /// Doorbells held back by the rate limit in the kernel; never generated.
    pub suppressed: u64,
}

/// The books of all kinds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accounts {
    pub events: Vec<EventAccount>,
    /// Records whose kind could not even be told; the agent and the programs do not fit together.
    pub unknown: u64,
    /// What full maps kept from being counted, by what it was.
    pub untracked: Vec<(Untracked, u64)>,
}

impl Accounts {
    #[must_use]
    pub fn of(&self, kind: EventKind) -> Option<&EventAccount> {
        self.events.iter().find(|account| account.kind == kind)
    }
}

enum Ring {
    /// Outside a runtime nothing can wait for it yet.
    Plain(RingBuf<MapData>),
    Awaited(AsyncFd<RingBuf<MapData>>),
    /// Only while one becomes the other.
    Changing,
}

pub(super) struct Stream {
    ring: Ring,
    /// The last drain stopped at its budget, so that the ring need not ring again.
    more: bool,
    delivered: [u64; KINDS],
    malformed: [u64; KINDS],
    unknown: u64,
}

impl Stream {
    pub const fn new(ring: RingBuf<MapData>) -> Self {
        Self { ring: Ring::Plain(ring), more: false, delivered: [0; KINDS], malformed: [0; KINDS], unknown: 0 }
    }

    pub async fn readable(&mut self) {
        if self.more {
            return;
        }
        self.register();
        if let Ring::Awaited(ring) = &self.ring
            && let Ok(mut guard) = ring.readable().await
        {
            // Before the drain, not after: a record that arrives in between must ring again.
            guard.clear_ready();
            return;
        }
        // Not to be waited for: events are then read whenever the agent looks.
        std::future::pending::<()>().await;
    }

    fn register(&mut self) {
        if let Ring::Plain(_) = &self.ring
            && let Ring::Plain(ring) = std::mem::replace(&mut self.ring, Ring::Changing)
        {
            // SAFETY: the ring owns its descriptor, hands out the same one each time, and lives as long as the AsyncFd.
            let registered = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
            self.ring = match registered {
                Ok(ring) => Ring::Awaited(ring),
                Err(error) => {
                    let (ring, error) = error.into_parts();
                    tracing::warn!(%error, "cannot wait for the eBPF ring; it is read at sampling times only");
                    Ring::Plain(ring)
                }
            };
        }
    }

    pub fn drain(&mut self, budget: usize, out: &mut Vec<Event>, kills: &mut Vec<OomKill>) -> Drained {
        let Self { ring, more, delivered, malformed, unknown } = self;
        let ring = match ring {
            Ring::Plain(ring) => ring,
            Ring::Awaited(ring) => ring.get_mut(),
            Ring::Changing => return Drained::default(),
        };
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
