//! The kubelet's quirks (`eviction-semantics.md` §18 and addenda), each with a name by which it is switched.

use super::policy::Semantics;
use serde::{Deserialize, Serialize};

/// Something the kubelet does that nobody would ask for. `kubelet` semantics reproduce them all; `corrected` semantics mend
/// those for which [`Quirk::is_mended`] says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quirk {
    /// The containerfs copies of the thresholds that it shares a filesystem with do not count on the first pass (1).
    ContainerFsFirstPass,
    /// Ranked by inodes, a pod's request for bytes of ephemeral storage is subtracted from its count of inodes (2).
    InodesMinusBytes,
    /// A negative `evictionMaxPodGracePeriod` reaches the pod as it is (3). Mended: the pod's own grace period applies.
    NegativeMaxGrace,
    /// One good sample starts a soft threshold's grace period anew (4). Mended: ten seconds of good samples do; a shorter
    /// recovery just does not count.
    GraceRestartsAtOnce,
    /// A soft threshold raises the node condition before its grace period is over (5). Kept: schedulers should know early.
    ConditionBeforeGrace,
    /// With a transition period of zero the condition is never reported (6).
    ZeroTransitionHidesCondition,
    /// `100.0%` is a threshold that is always met (7). Mended: refused.
    AlwaysMetPercentage,
    /// Percentages are 32-bit floats: 10% of 100Gi is 10737418400 (8).
    Float32Percentages,
    /// Usage above capacity makes the available amount negative (9). Mended: zero.
    AvailableUnderflow,
    /// The node event is sent on every pass, even when nothing can be evicted (11).
    EventWithoutCandidate,
    /// After garbage collection every threshold must be unmet, or a pod goes; even one that garbage has no part in (12).
    /// Mended: the thresholds of the filesystems do.
    EveryThresholdAfterGarbageCollection,
    /// A pod without statistics goes first, whatever its priority (16). Mended: last.
    MissingStatisticsFirst,
    /// Evictions for a local-storage limit do not set the pod condition `DisruptionTarget` (18).
    LocalStorageWithoutDisruptionTarget,
    /// Pod-level resources make the request for ephemeral storage zero (19).
    PodLevelHidesStorageRequest,
    /// `spec.resources: {}` makes a pod BestEffort, whatever its containers request.
    EmptyPodResourcesBestEffort,
    /// A pod-level request below the sum of its containers' makes `oom_score_adj` larger than 1000, which the kernel refuses.
    OomScoreAdjAbove1000,
}

impl Quirk {
    /// Every quirk that can be switched, in the order of `eviction-semantics.md`.
    pub const ALL: [Self; 16] = [
        Self::ContainerFsFirstPass,
        Self::InodesMinusBytes,
        Self::NegativeMaxGrace,
        Self::GraceRestartsAtOnce,
        Self::ConditionBeforeGrace,
        Self::ZeroTransitionHidesCondition,
        Self::AlwaysMetPercentage,
        Self::Float32Percentages,
        Self::AvailableUnderflow,
        Self::EventWithoutCandidate,
        Self::EveryThresholdAfterGarbageCollection,
        Self::MissingStatisticsFirst,
        Self::LocalStorageWithoutDisruptionTarget,
        Self::PodLevelHidesStorageRequest,
        Self::EmptyPodResourcesBestEffort,
        Self::OomScoreAdjAbove1000,
    ];

    /// Returns the name used in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContainerFsFirstPass => "containerFsFirstPass",
            Self::InodesMinusBytes => "inodesMinusBytes",
            Self::NegativeMaxGrace => "negativeMaxGrace",
            Self::GraceRestartsAtOnce => "graceRestartsAtOnce",
            Self::ConditionBeforeGrace => "conditionBeforeGrace",
            Self::ZeroTransitionHidesCondition => "zeroTransitionHidesCondition",
            Self::AlwaysMetPercentage => "alwaysMetPercentage",
            Self::Float32Percentages => "float32Percentages",
            Self::AvailableUnderflow => "availableUnderflow",
            Self::EventWithoutCandidate => "eventWithoutCandidate",
            Self::EveryThresholdAfterGarbageCollection => "everyThresholdAfterGarbageCollection",
            Self::MissingStatisticsFirst => "missingStatisticsFirst",
            Self::LocalStorageWithoutDisruptionTarget => "localStorageWithoutDisruptionTarget",
            Self::PodLevelHidesStorageRequest => "podLevelHidesStorageRequest",
            Self::EmptyPodResourcesBestEffort => "emptyPodResourcesBestEffort",
            Self::OomScoreAdjAbove1000 => "oomScoreAdjAbove1000",
        }
    }

    /// Tells whether `corrected` semantics do without it.
    #[must_use]
    pub const fn is_mended(self) -> bool {
        !matches!(self, Self::ConditionBeforeGrace)
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The quirks that are reproduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Quirks(u32);

impl Quirks {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self((1 << Quirk::ALL.len()) - 1);

    /// Those of a set of rules.
    #[must_use]
    pub fn of(semantics: Semantics) -> Self {
        let mut quirks = Self::NONE;
        for quirk in Quirk::ALL {
            quirks.set(quirk, semantics == Semantics::Kubelet || !quirk.is_mended());
        }
        quirks
    }

    /// Tells whether `quirk` is reproduced.
    #[must_use]
    pub const fn has(self, quirk: Quirk) -> bool {
        self.0 & quirk.bit() != 0
    }

    /// Switches one on or off.
    pub const fn set(&mut self, quirk: Quirk, on: bool) {
        if on {
            self.0 |= quirk.bit();
        } else {
            self.0 &= !quirk.bit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bits_are_unique() {
        let mut names = Quirk::ALL.map(Quirk::as_str).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Quirk::ALL.len());
        assert_eq!(
            Quirk::ALL.iter().map(|quirk| quirk.bit()).fold(0, |all, bit| all ^ bit),
            (1 << Quirk::ALL.len()) - 1
        );
    }

    #[test]
    fn semantics_set_the_quirks_and_each_can_be_switched() {
        let kubelet = Quirks::of(Semantics::Kubelet);
        assert!(Quirk::ALL.iter().all(|quirk| kubelet.has(*quirk)));
        let mut corrected = Quirks::of(Semantics::Corrected);
        assert!(Quirk::ALL.iter().all(|quirk| corrected.has(*quirk) != quirk.is_mended()));
        corrected.set(Quirk::Float32Percentages, true);
        assert!(corrected.has(Quirk::Float32Percentages) && !corrected.has(Quirk::InodesMinusBytes));
    }
}
