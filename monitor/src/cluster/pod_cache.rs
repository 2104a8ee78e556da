//! The pods known last, written down beside the lock file: an agent that starts while the API server is away knows them all the same, and how
//! old that knowledge is.
//!
//! The file is to outlive the agent, not the machine's next boot, after which every pod has another cgroup: it names the boot, and its times
//! are those of this boot's clock.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::units::{Monotonic, boot_id};
use crate::workloads::json_defaults::or_default;
use crate::workloads::pod::Pods;
use crate::workloads::{Pod, PodSpecs};

/// What has changed is written down this often at most.
const CHANGED_EVERY: Duration = Duration::from_secs(10);
/// That nothing has changed is, so that its age is known.
const CONFIRMED_EVERY: Duration = Duration::from_secs(60);
/// What a full node's pods take is far less.
const LARGEST: u64 = 32 << 20;

/// The file, and what is in it.
#[derive(Debug)]
pub(super) struct PodCache {
    path: PathBuf,
    node: Arc<str>,
    boot: String,
    written: Option<Monotonic>,
    has_changed: bool,
    /// That it cannot be written was said.
    is_told: bool,
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
    /// Beside the lock file of the agent on that node.
    pub(super) fn beside(lock_file: &Path, node: &Arc<str>) -> Self {
        let boot = boot_id();
        Self { path: path(lock_file), node: Arc::clone(node), boot, written: None, has_changed: false, is_told: false }
    }

    /// What an earlier agent wrote down, and when that was true; nothing where nobody did, or of another boot or node.
    pub(super) fn read(&self) -> Option<(PodSpecs, Monotonic)> {
        let (node, specs, as_of) = read(&self.path, &self.boot)?;
        (*node == *self.node).then_some((specs, as_of))
    }

    /// Something is other than what was written down.
    pub(super) fn change(&mut self) {
        self.has_changed = true;
    }

    /// These are the pods now. Writes that down when it is time to.
    pub(super) fn confirm(&mut self, now: Monotonic, pods: &BTreeMap<String, Arc<Pod>>) {
        let pause = if self.has_changed { CHANGED_EVERY } else { CONFIRMED_EVERY };
        if self.written.is_some_and(|written| now.since(written) < pause) {
            return;
        }
        // What cannot be written now is tried again as late as what can.
        self.written = Some(now);
        self.has_changed = false;
        match self.write(now, pods) {
            Ok(()) => self.is_told = false,
            Err(error) => {
                if !std::mem::replace(&mut self.is_told, true) {
                    let path = self.path.display();
                    tracing::warn!(
                        event = "degraded",
                        capability = "remembered_pods",
                        %path,
                        reason = %error,
                        "the pods cannot be written down: an agent started without the API server will know none"
                    );
                }
            }
        }
    }

    fn write(&self, now: Monotonic, pods: &BTreeMap<String, Arc<Pod>>) -> std::io::Result<()> {
        let next = self.path.with_extension("pods.next");
        // Whoever can read it learns which pods the node has.
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        let mut writer = BufWriter::new(file);
        let document =
            Document { kind: "PodList", boot: &self.boot, node: &self.node, as_of_monotonic_ns: now.0, items: pods };
        serde_json::to_writer(&mut writer, &document)?;
        writer.flush()?;
        std::fs::rename(&next, &self.path)
    }
}

/// The pods that the agent with that lock file wrote down last, and when that was true; nothing where none did since the machine was booted.
#[must_use]
pub fn cached_pods(lock_file: &Path) -> Option<(PodSpecs, Monotonic)> {
    read(&path(lock_file), &boot_id()).map(|(_, specs, as_of)| (specs, as_of))
}

/// The node, its pods, and when that was true.
fn read(path: &Path, of_boot: &str) -> Option<(String, PodSpecs, Monotonic)> {
    let length = std::fs::metadata(path).ok()?.len();
    if length > LARGEST {
        tracing::warn!(
            event = "degraded",
            capability = "remembered_pods",
            path = %path.display(),
            length,
            "the pods written down are not read: the file is larger than {} MiB",
            LARGEST >> 20
        );
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    let Read { boot, node, as_of_monotonic_ns, items } = serde_json::from_str(&text).ok()?;
    let as_of = Monotonic(as_of_monotonic_ns.min(Monotonic::now().0));
    (!boot.is_empty() && boot == of_boot).then(|| (node, PodSpecs::from_api_server(items.unwrap_or_default()), as_of))
}

/// Where the pods known last are written down.
fn path(lock_file: &Path) -> PathBuf {
    lock_file.with_extension("pods.json")
}

#[cfg(test)]
mod tests {
    use super::cached_pods as remembered_by;
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
    fn the_next_agent_knows_them_and_how_old_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("agent.lock");
        let mut remembered = PodCache::beside(&lock, &"n".into());
        assert!(remembered.read().is_none());
        remembered.confirm(Monotonic(5), &pods(&["a", "b"]));
        let next = PodCache::beside(&lock, &"n".into());
        assert_eq!(names(next.read()), Some((vec!["a".to_owned(), "b".to_owned()], 5)));
        assert!(names(PodCache::beside(&lock, &"other".into()).read()).is_none());
        assert_eq!(names(remembered_by(&lock)).map(|(names, _)| names.len()), Some(2), "whatever the node is called");
        let later = PodCache { boot: "another".to_owned(), ..PodCache::beside(&lock, &"n".into()) };
        assert!(later.read().is_none());
        std::fs::write(path(&lock), "{\"kind\": ").unwrap();
        assert!(next.read().is_none(), "torn");
    }

    #[test]
    fn what_the_operator_protects_by_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("agent.lock");
        let mut remembered = PodCache::beside(&lock, &"n".into());
        let mut pods = pods(&["a"]);
        let key = ("example.com/keep".to_owned(), "yes".to_owned());
        for pod in pods.values_mut() {
            Arc::make_mut(pod).metadata.annotations.push(key.clone());
        }
        remembered.confirm(Monotonic(5), &pods);
        let mut rules = crate::config::KubernetesOptions::default().protect;
        rules.annotations = vec!["example.com/keep=yes".to_owned()];
        let (specs, _) = remembered.read().unwrap();
        assert_eq!(specs.pods()[0].protection(&rules), Some(crate::workloads::Protection::Annotation));
    }

    #[test]
    fn it_is_not_written_more_often_than_it_has_to_be() {
        let directory = tempfile::tempdir().unwrap();
        let mut remembered = PodCache::beside(&directory.path().join("agent.lock"), &"n".into());
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        for (seconds, changes, as_of) in [(1, true, 1), (5, true, 1), (11, false, 11), (20, false, 11), (72, false, 72)]
        {
            if changes {
                remembered.change();
            }
            remembered.confirm(at(seconds), &pods(&["a"]));
            assert_eq!(names(remembered.read()).map(|(_, read)| read), Some(at(as_of).0), "{seconds}");
        }
    }

    #[test]
    fn where_it_cannot_be_written_the_agent_goes_on() {
        let mut remembered = PodCache::beside(Path::new("/nonexistent/agent.lock"), &"n".into());
        remembered.confirm(Monotonic(1), &pods(&["a"]));
        assert!(remembered.is_told && remembered.read().is_none());
    }
}
