//! One file per subcommand, thin.

pub mod check_config;
pub mod incidents;
pub mod input;
pub mod instance;
pub mod output;
mod pods;
pub mod rank;
pub mod run;
pub mod simulate;
