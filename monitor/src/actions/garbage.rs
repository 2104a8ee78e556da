//! Garbage before pods: whether a pod may go yet, or what nobody needs is to be collected first.

use std::time::Duration;

use crate::config::{Mode, Policy};
use crate::eviction::garbage::{Collector, collectors, is_enough};
use crate::eviction::{Armed, Layout, Observation};
use crate::runtime::{CollectEnd, CollectOrder, Collected, Garbage, IsEnough, Runtime, State, Stores, View};
use crate::units::{Monotonic, Signal};

/// While it makes no end, a pod has to go all the same: a runtime may need a minute to remove one image.
const LONGEST: Duration = Duration::from_secs(60);
/// Once nothing was left, or the runtime was gone, it is not asked again for so long.
const PAUSE: Duration = Duration::from_secs(30);
/// A runtime that restarts, or is being looked for, has so long until a pod goes instead.
const RESTARTING: Duration = Duration::from_secs(10);
/// Observe mode lists anew this often, and so does not keep asking while a threshold stays met.
const LISTED_AGAIN: Duration = Duration::from_secs(60);

/// What follows for the pod that would have to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Garbage is being collected, and may be enough.
    Wait,
    /// There is nothing to wait for.
    GoOn,
}

/// What can be removed for a signal, in this order; nothing for most.
#[must_use]
pub fn garbage_for(signal: Signal, layout: Layout) -> Vec<Garbage> {
    let of = |collector: &Collector| match collector {
        Collector::Containers => Garbage::Containers,
        Collector::Images => Garbage::Images,
    };
    collectors(signal, layout).iter().map(of).collect()
}

/// Measures with `observe`, and is content once no threshold is met any more, by its minimum reclaim too.
#[must_use]
pub fn until_enough(
    policy: Policy,
    armed: Vec<Armed>,
    mut observe: impl FnMut() -> Observation + Send + 'static,
) -> IsEnough {
    Box::new(move || is_enough(&policy, &armed, &observe()))
}

/// Collections, one at a time, and not again and again.
#[derive(Debug, Default)]
pub struct GarbageFirst {
    under_way: Option<Monotonic>,
    not_before: Option<Monotonic>,
    /// Since when the runtime is waited for that nothing is known of yet.
    looking: Option<Monotonic>,
    /// The first of the collections that were cut off one after the other.
    cut_off: Option<Monotonic>,
}

impl GarbageFirst {
    /// To be asked when a threshold asks for a pod: gives the order to collect when that is due.
    pub fn ask(
        &mut self,
        runtime: &Runtime,
        mode: Mode,
        what: Vec<Garbage>,
        is_enough: impl FnOnce() -> IsEnough,
        now: Monotonic,
    ) -> Advice {
        let dry_run = mode == Mode::Observe;
        if what.is_empty() {
            return Advice::GoOn;
        }
        match self.under_way {
            Some(_) if dry_run => return Advice::GoOn,
            Some(since) if now.since(since) < LONGEST => return Advice::Wait,
            Some(_) => return Advice::GoOn,
            None if self.not_before.is_some_and(|not_before| now < not_before) => return Advice::GoOn,
            None => {}
        }
        // A runtime that is down would only say so.
        let view = runtime.view();
        if view.snapshot.is_none() {
            let is_waited_for = !dry_run && self.may_be_back(&view, now);
            return if is_waited_for { Advice::Wait } else { Advice::GoOn };
        }
        self.looking = None;
        if runtime.collect(CollectOrder { what, dry_run, is_enough: is_enough() }).is_err() {
            return Advice::GoOn;
        }
        self.under_way = Some(now);
        // Nothing is removed by a list: what observe mode says of pods is true all the same.
        if dry_run { Advice::GoOn } else { Advice::Wait }
    }

    /// Whether it is worth waiting for a moment.
    fn may_be_back(&mut self, view: &View, now: Monotonic) -> bool {
        let since = match view.state {
            State::Looking => *self.looking.get_or_insert(now),
            // Where it keeps things is known once it has answered.
            State::Down { since, .. } if view.stores != Stores::default() => since,
            State::Down { .. } | State::Up { .. } | State::Off | State::Absent => return false,
        };
        now.since(since) < RESTARTING
    }

    /// Whether a collection is under way.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// A collection has ended; look at the node anew before anything else is decided.
    pub fn note(&mut self, collected: &Collected, now: Monotonic) {
        self.under_way = None;
        let is_cut_off = matches!(collected.end, CollectEnd::Interrupted(_));
        self.cut_off = if is_cut_off { self.cut_off.or(Some(now)) } else { None };
        self.not_before = match collected.end {
            CollectEnd::Enough => None,
            // The runtime may only be restarting.
            CollectEnd::Interrupted(_) if self.cut_off.is_some_and(|first| now.since(first) < RESTARTING) => None,
            CollectEnd::Exhausted | CollectEnd::Interrupted(_) => Some(now.after(PAUSE)),
            CollectEnd::Listed => Some(now.after(LISTED_AGAIN)),
        };
    }
}

#[cfg(test)]
#[path = "garbage_tests.rs"]
mod tests;
