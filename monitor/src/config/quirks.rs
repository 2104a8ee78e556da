//! The semantics that apply, and the kubelet's quirks (`eviction-semantics.md` §18 and addenda), each with a name that switches it.

use serde::{Deserialize, Serialize};

use crate::units::named_enum;

named_enum! {
    /// The rules that apply. They decide, where the file does not, which figure is `memory.available`, which quirks apply, and how percentages
    /// are computed.
    #[derive(Default, Serialize, Deserialize, clap::ValueEnum)]
    pub enum Semantics {
        /// The memory that the kernel can hand out (`MemAvailable`), and the kubelet's rules without its quirks.
        #[default]
        Corrected = "corrected",
        /// Capacity minus working set, and the kubelet's rules with its quirks.
        Kubelet = "kubelet",
    }
}

named_enum! {
    /// A behaviour of the kubelet that no operator wants. `kubelet` semantics reproduce all quirks. `corrected` semantics omit those for
    /// which [`Quirk::is_mended`] is true. In the order of `eviction-semantics.md`, whose numbers follow in brackets.
    pub enum Quirk {
        /// In the first step, the containerfs copies of the thresholds of a shared filesystem do not count (1).
        ContainerFsFirstPass = "containerFsFirstPass",
        /// Ranking by inodes subtracts a pod's request for bytes of ephemeral storage from its number of inodes (2).
        InodesMinusBytes = "inodesMinusBytes",
        /// A negative `evictionMaxPodGracePeriod` reaches the pod unchanged (3). Mended: the pod's own grace period applies.
        NegativeMaxGrace = "negativeMaxGrace",
        /// One good sample restarts a soft threshold's grace period (4). Mended: ten seconds of good samples do, and a shorter recovery
        /// only does not count.
        GraceRestartsAtOnce = "graceRestartsAtOnce",
        /// A soft threshold sets the node condition before its grace period ends (5). Kept, because schedulers should know early.
        ConditionBeforeGrace = "conditionBeforeGrace",
        /// With a transition period of zero the condition is never reported (6).
        ZeroTransitionHidesCondition = "zeroTransitionHidesCondition",
        /// `100.0%` is a threshold that is always met (7). Mended: the value is refused.
        AlwaysMetPercentage = "alwaysMetPercentage",
        /// Percentages are 32-bit floats: 10% of 100Gi is 10737418400 (8).
        Float32Percentages = "float32Percentages",
        /// Usage above capacity makes the available amount negative (9). Mended: the amount is zero.
        AvailableUnderflow = "availableUnderflow",
        /// Each step sends the node event, even without a candidate (11).
        EventWithoutCandidate = "eventWithoutCandidate",
        /// After garbage collection a pod is evicted unless no threshold is met, including thresholds that garbage does not affect (12).
        /// Mended: only the thresholds of filesystems count.
        EveryThresholdAfterGarbageCollection = "everyThresholdAfterGarbageCollection",
        /// A pod without statistics ranks first, whatever its priority (16). Mended: it ranks last.
        MissingStatisticsFirst = "missingStatisticsFirst",
        /// Evictions for a local-storage limit do not set the pod condition `DisruptionTarget` (18).
        LocalStorageWithoutDisruptionTarget = "localStorageWithoutDisruptionTarget",
        /// Pod-level resources make the request for ephemeral storage zero (19).
        PodLevelHidesStorageRequest = "podLevelHidesStorageRequest",
        /// `spec.resources: {}` makes a pod BestEffort, whatever its containers request.
        EmptyPodResourcesBestEffort = "emptyPodResourcesBestEffort",
        /// A pod-level request below the sum of its containers' requests makes `oom_score_adj` exceed 1000, which the kernel refuses.
        OomScoreAdjAbove1000 = "oomScoreAdjAbove1000",
        /// The limit of local storage of a sidecar is not checked (kubernetes/kubernetes#138371; until 1.36).
        SidecarStorageLimitIgnored = "sidecarStorageLimitIgnored",
        /// Where images have a filesystem of their own, a container's limit of local storage counts its logs only (#139205).
        ContainerLimitWithoutWritableLayer = "containerLimitWithoutWritableLayer",
        /// The message of an eviction for a disk leaves out the volumes, so that it names 122Ki where an emptyDir holds 60Gi (#130439).
        MessageWithoutVolumes = "messageWithoutVolumes",
        /// For nodefs no garbage is collected where images have a filesystem of their own. Mended: the logs of dead containers are on nodefs.
        NoGarbageCollectionForNodeFs = "noGarbageCollectionForNodeFs",
        /// The space is measured as soon as the runtime has answered that an image is removed; containerd 2.1 frees it later (#130663).
        ImagesCountAsFreed = "imagesCountAsFreed",
        /// Huge pages count as available memory (#137984; until 1.36). `corrected` semantics compare `MemAvailable`, which has none.
        HugePagesAvailable = "hugePagesAvailable",
        /// The memory that a pod's claims have (Dynamic Resource Allocation, 1.37) is no part of its request (#140009).
        ClaimedMemoryIgnored = "claimedMemoryIgnored",
        /// ZFS's file cache (ARC) is used memory, although ZFS drops it on demand. Mended: what can be dropped is available.
        ArcIsUsed = "arcIsUsed",
        /// Free CMA pages are available, although only movable allocations can use them. Mended: they are not.
        CmaIsAvailable = "cmaIsAvailable",
        /// Page cache that `memory.min` protects is available, although the kernel never hands it out. Mended: it is not.
        ProtectedCacheIsAvailable = "protectedCacheIsAvailable",
        /// Page cache that `memory.low` protects is available. Kept, because the kernel hands it out before its OOM killer acts.
        LowProtectedCacheIsAvailable = "lowProtectedCacheIsAvailable",
        /// Huge pages that a workload is charged with are part of its usage, although its end returns them only to their pool. Mended:
        /// they are not.
        HugePagesAreUsage = "hugePagesAreUsage",
    }
}

impl Quirk {
    /// Returns whether `corrected` semantics omit the quirk.
    pub const fn is_mended(self) -> bool {
        !matches!(self, Self::ConditionBeforeGrace | Self::LowProtectedCacheIsAvailable)
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Quirks(u32);

impl Quirks {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self((1 << Quirk::ALL.len()) - 1);

    pub fn of(semantics: Semantics) -> Self {
        let mut quirks = Self::NONE;
        for quirk in Quirk::ALL {
            quirks.set(quirk, semantics == Semantics::Kubelet || !quirk.is_mended());
        }
        quirks
    }

    pub const fn has(self, quirk: Quirk) -> bool {
        self.0 & quirk.bit() != 0
    }

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
