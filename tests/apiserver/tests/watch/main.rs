//! What the agent knows of its node's pods and of its node, while the API server, or the way there, fails in every way that is known. With
//! `KUBECONFIG` set the same cases run against the server that it names.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod away;
mod cut;
mod following;
mod node;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use http::Method;
use node_pressure_apiserver::Stage;
use node_pressure_monitor::cluster::{Access, Cluster, State, Timeouts, View};
use node_pressure_monitor::config::KubernetesOptions;
use serde_json::{Value, json};

/// Long enough for the slowest machine.
const LATE: Duration = Duration::from_secs(30);
/// Shorter than an agent's, so that a test need not wait as long.
const TIMEOUTS: Timeouts = Timeouts { answer: Duration::from_secs(2), silence: Duration::from_secs(4) };

/// A stage, and the thread of an agent on its node.
struct Scene {
    stage: Stage,
    cluster: Cluster,
    directory: tempfile::TempDir,
}

impl Scene {
    async fn new() -> Self {
        Self::with(KubernetesOptions::default()).await
    }

    async fn with(options: KubernetesOptions) -> Self {
        Self::on(Stage::new().await.unwrap(), options)
    }

    fn on(stage: Stage, options: KubernetesOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("kubeconfig"), stage.server.kubeconfig()).unwrap();
        let cluster = start(&stage, &directory, options);
        Self { stage, cluster, directory }
    }

    /// Another agent in the place of this one.
    fn start_anew(&mut self) {
        let next = start(&self.stage, &self.directory, KubernetesOptions::default());
        std::mem::replace(&mut self.cluster, next).stop(LATE);
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Looks again and again until it is as wanted.
    async fn until(&self, what: &str, is_so: impl Fn(&View) -> bool) -> View {
        let begun = Instant::now();
        loop {
            let view = self.cluster.view();
            if is_so(&view) {
                return view;
            }
            assert!(begun.elapsed() < LATE, "not within {LATE:?}: {what}; names {:?} of {view:?}", names(&view));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn until_known(&self, expected: &[&str]) -> View {
        self.until(&format!("{expected:?}"), |view| names(view) == expected).await
    }

    async fn until_up(&self) -> View {
        self.until("up", |view| view.state == State::Up).await
    }

    /// Down, for whatever reason.
    async fn until_down(&self) {
        self.until_down_for(&[]).await;
    }

    /// Down, for a reason in which all of these words are. The first reason may be the connection that was cut.
    async fn until_down_for(&self, words: &[&str]) {
        let is_so = |view: &View| match &view.state {
            State::Down { reason, .. } => words.iter().all(|word| reason.contains(word)),
            _ => false,
        };
        self.until(&format!("down: {words:?}"), is_so).await;
    }

    async fn pod(&self, name: &str) -> Value {
        self.stage.pod(name, Value::Null, Value::Null).await.unwrap()
    }

    async fn delete(&self, name: &str) {
        let now = json!({"gracePeriodSeconds": 0});
        let (status, answer) = self.stage.ask(Method::DELETE, &self.stage.pods(name), now).await.unwrap();
        assert_eq!(status, 200, "{answer}");
    }

    async fn patch(&self, path: &str, patch: Value) {
        let (status, answer) = self.stage.ask(Method::PATCH, path, patch).await.unwrap();
        assert_eq!(status, 200, "{answer}");
    }

    /// Requests that opened a watch of pods.
    fn pod_watches(&self) -> usize {
        self.stage.server.log().all().iter().filter(|it| it.is_watch() && it.path.ends_with("/pods")).count()
    }

    /// A watch of pods is under way, as far as the server has answered it.
    async fn until_watched(&self) {
        let begun = Instant::now();
        let is_watch = |it: &node_pressure_apiserver::Record| {
            it.is_watch() && it.path.ends_with("/pods") && it.status == Some(200)
        };
        while !self.stage.server.log().all().iter().any(is_watch) {
            assert!(begun.elapsed() < LATE, "no watch");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }

    async fn end(self) {
        self.cluster.stop(LATE);
        self.stage.end().await.unwrap();
    }
}

fn start(stage: &Stage, directory: &tempfile::TempDir, options: KubernetesOptions) -> Cluster {
    let access = Access::by_kubeconfig(directory.path().join("kubeconfig"), &stage.node);
    let access = access.with_timeouts(TIMEOUTS).beside(&directory.path().join("agent.lock"));
    Cluster::start_with(options, Some(access)).unwrap()
}

/// The pods that are known, by name.
fn names(view: &View) -> Vec<&str> {
    let mut names: Vec<&str> = view.pods.pods().iter().map(|pod| pod.metadata.name.as_str()).collect();
    names.sort_unstable();
    names
}
