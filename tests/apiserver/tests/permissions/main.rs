//! The roles in config/kubernetes: the agent, the sweeper and the removal run with exactly these roles, make every kind of request, get no 403,
//! and use every granted permission.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod own_node;
mod sweeper_policy;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use node_pressure_apiserver::Fault;
use node_pressure_apiserver::resource::Resource;
use node_pressure_apiserver::route::{Query, Route, Target};
use node_pressure_apiserver::stage::{Stage, lease_path, uid};
use node_pressure_manifests::{documents, kustomize, root};
use node_pressure_monitor::cluster::events::InvolvedObject;
use node_pressure_monitor::cluster::permissions::{Component, PERMISSIONS, Permission, When};
use node_pressure_monitor::cluster::status::{Effect, WantedCondition, WantedTaint};
use node_pressure_monitor::cluster::sweeper::{Rules, Sweeper};
use node_pressure_monitor::cluster::{Access, Cluster, Event, EventRequest, Intent, NodeStatus, own_permissions};
use node_pressure_monitor::config::kubernetes_options::EvictionMethod;
use node_pressure_monitor::config::{KubernetesOptions, Mode, MonitorConfig};
use serde_json::{Value, json};

/// A time limit longer than any step takes.
const SOON: Duration = Duration::from_secs(60);

/// A service account with the role that the manifests give it.
struct Account {
    component: Component,
    /// Of the permissions that the role grants.
    when: &'static [When],
    kubeconfig: PathBuf,
}

const OBSERVING: &[When] = &[When::Always];
const ENFORCING: &[When] = &[When::Always, When::Enforcing];

impl Account {
    async fn of(stage: &Stage, component: Component, when: &'static [When]) -> Self {
        let name = component.service_account();
        let directory = match (component, when.contains(&When::Enforcing)) {
            (Component::Removal, _) => "removal",
            (_, true) => "first",
            (_, false) => "base",
        };
        let objects = kustomize::build(&root().join("config/kubernetes").join(directory)).unwrap();
        let rules = |kind: &str| {
            let is_role = |object: &&Value| documents::name(object) == format!("{kind} {name}");
            objects.iter().find(is_role).map(|role| role["rules"].clone())
        };
        let token = stage.account(name).await.unwrap();
        stage.grant(name, rules("ClusterRole").unwrap()).await.unwrap();
        if let Some(rules) = rules("Role") {
            stage.grant_among_agents(name, rules).await.unwrap();
        }
        Self { component, when, kubeconfig: stage.kubeconfig_file_of(name, &token).unwrap() }
    }

    fn access(&self, stage: &Stage) -> Access {
        Access::by_kubeconfig(self.kubeconfig.clone(), &stage.node)
    }

    /// Asserts that the account requested exactly what its role grants, and that no request was forbidden.
    async fn judge(self, stage: Stage) {
        let mut asked = BTreeSet::new();
        for request in stage.server.log().all() {
            assert_ne!(request.status, Some(403), "{request:?}");
            let Route::Objects(target) = Route::of(&request.path) else { panic!("{request:?}") };
            asked.insert(wish(&request.method, &request.query, &target));
        }
        let of_component =
            PERMISSIONS.iter().filter(|it| it.component == self.component && self.when.contains(&it.when));
        let granted: BTreeSet<_> = of_component.map(|it| (it.verb, it.group, it.resource.to_owned())).collect();
        assert_eq!(asked, granted, "left: permissions that {:?} used; right: granted permissions", self.component);
        stage.end().await.unwrap();
    }
}

/// Returns a request as verb, group and resource of RBAC.
fn wish(method: &str, query: &str, target: &Target) -> (&'static str, &'static str, String) {
    let verb = target.verb(method, &Query::of(Some(query))).unwrap_or_else(|| panic!("what is {method} {target:?}?"));
    let Resource { group, plural, .. } = target.resource;
    let part = if target.part.is_empty() { String::new() } else { format!("/{}", target.part) };
    (verb, *group, format!("{plural}{part}"))
}

/// What `doctor` finds for an agent with these roles and this mode: what it lacks now, and what it lacks to enforce.
async fn missing(stage: &Stage, account: &Account, mode: Mode) -> [Vec<String>; 2] {
    let config = MonitorConfig { mode, ..MonitorConfig::default() };
    let missing = own_permissions::missing(&account.access(stage), &config).await.unwrap();
    let of = |it: &&Permission| format!("{} {}", it.verb, it.resource);
    [missing.now.iter().map(of).collect(), missing.to_enforce.iter().map(of).collect()]
}

