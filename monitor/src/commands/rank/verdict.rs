//! Who would go first, and everything that says so.

use crate::config::{Policy, Ranking, RankingKey, Threshold};
use crate::eviction::pass::{PodCandidate, first_evictable};
use crate::eviction::rank::{Order, Ranked};
use crate::eviction::usage::{active_pods, candidates};
use crate::eviction::{Armed, Layout, MetThreshold, SignalValue, arm, daemons, is_below, signals};
use crate::units::{Amount, Signal};
use crate::workloads::pod::Exemption;
use crate::workloads::{Pod, Preference, QosClass, Summary};

use super::marks::{self, Marks};

/// A threshold on the signal.
#[derive(Debug)]
pub struct Judged {
    place: usize,
    /// The threshold.
    pub threshold: Threshold,
    /// Its value on this node; none where the signal is not observed.
    pub quantity: Option<Amount>,
    /// The signal is below it.
    pub met: bool,
}

/// The whole answer.
#[derive(Debug)]
pub struct Verdict<'a> {
    /// The signal that was asked about.
    pub signal: Signal,
    /// What it is.
    pub value: Option<SignalValue>,
    /// The thresholds on it.
    pub thresholds: Vec<Judged>,
    /// The keys of the ranking, most important first.
    pub order: Order<'a>,
    /// The pods, first to be evicted first.
    pub ranking: Vec<Row<'a>>,
    /// Where in it the first is that is not exempt.
    pub first: Option<usize>,
    /// What would happen to it; none where no threshold says so.
    pub eviction: Option<Told>,
}

/// What would happen to the first.
#[derive(Debug)]
pub struct Told {
    /// The threshold that would be acted on.
    pub threshold: String,
    /// It is met now.
    pub met: bool,
    /// Seconds that the pod would get.
    pub grace_period_seconds: i64,
    /// The message that it would get.
    pub message: String,
}

/// A pod in its place.
#[derive(Debug)]
pub struct Row<'a> {
    /// The pod.
    pub ranked: Ranked<PodCandidate<'a>>,
    /// Why it is never evicted, if so.
    pub exempt: Option<String>,
    /// Why it stands where it stands.
    pub explanation: String,
}

/// Ranks `pods` as if `signal` were low; with what their node itself says of them, where it was asked.
#[must_use]
pub fn judge<'a>(
    policy: &'a Policy,
    layout: Layout,
    signal: Signal,
    pods: &'a [Pod],
    summary: &'a Summary,
    marks: Option<&Marks>,
) -> Verdict<'a> {
    let observation = signals::observe(summary, policy.quirks);
    let value = observation.get(signal);
    // What a kubelet watches once it has started.
    let counts = |armed: &Armed| armed.threshold.signal == signal && armed.counts(false);
    let armed = arm(policy, layout).into_iter().enumerate().filter(|(_, armed)| counts(armed));
    let judged = |(place, Armed { threshold, .. })| Judged {
        place,
        quantity: value.map(|value| threshold.value.resolve(value.capacity, policy.quirks)),
        met: is_below(policy, &threshold, &observation, false),
        threshold,
    };
    let thresholds: Vec<Judged> = armed.map(judged).collect();

    let order = Order::of(policy, signal.resource());
    let active = active_pods(pods, summary);
    let marked = candidates(policy, signal, layout, &active).map(|mut candidate| {
        candidate.facts.preference = marks.map_or(Preference::None, |marks| marks.of(candidate.pod).preference);
        candidate
    });
    let ranking = order.rank(marked);
    let acted_on = value.and_then(|value| acted_on(&thresholds, value));
    let exempt = exemptions(policy, signal, (value, acted_on.as_ref().map(|(_, met)| met)), &ranking, marks);
    let first = exempt.iter().position(Option::is_none);
    let eviction = acted_on.and_then(|(met, acted_on)| {
        let eviction = first_evictable(policy, &acted_on, ranking.get(first?..)?)?;
        let (threshold, message) = (acted_on.threshold.to_string(), eviction.message);
        Some(Told { threshold, met, grace_period_seconds: eviction.grace_period_seconds, message })
    });

    let excess = daemons::above_reservation(policy, summary);
    let row = |(ranked, exempt): (Ranked<PodCandidate<'a>>, Option<String>)| Row {
        explanation: explain(policy, order, &ranked, excess),
        exempt,
        ranked,
    };
    let ranking = ranking.into_iter().zip(exempt).map(row).collect();
    Verdict { signal, value, thresholds, order, ranking, first, eviction }
}

/// The threshold that would be acted on: one that is met before one that is not, then the hard one.
fn acted_on(thresholds: &[Judged], value: SignalValue) -> Option<(bool, MetThreshold)> {
    let judged = thresholds.iter().min_by_key(|judged| (!judged.met, !judged.threshold.is_hard()))?;
    let (place, threshold, quantity) = (judged.place, judged.threshold.clone(), judged.quantity?);
    Some((judged.met, MetThreshold { place, threshold, quantity, value, is_fresh: true }))
}

/// Why each is not evicted, if so.
fn exemptions(
    policy: &Policy,
    signal: Signal,
    met: (Option<SignalValue>, Option<&MetThreshold>),
    ranking: &[Ranked<PodCandidate<'_>>],
    marks: Option<&Marks>,
) -> Vec<Option<String>> {
    let by_pods = ranking.iter().map(|ranked| exemption(ranked.candidate.pod));
    let Some(marks) = marks else { return by_pods.collect() };
    let marked = |ranked: &Ranked<PodCandidate<'_>>| marks.of(ranked.candidate.pod).exempt.map(str::to_owned);
    let never: Vec<Option<String>> =
        by_pods.zip(ranking).map(|(exempt, ranked)| exempt.or_else(|| marked(ranked))).collect();
    let can_go: Vec<bool> = never.iter().map(Option::is_none).collect();
    let passed_over = marks::passed_over(policy, signal, met, ranking, &can_go);
    never.into_iter().zip(passed_over).map(|(never, passed)| never.or_else(|| passed.map(str::to_owned))).collect()
}

/// Why a pod is never evicted, if so.
fn exemption(pod: &Pod) -> Option<String> {
    let exemption = pod.exemption()?;
    Some(match exemption {
        Exemption::CriticalPriority => format!("{exemption} {}", pod.priority()),
        Exemption::StaticPod | Exemption::MirrorPod => exemption.to_string(),
    })
}

/// OpenShift 3 promises that a Guaranteed pod goes only for one of two reasons: so they are told.
fn explain(policy: &Policy, order: Order<'_>, ranked: &Ranked<PodCandidate<'_>>, excess: Option<Amount>) -> String {
    let explanation = ranked.explanation(order);
    let goes_last = policy.ranking == Ranking::OpenShift3 && order.keys().contains(&RankingKey::QosClass);
    match excess {
        _ if !goes_last || ranked.facts().qos != QosClass::Guaranteed => explanation,
        None => format!("{explanation}; Guaranteed: goes only when nothing else is left"),
        Some(excess) => format!(
            "{explanation}; Guaranteed: goes only when nothing else is left, or because system daemons exceed their reservation, now by {}",
            excess.bytes()
        ),
    }
}
