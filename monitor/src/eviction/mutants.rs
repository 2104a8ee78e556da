//! Wrong rules in the place of right ones, to show that the simulated node finds them. The feature `mutants` alone compiles them: no program
//! that ships has it.

#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicUsize, Ordering};

/// Gives the value of the right rule, or under the feature `mutants` that of the chosen wrong one.
macro_rules! rule {
    ($mutant:ident: $wrong:expr, $right:expr) => {{
        #[cfg(feature = "mutants")]
        let value = if $crate::eviction::mutants::is_chosen($crate::eviction::mutants::Mutant::$mutant) {
            $wrong
        } else {
            $right
        };
        #[cfg(not(feature = "mutants"))]
        let value = $right;
        value
    }};
}
pub(crate) use rule;

#[cfg(feature = "mutants")]
crate::units::named_enum! {
    pub enum Mutant {
        // Rules of the first edition.
        GrowthWithinRequest = "growth up to the request is a leak",
        PoorForEver = "after two poor evictions only culprits are evicted, for ever",
        LargestAreWatched = "growth is measured for the largest by memory.current",
        MinimumWithoutBound = "the minimum gain doubles without bound",
        FilePagesCount = "file pages count in order and protection",
        GrowthIsGuessed = "unknown growth is the size",
        ExemptForAll = "the reason for all that stay is that they are critical",
        DwarfsBesideTheLargest = "a tenth of the largest, evictable or not, is the least gain",
        PaceAtTheCliff = "the budget holds at the cliff",
        EffectAtTheCliff = "the rule of effect holds at the cliff",
        // Wrong versions of the second edition.
        NoCliff = "there is no cliff",
        NoMinimum = "any time that is bought helps",
        DwarfsGo = "a gain of any size makes a difference",
        EveryGrowerIsACulprit = "every workload that grows is a culprit",
        NoCulprits = "no workload is a culprit",
        BystandersAsRanked = "culprits have no precedence",
        NoPromise = "the request protects nobody",
        NoPending = "no eviction waits for the memory of earlier victims",
        HighPriorityFirst = "a higher priority goes first",
        ObserveByRank = "observe mode names the first of the ranking",
        OneByOne = "every candidate is measured one by one",
    }
}

#[cfg(feature = "mutants")]
static CHOSEN: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Puts the wrong rule in the place of the right one, in the whole process; `None` takes it away.
#[cfg(feature = "mutants")]
pub fn choose(mutant: Option<Mutant>) {
    CHOSEN.store(mutant.map_or(usize::MAX, |mutant| mutant as usize), Ordering::Relaxed);
}

#[cfg(feature = "mutants")]
pub(crate) fn is_chosen(mutant: Mutant) -> bool {
    CHOSEN.load(Ordering::Relaxed) == mutant as usize
}
