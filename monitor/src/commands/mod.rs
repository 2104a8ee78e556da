//! One file per subcommand, thin.

pub mod check_config;
pub mod input;
pub mod instance;
pub mod output;
pub mod rank;
pub mod run;
pub mod simulate;
