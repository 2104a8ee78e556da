//! The last known pods, in a file beside the lock file: an agent that starts while the API server is away knows them, and their age.
//!
//! After a reboot every pod has another cgroup, so the file names the boot, and its times are on that boot's monotonic clock.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::node::replaced_file::replace;
use crate::units::{Monotonic, boot_id};
use crate::workloads::json_defaults::or_default;
use crate::workloads::pod::Pods;
use crate::workloads::{Pod, PodSpecs};

/// Least time between two writes of changed pods.
const CHANGED_EVERY: Duration = Duration::from_secs(10);
/// Unchanged pods are written this often, which renews their age.
const CONFIRMED_EVERY: Duration = Duration::from_secs(60);
/// Bytes; the pods of a full node take far less.
const LARGEST: u64 = 32 << 20;

#[derive(Debug)]
pub(super) struct PodCache {
    path: PathBuf,
    node: Arc<str>,
    boot: String,
    written: Option<Monotonic>,
    has_changed: bool,
    /// The last write failed, and the log says so.
    is_failure_logged: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'p> {
    kind: &'static str,
    boot: &'p str,
    node: &'p str,
    as_of_monotonic_ns: u64,
    #[serde(serialize_with = "items")]
    items: &'p BTreeMap<String, Arc<Pod>>,
}

