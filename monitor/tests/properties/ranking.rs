//! Properties of rankings.

use node_pressure_monitor::config::{Policy, Quirk, Ranking};
use node_pressure_monitor::eviction::decider::RecordedCandidate;
use node_pressure_monitor::eviction::rank::{Facts, Order};
use node_pressure_monitor::units::{Amount, CgroupId, Resource};
use node_pressure_monitor::workloads::{Outlook, Preference, QosClass};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::check::forall;
use super::world;

fn amount() -> impl Strategy<Value = Amount> {
    const ENDS: [i128; 6] = [i128::MIN, 0, 1, 100_000_000, 1 << 60, i128::MAX];
    prop_oneof![3 => (0_i64..5).prop_map(Amount::from_units), 1 => select(&ENDS[..]).prop_map(Amount::from_billionths)]
}

fn facts() -> impl Strategy<Value = Facts> {
    const CLASSES: [QosClass; 3] = [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed];
    const PREFERENCES: [Preference; 2] = [Preference::None, Preference::Avoid];
    let requested = (option::weighted(0.9, amount()), amount(), any::<bool>());
    (select(&PREFERENCES[..]), select(&CLASSES[..]), -1_i32..2, option::weighted(0.8, amount()), requested).prop_map(
        |(preference, qos, priority, usage, (request, other, same))| {
            let subtracted = if same { request.unwrap_or_default() } else { other };
            Facts { preference, qos, priority, usage, request, subtracted }
        },
    )
}

/// Generates candidates, a policy that ranks them, and the resource that runs out.
fn case() -> impl Strategy<Value = (Vec<RecordedCandidate>, Policy, Resource)> {
    const RESOURCES: [Resource; 4] = [Resource::Memory, Resource::EphemeralStorage, Resource::Inodes, Resource::Pids];
    let candidates = vec(facts(), 2..14).prop_map(|all| {
        // The order of names differs from the order of their numbers, and two candidates may share a name.
        let who = |(index, facts)| {
            let number = index * 7 % 15;
            RecordedCandidate {
                // The name is not unique.
                name: format!("ns/p{}", number / 2),
                id: format!("ns/p{}-{}", number / 2, number % 2),
                cgroup: CgroupId(0),
                facts,
                exact: true,
                outlook: Outlook::default(),
                is_unlisted: false,
                standing: None,
            }
        };
        all.into_iter().enumerate().map(who).collect()
    });
    let policy = (world::ranking(), world::quirks());
    let policy = policy.prop_map(|(ranking, quirks)| Policy { ranking, quirks, ..Policy::default() });
    (candidates, policy, select(&RESOURCES[..]))
}

fn names(policy: &Policy, resource: Resource, candidates: &[RecordedCandidate]) -> Vec<String> {
    let ranked = Order::of(policy, resource).rank(candidates.iter().cloned());
    ranked.into_iter().map(|ranked| ranked.candidate.id).collect()
}

fn place(ranking: &[String], name: &str) -> usize {
    ranking.iter().position(|other| other == name).unwrap()
}

/// Catches comparisons that contradict themselves, as the kubelet's does without statistics: the result of a sort is then arbitrary.
/// If each pair, compared alone and in both orders, is ordered as in the whole, the order is antisymmetric, transitive and total.
#[test]
fn every_ranking_is_a_total_order() {
    forall(400, 300, &case(), |(candidates, policy, resource), seen| {
        let ranking = names(&policy, resource, &candidates);
        for (index, first) in candidates.iter().enumerate() {
            for second in &candidates[..index] {
                let pair = names(&policy, resource, &[first.clone(), second.clone()]);
                let reverse = names(&policy, resource, &[second.clone(), first.clone()]);
                prop_assert_eq!(&pair, &reverse);
                prop_assert!(place(&ranking, &pair[0]) < place(&ranking, &pair[1]), "{:?} but {:?}", pair, ranking);
            }
        }
        let by_name = ranking.is_sorted();
        seen.when(!by_name);
        Ok(())
    });
}

/// Catches ties that the order of the list decides, and lost or duplicated candidates.
#[test]
fn the_order_of_the_input_makes_no_difference() {
    let shuffled = case().prop_flat_map(|(candidates, policy, resource)| {
        (Just(candidates.clone()), Just(candidates).prop_shuffle(), Just((policy, resource)))
    });
    forall(400, 300, &shuffled, |(candidates, shuffled, (policy, resource)), seen| {
        let ranking = names(&policy, resource, &candidates);
        prop_assert_eq!(&names(&policy, resource, &shuffled), &ranking);
        let mut sorted = ranking;
        sorted.sort();
        let mut all: Vec<String> = candidates.iter().map(|who| who.id.clone()).collect();
        all.sort();
        prop_assert_eq!(sorted, all);
        seen.when(candidates != shuffled);
        Ok(())
    });
}

/// Catches missing statistics treated as no usage. Corrected, they decide before any key; in the kubelet, only when the first key is usage.
#[test]
fn the_quirk_decides_the_place_of_missing_statistics() {
    forall(400, 200, &case(), |(candidates, mut policy, mut resource), seen| {
        if policy.quirks.has(Quirk::MissingStatisticsFirst) {
            (policy.ranking, resource) = (Ranking::Kubernetes, Resource::Memory);
        }
        let ranked = Order::of(&policy, resource).rank(candidates.iter().map(|who| RecordedCandidate {
            facts: Facts { request: Some(who.facts.request.unwrap_or_default()), ..who.facts },
            ..who.clone()
        }));
        let missing: Vec<bool> = ranked.iter().map(|ranked| ranked.candidate.facts.usage.is_none()).collect();
        let first = policy.quirks.has(Quirk::MissingStatisticsFirst);
        prop_assert!(missing.is_sorted_by_key(|missing| *missing != first), "{:?}", missing);
        seen.when(missing.contains(&true) && missing.contains(&false));
        Ok(())
    });
}

/// Makes one candidate worse in one respect, and asserts that it only moves forward. Catches a key compared in the wrong direction, and
/// amounts that wrap when a request is subtracted.
fn moves_forward(worse: impl Fn(&mut Facts, Amount) -> bool) {
    let changed = (case(), any::<prop::sample::Index>(), amount());
    forall(1200, 100, &changed, |((mut candidates, policy, resource), index, amount), seen| {
        let before = names(&policy, resource, &candidates);
        let who = index.index(candidates.len());
        if amount.is_negative() || !worse(&mut candidates[who].facts, amount) {
            return Ok(());
        }
        let after = names(&policy, resource, &candidates);
        let name = &candidates[who].id;
        prop_assert!(place(&after, name) <= place(&before, name), "{} in {:?}, then {:?}", name, before, after);
        seen.when(after != before);
        Ok(())
    });
}

#[test]
fn more_usage_never_moves_a_candidate_back() {
    moves_forward(|facts, amount| {
        facts.usage = facts.usage.map(|usage| usage + amount);
        facts.usage.is_some()
    });
}

#[test]
fn a_smaller_request_never_moves_a_candidate_back() {
    moves_forward(|facts, amount| {
        facts.request = facts.request.map(|request| request - amount);
        facts.subtracted = facts.subtracted - amount;
        true
    });
}

#[test]
fn a_lower_priority_never_moves_a_candidate_back() {
    moves_forward(|facts, _| {
        facts.priority -= 1;
        true
    });
}

#[test]
fn a_lower_class_never_moves_a_candidate_back() {
    moves_forward(|facts, _| {
        let lower = if facts.qos == QosClass::Guaranteed { QosClass::Burstable } else { QosClass::BestEffort };
        std::mem::replace(&mut facts.qos, lower) != lower
    });
}
