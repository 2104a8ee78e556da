//! The record of a turn: the inputs and the results of its steps, in a form that can be serialized.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::eviction::rank::{Candidate, Facts, Order};
use crate::units::CgroupId;
use crate::workloads::Outlook;

use super::{Answer, Choice, Decider, Memory, Next, Place, Rules, Snapshot, Standing};

/// A candidate with the facts that a ranking uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedCandidate {
    pub name: String,
    pub id: String,
    pub cgroup: CgroupId,
    pub facts: Facts,
    /// Whether the usage is exact. Otherwise it is an upper bound.
    pub exact: bool,
    #[serde(default)]
    pub outlook: Outlook,
    /// The API server's list of pods is awaited, and the pod is not known.
    #[serde(default)]
    pub is_unlisted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
}

impl RecordedCandidate {
    pub fn of<C: Candidate>(candidate: &C) -> Self {
        Self {
            name: candidate.name().to_string(),
            id: candidate.id().into_owned(),
            cgroup: candidate.cgroup(),
            facts: candidate.facts(),
            exact: candidate.is_exact(),
            outlook: candidate.outlook(),
            is_unlisted: candidate.is_unlisted(),
            standing: candidate.standing(),
        }
    }
}

impl Candidate for RecordedCandidate {
    type Name<'a> = &'a str;

    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.id)
    }

    fn facts(&self) -> Facts {
        self.facts
    }

    fn cgroup(&self) -> CgroupId {
        self.cgroup
    }

    fn is_exact(&self) -> bool {
        self.exact
    }

    fn outlook(&self) -> Outlook {
        self.outlook
    }

    fn is_unlisted(&self) -> bool {
        self.is_unlisted
    }

    fn standing(&self) -> Option<Standing> {
        self.standing
    }
}

/// One step: its input and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedStep {
    pub snapshot: Snapshot,
    pub answer: Answer<RecordedCandidate>,
    pub next: Next,
}

/// The steps of the present turn. They are kept as they were taken, and converted to a record only after the eviction, because the
/// conversion formats the name of every candidate.
#[derive(Debug)]
pub struct Recording<C> {
    memory: Memory,
    steps: Vec<(Snapshot, Answer<C>, Next)>,
}

impl<C: Candidate + Clone> Recording<C> {
    pub fn begin(decider: &Decider<C>) -> Self {
        Self { memory: decider.memory().clone(), steps: Vec::new() }
    }

    /// Takes a step of the decider and keeps it. Nothing is kept of a turn whose first step is to wait.
    pub fn step(&mut self, decider: &mut Decider<C>, rules: Rules<'_>, snapshot: &Snapshot, answer: Answer<C>) -> Next {
        let given = answer.clone();
        let next = decider.step(rules, snapshot, answer);
        if !self.steps.is_empty() || !matches!(next, Next::Wait { .. }) {
            self.steps.push((snapshot.clone(), given, next));
        }
        next
    }

    pub fn recorded(&self) -> RecordedTurn {
        let step = |(snapshot, answer, next): &(Snapshot, Answer<C>, Next)| RecordedStep {
            snapshot: snapshot.clone(),
            answer: answer.recorded(),
            next: *next,
        };
        RecordedTurn { steps: self.steps.iter().map(step).collect(), memory: self.memory.clone() }
    }
}

/// The record of one turn: the memory of the decider before the turn, and the steps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RecordedTurn {
    pub memory: Memory,
    pub steps: Vec<RecordedStep>,
}

impl<C: Candidate> Answer<C> {
    /// Returns the answer with candidates that can be serialized.
    pub fn recorded(&self) -> Answer<RecordedCandidate> {
        match self {
            Self::Begin => Answer::Begin,
            Self::Sampled => Answer::Sampled,
            Self::Runtime(facts) => Answer::Runtime(*facts),
            Self::Candidates(all) => Answer::Candidates(all.iter().map(RecordedCandidate::of).collect()),
            Self::Exact(exact) => Answer::Exact(exact.as_ref().map(RecordedCandidate::of)),
            Self::Standing(standing) => Answer::Standing(*standing),
            Self::Holding(holding) => Answer::Holding(*holding),
            Self::DisksMeasured(all) => Answer::DisksMeasured(*all),
            Self::Limits(exceeded) => Answer::Limits(exceeded.clone()),
            Self::Collected(after) => Answer::Collected(after.clone()),
            Self::CollectionStarted(started) => Answer::CollectionStarted(*started),
            Self::ReclaimStarted(started) => Answer::ReclaimStarted(*started),
            Self::Reclaimed(freed) => Answer::Reclaimed(*freed),
            Self::Attempt(attempt) => Answer::Attempt(*attempt),
        }
    }
}

/// The rules of a recorded turn, as a file that `simulate --config` reads.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRules<R> {
    pub kind: String,
    pub rules: R,
}

impl<R> RecordedRules<R> {
    pub const KIND: &'static str = "EvictionRules";

    pub fn of(rules: R) -> Self {
        Self { kind: Self::KIND.to_owned(), rules }
    }
}

/// One line of a trace that an agent recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedLine {
    /// When the eviction was decided, RFC 3339.
    pub time: String,
    pub turn: RecordedTurn,
    pub victim: String,
    /// The victim's cgroup, if the victim was evicted for a limit of its own. Such a victim has no place in a ranking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_limit: Option<CgroupId>,
    pub explanation: String,
}

/// The result of a replay of a recorded turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    pub steps: usize,
    pub victim: Option<String>,
    pub explanation: Option<String>,
    /// The first step that differs from the record, or else the difference of the victim or the explanation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
}

impl RecordedLine {
    /// Steps a decider through the turn and compares its results with the record.
    pub fn replay(&self, rules: Rules<'_>) -> Replayed {
        let mut decider = Decider::remembering(self.turn.memory.clone());
        let (mut victim, mut explanation, mut difference) = (None, None, None);
        let mut exceeded = Vec::new();
        for (number, step) in self.turn.steps.iter().enumerate() {
            let next = decider.step(rules, &step.snapshot, step.answer.clone());
            if next != step.next && difference.is_none() {
                difference = Some(format!("step {}: {next:?} instead of {:?}", number + 1, step.next));
            }
            if let Answer::Limits(all) = &step.answer {
                exceeded.clone_from(all);
            }
            let Next::Evict(Choice { place, cause, .. }) = next else { continue };
            match place {
                Place::Ranked(place) if self.above_limit.is_none() => {
                    let Some(ranked) = decider.ranking().get(place) else { continue };
                    let order = Order::of(rules.policy, cause.resource());
                    victim = Some(ranked.candidate.name.clone());
                    explanation = Some(ranked.explanation(order));
                }
                // The explanation names the pod's limit and usage. The decider knows neither, so both texts come from the record.
                Place::Limit(place) if exceeded.get(place).map(|limit| limit.id) == self.above_limit => {
                    (victim, explanation) = (Some(self.victim.clone()), Some(self.explanation.clone()));
                }
                Place::Ranked(_) | Place::Limit(_) => {}
            }
        }
        if difference.is_none() && victim.as_ref() != Some(&self.victim) {
            difference = Some(format!("the victim is not {}", self.victim));
        }
        if difference.is_none() && explanation.as_ref() != Some(&self.explanation) {
            difference = Some(format!("the explanation was: {}", self.explanation));
        }
        Replayed { steps: self.turn.steps.len(), victim, explanation, difference }
    }
}
