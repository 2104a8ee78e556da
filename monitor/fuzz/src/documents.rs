//! Summaries and pods as the API prints them, and the figures that are computed from them; and whole lines of a trace.

use node_pressure_monitor::commands::output::TableOrJson;
use node_pressure_monitor::commands::simulate::{Progress, simulate};
use node_pressure_monitor::config::threshold::parse_threshold_value;
use node_pressure_monitor::config::{OomScores, Policy, Quirk, Quirks, Ranking, Semantics, Threshold};
use node_pressure_monitor::eviction::decider::Decider;
use node_pressure_monitor::eviction::synchronization::{Input, synchronize};
use node_pressure_monitor::eviction::{Layout, NodeCondition, admission, oom_score, signals};
use node_pressure_monitor::units::{Moment, Resource, Signal};
use node_pressure_monitor::workloads::{Pod, QosClass, Summary};
use serde_json::value::RawValue;
use std::time::Duration;

const LAYOUTS: [Layout; 3] = [Layout::Single, Layout::DedicatedImageFs, Layout::SplitImageFs];

/// A threshold on every signal, hard on one and soft on the next, so that any low signal is acted on.
fn policies() -> [Policy; 3] {
    let kubelet = Quirks::of(Semantics::Kubelet);
    let threshold = |(index, signal): (usize, Signal)| {
        let value =
            parse_threshold_value(signal, if index % 3 == 0 { "1Gi" } else { "25%" }, kubelet).ok().flatten()?;
        let grace_period = Duration::from_secs(if index % 2 == 0 { 0 } else { 10 });
        Some(Threshold { signal, min_reclaim: Some(value.clone()), value, grace_period })
    };
    let thresholds: Vec<Threshold> = Signal::ALL.into_iter().enumerate().filter_map(threshold).collect();
    let rules = [
        (kubelet, Ranking::Kubernetes),
        (kubelet, Ranking::OpenShift3),
        (Quirks::of(Semantics::Corrected), Ranking::Qos),
    ];
    rules.map(|(quirks, ranking)| Policy { quirks, ranking, thresholds: thresholds.clone(), ..Policy::default() })
}

/// A Summary. Its pods are given no specification, only their names.
pub fn summary(data: &[u8]) {
    let Ok(summary) = serde_json::from_slice::<Summary>(data) else { return };
    for semantics in [Semantics::Kubelet, Semantics::Corrected] {
        let quirks = Quirks::of(semantics);
        let observation = signals::observe(&summary, quirks);
        let mut seen: Vec<Signal> = observation.signals.iter().map(|value| value.signal).collect();
        let underflow = quirks.has(Quirk::AvailableUnderflow);
        assert!(underflow || observation.signals.iter().all(|value| value.available >= 0), "{observation:?}");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), observation.signals.len(), "a signal twice: {observation:?}");
    }
    let pods = summary.pods.iter().map(|stats| {
        let mut pod = Pod::default();
        pod.metadata.name.clone_from(&stats.pod_ref.uid);
        pod.metadata.uid.clone_from(&stats.pod_ref.uid);
        pod
    });
    let pods: Vec<Pod> = pods.collect();
    decide(&summary, &pods);
}

