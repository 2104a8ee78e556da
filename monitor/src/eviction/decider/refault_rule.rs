//! Charges refaults to the workload that causes them. Under `corrected` semantics the file pages that are read back as fast as they are
//! dropped do not count as available. One pod's reads may so meet a threshold that `MemAvailable` alone does not meet. Then only the
//! workload that causes the refaults may be evicted.

use crate::config::{Policy, Semantics};
use crate::eviction::MetThreshold;
use crate::eviction::rank::Candidate;
use crate::units::{Amount, CgroupId, Signal};

use super::memory::cool_down;
use super::snapshot::{Refaults, Snapshot};
use super::{Decider, Next, Note, Rules};

/// The workloads that may be evicted for a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Charged {
    /// The threshold is met without the correction too.
    All,
    Only(CgroupId),
    NoWorkload,
}

impl Refaults {
    fn charged(&self, policy: &Policy, met: &MetThreshold) -> Charged {
        let is_corrected = policy.semantics == Semantics::Corrected && met.threshold.signal == Signal::MemoryAvailable;
        let corrected = Amount::from_units(met.value.available);
        let without = corrected + Amount::from_units(self.correction.signed());
        // Above its quantity only minimum reclaim holds the threshold, up to its end.
        let met_below = if corrected < met.quantity { met.quantity } else { met.wanted(policy.quirks) };
        if !is_corrected || self.is_zero() || without < met_below {
            return Charged::All;
        }
        match self.largest {
            Some((id, own)) if own.0 >= self.correction.0 / 2 => Charged::Only(id),
            _ => Charged::NoWorkload,
        }
    }
}

impl<C: Candidate> Decider<C> {
    /// Leaves only the workload in the ranking that the refaults are charged to, if the threshold is met because of them alone. If no
    /// candidate is left, reports that and proceeds to the next threshold.
    pub(super) fn charge_refaults(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Option<Next> {
        let (agent, met) = (rules.agent()?, self.acted_on()?);
        let only = match snapshot.refaults.charged(rules.policy, met) {
            Charged::All => return None,
            Charged::Only(id) => Some(id),
            Charged::NoWorkload => None,
        };
        let (kind, threshold) = ((met.threshold.signal, met.is_hard()), met.place);
        self.turn.ranking.retain(|ranked| Some(ranked.candidate.cgroup()) == only);
        if !self.turn.ranking.is_empty() {
            return None;
        }
        let (now, pause) = (snapshot.clock(), cool_down(kind.0.resource(), agent.mode));
        self.memory.cool_downs.set(kind, now, pause);
        self.retry_at(now.after(pause));
        let Refaults { correction, largest } = snapshot.refaults;
        self.turn.notes.push(Note::RefaultsOnly { threshold, correction, by: largest.map(|(id, _)| id) });
        Some(self.skip_threshold(rules, snapshot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Quirks, ThresholdValue};
    use crate::eviction::SignalValue;
    use crate::units::Bytes;

    const MIB: u64 = 1 << 20;

    fn charged(semantics: Semantics, available: u64, reclaim: u64, correction: u64, own: Option<u64>) -> Charged {
        let mut threshold = Policy::default_hard_threshold();
        threshold.min_reclaim = (reclaim > 0).then(|| ThresholdValue::bytes(Bytes::from_mib(reclaim)));
        let quantity = threshold.value.resolve(0, Quirks::NONE);
        let value = SignalValue::now(Signal::MemoryAvailable, Bytes::from_mib(available), Bytes::from_mib(1000));
        let met = MetThreshold { place: 0, threshold, quantity, value, is_fresh: true };
        let policy = Policy { semantics, ..Policy::default() };
        let largest = own.map(|own| (CgroupId(7), Bytes(own * MIB)));
        Refaults { correction: Bytes(correction * MIB), largest }.charged(&policy, &met)
    }

    #[test]
    fn refaults_are_charged_to_the_workload_that_causes_half_of_them() {
        use Charged::{All, NoWorkload, Only};
        let only = Only(CgroupId(7));
        // In MiB, with a threshold of 100.
        for (name, available, reclaim, correction, own, expected) in [
            ("no refaults", 90, 0, 0, None, All),
            ("met without the correction too", 50, 0, 40, Some(40), All),
            ("met by the correction alone", 50, 0, 60, Some(60), only),
            ("half of the correction", 50, 0, 60, Some(30), only),
            ("many workloads refault", 50, 0, 60, Some(29), NoWorkload),
            ("not counted yet", 50, 0, 60, None, NoWorkload),
            ("exactly at the threshold", 50, 0, 50, Some(1), NoWorkload),
            ("held by minimum reclaim", 110, 50, 20, Some(1), All),
            ("held by minimum reclaim and the correction", 140, 50, 20, Some(1), NoWorkload),
            ("crossed by the correction, while minimum reclaim is set", 90, 50, 20, Some(20), only),
        ] {
            assert_eq!(charged(Semantics::Corrected, available, reclaim, correction, own), expected, "{name}");
            assert_eq!(charged(Semantics::Kubelet, available, reclaim, correction, own), All, "{name}");
        }
    }
}
