//! Token reviews for the metrics endpoint, with each fault.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use node_pressure_apiserver::{Fault, Stage};
use node_pressure_monitor::cluster::{Access, Cluster, Review, Reviewer, Turn};
use node_pressure_monitor::config::KubernetesOptions;
use serde_json::json;

const METRICS: &str = "/metrics";
/// A time limit longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A stage with a scraper that may read the metrics, and an agent that reviews its token.
struct Scene {
    stage: Stage,
    /// The scraper's token.
    token: String,
    scraper: String,
}

impl Scene {
    async fn new() -> Self {
        let stage = Stage::new().await.unwrap();
        let token = stage.account("scraper").await.unwrap();
        let rules = json!([{"nonResourceURLs": [METRICS, "/incidents/*"], "verbs": ["get"]}]);
        stage.grant("scraper", rules).await.unwrap();
        let scraper = format!("system:serviceaccount:{}:scraper", stage.namespace);
        Self { stage, token, scraper }
    }

    /// Starts an agent with an administrator's kubeconfig.
    fn agent(&self) -> (Cluster, Reviewer) {
        self.agent_by(self.stage.kubeconfig_file().unwrap())
    }

    fn agent_by(&self, kubeconfig: PathBuf) -> (Cluster, Reviewer) {
        let access = Access::by_kubeconfig(kubeconfig, &self.stage.node);
        let cluster = Cluster::start_with(KubernetesOptions::default(), Some(access)).unwrap();
        let reviewer = cluster.reviewer().unwrap();
        (cluster, reviewer)
    }

    /// Returns the number of token reviews.
    fn asked(&self) -> usize {
        self.stage.server.log().of("POST", "/tokenreviews").len()
    }

    /// Asks until the scraper is allowed to read the metrics.
    async fn until_allowed(&self, reviewer: &Reviewer) {
        let begun = Instant::now();
        let mut review = reviewer.review(&self.token, &[], METRICS, Turn::First).await;
        while review.is_err() && begun.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(50)).await;
            review = reviewer.review(&self.token, &[], METRICS, Turn::First).await;
        }
        assert_eq!(review, Ok(Review::Allowed));
    }

    async fn end(self, cluster: Cluster) {
        tokio::task::spawn_blocking(|| cluster.stop(PATIENCE)).await.unwrap();
        self.stage.end().await.unwrap();
    }
}

#[tokio::test]
async fn a_token_is_allowed_what_its_user_may_read() {
    let scene = Scene::new().await;
    let (cluster, reviewer) = scene.agent();
    let forbidden = Ok(Review::Forbidden(scene.scraper.clone()));
    for (token, path, expected) in [
        (scene.token.as_str(), METRICS, Ok(Review::Allowed)),
        (scene.token.as_str(), "/incidents/last", Ok(Review::Allowed)),
        (scene.token.as_str(), "/summary", forbidden),
        ("nonsense", METRICS, Ok(Review::Unknown)),
    ] {
        assert_eq!(reviewer.review(token, &[], path, Turn::First).await, expected, "{path}");
    }
    // The token is meant for the API server.
    let of_others = reviewer.review(&scene.token, &["monitor".to_owned()], METRICS, Turn::First).await;
    assert_eq!(of_others, Ok(Review::Unknown));
    scene.end(cluster).await;
}

#[tokio::test]
async fn a_missing_review_permission_is_reported() {
    let scene = Scene::new().await;
    let token = scene.stage.account("agent").await.unwrap();
    let (cluster, reviewer) = scene.agent_by(scene.stage.kubeconfig_file_of("agent", &token).unwrap());
    let refused = reviewer.review(&scene.token, &[], METRICS, Turn::First).await.unwrap_err();
    assert!(refused.starts_with("TokenReview: ") && refused.contains("forbidden"), "{refused}");
    assert!(refused.ends_with("needs the cluster role system:auth-delegator"), "{refused}");
    // The role's permissions are enough.
    let delegator = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]);
    scene.stage.grant("agent", delegator).await.unwrap();
    // A real server's authorizer may take a moment.
    scene.until_allowed(&reviewer).await;
    scene.end(cluster).await;
}

#[tokio::test]
async fn a_failed_review_is_an_error() {
    let scene = Scene::new().await;
    let (cluster, reviewer) = scene.agent();
    assert_eq!(reviewer.review(&scene.token, &[], METRICS, Turn::First).await, Ok(Review::Allowed));
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
            let review = reviewer.review(&scene.token, &[], METRICS, Turn::First).await;
            assert!(review.is_err(), "{name} at {part}: {review:?}");
            scene.stage.server.faults().remove(id);
            assert_eq!(
                reviewer.review(&scene.token, &[], METRICS, Turn::First).await,
                Ok(Review::Allowed),
                "after {name} at {part}"
            );
        }
    }
    // Unknown fields in the answer are ignored.
    scene.stage.server.faults().set_unknown_fields(true);
    assert_eq!(reviewer.review(&scene.token, &[], METRICS, Turn::First).await, Ok(Review::Allowed));
    scene.stage.server.faults().set_unknown_fields(false);
    assert!(scene.asked() > 14);
    scene.end(cluster).await;
}

#[tokio::test]
async fn an_absent_server_allows_no_token_until_it_is_back() {
    let scene = Scene::new().await;
    let (cluster, reviewer) = scene.agent();
    assert_eq!(reviewer.review(&scene.token, &[], METRICS, Turn::First).await, Ok(Review::Allowed));
    scene.stage.server.close().await;
    assert!(reviewer.review(&scene.token, &[], METRICS, Turn::First).await.is_err());
    scene.stage.server.open().await.unwrap();
    scene.until_allowed(&reviewer).await;
    scene.end(cluster).await;
}
