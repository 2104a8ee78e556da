//! An eviction that an agent recorded, as a world: what each workload held and by how much it grew, what was available in the last seconds,
//! and which victims were still dying.

use std::fs;
use std::path::Path;

use node_pressure_monitor::eviction::decider::{
    AgentRules, Answer, DyingMemory, EvictionStage, Next, OwnedRules, Pace, RecordedCandidate, RecordedLine,
    RecordedRules, RecordedStep,
};
use node_pressure_monitor::eviction::evicted::Cause;
use node_pressure_monitor::eviction::memory_benefit::Worth;
use node_pressure_monitor::units::{Bytes, CgroupId, Monotonic, Signal, signed_float};
use node_pressure_monitor::workloads::QosClass;
use serde_json::Value;

use crate::history::Decision;
use crate::plan::{Class, Curve, Plan, Pod, Role};
use crate::run::{AgentOptions, Options, run_as};

/// The world begins so long before the eviction, if the agent ran that long.
const LONGEST: f64 = 12.0;
/// And ends so long after it.
const AFTERWARDS: f64 = 6.0;
/// A node that has fallen for less than this is taken as one that has.
const SHORTEST_FALL: f64 = 0.3;
/// After earlier evictions the agent acts only this long before the recorded one.
const ACTS_BEFORE: f64 = 0.15;
const MIB: f64 = 1_048_576.0;

/// What became of a recorded eviction in the simulated node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replay {
    Same,
    /// Why another one goes.
    Differs(String),
    /// Why the simulated node has no such evictions.
    LeftOut(&'static str),
}

/// Plays the evictions of a trace.
pub fn replay_all(trace: &Path, rules: &Path) -> Result<Vec<Replay>, String> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let recorded: RecordedRules<OwnedRules> =
        serde_json::from_str(&read(rules)?).map_err(|error| format!("{}: {error}", rules.display()))?;
    let play = |(number, text): (usize, &str)| {
        let line =
            serde_json::from_str(text).map_err(|error| format!("{}:{}: {error}", trace.display(), number + 1))?;
        Ok(replay(&recorded.rules, &line))
    };
    read(trace)?.lines().enumerate().map(play).collect()
}

/// Plays the eviction in the simulated node.
pub fn replay(rules: &OwnedRules, line: &RecordedLine) -> Replay {
    let agent = match rules.pace {
        Pace::Agent(agent) => agent,
        Pace::Kubelet | Pace::Ranking => return Replay::LeftOut("no agent's rules"),
    };
    let episode = match Episode::of(line) {
        Ok(episode) => episode,
        Err(reason) => return Replay::LeftOut(reason),
    };
    let victim = episode.first_victim(rules, agent);
    let name = |decision: &Decision| episode.plan.pods[decision.victim].name.clone();
    match victim {
        Some(decision) if name(&decision) == line.victim => Replay::Same,
        Some(decision) => {
            let words = decision.worth.map(Worth::words).unwrap_or_default();
            let (at, then) = (decision.at, episode.at);
            Replay::Differs(format!(
                "{} goes at {at:.2} s ({words}), not {} at {then:.2} s ({})",
                name(&decision),
                line.victim,
                line.explanation
            ))
        }
        None => Replay::Differs(format!("nobody goes, not {} ({})", line.victim, line.explanation)),
    }
}

struct Episode {
    plan: Plan,
    /// When the agent decided, in seconds since the beginning of the world.
    at: f64,
    /// From when on the agent acts.
    acts_from: f64,
}

