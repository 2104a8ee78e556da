//! Conditions and taints.

use std::time::{Duration, Instant};

use node_pressure_apiserver::Fault;
use node_pressure_apiserver::stage::{Stage, condition, lease_path};
use node_pressure_monitor::cluster::node_digest::{Counts, DayDigest};
use node_pressure_monitor::cluster::status::Effect;
use node_pressure_monitor::cluster::{NodeDigest, NodeStatus, View};
use node_pressure_monitor::config::kubernetes_options::Authority;
use node_pressure_monitor::config::{KubernetesOptions, Mode};
use node_pressure_monitor::eviction::decider::ProtectedLeak;
use node_pressure_monitor::report::ConfigState;
use node_pressure_monitor::report::node_status::{NodeStatusSink, StatusFacts};
use node_pressure_monitor::units::Monotonic;
use serde_json::{Value, json};

use crate::reference::NATIVE_READS;
use crate::support::{KEY, SOON, TYPE, cluster, degradation, end, has, is_tainted, lease, node, ready, status, taints};

fn with_heartbeat(heartbeat: Duration) -> KubernetesOptions {
    KubernetesOptions { heartbeat, ..KubernetesOptions::default() }
}

pub fn status_path(stage: &Stage) -> String {
    format!("{}/status", stage.node_path())
}

#[tokio::test]
async fn a_condition_is_written_within_100_ms() {
    let stage = Stage::new().await.unwrap();
    let cluster = cluster(&stage, KubernetesOptions::default());
    ready(&stage).await;
    let path = status_path(&stage);
    for (holds, word) in [(false, "False"), (true, "True"), (false, "False")] {
        stage.server.log().clear();
        let changed = Instant::now();
        cluster.publish(status(holds, &[]));
        let written = stage.server.log().wait_for(SOON, |request| request.is("PATCH", &path)).await;
        let took = written.unwrap().at.duration_since(changed);
        // The promise holds if other tests leave a processor free.
        let limit = Duration::from_millis(100).mul_f64(NATIVE_READS.slowness().unwrap().patience());
        assert!(took < limit, "{took:?}, {limit:?} are allowed");
        node(&stage, |node| has(node, TYPE, word)).await;
    }
    assert_eq!(
        stage.server.log().of("PATCH", &stage.node_path()).len(),
        0,
        "no taint is configured, so none is written"
    );
    end(stage, cluster).await;
}

#[tokio::test]
async fn heartbeats_do_not_touch_the_node() {
    let stage = Stage::new().await.unwrap();
    let cluster = cluster(&stage, with_heartbeat(Duration::from_secs(1)));
    let day = DayDigest { all: Counts { evictions: 3, oom_kills: 1 }, ..DayDigest::default() };
    cluster.publish_digest(NodeDigest { mode: "enforce", day, ..NodeDigest::default() });
    cluster.publish(status(true, &[]));
    node(&stage, |node| has(node, TYPE, "True")).await;
    let renewed = |lease: &Value| lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned();
    let counts = |lease: &Value| lease["metadata"]["annotations"]["node-pressure-monitor/evictions"] == "3";
    let first = lease(&stage, |lease| counts(lease)).await;
    assert_eq!(first["spec"]["leaseDurationSeconds"], 3);
    assert_eq!(first["metadata"]["annotations"]["node-pressure-monitor/mode"], "enforce");
    let second = lease(&stage, |lease| renewed(lease) > renewed(&first)).await;
    let owner = &second["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Node"), &json!(stage.node)));
    lease(&stage, |lease| renewed(lease) > renewed(&second)).await;
    let log = stage.server.log();
    assert_eq!(log.of("PATCH", &stage.node_path()).len(), 0);
    assert_eq!(log.of("PATCH", &status_path(&stage)).len(), 1, "the condition has not changed");
    assert_eq!(log.of("GET", &stage.node_path()).len(), 0, "the agent knows its list and the answer of its PATCH");
    let path = lease_path(&stage.node);
    cluster.stop(SOON);
    assert!(stage.get(&path).await.unwrap().is_none(), "an agent that stops removes its Lease");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_protected_leak_is_a_condition_of_the_node() {
    const LEAK: &str = "MonitorProtectedMemoryLeak";
    let stage = Stage::new().await.unwrap();
    others(&stage).await;
    // The agent composes the status as it does in its loop.
    let (mut sink, options) = (NodeStatusSink::default(), KubernetesOptions::default());
    let configuration = ConfigState::started(None, std::time::SystemTime::now());
    let mut status = |leak: Option<ProtectedLeak>| {
        let facts = StatusFacts {
            mode: Mode::Enforce,
            options: &options,
            conditions: [Some(Some(true)), None, None],
            configuration: &configuration,
        };
        sink.observe_leak(leak, |leak| format!("memory falls by {} B/s", leak.fall));
        sink.update(facts, std::iter::empty(), View::default, Monotonic(0)).0.unwrap()
    };
    let cluster = cluster(&stage, KubernetesOptions::default());
    for (leak, word, reason, message) in [
        (None, "False", "MonitorNoProtectedLeak", "no leak of memory is known that cannot be evicted"),
        (Some(ProtectedLeak { id: None, fall: 7.0 }), "True", "MonitorLeakNotEvictable", "memory falls by 7 B/s"),
        (None, "False", "MonitorNoProtectedLeak", "no leak of memory is known that cannot be evicted"),
    ] {
        cluster.publish(status(leak));
        let seen = node(&stage, |node| has(node, LEAK, word)).await;
        let written = condition(&seen, LEAK);
        assert_eq!((&written["reason"], &written["message"]), (&json!(reason), &json!(message)));
        assert!(has(&seen, "KernelDeadlock", "False"), "other conditions stay");
    }
    cluster.reload(KubernetesOptions { conditions: Authority::Off, ..KubernetesOptions::default() });
    node(&stage, |node| condition(node, LEAK).is_null()).await;
    end(stage, cluster).await;
}

