//! The pods of this node with their requests and limits, which neither the cgroups nor the runtime know. The pods come from the
//! API server, or from a file written with `kubectl get pods`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use serde::Deserialize;

use super::cgroup_path::PodUid;
use super::json_defaults::or_default;
use super::pod::{Pod, Pods};
use crate::config::{FileWatch, Stamp, read_limited};

const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Limit of the file. A node has a few hundred pods of some ten KiB each. The pods of a whole cluster would only use memory.
const MAX_BYTES: u64 = 16 << 20;
const FIX: &str = "write it with: kubectl get pods -A -o json --field-selector spec.nodeName=NODE";

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodSpecs {
    pods: Vec<Arc<Pod>>,
    by_uid: HashMap<String, usize>,
}

impl PodSpecs {
    /// Indexes the pods by UID. Of a repeated UID the last pod counts. A mirror pod is also found by the UID of its static pod,
    /// which is the UID in the cgroup's path.
    pub fn new(pods: impl IntoIterator<Item = impl Into<Arc<Pod>>>) -> Self {
        let pods: Vec<Arc<Pod>> = pods.into_iter().map(Into::into).collect();
        let mirrored = |(index, pod): (usize, &Arc<Pod>)| pod.mirrored_uid().map(|uid| (uid.to_owned(), index));
        let mut by_uid: HashMap<String, usize> = pods.iter().enumerate().filter_map(mirrored).collect();
        // No cgroup has the UID of a mirror pod itself. A pod whose UID has a cgroup is therefore not a mirror pod, whatever its
        // annotations claim.
        let own = pods.iter().enumerate().filter(|(_, pod)| pod.mirrored_uid().is_none());
        by_uid.extend(own.map(|(index, pod)| (pod.metadata.uid.clone(), index)));
        by_uid.remove("");
        Self { pods, by_uid }
    }

    /// Indexes pods that come from the API server, directly or through a file.
    pub fn from_api_server(Pods(pods): Pods) -> Self {
        Self::new(pods.into_iter().map(Pod::without_forged_source))
    }

    pub fn pods(&self) -> &[Arc<Pod>] {
        &self.pods
    }

    pub fn find(&self, uid: &PodUid) -> Option<&Pod> {
        self.find_shared(uid).map(Arc::as_ref)
    }

    pub fn find_shared(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        self.by_uid.get(&uid.0).and_then(|index| self.pods.get(*index))
    }

    /// Reads the file once. An error contains the reason and what to do.
    pub fn read(path: &Path) -> Read {
        PolledFile { path: path.to_owned(), stamp: None, last_error: None }
            .poll()
            .unwrap_or_else(|| Ok(Self::default()))
    }

