//! The agent that `top` starts where none runs: it observes, serves the view, and ends with it.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::process::Signal;
use tokio::net::TcpListener;

use crate::config::kubernetes_options::ApiUse;
use crate::config::{Mode, MonitorConfig, NotificationOptions, ServingOptions};

/// The name of the agent's log in its directory.
pub const LOG_FOR_TOP: &str = "log";
/// The name of the file with the token that the view sends.
pub const TOKEN_FOR_TOP: &str = "token";

/// Options of the agent that `top` starts. Users do not give them.
#[derive(Debug, Clone, clap::Args)]
pub struct ForTop {
    /// Observe for `top`: all files are in DIRECTORY, which is removed at the end, and standard input is the listening socket
    #[arg(long = "for-top", value_name = "DIRECTORY", hide = true, requires = "parent")]
    pub(super) directory: Option<PathBuf>,
    /// The process of `top`, with which this one ends
    #[arg(long, value_name = "PID", hide = true, requires = "directory")]
    parent: Option<i32>,
}

impl ForTop {
    /// Overrides what would act on the machine or the cluster, write outside the directory or serve other clients.
    pub(super) fn override_fields(&self, config: &mut MonitorConfig) {
        let Some(directory) = &self.directory else { return };
        config.mode = Mode::Observe;
        config.lock_file = directory.join("lock");
        config.incidents.directory = directory.join("incidents");
        config.kubernetes.api = ApiUse::Off;
        config.notifications = NotificationOptions::default();
        config.serving =
            ServingOptions { token_file: Some(directory.join(TOKEN_FOR_TOP)), ..ServingOptions::default() };
    }

    /// Whether `top` has started this process. Such a process does not protect itself: it is as dispensable as the view.
    pub(super) fn is_given(&self) -> bool {
        self.directory.is_some()
    }

    /// Asks the kernel to end this process with the thread that has started it.
    pub(super) fn end_with_parent(&self) -> anyhow::Result<()> {
        let Some(parent) = self.parent else { return Ok(()) };
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).context("cannot follow the end of top")?;
        // The parent may have ended before.
        let is_there = rustix::process::getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent);
        anyhow::ensure!(is_there, "top has ended");
        Ok(())
    }

    /// Returns the socket that `top` listens on, if it has started this process.
    pub(super) fn listener(&self) -> anyhow::Result<Option<TcpListener>> {
        if !self.is_given() {
            return Ok(None);
        }
        let inherited = std::io::stdin().as_fd().try_clone_to_owned().context("standard input is no socket")?;
        let listener = std::net::TcpListener::from(inherited);
        listener.set_nonblocking(true).context("standard input is no listening socket")?;
        TcpListener::from_std(listener).map(Some).context("standard input is no listening socket")
    }

    /// Removes the directory: `top` cannot if it was killed.
    pub(super) fn clean_up(&self) {
        if let Some(directory) = self.directory.as_deref().filter(|directory| is_of_top(directory)) {
            let _removed_by_top = std::fs::remove_dir_all(directory);
        }
    }
}

/// Whether the directory has the token that `top` puts into it.
fn is_of_top(directory: &Path) -> bool {
    directory.join(TOKEN_FOR_TOP).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_notifies_and_evicts_nothing() {
        let options = ForTop { directory: Some("/tmp/x".into()), parent: Some(1) };
        let notifications = NotificationOptions { command: vec!["/bin/tell".to_owned()], ..Default::default() };
        let mut config = MonitorConfig { mode: Mode::Enforce, notifications, ..MonitorConfig::default() };
        options.override_fields(&mut config);
        assert!(config.mode == Mode::Observe && config.notifications.is_off(), "{config:?}");
        assert!(config.kubernetes.api == ApiUse::Off && config.lock_file.starts_with("/tmp/x"), "{config:?}");
    }
}
