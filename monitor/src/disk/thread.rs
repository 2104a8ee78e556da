//! The thread itself: whose turn it is, a little work, a rest.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::claims::Claims;
use super::clock::thread_cpu;
use super::host::Roots;
use super::measurement::{Measurement, Outcome};
use super::pace::Pace;
use super::places::{Finder, WorkloadPlaces};
use super::recount::{Recount, Refreshed};
use super::schedule::{Made, Next, Schedule};
use super::tree::{NAMES, Progress};
use super::usage::{Usage, Usages};
use super::walker::{Orders, Shared};
use crate::config::DiskUsageOptions;
use crate::node::Monotonic;

/// Between two looks at the clocks: fewer than a step may take anyway.
const ENTRIES: u64 = 256;
const STEPS: u32 = 64;
/// What is known is told this often while the walk goes on.
const TOLD_AGAIN: Duration = Duration::from_secs(1);
/// While a filesystem runs full: who has filled it stands out long before its last file is found.
const TOLD_AGAIN_PRESSED: Duration = Duration::from_millis(200);
/// Whether somebody else is to go first is asked this often.
const ASKED_AGAIN: Duration = Duration::from_millis(100);
/// News that come thick and fast are taken in together.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
/// With nothing to measure.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Of the budget; the rest is for what others do because of it, and for the last step, which is paid for afterwards.
const AIM: f64 = 0.98;
/// The nicest there is.
const NICE: i32 = 19;
/// Each is a line of the log and of the summary.
const MOST_SAID: usize = 16;

