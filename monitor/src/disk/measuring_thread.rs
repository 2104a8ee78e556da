//! The measuring thread: chooses a workload, measures it in small steps, and pauses to stay within its CPU budget.

use std::collections::{BTreeSet, VecDeque};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::cpu_throttle::{Throttle, lower_priority, thread_cpu};
use super::directory_walk::{NAMES, Progress};
use super::host_files::Roots;
use super::last_complete::LastComplete;
use super::measured_usage::{Usage, Usages};
use super::measurement::{Measurement, Outcome};
use super::measuring_orders::Shared;
use super::place_finder::Finder;
use super::project_quota::Claims;
use super::quota_recount::{Recount, Refreshed};
use super::schedule::{Next, Schedule, Timing};
use super::workload_places::WorkloadPlaces;
use crate::config::DiskUsageOptions;
use crate::units::Monotonic;

/// The number of files and steps between two reads of the clocks. One step may read as many files as this.
const ENTRIES: u64 = 256;
const STEPS: u32 = 64;
/// How often a measurement under way publishes its partial result.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// The same interval under pressure: the workload that fills the disk stands out long before its last file is found.
const PUBLISH_INTERVAL_PRESSED: Duration = Duration::from_millis(200);
/// How often a measurement under way reads the orders and yields if necessary.
const ORDERS_INTERVAL: Duration = Duration::from_millis(100);
/// How long one workload is measured before another gets its turn.
const TIME_SLICE: Duration = Duration::from_secs(2);
/// After an order to remeasure, due workloads precede suspended ones for this long, so that small ones finish before a victim is
/// chosen.
const REMEASURE_CREDIT: Duration = Duration::from_secs(4);
/// The credit is granted only this often, so that suspended measurements finish as well.
const REMEASURE_CREDIT_INTERVAL: Duration = Duration::from_secs(10);
/// Limit of suspended measurements. Each has about sixty open files, and at most two MiB.
const MAX_SUSPENDED: usize = 7;
/// Orders that arrive within this time are read together.
const MIN_WAIT: Duration = Duration::from_millis(50);
/// The wait when no measurement is due.
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// The part of the budget that the throttle uses. The rest covers costs of the thread elsewhere, and the last step.
const BUDGET_PART: f64 = 0.98;
/// Limit of degradations. Each is a line of the log and of the summary.
const MAX_DEGRADATIONS: usize = 16;

#[derive(Debug)]
pub(super) struct Thread {
    options: DiskUsageOptions,
    shared: Arc<Shared>,
    publish: watch::Sender<Arc<Usages>>,
    finder: Finder,
    schedule: Schedule,
    claims: Claims,
    recount: Recount,
    last_complete: LastComplete,
    throttle: Throttle,
    buffer: Box<[MaybeUninit<u8>]>,
    /// Interrupted measurements, resumed in turn. Each is completed, because a partial result can only rise.
    suspended: VecDeque<Measurement>,
    /// How long resumed and new measurements ran recently. If both kinds wait, they share the time equally.
    resumed_for: Duration,
    begun_for: Duration,
    /// When the last credit for remeasuring was granted, and whether the current measurement must yield for it.
    credited: Monotonic,
    is_credited: bool,
    /// Until this time other workloads precede prioritized ones.
    others_until: Monotonic,
    usages: Usages,
}

impl Thread {
    pub(super) fn new(
        options: DiskUsageOptions,
        roots: Roots,
        shared: Arc<Shared>,
        publish: watch::Sender<Arc<Usages>>,
    ) -> Self {
        let watchdog = Arc::clone(&shared.watchdog);
        let throttle = Throttle::new(options.cpu_share * BUDGET_PART, thread_cpu(), Monotonic::now());
        Self {
            options,
            shared,
            publish,
            finder: Finder::new(roots, watchdog),
            schedule: Schedule::default(),
            claims: Claims::default(),
            recount: Recount::default(),
            last_complete: LastComplete::default(),
            throttle,
            buffer: vec![MaybeUninit::uninit(); NAMES].into_boxed_slice(),
            suspended: VecDeque::new(),
            resumed_for: Duration::ZERO,
            begun_for: Duration::ZERO,
            credited: Monotonic::default(),
            is_credited: false,
            others_until: Monotonic::default(),
            usages: Usages::default(),
        }
    }

