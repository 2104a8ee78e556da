//! Decides when garbage is collected before a pod is evicted, and how long the eviction waits for the collection.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::Monotonic;

/// A collection delays an eviction for this long at most. A runtime may need a minute to remove one image.
const LONGEST: Duration = Duration::from_secs(60);
/// The next collection waits this long after one that left nothing to collect, or after repeated interruptions by the runtime.
const COOL_DOWN: Duration = Duration::from_secs(30);
/// An eviction waits this long for a runtime that restarts or whose socket is being looked for.
const RESTARTING: Duration = Duration::from_secs(10);
/// Observe mode lists garbage this often while a threshold stays met.
const LISTED_AGAIN: Duration = Duration::from_secs(60);

/// The container runtime, as far as garbage collection depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RuntimeFacts {
    /// The node has no container runtime that could collect garbage.
    #[default]
    None,
    /// The agent is looking for the runtime.
    Looking,
    /// The runtime answered once, and has not answered since this time.
    Down { since: Monotonic },
    /// The runtime answers.
    Up,
}

/// The step about garbage that precedes an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Wait: a collection is under way and may suffice, or the runtime may come back.
    Wait,
    /// Evict without waiting for a collection.
    GoOn,
    /// Order a collection now.
    Collect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectionEnd {
    /// No threshold is met any more.
    Enough,
    /// Nothing is left to collect.
    Exhausted,
    /// The runtime failed.
    Interrupted,
    /// Observe mode: garbage was listed, not removed.
    Listed,
}

/// The state of garbage collection. One collection runs at a time, and a cool-down separates collections that freed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CollectionMemory {
    under_way: Option<Monotonic>,
    not_before: Option<Monotonic>,
    /// Since when an eviction has been waiting for the agent to find the runtime.
    looking: Option<Monotonic>,
    /// When the first of consecutive interrupted collections ended.
    interrupted: Option<Monotonic>,
}

impl CollectionMemory {
    /// Returns what an eviction for a disk has to do about garbage first.
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

    /// Notes that the runtime took the order to collect.
    pub fn start(&mut self, now: Monotonic) {
        self.under_way = Some(now);
    }

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

    /// Asks for advice and, like the driver, starts the collection that is advised.
    fn ask(memory: &mut CollectionMemory, runtime: RuntimeFacts, is_dry_run: bool, second: u64) -> Advice {
        let advice = memory.advise(runtime, is_dry_run, at(second));
        if advice == Advice::Collect {
            memory.start(at(second));
        }
        advice
    }

    #[test]
    fn an_eviction_waits_ten_seconds_for_a_restarting_runtime() {
        let mut memory = CollectionMemory::default();
        let down = RuntimeFacts::Down { since: at(100) };
        assert_eq!(ask(&mut memory, down, false, 101), Advice::Wait);
        assert_eq!(ask(&mut memory, down, true, 101), Advice::GoOn);
        assert_eq!(ask(&mut memory, down, false, 110), Advice::GoOn, "the runtime has been down for ten seconds");
        memory.end(CollectionEnd::Interrupted, at(102));
        assert_eq!(ask(&mut memory, down, false, 103), Advice::Wait, "the restart interrupted the collection");
        memory.end(CollectionEnd::Interrupted, at(112));
        assert_eq!(memory.not_before, Some(at(142)), "repeated interruptions are not one restart");
    }

    #[test]
    fn an_eviction_waits_while_the_agent_looks_for_the_runtime() {
        let mut memory = CollectionMemory::default();
        for (second, expected) in [(5, Advice::Wait), (14, Advice::Wait), (15, Advice::GoOn)] {
            assert_eq!(ask(&mut memory, RuntimeFacts::Looking, false, second), expected);
        }
        assert_eq!(ask(&mut memory, RuntimeFacts::None, false, 5), Advice::GoOn);
    }

    #[test]
    fn an_eviction_waits_at_most_a_minute_for_a_collection() {
        let mut memory = CollectionMemory::default();
        let ask = |memory: &mut CollectionMemory, second| ask(memory, RuntimeFacts::Up, false, second);
        assert_eq!(ask(&mut memory, 1), Advice::Collect);
        assert_eq!(ask(&mut memory, 60), Advice::Wait);
        assert_eq!(ask(&mut memory, 61), Advice::GoOn, "a collection delays an eviction for a minute at most");
        memory.end(CollectionEnd::Exhausted, at(62));
        assert_eq!(ask(&mut memory, 91), Advice::GoOn, "nothing was left to collect");
        assert_eq!(ask(&mut memory, 92), Advice::Collect, "the cool-down is over");
        memory.end(CollectionEnd::Enough, at(93));
        assert_eq!(ask(&mut memory, 93), Advice::Collect, "no cool-down follows a collection that sufficed");
    }

    #[test]
    fn observe_mode_lists_garbage_and_does_not_wait() {
        let mut memory = CollectionMemory::default();
        let ask = |memory: &mut CollectionMemory, second| ask(memory, RuntimeFacts::Up, true, second);
        assert_eq!(ask(&mut memory, 1), Advice::Collect);
        assert_eq!(ask(&mut memory, 1), Advice::GoOn);
        memory.end(CollectionEnd::Listed, at(2));
        assert_eq!(ask(&mut memory, 61), Advice::GoOn, "garbage was listed less than a minute ago");
        assert_eq!(ask(&mut memory, 62), Advice::Collect);
    }
}
