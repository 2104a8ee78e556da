//! One file per subcommand, thin.

pub mod instance;
pub mod run;
