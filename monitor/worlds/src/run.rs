//! Runs a world: the decider that ships, with a stepped clock, and the sensors' own rules of what is measured when.

use std::sync::Arc;
use std::time::Duration;

use node_pressure_monitor::config::kubernetes_options::{EvictionMethod, EvictionMethods};
use node_pressure_monitor::config::{EvictionLimits, Mode, Policy, Ranking, Sampling, Threshold, ThresholdValue};
use node_pressure_monitor::eviction::deadline::{FallRate, until_next_sample};
use node_pressure_monitor::eviction::decider::{
    AgentRules, Answer, Attempt, Choice, Decider, DyingMemory, EndedEviction, EvictionEnd, EvictionStage, Kept,
    Measure, Next, Note, Pace, Place, Recording, Rules, RuntimeFacts, Snapshot, Standing, UnderWay,
};
use node_pressure_monitor::eviction::evicted::Cause;
use node_pressure_monitor::eviction::growth::{self, Growth, Reading};
use node_pressure_monitor::eviction::rank::Candidate as _;
use node_pressure_monitor::eviction::{Observation, SignalValue};
use node_pressure_monitor::units::{Bytes, Monotonic, Signal};
use node_pressure_monitor::workloads::Listed;
use serde_json::json;

use crate::candidate::{Measured, Seen, bytes, cgroup, pod_of, signed_bytes};
use crate::history::{Decision, History};
use crate::listing::{Due, Listing};
use crate::plan::{Order, Plan, Role};
use crate::random::Random;
use crate::truth::Truth;
use crate::witness;

/// The clock of the agent at the beginning of a world.
const BEGAN: f64 = 1_000.0;
/// A signal is delivered so much after the decision.
const KILL_TAKES: f64 = 0.001;
/// The agent polls the processes of its victims this often.
const POLL: f64 = 0.005;
/// A victim that has not ended after this time counts as failed.
const KILL_TIMEOUT: f64 = 3.0;
/// A decision is near: the list is made for it.
const URGENT: f64 = 0.02;
/// The decider ends a turn after fewer steps than this.
const MOST_STEPS: usize = 10_000;
/// The truth is looked at this often while the agent does not run.
const LOOK: f64 = 0.02;

#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub mode: Mode,
    /// End after the first decision.
    pub until_first: bool,
    /// When the agent takes its first sample.
    pub begins: f64,
    /// Before this time the agent only observes.
    pub acts_from: f64,
    /// Record the turn that decides first, as the agent does.
    pub records: bool,
}

/// The rules of the agent, where they are not those of the plan.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    pub policy: Policy,
    pub rules: AgentRules,
}

impl Default for Options {
    fn default() -> Self {
        Self { mode: Mode::Enforce, until_first: false, begins: 0.0, acts_from: 0.0, records: false }
    }
}

/// Runs the world. Returns what happened, and the truth at its end.
pub fn run(plan: &Plan, options: Options) -> (History, Truth<'_>) {
    run_as(plan, options, of_plan(plan, options.mode))
}

/// Returns the rules of an agent of this plan.
pub fn of_plan(plan: &Plan, mode: Mode) -> AgentOptions {
    AgentOptions { policy: policy(plan), rules: agent(plan, mode) }
}

/// Runs the world with these rules of the agent.
pub fn run_as(plan: &Plan, options: Options, agent: AgentOptions) -> (History, Truth<'_>) {
    let mut run = Run::of(plan, options, agent);
    run.play();
    run.history.killed = (0..plan.pods.len()).map(|pod| run.truth.killed(pod)).collect();
    (run.history, run.truth)
}

struct Run<'p> {
    plan: &'p Plan,
    options: Options,
    policy: Arc<Policy>,
    agent: AgentRules,
    truth: Truth<'p>,
    names: Vec<Arc<str>>,
    random: Random,
    history: History,
    now: f64,
    decider: Decider<Seen>,
    listing: Listing,
    growth: Growth,
    rate: FallRate,
    first_sample: Option<Monotonic>,
    dying: Vec<Dying>,
    under_way: Vec<(usize, f64)>,
    ended: Vec<EndedEviction>,
    standstills: Vec<(f64, f64)>,
    restarts: Vec<(f64, f64)>,
    other_kills: Vec<(f64, usize)>,
}

