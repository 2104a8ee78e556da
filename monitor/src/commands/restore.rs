//! `node-pressure-monitor restore`: gives processes the `oom_score_adj` that they had before the agent.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use crate::actions::{Restored, ScoreRecord};
use crate::units::Pid;

use super::input::{self, CommandError};
use super::instance::InstanceLock;
use super::output;

/// Options of `restore`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// Configuration file of the agent; its lockFile and procRoot are used
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Lock file of the agent; default: that of the configuration
    #[arg(long, value_name = "FILE")]
    lock_file: Option<PathBuf>,
}

const HELP: &str = "Run the command as root after the agent has been stopped for good. In enforce mode the agent sets oom_score_adj of processes, \
and keeps a record of the values from before, beside its lock file. The command sets these values again. A process that has another value than \
the agent gave it is left alone, and named. The record is removed. While an agent runs, the command is refused: set mode: observe in the agent's \
configuration instead, and the agent restores the values itself.

Exit status: 0 the values are restored; 1 there is no record, so that nothing is restored, or a value cannot be set; 2 wrong usage, or a file \
that cannot be read; 3 an agent runs.";

pub fn run(options: &Options) -> Result<(), CommandError> {
    let given = options.config.as_deref().map(input::load).transpose()?;
    let config = given.map(|(_, loaded)| loaded.config).unwrap_or_default();
    let lock_file = options.lock_file.clone().unwrap_or(config.lock_file);
    let path = ScoreRecord::path(&lock_file);
    // A running agent may have no record yet. Without one, no lock file is created.
    if !InstanceLock::is_held(&lock_file) {
        require(&path)?;
    }
    let _lock = InstanceLock::take(&lock_file)?;
    let mut record = ScoreRecord::beside(&lock_file);
    let is_empty = record.is_empty();
    let Restored { restored, changed, named, ended, failed, error } = record.restore(&config.proc_root);
    let answer = if is_empty {
        format!("{} has no process of this boot: there is nothing to restore\n", path.display())
    } else {
        let mut named: Vec<String> =
            named.iter().map(|(Pid(pid), value)| format!("process {pid} has {value}")).collect();
        named.extend(changed.checked_sub(named.len()).filter(|more| *more > 0).map(|more| format!("and {more} more")));
        let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
        format!(
            "{restored} processes have their oom_score_adj from before the agent again; {changed} have got another value since and are \
             left alone{named}; {ended} have ended\n"
        )
    };
    output::answer(|out| out.write_all(answer.as_bytes())).map_err(CommandError::Output)?;
    match error {
        Some(error) => Err(CommandError::Wrong(format!("{failed} processes keep the agent's oom_score_adj: {error}"))),
        None => Ok(()),
    }
}

/// Returns an error if there is no record at this path.
fn require(path: &Path) -> Result<(), CommandError> {
    match File::open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(CommandError::Wrong(format!(
            "nothing is restored: there is no record {}; an agent has one after it has set an oom_score_adj; if the agent had another lock file, \
             name that by --lock-file, or its configuration by --config",
            path.display()
        ))),
        Err(source) => Err(CommandError::Unreadable { file: path.display().to_string(), source }),
    }
}