impl Episode {
    fn of(line: &RecordedLine) -> Result<Self, &'static str> {
        let last = line.turn.steps.last().ok_or("no steps")?;
        let chosen = line.turn.steps.iter().find_map(|step| match step.next {
            Next::Evict(choice) => Some(choice),
            _ => None,
        });
        let chosen = chosen.ok_or("nobody was chosen")?;
        if chosen.cause != Cause::Signal(Signal::MemoryAvailable) {
            return Err("not for memory.available");
        }
        if !chosen.is_hard {
            return Err("for a soft threshold");
        }
        if last.snapshot.under_way.iter().any(|under_way| under_way.stage == EvictionStage::Leaving) {
            return Err("beside an eviction with a grace period");
        }
        let memory = serde_json::to_value(&line.turn.memory).map_err(|_| "the memory of the decider cannot be read")?;
        let recent = Recent::of(last, &memory).ok_or("no samples")?;
        let mut plan = recent.plan();
        let mut pods: Vec<Pod> = candidates(&line.turn.steps).iter().map(|candidate| recent.pod(candidate)).collect();
        let protected = last.snapshot.protected_growth.map(|(_, growth)| signed_float(growth) / MIB);
        pods.extend(protected.filter(|rate| *rate > 0.0).map(|rate| recent.protected(rate)));
        plan.pods = pods;
        recent.add_leak_of_others(&mut plan);
        recent.add_dying(&mut plan, &last.snapshot.dying);
        let shortage = |key: &str| memory.pointer(&format!("/shortages/available/{key}")).and_then(Value::as_u64);
        let count = |key: &str| shortage(key).and_then(|count| u32::try_from(count).ok());
        plan.history = count("evictions").zip(count("poor"));
        let acts_from =
            if plan.history.is_some() || !plan.other_kills.is_empty() { recent.at - ACTS_BEFORE } else { 0.0 };
        Ok(Self { plan, at: recent.at, acts_from })
    }

    fn first_victim(&self, rules: &OwnedRules, mut agent: AgentRules) -> Option<Decision> {
        // The threshold was armed, which may have been long before.
        agent.limits.act_on_present_pressure = true;
        let options = Options { until_first: true, acts_from: self.acts_from, ..Options::default() };
        let (history, _) = run_as(&self.plan, options, AgentOptions { policy: rules.policy.clone(), rules: agent });
        history.decisions.into_iter().next()
    }
}

/// The last seconds before the eviction.
struct Recent {
    begins: Monotonic,
    /// When the agent decided, in seconds since the beginning.
    at: f64,
    capacity: f64,
    /// In MiB, at the beginning and at the decision.
    first: f64,
    now: f64,
    /// The fall over the last second, in MiB per second.
    fall: f64,
}

impl Recent {
    fn of(last: &RecordedStep, memory: &Value) -> Option<Self> {
        let clock = last.snapshot.clock();
        let value = last.snapshot.observation.get(Signal::MemoryAvailable)?;
        let samples = memory.pointer("/falls/available")?.as_array()?;
        let sample =
            |pair: &Value| Some((Monotonic(pair.get(0)?.as_u64()?), signed_float(pair.get(1)?.as_i64()?) / MIB));
        let samples: Vec<(Monotonic, f64)> = samples.iter().filter_map(sample).collect();
        let age = |at: Monotonic| clock.since(at).as_secs_f64();
        let now = signed_float(value.available) / MIB;
        let (begins, first) = samples.iter().copied().find(|(at, _)| age(*at) <= LONGEST).unwrap_or((clock, now));
        let before = samples.iter().rfind(|(at, _)| age(*at) >= 1.0).or(samples.first());
        let fall = before.map_or(0.0, |(at, available)| (available - now) / age(*at).max(0.05));
        let capacity = signed_float(value.capacity) / MIB;
        Some(Self { begins, at: age(begins), capacity, first, now, fall: fall.max(0.0) })
    }

    fn plan(&self) -> Plan {
        let (seconds, max_per_minute) = (self.at + AFTERWARDS, u32::MAX);
        Plan { capacity: self.capacity, seconds, max_per_minute, ..Plan::default() }
    }

    /// Returns when the time of the agent's clock is in the world.
    fn seconds(&self, at: Monotonic) -> f64 {
        at.since(self.begins).as_secs_f64()
    }