/// The memory of a killed workload, as the agent follows it.
struct Dying {
    pod: usize,
    held: f64,
    memory: DyingMemory,
}

impl<'p> Run<'p> {
    fn of(plan: &'p Plan, options: Options, agent: AgentOptions) -> Self {
        let sorted = |mut times: Vec<(f64, f64)>| {
            times.sort_by(|a, b| b.0.total_cmp(&a.0));
            times
        };
        let mut other_kills = plan.other_kills.clone();
        other_kills.sort_by(|a, b| b.0.total_cmp(&a.0));
        Self {
            plan,
            options,
            policy: Arc::new(agent.policy),
            agent: agent.rules,
            truth: Truth::of(plan),
            names: plan.pods.iter().map(|pod| Arc::from(pod.name.as_str())).collect(),
            random: Random::seeded(plan.seed ^ 0x5EED),
            history: History::default(),
            now: options.begins,
            decider: Decider::remembering(kept(plan).into_memory()),
            listing: Listing::default(),
            growth: Growth::default(),
            rate: FallRate::assuming(bytes(plan.threshold)),
            first_sample: None,
            dying: Vec::new(),
            under_way: Vec::new(),
            ended: Vec::new(),
            standstills: sorted(plan.standstills.clone()),
            restarts: sorted(plan.restarts.clone()),
            other_kills,
        }
    }

    fn play(&mut self) {
        while self.now < self.plan.seconds {
            self.turn();
            if self.options.until_first && !self.history.decisions.is_empty() {
                break;
            }
            let next = self.next_wakeup();
            if !self.pass_until(next) {
                break;
            }
        }
        self.history.ended = self.now;
    }

    /// Lets the world go on. Returns false when the kernel's OOM killer ends it.
    fn pass_until(&mut self, mut next: f64) -> bool {
        if self.standstills.last().is_some_and(|(at, _)| *at <= next) {
            let (at, lasts) = self.standstills.pop().unwrap_or_default();
            next = next.max(at + lasts);
        }
        let is_restarted = self.restarts.last().is_some_and(|(at, _)| *at <= next);
        if is_restarted {
            let (at, lasts) = self.restarts.pop().unwrap_or_default();
            next = next.max(at + lasts);
        }
        while self.now < next {
            self.now = next.min(self.now + LOOK);
            while let Some((at, pod)) = self.other_kills.pop_if(|(at, _)| *at <= self.now) {
                self.truth.kill(pod, at);
            }
            if self.truth.available(self.now) <= 0.0 {
                self.history.oom = Some(self.now);
                return false;
            }
        }
        if is_restarted {
            self.restart();
        }
        true
    }

    /// The agent starts again with what it keeps on disk.
    fn restart(&mut self) {
        self.decider = Decider::remembering(Kept::of(self.decider.memory()).into_memory());
        (self.listing, self.growth) = (Listing::default(), Growth::default());
        self.rate = FallRate::assuming(bytes(self.plan.threshold));
        self.first_sample = None;
        (self.dying, self.under_way, self.ended) = (Vec::new(), Vec::new(), Vec::new());
    }

    fn clock(&self) -> Monotonic {
        monotonic(self.now)
    }

    fn next_wakeup(&self) -> f64 {
        let until = until_next_sample(&self.policy, &sampling(), self.decider.observation(), &self.rate);
        let mut next = self.now + until.as_secs_f64();
        if let Some(within) = self.decider.sampled_within(&self.policy, self.clock()) {
            next = next.min(self.now + within.as_secs_f64());
        }
        if let Some(retry) = self.decider.retry() {
            next = next.min(self.now + retry.since(self.clock()).as_secs_f64().max(1e-3));
        }
        if !self.under_way.is_empty() {
            next = next.min(self.now + POLL);
        }
        next
    }

