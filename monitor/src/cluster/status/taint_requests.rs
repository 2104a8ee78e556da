//! Requests that replace the node's list of taints.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::super::api_call::{Failure, call};
use super::super::api_client::Context;
use super::node_object::NodeObject;
use super::status_patches;

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
/// Conflicts in a row after which the whole node is compared. A failed test is answered with 422, as is a list that the API server or a
/// webhook refuses; the answer to the merge patch tells the two apart.
const CONFLICTS: u32 = 2;

/// Chooses the kind of patch.
#[derive(Clone, Copy)]
pub(super) struct TaintRequests<'c> {
    context: &'c Context,
    /// Conflicts since the last success.
    conflicts: u32,
}

/// A request that is not sent yet.
pub(super) struct TaintRequest<'c> {
    context: &'c Context,
    content_type: &'static str,
    body: Value,
}

impl<'c> TaintRequests<'c> {
    pub(super) const fn of(context: &'c Context) -> Self {
        Self { context, conflicts: 0 }
    }

    /// Builds the request for these taints, which are those of `seen` but for the agent's.
    pub(super) fn build(&self, taints: &[Value], seen: &NodeObject) -> TaintRequest<'c> {
        let of_list = || status_patches::taint_list_patch(taints, seen);
        let (content_type, body) = match (self.conflicts < CONFLICTS).then(of_list).flatten() {
            Some(body) => (JSON, body),
            None => (MERGE, status_patches::taints_patch(taints, seen)),
        };
        TaintRequest { context: self.context, content_type, body }
    }

    /// Notes the answer to a request.
    pub(super) fn note(&mut self, answer: &Result<NodeObject, Failure>) {
        match answer {
            Ok(_) => self.conflicts = 0,
            Err(Failure::Conflict(_)) => self.conflicts = self.conflicts.saturating_add(1),
            Err(_) => {}
        }
    }
}

impl TaintRequest<'_> {
    /// Sends the request; returns the node as it is then. [`Failure::Conflict`]: another writer has changed the taints.
    pub(super) async fn send(self, timeout: Duration) -> Result<NodeObject, Failure> {
        let Self { context, content_type, body } = self;
        let request = http::Request::patch(format!("/api/v1/nodes/{}", context.node_name))
            .header(CONTENT_TYPE, content_type)
            .body(body.to_string().into_bytes());
        let request = request.map_err(|error| Failure::Invalid(error.to_string()))?;
        match call(&context.client, Ok(request), timeout).await {
            Err(Failure::Invalid(reason)) if content_type == JSON => Err(Failure::Conflict(reason)),
            answer => answer,
        }
    }
}
