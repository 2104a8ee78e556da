//! The rings of events: waits for them, drains them in bounded pieces, and counts every record.
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
    /// Events that a rate limit in the kernel suppressed, not counted as generated.
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

/// A source of records, which passes one to `visit` and then gives its room back. Returns false if there is none.
trait Records {
    fn visit_next(&mut self, visit: &mut dyn FnMut(&[u8])) -> bool;
}

impl Records for RingBuf<MapData> {
    fn visit_next(&mut self, visit: &mut dyn FnMut(&[u8])) -> bool {
        self.next().map(|record| visit(&record)).is_some()
    }
}

struct Ring<R = RingBuf<MapData>> {
    records: R,
    /// A copy of the ring's descriptor, registered with the async runtime on the first wait.
    readiness: Option<AsyncFd<OwnedFd>>,
    /// The last drain stopped at its budget, so records are left and the ring need not wake again.
    more: bool,
}

impl<R: Records> Ring<R> {
    const fn new(records: R) -> Self {
        Self { records, readiness: None, more: false }
    }

    /// Passes records to `visit`, and counts them off `budget`.
    fn drain(&mut self, budget: &mut usize, mut visit: impl FnMut(&[u8])) {
        self.more = true;
        while *budget > 0 {
            if !self.records.visit_next(&mut visit) {
                self.more = false;
                return;
            }
            *budget -= 1;
        }
    }
}