    fn turn(&mut self) {
        self.history.turns += 1;
        self.listing.make_if_due(Due::Regularly, &self.truth, self.now);
        self.poll_victims();
        let mut snapshot = self.snapshot();
        self.growth.forget_stale(self.clock());
        let (policy, mut agent) = (Arc::clone(&self.policy), self.agent);
        if self.now < self.options.acts_from {
            agent.mode = Mode::Observe;
        }
        let rules = Rules { policy: &policy, pace: Pace::Agent(agent) };
        let (mut answer, mut measured) = (Answer::Begin, 0);
        let is_recorded = self.options.records && self.history.recorded.is_none();
        let mut recording = is_recorded.then(|| Recording::begin(&self.decider));
        for _ in 0..MOST_STEPS {
            let next = match &mut recording {
                Some(recording) => recording.step(&mut self.decider, rules, &snapshot, answer),
                None => self.decider.step(rules, &snapshot, answer),
            };
            answer = match next {
                Next::Wait { .. } => break,
                Next::Measure(what) => {
                    measured += 1;
                    self.measure(what, &mut snapshot)
                }
                Next::Evict(choice) => {
                    self.history.recorded =
                        self.history.recorded.take().or(recording.as_ref().map(Recording::recorded));
                    let attempt = self.attempt(&choice);
                    snapshot.under_way = self.under_way();
                    Answer::Attempt(attempt)
                }
                Next::CollectGarbage { .. } => Answer::CollectionStarted(false),
                Next::Reclaim { .. } => Answer::ReclaimStarted(false),
                Next::EndReclaim { .. } => Answer::Reclaimed(Bytes::ZERO),
            };
        }
        self.history.most_measured = self.history.most_measured.max(measured);
        let notes: Vec<Note> = self.decider.notes().collect();
        self.history.chose_nobody |= notes.iter().any(|note| matches!(note, Note::Exhausted { .. }));
        self.history.stayed.extend(notes.into_iter().filter_map(|note| match note {
            Note::Exhausted { largest: Some(stays), .. } => Some((pod_of(stays.id), stays.why)),
            _ => None,
        }));
        if self.next_wakeup() - self.now <= URGENT {
            self.listing.make_if_due(Due::DecisionIsNear, &self.truth, self.now);
        }
        self.watch_growth();
    }

    fn poll_victims(&mut self) {
        let (now, cause) = (self.now, Cause::Signal(Signal::MemoryAvailable));
        let truth = &self.truth;
        self.under_way.retain(|(pod, since)| {
            let end = match (truth.is_gone(*pod, now), now - since >= KILL_TIMEOUT) {
                (true, _) => EvictionEnd::Gone,
                (false, true) => EvictionEnd::Failed,
                (false, false) => return true,
            };
            self.ended.push(EndedEviction { id: cgroup(*pod), cause, end });
            false
        });
    }

    fn snapshot(&mut self) -> Snapshot {
        let now = self.clock();
        let first = self.growth.resumed().max(Some(*self.first_sample.get_or_insert(now)));
        let is_protected = |pod: &usize| self.plan.pods[*pod].role == Role::Protected;
        let protected = (0..self.plan.pods.len()).filter(is_protected).map(cgroup);
        let mut snapshot = Snapshot {
            under_way: self.under_way(),
            ended: std::mem::take(&mut self.ended),
            protected_growth: self.growth.fastest(protected),
            workloads: self.plan.pods.len(),
            first_sample: first.filter(|first| now.since(*first) < Duration::from_secs(1)),
            ..Snapshot::default()
        };
        self.sample(&mut snapshot);
        snapshot
    }

    fn sample(&mut self, snapshot: &mut Snapshot) {
        let error = self.random.share() * self.plan.error;
        let available = self.truth.available(self.now) - error;
        let (signal, capacity) = (Signal::MemoryAvailable, signed_bytes(self.plan.capacity));
        let value = SignalValue { signal, available: signed_bytes(available), capacity, at: None };
        let now = self.clock();
        self.rate.observe(bytes(available), now);
        (snapshot.now, snapshot.observation) = (now.into(), Observation { signals: vec![value] });
        snapshot.dying = self.follow_dying();
    }

    fn follow_dying(&mut self) -> Vec<DyingMemory> {
        let (now, clock) = (self.now, self.clock());
        let (truth, under_way) = (&self.truth, &self.under_way);
        self.dying.retain_mut(|Dying { pod, held, memory }| {
            let came = bytes(*held - truth.holds(*pod, now));
            memory.left = memory.left.min(memory.expected.saturating_sub(came));
            memory.is_populated = memory.is_own && under_way.iter().any(|(of, _)| of == pod);
            let is_awaited = memory.is_populated || !memory.is_back();
            is_awaited && (memory.is_own || memory.is_recent(clock))
        });
        self.dying.iter().map(|dying| dying.memory).collect()
    }

