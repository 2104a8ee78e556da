//! Whose token is good: the agent asks the API server, as whoever serves metrics beside Prometheus does. Each fault is a case.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use node_pressure_apiserver::{Fault, Stage};
use node_pressure_monitor::cluster::{Access, Cluster, Review, Reviewer};
use node_pressure_monitor::config::KubernetesOptions;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const METRICS: &str = "/metrics";

/// A stage with a scraper that may read the metrics, and an agent that asks for whom that holds.
struct Scene {
    stage: Stage,
    directory: tempfile::TempDir,
    /// The scraper's.
    token: String,
    scraper: String,
}

impl Scene {
    async fn new() -> Self {
        let stage = Stage::new().await.unwrap();
        let scene =
            Self { stage, directory: tempfile::tempdir().unwrap(), token: String::new(), scraper: String::new() };
        let token = scene.account("scraper").await;
        let rules = json!([{"nonResourceURLs": [METRICS, "/incidents/*"], "verbs": ["get"]}]);
        scene.grant("scraper", rules).await;
        let scraper = format!("system:serviceaccount:{}:scraper", scene.stage.namespace);
        Self { token, scraper, ..scene }
    }

    /// A service account's token.
    async fn account(&self, name: &str) -> String {
        let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", self.stage.namespace);
        self.stage.create(&accounts, json!({"metadata": {"name": name}})).await.unwrap();
        let request = json!({"spec": {"audiences": [], "expirationSeconds": 3600}});
        let answer = self.stage.create(&format!("{accounts}/{name}/token"), request).await.unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    fn role(&self, name: &str) -> String {
        format!("{name}-{}", self.stage.namespace)
    }

    async fn grant(&self, name: &str, rules: Value) {
        let role = self.role(name);
        let metadata = json!({"name": role});
        self.stage
            .create(&format!("{RBAC}/clusterroles"), json!({"metadata": metadata, "rules": rules}))
            .await
            .unwrap();
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": self.stage.namespace});
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
        let binding = json!({"metadata": metadata, "subjects": [subject], "roleRef": reference});
        self.stage.create(&format!("{RBAC}/clusterrolebindings"), binding).await.unwrap();
    }

    /// The agent's end, by the one who may do everything or by another's token.
    fn agent(&self, token: Option<&str>) -> (Cluster, Reviewer) {
        let kubeconfig = self.directory.path().join("kubeconfig");
        let server = &self.stage.server;
        let text = token.map_or_else(|| server.kubeconfig(), |token| server.kubeconfig_with(token));
        std::fs::write(&kubeconfig, text).unwrap();
        let access: Option<Access> = Some(Access::by_kubeconfig(PathBuf::from(&kubeconfig), &self.stage.node));
        let cluster = Cluster::start_with(KubernetesOptions::default(), access).unwrap();
        let reviewer = cluster.reviewer().unwrap();
        (cluster, reviewer)
    }

    /// How often the agent had a token looked at.
    fn asked(&self) -> usize {
        self.stage.server.log().of("POST", "/tokenreviews").len()
    }

    async fn end(self, cluster: Cluster) {
        tokio::task::spawn_blocking(|| cluster.stop(Duration::from_secs(5))).await.unwrap();
        for name in ["scraper", "agent"] {
            for plural in ["clusterroles", "clusterrolebindings"] {
                let path = format!("{RBAC}/{plural}/{}", self.role(name));
                self.stage.ask(Method::DELETE, &path, Value::Null).await.unwrap();
            }
        }
        self.stage.end().await.unwrap();
    }
}

#[tokio::test]
async fn a_token_is_good_for_what_its_bearer_may_read() {
    let scene = Scene::new().await;
    let (cluster, reviewer) = scene.agent(None);
    let forbidden = Ok(Review::Forbidden(scene.scraper.clone()));
    for (token, path, expected) in [
        (scene.token.as_str(), METRICS, Ok(Review::Allowed)),
        (scene.token.as_str(), "/incidents/last", Ok(Review::Allowed)),
        (scene.token.as_str(), "/summary", forbidden),
        ("nonsense", METRICS, Ok(Review::Unknown)),
    ] {
        assert_eq!(reviewer.review(token, path).await, expected, "{path}");
    }
    scene.end(cluster).await;
}

#[tokio::test]
async fn an_agent_that_may_not_ask_says_what_it_lacks() {
    let scene = Scene::new().await;
    let token = scene.account("agent").await;
    let (cluster, reviewer) = scene.agent(Some(&token));
    let refused = reviewer.review(&scene.token, METRICS).await.unwrap_err();
    assert!(refused.starts_with("TokenReview: ") && refused.contains("forbidden"), "{refused}");
    assert!(refused.ends_with("needs the cluster role system:auth-delegator"), "{refused}");
    // What that role grants is all it takes.
    let delegator = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]);
    scene.grant("agent", delegator).await;
    // An authorizer of a real server may take a moment to hear of it.
    let mut review = Err(String::new());
    for _ in 0..50 {
        review = reviewer.review(&scene.token, METRICS).await;
        if review.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(review, Ok(Review::Allowed));
    scene.end(cluster).await;
}

#[tokio::test]
async fn what_cannot_be_found_out_is_neither_yes_nor_no() {
    let scene = Scene::new().await;
    let (cluster, reviewer) = scene.agent(None);
    assert_eq!(reviewer.review(&scene.token, METRICS).await, Ok(Review::Allowed));
    for (name, fault) in [
        ("500", Fault::answer(500)),
        ("429", Fault::answer(429)),
        ("503", Fault::answer(503)),
        ("cut before", Fault::cut_before()),
        ("cut after", Fault::cut_after()),
        ("cut in the body", Fault::cut_in_body(10)),
        ("slower than a scraper waits", Fault::delay(Duration::from_secs(6))),
    ] {
        for part in ["/tokenreviews", "/subjectaccessreviews"] {
            let id = scene.stage.server.faults().add(fault.clone().of("POST").ending(part));
            let review = reviewer.review(&scene.token, METRICS).await;
            assert!(review.is_err(), "{name} at {part}: {review:?}");
            scene.stage.server.faults().remove(id);
            assert_eq!(reviewer.review(&scene.token, METRICS).await, Ok(Review::Allowed), "after {name} at {part}");
        }
    }
    // What the answer holds besides is no hindrance.
    scene.stage.server.faults().set_unknown_fields(true);
    assert_eq!(reviewer.review(&scene.token, METRICS).await, Ok(Review::Allowed));
    scene.stage.server.faults().set_unknown_fields(false);
    assert!(scene.asked() > 14);
    scene.end(cluster).await;
}

#[tokio::test]
async fn a_server_that_is_away_lets_nobody_in_and_is_asked_again_when_it_is_back() {
    let scene = Scene::new().await;
    let (cluster, reviewer) = scene.agent(None);
    assert_eq!(reviewer.review(&scene.token, METRICS).await, Ok(Review::Allowed));
    scene.stage.server.close().await;
    assert!(reviewer.review(&scene.token, METRICS).await.is_err());
    scene.stage.server.open().await.unwrap();
    let mut review = Err(String::new());
    for _ in 0..50 {
        review = reviewer.review(&scene.token, METRICS).await;
        if review.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(review, Ok(Review::Allowed));
    scene.end(cluster).await;
}