#[tokio::test]
async fn doctor_names_the_right_that_a_step_lacks_before_it_is_needed() {
    let to_evict: &[&str] = &["get pods", "patch pods/status", "create pods/eviction", "patch nodes"];
    let none: &[&str] = &[];
    for (roles, mode, expected) in [
        (OBSERVING, Mode::Observe, [none, to_evict]),
        (OBSERVING, Mode::Enforce, [to_evict, none]),
        (ENFORCING, Mode::Observe, [none, none]),
        (ENFORCING, Mode::Enforce, [none, none]),
    ] {
        let stage = Stage::new().await.unwrap();
        let account = Account::of(&stage, Component::Agent, roles).await;
        let begun = Instant::now();
        // A real server's authorizer may take a moment.
        loop {
            let found = missing(&stage, &account, mode).await;
            if found == expected {
                break;
            }
            assert!(begun.elapsed() < SOON, "{mode:?} with {roles:?}: {found:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        stage.end().await.unwrap();
    }
}

fn under_pressure() -> NodeStatus {
    let kind = || "MemoryPressure".to_owned();
    NodeStatus {
        conditions: vec![WantedCondition {
            kind: kind(),
            status: Some(true),
            reason: "NodeHasInsufficientMemory".to_owned(),
            message: "words".to_owned(),
        }],
        taints: vec![WantedTaint { kind: kind(), effect: Effect::NoSchedule }],
        may_act: true,
    }
}

fn is_tainted(node: Option<&Value>) -> bool {
    let taints = node.and_then(|node| node["spec"]["taints"].as_array()).into_iter().flatten();
    taints.into_iter().any(|taint| taint["key"] == "node-pressure-monitor/memory-pressure")
}

async fn intent(stage: &Stage, name: &str, metadata: Value, method: EvictionMethod) -> Intent {
    let pod = stage.running_pod(name, metadata, Value::Null).await.unwrap();
    Intent {
        uid: uid(&pod),
        namespace: stage.namespace.clone(),
        name: name.to_owned(),
        method,
        is_certain: method != EvictionMethod::Evict,
        grace_seconds: 1,
        cause: "memory.available".to_owned(),
        message: "words".to_owned(),
        annotations: Vec::new(),
        wants_mark: true,
        wants_event: true,
        frees_disk: false,
        condition: None,
        decided_at: jiff::Timestamp::now(),
        decided_mono_ns: node_pressure_monitor::units::Monotonic::now().0,
    }
}

/// Waits until an eviction at the API server is finished.
async fn settled(cluster: &mut Cluster, uid: &str) {
    let done = async {
        loop {
            if let Event::Eviction(settled) = cluster.event().await
                && settled.uid == uid
            {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, done).await.unwrap();
}

async fn evict(cluster: &mut Cluster, intent: &Intent) {
    cluster.ledger().begin(intent).unwrap();
    cluster.evict(intent.clone()).unwrap();
    settled(cluster, &intent.uid).await;
}

/// Lets an agent send events, and waits until it watches.
async fn report_and_watch(stage: &Stage, cluster: &Cluster) {
    let happening = EventRequest {
        object: InvolvedObject::Node,
        is_warning: true,
        reason: "SystemOOM".to_owned(),
        message: "words".to_owned(),
    };
    for _ in 0..3 {
        cluster.send_event(happening.clone()).unwrap();
    }
    let log = stage.server.log();
    log.wait_for(SOON, |request| request.is("POST", "/namespaces/default/events")).await.unwrap();
    let is_watch = |plural: &'static str| {
        move |request: &node_pressure_apiserver::Record| request.is("GET", plural) && request.is_watch()
    };
    log.wait_for(SOON, is_watch("/pods")).await.unwrap();
    log.wait_for(SOON, is_watch("/nodes")).await.unwrap();
}

/// Lets an agent make every kind of request, and stops it.
async fn make_every_request(stage: &Stage, access: Access) {
    let mut cluster = Cluster::start_with(KubernetesOptions::default(), Some(access)).unwrap();
    let annotated = json!({"annotations": {"there": "before"}});
    for (name, metadata, method) in [
        ("failed", Value::Null, EvictionMethod::Fail),
        ("annotated", annotated, EvictionMethod::Fail),
        ("deleted", Value::Null, EvictionMethod::Delete),
        ("evicted", Value::Null, EvictionMethod::Evict),
    ] {
        // After a conflict the agent reads the pod, to see whether it is the same one.
        stage.server.faults().add(Fault::answer(409).of("DELETE").at("/pods/deleted").once());
        evict(&mut cluster, &intent(stage, name, metadata, method).await).await;
    }
    cluster.publish(under_pressure());
    stage.until(&stage.node_path(), SOON, is_tainted).await.unwrap();
    report_and_watch(stage, &cluster).await;
    // The agent counts repeated events and writes the count when it stops. It also withdraws conditions and taints.
    cluster.stop(SOON);
}

#[tokio::test]
async fn an_enforcing_agent_uses_exactly_its_permissions() {
    let stage = Stage::new().await.unwrap();
    let account = Account::of(&stage, Component::Agent, ENFORCING).await;
    make_every_request(&stage, account.access(&stage)).await;
    account.judge(stage).await;
}

#[tokio::test]
async fn an_observing_agent_uses_exactly_its_permissions() {
    let stage = Stage::new().await.unwrap();
    let account = Account::of(&stage, Component::Agent, OBSERVING).await;
    let cluster = Cluster::start_with(KubernetesOptions::default(), Some(account.access(&stage))).unwrap();
    cluster.publish(NodeStatus { may_act: false, ..under_pressure() });
    report_and_watch(&stage, &cluster).await;
    let has_condition = |node: Option<&Value>| node.is_some_and(|it| it.to_string().contains("MonitorMemoryPressure"));
    stage.until(&stage.node_path(), SOON, has_condition).await.unwrap();
    cluster.stop(SOON);
    account.judge(stage).await;
}

/// Makes a node with pressure whose agent has died, and whose Lease is over soon.
async fn die_under_pressure(stage: &Stage) {
    // The agent is leaked, so that it stays silent as if it had died.
    let of_admin = Access::by_kubeconfig(stage.kubeconfig_file().unwrap(), &stage.node);
    let hour = Duration::from_secs(3_600);
    let options = KubernetesOptions { heartbeat: hour, ..KubernetesOptions::default() };
    let dead = Cluster::start_with(options, Some(of_admin)).unwrap();
    dead.publish(under_pressure());
    stage.until(&stage.node_path(), SOON, is_tainted).await.unwrap();
    std::mem::forget(dead);
    tokio::time::sleep(Duration::from_millis(500)).await;

    let lease = lease_path(&stage.node);
    stage.until(&lease, SOON, |lease| lease.is_some()).await.unwrap();
    stage.patch(&lease, json!({"spec": {"leaseDurationSeconds": 1}})).await.unwrap();
}

#[tokio::test]
async fn the_sweeper_uses_exactly_its_permissions() {
    let stage = Stage::new().await.unwrap();
    die_under_pressure(&stage).await;
    let account = Account::of(&stage, Component::Sweeper, OBSERVING).await;
    stage.server.log().clear();
    let rules = Rules { remove: false, keep_leases: false, dry_run: false, by_clock: false };
    let mut sweeper = Sweeper::connect(&account.access(&stage), rules, Some(stage.node.clone())).await.unwrap();
    let swept = sweeper.round(&mut |_| {}).await.unwrap().swept;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!((swept, sweeper.round(&mut |_| {}).await.unwrap().swept), (0, 1), "the agent is dead");
    account.judge(stage).await;
}

#[tokio::test]
async fn the_removal_uses_exactly_its_permissions() {
    let stage = Stage::new().await.unwrap();
    die_under_pressure(&stage).await;
    let account = Account::of(&stage, Component::Removal, OBSERVING).await;
    stage.server.log().clear();
    // Another client changes the node at the same time, so that it is read again.
    stage.server.faults().add(Fault::answer(409).of("PATCH").at("/nodes/").once());
    let rules = Rules { remove: true, keep_leases: true, dry_run: false, by_clock: true };
    let mut sweeper = Sweeper::connect(&account.access(&stage), rules, Some(stage.node.clone())).await.unwrap();
    let left = sweeper.agents_left().await.unwrap();
    assert!(left.is_some_and(|left| left.contains("Leases")), "the agent may live");
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let left = sweeper.agents_left().await.unwrap();
    // A real server has the agents of other tests.
    assert!(left.is_none() || stage.server.is_real(), "the agent is dead: {left:?}");
    let round = sweeper.round(&mut |_| {}).await.unwrap();
    assert_eq!((round.swept, round.failed), (1, 0));
    assert!(stage.get(&lease_path(&stage.node)).await.unwrap().is_some(), "the removal may not delete Leases");
    account.judge(stage).await;
}
