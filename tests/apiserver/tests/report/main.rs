//! Conditions, taints and events, and the sweeper, with each fault.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod drill_down;
mod events;
#[path = "../../../src/reference.rs"]
#[expect(dead_code, reason = "the guest uses the rest")]
mod reference;
mod status;
mod support;
mod sweep;
mod taints;