    /// Parses a list as `kubectl get pods -o json` prints it. An error contains the reason and the position.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut deserializer = serde_json::Deserializer::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
        let list: PodList = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let path = error.path().to_string();
            if path == "." { error.inner().to_string() } else { format!("{path}: {}", error.inner()) }
        })?;
        deserializer.end().map_err(|error| error.to_string())?;
        match (list.kind.as_str(), list.items) {
            ("PodList" | "List", items) => Ok(Self::from_api_server(items.unwrap_or_default())),
            ("", _) => Err("no kind: not a list of pods".to_owned()),
            (kind, _) => Err(format!("a {kind}, not a list of pods")),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodList {
    #[serde(deserialize_with = "or_default")]
    kind: String,
    #[serde(deserialize_with = "or_default")]
    items: Option<Pods>,
}

/// The result of the last read: the pods, or the reason why the file cannot be used.
pub type Read = Result<PodSpecs, String>;

/// Reads the file of pods whenever it changes, on its own thread, because the disk of the file may hang.
#[derive(Debug)]
pub struct PodsFile(FileWatch<Read>);

impl PodsFile {
    pub fn watch(path: &Path) -> std::io::Result<Self> {
        Self::watch_every(path, POLL_INTERVAL)
    }

    fn watch_every(path: &Path, interval: Duration) -> std::io::Result<Self> {
        let mut file = PolledFile { path: path.to_owned(), stamp: None, last_error: None };
        let thread = Builder::new().name("pods".to_owned()).stack_size(512 * 1024);
        let watch = FileWatch::start(thread, interval, move |_| file.poll())?;
        watch.request();
        Ok(Self(watch))
    }

    /// Returns the result of a read since the last call; `None` if the file has not changed.
    pub fn take_update(&self) -> Option<Read> {
        self.0.take()
    }
}

#[derive(Debug)]
struct PolledFile {
    path: PathBuf,
    stamp: Option<Stamp>,
    /// The last reported reason why the file cannot be used.
    last_error: Option<String>,
}

impl PolledFile {
    /// Reads the file if it has changed. Returns a repeated error only once.
    fn poll(&mut self) -> Option<Read> {
        let read = match self.read() {
            Ok(None) => return None,
            Ok(Some(specs)) => Ok(specs),
            Err(reason) => Err(format!("{}: {reason}", self.path.display())),
        };
        let error = read.as_ref().err().cloned();
        let is_new = error.is_none() || error != self.last_error;
        self.last_error = error;
        is_new.then_some(read)
    }

    fn read(&mut self) -> Result<Option<PodSpecs>, String> {
        let unreadable = |error: std::io::Error| format!("cannot be read: {error}; {FIX}");
        let stamp = Stamp::of(&self.path).map_err(|error| {
            self.stamp = None;
            unreadable(error)
        })?;
        if self.stamp.replace(stamp) == Some(stamp) {
            return Ok(None);
        }
        let read = std::fs::File::open(&self.path).and_then(|file| read_limited(file, MAX_BYTES));
        let bytes = read.map_err(unreadable)?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_BYTES) {
            return Err(format!(
                "larger than {} MiB: it must contain only the pods of this node; {FIX}",
                MAX_BYTES >> 20
            ));
        }
        let text = std::str::from_utf8(&bytes).map_err(|error| format!("not UTF-8: {error}; {FIX}"))?;
        PodSpecs::parse(text).map(Some).map_err(|reason| format!("{reason}; {FIX}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"kind": "List", "apiVersion": "v1", "items": [
        {"kind": "Pod", "metadata": {"name": "a", "uid": "u-1"}},
        {"metadata": {"name": "b", "uid": "u-2", "annotations": {"kubernetes.io/config.mirror": "hash"}}}]}"#;

    fn name<'s>(specs: &'s PodSpecs, uid: &str) -> Option<&'s str> {
        specs.find(&PodUid(uid.to_owned())).map(|pod| pod.metadata.name.as_str())
    }

    #[test]
    fn static_pods_are_found_by_the_uid_in_their_mirror() {
        let specs = PodSpecs::parse(LIST).unwrap();
        assert_eq!(
            ["u-1", "u-2", "hash", "u-3", ""].map(|uid| name(&specs, uid)),
            [Some("a"), None, Some("b"), None, None]
        );
        assert_eq!(PodSpecs::parse(r#"{"kind": "PodList", "items": null}"#), Ok(PodSpecs::default()));
    }

    #[test]
    fn annotations_of_the_file_are_kept() {
        let specs = PodSpecs::parse(
            r#"{"kind": "List", "items": [{"metadata": {"uid": "u-1", "annotations": {"example.com/keep": "yes"}}}]}"#,
        );
        assert_eq!(specs.unwrap().pods()[0].annotation("example.com/keep"), Some("yes"));
    }

    #[test]
    fn anything_but_a_list_of_pods_is_an_error() {
        for (text, reason) in [
            ("", "EOF"),
            ("{}", "no kind"),
            (r#"{"kind": "Pod"}"#, "a Pod, not a list"),
            (r#"{"kind": "List", "items": [{"spec": {"priority": "x"}}]}"#, "items[0].spec.priority: invalid type"),
            (r#"{"kind": "List", "items": [[]]}"#, "expected an object: Pod"),
            (r#"{"kind": "List", "items": []} more"#, "trailing"),
        ] {
            let error = PodSpecs::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_changed_file_is_read_and_an_error_reported_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pods.json");
        let mut file = PolledFile { path: path.clone(), stamp: None, last_error: None };
        assert!(file.poll().unwrap().unwrap_err().contains("kubectl get pods"));
        assert_eq!(file.poll(), None, "reported once");
        std::fs::write(&path, LIST).unwrap();
        assert_eq!(name(&file.poll().unwrap().unwrap(), "u-1"), Some("a"));
        assert_eq!(file.poll(), None, "unchanged");
        std::fs::write(&path, "{\"kind\": ").unwrap();
        assert!(file.poll().unwrap().is_err());
        // A rename replaces the file, as careful writers do.
        let next = directory.path().join("next");
        std::fs::write(&next, LIST).unwrap();
        std::fs::rename(&next, &path).unwrap();
        assert!(file.poll().unwrap().is_ok());
        std::fs::remove_file(&path).unwrap();
        assert!(file.poll().unwrap().is_err());
    }

    #[test]
    fn the_thread_reads_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pods.json");
        std::fs::write(&path, LIST).unwrap();
        let file = PodsFile::watch_every(&path, Duration::from_millis(1)).unwrap();
        let begun = std::time::Instant::now();
        let read = loop {
            if let Some(read) = file.take_update() {
                break read;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "nothing was read");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(read.unwrap().pods().len(), 2);
        assert_eq!(file.take_update(), None);
    }
}
