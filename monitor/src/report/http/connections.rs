//! Open HTTP connections. At the limit, the peer with the most connections loses its oldest one, so that no peer can lock out others.

use std::net::{IpAddr, Ipv6Addr};

use tokio::task::AbortHandle;

const PLACES: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    peer: Peer,
    task: AbortHandle,
}

impl Places {
    /// Adds a connection. At the limit, aborts the oldest connection of the peer with the most connections. A kubelet and a scraper
    /// hold one or two each, so a peer that opens hundreds displaces only its own.
    pub(super) fn take(&mut self, peer: Peer, task: AbortHandle) {
        self.0.retain(|place| !place.task.is_finished());
        self.0.push(Place { peer, task });
        if self.0.len() > PLACES {
            let peers: Vec<Peer> = self.0.iter().map(|place| place.peer).collect();
            tracing::debug!("a connection to the metrics address made place for another");
            self.0.remove(connection_to_abort(&peers)).task.abort();
        }
    }
}

/// Returns the index of the oldest connection of the peer with the most connections. On a tie, the peer of the oldest connection loses.
fn connection_to_abort(peers: &[Peer]) -> usize {
    let held = |peer: &Peer| peers.iter().filter(|other| *other == peer).count();
    let most = peers.iter().map(held).max().unwrap_or(0);
    peers.iter().position(|peer| held(peer) == most).unwrap_or(0)
}

/// The sender of requests, by which limits distinguish them. For IPv6 that is the /64 prefix: a host can assign itself any address in its /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer(IpAddr);

impl Peer {
    pub(super) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
            address @ IpAddr::V4(_) => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_with_most_loses_its_oldest_connection() {
        let [a, b, c] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|it| Peer::of(it.parse().unwrap()));
        assert_eq!(connection_to_abort(&[a, b, c, b]), 1);
        assert_eq!(connection_to_abort(&[b, a, a, a]), 1);
        // On a tie, the oldest connection goes.
        assert_eq!(connection_to_abort(&[c, a, b]), 0);
    }

    #[test]
    fn addresses_of_one_machine_are_one_sender() {
        let of = |text: &str| Peer::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
