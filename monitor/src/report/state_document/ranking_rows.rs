//! The order of eviction for each signal with a threshold.

use std::collections::HashSet;

use node_pressure_state::{Key, Place, Ranking};

use crate::eviction::rank::{Candidate as _, Order, Ranked};
use crate::report::NodeReport;
use crate::report::live::Live;
use crate::sensors::live_ranking::LiveRanking;
use crate::units::{CgroupId, Resource};
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
        let exempt = passed_over.get(index).copied().flatten().map(|reason| reason.to_string());
        Place { place: Some(index + 1), exempt, ..place(ranked, order, report, signal.resource()) }
    });
    let ids: HashSet<CgroupId> = ranked.iter().map(|ranked| ranked.candidate.workload.id).collect();
    let exempt = live.usages.iter().filter_map(|(usage, name)| {
        let protection = usage.workload.protection.filter(|_| !ids.contains(&usage.workload.id))?;
        Some(Place {
            workload: name.workload.clone(),
            display: name.display.clone(),
            exempt: Some(protection.to_string()),
            ..Place::default()
        })
    });
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

fn place(ranked: &Ranked<WorkloadUsage>, order: Order<'_>, report: &NodeReport, resource: Resource) -> Place {
    let name = report.names.of_workload(&ranked.candidate.workload);
    let keys = order.keys().iter().zip(ranked.keys(order));
    Place {
        workload: name.workload,
        display: name.display,
        at_most: !ranked.candidate.is_exact(),
        keys: keys.map(|(key, value)| Key { name: key.as_str().to_owned(), value: value.words(resource) }).collect(),
        ..Place::default()
    }
}
