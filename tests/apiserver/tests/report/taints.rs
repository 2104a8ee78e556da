//! Taints that are written beside those of other writers.

use std::time::Duration;

use node_pressure_apiserver::stage::Stage;
use node_pressure_apiserver::{Fault, Record};
use node_pressure_monitor::cluster::status::Effect;
use node_pressure_monitor::config::KubernetesOptions;
use serde_json::{Value, json};

use crate::status::{others, status_path};
use crate::support::{KEY, SOON, TYPE, cluster, end, has, is_tainted, node, ready, status};

/// The begin of the agent's user agent.
const AGENT: &str = "node-pressure-monitor/";

#[tokio::test]
async fn a_taint_that_takes_long_comes_all_the_same() {
    let stage = Stage::new().await.unwrap();
    let cluster = cluster(&stage, KubernetesOptions::default());
    cluster.publish(status(false, &[]));
    node(&stage, |node| has(node, TYPE, "False")).await;
    let late = Fault::delay(Duration::from_millis(2_500)).of("PATCH").ending(stage.node_path()).once();
    stage.server.faults().add(late);
    stage.server.log().clear();
    cluster.publish(status(true, &[Effect::NoSchedule]));
    let conditions = node(&stage, |node| has(node, TYPE, "True")).await;
    assert!(!is_tainted(&conditions, KEY, "NoSchedule"), "the condition did not wait for the taint");
    let log = stage.server.log();
    let [taints, status] = [stage.node_path(), status_path(&stage)].map(|path| log.of("PATCH", &path));
    assert!(taints[0].at < status[0].at, "the taint is asked for first: {taints:?}, {status:?}");
    node(&stage, |node| is_tainted(node, KEY, "NoSchedule")).await;
    end(stage, cluster).await;
}

#[tokio::test]
async fn another_writer_taints_the_node_at_the_same_time() {
    let stage = Stage::new().await.unwrap();
    let cluster = cluster(&stage, KubernetesOptions::default());
    ready(&stage).await;
    // The agent's write is delayed, and refused because the list of taints has changed. The agent reads the node again, and both taints stay.
    let late = Fault::delay(Duration::from_secs(3)).of("PATCH").ending(stage.node_path()).once();
    stage.server.faults().add(late);
    cluster.publish(status(true, &[Effect::NoSchedule]));
    let path = stage.node_path();
    stage.server.log().wait_for(Duration::from_secs(5), |request| request.is("PATCH", &path)).await.unwrap();
    others(&stage).await;
    let both = |node: &Value| is_tainted(node, KEY, "NoSchedule") && is_tainted(node, "dedicated", "NoSchedule");
    node(&stage, both).await;
    let answers: Vec<Option<u16>> =
        stage.server.log().of("PATCH", &path).iter().map(|request| request.status).collect();
    assert_eq!(answers, [Some(422), Some(200)]);
    end(stage, cluster).await;
}

#[tokio::test]
async fn a_changed_status_is_no_conflict_for_taints() {
    let stage = Stage::new().await.unwrap();
    let cluster = cluster(&stage, KubernetesOptions::default());
    ready(&stage).await;
    cluster.publish(status(true, &[]));
    node(&stage, |node| has(node, TYPE, "True")).await;
    let path = stage.node_path();
    stage.server.faults().add(Fault::delay(Duration::from_millis(700)).of("PATCH").ending(&path).times(2));
    for (effects, is_there) in [(&[Effect::NoSchedule][..], true), (&[], false)] {
        stage.server.log().clear();
        cluster.publish(status(true, effects));
        stage.server.log().wait_for(SOON, |request| request.is("PATCH", &path)).await.unwrap();
        let condition = json!({"type": "Ready", "status": "True", "reason": is_there.to_string(), "message": "m"});
        stage.patch(&status_path(&stage), json!({"status": {"conditions": [condition]}})).await.unwrap();
        node(&stage, |node| is_tainted(node, KEY, "NoSchedule") == is_there).await;
        // The object changes before the answer is noted.
        let is_answered = |request: &Record| request.is("PATCH", &path) && request.carried_out == Some(200);
        stage.server.log().wait_for(SOON, is_answered).await.unwrap();
        assert_eq!(stage.server.log().of("PATCH", &path).len(), 1);
    }
    end(stage, cluster).await;
}

#[tokio::test]
async fn changes_by_others_cause_no_request() {
    let stage = Stage::new().await.unwrap();
    let cluster = cluster(&stage, KubernetesOptions::default());
    ready(&stage).await;
    cluster.publish(status(true, &[Effect::NoSchedule]));
    node(&stage, |node| has(node, TYPE, "True") && is_tainted(node, KEY, "NoSchedule")).await;
    stage.server.log().clear();
    others(&stage).await;
    // The agent looks at the change within two seconds.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let requests = stage.server.log().all();
    let of_node = |request: &&Record| request.path.contains("/nodes/") && request.user_agent.starts_with(AGENT);
    assert_eq!(requests.iter().filter(of_node).count(), 0, "{requests:?}");
    end(stage, cluster).await;
}

#[tokio::test]
async fn taints_are_written_where_a_json_patch_is_refused() {
    let stage = Stage::new().await.unwrap();
    others(&stage).await;
    let cluster = cluster(&stage, KubernetesOptions::default());
    ready(&stage).await;
    let refused = stage.server.faults().add(Fault::answer(422).of("PATCH").ending(stage.node_path()).times(2));
    cluster.publish(status(true, &[Effect::NoSchedule]));
    let both = |node: &Value| is_tainted(node, KEY, "NoSchedule") && is_tainted(node, "dedicated", "NoSchedule");
    node(&stage, both).await;
    assert_eq!(stage.server.faults().struck(refused), 2);
    let last = stage.server.log().of("PATCH", &stage.node_path()).pop().unwrap();
    assert!(last.body["metadata"]["resourceVersion"].is_string(), "the whole node is compared: {last:?}");
    end(stage, cluster).await;
}
