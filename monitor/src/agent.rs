//! The agent's loop: waits for the next wakeup, observes, decides, acts and reports.

mod api_events;
mod carry_out;
mod cluster;
mod evictions;
mod evidence;
mod facts;
mod housekeeping;
mod kernel_events;
mod kills;
mod last;
pub mod local_storage;
mod notes;
mod observe;
mod oom_kill;
mod orders;
mod parts;
mod pending;
mod proactive_reclaim;
mod reload;
mod report;
mod reporting;
mod runtime;
mod start;
mod stats;
mod turn;
mod wakeup;

use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::actions::Evictor;
use crate::actions::oom_score::Auditor;
use crate::cluster::Cluster;
use crate::config::MonitorConfig;
use crate::eviction::collection::CollectionEnd;
use crate::eviction::decider::{Decider, EndedEviction};
use crate::eviction::{Assessment, Observation};
use crate::node::timer::Timer;
use crate::report::record::Record;
use crate::report::{Metrics, Reporter};
use crate::runtime::Runtime;
use crate::sensors::Sensors;
use crate::units::Monotonic;
use crate::workloads::WorkloadUsage;

use self::cluster::ControlPlaneMemory;
use self::evictions::Asking;
use self::last::{Audits, Last};
use self::local_storage::LocalStorage;
use self::orders::Orders;
pub use self::parts::Parts;
use self::pending::Pending;
use self::proactive_reclaim::ProactiveReclaim;
pub use self::reload::{Reload, not_acted_on};
pub use self::wakeup::Wakeup;

/// How a turn began: its wakeup, the time of the wakeup, and the observation.
#[derive(Debug, Clone)]
struct TurnStart {
    wakeup: Wakeup,
    woken: Monotonic,
    /// When the observation was sampled.
    sampled: Monotonic,
    observation: Observation,
    assessment: Assessment,
}

/// State of the loop.
#[derive(Debug)]
pub struct Agent {
    config: MonitorConfig,
    sensors: Sensors,
    decision: Decider<WorkloadUsage>,
    actions: Actions,
    reporter: Reporter,
    runtime: Runtime,
    cluster: Cluster,
    control_plane: ControlPlaneMemory,
    reload: Reload,
    last: Last,
}

/// State of the actions.
#[derive(Debug)]
struct Actions {
    evictor: Evictor,
    /// Evictions that ended since the decider last took them in.
    ended: Vec<EndedEviction>,
    /// A garbage collection that ended since the last turn.
    collected: Option<CollectionEnd>,
    orders: Orders,
    asking: Asking,
    auditor: Auditor,
    audits: Audits,
    reclaim: ProactiveReclaim,
    pending: Pending,
    local: LocalStorage,
}

