//! The thread itself: whose turn it is, a little work, a rest.

use std::collections::{BTreeSet, VecDeque};
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
use crate::units::Monotonic;

/// Between two looks at the clocks: fewer than a step may take anyway.
const ENTRIES: u64 = 256;
const STEPS: u32 = 64;
/// What is known is told this often while the walk goes on.
const TOLD_AGAIN: Duration = Duration::from_secs(1);
/// While a filesystem runs full: who has filled it stands out long before its last file is found.
const TOLD_AGAIN_PRESSED: Duration = Duration::from_millis(200);
/// Whether somebody else is to go first is asked this often.
const ASKED_AGAIN: Duration = Duration::from_millis(100);
/// So long one is measured before another gets its turn.
const QUANTUM: Duration = Duration::from_secs(2);
/// Before somebody is chosen the small ones that are due go before what was left, for so long longer…
const RENEWAL_CREDIT: Duration = Duration::from_secs(4);
/// …but not all the time: what was left has to come to its end too.
const RENEWAL_CREDIT_EVERY: Duration = Duration::from_secs(10);
/// Measurements that are left in the middle: each holds some thirty files open, and a MiB at most.
const MOST_SUSPENDED: usize = 7;
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
    /// Left for others, and gone on with in turn: what has begun is brought to its end, or its figure could only rise.
    suspended: VecDeque<Measurement>,
    /// How long these had lately, and how long those that were begun with: where both wait they share.
    resumed_for: Duration,
    begun_for: Duration,
    /// When that was last forgotten for a renewal, and whether whoever has its turn is to make way for it.
    renewed: Monotonic,
    is_renewed: bool,
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
        let heart = Arc::clone(&shared.heart);
        let pace = Pace::new(options.cpu_share * AIM, thread_cpu(), Monotonic::now());
        Self {
            options,
            shared,
            publish,
            finder: Finder::new(roots, heart),
            schedule: Schedule::default(),
            claims: Claims::default(),
            recount: Recount::default(),
            pace,
            buffer: vec![MaybeUninit::uninit(); NAMES].into_boxed_slice(),
            suspended: VecDeque::new(),
            resumed_for: Duration::ZERO,
            begun_for: Duration::ZERO,
            renewed: Monotonic::default(),
            is_renewed: false,
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
            let now = Monotonic::now();
            match self.choose(now) {
                Choice::Measure(measurement, turn) => self.work(*measurement, turn),
                Choice::Wait(duration) => {
                    let until_recount = self.recount.due(now, self.schedule.is_pressed(now));
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
        let now = Monotonic::now();
        for workload in &hurried {
            self.schedule.hurry(workload);
        }
        if let Some(since) = renewed {
            self.schedule.renew(since);
            if now.since(self.renewed) >= RENEWAL_CREDIT_EVERY {
                (self.renewed, self.is_renewed) = (now, true);
                (self.begun_for, self.resumed_for) = (Duration::ZERO, RENEWAL_CREDIT);
            }
        }
        self.schedule.press(is_pressed, now);
        let share =
            if self.schedule.is_pressed(now) { self.options.pressure_cpu_share } else { self.options.cpu_share };
        self.pace.set_share(share * AIM, thread_cpu(), now);
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
        let schedule = &self.schedule;
        self.suspended.retain(|left| schedule.wants(&left.wanted));
        if self.usages.by_workload.len() != before {
            self.tell();
        }
    }

    fn choose(&mut self, now: Monotonic) -> Choice {
        let next = self.schedule.next(now, now < self.others_until);
        let is_resumed_first = self.begun_for >= QUANTUM;
        self.is_renewed = false;
        match next {
            Next::Hurried(places) => Choice::Measure(Box::new(self.begin(places, now)), Turn::Hurried),
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

    /// Measures until that is done, or somebody else is to go first, or all is over.
    fn work(&mut self, mut measurement: Measurement, turn: Turn) {
        let begun = Monotonic::now();
        let (mut told, mut asked) = (begun, begun);
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
            if !self.breathe() {
                return;
            }
            let again = if self.schedule.is_pressed(now) { TOLD_AGAIN_PRESSED } else { TOLD_AGAIN };
            if now.since(told) >= again {
                told = now;
                self.tell_so_far(&measurement);
            }
            if now.since(asked) >= ASKED_AGAIN {
                asked = now;
                if !self.receive() || !self.schedule.wants(&measurement.wanted) {
                    return;
                }
                self.recount_if_due();
                if self.is_to_yield(turn, now.since(begun), now) {
                    self.account(turn, begun, now);
                    self.tell_so_far(&measurement);
                    self.suspended.push_back(measurement);
                    return;
                }
            }
        }
    }

    /// Whether somebody else is to go on now: one that gave a sign at once, everybody else after a while.
    fn is_to_yield(&self, turn: Turn, had: Duration, now: Monotonic) -> bool {
        if self.suspended.len() >= MOST_SUSPENDED {
            return false;
        }
        match self.schedule.next(now, now < self.others_until) {
            Next::Hurried(_) if turn != Turn::Hurried => true,
            Next::Due(_) if self.is_renewed && turn != Turn::Begun => true,
            Next::Hurried(_) | Next::Due(_) => had >= QUANTUM,
            Next::Wait(_) | Next::Nothing => had >= QUANTUM && !self.suspended.is_empty(),
        }
    }

    /// Who gave a sign has had its turn: then it is that of the others for as long. The others share.
    fn account(&mut self, turn: Turn, begun: Monotonic, now: Monotonic) {
        let had = now.since(begun);
        match turn {
            Turn::Hurried => self.others_until = now.after(had),
            Turn::Begun => self.begun_for += had,
            Turn::Resumed => self.resumed_for += had,
        }
        // Time in which only one of both had something to do is owed to nobody.
        let both = self.begun_for.min(self.resumed_for);
        self.begun_for = self.begun_for.saturating_sub(both).min(QUANTUM);
        self.resumed_for = self.resumed_for.saturating_sub(both).min(RENEWAL_CREDIT);
    }

    fn steps(&mut self, measurement: &mut Measurement) -> Progress {
        let until = measurement.entries().saturating_add(ENTRIES);
        for _ in 0..STEPS {
            self.finder.beat();
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
        let made = Made { began, at: now, took: now.since(began), cpu };
        let places = measurement.wanted.clone();
        let Outcome { usage, counted, missing } = measurement.outcome();
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
        self.usages.unmeasured = self.schedule.unmeasured();
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
        self.shared.heart.rest();
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
        let is_pressed = self.schedule.is_told_pressed();
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

/// Why one has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It gave a sign of having changed.
    Hurried,
    /// It is due.
    Begun,
    /// It was left for others.
    Resumed,
}

enum Choice {
    Measure(Box<Measurement>, Turn),
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
