//! The agent's loop: waits for the next wakeup, observes, decides, acts and reports.

mod events;
mod housekeeping;
mod observe;
mod reload;
mod sample_alone;
mod start;
mod turn;
mod wakeup;

use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::actions::{Actions, KeptState};
use crate::config::MonitorConfig;
use crate::eviction::decider::Decider;
use crate::node::timer::Timer;
use crate::report::live::Aside;
use crate::report::publications::LONGEST_PAUSE;
use crate::report::record::Record;
use crate::report::{LoopState, Reporter};
use crate::sensors::Sensors;
use crate::units::Monotonic;
use crate::workloads::WorkloadUsage;

pub use self::reload::Reload;
use self::sample_alone::Sampled;
pub use self::wakeup::Wakeup;

#[derive(Debug)]
pub struct Agent {
    config: MonitorConfig,
    sensors: Sensors,
    decision: Decider<WorkloadUsage>,
    actions: Actions,
    reporter: Reporter,
    reload: Reload,
    kept: KeptState,
    last: LastTimes,
}

/// Times of the last periodic work.
#[derive(Debug, Default)]
struct LastTimes {
    first_sample: Option<Monotonic>,
    housekeeping: Option<Monotonic>,
    /// The last full report after which the counters of removed cgroups were dropped.
    full_report: Option<Monotonic>,
    published: Option<Monotonic>,
    /// When the decision was last rehearsed.
    rehearsed: Option<Monotonic>,
    /// Whether the memory of the first connections and reports was given back.
    is_settled: bool,
    /// When the last whole turn ended.
    whole_turn: Option<Monotonic>,
    /// Until this time a sample may come without a whole turn.
    alone_until: Option<Monotonic>,
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
            let may_publish = self.may_publish();
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
                    self.request_reload();
                    Wakeup::Configuration
                }
                update = self.reload.update() => {
                    self.take_configuration(update);
                    Wakeup::Configuration
                }
                event = self.actions.runtime.event() => {
                    self.handle_runtime_event(&event);
                    Wakeup::Runtime
                }
                event = self.actions.cluster.event() => {
                    self.handle_cluster_event(event);
                    Wakeup::Cluster
                }
                () = self.reporter.outlets.publications.asked(), if may_publish => {
                    // A scrape is not a turn: nothing is decided.
                    self.reporter.outlets.metrics.wakeup(Wakeup::Scrape.as_str());
                    let is_complete = self.reporter.outlets.publications.takes_metrics();
                    self.publish(is_complete);
                    continue;
                }
            };
            self.run_turn(wakeup);
            if self.sensors.events.has_more() {
                // A ring buffer that never runs dry must not delay signals and requests.
                tokio::task::yield_now().await;
            }
        }
        self.report_rest(Monotonic::now());
        Ok(())
    }

    /// Records the remaining incidents, and reports the evictions that the agent leaves, when it stops.
    fn report_rest(&mut self, now: Monotonic) {
        self.sensors.events.drain();
        self.report_kernel_events(now);
        let (reporter, mut state) = self.reporting();
        reporter.record_oom_kills(&mut state, true, now);
        self.reporter.send_events(&self.sensors, &self.actions.cluster, &self.config.kubernetes, now);
        for workload in self.actions.evictor.in_grace() {
            self.reporter.report(&Record::EvictionLeft { workload }, now);
        }
        self.reporter.report(&Record::Stopped, now);
    }

    pub fn run_turn(&mut self, wakeup: Wakeup) {
        let now = Monotonic::now();
        self.reporter.outlets.metrics.wakeup(wakeup.as_str());
        self.reporter.outlets.health.beat(Instant::now());
        let Sampled::ForTurn(sample) = self.sample_alone(wakeup, now) else { return };
        self.sensors.events.drain();
        self.decide(wakeup, now, sample);
        self.kept.keep(self.decision.memory());
        self.report_kernel_events(now);
        let (reporter, mut state) = self.reporting();
        reporter.record_oom_kills(&mut state, false, Monotonic::now());
        self.audit_if_due();
        self.refresh_figures(wakeup, now);
        // Conditions that follow from pressure. Conditions of thresholds were published right after the decision.
        self.publish_status(now);
        self.reporter.send_events(&self.sensors, &self.actions.cluster, &self.config.kubernetes, now);
        self.prepare();
        self.watch_growth();
        self.sensors.steer_disks(&mut self.decision, &self.actions.runtime, &self.config, now);
        self.actions.hand_orders(self.sensors.workloads.tree());
        if self.until_housekeeping(Monotonic::now()).is_zero() {
            self.do_housekeeping();
        }
        self.settle(now);
        self.reporter.report_capabilities(&mut self.sensors, now);
        self.note_whole_turn();
    }

    /// Returns the reporter, and the state from which it draws its reports.
    fn reporting(&mut self) -> (&mut Reporter, LoopState<'_>) {
        let Self { config, sensors, decision, reporter, .. } = self;
        (reporter, LoopState { config, sensors, decision })
    }

    fn report_kernel_events(&mut self, now: Monotonic) {
        let audits = &mut self.actions.audits;
        self.reporter.report_kernel_events(&mut self.sensors, |pid| audits.note_write(pid), now);
    }

    /// Publishes the report for the HTTP server. Returns false if the receiver lags behind and the report was dropped.
    fn publish(&mut self, is_complete: bool) -> bool {
        let begun = Monotonic::now();
        let Self { config, sensors, decision, reporter, actions, reload, .. } = self;
        let aside = Aside {
            oom_score_adj_drift: actions.audits.drifted() as u64,
            configuration: reload.state(),
            under_way: actions.evictor.ongoing().collect(),
        };
        let is_published = reporter.publish(&mut LoopState { config, sensors, decision }, &aside, is_complete, begun);
        let ended = Monotonic::now();
        self.last.published = Some(ended);
        self.reporter.outlets.publications.pause(ended.since(begun));
        is_published
    }

    /// Returns whether the loop may publish for a request now. Near a threshold the next sample goes first, for at most a second.
    fn may_publish(&self) -> bool {
        let is_old = |at: Monotonic| Monotonic::now().since(at) >= LONGEST_PAUSE;
        self.last.published.is_none_or(is_old) || !self.is_near()
    }

    fn publish_status(&mut self, now: Monotonic) {
        let Self { config, sensors, decision, reporter, actions, reload, .. } = self;
        let state = LoopState { config, sensors, decision };
        reporter.publish_status(&state, reload.state(), &actions.cluster, now);
    }

    fn publish_digest(&mut self) {
        let Self { config, sensors, decision, reporter, actions, reload, .. } = self;
        reporter.publish_digest(&LoopState { config, sensors, decision }, reload.state(), &actions.cluster);
    }

    /// Returns how long to wait, and the reason of the wakeup that follows.
    fn next_wakeup(&self) -> (Duration, Wakeup) {
        // An audit does not continue without a sample.
        let audits_on = self.actions.audits.is_busy() && self.sensors.memory.sample().is_some();
        if audits_on { (Duration::ZERO, Wakeup::Housekeeping) } else { self.next_event(Monotonic::now()) }
    }

    /// Returns the time until the next sample, where a threshold is imminent by what is measured.
    fn until_imminent(&self, now: Monotonic) -> Option<Duration> {
        let within = self.decision.sampled_within(&self.config.policy, now)?;
        Some(within.saturating_sub(now.since(self.sensors.memory.sample()?.at)))
    }

    /// Returns the time until the next timed task.
    fn next_event(&self, now: Monotonic) -> (Duration, Wakeup) {
        let Some(until_sample) = self.sensors.until_sample(&self.config, now) else {
            return (self.config.sampling.ceiling.min(Duration::from_secs(1)), Wakeup::Deadline);
        };
        let besides = self.next_besides_sample(now);
        [(until_sample, Wakeup::Deadline), besides].into_iter().min_by_key(|(wait, _)| *wait).unwrap_or(besides)
    }

    /// Returns the time until the next timed task other than a sample that is due by the fastest possible fall.
    fn next_besides_sample(&self, now: Monotonic) -> (Duration, Wakeup) {
        let mut soonest = (self.until_housekeeping(now), Wakeup::Housekeeping);
        let mut sooner = |wait: Option<Duration>, wakeup| {
            if let Some(wait) = wait.filter(|wait| *wait < soonest.0) {
                soonest = (wait, wakeup);
            }
        };
        sooner(self.decision.assessment().next_change, Wakeup::Deadline);
        sooner(self.until_imminent(now), Wakeup::Deadline);
        sooner(self.actions.evictor.next_poll(now), Wakeup::Eviction);
        sooner(self.sensors.oom_kills.until_due(now), Wakeup::KernelLog);
        sooner(self.actions.reclaim.next_check(now), Wakeup::Reclaim);
        let pids = &self.sensors.signals.pids;
        sooner(pids.until_due(&self.config.policy, self.config.sampling.ceiling, now), Wakeup::Deadline);
        sooner(self.decision.retry().map(|retry| retry.since(now)), Wakeup::Eviction);
        sooner(self.reporter.recorder.next_due(now), Wakeup::Deadline);
        sooner(self.sensors.pressure.until_due(now), Wakeup::Pressure);
        if self.sensors.pods.has_any() {
            let limits = self.decision.limits_due().map_or(Duration::ZERO, |due| due.since(now));
            sooner(Some(limits), Wakeup::Deadline);
        }
        sooner(self.reporter.status().until_taint(&self.config.kubernetes, now), Wakeup::Deadline);
        soonest
    }
}
