//! Evictions at the API server, and everything that can go wrong on the way: each case ends with the pod evicted once, told of once, and
//! no other touched. With `KUBECONFIG` set the same cases run against the server that it names.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]
#![expect(clippy::panic, reason = "a failed step fails the test")]

mod answers;
mod called_off;
mod connections;
mod killed;
mod pods;
mod scene;
