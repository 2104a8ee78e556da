//! One file per subcommand, thin.

pub mod input;
pub mod instance;
pub mod run;
pub mod simulate;
