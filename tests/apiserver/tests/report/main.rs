//! What the agent says about its node: conditions, taints, events; and what is left of it when it dies. Each fault is a case.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod events;
#[path = "../../../src/reference.rs"]
#[expect(dead_code, reason = "the guest uses the rest")]
mod reference;
mod status;
mod support;
mod sweep;
