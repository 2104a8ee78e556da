//! `node-pressure-monitor run`.

mod for_top;
mod options;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::input::CommandError;
use super::instance::InstanceLock;
use crate::actions::reclaim::ReclaimFirst;
use crate::actions::stop::OrderQueue;
use crate::actions::{Actions, Audits, Evictor, FreezeRecord, KeptState, ScoreRecord, self_protection};
use crate::agent::{Agent, Reload};
use crate::cluster::ledger::{Ledger, Unfinished};
use crate::cluster::{Access, Cluster};
use crate::config::config_watch::Interpret;
use crate::config::kubernetes_options::EvictionMethod;
use crate::config::{ConfigWatch, Fingerprint, Loaded, Mode, MonitorConfig, RuntimeEndpoint};
use crate::disk::{Roots, Walker};
use crate::eviction::deadline::FallRate;
use crate::kernel::Kernel;
use crate::node::psi_trigger::PsiTrigger;
use crate::node::{
    Hierarchy, MemoryReader, NESTED_ACCOUNTING, PoolChoice, cpus, fault_rate, name, namespaces, other_killers,
};
use crate::report::http::material::{Current, Material, MaterialWatch};
use crate::report::log_sink::log_restored_scores;
use crate::report::logging::{self, LogFormat};
use crate::report::reporter::Outlets;
use crate::report::series::SeriesLimits;
use crate::report::{ConfigState, Guard, Health, Metrics, Publications, Recorder, Reporter, hang_limit, http};
use crate::runtime::Runtime;
use crate::sensors::control_plane::ControlPlane;
use crate::sensors::counter_error::CounterError;
use crate::sensors::filesystem_signals::FilesystemSignals;
use crate::sensors::oom_kill_stream::OomKills;
use crate::sensors::{Platform, SensorParts, Sensors};
use crate::units::{Bytes, Monotonic, split_degradation};
use crate::workloads::{PodsFile, WorkloadTree};
use anyhow::Context as _;

use self::for_top::ForTop;
pub use self::for_top::{LOG_FOR_TOP, TOKEN_FOR_TOP};
pub use self::options::Options;
use self::options::{configuration, interpreted};

/// Assumed rate of memory loss in bytes per second if the rate cannot be measured: more than one present CPU faults in.
const ASSUMED_RATE: Bytes = Bytes(6 << 30);

/// Runs the agent until a signal stops it.
pub fn run(options: &Options) -> Result<(), CommandError> {
    options.for_top.end_with_parent()?;
    let (Loaded { config, warnings, .. }, fingerprint) = configuration(options)
        .map_err(|errors| CommandError::Usage(format!("the configuration is wrong; nothing was started\n{errors}")))?;
    let format = options.log_format.unwrap_or_else(LogFormat::for_stderr);
    let log = logging::init(format)?;
    for warning in warnings {
        tracing::warn!(event = "configuration", "{warning}");
    }
    share_cgroups();
    let _lock = InstanceLock::take(&config.lock_file)?;
    // The same in every pool.
    let access = Access::find_with(options.kubeconfig.as_deref(), &config.kubernetes);
    let unfit = unfit(&config.cgroup_root);
    require_fit(config.strictest_mode(), &unfit)?;
    let pool = PoolChoice::of(config, access.is_some());
    let config = pool.choose();
    thaw_left_frozen(&config);
    restore_scores(&config, pool.mode_for_leftovers());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the event loop")?;
    let file = options.config.clone().zip(fingerprint).map(|(path, fingerprint)| (path, fingerprint, options.clone()));
    let is_text = format.is_for_people();
    let served = runtime.block_on(serve(&options.for_top, (config, pool), access, unfit, file, is_text, log));
    // A reader of an incident on a hanging disk must not prevent the agent from stopping.
    runtime.shutdown_background();
    options.for_top.clean_up();
    Ok(served?)
}