impl Ring {
    /// Cancel-safe.
    async fn readable(&mut self) {
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
        let registered = self.records.as_fd().try_clone_to_owned().and_then(|copy| {
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
}

#[derive(Debug, Default)]
struct Delivered {
    delivered: [u64; KINDS],
    malformed: [u64; KINDS],
    unknown: u64,
}

impl Delivered {
    fn take(&mut self, record: &[u8], drained: &mut Drained, out: &mut Vec<Event>, kills: &mut Vec<OomKill>) {
        let bump = |counters: &mut [u64; KINDS], kind: EventKind| {
            if let Some(counter) = counters.get_mut(kind.index() as usize) {
                *counter += 1;
            }
        };
        match decode(record) {
            Ok(record) => {
                bump(&mut self.delivered, record.kind());
                drained.delivered += 1;
                match record {
                    Record::Event(event) => out.push(event),
                    Record::OomKill(kill) => kills.push(kill),
                }
            }
            Err(error) => {
                match error.kind {
                    Some(kind) => bump(&mut self.malformed, kind),
                    None => self.unknown += 1,
                }
                drained.malformed += 1;
            }
        }
    }
}

pub(super) struct Stream<R = RingBuf<MapData>> {
    /// Marks and OOM kills, read first.
    oom: Ring<R>,
    others: Ring<R>,
    counts: Delivered,
}

impl Stream {
    pub async fn readable(&mut self) {
        tokio::select! {
            () = self.oom.readable() => {}
            () = self.others.readable() => {}
        }
    }
}

#[expect(private_bounds, reason = "only the ring and the tests are records")]
impl<R: Records> Stream<R> {
    pub fn new(oom: R, others: R) -> Self {
        Self { oom: Ring::new(oom), others: Ring::new(others), counts: Delivered::default() }
    }

    pub fn drain(&mut self, mut budget: usize, out: &mut Vec<Event>, kills: &mut Vec<OomKill>) -> Drained {
        let Self { oom, others, counts } = self;
        let mut drained = Drained::default();
        for ring in [oom, others] {
            ring.drain(&mut budget, |record| counts.take(record, &mut drained, out, kills));
            drained.exhausted |= ring.more;
        }
        drained
    }

    pub fn accounts(&self, maps: &mut Maps) -> Accounts {
        let events = EventKind::ALL.iter().zip(self.counts.delivered).zip(self.counts.malformed).map(
            |((&kind, delivered), malformed)| {
                let counts = maps.counts(kind);
                EventAccount {
                    kind,
                    generated: counts.generated,
                    delivered,
                    lost: counts.lost,
                    malformed,
                    suppressed: counts.suppressed,
                }
            },
        );
        let events = events.collect();
        let untracked = [Untracked::Stall, Untracked::Reclaim, Untracked::Inode, Untracked::OomKill]
            .map(|what| (what, maps.untracked(what)));
        Accounts { events, unknown: self.counts.unknown, untracked: untracked.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use monitor_ebpf::{Header, KswapdWake, OomMark, Stall};

    use super::*;

    impl Records for VecDeque<Vec<u8>> {
        fn visit_next(&mut self, visit: &mut dyn FnMut(&[u8])) -> bool {
            self.pop_front().map(|record| visit(&record)).is_some()
        }
    }

    /// A record of this kind that is otherwise zero.
    fn record(kind: EventKind, bytes: usize) -> Vec<u8> {
        let mut record = vec![0; bytes];
        record[size_of::<u64>()..][..size_of::<u32>()].copy_from_slice(&kind.index().to_ne_bytes());
        record
    }

    fn stream(marks: usize, stalls: usize) -> Stream<VecDeque<Vec<u8>>> {
        let some = |kind, bytes, count| std::iter::repeat_n(record(kind, bytes), count).collect();
        let marks = some(EventKind::OomMark, size_of::<OomMark>(), marks);
        Stream::new(marks, some(EventKind::Stall, size_of::<Stall>(), stalls))
    }

    fn drain(stream: &mut Stream<VecDeque<Vec<u8>>>, budget: usize) -> (Vec<EventKind>, Drained) {
        let (mut events, mut kills) = (Vec::new(), Vec::new());
        let drained = stream.drain(budget, &mut events, &mut kills);
        (events.iter().map(Event::kind).collect(), drained)
    }

    #[test]
    fn marks_are_read_before_any_number_of_stalls() {
        let mut stream = stream(2, 1000);
        let (kinds, drained) = drain(&mut stream, 3);
        assert_eq!(kinds, [EventKind::OomMark, EventKind::OomMark, EventKind::Stall]);
        assert_eq!(drained, Drained { delivered: 3, malformed: 0, exhausted: true });
        assert_eq!((stream.oom.more, stream.others.more), (false, true));
        // A mark that arrives meanwhile precedes the stalls that are left.
        stream.oom.records.push_back(record(EventKind::OomMark, size_of::<OomMark>()));
        assert_eq!(drain(&mut stream, 2).0, [EventKind::OomMark, EventKind::Stall]);
    }

    #[test]
    fn a_ring_that_the_budget_does_not_reach_is_read_in_the_next_turn() {
        let mut stream = stream(4, 1);
        assert_eq!(drain(&mut stream, 4).0, [EventKind::OomMark; 4]);
        assert!(stream.oom.more && stream.others.more, "a wake-up of this turn is used up");
        let (kinds, drained) = drain(&mut stream, 4);
        assert_eq!((kinds.as_slice(), drained.exhausted), ([EventKind::Stall].as_slice(), false));
        assert!(!stream.oom.more && !stream.others.more);
    }

    #[test]
    fn records_of_both_rings_are_counted() {
        let mut stream = stream(1, 1);
        stream.oom.records.push_back(record(EventKind::OomMark, size_of::<Header>()));
        stream.others.records.push_back(record(EventKind::KswapdWake, size_of::<KswapdWake>()));
        stream.others.records.push_back(vec![0; 3]);
        let (_, drained) = drain(&mut stream, 10);
        assert_eq!(drained, Drained { delivered: 3, malformed: 2, exhausted: false });
        let of = |counts: &[u64; KINDS], kind: EventKind| counts[kind.index() as usize];
        assert_eq!(of(&stream.counts.delivered, EventKind::OomMark), 1);
        assert_eq!(of(&stream.counts.malformed, EventKind::OomMark), 1);
        assert_eq!((of(&stream.counts.delivered, EventKind::Stall), stream.counts.unknown), (1, 1));
    }
}