    /// Runs until the [`Walker`](super::Walker) is dropped.
    pub(super) fn run(mut self) {
        self.report(lower_priority());
        self.publish();
        while self.take_orders() {
            self.recount_if_due();
            let now = Monotonic::now();
            match self.choose(now) {
                Choice::Measure(measurement, turn) => self.measure(*measurement, turn),
                Choice::Wait(duration) => {
                    let until_recount = self.recount.due(now, self.schedule.is_pressed(now));
                    self.wait(duration.into_iter().chain(until_recount).min());
                }
            }
        }
    }

    /// Takes the orders. Returns false if the thread must exit.
    fn take_orders(&mut self) -> bool {
        let (workloads, prioritized, remeasure_since, is_pressed) = {
            let mut orders = self.shared.lock();
            if orders.is_stopping {
                return false;
            }
            let prioritized = std::mem::take(&mut orders.prioritized);
            (orders.workloads.take(), prioritized, orders.remeasure_since.take(), orders.is_pressed)
        };
        if let Some(workloads) = workloads {
            self.set_workloads(workloads);
        }
        let now = Monotonic::now();
        for workload in &prioritized {
            self.schedule.prioritize(workload);
        }
        if let Some(since) = remeasure_since {
            self.schedule.invalidate(since);
            if now.since(self.credited) >= REMEASURE_CREDIT_INTERVAL {
                (self.credited, self.is_credited) = (now, true);
                (self.begun_for, self.resumed_for) = (Duration::ZERO, REMEASURE_CREDIT);
            }
        }
        self.schedule.set_pressure(is_pressed, now);
        let share =
            if self.schedule.is_pressed(now) { self.options.pressure_cpu_share } else { self.options.cpu_share };
        self.throttle.set_share(share * BUDGET_PART, thread_cpu(), now);
        true
    }

    fn set_workloads(&mut self, workloads: Vec<WorkloadPlaces>) {
        let before = self.usages.by_workload.len();
        let is_known = |name: &str, id| workloads.iter().any(|places| places.workload == name && places.id == id);
        self.usages.by_workload.retain(|name, usage| is_known(name, usage.id));
        self.claims.keep(|name| workloads.iter().any(|places| places.workload == name));
        self.recount.keep(is_known);
        self.last_complete.keep(is_known);
        self.schedule.set_workloads(workloads);
        let schedule = &self.schedule;
        self.suspended.retain(|suspended| schedule.contains(&suspended.wanted));
        if self.usages.by_workload.len() != before {
            self.publish();
        }
    }

    fn choose(&mut self, now: Monotonic) -> Choice {
        let next = self.schedule.next(now, now < self.others_until);
        let is_resumed_first = self.begun_for >= TIME_SLICE;
        self.is_credited = false;
        match next {
            Next::Prioritized(places) => Choice::Measure(Box::new(self.begin(places, now)), Turn::Prioritized),
            Next::Due(_) if is_resumed_first && !self.suspended.is_empty() => self.resume(),
            Next::Due(places) => Choice::Measure(Box::new(self.begin(places, now)), Turn::Begun),
            Next::Wait(_) | Next::Nothing if !self.suspended.is_empty() => self.resume(),
            Next::Wait(duration) => Choice::Wait(Some(duration)),
            Next::Nothing => Choice::Wait(None),
        }
    }

    fn resume(&mut self) -> Choice {
        self.suspended.pop_front().map_or(Choice::Wait(None), |left| Choice::Measure(Box::new(left), Turn::Resumed))
    }

