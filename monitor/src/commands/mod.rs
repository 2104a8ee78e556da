//! One file per subcommand, thin.

pub mod check_config;
pub mod doctor;
pub mod incidents;
pub mod input;
pub mod instance;
pub mod output;
pub mod rank;
pub mod run;
pub mod simulate;
pub mod sweep;
pub mod tolerations;
