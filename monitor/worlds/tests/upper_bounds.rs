//! A file that tells usage with file pages is an upper bound of what an end gives back. It must not keep others from going.

use node_pressure_worlds::plan::{Class, Plan, Pod};
use node_pressure_worlds::run::{Options, run};

/// Returns the name of the first victim, and when it was killed.
fn first(plan: &Plan) -> Option<(String, f64)> {
    let (history, _) = run(plan, Options { until_first: true, ..Options::default() });
    history.decisions.first().map(|first| (plan.pods[first.victim].name.clone(), first.at))
}

#[test]
fn caches_of_pods_above_their_request_hold_back_nobody() {
    let within = |name: &str, memory: f64| Pod {
        name: name.to_owned(),
        class: Class::Guaranteed,
        request: memory * 2.0,
        memory,
        ..Pod::default()
    };
    let plan = Plan {
        capacity: 65_536.0,
        threshold: 3_277.0,
        available: 13_000.0,
        seconds: 30.0,
        max_per_minute: 6,
        pods: vec![within("small", 4_000.0), within("large", 5_200.0)],
        other_leak: (1_500.0, 0.2),
        ..Plan::default()
    };
    let (victim, at) = first(&plan).unwrap();
    let cache = |number| Pod { name: format!("cache-{number}"), memory: 0.5, cache: 650.0, ..Pod::default() };
    let mut beside = plan;
    beside.pods.extend((0..80).map(cache));
    let (victim_beside, at_beside) = first(&beside).unwrap();
    assert_eq!(victim_beside, victim);
    assert!((at_beside - at).abs() < 0.02, "at {at:.3} s alone, at {at_beside:.3} s beside caches");
}
