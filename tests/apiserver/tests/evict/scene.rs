//! A pod, a ledger and the cluster thread of an agent.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use node_pressure_apiserver::stage::{condition, uid};
use node_pressure_apiserver::{Kubelet, Record, Stage};
use node_pressure_monitor::cluster::{Access, Cluster, Event, EvictionUpdate, Intent, Ledger, Verdict};
use node_pressure_monitor::config::KubernetesOptions;
use node_pressure_monitor::config::kubernetes_options::EvictionMethod;
use node_pressure_monitor::units::Monotonic;
use serde_json::{Value, json};

pub const POD: &str = "web";
/// The time limit of a step, long enough for a machine that runs other tests.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const MESSAGE: &str = "The node was low on resource: memory. ";

/// The requests of an eviction in order: method, and end of the path.
pub type Steps = &'static [(&'static str, &'static str)];
/// The requests of a certain eviction by deletion.
pub const CERTAIN: Steps = &[("PATCH", "/pods/web/status"), ("DELETE", "/pods/web"), ("POST", "/events")];
/// The requests of a certain eviction by the pod's status, before the status is watched.
pub const FAILED: Steps = &[("PATCH", "/pods/web/status"), ("POST", "/events")];
/// The requests of an asked eviction.
pub const ASKED: Steps = &[("POST", "/pods/web/eviction"), ("POST", "/events")];

/// How a pod is evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Certain, as the agent kills the pod in any case, and by deletion.
    Certain,
    /// Certain, by the pod's status.
    Failed,
    /// Asked: the API server has to agree.
    Asked,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Certain, Self::Failed, Self::Asked];

    pub const fn steps(self) -> Steps {
        match self {
            Self::Certain => CERTAIN,
            Self::Failed => FAILED,
            Self::Asked => ASKED,
        }
    }
}

pub struct Scene {
    pub stage: Stage,
    pub uid: String,
    pub kubeconfig: PathBuf,
    _kubelet: Kubelet,
}

impl Scene {
    pub async fn new() -> Self {
        Self::labelled(Value::Null).await
    }

    pub async fn labelled(metadata: Value) -> Self {
        let stage = Stage::new().await.unwrap();
        let pod = stage.running_pod(POD, metadata, Value::Null).await.unwrap();
        let kubeconfig = stage.kubeconfig_file().unwrap();
        let kubelet = Kubelet::only_noting_failed(stage.admin(), &stage.namespace);
        Self { stage, uid: uid(&pod), kubeconfig, _kubelet: kubelet }
    }

    pub fn lock(&self) -> PathBuf {
        self.stage.directory.path().join("lock")
    }

    /// Starts an agent with the ledger of the last one.
    pub fn cluster(&self) -> Cluster {
        agent(self.kubeconfig.clone(), &self.stage.node, &self.lock())
    }

    pub fn certain(&self) -> Intent {
        Intent {
            uid: self.uid.clone(),
            namespace: self.stage.namespace.clone(),
            name: POD.to_owned(),
            method: EvictionMethod::Delete,
            is_certain: true,
            grace_seconds: 1,
            cause: "memory.available".to_owned(),
            message: MESSAGE.to_owned(),
            annotations: vec![("starved_resource".to_owned(), "memory".to_owned())],
            wants_mark: true,
            wants_event: true,
            frees_disk: false,
            condition: None,
            decided_at: jiff::Timestamp::now(),
            decided_mono_ns: Monotonic::now().0,
        }
    }

    pub fn failed(&self) -> Intent {
        Intent { method: EvictionMethod::Fail, ..self.certain() }
    }

    pub fn asked(&self) -> Intent {
        Intent { method: EvictionMethod::Evict, is_certain: false, grace_seconds: 30, ..self.certain() }
    }

    pub fn intent(&self, way: Way) -> Intent {
        match way {
            Way::Certain => self.certain(),
            Way::Failed => self.failed(),
            Way::Asked => self.asked(),
        }
    }

    /// Evicts a pod; returns all verdicts.
    pub async fn evict(&self, intent: &Intent) -> Vec<Verdict> {
        let cluster = self.cluster();
        begin(&cluster, intent);
        self.end_of(cluster).await
    }

    /// Starts another agent, which resumes; returns all verdicts.
    pub async fn resume(&self) -> Vec<Verdict> {
        self.end_of(self.cluster()).await
    }

    async fn end_of(&self, mut cluster: Cluster) -> Vec<Verdict> {
        let heard = self.settle(&mut cluster).await;
        cluster.stop(PATIENCE);
        heard
    }

    /// Waits until the ledger is empty.
    pub async fn settle(&self, cluster: &mut Cluster) -> Vec<Verdict> {
        self.updates(cluster).await.into_iter().map(|update| update.verdict).collect()
    }

    /// Waits until the ledger is empty; returns what was reported until then.
    pub async fn updates(&self, cluster: &mut Cluster) -> Vec<EvictionUpdate> {
        self.listen(cluster, |cluster, _| cluster.ledger().is_empty()).await
    }

    /// Waits for [`Verdict::Delayed`]; returns its reason.
    pub async fn until_delayed(&self, cluster: &mut Cluster) -> String {
        let reason = |heard: &[EvictionUpdate]| {
            heard.iter().find_map(|it| match &it.verdict {
                Verdict::Delayed(reason) => Some(reason.clone()),
                _ => None,
            })
        };
        let heard = self.listen(cluster, |_, heard| reason(heard).is_some()).await;
        reason(&heard).unwrap()
    }

