//! `oom_score_adj` by QoS class: whom the kernel's OOM killer should prefer when the agent was too late.

use crate::config::Bytes;
use crate::workloads::QosClass;

/// The value for a process of such a workload on a node of `capacity` (`eviction-semantics.md` §15, Kubernetes 1.36).
#[must_use]
pub fn oom_score_adj(qos: QosClass, request: Bytes, capacity: Bytes) -> i16 {
    match qos {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let share = u128::from(request.0) * 1000 / u128::from(capacity.0.max(1));
            let share = i16::try_from(share).unwrap_or(i16::MAX);
            1000_i16.saturating_sub(share).clamp(3, 999)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burstable_examples_of_the_kubelet() {
        const MIB: u64 = 1 << 20;
        let (small, large) = (Bytes(4096 * MIB), Bytes(16384 * MIB));
        for (request, capacity, adj) in [
            (0, small, 999),
            (5 * MIB, small, 999),
            (100 * MIB, small, 976),
            (1024 * MIB, small, 750),
            (3072 * MIB, small, 250),
            (4096 * MIB, small, 3),
            (100 * MIB, large, 994),
            (1024 * MIB, large, 938),
            (4090 * MIB, large, 751),
            (u64::MAX, small, 3),
            (1, Bytes(0), 3),
        ] {
            assert_eq!(oom_score_adj(QosClass::Burstable, Bytes(request), capacity), adj, "{request} of {capacity}");
        }
    }

    #[test]
    fn the_other_classes_are_fixed() {
        assert_eq!(oom_score_adj(QosClass::Guaranteed, Bytes(1), Bytes(1)), -997);
        assert_eq!(oom_score_adj(QosClass::BestEffort, Bytes(0), Bytes(1)), 1000);
    }
}
