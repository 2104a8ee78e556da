//! The garbage that the runtime collects for each signal.

use crate::config::{Policy, Quirks};
use crate::eviction::garbage::{Collector, collectors, is_enough};
use crate::eviction::{Armed, Layout, Observation};
use crate::runtime::{Garbage, IsEnough};
use crate::units::Signal;

/// Returns what the runtime can collect for a signal, in order; empty for most signals.
pub fn garbage_for(signal: Signal, layout: Layout, quirks: Quirks) -> Vec<Garbage> {
    let of = |collector: &Collector| match collector {
        Collector::Containers => Garbage::Containers,
        Collector::Images => Garbage::Images,
    };
    collectors(signal, layout, quirks).iter().map(of).collect()
}

/// Returns the check that ends a collection: no threshold is met any more, its minimum reclaim included.
pub fn until_enough(
    policy: Policy,
    armed: Vec<Armed>,
    mut observe: impl FnMut() -> Observation + Send + 'static,
) -> IsEnough {
    Box::new(move || is_enough(&policy, &armed, &observe()))
}

#[cfg(test)]
#[path = "garbage_tests.rs"]
mod tests;
