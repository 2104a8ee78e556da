//! The loop: wait for the next reason to look, observe, decide, act, report.

mod act;
mod api_events;
mod carry_out;
mod cluster;
mod disks;
mod evictions;
mod evidence;
mod facts;
mod figures;
mod filesystems;
mod gentle;
mod housekeeping;
mod kernel_events;
mod kills;
mod ladder;
mod last;
pub mod local_storage;
pub mod measured;
mod notes;
mod observe;
mod oom_kill;
mod orders;
mod parts;
mod pending;
mod reload;
mod report;
mod reporting;
mod runtime;
mod signals;
mod start;
mod stats;
mod wakeup;

use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::actions::Evictor;
use crate::actions::oom_score::Auditor;
use crate::cluster::Cluster;
use crate::config::MonitorConfig;
use crate::eviction::collection::CollectionEnd;
use crate::eviction::deadline::FallRate;
use crate::eviction::decider::Decider;
use crate::eviction::{Assessment, Observation, SignalValue};
use crate::kernel::{Event, Kernel, OomKill};
use crate::node::psi_trigger::PsiTrigger;
use crate::node::timer::Timer;
use crate::node::{MemoryReader, MemorySample, RootUsage};
use crate::report::record::Record;
use crate::report::{Metrics, Refresh, Reporter};
use crate::runtime::Runtime;
use crate::units::{Bytes, Monotonic};
use crate::workloads::{WorkloadTree, WorkloadUsage};

use self::cluster::Told;
use self::disks::Disks;
use self::evictions::Asking;
use self::figures::Figures;
use self::gentle::Gentle;
pub use self::kills::Kills;
use self::ladder::Ladder;
use self::last::{Audits, Last, Outside, Scan};
use self::local_storage::LocalStorage;
use self::measured::{Measured, Steered};
use self::orders::Orders;
pub use self::parts::Parts;
use self::pending::Pending;
pub use self::reload::{Reload, not_acted_on};
pub use self::signals::Signals;
pub use self::wakeup::Wakeup;

/// Events decoded at most before the loop looks at the node again.
const EVENTS_PER_WAKEUP: usize = 4096;
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
    sensors: Sensors,
    decision: Decider<WorkloadUsage>,
    actions: Actions,
    reporter: Reporter,
    runtime: Runtime,
    cluster: Cluster,
    told: Told,
    reload: Reload,
    last: Last,
}

/// What is measured, and what was measured last.
#[derive(Debug)]
struct Sensors {
    kernel: Kernel,
    psi: Option<PsiTrigger>,
    memory: MemoryReader,
    signals: Signals,
    tree: WorkloadTree,
    measured: Option<Measured>,
    steered: Steered,
    figures: Figures,
    disks: Disks,
    ladder: Ladder,
    kills: Kills,
    rate: FallRate,
    local: LocalStorage,
    outside: Outside,
    events: Vec<Event>,
    oom_kills: Vec<OomKill>,
    sample: Option<MemorySample>,
    root_usage: RootUsage,
    /// The signals beside memory.
    others: Vec<SignalValue>,
    /// Samples that were not handed on yet: at most two a turn.
    unnoted: Vec<(Monotonic, Bytes)>,
    scan: Scan,
    /// The ring buffer held more than one turn decodes.
    ring_has_more: bool,
}

