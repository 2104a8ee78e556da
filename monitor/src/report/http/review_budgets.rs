//! How many tokens are reviewed. The limits protect the API server from clients that invent tokens, and all other clients from these.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connections::Peer;
use crate::report::RateLimiter;
use crate::report::limits::Parties;
use crate::units::Monotonic;

/// Burst of first reviews, of all peers and of one.
const AT_ONCE: u32 = 16;
const OF_PEER_AT_ONCE: u32 = 8;
/// After the burst, one first review is sent per interval, for all peers and for one.
const EVERY: Duration = Duration::from_millis(200);
const OF_PEER_EVERY: Duration = Duration::from_secs(2);
/// First reviews of one peer that wait for a slow API server.
const OF_PEER_UNDER_WAY: usize = 2;

#[derive(Debug)]
pub(super) struct ReviewBudgets {
    /// Tokens that were allowed before. Their number is bounded by the cache, so this matters only while the API server does not answer.
    renewals: RateLimiter,
    first: RateLimiter,
    peers: Parties<Peer, PeerBudget>,
}

#[derive(Debug)]
struct PeerBudget {
    limiter: RateLimiter,
    under_way: Arc<Semaphore>,
}

impl Default for ReviewBudgets {
    fn default() -> Self {
        Self {
            renewals: RateLimiter::new(AT_ONCE, EVERY),
            first: RateLimiter::new(AT_ONCE, EVERY),
            peers: Parties::default(),
        }
    }
}

impl ReviewBudgets {
    pub(super) fn admits_renewal(&mut self, now: Monotonic) -> bool {
        self.renewals.admit(now).is_some()
    }

    /// Returns the right to send a first review for this peer, which is held until the answer.
    pub(super) fn admit_first(&mut self, peer: Peer, now: Monotonic) -> Option<OwnedSemaphorePermit> {
        let Self { first, peers, .. } = self;
        let new = || PeerBudget {
            limiter: RateLimiter::new(OF_PEER_AT_ONCE, OF_PEER_EVERY),
            under_way: Arc::new(Semaphore::new(OF_PEER_UNDER_WAY)),
        };
        peers.of(&peer, new, |PeerBudget { limiter, under_way }| {
            // The peer's own budget first: what it refuses must not spend the budget of all.
            let under_way = Arc::clone(under_way).try_acquire_owned().ok();
            under_way.filter(|_| limiter.admit(now).is_some() && first.admit(now).is_some())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u8) -> Peer {
        Peer::of([10, 0, 0, number].into())
    }

    #[test]
    fn a_peer_that_floods_leaves_the_budget_to_others() {
        let mut budgets = ReviewBudgets::default();
        let at = |millis: u64| Monotonic(millis * 1_000_000);
        // 60 requests a second for a minute.
        let of_flood = (0..3600).filter(|it| budgets.admit_first(peer(1), at(it * 17)).is_some()).count();
        assert!((8..=39).contains(&of_flood), "{of_flood}");
        for millis in 61_200..61_208 {
            assert!(budgets.admit_first(peer(2), at(millis)).is_some(), "{millis}");
        }
        assert!((0..16).all(|_| budgets.admits_renewal(at(61_300))));
    }

    #[test]
    fn all_peers_together_and_each_that_waits_are_limited() {
        let mut budgets = ReviewBudgets::default();
        let under_way: Vec<_> = (0..9).map(|_| budgets.admit_first(peer(1), Monotonic(1))).collect();
        assert_eq!(under_way.iter().flatten().count(), OF_PEER_UNDER_WAY);
        let of_many = (2..200).filter(|it| budgets.admit_first(peer(*it), Monotonic(1)).is_some()).count();
        assert_eq!(of_many, 14);
        assert_eq!(budgets.peers.len(), Parties::<Peer, PeerBudget>::MOST);
    }
}
