//! The loop: wait for the next reason to look, observe, decide, act, report.

mod act;
mod cluster;
mod disks;
mod evictions;
mod evidence;
mod figures;
mod filesystems;
mod gentle;
mod happenings;
mod housekeeping;
mod kills;
mod ladder;
mod last;
mod limits;
pub mod local_storage;
pub mod measured;
mod observe;
mod oom_kill;
mod orders;
mod others;
mod parts;
mod pauses;
mod pending;
mod published;
mod recorder;
mod reload;
mod report;
mod runtime;
mod said;
mod signals;
mod start;
mod stats;
mod stop;
mod tell;
mod wakeup;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::actions::oom_score::Auditor;
use crate::actions::{Evictor, GarbageFirst};
use crate::cluster::Cluster;
use crate::config::MonitorConfig;
use crate::eviction::deadline::FallRate;
use crate::eviction::evicted::Cause;
use crate::eviction::{Armed, Assessment, Observation, State, assess};
use crate::kernel::{Event, Kernel, OomKill};
use crate::node::MemoryReader;
use crate::node::psi::PsiTrigger;
use crate::node::timer::Timer;
use crate::report::logging::Writer;
use crate::report::{ConditionLog, EvictionOutcome, Health, Metrics, Refresh, StatsBasis, SummaryPage};
use crate::runtime::Runtime;
use crate::units::Monotonic;
use crate::units::{CgroupId, Resource, Signal};
use crate::workloads::WorkloadTree;

use self::cluster::Told;
use self::disks::Disks;
use self::evictions::Asking;
use self::figures::Figures;
use self::gentle::Gentle;
pub use self::kills::Kills;
use self::ladder::Ladder;
use self::last::{Audits, Last, Outside};
use self::limits::{Limits, allow, allow_at};
use self::local_storage::LocalStorage;
use self::measured::{Measured, Steered};
use self::orders::Orders;
pub use self::parts::Parts;
use self::pending::Pending;
use self::published::Published;
pub use self::recorder::Recorder;
pub use self::reload::{Reload, not_acted_on};
use self::said::Said;
pub use self::signals::Signals;
pub use self::wakeup::Wakeup;

/// Events decoded at most before the loop looks at the node again.
const EVENTS_PER_WAKEUP: usize = 4096;
/// What observe mode would do is said again after this long.
const OBSERVED_AGAIN: Duration = Duration::from_secs(60);
/// While it stays so, that something is to be got back is said to the cluster this often.
const RECLAIMING_AGAIN: Duration = Duration::from_secs(10);
/// Room for the OOM kills of one look; a ring of the usual size holds few more.
const OOM_KILLS_EXPECTED: usize = 256;

/// A look at the node: why, when woken, and what was seen.
#[derive(Debug, Clone)]
struct Look {
    wakeup: Wakeup,
    woken: Monotonic,
    /// When the observation was true.
    sampled: Monotonic,
    observation: Observation,
    assessment: Assessment,
}

/// Everything the loop works with.
#[derive(Debug)]
pub struct Agent {
    config: MonitorConfig,
    kernel: Kernel,
    psi: Option<PsiTrigger>,
    memory: MemoryReader,
    signals: Signals,
    tree: WorkloadTree,
    evictor: Evictor,
    local: LocalStorage,
    measured: Option<Measured>,
    steered: Steered,
    runtime: Runtime,
    cluster: Cluster,
    told: Told,
    garbage: GarbageFirst,
    orders: Orders,
    asking: Asking,
    pending: Pending,
    gentle: Gentle,
    auditor: Auditor,
    metrics: Arc<Mutex<Metrics>>,
    health: Arc<Health>,
    page: Arc<SummaryPage>,
    stats: Arc<StatsBasis>,
    figures: Figures,
    disks: Disks,
    ladder: Ladder,
    log: Writer,
    conditions: ConditionLog,
    recorder: Recorder,
    reload: Reload,
    armed: Vec<Armed>,
    state: State,
    rate: FallRate,
    events: Vec<Event>,
    oom_kills: Vec<OomKill>,
    kills: Kills,
    would_evict: Said<(Signal, CgroupId)>,
    reclaiming: Said<Resource>,
    published: Published,
    last: Last,
    outside: Outside,
    audits: Audits,
    limits: Limits,
}

impl Agent {
    /// Runs until SIGTERM or SIGINT. SIGHUP has the configuration file read again.
    ///
    /// # Errors
    /// When the signal handlers cannot be set.
    pub async fn run(&mut self, mut scrapes: mpsc::Receiver<Refresh>) -> std::io::Result<()> {
        let timer = Timer::new()?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        tracing::info!(event = "ready", "listening and sampling");
        loop {
            let (wait, reason) = self.next_wakeup();
            let mut scrape = None;
            let mut heard = None;
            let mut from_cluster = None;
            let mut configuration = None;
            let wakeup = tokio::select! {
                biased;
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                () = self.kernel.readable() => Wakeup::KernelEvent,
                () = timer.sleep(wait) => reason,
                fired = psi_fired(self.psi.as_ref()) => {
                    if let Err(reason) = fired {
                        self.lose_psi(reason);
                    }
                    Wakeup::Psi
                }
                () = self.kills.readable() => Wakeup::KernelLog,
                () = self.gentle.answered() => Wakeup::Reclaim,
                () = self.signals.news() => Wakeup::Filesystems,
                _ = hang_up.recv() => {
                    self.ask_for_configuration();
                    Wakeup::Configuration
                }
                news = self.reload.news() => {
                    configuration = Some(news);
                    Wakeup::Configuration
                }
                event = self.runtime.event() => {
                    heard = Some(event);
                    Wakeup::Runtime
                }
                event = self.cluster.event() => {
                    from_cluster = Some(event);
                    Wakeup::Cluster
                }
                Some(request) = scrapes.recv() => {
                    scrape = Some(request);
                    Wakeup::Scrape
                }
            };
            if let Some(event) = &heard {
                self.hear(event);
            }
            if let Some(event) = from_cluster {
                self.hear_cluster(event);
            }
            if let Some(news) = configuration {
                self.take_configuration(news);
            }
            self.look(wakeup);
            if let Some(Refresh(done)) = scrape {
                self.refresh_report_if_old();
                // Who gave up waiting shows the report all the same, at the next request.
                let _gave_up = done.send(());
            }
            if self.last.ring_has_more {
                // A ring that never runs dry must not keep signals and requests waiting.
                tokio::task::yield_now().await;
            }
        }
        self.record_rest();
        for workload in self.evictor.in_grace() {
            tracing::warn!(
                event = "shutdown",
                workload,
                "left inside its grace period: it was sent SIGTERM, nobody will send SIGKILL"
            );
        }
        tracing::info!(event = "shutdown", "stopped");
        Ok(())
    }

