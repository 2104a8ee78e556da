//! Options of `run`, and the configuration made from the file and the options.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::config::{ConfigErrors, FileKind, Fingerprint, Loaded, Mode, MonitorConfig};
use crate::report::logging::LogFormat;
use crate::sensors::counter_error::CounterError;

use super::for_top::ForTop;

/// Options of `run`. Each overrides the file.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Exit status: 0 stopped on request; 1 failed while starting or running; 2 wrong usage or configuration; \
                  3 another agent runs on this machine."
)]
pub struct Options {
    /// Configuration file (MonitorConfiguration, KubeletConfiguration, or OpenShift 3's NodeConfig); default: the defaults.
    /// The agent reloads the file when it changes, and on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Whether to evict: observe only reports what enforce would do
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Log format; default: for people on a terminal, for the journal where stderr leads there, one JSON object a line otherwise
    #[arg(long, value_enum)]
    pub(super) log_format: Option<LogFormat>,
    /// Address for /metrics, /summary, /stats/summary, /healthz and /readyz
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Kubeconfig file; default: KUBECONFIG of the environment, then the pod's service account
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// This node's name at the API server; default: NODE_NAME of the environment, then the host's name
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// File that is locked while the agent runs, so that a second agent is refused
    #[arg(long, value_name = "FILE")]
    lock_file: Option<PathBuf>,
    /// Directory in which the program of `notifications.command` must lie; default: /etc/node-pressure-monitor/commands.d
    #[arg(long, value_name = "DIRECTORY")]
    notification_commands: Option<PathBuf>,
    #[command(flatten)]
    pub(super) for_top: ForTop,
}

/// Returns the wanted configuration, and the fingerprint of its file.
pub(super) fn configuration(options: &Options) -> Result<(Loaded, Option<Fingerprint>), ConfigErrors> {
    let Some(path) = &options.config else {
        let (kind, config) = (FileKind::Monitor, MonitorConfig::default());
        let defaults = Loaded { kind, what: None, config, warnings: Vec::new(), written: Vec::new() };
        return Ok((overridden(defaults, options), None));
    };
    let bytes = MonitorConfig::read(path)?;
    let fingerprint = Fingerprint::of(&bytes);
    Ok((interpreted(path, bytes, options)?, Some(fingerprint)))
}

pub(super) fn interpreted(path: &Path, bytes: Vec<u8>, options: &Options) -> Result<Loaded, ConfigErrors> {
    let loaded = MonitorConfig::parse_bytes(&path.display().to_string(), bytes)?;
    Ok(overridden(loaded, options))
}

fn overridden(mut wanted: Loaded, options: &Options) -> Loaded {
    let config = &mut wanted.config;
    let error = CounterError::read(&config.proc_root);
    let mut pools = std::mem::take(&mut config.pools);
    for config in pools.iter_mut().map(|pool| &mut pool.config).chain([&mut *config]) {
        override_fields(config, options, error.as_ref());
    }
    config.pools = pools;
    wanted
}

fn override_fields(config: &mut MonitorConfig, options: &Options, error: Option<&CounterError>) {
    if let Some(error) = error {
        error.fit(config);
    }
    if let Some(mode) = options.mode {
        config.mode = mode;
    }
    if let Some(listen) = options.listen {
        config.listen = listen;
    }
    if let Some(lock_file) = &options.lock_file {
        config.lock_file.clone_from(lock_file);
    }
    if let Some(kubeconfig) = &options.kubeconfig {
        config.kubernetes.kubeconfig = Some(kubeconfig.clone());
    }
    if let Some(node_name) = &options.node_name {
        config.kubernetes.node_name = Some(node_name.clone());
    }
    if let Some(directory) = &options.notification_commands {
        config.notifications.commands.clone_from(directory);
    }
    if let Some(directory) = options.config.as_deref().and_then(Path::parent) {
        let here = directory.as_os_str().is_empty();
        config.notifications.directory = if here { PathBuf::from(".") } else { directory.to_owned() };
    }
    options.for_top.override_fields(config);
}
