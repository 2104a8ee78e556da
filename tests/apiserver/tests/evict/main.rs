//! Evictions through the API server, with every fault. Each case ends with the pod evicted once, one event, and no other pod changed.
//! With `KUBECONFIG` set the same cases run against the real server that it names.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]
#![expect(clippy::panic, reason = "a failed step fails the test")]

mod answers;
mod called_off;
mod connections;
mod killed;
mod pods;
mod scene;
mod taint;