    fn pod(&self, candidate: &RecordedCandidate) -> Pod {
        let (facts, outlook) = (candidate.facts, candidate.outlook);
        let mib = |amount: Option<Bytes>| amount.map(|bytes| bytes.as_f64() / MIB);
        let usage = facts.usage.map_or(0.0, |usage| usage.as_f64() / MIB);
        let held = mib(outlook.gain).unwrap_or(usage);
        let is_critical = candidate.standing.is_some_and(|standing| standing.is_critical);
        let role = match (is_critical, outlook.is_daemon, outlook.only_as_leaker) {
            (true, _, _) => Role::Protected,
            (_, true, _) => Role::DaemonSet,
            (_, _, true) => Role::Service,
            _ => Role::Pod,
        };
        let rate = signed_float(outlook.growth) / MIB;
        let pod = Pod {
            name: candidate.name.clone(),
            class: match facts.qos {
                QosClass::BestEffort => Class::BestEffort,
                QosClass::Burstable => Class::Burstable,
                QosClass::Guaranteed => Class::Guaranteed,
            },
            priority: facts.priority,
            role,
            request: facts.request.map_or(0.0, |request| request.as_f64() / MIB),
            memory: held,
            cache: (usage - held).max(0.0),
            ..Pod::default()
        };
        if outlook.is_growth_measured && rate > 0.0 { self.growing(pod, rate) } else { pod }
    }

    fn protected(&self, rate: f64) -> Pod {
        let memory = self.capacity;
        self.growing(Pod { name: "protected".to_owned(), role: Role::Protected, memory, ..Pod::default() }, rate)
    }

    /// Returns the pod as one that holds what it holds at the decision, and has grown since the fall began.
    fn growing(&self, pod: Pod, rate: f64) -> Pod {
        let lasts = self.fell_for().min(pod.memory / rate);
        let memory = pod.memory - rate * lasts;
        Pod { memory, growth: Curve::Leak { rate, from: self.at - lasts }, ..pod }
    }

    /// Returns for how long memory has fallen as fast as in the last second.
    fn fell_for(&self) -> f64 {
        let lasted = if self.fall > 0.0 { (self.first - self.now) / self.fall } else { self.at };
        lasted.clamp(SHORTEST_FALL.min(self.at), self.at)
    }

    /// Adds what no candidate explains, and what was available at the beginning.
    fn add_leak_of_others(&self, plan: &mut Plan) {
        let rate = |pod: &Pod| if let Curve::Leak { rate, .. } = pod.growth { rate } else { 0.0 };
        let explained: f64 = plan.pods.iter().map(rate).sum();
        let others = (self.fall - explained).max(0.0);
        plan.other_leak = (others, self.at - self.fell_for());
        let grown: f64 = plan.pods.iter().map(|pod| pod.memory_at(self.at) - pod.memory).sum();
        plan.available = self.now + grown + others * self.fell_for();
    }

    /// Adds the victims that were still dying. What they have given back was not available at the beginning.
    fn add_dying(&self, plan: &mut Plan, dying: &[DyingMemory]) {
        for victim in dying {
            let killed = self.seconds(victim.killed);
            let (expected, came) =
                (victim.expected.as_f64() / MIB, (victim.expected.saturating_sub(victim.left)).as_f64() / MIB);
            let passed = (self.at - killed).max(0.05);
            let share = (came / expected.max(1e-6)).clamp(0.0, 1.0);
            // What had not begun to come back comes soon.
            let (after, lasts) = if share > 0.01 { (0.02, (passed - 0.02) / share) } else { (passed + 0.2, 0.3) };
            let CgroupId(id) = victim.id;
            plan.other_kills.push((killed, plan.pods.len()));
            plan.pods.push(Pod {
                name: format!("victim-{id}"),
                memory: expected,
                dies_after: Some(after),
                dies_for: lasts,
                ..Pod::default()
            });
            plan.available -= came;
        }
    }
}

/// Returns the candidates with the figures that the decision had.
fn candidates(steps: &[RecordedStep]) -> Vec<RecordedCandidate> {
    let mut candidates: Vec<RecordedCandidate> = Vec::new();
    for step in steps {
        match &step.answer {
            Answer::Candidates(all) => candidates.clone_from(all),
            Answer::Exact(Some(exact)) => {
                for candidate in candidates.iter_mut().filter(|candidate| candidate.cgroup == exact.cgroup) {
                    candidate.clone_from(exact);
                }
            }
            _ => {}
        }
    }
    candidates
}