fn items<S: Serializer>(pods: &&BTreeMap<String, Arc<Pod>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(pods.values().map(Arc::as_ref))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Read {
    #[serde(deserialize_with = "or_default")]
    boot: String,
    #[serde(deserialize_with = "or_default")]
    node: String,
    #[serde(deserialize_with = "or_default")]
    as_of_monotonic_ns: u64,
    #[serde(deserialize_with = "or_default")]
    items: Option<Pods>,
}

impl PodCache {
    /// Opens the cache beside the lock file of the agent on that node.
    pub(super) fn beside(lock_file: &Path, node: &Arc<str>) -> Self {
        let (path, node, boot) = (path(lock_file), Arc::clone(node), boot_id());
        Self { path, node, boot, written: None, has_changed: false, is_failure_logged: false }
    }

    /// Returns the pods and when they were true; none: no file of this boot and node.
    pub(super) fn read(&self) -> Option<(PodSpecs, Monotonic)> {
        let (node, specs, as_of) = read(&self.path, &self.boot)?;
        (*node == *self.node).then_some((specs, as_of))
    }

    /// Notes that the pods differ from the file.
    pub(super) fn change(&mut self) {
        self.has_changed = true;
    }

    /// Takes the pods as they are now; writes the file when it is due. A failed write is retried when the next is due.
    pub(super) fn confirm(&mut self, now: Monotonic, pods: &BTreeMap<String, Arc<Pod>>) {
        let interval = if self.has_changed { CHANGED_EVERY } else { CONFIRMED_EVERY };
        if self.written.is_some_and(|written| now.since(written) < interval) {
            return;
        }
        self.written = Some(now);
        self.has_changed = false;
        match self.write(now, pods) {
            Ok(()) => self.is_failure_logged = false,
            Err(error) => {
                if !std::mem::replace(&mut self.is_failure_logged, true) {
                    let path = self.path.display();
                    tracing::warn!(
                        event = "degraded",
                        capability = "remembered_pods",
                        %path,
                        reason = %error,
                        "the pod cache cannot be written; an agent that starts without the API server will know no pods"
                    );
                }
            }
        }
    }

    fn write(&self, now: Monotonic, pods: &BTreeMap<String, Arc<Pod>>) -> std::io::Result<()> {
        let document =
            Document { kind: "PodList", boot: &self.boot, node: &self.node, as_of_monotonic_ns: now.0, items: pods };
        let fill = |file: &mut File| {
            let mut writer = BufWriter::new(file);
            serde_json::to_writer(&mut writer, &document)?;
            writer.flush()
        };
        replace(&self.path, fill).map(drop)
    }
}

/// Returns the pods that the agent with this lock file cached in this boot, and when they were true.
pub fn cached_pods(lock_file: &Path) -> Option<(PodSpecs, Monotonic)> {
    read(&path(lock_file), &boot_id()).map(|(_, specs, as_of)| (specs, as_of))
}

/// Returns the node's name, its pods, and when they were true.
fn read(path: &Path, of_boot: &str) -> Option<(String, PodSpecs, Monotonic)> {
    let length = std::fs::metadata(path).ok()?.len();
    if length > LARGEST {
        tracing::warn!(
            event = "degraded",
            capability = "remembered_pods",
            path = %path.display(),
            length,
            "the pod cache is not read: the file is larger than {} MiB",
            LARGEST >> 20
        );
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    let Read { boot, node, as_of_monotonic_ns, items } = serde_json::from_str(&text).ok()?;
    let as_of = Monotonic(as_of_monotonic_ns.min(Monotonic::now().0));
    (!boot.is_empty() && boot == of_boot).then(|| (node, PodSpecs::from_api_server(items.unwrap_or_default()), as_of))
}

fn path(lock_file: &Path) -> PathBuf {
    lock_file.with_extension("pods.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(names: &[&str]) -> BTreeMap<String, Arc<Pod>> {
        let pod = |name: &&str| {
            let json = format!(r#"{{"metadata": {{"name": "{name}", "uid": "u-{name}"}}, "spec": {{"priority": 7}}}}"#);
            (format!("u-{name}"), Arc::new(serde_json::from_str(&json).unwrap()))
        };
        names.iter().map(pod).collect()
    }

    fn names(read: Option<(PodSpecs, Monotonic)>) -> Option<(Vec<String>, u64)> {
        let (specs, as_of) = read?;
        Some((specs.pods().iter().map(|pod| pod.metadata.name.clone()).collect(), as_of.0))
    }

    #[test]
    fn the_next_agent_reads_pods_and_their_age() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("agent.lock");
        let mut cache = PodCache::beside(&lock, &"n".into());
        assert!(cache.read().is_none());
        cache.confirm(Monotonic(5), &pods(&["a", "b"]));
        let next = PodCache::beside(&lock, &"n".into());
        assert_eq!(names(next.read()), Some((vec!["a".to_owned(), "b".to_owned()], 5)));
        assert!(names(PodCache::beside(&lock, &"other".into()).read()).is_none());
        assert_eq!(names(cached_pods(&lock)).map(|(names, _)| names.len()), Some(2), "any node name");
        let later = PodCache { boot: "another".to_owned(), ..PodCache::beside(&lock, &"n".into()) };
        assert!(later.read().is_none());
        std::fs::write(path(&lock), "{\"kind\": ").unwrap();
        assert!(next.read().is_none(), "torn");
    }

    #[test]
    fn protecting_annotations_are_cached() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("agent.lock");
        let mut cache = PodCache::beside(&lock, &"n".into());
        let mut pods = pods(&["a"]);
        let key = ("example.com/keep".to_owned(), "yes".to_owned());
        for pod in pods.values_mut() {
            Arc::make_mut(pod).metadata.annotations.push(key.clone());
        }
        cache.confirm(Monotonic(5), &pods);
        let mut rules = crate::config::KubernetesOptions::default().protect;
        rules.annotations = vec!["example.com/keep=yes".to_owned()];
        let (specs, _) = cache.read().unwrap();
        assert_eq!(specs.pods()[0].protection(&rules), Some(crate::workloads::Protection::Annotation));
    }

    #[test]
    fn writes_keep_their_intervals() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = PodCache::beside(&directory.path().join("agent.lock"), &"n".into());
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        for (seconds, changes, as_of) in [(1, true, 1), (5, true, 1), (11, false, 11), (20, false, 11), (72, false, 72)]
        {
            if changes {
                cache.change();
            }
            cache.confirm(at(seconds), &pods(&["a"]));
            assert_eq!(names(cache.read()).map(|(_, read)| read), Some(at(as_of).0), "{seconds}");
        }
    }

    #[test]
    fn a_failed_write_is_no_error() {
        let mut cache = PodCache::beside(Path::new("/nonexistent/agent.lock"), &"n".into());
        cache.confirm(Monotonic(1), &pods(&["a"]));
        assert!(cache.is_failure_logged && cache.read().is_none());
    }
}
