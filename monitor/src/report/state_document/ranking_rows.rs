//! The order of eviction for each signal with a threshold.

use std::collections::HashSet;
use std::fmt::Display;

use node_pressure_state::{Key, Name, Place, Ranking};

use crate::eviction::decider::PassedOver;
use crate::eviction::place_words::place_words;
use crate::eviction::rank::{Candidate as _, Order, Ranked};
use crate::report::NodeReport;
use crate::report::live::Live;
use crate::sensors::live_ranking::LiveRanking;
use crate::units::{Amount, Bytes, CgroupId, Resource};
use crate::workloads::WorkloadUsage;

/// Places in one ranking.
const MOST: usize = 200;

/// Returns the rankings, that of the signal nearest to its threshold first.
pub(super) fn rankings(live: &Live, report: &NodeReport) -> Vec<Ranking> {
    let nearest = |ranking: &LiveRanking| {
        let of_signal = report.figures.exhaustion.iter().find(|it| it.signal == ranking.signal.as_str());
        of_signal.and_then(|it| it.thresholds.iter().map(|(_, seconds)| *seconds).min_by(f64::total_cmp))
    };
    let mut sorted: Vec<&LiveRanking> = live.rankings.iter().collect();
    sorted.sort_by(|a, b| {
        let seconds = |it| nearest(it).unwrap_or(f64::INFINITY);
        seconds(a).total_cmp(&seconds(b)).then_with(|| a.signal.cmp(&b.signal))
    });
    sorted.into_iter().map(|ranking| of_signal(ranking, live, report)).collect()
}

fn of_signal(ranking: &LiveRanking, live: &Live, report: &NodeReport) -> Ranking {
    let LiveRanking { signal, ranked, passed_over, first } = ranking;
    let order = Order::of(&live.policy, signal.resource());
    let candidates = ranked.iter().enumerate().map(|(index, ranked)| {
        let passed_over = passed_over.get(index).copied().flatten();
        Place { place: Some(index + 1), ..candidate(ranked, passed_over, order, report) }
    });
    let ids: HashSet<CgroupId> = ranked.iter().map(|ranked| ranked.candidate.workload.id).collect();
    let exempt = live.usages.iter().filter(|(usage, _)| !ids.contains(&usage.workload.id));
    let exempt = exempt.filter_map(|(usage, name)| protected(usage, name, signal.resource()));
    let next = first.and_then(|first| ranked.get(first)).map(|ranked| ranked.candidate.workload.name.clone());
    let reason =
        if ranked.is_empty() { "there is no candidate" } else { "each candidate is exempt or would help too little" };
    let none_because = next.is_none().then_some(reason);
    Ranking {
        signal: signal.as_str().to_owned(),
        places: candidates.chain(exempt).take(MOST).collect(),
        next,
        none_because: none_because.map(str::to_owned),
    }
}

fn candidate(
    ranked: &Ranked<WorkloadUsage>,
    passed_over: Option<PassedOver>,
    order: Order<'_>,
    report: &NodeReport,
) -> Place {
    let (name, facts) = (report.names.of_workload(&ranked.candidate.workload), ranked.facts(order));
    let keys = order.keys().iter().zip(ranked.keys(order));
    let why = match passed_over {
        None => place_words(&facts, order),
        Some(PassedOver::Exempt) => not_a_candidate(&PassedOver::Exempt),
        Some(reason) => format!("passed over: {reason}"),
    };
    let number = |amount: Option<Amount>| amount.and_then(|amount| u64::try_from(amount.units()).ok());
    Place {
        workload: name.workload,
        display: name.display,
        exempt: passed_over.map(|reason| reason.to_string()),
        why: Some(why),
        usage: number(facts.usage),
        request: number(facts.request),
        at_most: !ranked.candidate.is_exact(),
        keys: keys
            .map(|(key, value)| Key { name: key.as_str().to_owned(), value: value.words(order.resource()) })
            .collect(),
        ..Place::default()
    }
}

/// Returns the place of a workload that is never evicted; `None` for any other. Only its memory is measured.
fn protected(usage: &WorkloadUsage, name: &Name, resource: Resource) -> Option<Place> {
    let protection = usage.workload.protection?;
    let memory = |bytes: Bytes| (resource == Resource::Memory).then_some(bytes.0);
    Some(Place {
        workload: name.workload.clone(),
        display: name.display.clone(),
        exempt: Some(protection.to_string()),
        why: Some(not_a_candidate(&protection)),
        usage: memory(usage.outlook.gain.unwrap_or(usage.working_set)),
        request: memory(usage.workload.request),
        ..Place::default()
    })
}

fn not_a_candidate(reason: &dyn Display) -> String {
    format!("not a candidate: {reason}")
}
