//! Properties of the whole pass, and of the answer that `simulate` prints.

use std::time::Duration;

use node_pressure_monitor::commands::output::TableOrJson;
use node_pressure_monitor::commands::simulate::{Progress, simulate};
use node_pressure_monitor::config::{Policy, Quirk, Threshold};
use node_pressure_monitor::eviction::Layout;
use node_pressure_monitor::eviction::decider::Decider;
use node_pressure_monitor::eviction::rank::{Candidate as _, Order, Ranked};
use node_pressure_monitor::eviction::synchronization::{Input, Synchronized, synchronize};
use node_pressure_monitor::eviction::usage::PodCandidate;
use node_pressure_monitor::units::{Moment, Resource, Signal};
use node_pressure_monitor::workloads::{Pod, Summary};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::check::forall;
use super::world::{self, Node};

const SECOND: i128 = 1_000_000_000;

fn case(pods: usize, steps: usize) -> impl Strategy<Value = (Node, Policy)> {
    (world::node(pods, steps), world::policy(4))
}

/// Calls `see` with every decision.
fn passes(
    policy: &Policy,
    node: &Node,
    mut see: impl FnMut(&Synchronized<'_>, &[Pod], &Summary) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let pods = node.pods();
    let mut decider = Decider::default();
    for (at, summary) in &node.summaries() {
        let now = Moment(i128::from(*at) * SECOND);
        let input = Input { now, layout: node.layout, summary, after_collection: None, pods: &pods };
        let decision = synchronize(&mut decider, policy, &input);
        see(&decision, &pods, summary)?;
    }
    Ok(())
}

/// Catches lost or invented candidates, ended pods in the ranking, evicted critical pods, and a skipped first candidate.
#[test]
fn every_active_pod_is_ranked_and_the_first_candidate_evicted() {
    forall(500, 40, &case(8, 4), |(node, policy), seen| {
        passes(&policy, &node, |decision, pods, _| {
            let ranking: Vec<&Pod> = decision.ranking.iter().map(|ranked| ranked.candidate.pod).collect();
            let first = ranking.iter().find(|pod| !pod.is_critical());
            let evicted = decision.eviction.as_ref().map(|eviction| eviction.pod);
            prop_assert_eq!(evicted, first.copied());
            if !ranking.is_empty() {
                let mut ranked: Vec<String> = ranking.iter().map(|pod| pod.full_name()).collect();
                ranked.sort();
                let active = pods.iter().filter(|pod| pod.is_active());
                let mut active: Vec<String> = active.map(Pod::full_name).collect();
                active.sort();
                prop_assert_eq!(ranked, active);
            }
            for eviction in &decision.local_storage {
                prop_assert!(eviction.pod.is_active() && !eviction.pod.is_critical());
            }
            let skips = first.is_some_and(|first| ranking.first() != Some(first));
            seen.when(skips);
            Ok(())
        })
    });
}

/// Catches steps in the wrong order: limits of local storage come first, no action happens without an actionable threshold, and the most
/// urgent of these thresholds is chosen.
#[test]
fn no_action_without_a_threshold_or_limit() {
    forall(500, 100, &case(5, 5), |(node, policy), seen| {
        passes(&policy, &node, |decision, _, _| {
            let to_act_on = decision.assessment.to_act_on();
            let limits = !decision.local_storage.is_empty();
            prop_assert!(policy.local_storage_isolation || !limits);
            let expected = if limits { None } else { to_act_on.first().copied() };
            prop_assert_eq!(decision.acted_on.as_ref(), expected);
            let acts = decision.eviction.is_some() || decision.node_event.is_some() || !decision.ranking.is_empty();
            prop_assert!(!acts || decision.acted_on.is_some());
            if let Some(acted_on) = &decision.acted_on {
                let memory = |resource| resource == Resource::Memory;
                let urgent = to_act_on.iter().filter(|met| memory(met.threshold.signal.resource()) && met.is_hard());
                let is_most = memory(acted_on.threshold.signal.resource()) && acted_on.is_hard();
                prop_assert!(is_most || urgent.count() == 0);
            }
            for value in &decision.observation.signals {
                prop_assert!(value.available >= 0 || policy.quirks.has(Quirk::AvailableUnderflow));
            }
            seen.when(decision.eviction.is_some() && to_act_on.len() > 1);
            Ok(())
        })
    });
}

/// Catches usage from the wrong statistics, and requests from the wrong containers.
#[test]
fn a_pod_that_uses_more_memory_never_moves_back() {
    let more = (case(8, 1), any::<prop::sample::Index>(), 1_u64..(4 * world::GIB));
    forall(600, 60, &more, |((mut node, mut policy), index, more), seen| {
        let signal = Signal::MemoryAvailable;
        let value = world::value(signal, "100.1Gi");
        policy.thresholds = vec![Threshold { signal, value, grace_period: Duration::ZERO, min_reclaim: None }];
        policy.local_storage_isolation = false;
        let places = |node: &Node| {
            let mut places = Vec::new();
            passes(&policy, node, |decision, _, _| {
                let memory =
                    decision.acted_on.as_ref().is_some_and(|met| met.threshold.signal.resource() == Resource::Memory);
                let ranking = decision.ranking.iter().filter(|_| memory);
                places = ranking.map(|ranked| ranked.candidate.pod.metadata.uid.clone()).collect();
                Ok(())
            })?;
            Ok::<Vec<String>, TestCaseError>(places)
        };
        let before = places(&node)?;
        let pods = node.steps[0].1["pods"].as_array_mut().unwrap();
        if pods.is_empty() || before.is_empty() {
            return Ok(());
        }
        let which = index.index(pods.len());
        let stats = &mut pods[which];
        let used = stats["memory"]["workingSetBytes"].as_u64().unwrap_or(0);
        stats["memory"]["workingSetBytes"] = json!(used + more);
        let uid = stats["podRef"]["uid"].as_str().unwrap().to_owned();
        let after = places(&node)?;
        let place = |ranking: &[String]| ranking.iter().position(|other| *other == uid);
        prop_assert!(place(&after) <= place(&before), "{} in {:?}, then {:?}", uid, before, after);
        seen.when(after != before);
        Ok(())
    });
}

/// Returns one line for each moment, with its times shifted by `shift` seconds.
fn trace(node: &Node, shift: i64) -> String {
    let (dedicated, split) = match node.layout {
        Layout::Single => (false, false),
        Layout::DedicatedImageFs => (true, false),
        Layout::SplitImageFs => (true, true),
    };
    let lines = node.steps.iter().map(|(at, summary)| {
        let line = json!({
            "time": world::time(i64::from(*at) + shift), "summary": summary, "pods": node.pods,
            "node": {"capacity": {"memory": world::CAPACITY}, "dedicatedImageFs": dedicated, "splitImageFs": split},
        });
        let text = line.to_string();
        if shift == 0 { text } else { shifted(line, shift).to_string() }
    });
    lines.map(|line| line + "\n").collect()
}

/// Shifts the times inside the statistics.
fn shifted(mut line: Value, shift: i64) -> Value {
    let node = &mut line["summary"]["node"];
    let move_time = |stats: &mut Value| {
        let time = stats.get("time").and_then(Value::as_str).and_then(|text| text.parse::<jiff::Timestamp>().ok());
        if let Some(time) = time {
            stats["time"] = json!((time + jiff::SignedDuration::from_secs(shift)).to_string());
        }
    };
    for place in ["/memory", "/fs", "/rlimit", "/systemContainers/0/memory", "/runtime/imageFs", "/runtime/containerFs"]
    {
        if let Some(stats) = node.pointer_mut(place) {
            move_time(stats);
        }
    }
    line
}

fn answer(policy: &Policy, trace: &str) -> String {
    let mut answer = Vec::new();
    let progress = Progress::silent(None);
    simulate(policy, "trace", trace.as_bytes(), &mut answer, TableOrJson::Json, progress).unwrap();
    String::from_utf8(answer).unwrap()
}

/// Catches a read of the clock, an iteration over a hash map, and pods identified by their place in a list.
#[test]
fn equal_input_gives_byte_equal_output() {
    let shuffled = case(8, 4).prop_flat_map(|(node, policy)| {
        let pods = Just(node.pods.clone()).prop_shuffle();
        (Just(node), Just(policy), pods)
    });
    forall(200, 50, &shuffled, |(node, policy, pods), seen| {
        let first = answer(&policy, &trace(&node, 0));
        prop_assert_eq!(&first, &answer(&policy, &trace(&node, 0)));
        let mut other = Node { pods, ..node.clone() };
        for (_, summary) in &mut other.steps {
            summary["pods"].as_array_mut().unwrap().reverse();
        }
        let second = answer(&policy, &trace(&other, 0));
        for (first, second) in first.lines().zip(second.lines()) {
            let [first, second] = [first, second].map(|line| serde_json::from_str::<Value>(line).unwrap());
            // Limits of local storage are checked in the order of the pods.
            let one_at_most = first["localStorageEvictions"].as_array().is_none_or(|all| all.len() < 2);
            prop_assert!(!one_at_most || first == second, "{} but {}", first, second);
        }
        seen.when(first.lines().any(|line| line.contains("\"evict\":{")) && other.pods != node.pods);
        Ok(())
    });
}

/// Catches a read of the clock, and a date used as a duration.
#[test]
fn shifting_a_trace_only_shifts_the_answer() {
    let shift = prop_oneof![-3_000_000_000_i64..3_000_000_000, Just(1), Just(-86_400)];
    forall(200, 50, &(case(4, 6), shift), |((node, policy), shift), seen| {
        let before = answer(&policy, &trace(&node, 0));
        let after = answer(&policy, &trace(&node, shift));
        prop_assert_eq!(before.lines().count(), node.steps.len());
        prop_assert_eq!(after.lines().count(), node.steps.len());
        for ((at, _), (before, after)) in node.steps.iter().zip(before.lines().zip(after.lines())) {
            let [was, is] = [0, shift].map(|shift| format!("{{\"time\":\"{}\"", world::time(i64::from(*at) + shift)));
            let rest = after.strip_prefix(&is);
            prop_assert_eq!(before.strip_prefix(&was), rest);
            prop_assert!(rest.is_some());
        }
        seen.when(before.contains("\"evict\":{"));
        Ok(())
    });
}

/// Catches an explanation that differs from the ranking: the printed keys of the pods must be in the order of the ranking.
#[test]
fn the_printed_keys_explain_the_order() {
    forall(300, 100, &case(8, 2), |(node, policy), seen| {
        passes(&policy, &node, |decision, _, _| {
            let Some(acted_on) = &decision.acted_on else { return Ok(()) };
            let order = Order::of(&policy, acted_on.threshold.signal.resource());
            for pair in decision.ranking.windows(2) {
                let told =
                    |ranked: &Ranked<PodCandidate<'_>>| (ranked.candidate.facts().usage.is_none(), ranked.keys(order));
                let same_keys = told(&pair[0]) == told(&pair[1]);
                let by_name = pair[0].candidate.name() < pair[1].candidate.name();
                prop_assert!(!same_keys || by_name, "{:?}", pair);
                seen.when(!same_keys && !by_name);
            }
            Ok(())
        })
    });
}
