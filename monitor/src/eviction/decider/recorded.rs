//! A turn of the decider as it is written down: what it was given, and what it answered.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::eviction::rank::{Candidate, Facts};
use crate::units::CgroupId;

use super::{Answer, Memory, Next, Snapshot, Standing};

/// A candidate, by what a ranking looks at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedCandidate {
    pub name: String,
    pub id: String,
    pub cgroup: CgroupId,
    pub facts: Facts,
    /// The usage is no upper bound.
    pub exact: bool,
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

    fn standing(&self) -> Option<Standing> {
        self.standing
    }
}

/// One step: its input, and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedStep {
    pub snapshot: Snapshot,
    pub answer: Answer<RecordedCandidate>,
    pub next: Next,
}

/// One turn: what the decider remembered before it, and its steps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RecordedTurn {
    pub memory: Memory,
    pub steps: Vec<RecordedStep>,
}

impl<C: Candidate> Answer<C> {
    /// The same, with candidates that can be written down.
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