/// Joins the machine's cgroup namespace before any thread reads cgroups. A later check reports a private namespace if
/// it matters.
fn share_cgroups() {
    match namespaces::join_cgroups_of_machine() {
        Ok(false) => {}
        Ok(true) => tracing::info!(event = "namespace", "left the container's cgroup namespace for the host's"),
        Err(reason) => tracing::warn!(
            event = "degraded",
            capability = "namespaces",
            reason,
            "stays in a cgroup namespace of its own"
        ),
    }
}

/// Thaws a cgroup that an earlier agent left frozen, also in observe mode. Runs only under the lock: another agent may
/// be using the freezer.
fn thaw_left_frozen(config: &MonitorConfig) {
    match FreezeRecord::beside(&config.lock_file).thaw() {
        Ok(None) => {}
        Ok(Some(cgroup)) => {
            let cgroup = cgroup.display();
            tracing::warn!(event = "thawed", %cgroup, "an earlier agent was ended while it held this cgroup frozen: thawed");
        }
        Err(reason) => tracing::error!(event = "degraded", capability = "thaw", reason, "a cgroup is left frozen"),
    }
}

/// Restores the `oom_score_adj` of processes that an earlier agent has changed in enforce mode, if this agent only observes.
fn restore_scores(config: &MonitorConfig, mode: Mode) {
    let mut record = ScoreRecord::beside(&config.lock_file);
    if mode == Mode::Observe && !record.is_empty() {
        log_restored_scores(&record.restore(&config.proc_root));
    }
}

/// Opens the ledger, from which the agent finishes the evictions of an earlier agent. Observe mode and disabled methods
/// finish none.
fn ledger_of(config: &MonitorConfig, mode: Mode) -> Ledger {
    let ledger = Ledger::beside(&config.lock_file);
    for Unfinished { intent, progress, .. } in ledger.unfinished() {
        let (pod, uid) = (intent.pod(), &intent.uid);
        let is_off = config.kubernetes.evictions.hard == EvictionMethod::Off && intent.is_hard();
        let is_abandoned = mode == Mode::Observe || is_off;
        if is_abandoned {
            ledger.end(&intent);
        }
        if is_abandoned && !progress.removed {
            tracing::warn!(
                event = "eviction_abandoned",
                pod,
                pod_uid = uid,
                "an earlier agent began to evict this pod; by this configuration it is not finished: the kubelet starts it again"
            );
        } else if !is_abandoned {
            tracing::warn!(
                event = "eviction_resumed",
                pod,
                pod_uid = uid,
                "an earlier agent began to evict this pod: the rest follows as the API server answers"
            );
        }
    }
    ledger
}

/// Returns the degradations with which the agent may observe, but not act: in a private namespace it recognizes neither itself nor other
/// workloads, and with accounts of single cgroups it does not know what a pod uses. They stay as long as the agent runs.
fn unfit(cgroup_root: &Path) -> Vec<String> {
    let private = namespaces_text(&namespaces::private()).map(|text| format!("namespaces: {text}"));
    // Without a usable hierarchy the agent does not start at all.
    let hierarchy = Hierarchy::detect(cgroup_root).ok();
    let nested = hierarchy.and_then(|it| it.leaves_out_nested()).map(|text| format!("{NESTED_ACCOUNTING}: {text}"));
    private.into_iter().chain(nested).collect()
}

/// Refuses to enforce with one of these degradations.
fn require_fit(mode: Mode, unfit: &[String]) -> anyhow::Result<()> {
    if mode == Mode::Enforce && !unfit.is_empty() {
        let texts: Vec<&str> = unfit.iter().map(|text| split_degradation(text).1).collect();
        anyhow::bail!("{}; nothing was started, because mode is enforce", texts.join("; "));
    }
    Ok(())
}

/// Returns the function that interprets a changed file. It refuses a configuration with which the agent would not start.
fn interpret(path: PathBuf, options: Options, unfit: Vec<String>) -> Interpret {
    Box::new(move |bytes| {
        let wanted = interpreted(&path, bytes, &options).map_err(|errors| errors.to_string())?;
        require_fit(wanted.config.strictest_mode(), &unfit)
            .map_err(|error| format!("{}: {error:#}", path.display()))?;
        Ok(wanted)
    })
}

