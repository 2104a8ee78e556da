//! One file per subcommand, thin.

pub mod check_config;
pub mod instance;
pub mod run;