    fn under_way(&self) -> Vec<UnderWay> {
        let dying =
            |(pod, _): &(usize, f64)| UnderWay { id: cgroup(*pod), stage: EvictionStage::Dying, is_urgent: false };
        self.under_way.iter().map(dying).collect()
    }

    fn measure(&mut self, what: Measure, snapshot: &mut Snapshot) -> Answer<Seen> {
        match what {
            Measure::Signals => {
                self.sample(snapshot);
                Answer::Sampled
            }
            Measure::Candidates { exact, .. } => {
                self.listing.make_if_due(Due::Decision, &self.truth, self.now);
                self.note_others_victims();
                Answer::Candidates(self.candidates(exact))
            }
            Measure::Exact { place } => {
                let pod = self.decider.ranking().get(place).map(|ranked| ranked.candidate.pod);
                Answer::Exact(pod.filter(|pod| self.is_there(*pod)).map(|pod| self.seen(pod, true)))
            }
            Measure::Standing { .. } => Answer::Standing(Standing::default()),
            Measure::Holding { .. } => Answer::Holding(None),
            Measure::Disks { .. } => Answer::DisksMeasured(true),
            Measure::Limits => Answer::Limits(Vec::new()),
            Measure::Runtime => Answer::Runtime(RuntimeFacts::None),
        }
    }

    fn candidates(&self, exact: bool) -> Vec<Seen> {
        let pods = 0..self.plan.pods.len();
        let may_go = |pod: &usize| self.plan.pods[*pod].role != Role::Protected && self.is_there(*pod);
        pods.filter(may_go).map(|pod| self.seen(pod, exact)).collect()
    }

    fn is_there(&self, pod: usize) -> bool {
        !self.truth.is_gone(pod, self.now) && self.listing.has(pod)
    }

    fn seen(&self, pod: usize, is_exact: bool) -> Seen {
        let plan = self.truth.pod(pod);
        let (growth, growth_lately) = (self.growth.of(cgroup(pod)), self.growth.going_on(cgroup(pod)));
        let (gain, cache) = (self.truth.holds(pod, self.now), plan.cache_at(self.now));
        Seen::of(pod, plan, &self.names[pod], Measured { gain, cache, growth, growth_lately, is_exact })
    }

    fn watch_growth(&mut self) {
        let now = self.clock();
        let is_near = self.decider.is_memory_near(&self.policy, growth::HORIZON, now);
        if !self.growth.is_wanted(is_near, now) {
            return;
        }
        self.listing.make_if_due(Due::GrowthIsRead, &self.truth, self.now);
        let appeared = self.listing.appeared();
        if !self.growth.is_due(appeared, now) {
            return;
        }
        let (truth, at) = (&self.truth, self.now);
        let is_there = |pod: &usize| !truth.is_gone(*pod, at) && self.listing.has(*pod);
        let there = (0..self.plan.pods.len()).filter(is_there);
        if self.growth.begin(appeared, now) {
            let listed = |pod: usize| Listed {
                id: cgroup(pod),
                usage: bytes(truth.holds(pod, at) + truth.pod(pod).cache_at(at)),
                absent: self.listing.absent(pod).map(monotonic),
            };
            self.growth.choose(there.map(listed), now);
        }
        self.growth.read(|id| {
            let pod = pod_of(id);
            if truth.is_gone(pod, at) { Reading::Gone } else { Reading::Of(bytes(truth.holds(pod, at)), now) }
        });
        self.note_others_victims();
    }

    /// Notes the victims of other programs, and those of the agent before its restart.
    fn note_others_victims(&mut self) {
        let of_others = self.plan.other_kills.iter().map(|(_, pod)| *pod);
        let of_agent = self.history.decisions.iter().map(|decision| decision.victim);
        for pod in of_others.chain(of_agent) {
            let is_noted = self.dying.iter().any(|dying| dying.pod == pod);
            let is_killed = self.truth.killed(pod).is_some_and(|killed| self.now >= killed);
            let held = self.truth.holds(pod, self.now);
            if is_killed && !is_noted && held > 1.0 {
                self.dying.push(Dying::of(pod, (held, 0), false, self.clock()));
            }
        }
    }

