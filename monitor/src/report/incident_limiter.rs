//! The limit of what is sent or logged of incidents. A tenant can cause OOM kills at any time: they must silence neither the incidents of
//! other namespaces nor evictions.

use std::time::Duration;

use super::limits::{SharedLimiter, parts};
use crate::incidents::{Account, Incident, Kind};
use crate::units::Monotonic;

/// All OOM kills together take at most this part, and those of one account this part of its share.
const PART_OF_KILLS: u32 = 2;

#[derive(Debug)]
pub(super) struct IncidentLimiter(SharedLimiter<Charge>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Charge {
    Evictions(Account),
    OomKills(Account),
    AllOomKills,
}

impl IncidentLimiter {
    pub(super) fn new(burst: u32, interval: Duration) -> Self {
        Self(SharedLimiter::new(burst, interval))
    }

    /// Returns how many incidents were suppressed since the last admitted one; `None` suppresses this one.
    pub(super) fn admit(&mut self, incident: &Incident, now: Monotonic) -> Option<u64> {
        let accounts = Account::of(incident);
        let charges = match incident.kind {
            Kind::Eviction => parts(accounts, Charge::Evictions),
            Kind::OomKill => {
                let own = parts(accounts, Charge::OomKills).into_iter();
                let own = own.map(|(charge, part)| (charge, part.saturating_mul(PART_OF_KILLS)));
                own.chain([(Charge::AllOomKills, PART_OF_KILLS)]).collect()
            }
        };
        self.0.admit(&charges, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incidents::model::{Eviction, OomKill, Victim};

    fn kill(pod: &str) -> Incident {
        let victim = Victim { workload: Some(pod.to_owned()), pod: Some(pod.to_owned()), ..Victim::default() };
        let oom_kill = Some(OomKill { victims: vec![victim], ..OomKill::default() });
        Incident { kind: Kind::OomKill, oom_kill, ..Incident::default() }
    }

    fn eviction(pod: &str) -> Incident {
        let eviction = Eviction { workload: pod.to_owned(), pod: Some(pod.to_owned()), ..Eviction::default() };
        Incident { kind: Kind::Eviction, eviction: Some(eviction), ..Incident::default() }
    }

    #[test]
    fn kills_of_one_namespace_suppress_neither_others_nor_evictions() {
        let mut limiter = IncidentLimiter::new(6, Duration::from_secs(10));
        let now = Monotonic(1);
        let of_tenant = (0..10).filter(|it| limiter.admit(&kill(&format!("tenant/job-{it}")), now).is_some());
        assert_eq!(of_tenant.count(), 1);
        assert_eq!(limiter.admit(&kill("shop/web"), now), Some(9), "and it has the number of those that had none");
        for pod in ["tenant/job-1", "shop/web", "batch/report"] {
            assert_eq!(limiter.admit(&eviction(pod), now), Some(0), "{pod}");
        }
    }

    #[test]
    fn evictions_of_one_namespace_leave_half_to_others() {
        let mut limiter = IncidentLimiter::new(200, Duration::from_millis(100));
        let now = Monotonic(1);
        let of_tenant = (0..300).filter(|it| limiter.admit(&eviction(&format!("tenant/job-{it}")), now).is_some());
        assert_eq!(of_tenant.count(), 100);
        assert!(limiter.admit(&eviction("shop/web"), now).is_some());
    }
}