/// A pod, on a node that runs out of everything.
pub fn pod(data: &[u8]) {
    let Ok(pod) = serde_json::from_slice::<Pod>(data) else { return };
    for semantics in [Semantics::Kubelet, Semantics::Corrected] {
        let quirks = Quirks::of(semantics);
        let class = pod.qos_class(quirks);
        let known = |class: &QosClass| class.as_str() == pod.status.qos_class;
        let claimed = [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed].into_iter().find(known);
        assert!(claimed.is_none_or(|claimed| claimed == class), "{class} in spite of its status");
        for resource in [Resource::Memory, Resource::EphemeralStorage] {
            let _ = pod.request(resource, quirks);
        }
        for (scores, least) in [(OomScores::KUBERNETES, -997), (OomScores::OPENSHIFT3, -998)] {
            for capacity in [i64::MIN, 0, 1, 8 << 30, i64::MAX] {
                let all = oom_score::container_adjustments(&pod, capacity, &scores, quirks);
                assert_eq!(all.len(), pod.spec.containers.len() + pod.spec.init_containers.len());
                for (name, value) in &all {
                    let most = if quirks.has(Quirk::OomScoreAdjAbove1000) { i64::MAX } else { 1000 };
                    assert!((least..=most).contains(value), "{name}: {value} on a node of {capacity}");
                }
            }
        }
        for conditions in [&[][..], &[NodeCondition::MemoryPressure], &[NodeCondition::DiskPressure]] {
            let is_admitted = admission::admit(conditions, &pod, quirks) == admission::Verdict::Admit;
            assert!(is_admitted || !conditions.is_empty() && !pod.is_critical(), "turned away: {conditions:?}");
        }
    }
    if let Some(limit) = pod.ephemeral_storage_limit() {
        let _ = limit.to_string();
    }
    let stats = |(uid, used): (&str, u64)| {
        format!(r#"{{"podRef": {{"uid": {uid:?}}}, "memory": {{"workingSetBytes": {used}}}}}"#)
    };
    let summary = format!(
        r#"{{"node": {{"memory": {{"availableBytes": 0, "workingSetBytes": 9}}, "fs": {{"availableBytes": 0, "capacityBytes": 9}}}},
            "pods": [{}]}}"#,
        stats(("another", u64::MAX))
    );
    let mut summary: Summary = serde_json::from_str(&summary).unwrap_or_default();
    for stats in &mut summary.pods {
        stats.pod_ref.uid.clone_from(&pod.metadata.uid);
    }
    decide(&summary, &[pod, Pod::default()]);
}

/// Two passes under each set of rules and layout: no workload is lost, and none that is exempt is a candidate.
fn decide(summary: &Summary, pods: &[Pod]) {
    for policy in policies() {
        for layout in LAYOUTS {
            let mut decider = Decider::default();
            for seconds in [0, 3600] {
                let now = Moment(seconds * 1_000_000_000);
                let input = Input { now, layout, summary, after_collection: None, pods };
                let decision = synchronize(&mut decider, &policy, &input);
                let active = pods.iter().filter(|pod| pod.is_active()).count();
                assert!(decision.ranking.is_empty() || decision.ranking.len() == active, "pods lost or invented");
                for eviction in decision.eviction.iter().chain(&decision.local_storage) {
                    assert!(eviction.pod.is_active() && !eviction.pod.is_critical(), "{:?} must not go", eviction.pod);
                    assert!(eviction.message.ends_with(". "), "{:?}", eviction.message);
                }
                assert!(decision.eviction.is_none() || decision.local_storage.is_empty(), "two reasons at once");
            }
        }
    }
}

/// Lines of a trace, from text to text, under each set of rules: every line up to the first that is wrong is answered with one line
/// of JSON, and the same is said when asked again.
pub fn trace(text: &str) {
    for policy in policies() {
        let answer = |format| {
            let mut answer = Vec::new();
            let result = simulate(&policy, "trace", text.as_bytes(), &mut answer, format, Progress::silent(None));
            (String::from_utf8(answer).unwrap_or_default(), result.map_err(|error| error.to_string()))
        };
        let (json, result) = answer(TableOrJson::Json);
        assert_eq!(answer(TableOrJson::Json), (json.clone(), result.clone()), "the same trace, another answer");
        for line in json.lines() {
            assert!(serde_json::from_str::<&RawValue>(line).is_ok(), "not JSON: {line}");
        }
        match &result {
            Ok(answered) => assert_eq!(u64::try_from(json.lines().count()), Ok(*answered)),
            Err(error) => {
                let place = error.strip_prefix("trace:").unwrap_or_default();
                let number = place.split(':').next().and_then(|number| number.parse::<usize>().ok());
                let lines = text.split('\n').count();
                assert!(number.is_some_and(|number| (1..=lines).contains(&number)), "nowhere: {error}");
                assert_eq!(error.lines().count(), 1, "{error}");
            }
        }
        let (_, table) = answer(TableOrJson::Table);
        assert_eq!(table, result, "the table says something else");
    }
}