/// What the thread works with.
#[derive(Debug)]
pub(super) struct Thread {
    options: DiskUsageOptions,
    shared: Arc<Shared>,
    publish: watch::Sender<Arc<Usages>>,
    finder: Finder,
    schedule: Schedule,
    claims: Claims,
    recount: Recount,
    pace: Pace,
    buffer: Box<[MaybeUninit<u8>]>,
    /// Left for one that gave a sign of having changed; only one at a time.
    suspended: Option<Measurement>,
    /// Who gave such a sign has had its turn: until then it is that of the others.
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
        let pace = Pace::new(options.cpu_share * AIM, thread_cpu(), Monotonic::now());
        Self {
            options,
            shared,
            publish,
            finder: Finder::new(roots),
            schedule: Schedule::default(),
            claims: Claims::default(),
            recount: Recount::default(),
            pace,
            buffer: vec![MaybeUninit::uninit(); NAMES].into_boxed_slice(),
            suspended: None,
            others_until: Monotonic::default(),
            usages: Usages::default(),
        }
    }

    /// Works until the other side is gone.
    pub(super) fn run(mut self) {
        self.say(step_back());
        self.tell();
        while self.receive() {
            self.recount_if_due();
            match self.choose(Monotonic::now()) {
                Choice::Measure(measurement, is_hurried) => self.work(*measurement, is_hurried),
                Choice::Wait(duration) => {
                    let until_recount = self.recount.due(Monotonic::now(), self.schedule.is_pressed());
                    self.wait(duration.into_iter().chain(until_recount).min());
                }
            }
        }
    }

    /// Takes in what was told; false when all is over.
    fn receive(&mut self) -> bool {
        let (wanted, hurried, renewed, is_pressed) = {
            let mut orders = self.shared.lock();
            if orders.is_over {
                return false;
            }
            (orders.wanted.take(), std::mem::take(&mut orders.hurried), orders.renewed.take(), orders.is_pressed)
        };
        if let Some(wanted) = wanted {
            self.want(wanted);
        }
        for workload in &hurried {
            self.schedule.hurry(workload);
        }
        if let Some(since) = renewed {
            self.schedule.renew(since);
            self.suspended = None;
        }
        self.schedule.press(is_pressed);
        let share = if is_pressed { self.options.pressure_cpu_share } else { self.options.cpu_share };
        self.pace.set_share(share * AIM, thread_cpu(), Monotonic::now());
        true
    }

    fn want(&mut self, wanted: Vec<WorkloadPlaces>) {
        let before = self.usages.by_workload.len();
        let is_wanted =
            |name: &str, usage: &Usage| wanted.iter().any(|places| places.workload == name && places.id == usage.id);
        self.usages.by_workload.retain(|name, usage| is_wanted(name, usage));
        self.claims.keep(|workload| wanted.iter().any(|places| places.workload == workload));
        self.recount.keep(|workload, id| wanted.iter().any(|it| it.workload == workload && it.id == id));
        self.schedule.want(wanted);
        if self.suspended.as_ref().is_some_and(|left| !self.schedule.wants(&left.wanted)) {
            self.suspended = None;
        }
        if self.usages.by_workload.len() != before {
            self.tell();
        }
    }

    fn choose(&mut self, now: Monotonic) -> Choice {
        let next = self.schedule.next(now, now < self.others_until);
        let suspended = self.suspended.take();
        match (next, suspended) {
            (Next::Hurried(places), Some(left)) if left.wanted.workload == places.workload => {
                self.schedule.begin(&places.workload);
                Choice::Measure(Box::new(left), true)
            }
            (Next::Hurried(places), left) => {
                self.suspended = left;
                Choice::Measure(Box::new(self.begin(places, now)), true)
            }
            (_, Some(left)) => Choice::Measure(Box::new(left), false),
            (Next::Due(places), None) => Choice::Measure(Box::new(self.begin(places, now)), false),
            (Next::Wait(duration), None) => Choice::Wait(Some(duration)),
            (Next::Nothing, None) => Choice::Wait(None),
        }
    }

    fn begin(&mut self, places: WorkloadPlaces, now: Monotonic) -> Measurement {
        self.schedule.begin(&places.workload);
        let cpu = thread_cpu();
        let mut measurement = Measurement::begin(&mut self.finder, places, now);
        measurement.cpu = thread_cpu().saturating_sub(cpu);
        measurement
    }

    /// Measures until that is done, or somebody else is to go first, or all is over.
    fn work(&mut self, mut measurement: Measurement, is_hurried: bool) {
        let (mut told, mut asked) = (Monotonic::now(), Monotonic::now());
        loop {
            let cpu = thread_cpu();
            let entries = measurement.entries();
            let progress = self.steps(&mut measurement);
            self.usages.effort.entries += measurement.entries().saturating_sub(entries);
            measurement.cpu += thread_cpu().saturating_sub(cpu);
            if progress == Progress::Done {
                return self.finish(measurement, is_hurried);
            }
            if !self.breathe() {
                return;
            }
            let now = Monotonic::now();
            let again = if self.schedule.is_pressed() { TOLD_AGAIN_PRESSED } else { TOLD_AGAIN };
            if now.since(told) >= again {
                told = now;
                self.tell_so_far(&measurement);
            }
            if now.since(asked) >= ASKED_AGAIN {
                asked = now;
                if !self.receive() || self.schedule.is_outdated(measurement.begun) {
                    return;
                }
                self.recount_if_due();
                if !is_hurried && self.is_urgent_for_another(&measurement.wanted, now) {
                    self.suspended = Some(measurement);
                    return;
                }
            }
        }
    }

    fn is_urgent_for_another(&self, places: &WorkloadPlaces, now: Monotonic) -> bool {
        let next = self.schedule.next(now, now < self.others_until);
        matches!(next, Next::Hurried(other) if other.workload != places.workload)
    }

    fn steps(&mut self, measurement: &mut Measurement) -> Progress {
        let until = measurement.entries().saturating_add(ENTRIES);
        for _ in 0..STEPS {
            if measurement.step(&self.finder, &mut self.claims, &mut self.buffer) == Progress::Done {
                return Progress::Done;
            }
            if measurement.entries() >= until {
                break;
            }
        }
        Progress::More
    }

    fn finish(&mut self, measurement: Measurement, is_hurried: bool) {
        let now = Monotonic::now();
        let (began, cpu) = (measurement.begun, measurement.cpu);
        let made = Made { began, at: now, took: now.since(began), cpu };
        let places = measurement.wanted.clone();
        let Outcome { usage, counted, missing } = measurement.outcome();
        if is_hurried {
            self.others_until = now.after(made.took);
        }
        self.usages.effort.measured += 1;
        self.say(missing);
        if self.schedule.wants(&places) {
            self.schedule.done(&places.workload, made);
            self.recount.set(&places.workload, places.id, counted);
            // A walk takes its time: what quotas said when it began is older than what was told since.
            let usage = self.refreshed(&places.workload, &usage).unwrap_or(usage);
            self.usages.by_workload.insert(Arc::from(places.workload), Arc::new(usage));
            self.tell();
        }
    }

    /// Reads all quotas again, where that is worth it by now.
    fn recount_if_due(&mut self) {
        if self.recount.due(Monotonic::now(), self.schedule.is_pressed()) != Some(Duration::ZERO) {
            return;
        }
        let cpu = thread_cpu();
        for workload in self.recount.workloads() {
            let Some(known) = self.usages.by_workload.get(workload.as_str()).cloned() else { continue };
            if let Some(usage) = self.refreshed(&workload, &known) {
                self.usages.effort.recounts += 1;
                self.usages.by_workload.insert(Arc::from(workload), Arc::new(usage));
            }
        }
        self.tell();
        self.recount.done(Monotonic::now(), thread_cpu().saturating_sub(cpu));
    }

    /// A usage with what quotas say now.
    fn refreshed(&mut self, workload: &str, known: &Usage) -> Option<Usage> {
        match self.recount.refreshed(self.finder.host(), &mut self.claims, workload, known) {
            Refreshed::Known(usage) => Some(usage),
            Refreshed::Changed => {
                self.recount.set(workload, known.id, Vec::new());
                self.schedule.hurry(workload);
                None
            }
            Refreshed::Unknown => None,
        }
    }

    fn tell_so_far(&mut self, measurement: &Measurement) {
        let places = &measurement.wanted;
        if !self.schedule.wants(places) {
            return;
        }
        let before = self.usages.get(&places.workload, places.id);
        if let Some(usage) = measurement.more_than(before.map(|usage| &**usage)) {
            self.usages.by_workload.insert(Arc::from(places.workload.as_str()), Arc::new(usage));
            self.tell();
        }
    }

    fn tell(&mut self) {
        self.usages.effort.cpu = thread_cpu();
        self.publish.send_replace(Arc::new(self.usages.clone()));
    }

    /// Says once what cannot be measured.
    fn say(&mut self, missing: BTreeSet<String>) {
        for reason in missing {
            let said = &mut self.usages.degradations;
            if said.len() < MOST_SAID && !said.contains(&reason) {
                tracing::warn!(event = "degraded", reason, "running without it");
                said.push(reason);
            }
        }
    }

    /// Rests for what the last work has cost; false when all is over.
    fn breathe(&mut self) -> bool {
        while let Some(rest) = self.pace.rest(thread_cpu(), Monotonic::now()) {
            if !self.rest(rest) {
                return false;
            }
        }
        true
    }

    /// Rests, and only the end is a reason to wake up; false then.
    fn rest(&self, duration: Duration) -> bool {
        let orders = self.shared.lock();
        let waited = self.shared.news.wait_timeout_while(orders, duration, |orders| !orders.is_over);
        let (orders, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !orders.is_over
    }

    /// Waits for news, at most so long.
    fn wait(&self, duration: Option<Duration>) {
        let shortest = duration.map_or(SHORTEST_WAIT, |duration| duration.min(SHORTEST_WAIT));
        if !self.rest(shortest) {
            return;
        }
        let mut orders = self.shared.lock();
        orders.is_idle = true;
        let is_pressed = self.schedule.is_pressed();
        let is_quiet = |orders: &mut Orders| {
            let is_told = orders.wanted.is_some()
                || !orders.hurried.is_empty()
                || orders.renewed.is_some()
                || orders.is_pressed != is_pressed;
            !orders.is_over && !is_told
        };
        let rest = duration.unwrap_or(LONGEST_WAIT).saturating_sub(shortest);
        let waited = self.shared.news.wait_timeout_while(orders, rest, is_quiet);
        let (mut orders, _) = waited.unwrap_or_else(PoisonError::into_inner);
        orders.is_idle = false;
    }
}

enum Choice {
    Measure(Box<Measurement>, bool),
    Wait(Option<Duration>),
}

/// Takes the CPU and the disk only when nobody else wants them. Returns what could not be had.
fn step_back() -> BTreeSet<String> {
    let mut missing = BTreeSet::new();
    if let Err(errno) = rustix::process::setpriority_process(None, NICE) {
        missing.insert(format!(
            "disk usage: cannot set nice {NICE}: {errno}; measuring takes the CPU from others, within its budget"
        ));
    }
    // `IOPRIO_WHO_PROCESS`, this thread, `IOPRIO_CLASS_IDLE` of <linux/ioprio.h>.
    let (who, this, idle) = (1, 0, 3 << 13);
    // SAFETY: the call takes three numbers.
    if unsafe { libc::syscall(libc::SYS_ioprio_set, who, this, idle) } != 0 {
        let error = std::io::Error::last_os_error();
        missing.insert(format!(
            "disk usage: cannot use the idle I/O class: {error}; measuring may slow down the disk for others"
        ));
    }
    missing
}
