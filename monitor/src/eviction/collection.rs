//! When garbage is collected before a pod is evicted, and how long the decision waits for it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::Monotonic;

/// A collection that takes longer no longer delays an eviction: a runtime may need a minute to remove one image.
const LONGEST: Duration = Duration::from_secs(60);
/// After nothing was left to collect, or the runtime was gone, the next collection waits this long.
const COOL_DOWN: Duration = Duration::from_secs(30);
/// An eviction waits this long for a runtime that restarts or is being looked for.
const RESTARTING: Duration = Duration::from_secs(10);
/// Observe mode lists garbage this often while a threshold stays met.
const LISTED_AGAIN: Duration = Duration::from_secs(60);

/// The container runtime, as far as garbage collection depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RuntimeFacts {
    /// There is none, or none that could collect garbage.
    #[default]
    None,
    /// It is being looked for.
    Looking,
    /// It answered before, and has not since.
    Down { since: Monotonic },
    /// It answers.
    Up,
}

/// What follows for the eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Garbage is being collected, and may suffice.
    Wait,
    /// Nothing is worth waiting for.
    GoOn,
    /// Collect now.
    Collect,
}

/// How a collection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectionEnd {
    /// No threshold is met any more.
    Enough,
    /// Nothing is left to collect.
    Exhausted,
    /// The runtime failed.
    Interrupted,
    /// Observe mode: only listed.
    Listed,
}

/// Collections: one at a time, and not again and again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CollectionMemory {
    under_way: Option<Monotonic>,
    not_before: Option<Monotonic>,
    /// Since when an unknown runtime is waited for.
    looking: Option<Monotonic>,
    /// The first of consecutive interrupted collections.
    interrupted: Option<Monotonic>,
}

impl CollectionMemory {
    /// Returns what an eviction for a disk does about garbage first.
    pub fn advise(&mut self, runtime: RuntimeFacts, is_dry_run: bool, now: Monotonic) -> Advice {
        match self.under_way {
            Some(since) if !is_dry_run && now.since(since) < LONGEST => return Advice::Wait,
            Some(_) => return Advice::GoOn,
            None if self.not_before.is_some_and(|not_before| now < not_before) => return Advice::GoOn,
            None => {}
        }
        let since = match runtime {
            RuntimeFacts::Up => {
                self.looking = None;
                return Advice::Collect;
            }
            RuntimeFacts::None => return Advice::GoOn,
            _ if is_dry_run => return Advice::GoOn,
            RuntimeFacts::Looking => *self.looking.get_or_insert(now),
            RuntimeFacts::Down { since } => since,
        };
        if now.since(since) < RESTARTING { Advice::Wait } else { Advice::GoOn }
    }

    /// The runtime took the order.
    pub fn start(&mut self, now: Monotonic) {
        self.under_way = Some(now);
    }

    /// A collection has ended.
    pub fn end(&mut self, end: CollectionEnd, now: Monotonic) {
        self.under_way = None;
        self.interrupted = if end == CollectionEnd::Interrupted { self.interrupted.or(Some(now)) } else { None };
        self.not_before = match end {
            CollectionEnd::Enough => None,
            // The runtime may only be restarting.
            CollectionEnd::Interrupted if self.interrupted.is_some_and(|first| now.since(first) < RESTARTING) => None,
            CollectionEnd::Exhausted | CollectionEnd::Interrupted => Some(now.after(COOL_DOWN)),
            CollectionEnd::Listed => Some(now.after(LISTED_AGAIN)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Monotonic {
        Monotonic(second * 1_000_000_000)
    }

    /// As the driver does: an order that is advised is taken.
    fn ask(memory: &mut CollectionMemory, runtime: RuntimeFacts, is_dry_run: bool, second: u64) -> Advice {
        let advice = memory.advise(runtime, is_dry_run, at(second));
        if advice == Advice::Collect {
            memory.start(at(second));
        }
        advice
    }

    #[test]
    fn an_eviction_waits_for_a_restarting_runtime_for_a_while() {
        let mut memory = CollectionMemory::default();
        let down = RuntimeFacts::Down { since: at(100) };
        assert_eq!(ask(&mut memory, down, false, 101), Advice::Wait);
        assert_eq!(ask(&mut memory, down, true, 101), Advice::GoOn);
        assert_eq!(ask(&mut memory, down, false, 110), Advice::GoOn, "it stays away");
        memory.end(CollectionEnd::Interrupted, at(102));
        assert_eq!(ask(&mut memory, down, false, 103), Advice::Wait, "the restart cut it off");
        memory.end(CollectionEnd::Interrupted, at(112));
        assert_eq!(memory.not_before, Some(at(142)), "again and again is no restart");
    }

    #[test]
    fn an_eviction_waits_while_the_runtime_is_looked_for() {
        let mut memory = CollectionMemory::default();
        for (second, expected) in [(5, Advice::Wait), (14, Advice::Wait), (15, Advice::GoOn)] {
            assert_eq!(ask(&mut memory, RuntimeFacts::Looking, false, second), expected);
        }
        assert_eq!(ask(&mut memory, RuntimeFacts::None, false, 5), Advice::GoOn);
    }

    #[test]
    fn an_eviction_waits_for_a_collection_not_for_ever() {
        let mut memory = CollectionMemory::default();
        let ask = |memory: &mut CollectionMemory, second| ask(memory, RuntimeFacts::Up, false, second);
        assert_eq!(ask(&mut memory, 1), Advice::Collect);
        assert_eq!(ask(&mut memory, 60), Advice::Wait);
        assert_eq!(ask(&mut memory, 61), Advice::GoOn, "a collection that does not end delays nothing");
        memory.end(CollectionEnd::Exhausted, at(62));
        assert_eq!(ask(&mut memory, 91), Advice::GoOn, "nothing was left");
        assert_eq!(ask(&mut memory, 92), Advice::Collect, "there may be garbage by now");
        memory.end(CollectionEnd::Enough, at(93));
        assert_eq!(ask(&mut memory, 93), Advice::Collect, "it sufficed once, and may again");
    }

    #[test]
    fn observe_mode_lists_and_waits_for_nothing() {
        let mut memory = CollectionMemory::default();
        let ask = |memory: &mut CollectionMemory, second| ask(memory, RuntimeFacts::Up, true, second);
        assert_eq!(ask(&mut memory, 1), Advice::Collect);
        assert_eq!(ask(&mut memory, 1), Advice::GoOn);
        memory.end(CollectionEnd::Listed, at(2));
        assert_eq!(ask(&mut memory, 61), Advice::GoOn, "listed a minute ago at most");
        assert_eq!(ask(&mut memory, 62), Advice::Collect);
    }
}
