//! Runs the agent in observe mode on nodes that are made of files: a `/proc`, a cgroup tree and a list of pods, changed while it runs.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::time::Duration;

use serde_json::json;

#[path = "support/agent.rs"]
#[expect(dead_code, reason = "other tests ask the agent's pages")]
mod agent;
#[path = "support/node_of_files.rs"]
mod node_of_files;

use node_of_files::{GIB, MIB, Node, Pod, figures, over};

/// A leaker uses up what all pods together may use, while the node has gigabytes.
fn at_the_limit_of_all_pods() -> Node {
    let mut pods = vec![Pod::new("leaker", "Burstable", GIB, 512 * MIB)];
    pods.extend(["b0", "b1", "b2"].map(|name| Pod::new(name, "BestEffort", 300 * MIB, 0)));
    let limit = 12 * GIB;
    let others = limit - 2 * GIB - pods.iter().map(|pod| pod.anon).sum::<i64>();
    Node::new(pods, 6 * GIB, Some((limit, others)))
}

#[test]
fn the_limit_of_all_pods_evicts_by_default() {
    let mut node = at_the_limit_of_all_pods();
    let agent = node.start("200Mi", "");
    let eviction = node.first_eviction(&agent, 0, 600 * MIB, |node| node.left_for_pods() > 10 * MIB);
    let eviction = eviction.unwrap_or_else(|| panic!("{}", agent.text("err")));
    assert_eq!(
        (&eviction["signal"], &eviction["pod"]),
        (&json!("allocatableMemory.available"), &json!("ns/leaker")),
        "{eviction}"
    );
    assert!(
        node.available > 4 * GIB && node.left_for_pods() > 100 * MIB,
        "{} {}",
        node.available,
        node.left_for_pods()
    );
}

#[test]
fn the_limit_of_all_pods_evicts_nothing_where_it_is_switched_off() {
    let mut node = at_the_limit_of_all_pods();
    let agent = node.start("200Mi", "enforceNodeAllocatable: []\n");
    assert_eq!(node.first_eviction(&agent, 0, 600 * MIB, |node| node.left_for_pods() > 10 * MIB), None);
}

/// The kubelet lowers the limit while the agent runs.
#[test]
fn a_limit_of_all_pods_that_appears_is_followed() {
    let mut node = at_the_limit_of_all_pods();
    let limit = node.limit.take();
    over(&node.path("cg/kubepods.slice/memory.max"), "max\n");
    figures(&node.path("cg/kubepods.slice"), 10 * GIB);
    let agent = node.start("200Mi", "");
    std::thread::sleep(Duration::from_millis(500));
    node.limit = limit;
    node.update();
    std::thread::sleep(Duration::from_millis(1500));
    let eviction = node.first_eviction(&agent, 0, 600 * MIB, |node| node.left_for_pods() > 10 * MIB);
    assert_eq!(eviction.map(|it| it["pod"].clone()), Some(json!("ns/leaker")), "{}", agent.text("err"));
}

/// A resize that the kubelet never accepts asks for 10Ti.
#[test]
fn an_infeasible_resize_protects_no_hog() {
    let hog = Pod { allocated: Some(64 * MIB), ..Pod::new("hog", "Burstable", 6 * GIB, 10 << 40) };
    let mut pods = vec![hog];
    pods.extend(["i0", "i1", "i2"].map(|name| Pod::new(name, "Burstable", 500 * MIB, 400 * MIB)));
    let mut node = Node::new(pods, 900 * MIB, None);
    let agent = node.start("500Mi", "");
    let eviction = node.first_eviction(&agent, 0, 100 * MIB, |node| node.available > 450 * MIB);
    assert_eq!(eviction.map(|it| it["pod"].clone()), Some(json!("ns/hog")), "{}", agent.text("err"));
}