    fn attempt(&mut self, choice: &Choice) -> Attempt {
        let Place::Ranked(place) = choice.place else { return Attempt::Gone };
        let Some(seen) = self.decider.ranking().get(place).map(|ranked| ranked.candidate.clone()) else {
            return Attempt::Gone;
        };
        if self.now < self.options.acts_from {
            return Attempt::Started;
        }
        let decision = self.decision(&seen, place);
        self.history.decisions.push(decision);
        if choice.is_dry_run {
            return Attempt::Started;
        }
        let held = self.truth.holds(seen.pod, self.now);
        self.truth.kill(seen.pod, self.now + KILL_TAKES);
        self.dying.retain(|dying| dying.pod != seen.pod);
        let growth = seen.outlook().growth;
        self.dying.push(Dying::of(seen.pod, (held, growth), true, self.clock()));
        self.under_way.push((seen.pod, self.now));
        Attempt::Started
    }

    fn decision(&self, victim: &Seen, place: usize) -> Decision {
        let (plan, now) = (self.plan, self.now);
        let available = self.truth.available(now);
        let coming: f64 = (0..plan.pods.len())
            .filter(|pod| !self.truth.lives(*pod) && plan.pods[*pod].dies_after.is_some())
            .map(|pod| self.truth.holds(pod, now))
            .sum();
        // The sample from which the longest is measured may be a second older.
        let falls = [0.2, 0.3, 0.4, 1.0, 2.0, 10.0, 11.0].map(|span| self.truth.fall_over(span, now));
        let of_history = plan.history.map_or(0, |(evictions, _)| evictions as usize);
        Decision {
            at: now,
            victim: victim.pod,
            worth: self.decider.worth_at(place),
            is_growth_known: victim.is_growth_known(),
            available,
            missing: plan.threshold + plan.minimum_reclaim - available - coming,
            short: plan.threshold + plan.minimum_reclaim - available,
            fall: self.truth.fall(now),
            used: self.truth.used(now),
            slow_fall: falls.into_iter().fold(f64::INFINITY, f64::min),
            present_fall: self.truth.fall_over(0.4, now),
            fast_fall: falls.into_iter().fold(0.0, f64::max),
            before: of_history + self.history.decisions.len(),
            rows: witness::rows(&self.truth, now),
        }
    }
}

impl Dying {
    fn of(pod: usize, (held, growth): (f64, i64), is_own: bool, killed: Monotonic) -> Self {
        let memory = DyingMemory {
            id: cgroup(pod),
            expected: bytes(held),
            left: bytes(held),
            killed,
            grace_ends: None,
            growth,
            is_own,
            is_whole: true,
            is_populated: is_own,
        };
        Self { pod, held, memory }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a world lasts minutes")]
fn monotonic(seconds: f64) -> Monotonic {
    Monotonic(((BEGAN + seconds) * 1e9) as u64)
}

fn sampling() -> Sampling {
    let (floor, ceiling) = (Duration::from_millis(10), Duration::from_secs(1));
    Sampling { floor, ceiling, ..Sampling::default() }
}

fn policy(plan: &Plan) -> Policy {
    let threshold = Threshold {
        value: ThresholdValue::bytes(bytes(plan.threshold)),
        min_reclaim: (plan.minimum_reclaim > 0.0).then(|| ThresholdValue::bytes(bytes(plan.minimum_reclaim))),
        ..Policy::default_hard_threshold()
    };
    Policy {
        thresholds: vec![threshold],
        ranking: match plan.ranking {
            Order::Qos => Ranking::Qos,
            Order::Kubernetes => Ranking::Kubernetes,
        },
        ..Policy::default()
    }
}

fn agent(plan: &Plan, mode: Mode) -> AgentRules {
    let limits = EvictionLimits {
        max_per_minute: plan.max_per_minute,
        act_on_present_pressure: true,
        ..EvictionLimits::default()
    };
    let methods = EvictionMethods { hard: EvictionMethod::Off, soft: EvictionMethod::Off };
    AgentRules { mode, limits, methods, defers_soft: false }
}

/// Returns what an agent keeps that has made these evictions in a shortage that goes on.
fn kept(plan: &Plan) -> Kept {
    let Some((evictions, poor)) = plan.history else { return Kept::default() };
    let met = monotonic(-5.0);
    let shortage = json!({"met": met, "evictions": evictions, "poor": poor, "poorSince": met, "promise": null, "inThisFall": evictions});
    serde_json::from_value(json!({"shortages": {"available": shortage}})).unwrap_or_default()
}
