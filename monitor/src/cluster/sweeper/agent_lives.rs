//! Which agents are dead. Pure; the caller passes the times.
//!
//! An agent renews the Lease of its node. It is dead when the Lease has not changed for the time that it promises, whatever the node's
//! clock shows.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;

use crate::cluster::lease::{self, WITHOUT_LEASE};

/// After a longer time without a list, nothing is known about the time between: the API server was away, for the agents as well.
const LONGEST_GAP: Duration = Duration::from_secs(150);

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(super) struct Lease {
    pub(super) metadata: Metadata,
    spec: lease::Spec,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    /// That of the node.
    pub(super) name: String,
}

impl Lease {
    /// Returns whether an agent has written it: an agent holds the Lease that is named after its node.
    pub(super) fn is_of_agent(&self) -> bool {
        self.spec.holder_identity.as_deref() == Some(&*self.metadata.name)
    }
}

/// Returns the message for the conditions of an agent that is dead by the clock; none: it is alive.
pub(super) fn death_by_clock(lease: Option<&Lease>, wall: Timestamp) -> Option<String> {
    lease.is_none_or(|lease| lease.spec.is_over(wall)).then(|| words(lease))
}

fn words(lease: Option<&Lease>) -> String {
    match lease.and_then(|lease| lease.spec.renew_time.as_deref()) {
        Some(beat) => format!("the node pressure monitor of this node sent its last heartbeat at {beat}"),
        None => "the node pressure monitor of this node sends no heartbeat".to_owned(),
    }
}

#[derive(Debug)]
struct Life {
    /// None: the node has conditions or taints of ours, and no Lease.
    lease: Option<Lease>,
    /// When the Lease was first seen as it is.
    since: Instant,
    /// For how long the agent counts as alive from then on. A Lease that is gone may be renewed as late as before.
    promised: Duration,
    /// The node was swept.
    is_done: bool,
}

/// An agent that counts as dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dead {
    pub(super) node: String,
    pub(super) lease: Option<Lease>,
    /// For the conditions.
    pub(super) message: String,
}

/// The agents of all nodes, as far as they are known from round to round.
#[derive(Debug, Default)]
pub(super) struct AgentLives {
    lives: HashMap<String, Life>,
    observed: Option<Instant>,
}

impl AgentLives {
    /// Takes in the Leases that there are.
    pub(super) fn observe(&mut self, leases: Vec<Lease>, now: Instant) {
        let was_away = self.observed.replace(now).is_some_and(|at| now.saturating_duration_since(at) > LONGEST_GAP);
        let mut before = std::mem::take(&mut self.lives);
        for lease in leases {
            let (name, promised) = (lease.metadata.name.clone(), lease.spec.duration());
            let lease = Some(lease);
            let unchanged = before.remove(&name).filter(|life| life.lease == lease);
            self.lives.insert(name, unchanged.unwrap_or(Life { lease, since: now, promised, is_done: false }));
        }
        // A Lease that is gone may have been removed before what it was for.
        for (name, life) in before.into_iter().filter(|(_, life)| !life.is_done) {
            let since = if life.lease.is_some() { now } else { life.since };
            self.lives.insert(name, Life { lease: None, since, ..life });
        }
        if was_away {
            self.lives.values_mut().for_each(|life| life.since = now);
        }
    }

    /// Takes in that a node has conditions or taints of ours; `is_swept`: they are only what a sweeper leaves.
    pub(super) fn observe_ours(&mut self, node: &str, is_swept: bool, now: Instant) {
        let fresh = || Life { lease: None, since: now, promised: WITHOUT_LEASE, is_done: false };
        let life = self.lives.entry(node.to_owned()).or_insert_with(fresh);
        // An agent that could not renew its Lease has lived on.
        if life.is_done && !is_swept {
            (life.is_done, life.since) = (false, now);
        }
    }

    /// Returns the agents that are dead, and whose nodes were not swept since.
    pub(super) fn dead(&self, now: Instant) -> Vec<Dead> {
        let is_dead = |life: &Life| !life.is_done && now.saturating_duration_since(life.since) >= life.promised;
        let dead = self.lives.iter().filter(|(_, life)| is_dead(life));
        dead.map(|(node, life)| {
            let (lease, message) = (life.lease.clone(), words(life.lease.as_ref()));
            Dead { node: node.clone(), lease, message }
        })
        .collect()
    }

    /// Returns how many agents are not known to be dead.
    pub(super) fn living(&self, now: Instant) -> usize {
        self.lives.len() - self.dead(now).len()
    }

