//! The ranking, the first victim, and the reasons for both.

use crate::config::{Policy, Ranking, RankingKey, Semantics, Threshold};
use crate::eviction::decider::{
    Answer, Attempt, Choice, Decider, Measure, Next, Pace, PassedOver, Place, Rules, RuntimeFacts, Snapshot,
};
use crate::eviction::evicted::printed_grace_seconds;
use crate::eviction::preview::{AgentView, MissingRule, Preview};
use crate::eviction::rank::{Candidate as _, Order, Ranked};
use crate::eviction::synchronization::Input;
use crate::eviction::usage::{PodCandidate, active_pods, candidates};
use crate::eviction::{Armed, Layout, Observation, SignalValue, daemons, is_below, message, signals};
use crate::units::{Amount, Moment, Resource, Signal};
use crate::workloads::pod::Exemption;
use crate::workloads::{Pod, QosClass, Summary};

use super::marks::Marks;

/// A threshold on the signal.
#[derive(Debug)]
pub struct Judged {
    pub threshold: Threshold,
    /// The threshold's value on this node; `None` if the signal is not observed.
    pub quantity: Option<Amount>,
    /// Whether the signal is below the threshold.
    pub met: bool,
}

#[derive(Debug)]
pub struct Verdict<'a> {
    pub signal: Signal,
    pub value: Option<SignalValue>,
    pub thresholds: Vec<Judged>,
    /// The keys of the ranking, most important first.
    pub order: Order<'a>,
    /// The pods in order of eviction.
    pub ranking: Vec<Row<'a>>,
    /// Index of the first pod that is not exempt.
    pub first: Option<usize>,
    /// The eviction of the first pod; `None` if no threshold causes it.
    pub eviction: Option<ExpectedEviction>,
    /// The agent's rules that could not be applied.
    pub not_applied: Vec<MissingRule>,
}

impl Verdict<'_> {
    /// Returns the name of the first workload that is not exempt.
    pub fn first_name(&self) -> Option<String> {
        let row = self.ranking.get(self.first?)?;
        Some(row.ranked.candidate.name().to_string())
    }
}

/// The eviction of the first pod.
#[derive(Debug)]
pub struct ExpectedEviction {
    pub threshold: String,
    /// Whether the threshold is met now.
    pub met: bool,
    /// Zero where the agent kills at once. Under `semantics: kubelet` it is the kubelet's.
    pub grace_period_seconds: i64,
    pub message: String,
}

#[derive(Debug)]
pub struct Row<'a> {
    pub ranked: Ranked<PodCandidate<'a>>,
    /// The reason why the pod is never evicted, if any.
    pub exempt: Option<String>,
    /// The reason for the pod's place.
    pub explanation: String,
}

/// The observed node, with the layout and signal of the request.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    pub signal: Signal,
    pub layout: Layout,
    pub pods: &'a [Pod],
    pub summary: &'a Summary,
    /// The agent's knowledge of this node's workloads beyond pods and statistics; `None` for a node read from files.
    pub marks: Option<&'a Marks>,
}

/// Ranks the pods as if the signal were low, by the kubelet's rules, or as the agent ranks the workloads of its node.
pub fn judge<'a>(policy: &'a Policy, question: Question<'a>) -> Verdict<'a> {
    let Question { signal, layout, pods: _, summary, marks } = question;
    let pace = if marks.is_some() { Pace::Ranking } else { Pace::Kubelet };
    let observation = signals::observe(summary, policy.quirks);
    let snapshot = Snapshot { layout, observation, question: Some(signal), ..Snapshot::default() };
    let mut asked = Decider::default();
    let choice = drive(&mut asked, (Rules { policy, pace }, &snapshot), || candidates_of(policy, question));
    let weighs_growth =
        marks.is_some() && policy.semantics == Semantics::Corrected && signal.resource() == Resource::Memory;
    let not_applied = if weighs_growth { vec![MissingRule::Growth, MissingRule::Fall] } else { Vec::new() };
    Verdict { not_applied, ..verdict(question, (Rules { policy, pace }, &snapshot), asked, choice) }
}

/// The same by the agent's rules. With the statistics of `before` growth is known.
pub fn judge_as_agent<'a>(view: AgentView<'a>, question: Question<'a>, before: Option<&'a Summary>) -> Verdict<'a> {
    let Question { signal, layout, pods, summary, marks: _ } = question;
    let input = |summary: &'a Summary| Input { now: time_of(summary), layout, summary, after_collection: None, pods };
    let mut preview = Preview::of(view);
    if let Some(before) = before {
        preview.observe(&input(before));
    }
    let (input, active) = (input(summary), active_pods(pods, summary));
    let (asked, mut decider) = preview.ask(signal, &input, &active);
    let facts = (asked.rules, &asked.snapshot);
    let choice = drive(&mut decider, facts, || asked.candidates(&input, signal, &active));
    let not_applied = asked.missing(summary, &decider);
    Verdict { not_applied, ..verdict(question, facts, decider, choice) }
}

/// Returns when the node's memory was measured. Growth is known only between two times.
fn time_of(summary: &Summary) -> Moment {
    summary.node.memory.and_then(|memory| memory.time).map_or_else(Moment::default, |time| time.0)
}

