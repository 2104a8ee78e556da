//! What the agent says about its node: conditions, taints, events; and what is left of it when it dies. Each fault is a case.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod events;
mod status;
mod support;
mod sweep;