/// Sets a kubelet's condition, another program's, and an operator's taint.
pub async fn others(stage: &Stage) {
    let conditions = json!({"status": {"conditions": [
        {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory", "message": "m",
         "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "KernelDeadlock", "status": "False", "reason": "KernelHasNoDeadlock", "message": "m"},
    ]}});
    stage.patch(&status_path(stage), conditions).await.unwrap();
    let node = stage.get(&stage.node_path()).await.unwrap().unwrap();
    let mut taints = node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
    taints.push(json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}));
    stage.patch(&stage.node_path(), json!({"spec": {"taints": taints}})).await.unwrap();
}

#[tokio::test]
async fn conditions_and_taints_of_other_writers_stay() {
    let stage = Stage::new().await.unwrap();
    others(&stage).await;
    let before = stage.get(&stage.node_path()).await.unwrap().unwrap();
    let cluster = cluster(&stage, KubernetesOptions::default());
    cluster.publish(status(true, &[Effect::NoSchedule]));
    let during = node(&stage, |node| has(node, TYPE, "True") && is_tainted(node, KEY, "NoSchedule")).await;
    for kind in ["MemoryPressure", "KernelDeadlock"] {
        assert_eq!(condition(&during, kind), condition(&before, kind));
    }
    assert_eq!(taints(&during).len(), taints(&before).len() + 1);
    cluster.publish(status(false, &[]));
    node(&stage, |node| !is_tainted(node, KEY, "NoSchedule")).await;
    cluster.publish(status(true, &[Effect::NoSchedule, Effect::NoExecute]));
    node(&stage, |node| is_tainted(node, KEY, "NoExecute")).await;
    let begun = Instant::now();
    cluster.stop(SOON);
    // Three requests finish well within the agent's time limit, even on a busy machine.
    let took = begun.elapsed();
    assert!(took < SOON / 4, "{took:?}");
    let after = stage.get(&stage.node_path()).await.unwrap().unwrap();
    assert_eq!(after.pointer("/spec/taints"), before.pointer("/spec/taints"));
    assert_eq!(after.pointer("/status/conditions"), before.pointer("/status/conditions"));
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_missing_permission_is_reported_once_and_retried() {
    let stage = Stage::new().await.unwrap();
    let fault = stage.server.faults().add(Fault::answer(403).of("PATCH").ending("/status"));
    let mut cluster = cluster(&stage, KubernetesOptions::default());
    cluster.publish(status(true, &[]));
    let (capability, reason) = degradation(&mut cluster).await;
    assert_eq!(capability, "node conditions");
    assert!(reason.is_some_and(|reason| reason.contains("not allowed") && reason.contains("grant patch on nodes")));
    stage.server.faults().remove(fault);
    assert_eq!(degradation(&mut cluster).await, ("node conditions", None), "reported once, and once when restored");
    node(&stage, |node| has(node, TYPE, "True")).await;
    end(stage, cluster).await;
}

#[tokio::test]
async fn conditions_are_written_without_permission_for_taints() {
    let stage = Stage::new().await.unwrap();
    stage.server.faults().add(Fault::answer(403).of("PATCH").ending(stage.node_path()));
    let mut cluster = cluster(&stage, KubernetesOptions::default());
    cluster.publish(status(true, &[Effect::NoSchedule]));
    assert_eq!(degradation(&mut cluster).await.0, "node taints");
    cluster.publish(status(false, &[Effect::NoSchedule]));
    node(&stage, |node| has(node, TYPE, "False")).await;
    stage.server.faults().clear();
    end(stage, cluster).await;
}

async fn is_written_in_spite_of(fault: Fault) {
    is_written_on(Stage::new().await.unwrap(), fault).await;
}

async fn is_written_on(stage: Stage, fault: Fault) {
    let fault = stage.server.faults().add(fault);
    let cluster = cluster(&stage, KubernetesOptions::default());
    cluster.publish(status(true, &[Effect::NoSchedule]));
    node(&stage, |node| has(node, TYPE, "True") && is_tainted(node, KEY, "NoSchedule")).await;
    assert!(stage.server.faults().struck(fault) > 0);
    let ours = |node: &Value| taints(node).iter().filter(|(key, _)| key == KEY).count();
    assert_eq!(ours(&stage.get(&stage.node_path()).await.unwrap().unwrap()), 1);
    stage.server.faults().clear();
    end(stage, cluster).await;
}

#[tokio::test]
async fn cut_before_the_condition_is_carried_out() {
    is_written_in_spite_of(Fault::cut_before().of("PATCH").ending("/status").times(2)).await;
}

#[tokio::test]
async fn cut_after_the_condition_was_carried_out() {
    is_written_in_spite_of(Fault::cut_after().of("PATCH").ending("/status").times(2)).await;
}

#[tokio::test]
async fn cut_after_the_taint_was_carried_out() {
    is_written_in_spite_of(Fault::cut_after().of("PATCH").at("/nodes/").after(1).once()).await;
}

#[tokio::test]
async fn cut_in_the_middle_of_the_answer() {
    is_written_in_spite_of(Fault::cut_in_body(40).of("PATCH").times(2)).await;
}

#[tokio::test]
async fn the_node_cannot_be_read_at_first() {
    let stage = Stage::new().await.unwrap();
    // The reflector may not list the node, so that it is read.
    stage.server.faults().add(Fault::answer(403).of("GET").at("/nodes?"));
    is_written_on(stage, Fault::answer(500).of("GET").at("/nodes/").times(3)).await;
}

#[tokio::test]
async fn the_server_is_overloaded() {
    is_written_in_spite_of(Fault::answer(429).of("PATCH").times(1)).await;
}

#[tokio::test]
async fn the_server_never_answers_one_request() {
    is_written_in_spite_of(Fault::new(node_pressure_apiserver::What::NeverAnswer).of("PATCH").ending("/status").once())
        .await;
}

#[tokio::test]
async fn answers_have_unknown_fields() {
    let stage = Stage::new().await.unwrap();
    stage.server.faults().set_unknown_fields(true);
    others(&stage).await;
    let cluster = cluster(&stage, KubernetesOptions::default());
    cluster.publish(status(true, &[Effect::NoSchedule]));
    node(&stage, |node| has(node, TYPE, "True") && is_tainted(node, KEY, "NoSchedule")).await;
    stage.server.faults().set_unknown_fields(false);
    end(stage, cluster).await;
}

#[tokio::test]
async fn a_slow_server_gets_only_the_latest_status() {
    let stage = Stage::new().await.unwrap();
    let cluster = cluster(&stage, KubernetesOptions::default());
    ready(&stage).await;
    let delay = Duration::from_millis(400);
    stage.server.faults().add(Fault::delay(delay).of("PATCH"));
    let begun = Instant::now();
    for turn in 0..20 {
        cluster.publish(status(turn % 2 == 0, &[]));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = begun.elapsed();
    cluster.publish(status(true, &[Effect::NoSchedule]));
    node(&stage, |node| has(node, TYPE, "True") && is_tainted(node, KEY, "NoSchedule")).await;
    let writes = stage.server.log().of("PATCH", "/status").len();
    assert!(writes as u128 <= 3 + took.as_millis() / delay.as_millis(), "{writes} for twenty changes in {took:?}");
    stage.server.faults().clear();
    end(stage, cluster).await;
}

#[tokio::test]
async fn a_flickering_condition_is_not_written_each_time() {
    let stage = Stage::new().await.unwrap();
    let cluster = cluster(&stage, KubernetesOptions::default());
    ready(&stage).await;
    let begun = Instant::now();
    for turn in 0..200 {
        cluster.publish(status(turn % 2 == 0, &[]));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    cluster.publish(status(true, &[]));
    node(&stage, |node| has(node, TYPE, "True")).await;
    let (writes, took) = (stage.server.log().of("PATCH", "/status").len(), begun.elapsed());
    assert!(writes as u64 <= 16 + took.as_secs(), "{writes} for two hundred changes in {took:?}");
    end(stage, cluster).await;
}

#[tokio::test]
async fn the_server_restarts_meanwhile() {
    let stage = Stage::new().await.unwrap();
    let cluster = cluster(&stage, KubernetesOptions::default());
    cluster.publish(status(false, &[]));
    node(&stage, |node| has(node, TYPE, "False")).await;
    stage.server.close().await;
    cluster.publish(status(true, &[Effect::NoSchedule]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.server.open().await.unwrap();
    node(&stage, |node| has(node, TYPE, "True") && is_tainted(node, KEY, "NoSchedule")).await;
    end(stage, cluster).await;
}

#[tokio::test]
async fn another_writer_removes_our_condition() {
    let stage = Stage::new().await.unwrap();
    let cluster = cluster(&stage, with_heartbeat(Duration::from_secs(1)));
    cluster.publish(status(true, &[]));
    node(&stage, |node| has(node, TYPE, "True")).await;
    let removal = json!({"status": {"conditions": [{"$patch": "delete", "type": TYPE}]}});
    stage.patch(&status_path(&stage), removal).await.unwrap();
    let again = node(&stage, |node| has(node, TYPE, "True")).await;
    assert_eq!(condition(&again, TYPE)["reason"], "NodeHasInsufficientMemory");
    end(stage, cluster).await;
}

#[tokio::test]
async fn observe_mode_sets_no_taint_and_no_standard_name() {
    let stage = Stage::new().await.unwrap();
    others(&stage).await;
    let options = KubernetesOptions { conditions: Authority::Standard, ..KubernetesOptions::default() };
    let cluster = cluster(&stage, options);
    cluster.publish(NodeStatus { may_act: false, ..status(true, &[Effect::NoSchedule]) });
    let seen = node(&stage, |node| has(node, TYPE, "True")).await;
    assert_eq!(condition(&seen, "MemoryPressure")["reason"], "KubeletHasSufficientMemory");
    // The agent enforces from here on.
    cluster.publish(status(true, &[Effect::NoSchedule]));
    let standard = "node.kubernetes.io/memory-pressure";
    let seen =
        node(&stage, |node| has(node, "MemoryPressure", "True") && is_tainted(node, standard, "NoSchedule")).await;
    assert_eq!(condition(&seen, TYPE), &Value::Null, "conditions under other names are removed");
    end(stage, cluster).await;
}

#[tokio::test]
async fn conditions_under_old_options_are_removed() {
    let stage = Stage::new().await.unwrap();
    let cluster = cluster(&stage, KubernetesOptions::default());
    cluster.publish(status(true, &[Effect::NoSchedule]));
    node(&stage, |node| is_tainted(node, KEY, "NoSchedule")).await;
    cluster.reload(KubernetesOptions { conditions: Authority::Off, ..KubernetesOptions::default() });
    node(&stage, |node| condition(node, TYPE).is_null() && !is_tainted(node, KEY, "NoSchedule")).await;
    end(stage, cluster).await;
}
