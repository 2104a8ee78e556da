//! When garbage is collected before a pod is evicted, and how long the decision waits for it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::Monotonic;

use super::decider::RuntimeFacts;

/// A collection that takes longer no longer delays an eviction: a runtime may need a minute to remove one image.
const LONGEST: Duration = Duration::from_secs(60);
/// After nothing was left to collect, or the runtime was gone, the next collection waits this long.
const COOL_DOWN: Duration = Duration::from_secs(30);
/// An eviction waits this long for a runtime that restarts or is being looked for.
const RESTARTING: Duration = Duration::from_secs(10);
/// Observe mode lists garbage this often while a threshold stays met.
const LISTED_AGAIN: Duration = Duration::from_secs(60);

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