impl Agent {
    /// Runs until SIGTERM or SIGINT. SIGHUP makes the agent read the configuration file again.
    ///
    /// # Errors
    /// When the signal handlers cannot be set.
    pub async fn run(&mut self) -> std::io::Result<()> {
        let timer = Timer::new()?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        self.reporter.report(&Record::Ready, Monotonic::now());
        loop {
            let (wait, reason) = self.next_wakeup();
            let mut received = None;
            let mut from_cluster = None;
            let mut configuration = None;
            let wakeup = tokio::select! {
                biased;
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                () = self.sensors.events.readable() => Wakeup::KernelEvent,
                () = timer.sleep(wait) => reason,
                fired = self.sensors.sources.psi_fired() => {
                    if let Err(reason) = fired {
                        self.sensors.lose_psi(reason);
                    }
                    Wakeup::Psi
                }
                () = self.sensors.oom_kills.readable() => Wakeup::KernelLog,
                () = self.actions.reclaim.answered() => Wakeup::Reclaim,
                () = self.sensors.signals.filesystems.changed() => Wakeup::Filesystems,
                _ = hang_up.recv() => {
                    self.ask_for_configuration();
                    Wakeup::Configuration
                }
                news = self.reload.news() => {
                    configuration = Some(news);
                    Wakeup::Configuration
                }
                event = self.runtime.event() => {
                    received = Some(event);
                    Wakeup::Runtime
                }
                event = self.cluster.event() => {
                    from_cluster = Some(event);
                    Wakeup::Cluster
                }
                () = self.reporter.outlets.publications.asked() => {
                    // A scrape is not a turn: nothing is decided.
                    self.with_metrics(|metrics| metrics.wakeup(Wakeup::Scrape.as_str()));
                    self.publish();
                    continue;
                }
            };
            if let Some(event) = &received {
                self.handle_runtime_event(event);
            }
            if let Some(event) = from_cluster {
                self.handle_cluster_event(event);
            }
            if let Some(news) = configuration {
                self.take_configuration(news);
            }
            self.run_turn(wakeup);
            if self.sensors.events.has_more() {
                // A ring buffer that never runs dry must not delay signals and requests.
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

    /// Runs one turn of the loop.
    pub fn run_turn(&mut self, wakeup: Wakeup) {
        let now = Monotonic::now();
        self.with_metrics(|metrics| metrics.wakeup(wakeup.as_str()));
        self.reporter.outlets.health.beat(Instant::now());
        self.sensors.events.drain();
        self.decide(wakeup, now);
        self.report_kernel_events(now);
        self.record_oom_kills();
        self.audit_if_due();
        self.refresh_figures(wakeup, now);
        // Conditions that follow from pressure. Conditions of thresholds were published right after the decision.
        self.publish_status();
        self.send_events();
        self.prepare();
        self.steer_disks(now);
        self.hand_orders();
        if self.is_housekeeping_due() {
            self.do_housekeeping();
        }
        self.report_capabilities(now);
    }

    /// Takes a turn on a fresh sample, and reports the eviction if the turn started one.
    fn decide(&mut self, wakeup: Wakeup, woken: Monotonic) {
        let polled = Monotonic::now();
        let ended = self.poll_evictions(polled);
        let Some((sampled, observation)) = self.observe() else { return self.report_ended(&ended, polled, None) };
        let mut start = TurnStart { wakeup, woken, sampled, observation, assessment: Assessment::default() };
        // The action precedes the report: writing a log record takes as long as a decision.
        let mut turn = self.take_turn(&start);
        start.assessment = self.decision.assessment().clone();
        let eviction = self.started_eviction(&mut turn);
        self.pass_on_samples();
        self.report_ended(&ended, polled, Some(&start.observation));
        let now = Monotonic::now();
        let woken_by = (start.wakeup.as_str(), start.sampled);
        self.reporter.report_thresholds(self.decision.armed(), &start.assessment, &start.observation, woken_by, now);
        self.report_reclaiming(&start, eviction.as_ref(), now);
        if let Some(eviction) = eviction {
            self.report_eviction(&start, &eviction);
        }
        self.report_limits(&mut turn, now);
        self.report_notes(&start.observation, now);
        let conditions: Vec<_> = self.node_conditions().collect();
        for (condition, holds) in conditions {
            self.reporter.report_condition(condition.as_str(), holds, Some(condition), now);
        }
        self.publish_status();
    }

    /// Returns how long to wait, and the reason of the wakeup that follows.
    fn next_wakeup(&self) -> (Duration, Wakeup) {
        // An audit does not continue without a sample.
        let audits_on = self.actions.auditor.is_busy() && self.sensors.memory.sample().is_some();
        if audits_on { (Duration::ZERO, Wakeup::Housekeeping) } else { self.next_event(Monotonic::now()) }
    }

    /// Returns the time until the next timed task.
    fn next_event(&self, now: Monotonic) -> (Duration, Wakeup) {
        let Some(until_sample) = self.sensors.until_sample(&self.config, now) else {
            return (self.config.sampling.ceiling.min(Duration::from_secs(1)), Wakeup::Deadline);
        };
        let mut soonest = (until_sample, Wakeup::Deadline);
        let mut sooner = |wait: Option<Duration>, wakeup| {
            if let Some(wait) = wait.filter(|wait| *wait < soonest.0) {
                soonest = (wait, wakeup);
            }
        };
        sooner(self.decision.assessment().next_change, Wakeup::Deadline);
        sooner(self.actions.evictor.next_poll(now), Wakeup::Eviction);
        sooner(self.sensors.oom_kills.until_due(now), Wakeup::KernelLog);
        sooner(self.actions.reclaim.next_check(now), Wakeup::Reclaim);
        sooner(
            self.sensors.signals.pids.until_due(&self.config.policy, self.config.sampling.ceiling, now),
            Wakeup::Deadline,
        );
        sooner(self.decision.retry().map(|retry| retry.since(now)), Wakeup::Eviction);
        sooner(self.reporter.recorder.next_due(now), Wakeup::Deadline);
        sooner(self.sensors.pressure.until_due(now), Wakeup::Pressure);
        if self.sensors.pods.has_any() {
            let limits = self.decision.limits_due().map_or(Duration::ZERO, |due| due.since(now));
            sooner(Some(limits), Wakeup::Deadline);
        }
        sooner(self.until_taint(now), Wakeup::Deadline);
        sooner(Some(self.until_housekeeping(now)), Wakeup::Housekeeping);
        soonest
    }

    fn with_metrics(&self, act: impl FnOnce(&Metrics)) {
        self.reporter.with_metrics(act);
    }
}
