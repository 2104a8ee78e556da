//! `node-pressure-monitor run`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;

use crate::actions::release::Releaser;
use crate::actions::{Evictor, self_protection};
use crate::agent::{Agent, Parts};
use crate::config::{ConfigErrors, Mode, MonitorConfig};
use crate::kernel::Kernel;
use crate::node::psi::PsiTrigger;
use crate::node::{Hierarchy, MemoryReader};
use crate::report::logging::{self, LogFormat};
use crate::report::{Metrics, http};
use crate::workloads::WorkloadTree;

use super::instance::{InstanceLock, LockError};

/// Options of `run`; each overrides the file.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Configuration file (kind MonitorConfiguration); without one the defaults apply
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Whether to act: observe only says what it would do
    #[arg(long, value_enum)]
    mode: Option<ModeOption>,
    /// Log format; default: text on a terminal, one JSON object a line otherwise
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
    /// Address for /metrics, /healthz and /readyz
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// File that is locked while the agent runs, so that a second one is refused
    #[arg(long, value_name = "FILE")]
    lock_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeOption {
    /// Do everything but act
    Observe,
    /// Evict, and set oom_score_adj
    Enforce,
}

/// Why `run` ended other than by request.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration.
    #[error("the configuration is wrong; nothing was started\n{0}")]
    Config(#[from] ConfigErrors),
    /// Another instance.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Anything else.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

impl RunError {
    /// Exit status, as `--help` documents it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => 2,
            Self::Lock(LockError::AlreadyRunning { .. }) => 3,
            Self::Lock(LockError::Unusable { .. }) | Self::Failed(_) => 1,
        }
    }
}

/// Runs the agent until it is asked to stop.
///
/// # Errors
/// When the configuration is wrong, another instance runs, or something it cannot do without is missing.
pub fn run(options: &Options) -> Result<(), RunError> {
    let config = configuration(options)?;
    let text_logs = logging::init(options.log_format);
    let _lock = InstanceLock::take(&config.lock_file)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    runtime.block_on(serve(config, text_logs)).map_err(RunError::from)
}

fn configuration(options: &Options) -> Result<MonitorConfig, ConfigErrors> {
    let mut config = match &options.config {
        Some(path) => MonitorConfig::load(path)?,
        None => MonitorConfig::default(),
    };
    if let Some(mode) = options.mode {
        config.mode = match mode {
            ModeOption::Observe => Mode::Observe,
            ModeOption::Enforce => Mode::Enforce,
        };
    }
    if let Some(listen) = options.listen {
        config.listen = listen;
    }
    if let Some(lock_file) = &options.lock_file {
        config.lock_file.clone_from(lock_file);
    }
    Ok(config)
}

async fn serve(config: MonitorConfig, text_logs: bool) -> anyhow::Result<()> {
    let listener = http::bind(config.listen)?;
    let hierarchy = Hierarchy::detect(&config.cgroup_root)?;
    let memory = MemoryReader::open(&config.proc_root, &hierarchy)?;
    let tree = WorkloadTree::new(hierarchy, config.proc_root.clone(), config.protected.clone());
    let releaser = Releaser::start().context("cannot start the thread that releases memory")?;
    let kernel = Kernel::load(&config.kernel, std::process::id());
    let psi = PsiTrigger::register(&config.proc_root);
    let metrics = Metrics::new()?;
    let (scrapes, requests) = http::channel();
    tokio::spawn(http::serve(listener, metrics.clone(), scrapes));

    let degradations = self_protection::apply(&config.proc_root);
    let psi = psi.inspect_err(|reason| tell_degraded("psi trigger", reason)).ok();
    for (capability, reason) in &degradations {
        tell_degraded(capability, reason);
    }
    let mut agent = Agent::new(Parts { config, kernel, psi, memory, tree, evictor: Evictor::new(releaser), metrics });
    agent.start(text_logs, &degradations);
    self_protection::trim_heap();
    agent.run(requests).await.context("cannot listen for signals")
}

fn tell_degraded(capability: &str, reason: &str) {
    tracing::warn!(event = "degraded", capability, reason, "{capability}: {reason}");
}