    fn begin(&mut self, places: WorkloadPlaces, now: Monotonic) -> Measurement {
        self.schedule.begin(&places.workload);
        let cpu = thread_cpu();
        let mut measurement = Measurement::begin(&mut self.finder, places, now);
        measurement.cpu = thread_cpu().saturating_sub(cpu);
        measurement
    }

    /// Measures until the measurement is complete, another workload has precedence, or the thread must exit.
    fn measure(&mut self, mut measurement: Measurement, turn: Turn) {
        let begun = Monotonic::now();
        let (mut published, mut orders_taken) = (begun, begun);
        self.finder.enter(measurement.place());
        loop {
            let cpu = thread_cpu();
            let entries = measurement.entries();
            let progress = self.steps(&mut measurement);
            self.usages.effort.entries += measurement.entries().saturating_sub(entries);
            measurement.cpu += thread_cpu().saturating_sub(cpu);
            let now = Monotonic::now();
            if progress == Progress::Done {
                self.account(turn, begun, now);
                return self.finish(measurement);
            }
            if !self.pause() {
                return;
            }
            let interval = if self.schedule.is_pressed(now) { PUBLISH_INTERVAL_PRESSED } else { PUBLISH_INTERVAL };
            if now.since(published) >= interval {
                published = now;
                self.publish_partial(&measurement);
            }
            if now.since(orders_taken) >= ORDERS_INTERVAL {
                orders_taken = now;
                if !self.take_orders() || !self.schedule.contains(&measurement.wanted) {
                    return;
                }
                self.recount_if_due();
                if self.is_to_yield(turn, now.since(begun), now) {
                    self.account(turn, begun, now);
                    self.publish_partial(&measurement);
                    self.suspended.push_back(measurement);
                    return;
                }
            }
        }
    }

    /// Returns whether another workload has precedence: a prioritized one at once, any other one after a time slice.
    fn is_to_yield(&self, turn: Turn, ran: Duration, now: Monotonic) -> bool {
        if self.suspended.len() >= MAX_SUSPENDED {
            return false;
        }
        match self.schedule.next(now, now < self.others_until) {
            Next::Prioritized(_) if turn != Turn::Prioritized => true,
            Next::Due(_) if self.is_credited && turn != Turn::Begun => true,
            Next::Prioritized(_) | Next::Due(_) => ran >= TIME_SLICE,
            Next::Wait(_) | Next::Nothing => ran >= TIME_SLICE && !self.suspended.is_empty(),
        }
    }

    /// Accounts for the time of a measurement. After a prioritized workload the others have precedence for as long as it ran.
    fn account(&mut self, turn: Turn, begun: Monotonic, now: Monotonic) {
        let ran = now.since(begun);
        match turn {
            Turn::Prioritized => self.others_until = now.after(ran),
            Turn::Begun => self.begun_for += ran,
            Turn::Resumed => self.resumed_for += ran,
        }
        // Time in which only one kind had work is no credit for the other kind.
        let both = self.begun_for.min(self.resumed_for);
        self.begun_for = self.begun_for.saturating_sub(both).min(TIME_SLICE);
        self.resumed_for = self.resumed_for.saturating_sub(both).min(REMEASURE_CREDIT);
    }

    fn steps(&mut self, measurement: &mut Measurement) -> Progress {
        let until = measurement.entries().saturating_add(ENTRIES);
        for _ in 0..STEPS {
            self.finder.touch();
            if measurement.step(&self.finder, &mut self.claims, &mut self.buffer) == Progress::Done {
                return Progress::Done;
            }
            if measurement.entries() >= until {
                break;
            }
        }
        Progress::More
    }

