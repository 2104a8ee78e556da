//! The places of `/api/v1/watch`. Each holds a connection and one document, so there are few; no peer can take them all.

use std::sync::{Arc, Mutex};

use axum::http::StatusCode;

use super::connections::Peer;
use crate::units::lock;

const PLACES: usize = 8;
/// The most places of one peer: the tabs of one browser, or a few views through one port-forward.
const OF_ONE_PEER: usize = PLACES / 2;

#[derive(Debug, Clone, Default)]
pub(super) struct WatchPlaces(Arc<Mutex<Vec<Peer>>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPlace {
    #[error("this address has {OF_ONE_PEER} streams already; close one, or read /api/v1/state\n")]
    OfPeer,
    #[error("{PLACES} clients watch already; try again later, or read /api/v1/state\n")]
    Full,
}

impl NoPlace {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::OfPeer => StatusCode::TOO_MANY_REQUESTS,
            Self::Full => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl WatchPlaces {
    pub(super) fn take(&self, peer: Peer) -> Result<WatchPlace, NoPlace> {
        let mut taken = lock(&self.0);
        if taken.iter().filter(|it| **it == peer).count() >= OF_ONE_PEER {
            return Err(NoPlace::OfPeer);
        }
        if taken.len() >= PLACES {
            return Err(NoPlace::Full);
        }
        taken.push(peer);
        Ok(WatchPlace { places: self.clone(), peer })
    }
}

/// A taken place. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct WatchPlace {
    places: WatchPlaces,
    peer: Peer,
}

impl Drop for WatchPlace {
    fn drop(&mut self) {
        let mut taken = lock(&self.places.0);
        if let Some(place) = taken.iter().position(|it| *it == self.peer) {
            taken.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_half_of_the_places() {
        let places = WatchPlaces::default();
        let [a, b, c] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|it| Peer::of(it.parse().unwrap()));
        let mut held: Vec<WatchPlace> = (0..OF_ONE_PEER).map(|_| places.take(a).unwrap()).collect();
        assert_eq!(places.take(a).unwrap_err(), NoPlace::OfPeer);
        held.extend((0..OF_ONE_PEER).map(|_| places.take(b).unwrap()));
        assert_eq!(places.take(c).unwrap_err(), NoPlace::Full);
        held.remove(0);
        assert!(places.take(c).is_ok() && places.take(a).is_ok(), "a place that was given back is free");
    }
}