/// What is carried out.
#[derive(Debug)]
struct Actions {
    evictor: Evictor,
    /// A garbage collection that ended since the last turn.
    collected: Option<CollectionEnd>,
    orders: Orders,
    asking: Asking,
    auditor: Auditor,
    audits: Audits,
    gentle: Gentle,
    pending: Pending,
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
        self.reporter.report(&Record::Ready, Monotonic::now());
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
                () = self.sensors.kernel.readable() => Wakeup::KernelEvent,
                () = timer.sleep(wait) => reason,
                fired = psi_fired(self.sensors.psi.as_ref()) => {
                    if let Err(reason) = fired {
                        self.lose_psi(reason);
                    }
                    Wakeup::Psi
                }
                () = self.sensors.kills.readable() => Wakeup::KernelLog,
                () = self.actions.gentle.answered() => Wakeup::Reclaim,
                () = self.sensors.signals.news() => Wakeup::Filesystems,
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
            if self.sensors.ring_has_more {
                // A ring that never runs dry must not keep signals and requests waiting.
                tokio::task::yield_now().await;
            }
        }
        self.record_rest();
        let now = Monotonic::now();
        for workload in self.actions.evictor.in_grace() {
            self.reporter.report(&Record::EvictionLeft { workload }, now);
        }
        self.reporter.report(&Record::Stopped, now);
        Ok(())
    }

    /// One turn of the loop.
    pub fn look(&mut self, wakeup: Wakeup) {
        let woken = Monotonic::now();
        self.with_metrics(|metrics| metrics.wakeup(wakeup.as_str()));
        self.reporter.outlets.health.beat(Instant::now());
        self.drain_events();
        self.decide(wakeup, woken);
        self.report_kernel_events();
        self.record_oom_kills();
        self.audit_if_due();
        self.refresh_figures(wakeup);
        // Conditions that follow from pressure; those of thresholds were published as soon as they were decided.
        self.publish_status();
        self.send_events();
        self.steer_disks();
        self.prepare();
        self.steer_walker();
        self.hand_orders();
        if self.is_housekeeping_due() {
            self.keep_house();
        }
    }

    /// From a fresh sample to a deed, if one is called for.
    fn decide(&mut self, wakeup: Wakeup, woken: Monotonic) {
        let polled = Monotonic::now();
        let ended = self.poll_evictions(polled);
        let Some((sampled, observation)) = self.observe() else { return self.report_ended(&ended, polled, None) };
        let mut look = Look { wakeup, woken, sampled, observation, assessment: Assessment::default() };
        // First the action, then the report: a log record takes as long as a decision.
        let mut turn = self.take_turn(&look, &ended);
        look.assessment = self.decision.assessment().clone();
        let deed = self.deed(&mut turn);
        self.note_samples();
        self.report_ended(&ended, polled, Some(&look.observation));
        let now = Monotonic::now();
        let woken_by = (look.wakeup.as_str(), look.sampled);
        self.reporter.report_thresholds(self.decision.armed(), &look.assessment, &look.observation, woken_by, now);
        self.report_reclaiming(&look, deed.as_ref(), now);
        if let Some(deed) = deed {
            self.report_eviction(&look, &deed);
        }
        self.report_limits(&mut turn, now);
        self.report_notes(&look.observation, now);
        let conditions: Vec<_> = self.node_conditions().collect();
        for (condition, holds) in conditions {
            self.reporter.report_condition(condition.as_str(), holds, Some(condition), now);
        }
        self.publish_status();
    }

    /// How long to wait, and for what.
    fn next_wakeup(&self) -> (Duration, Wakeup) {
        // Without a sample it does not go on.
        let audits_on = self.actions.auditor.is_busy() && self.sensors.sample.is_some();
        if audits_on { (Duration::ZERO, Wakeup::Housekeeping) } else { self.next_event() }
    }

    /// How long until something is to be done at its time.
    fn next_event(&self) -> (Duration, Wakeup) {
        let now = Monotonic::now();
        let Some(sample) = self.sensors.sample else {
            return (self.config.sampling.ceiling.min(Duration::from_secs(1)), Wakeup::Deadline);
        };
        let mut soonest = (self.until_sample(now, sample), Wakeup::Deadline);
        let mut sooner = |wait: Option<Duration>, wakeup| {
            if let Some(wait) = wait.filter(|wait| *wait < soonest.0) {
                soonest = (wait, wakeup);
            }
        };
        sooner(self.decision.assessment().next_change, Wakeup::Deadline);
        sooner(self.actions.evictor.next_poll(now), Wakeup::Eviction);
        sooner(self.sensors.kills.due(now), Wakeup::KernelLog);
        sooner(self.actions.gentle.next_check(now), Wakeup::Reclaim);
        sooner(self.sensors.signals.until_pids(&self.config, now), Wakeup::Deadline);
        sooner(self.decision.retry().map(|retry| retry.since(now)), Wakeup::Eviction);
        sooner(self.reporter.recorder.next_due(now), Wakeup::Deadline);
        sooner(self.sensors.figures.until_conditions(now), Wakeup::Pressure);
        if self.sensors.local.has_limits() {
            let limits = self.decision.limits_due().map_or(Duration::ZERO, |due| due.since(now));
            sooner(Some(limits), Wakeup::Deadline);
        }
        sooner(self.until_taint(now), Wakeup::Deadline);
        sooner(Some(self.until_housekeeping(now)), Wakeup::Housekeeping);
        soonest
    }

    fn with_metrics(&self, act: impl FnOnce(&mut Metrics)) {
        self.reporter.with_metrics(act);
    }
}

async fn psi_fired(psi: Option<&PsiTrigger>) -> Result<(), String> {
    match psi {
        Some(psi) => psi.fired().await,
        None => std::future::pending().await,
    }
}
