//! Who is being served, and who has to go when there is no place left: nobody keeps others out by keeping connections open.

use std::net::{IpAddr, Ipv6Addr};

use tokio::task::AbortHandle;

/// At most so many at a time.
const PLACES: usize = 32;

/// The connections that are open.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    peer: IpAddr,
    task: AbortHandle,
}

impl Places {
    /// Takes a connection in. Where there is no place left, the oldest of whoever holds the most goes: the probes of a kubelet and a
    /// scraper have one or two each, and whoever opens hundreds takes places from himself.
    pub(super) fn take(&mut self, peer: IpAddr, task: AbortHandle) {
        self.0.retain(|place| !place.task.is_finished());
        self.0.push(Place { peer: sender(peer), task });
        if self.0.len() > PLACES {
            let peers: Vec<IpAddr> = self.0.iter().map(|place| place.peer).collect();
            tracing::debug!("a connection to the metrics address made place for another");
            self.0.remove(who_goes(&peers)).task.abort();
        }
    }
}

/// The oldest of whoever has most; of those who have as many, of whoever came first.
fn who_goes(peers: &[IpAddr]) -> usize {
    let held = |peer: &IpAddr| peers.iter().filter(|other| *other == peer).count();
    let most = peers.iter().map(held).max().unwrap_or(0);
    peers.iter().position(|peer| held(peer) == most).unwrap_or(0)
}

/// What tells two senders apart: of IPv6 the first 64 bits, since a machine can give itself all addresses below them.
fn sender(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_whoever_has_most_goes() {
        let [a, b, c] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|it| it.parse::<IpAddr>().unwrap());
        assert_eq!(who_goes(&[a, b, c, b]), 1);
        assert_eq!(who_goes(&[b, a, a, a]), 1);
        // As many each: whoever came first has had the most time.
        assert_eq!(who_goes(&[c, a, b]), 0);
    }

    #[test]
    fn addresses_of_one_machine_are_one_sender() {
        let of = |text: &str| sender(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