    pub(super) fn note_done(&mut self, node: &str) {
        if let Some(life) = self.lives.get_mut(node) {
            life.is_done = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn lease(renewed: &str, seconds: u64) -> Lease {
        let spec = json!({"holderIdentity": "n", "renewTime": renewed, "leaseDurationSeconds": seconds});
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_lease_that_stays_the_same_means_dead() {
        let (mut lives, start) = (AgentLives::default(), Instant::now());
        let mut dead = |lease: Option<Lease>, second| {
            let now = start + Duration::from_secs(second);
            lives.observe(lease.into_iter().collect(), now);
            let dead = lives.dead(now);
            if second == 400 {
                lives.note_done("n");
            }
            dead.len()
        };
        let [old, older] = ["2020-01-01T00:00:00.000000Z", "2019-01-01T00:00:00.000000Z"].map(|at| lease(at, 180));
        assert_eq!((dead(Some(old.clone()), 0), dead(Some(old.clone()), 100), dead(Some(old), 179)), (0, 0, 0));
        assert_eq!(dead(Some(older.clone()), 180), 0, "alive, although the clock went back");
        assert_eq!((dead(Some(older.clone()), 300), dead(Some(older.clone()), 400)), (0, 1));
        assert_eq!(dead(Some(older), 500), 0, "swept");
        let back = lease("2020-01-01T00:01:00Z", 180);
        let again = (dead(Some(back.clone()), 501), dead(Some(back.clone()), 600), dead(Some(back), 681));
        assert_eq!(again, (0, 0, 1), "back, and dead again");
        assert_eq!((dead(None, 682), dead(None, 800), dead(None, 862)), (0, 0, 1), "the Lease was removed");
    }

    #[test]
    fn a_renewal_in_the_future_counts_from_when_it_was_seen() {
        let start = Instant::now();
        for renewed in ["2026-11-21T12:00:00Z", "2099-01-01T00:00:00Z", "9999-12-31T23:59:59Z"] {
            let mut lives = AgentLives::default();
            let mut living = |second| {
                let now = start + Duration::from_secs(second);
                lives.observe(vec![lease(renewed, 180)], now);
                lives.living(now)
            };
            assert_eq!((living(0), living(100), living(179), living(180)), (1, 1, 1, 0), "{renewed}");
        }
    }

    #[test]
    fn only_the_holder_of_its_nodes_lease_is_an_agent() {
        let held_by = |holder: Value| -> Lease {
            let spec = json!({"holderIdentity": holder, "renewTime": "2099-01-01T00:00:00Z"});
            serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": spec})).unwrap()
        };
        assert!(held_by(json!("n")).is_of_agent());
        for other in [json!("m"), json!(""), Value::Null] {
            assert!(!held_by(other.clone()).is_of_agent(), "{other}");
        }
    }

    #[test]
    fn a_node_without_a_lease_has_no_agent_after_a_while() {
        let (mut lives, start) = (AgentLives::default(), Instant::now());
        lives.observe_ours("n", false, start);
        lives.observe(Vec::new(), start + WITHOUT_LEASE / 2);
        lives.observe_ours("n", false, start + WITHOUT_LEASE / 2);
        assert_eq!(lives.dead(start + WITHOUT_LEASE / 2), []);
        let dead = lives.dead(start + WITHOUT_LEASE);
        assert_eq!(dead.len(), 1);
        assert!(dead[0].message.ends_with("sends no heartbeat"));
        lives.note_done("n");
        lives.observe(Vec::new(), start + WITHOUT_LEASE);
        assert_eq!(lives.dead(start + 2 * WITHOUT_LEASE), []);
    }

    #[test]
    fn a_swept_node_is_swept_again_when_its_agent_had_lived_on() {
        let (mut lives, start) = (AgentLives::default(), Instant::now());
        let minutes = |minutes: u32| start + Duration::from_secs(60) * minutes;
        let mut at = |minute| {
            lives.observe(vec![lease("2026-11-21T12:00:00Z", 180)], minutes(minute));
            let found = lives.dead(minutes(minute)).len();
            if found > 0 {
                lives.note_done("n");
            }
            lives.observe_ours("n", minute != 5, minutes(minute));
            found
        };
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(&mut at), [0, 0, 0, 1, 0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn an_outage_of_the_api_server_kills_no_agent() {
        let (mut lives, start) = (AgentLives::default(), Instant::now());
        let mut dead = |second| {
            let now = start + Duration::from_secs(second);
            lives.observe(vec![lease("2026-11-21T12:00:00Z", 180)], now);
            lives.dead(now).len()
        };
        assert_eq!((dead(0), dead(60), dead(600), dead(700)), (0, 0, 0, 0), "it was away until the 600th second");
        assert_eq!(dead(780), 1);
    }

    #[test]
    fn in_a_single_round_the_clock_decides() {
        let wall: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let dead = |renewed: &str| death_by_clock(Some(&lease(renewed, 180)), wall);
        assert_eq!(dead("2026-11-21T11:57:01.5Z"), None);
        assert!(dead("2026-11-21T11:57:00Z").is_some_and(|text| text.ends_with("at 2026-11-21T11:57:00Z")));
        assert_eq!(dead("2026-11-21T12:30:00Z"), None, "in the future");
        assert!(death_by_clock(None, wall).is_some());
    }
}