pub(super) fn namespaces_text(private: &[&str]) -> Option<String> {
    (!private.is_empty()).then(|| {
        format!(
            "the agent runs in a {} namespace of its own, where it cannot tell which workloads are whose; \
             run it in the host's (hostPID: true, and CAP_SYS_ADMIN and CAP_SYS_PTRACE for the host's cgroup namespace)",
            private.join(" and ")
        )
    })
}

/// Degradation of a node with swap.
pub(super) const SWAP_ON: &str =
    "swap is on: what is swapped out counts as available, so a node that thrashes may meet no threshold on memory";

async fn serve(
    for_top: &ForTop,
    (config, pool): (MonitorConfig, PoolChoice),
    access: Option<Access>,
    unfit: Vec<String>,
    file: Option<(PathBuf, Fingerprint, Options)>,
    text: bool,
    log: logging::Writer,
) -> anyhow::Result<()> {
    let exposed = (!for_top.is_given()).then(|| self_protection::lower_own_score(&config.proc_root)).flatten();
    let listener = match for_top.listener()? {
        Some(listener) => listener,
        None => http::bind(config.listen).await?,
    };
    let hierarchy = Hierarchy::detect(&config.cgroup_root).map_err(anyhow::Error::msg)?;
    let mut memory = MemoryReader::open(&config.proc_root, &hierarchy)?;
    let tree = WorkloadTree::new(hierarchy, config.proc_root.clone(), config.protected.clone());
    let tree = tree.with_candidates(config.candidates.clone(), access.is_some(), &config.runtime.endpoint);
    let evictor = Evictor::start().context("cannot start the threads that kill and that release memory")?;

    let kernel = Kernel::load(&config.kernel, std::process::id());
    let mut degradations: Vec<String> = kernel.report().degradations.iter().map(ToString::to_string).collect();
    degradations.extend(exposed);
    let oom_kills = OomKills::open(kernel.report(), &config.proc_root, &mut degradations);
    let (cpus, guessed) = cpus::online();
    degradations.extend(guessed);
    let psi = PsiTrigger::register(&config.proc_root);
    let psi = psi.map_err(|reason| degradations.push(format!("PSI trigger: {reason}"))).ok();
    let node = name::of(config.kubernetes.node_name.as_deref());
    let (mut recorder, missing) =
        Recorder::start(&config.incidents, node).context("cannot start the thread that writes incidents")?;
    recorder.notifier.follow(&config.notifications).context("cannot start the thread that sends notifications")?;
    degradations.extend(missing);
    let pods = config.pods.as_deref().map(PodsFile::watch).transpose();
    let pods = pods.context("cannot start the thread that reads the pods")?;
    let (kept, remembered, unused) =
        KeptState::beside(&config.lock_file).context("cannot start the thread that writes the decision state")?;
    degradations.extend(unused);
    let config_state = ConfigState::started(
        file.as_ref().map(|(path, fingerprint, _)| (path.clone(), *fingerprint)),
        SystemTime::now(),
    );
    let watch = |(path, fingerprint, options): (PathBuf, Fingerprint, Options)| {
        ConfigWatch::start(&path, fingerprint, interpret(path.clone(), options, unfit.clone()))
    };
    let file = file.map(watch).transpose().context("cannot start the thread that reads the configuration file")?;
    let ledger = ledger_of(&config, pool.mode_for_leftovers());
    let reload = Reload::of(file, config_state, pool);
    // Threads inherit the loop's priority, so this thread must start before the loop raises its own.
    let filesystems = FilesystemSignals::start(&config).context("cannot start the thread that asks the filesystems")?;
    let roots = Roots::of(&config);
    let walker = Walker::start(&config.disk_usage, roots);
    let walker = Arc::new(walker.context("cannot start the thread that measures disks")?);
    let runtime = Runtime::start(config.runtime.clone())
        .context("cannot start the thread that speaks to the container runtime")?;
    let access = access.map(|access| access.beside(&config.lock_file));
    let cluster = Cluster::start_on(config.kubernetes.clone(), access, ledger);
    let cluster = cluster.context("cannot start the thread that speaks to the API server")?;
    let reclaim = ReclaimFirst::of(config.mode, config.evictions.reclaim_deadline, tree.hierarchy());
    let reclaim = reclaim.unwrap_or_else(|reason| {
        degradations.push(format!("memory.reclaim: {reason}"));
        ReclaimFirst::Off
    });
    if !for_top.is_given() {
        degradations.extend(self_protection::apply());
    }
    if config.mode == Mode::Enforce {
        degradations.extend(self_protection::missing_for_scores(&config.proc_root));
    }
    degradations.extend(CounterError::read(&config.proc_root).and_then(|error| error.degradation(&config.policy)));
    degradations.extend(unfit);
    if config.serving.token_review && cluster.reviewer().is_none() {
        degradations
            .push("bearerToken: there is no API server to review tokens: those of the file alone are good".to_owned());
    }

    let others = other_killers::find(&config.proc_root);
    let swap = memory.details().ok().and_then(|details| details.swap_total).unwrap_or(Bytes::ZERO);
    if !swap.is_zero() {
        tracing::warn!(event = "swap_on", swap_total_bytes = swap.0, "{SWAP_ON}");
    }

    let metrics =
        Metrics::new(env!("CARGO_PKG_VERSION"), SeriesLimits::default()).context("cannot set up the metrics")?;
    let metrics = Arc::new(metrics);
    let health = Arc::new(Health::new(hang_limit(config.sampling.ceiling), Instant::now()));
    let incidents = recorder.index();
    let publications = Arc::new(Publications::default());
    let material = Material::read(&config.serving).context("metrics: what is to be served by cannot be used")?;
    let (serving, material) = (config.serving.clone(), Arc::new(Current::new(material)));
    let watch = MaterialWatch::start(&serving, &material, &health);
    let _renewal = watch.context("cannot start the thread that reads certificates and tokens")?;
    let guard = Arc::new(Guard::new(serving, material, cluster.reviewer()));
    let shared = http::Shared {
        metrics: Arc::clone(&metrics),
        health: Arc::clone(&health),
        incidents,
        publications: Arc::clone(&publications),
        guard,
    };
    let queue = OrderQueue::default();
    let evictor = match config.runtime.endpoint {
        RuntimeEndpoint::Off => evictor,
        RuntimeEndpoint::Auto | RuntimeEndpoint::Unix(_) => evictor.with_stopper(Box::new(queue.clone())),
    };
    let fastest = config.sampling.fastest_rate.or_else(|| fault_rate::measure(cpus)).unwrap_or(ASSUMED_RATE);
    let rate = FallRate::assuming(fastest);
    let platform =
        Platform { runtime: runtime.viewer(), cluster: ControlPlane::new(cluster.viewer(), Monotonic::now()) };
    let parts = SensorParts { kernel, psi, oom_kills, memory, rate, filesystems, tree, pods, walker, platform };
    let sensors = Sensors::new(&config, parts);
    let mut actions = Actions::new(evictor, queue, reclaim, runtime, cluster);
    actions.audits = Audits::recorded_in(ScoreRecord::beside(&config.lock_file)).leaving_own_score(for_top.is_given());
    let node_name = actions.cluster.is_there().then(|| actions.cluster.view().node_name);
    let reporter = Reporter::new(Outlets { metrics, health, publications, log }, recorder, node_name);
    let mut agent = Agent::new(config, sensors, actions, reporter, (kept, remembered), reload);
    agent.start(text, &degradations, &others);
    http::serve_aside(listener, shared).context("cannot start the thread that serves metrics")?;
    let stopped = agent.run().await.context("cannot run the loop");
    agent.end();
    stopped
}