    /// One turn of the loop.
    pub fn look(&mut self, wakeup: Wakeup) {
        let woken = Monotonic::now();
        self.with_metrics(|metrics| metrics.wakeup(wakeup.as_str()));
        self.health.beat(Instant::now());
        self.drain_events();
        self.decide(wakeup, woken);
        self.tell_events();
        self.record_oom_kills();
        self.audit_if_due();
        self.refresh_figures(wakeup);
        // Conditions that follow from pressure; those of thresholds were told as soon as they were decided.
        self.publish_status();
        self.steer_disks();
        self.prepare();
        self.steer_walker();
        self.keep_limits();
        self.hand_orders();
        if self.is_housekeeping_due() {
            self.keep_house();
        }
    }

    /// From a fresh sample to a deed, if one is called for.
    fn decide(&mut self, wakeup: Wakeup, woken: Monotonic) {
        let polled = Monotonic::now();
        let ended = self.poll_evictions(polled);
        let Some((sampled, observation)) = self.observe() else { return self.tell_ended(&ended, polled, None) };
        let (before, assessment) = self.assess(&observation, sampled);
        let look = Look { wakeup, woken, sampled, observation, assessment };
        // First the deed, then the words: a log record takes as long as a decision.
        let deed = self.act(&look, &before);
        self.note_samples();
        self.tell_ended(&ended, polled, Some(&look.observation));
        self.tell_changes(&look);
        self.tell_reclaiming(&look, deed.as_ref());
        if let Some(deed) = deed {
            self.tell_eviction(&look, &deed);
            self.record_eviction(&look, &deed);
        }
        self.last.assessment = look.assessment;
        let conditions: Vec<_> = self.node_conditions().collect();
        for (condition, holds) in conditions {
            if let Some(change) = self.conditions.update(condition.as_str(), holds, Instant::now()) {
                change.log();
                self.tell_condition(condition, holds);
            }
        }
        self.publish_status();
    }

    /// How long to wait, and for what.
    fn next_wakeup(&self) -> (Duration, Wakeup) {
        // Without a sample it does not go on.
        let audits_on = self.auditor.is_busy() && self.last.sample.is_some();
        if audits_on { (Duration::ZERO, Wakeup::Housekeeping) } else { self.next_event() }
    }

    /// How long until something is to be done at its time.
    fn next_event(&self) -> (Duration, Wakeup) {
        let now = Monotonic::now();
        let Some(sample) = self.last.sample else {
            return (self.config.sampling.ceiling.min(Duration::from_secs(1)), Wakeup::Deadline);
        };
        let mut soonest = (self.until_sample(now, sample), Wakeup::Deadline);
        let mut sooner = |wait: Option<Duration>, wakeup| {
            if let Some(wait) = wait.filter(|wait| *wait < soonest.0) {
                soonest = (wait, wakeup);
            }
        };
        sooner(self.last.assessment.next_change, Wakeup::Deadline);
        sooner(self.evictor.next_poll(now), Wakeup::Eviction);
        sooner(self.kills.due(now), Wakeup::KernelLog);
        sooner(self.gentle.next_check(now), Wakeup::Reclaim);
        sooner(self.signals.until_pids(&self.config, now), Wakeup::Deadline);
        sooner(self.last.retry.map(|retry| retry.since(now)), Wakeup::Eviction);
        sooner(self.recorder.next_due(now), Wakeup::Deadline);
        sooner(self.figures.until_conditions(now), Wakeup::Pressure);
        sooner(self.local.until_due(now), Wakeup::Deadline);
        sooner(self.until_taint(now), Wakeup::Deadline);
        sooner(Some(self.until_housekeeping(now)), Wakeup::Housekeeping);
        soonest
    }

    fn with_metrics(&self, act: impl FnOnce(&mut Metrics)) {
        // Nothing panics while holding it; if something did, the counters are still whole.
        act(&mut self.metrics.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn count_eviction(&self, cause: impl Into<Cause>, outcome: EvictionOutcome) {
        self.with_metrics(|metrics| metrics.eviction(cause, outcome));
    }

    /// One pass over the signals; the state before it is what a closer look starts from.
    fn assess(&mut self, observation: &Observation, now: Monotonic) -> (State, Assessment) {
        let (state, assessment) = assess(&self.config.policy, &self.armed, &self.state, observation, now.into());
        (std::mem::replace(&mut self.state, state), assessment)
    }
}

async fn psi_fired(psi: Option<&PsiTrigger>) -> Result<(), String> {
    match psi {
        Some(psi) => psi.fired().await,
        None => std::future::pending().await,
    }
}