    fn finish(&mut self, measurement: Measurement) {
        let now = Monotonic::now();
        let (began, cpu) = (measurement.begun, measurement.cpu);
        let timing = Timing { began, at: now, took: now.since(began), cpu };
        let places = measurement.wanted.clone();
        let Outcome { usage, quota_places, missing } = measurement.outcome(&mut self.last_complete);
        self.usages.effort.measured += 1;
        self.report(missing);
        if self.schedule.contains(&places) {
            self.schedule.done(&places.workload, timing);
            self.recount.set(&places.workload, places.id, quota_places);
            // The quotas were read when the measurement began; a recount since then may have published newer values.
            let usage = self.refreshed(&places.workload, &usage).unwrap_or(usage);
            self.usages.by_workload.insert(Arc::from(places.workload), Arc::new(usage));
            self.publish();
        }
    }

    fn recount_if_due(&mut self) {
        let now = Monotonic::now();
        if self.recount.due(now, self.schedule.is_pressed(now)) != Some(Duration::ZERO) {
            return;
        }
        let cpu = thread_cpu();
        for workload in self.recount.workloads() {
            let Some(known) = self.usages.by_workload.get(workload.as_str()).cloned() else { continue };
            self.finder.enter(std::path::Path::new(&workload));
            if let Some(usage) = self.refreshed(&workload, &known) {
                self.usages.effort.recounts += 1;
                self.usages.by_workload.insert(Arc::from(workload), Arc::new(usage));
            }
        }
        self.publish();
        self.recount.done(Monotonic::now(), thread_cpu().saturating_sub(cpu));
    }

    /// Returns a usage with the current values of its quotas.
    fn refreshed(&mut self, workload: &str, known: &Usage) -> Option<Usage> {
        match self.recount.refreshed(self.finder.host(), &mut self.claims, workload, known) {
            Refreshed::Known(usage) => Some(usage),
            Refreshed::Changed => {
                self.recount.set(workload, known.id, Vec::new());
                self.schedule.prioritize(workload);
                None
            }
            Refreshed::Unknown => None,
        }
    }

    fn publish_partial(&mut self, measurement: &Measurement) {
        let places = &measurement.wanted;
        if !self.schedule.contains(places) {
            return;
        }
        let before = self.usages.get(&places.workload, places.id);
        if let Some(usage) = measurement.partial_usage(before.map(|usage| &**usage)) {
            self.usages.by_workload.insert(Arc::from(places.workload.as_str()), Arc::new(usage));
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.usages.effort.cpu = thread_cpu();
        self.usages.unmeasured = self.schedule.unmeasured();
        self.publish.send_replace(Arc::new(self.usages.clone()));
    }

    /// Logs and publishes each degradation once.
    fn report(&mut self, degradations: BTreeSet<String>) {
        for reason in degradations {
            let reported = &mut self.usages.degradations;
            if reported.len() < MAX_DEGRADATIONS && !reported.contains(&reason) {
                tracing::warn!(event = "degraded", reason, "disk usage is incomplete");
                reported.push(reason);
            }
        }
    }

    /// Pauses for the cost of the last work. Returns false if the thread must exit.
    fn pause(&mut self) -> bool {
        while let Some(delay) = self.throttle.delay(thread_cpu(), Monotonic::now()) {
            if !self.sleep(delay) {
                return false;
            }
        }
        true
    }

    /// Sleeps. Returns early, with false, only if the thread must exit.
    fn sleep(&self, duration: Duration) -> bool {
        self.shared.watchdog.idle();
        self.shared.sleep(duration)
    }

    /// Waits for new orders, at most for `duration`.
    fn wait(&self, duration: Option<Duration>) {
        let shortest = duration.map_or(MIN_WAIT, |duration| duration.min(MIN_WAIT));
        if self.sleep(shortest) {
            let rest = duration.unwrap_or(MAX_WAIT).saturating_sub(shortest);
            self.shared.wait_for_orders(rest, self.schedule.is_pressure_reported());
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Prioritized,
    Begun,
    Resumed,
}

enum Choice {
    Measure(Box<Measurement>, Turn),
    Wait(Option<Duration>),
}
