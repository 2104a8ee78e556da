//! The sweeper and killed agents.

use std::time::Duration;

use http::Method;
use node_pressure_apiserver::Fault;
use node_pressure_apiserver::stage::{Stage, condition, lease_path};
use node_pressure_monitor::cluster::fleet;
use node_pressure_monitor::cluster::status::Effect;
use node_pressure_monitor::cluster::sweeper::{Round, Rules, Sweeper, Swept};
use node_pressure_monitor::config::KubernetesOptions;
use serde_json::{Value, json};

use crate::support::{KEY, TYPE, access, cluster, end, has, is_tainted, lease, node, status};

const RULES: Rules = Rules { remove: false, keep_leases: false, dry_run: false, by_clock: false };

/// Longer than a Lease of a second is valid.
const OVER: Duration = Duration::from_millis(1_200);

async fn sweeper(stage: &Stage, rules: Rules) -> Sweeper {
    Sweeper::connect(&access(stage), rules, Some(stage.node.clone())).await.unwrap()
}

/// Asserts that a round has counted this many agents. A real server also has those of other tests.
fn counts_agents(stage: &Stage, round: Round, agents: usize) {
    assert!(round.agents == agents || stage.server.is_real() && round.agents > agents, "{round:?}");
}

/// Lists until something is there, for five seconds: a real server lists from a cache.
async fn listed<T>(mut list: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    for _ in 0..100 {
        let found = list().await;
        if found.is_some() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
}

async fn round(sweeper: &mut Sweeper) -> (Round, Vec<Swept>) {
    let mut all = Vec::new();
    let round = sweeper.round(&mut |swept: &Swept| all.push(swept.clone())).await.unwrap();
    (round, all)
}

/// Makes a node whose agent was killed under pressure.
async fn abandoned(stage: &Stage) {
    silent(stage).await;
    promise(stage, 1).await;
}

/// Sets for how many seconds the Lease is valid.
async fn promise(stage: &Stage, seconds: u64) {
    lease(stage, |_| true).await;
    let promise = json!({"spec": {"leaseDurationSeconds": seconds}});
    let (status, answer) = stage.ask(Method::PATCH, &lease_path(&stage.node), promise).await.unwrap();
    assert_eq!(status, 200, "{answer}");
}

/// Makes a node whose agent has a heartbeat interval of an hour.
pub async fn silent(stage: &Stage) {
    let cluster =
        cluster(stage, KubernetesOptions { heartbeat: Duration::from_secs(3_600), ..KubernetesOptions::default() });
    cluster.publish(status(true, &[Effect::NoSchedule, Effect::NoExecute]));
    node(stage, |node| has(node, TYPE, "True") && is_tainted(node, KEY, "NoExecute")).await;
    std::mem::forget(cluster);
}

#[tokio::test]
async fn conditions_of_a_killed_agent_become_unknown() {
    let stage = Stage::new().await.unwrap();
    abandoned(&stage).await;
    let mut sweeper = sweeper(&stage, RULES).await;
    let (first, swept) = round(&mut sweeper).await;
    counts_agents(&stage, first, 1);
    assert_eq!(swept.len(), 0, "the agent may be alive");
    tokio::time::sleep(OVER).await;
    let (second, swept) = round(&mut sweeper).await;
    assert_eq!((second.swept, second.failed), (1, 0), "{swept:?}");
    let after = stage.get(&stage.node_path()).await.unwrap().unwrap();
    assert!(!is_tainted(&after, KEY, "NoSchedule") && !is_tainted(&after, KEY, "NoExecute"));
    assert_eq!(
        (&condition(&after, TYPE)["status"], &condition(&after, TYPE)["reason"]),
        (&"Unknown".into(), &"MonitorAgentStopped".into())
    );
    let (third, _) = round(&mut sweeper).await;
    assert_eq!(third.swept, 0, "the node was swept twice");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn rounds_list_from_the_cache_unless_there_is_only_one() {
    const CACHE: &str = "resourceVersion=0&resourceVersionMatch=NotOlderThan";
    let stage = Stage::new().await.unwrap();
    silent(&stage).await;
    let once = Rules { by_clock: true, ..RULES };
    for (rules, from_cache) in [(RULES, true), (once, false)] {
        stage.server.log().clear();
        assert_eq!(round(&mut sweeper(&stage, rules).await).await.0.swept, 0);
        let lists = stage.server.log().of("GET", "/api/v1/nodes");
        // The agent lists its own node, too, without a limit.
        let queries: Vec<&str> =
            lists.iter().map(|list| list.query.as_str()).filter(|it| it.contains("limit=")).collect();
        assert!(queries.len() == 1 && queries[0].contains(CACHE) == from_cache, "{rules:?}: {queries:?}");
    }
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_node_that_does_not_exist_is_an_error() {
    let stage = Stage::new().await.unwrap();
    for rules in [Rules { by_clock: true, ..RULES }, Rules { remove: true, by_clock: true, ..RULES }] {
        let mut sweeper = Sweeper::connect(&access(&stage), rules, Some("no-such-node".to_owned())).await.unwrap();
        let error = sweeper.round(&mut |_| ()).await.unwrap_err().to_string();
        assert!(error.contains("there is neither a node no-such-node"), "{rules:?}: {error}");
    }
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_long_heartbeat_interval_of_the_agent_counts() {
    let stage = Stage::new().await.unwrap();
    silent(&stage).await;
    let mut sweeper = sweeper(&stage, RULES).await;
    counts_agents(&stage, round(&mut sweeper).await.0, 1);
    tokio::time::sleep(OVER).await;
    assert_eq!(round(&mut sweeper).await.0.swept, 0);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_living_agents_node_is_not_changed() {
    let stage = Stage::new().await.unwrap();
    let cluster =
        cluster(&stage, KubernetesOptions { heartbeat: Duration::from_secs(1), ..KubernetesOptions::default() });
    cluster.publish(status(true, &[Effect::NoSchedule]));
    node(&stage, |node| is_tainted(node, KEY, "NoSchedule")).await;
    let mut sweeper = sweeper(&stage, RULES).await;
    for _ in 0..5 {
        assert_eq!(round(&mut sweeper).await.0.swept, 0);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // The agent cannot confirm its conditions while it is cut off; then it returns.
    let cut = stage.server.faults().add(Fault::cut_before().of("PATCH").at("/nodes/"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    stage.server.faults().remove(cut);
    node(&stage, |node| has(node, TYPE, "True")).await;
    end(stage, cluster).await;
}

#[tokio::test]
async fn an_agent_that_returns_at_the_same_time_wins() {
    let stage = Stage::new().await.unwrap();
    abandoned(&stage).await;
    let mut sweeper = sweeper(&stage, RULES).await;
    round(&mut sweeper).await;
    tokio::time::sleep(OVER).await;
    // Another writer has changed the node between the list and the write.
    stage.server.faults().add(Fault::answer(409).of("PATCH").once());
    let (again, _) = round(&mut sweeper).await;
    assert_eq!((again.swept, again.failed), (0, 0));
    assert!(has(&stage.get(&stage.node_path()).await.unwrap().unwrap(), TYPE, "True"));
    assert_eq!(round(&mut sweeper).await.0.swept, 1, "after a conflict the next round sweeps");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_dry_run_reports_only() {
    let stage = Stage::new().await.unwrap();
    abandoned(&stage).await;
    tokio::time::sleep(OVER).await;
    let rules = Rules { dry_run: true, by_clock: true, ..RULES };
    let (_, swept) = round(&mut sweeper(&stage, rules).await).await;
    let words = swept[0].done.join("; ");
    assert!(words.contains(&format!("taint {KEY}:NoSchedule would be removed")), "{words}");
    assert!(words.contains(TYPE) && words.contains(" would become Unknown: "), "{words}");
    let after = stage.get(&stage.node_path()).await.unwrap().unwrap();
    assert!(has(&after, TYPE, "True") && is_tainted(&after, KEY, "NoExecute"));
    stage.end().await.unwrap();
}

#[tokio::test]
async fn remove_succeeds_in_spite_of_conflicts() {
    let stage = Stage::new().await.unwrap();
    let before = stage.get(&stage.node_path()).await.unwrap().unwrap();
    abandoned(&stage).await;
    stage.server.faults().add(Fault::answer(409).of("PATCH").at("/nodes/").times(2));
    let rules = Rules { remove: true, by_clock: true, ..RULES };
    let (done, swept) = round(&mut sweeper(&stage, rules).await).await;
    assert_eq!((done.swept, done.failed), (1, 0), "{swept:?}");
    let after = stage.get(&stage.node_path()).await.unwrap().unwrap();
    assert!(condition(&after, TYPE).is_null());
    let taints = |node: &Value| node.pointer("/spec/taints").and_then(Value::as_array).map_or(0, Vec::len);
    assert_eq!(taints(&after), taints(&before));
    assert_eq!(stage.get(&lease_path(&stage.node)).await.unwrap(), None);
    let (again, _) = round(&mut sweeper(&stage, rules).await).await;
    counts_agents(&stage, again, 0);
    assert_eq!(again.watched, 0);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_missing_write_permission_is_reported() {
    let stage = Stage::new().await.unwrap();
    abandoned(&stage).await;
    stage.server.faults().add(Fault::answer(403).of("PATCH"));
    tokio::time::sleep(OVER).await;
    let rules = Rules { by_clock: true, ..RULES };
    let (done, swept) = round(&mut sweeper(&stage, rules).await).await;
    assert_eq!((done.swept, done.failed), (0, 1));
    assert!(swept[0].failure.as_deref().is_some_and(|failure| failure.contains("not allowed")), "{swept:?}");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_wrong_namespace_sweeps_nothing() {
    let stage = Stage::new().await.unwrap();
    silent(&stage).await;
    let elsewhere = access(&stage).in_namespace(Some(stage.namespace.clone()));
    let rules = Rules { by_clock: true, ..RULES };
    if stage.skips("sweeping all nodes of a cluster") {
        return stage.end().await.unwrap();
    }
    let mut sweeper = Sweeper::connect(&elsewhere, rules, None).await.unwrap();
    let refused = sweeper.round(&mut |_| {}).await.unwrap_err().to_string();
    assert!(refused.contains("--namespace"), "{refused}");
    assert!(has(&stage.get(&stage.node_path()).await.unwrap().unwrap(), TYPE, "True"));
    stage.end().await.unwrap();
}

#[tokio::test]
async fn agents_are_gone_with_their_namespace() {
    let stage = Stage::new().await.unwrap();
    let nowhere = access(&stage).in_namespace(Some("no-such-namespace".to_owned()));
    let mut sweeper = Sweeper::connect(&nowhere, RULES, None).await.unwrap();
    let left = sweeper.agents_left().await.unwrap();
    // A real server has the agents of other tests.
    assert!(left.is_none() || stage.server.is_real(), "{left:?}");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn only_leases_of_agents_hold_up_the_removal() {
    let stage = Stage::new().await.unwrap();
    let in_stage = access(&stage).in_namespace(Some(stage.namespace.clone()));
    let mut sweeper = Sweeper::connect(&in_stage, RULES, None).await.unwrap();
    let forge = async |name: &str, holder: Value, namespace: &str| {
        let spec =
            json!({"holderIdentity": holder, "renewTime": "2099-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1});
        let labels = json!({"app.kubernetes.io/name": "node-pressure-monitor"});
        let lease = json!({"metadata": {"name": format!("{name}-{}", stage.node), "labels": labels}, "spec": spec});
        stage.create(&format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"), lease).await.unwrap();
    };
    forge("elsewhere", json!(format!("elsewhere-{}", stage.node)), "default").await;
    forge("another", json!("x"), &stage.namespace).await;
    forge("unheld", Value::Null, &stage.namespace).await;
    assert_eq!(sweeper.agents_left().await.unwrap(), None);
    // One that looks like an agent's counts for as long as it promises, whatever time it names.
    forge("agent", json!(format!("agent-{}", stage.node)), &stage.namespace).await;
    let left = listed(async || sweeper.agents_left().await.unwrap()).await;
    assert!(left.is_some_and(|left| left.ends_with(": 1")), "the agent may live");
    tokio::time::sleep(OVER).await;
    assert_eq!(sweeper.agents_left().await.unwrap(), None);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn the_fleet_is_read_from_the_leases() {
    let stage = Stage::new().await.unwrap();
    silent(&stage).await;
    let now = jiff::Timestamp::now();
    let listing = listed(async || {
        let nodes = fleet::list(&access(&stage), now).await.unwrap();
        nodes.iter().any(|node| node.node == stage.node).then_some(nodes)
    });
    let nodes = listing.await.expect("the list lacks the node");
    let of_stage: Vec<_> = nodes.iter().filter(|node| node.node == stage.node).collect();
    assert_eq!(of_stage.len(), 1, "{nodes:?}");
    assert!(!of_stage[0].is_silent && of_stage[0].renewed.is_some());
    let later = now + jiff::SignedDuration::from_hours(4);
    assert!(fleet::list(&access(&stage), later).await.unwrap().iter().all(|node| node.is_silent));
    stage.end().await.unwrap();
}
