//! The server's behaviour. With `KUBECONFIG` set the same cases run against the real server that it names.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod access;
mod deletion;
mod evictions;
mod faults;
mod merge;
mod objects;
mod patches;
mod process;
mod watches;

use http::Method;
use node_pressure_apiserver::Stage;
use serde_json::Value;

/// Returns a new stage, whose node is as the server makes it.
async fn stage() -> Stage {
    Stage::with_new_node().await.unwrap()
}

/// Sends a request as administrator; returns status and answer.
async fn ask(stage: &Stage, method: Method, path: &str, body: Value) -> (u16, Value) {
    stage.ask(method, path, body).await.unwrap()
}

/// Returns status, reason and message of a refusal.
fn refusal(answer: &(u16, Value)) -> (u16, &str, &str) {
    assert_eq!(answer.1["kind"], "Status", "{answer:?}");
    (answer.0, answer.1["reason"].as_str().unwrap_or_default(), answer.1["message"].as_str().unwrap_or_default())
}
