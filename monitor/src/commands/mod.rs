//! The subcommands: each reads its options, calls the rooms below, and prints the answer.

mod agent_client;
pub mod arguments;
pub mod check_config;
pub mod detached;
pub mod doctor;
pub mod fleet;
pub mod incidents;
pub mod input;
pub mod instance;
pub mod migrate;
pub mod open;
pub mod output;
mod pinned_certificate;
pub mod rank;
pub mod restore;
pub mod run;
pub mod simulate;
pub mod sweep;
pub mod tolerations;
pub mod top;
