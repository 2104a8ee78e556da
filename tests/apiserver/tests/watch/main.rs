//! The reflectors of pods and node, with each fault of the API server and of the connection. With `KUBECONFIG` set the same cases run
//! against the real server that it names.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod away;
mod cut;
mod following;
mod node;
mod renewal;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use node_pressure_apiserver::{FaultId, Record, Stage};
use node_pressure_monitor::cluster::{Access, Cluster, State, Timeouts, View, cached_pods};
use node_pressure_monitor::config::KubernetesOptions;
use serde_json::Value;

/// A time limit that suffices on the slowest machine.
const LATE: Duration = Duration::from_secs(60);
/// Timeouts shorter than an agent's, so that tests wait less.
const TIMEOUTS: Timeouts = Timeouts {
    answer: Duration::from_secs(2),
    silence: Duration::from_secs(4),
    spread: Duration::from_millis(300),
    renewal: Duration::from_millis(300),
};

/// A stage and the threads of an agent on its node.
struct Scene {
    stage: Stage,
    cluster: Cluster,
    kubeconfig: PathBuf,
}

impl Scene {
    async fn new() -> Self {
        Self::with(KubernetesOptions::default()).await
    }

    async fn with(options: KubernetesOptions) -> Self {
        Self::on(Stage::new().await.unwrap(), options)
    }

    fn on(stage: Stage, options: KubernetesOptions) -> Self {
        let kubeconfig = stage.kubeconfig_file().unwrap();
        let cluster = start(&stage, &kubeconfig, options, TIMEOUTS);
        Self { stage, cluster, kubeconfig }
    }

    fn with_timeouts(stage: Stage, timeouts: Timeouts) -> Self {
        let kubeconfig = stage.kubeconfig_file().unwrap();
        let cluster = start(&stage, &kubeconfig, KubernetesOptions::default(), timeouts);
        Self { stage, cluster, kubeconfig }
    }

    /// Starts with pods of these names, which the agent has received by its watch.
    async fn with_pods(names: &[&str]) -> Self {
        let scene = Self::new().await;
        scene.until_watched().await;
        for name in names {
            scene.pod(name).await;
        }
        scene.until_known(names).await;
        scene
    }

    /// Replaces the agent by another one.
    fn start_anew(&mut self) {
        let next = start(&self.stage, &self.kubeconfig, KubernetesOptions::default(), TIMEOUTS);
        std::mem::replace(&mut self.cluster, next).stop(LATE);
    }

    /// Waits until the cache of an agent without the server has this number of pods.
    async fn until_cached(&self, pods: usize) {
        let lock_file = self.stage.directory.path().join("agent.lock");
        self.until("the pods are in the cache", |_| {
            cached_pods(&lock_file).is_some_and(|(cached, _)| cached.pods().len() == pods)
        })
        .await;
    }

    /// Polls the view until it is as wanted.
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

    async fn until_node_known(&self) {
        self.until("the node", |view| !view.node.uid.is_empty()).await;
    }

    async fn until_down(&self) {
        self.until_down_for(&[]).await;
    }

    /// Waits until the state is down with all of these words in the reason. The first reason may be the cut connection.
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
        self.stage.delete_pod(name, 0).await.unwrap();
    }

    async fn patch_node(&self, patch: Value) {
        self.stage.patch(&self.stage.node_path(), patch).await.unwrap();
    }

    /// Returns the number of watches of pods that were opened.
    fn pod_watches(&self) -> usize {
        self.stage.server.log().all().iter().filter(|it| is_pod_watch(it)).count()
    }

    /// Waits until the server has answered a watch of pods.
    async fn until_watched(&self) {
        let is_answered = |it: &Record| is_pod_watch(it) && it.status == Some(200);
        self.stage.server.log().wait_for(LATE, is_answered).await.unwrap();
    }

    async fn until_struck(&self, fault: FaultId, times: u32) {
        self.stage.until_struck(fault, times, LATE).await.unwrap();
    }

    async fn end(self) {
        self.cluster.stop(LATE);
        self.stage.end().await.unwrap();
    }
}

fn start(stage: &Stage, kubeconfig: &Path, options: KubernetesOptions, timeouts: Timeouts) -> Cluster {
    let access = Access::by_kubeconfig(kubeconfig.to_owned(), &stage.node);
    let access = access.with_timeouts(timeouts).beside(&stage.directory.path().join("agent.lock"));
    Cluster::start_with(options, Some(access)).unwrap()
}

fn is_pod_watch(record: &Record) -> bool {
    record.is_watch() && record.path.ends_with("/pods")
}

/// Returns the names of the known pods.
fn names(view: &View) -> Vec<&str> {
    let mut names: Vec<&str> = view.pods.pods().iter().map(|pod| pod.metadata.name.as_str()).collect();
    names.sort_unstable();
    names
}