    async fn listen(
        &self,
        cluster: &mut Cluster,
        is_over: impl Fn(&Cluster, &[EvictionUpdate]) -> bool,
    ) -> Vec<EvictionUpdate> {
        let start = Instant::now();
        let mut heard = Vec::new();
        loop {
            // This is read first, since events are sent before the ledger's entry ends.
            let is_over = is_over(cluster, &heard);
            while let Some(event) = cluster.try_event() {
                if let Event::Eviction(update) = event {
                    heard.push(update);
                }
            }
            if is_over {
                return heard;
            }
            if start.elapsed() > PATIENCE {
                panic!("not over: {:?}, heard {heard:?}, asked {:#?}", cluster.ledger().unfinished(), self.requests());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn pod(&self) -> Option<Value> {
        self.stage.get(&self.stage.pods(POD)).await.unwrap()
    }

    /// Returns the requests about the pod and its events.
    pub fn requests(&self) -> Vec<Record> {
        let is_about = |record: &Record| {
            let ours = record.path.starts_with(&format!("/api/v1/namespaces/{}/", self.stage.namespace));
            ours && !record.is_watch()
        };
        self.stage.server.log().all().into_iter().filter(is_about).collect()
    }

    /// Returns the requests of evictions as `METHOD end`, without the looks at a status.
    pub fn steps(&self) -> Vec<String> {
        let of = |record: &Record| {
            let place = record.path.trim_start_matches(&format!("/api/v1/namespaces/{}/", self.stage.namespace));
            format!("{} {place}", record.method)
        };
        self.requests().iter().filter(|record| record.method != "GET").map(of).collect()
    }

    async fn evicted_events(&self) -> Vec<Value> {
        let events = self.stage.events().await.unwrap();
        events.into_iter().filter(|event| event["reason"] == "Evicted").collect()
    }

    /// Asserts that the pod is ended by the intent's method, marked, and has its event, and that each request had its UID as precondition.
    pub async fn is_evicted_once(&self, intent: &Intent) {
        let pod = self.pod().await.unwrap();
        assert_eq!(pod["metadata"]["uid"], *self.uid);
        let mark = condition(&pod, "DisruptionTarget");
        assert_eq!(mark["status"], "True", "{pod}");
        if intent.method == EvictionMethod::Fail {
            assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
            assert_eq!((&pod["status"]["phase"], &pod["status"]["reason"]), (&json!("Failed"), &json!("Evicted")));
            assert_eq!(pod["status"]["message"], MESSAGE);
            assert!(pod["metadata"]["annotations"]["node-pressure-monitor/status-written-at"].is_string(), "{pod}");
        } else {
            assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
            assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], intent.grace_seconds);
        }
        if intent.method == EvictionMethod::Evict {
            assert_eq!(mark["reason"], "EvictionByEvictionAPI", "{pod}");
        } else {
            assert_eq!(mark["reason"], "EvictionByNodePressureMonitor", "{pod}");
            assert_eq!(mark["message"], MESSAGE);
        }
        self.has_one_event().await;
        self.names_its_uid();
    }

    pub async fn has_one_event(&self) {
        let events = self.evicted_events().await;
        let [event] = events.as_slice() else { panic!("{events:#?}") };
        assert_eq!(event["involvedObject"]["uid"], *self.uid);
        assert_eq!((&event["type"], &event["message"]), (&json!("Warning"), &json!(MESSAGE)));
        assert_eq!(event["metadata"]["annotations"]["starved_resource"], "memory");
        assert_eq!(event["source"]["host"], *self.stage.node);
    }

    /// Asserts that the pod is unchanged and has no event.
    pub async fn is_untouched(&self) {
        self.stays(&self.uid).await;
        self.has_no_event().await;
    }

    /// Asserts that the pod of this name has this UID and is unchanged.
    pub async fn stays(&self, uid: &str) {
        let pod = self.pod().await.unwrap();
        assert_eq!(pod["metadata"]["uid"], *uid);
        assert_eq!(pod["metadata"]["deletionTimestamp"], Value::Null);
        assert_eq!(*condition(&pod, "DisruptionTarget"), Value::Null);
        self.names_its_uid();
    }

    pub async fn has_no_event(&self) {
        assert_eq!(self.evicted_events().await, [] as [Value; 0]);
    }

    /// Asserts that every request that changes a pod has the UID as its precondition.
    fn names_its_uid(&self) {
        for record in self.requests() {
            let uid = match (record.method.as_str(), record.path.rsplit('/').next()) {
                ("DELETE", _) => &record.body["preconditions"]["uid"],
                ("PATCH", _) => &record.body["metadata"]["uid"],
                ("POST", Some("eviction")) => &record.body["deleteOptions"]["preconditions"]["uid"],
                ("POST", _) => &record.body["involvedObject"]["uid"],
                _ => continue,
            };
            assert_eq!(*uid, *self.uid, "{record:?}");
        }
    }

    pub async fn end(self) {
        self.stage.server.faults().clear();
        self.stage.end().await.unwrap();
    }
}

pub fn agent(kubeconfig: PathBuf, node: &str, lock: &std::path::Path) -> Cluster {
    let access = Access::by_kubeconfig(kubeconfig, node);
    Cluster::start_on(KubernetesOptions::default(), Some(access), Ledger::beside(lock)).unwrap()
}

/// Records and sends an eviction, as the loop does.
pub fn begin(cluster: &Cluster, intent: &Intent) {
    cluster.ledger().begin(intent).unwrap();
    cluster.evict(intent.clone()).unwrap();
}

/// Returns whether a verdict matches.
pub fn has(heard: &[Verdict], wanted: impl Fn(&Verdict) -> bool) -> bool {
    heard.iter().any(wanted)
}