/// Asks the decider for a victim.
fn drive<'a>(
    decider: &mut Decider<PodCandidate<'a>>,
    (rules, snapshot): (Rules<'_>, &Snapshot),
    candidates: impl Fn() -> Vec<PodCandidate<'a>>,
) -> Option<Choice> {
    let (mut answer, mut choice) = (Answer::Begin, None);
    loop {
        answer = match decider.step(rules, snapshot, answer) {
            Next::Measure(Measure::Candidates { .. }) => Answer::Candidates(candidates()),
            Next::Measure(Measure::Signals) => Answer::Sampled,
            Next::Measure(Measure::Runtime) => Answer::Runtime(RuntimeFacts::Up),
            Next::Measure(Measure::Disks { .. }) => Answer::DisksMeasured(true),
            Next::Evict(chosen) => {
                choice = Some(chosen);
                Answer::Attempt(Attempt::Started)
            }
            Next::Measure(_)
            | Next::CollectGarbage { .. }
            | Next::Reclaim { .. }
            | Next::EndReclaim { .. }
            | Next::Wait { .. } => return choice,
        };
    }
}

fn verdict<'a>(
    Question { signal, summary, .. }: Question<'a>,
    (rules, snapshot): (Rules<'a>, &Snapshot),
    mut decider: Decider<PodCandidate<'a>>,
    choice: Option<Choice>,
) -> Verdict<'a> {
    let (policy, observation) = (rules.policy, &snapshot.observation);
    let order = Order::of(policy, signal.resource());
    let first = choice.and_then(|choice| match choice.place {
        Place::Ranked(place) => Some(place),
        Place::Limit(_) => None,
    });
    let thresholds = thresholds(policy, &decider, signal, observation);
    let eviction = eviction(policy, &decider, choice, first, snapshot);
    let passed_over = decider.passed_over(rules, snapshot);
    let excess = daemons::above_reservation(policy, summary);
    let row = |(ranked, passed_over): (Ranked<PodCandidate<'a>>, Option<PassedOver>)| Row {
        explanation: explain(policy, order, &ranked, excess),
        exempt: passed_over.map(|reason| words(&ranked.candidate, reason)),
        ranked,
    };
    let ranking = decider.take_ranking().into_iter().zip(passed_over).map(row).collect();
    // With the time of the statistics, which the agent's observation lacks.
    let value = signals::observe(summary, policy.quirks).get(signal);
    Verdict { signal, value, thresholds, order, ranking, first, eviction, not_applied: Vec::new() }
}

fn candidates_of<'a>(policy: &Policy, question: Question<'a>) -> Vec<PodCandidate<'a>> {
    let Question { signal, layout, pods, summary, marks } = question;
    let active = active_pods(pods, summary);
    let marked = |mut candidate: PodCandidate<'a>| {
        let mark = marks.map(|marks| marks.of(candidate.pod)).unwrap_or_default();
        candidate.facts.preference = mark.preference;
        PodCandidate { exempt: mark.exempt, outlook: mark.outlook, ..candidate }
    };
    candidates(policy, signal, layout, &active).map(marked).collect()
}

/// Returns the thresholds on the signal that a running kubelet watches.
fn thresholds<C>(policy: &Policy, decider: &Decider<C>, signal: Signal, observation: &Observation) -> Vec<Judged> {
    let counts = |armed: &&Armed| armed.threshold.signal == signal && armed.counts(false);
    let judged = |Armed { threshold, .. }: &Armed| Judged {
        quantity: observation.get(signal).map(|value| threshold.value.resolve(value.capacity, policy.quirks)),
        met: is_below(policy, threshold, observation, false),
        threshold: threshold.clone(),
    };
    decider.armed().iter().filter(counts).map(judged).collect()
}

/// Returns the eviction of the first pod; `None` if no threshold causes it.
fn eviction(
    policy: &Policy,
    decider: &Decider<PodCandidate<'_>>,
    choice: Option<Choice>,
    first: Option<usize>,
    Snapshot { layout, observation, .. }: &Snapshot,
) -> Option<ExpectedEviction> {
    let (met, ranked) = (decider.acted_on()?, decider.ranking().get(first?)?);
    let (message, _) = message::compose(policy, *layout, met, ranked.candidate.pod, ranked.candidate.stats);
    Some(ExpectedEviction {
        threshold: met.threshold.to_string(),
        met: is_below(policy, &met.threshold, observation, false),
        grace_period_seconds: printed_grace_seconds(policy, &met.threshold, choice?.grace_period_seconds),
        message,
    })
}

fn words(candidate: &PodCandidate<'_>, reason: PassedOver) -> String {
    match reason {
        PassedOver::Exempt => {
            exemption(candidate.pod).or_else(|| candidate.exempt.map(str::to_owned)).unwrap_or_default()
        }
        reason => reason.to_string(),
    }
}

/// Returns the reason why a pod is never evicted, if any.
fn exemption(pod: &Pod) -> Option<String> {
    let exemption = pod.exemption()?;
    Some(match exemption {
        Exemption::CriticalPriority => format!("{} {}", exemption.as_str(), pod.priority()),
        Exemption::StaticPod | Exemption::MirrorPod => exemption.as_str().to_owned(),
    })
}

/// Explains a pod's place. OpenShift 3 evicts a Guaranteed pod only for one of two reasons, so the text names them.
fn explain(policy: &Policy, order: Order<'_>, ranked: &Ranked<PodCandidate<'_>>, excess: Option<Amount>) -> String {
    let explanation = ranked.explanation(order);
    let goes_last = policy.ranking == Ranking::OpenShift3 && order.keys().contains(&RankingKey::QosClass);
    match excess {
        _ if !goes_last || ranked.facts(order).qos != QosClass::Guaranteed => explanation,
        None => format!("{explanation}; Guaranteed: goes only when nothing else is left"),
        Some(excess) => format!(
            "{explanation}; Guaranteed: goes only when nothing else is left, or because system daemons exceed their reservation, now by {}",
            excess.bytes()
        ),
    }
}
