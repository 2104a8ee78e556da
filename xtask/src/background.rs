//! Programs that run beside this one and end with it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::cmd;
use crate::setup::SETPRIV;

/// A started program, which writes to a log. Dropping it kills the program.
#[derive(Debug)]
pub struct Background {
    child: Child,
    shown: String,
    log: PathBuf,
}

impl Background {
    /// Starts the command, which should come from `bound_to_this_process`.
    pub fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let shown = cmd::shown(command);
        let context = || format!("creating {}", log.display());
        let output = File::create(&log).with_context(context)?;
        let errors = output.try_clone().with_context(context)?;
        let command = command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = command.spawn().with_context(|| format!("cannot run `{shown}`"))?;
        Ok(Self { child, shown, log })
    }

    /// Fails if the program has ended, with the last line of its log.
    pub fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait().with_context(|| format!("waiting for `{}`", self.shown))? else {
            return Ok(());
        };
        bail!("`{}` ended: {status}; its last line: {}", self.shown, self.last_line())
    }

    fn last_line(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("none").to_owned()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Both calls do nothing if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a command that the kernel kills when this program ends for any reason.
pub fn bound_to_this_process(program: &Path) -> Command {
    if SETPRIV.find().is_err() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Returns a port of the loopback address that was free a moment ago.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
    Ok(listener.local_addr().context("looking for a free port")?.port())
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_program_that_ended_is_an_error_with_its_last_line() {
        let log = std::env::temp_dir().join(format!("background-{}.log", std::process::id()));
        let mut command = bound_to_this_process(Path::new("sh"));
        let mut program =
            Background::start(command.args(["-c", "echo first; echo last; exit 3"]), log.clone()).unwrap();
        let story = (0..500).find_map(|_| {
            thread::sleep(Duration::from_millis(10));
            program.check().err()
        });
        fs::remove_file(log).unwrap();
        let story = story.unwrap().to_string();
        assert!(story.ends_with("ended: exit status: 3; its last line: last"), "{story}");
    }
}
