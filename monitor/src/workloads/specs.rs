//! What the pods of this node were promised and may use: no cgroup tells it, nor does a runtime. The API server does, or a file, which
//! somebody writes with `kubectl get pods`.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;

use super::lenient::or_default;
use super::pod::Pods;
use super::{Pod, PodUid};
use crate::config::Stamp;

/// How often it is looked whether the file has changed.
const EVERY: Duration = Duration::from_secs(2);
/// A node has a few hundred pods of some ten KiB each; the whole of a cluster would be held in memory for nothing.
const LARGEST: u64 = 16 << 20;
const FIX: &str = "write it with: kubectl get pods -A -o json --field-selector spec.nodeName=NODE";

/// Pods by their UID.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodSpecs {
    pods: Vec<Arc<Pod>>,
    by_uid: HashMap<String, usize>,
}

impl PodSpecs {
    /// These; where a UID is given twice the last counts. A mirror stands for its static pod as well, whose cgroup has another UID.
    #[must_use]
    pub fn new(pods: impl IntoIterator<Item = impl Into<Arc<Pod>>>) -> Self {
        let pods: Vec<Arc<Pod>> = pods.into_iter().map(Into::into).collect();
        let mirrored = |(index, pod): (usize, &Arc<Pod>)| pod.mirrored_uid().map(|uid| (uid.to_owned(), index));
        let mut by_uid: HashMap<String, usize> = pods.iter().enumerate().filter_map(mirrored).collect();
        // No cgroup has the mirror's own: a pod that has one is no mirror, whatever is written on it.
        let own = pods.iter().enumerate().filter(|(_, pod)| pod.mirrored_uid().is_none());
        by_uid.extend(own.map(|(index, pod)| (pod.metadata.uid.clone(), index)));
        by_uid.remove("");
        Self { pods, by_uid }
    }

    /// These, as the API server told of them, whoever wrote that down.
    #[must_use]
    pub fn told(Pods(pods): Pods) -> Self {
        Self::new(pods.into_iter().map(Pod::of_the_api_server))
    }

    /// All of them.
    #[must_use]
    pub fn pods(&self) -> &[Arc<Pod>] {
        &self.pods
    }

    /// The pod of that UID.
    #[must_use]
    pub fn find(&self, uid: &PodUid) -> Option<&Pod> {
        self.share(uid).map(Arc::as_ref)
    }

    /// The same, to be kept.
    #[must_use]
    pub fn share(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        self.by_uid.get(&uid.0).and_then(|index| self.pods.get(*index))
    }

    /// Reads the file once, for a command that does not wait for it to change.
    ///
    /// # Errors
    /// Why it cannot be used, and what to do.
    pub fn read(path: &Path) -> Read {
        Watched { path: path.to_owned(), stamp: None, trouble: None }.look().unwrap_or_else(|| Ok(Self::default()))
    }

    /// A list as `kubectl get pods -o json` prints it.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut deserializer = serde_json::Deserializer::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
        let list: PodList = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let path = error.path().to_string();
            if path == "." { error.inner().to_string() } else { format!("{path}: {}", error.inner()) }
        })?;
        deserializer.end().map_err(|error| error.to_string())?;
        match (list.kind.as_str(), list.items) {
            ("PodList" | "List", items) => Ok(Self::told(items.unwrap_or_default())),
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

/// What the file said when it was read last: its pods, or why it cannot be used.
pub type Read = Result<PodSpecs, String>;

/// The file, read again when it changes, by a thread of its own: its disk may hang.
#[derive(Debug)]
pub struct PodsFile {
    news: Arc<Mutex<Option<Read>>>,
    /// The thread ends with it.
    _alive: Sender<()>,
}

impl PodsFile {
    /// Starts to read it.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn watch(path: &Path) -> std::io::Result<Self> {
        Self::watch_every(path, EVERY)
    }

    fn watch_every(path: &Path, pause: Duration) -> std::io::Result<Self> {
        let news = Arc::new(Mutex::new(None));
        let (alive, ended) = channel();
        let mut file = Watched { path: path.to_owned(), stamp: None, trouble: None };
        let told = Arc::clone(&news);
        let watch = move || {
            loop {
                if let Some(read) = file.look() {
                    *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
                }
                if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("pods".to_owned()).stack_size(512 * 1024).spawn(watch)?;
        Ok(Self { news, _alive: alive })
    }

    /// What was read since the last call; nothing when the file is as it was.
    #[must_use]
    pub fn news(&self) -> Option<Read> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    stamp: Option<Stamp>,
    /// What was said last of why it cannot be used.
    trouble: Option<String>,
}

impl Watched {
    /// Reads the file where it has changed. The same trouble is told once.
    fn look(&mut self) -> Option<Read> {
        let read = match self.read() {
            Ok(None) => return None,
            Ok(Some(specs)) => Ok(specs),
            Err(reason) => Err(format!("{}: {reason}", self.path.display())),
        };
        let trouble = read.as_ref().err().cloned();
        let is_new = trouble.is_none() || trouble != self.trouble;
        self.trouble = trouble;
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
        let mut bytes = Vec::new();
        let read = std::fs::File::open(&self.path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
        read.map_err(unreadable)?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > LARGEST) {
            return Err(format!("larger than {} MiB: only the pods of this node belong there; {FIX}", LARGEST >> 20));
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
    fn pods_are_found_by_uid_and_static_ones_by_that_of_their_mirror() {
        let specs = PodSpecs::parse(LIST).unwrap();
        assert_eq!(
            ["u-1", "u-2", "hash", "u-3", ""].map(|uid| name(&specs, uid)),
            [Some("a"), None, Some("b"), None, None]
        );
        assert_eq!(PodSpecs::parse(r#"{"kind": "PodList", "items": null}"#), Ok(PodSpecs::default()));
    }

    #[test]
    fn the_file_tells_by_what_the_operator_protects() {
        let specs = PodSpecs::parse(
            r#"{"kind": "List", "items": [{"metadata": {"uid": "u-1", "annotations": {"example.com/keep": "yes"}}}]}"#,
        );
        assert_eq!(specs.unwrap().pods()[0].annotation("example.com/keep"), Some("yes"));
    }

    #[test]
    fn what_is_no_list_of_pods_is_said() {
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
    fn the_file_is_read_when_it_has_changed_and_its_trouble_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pods.json");
        let mut file = Watched { path: path.clone(), stamp: None, trouble: None };
        assert!(file.look().unwrap().unwrap_err().contains("kubectl get pods"));
        assert_eq!(file.look(), None, "said once");
        std::fs::write(&path, LIST).unwrap();
        assert_eq!(name(&file.look().unwrap().unwrap(), "u-1"), Some("a"));
        assert_eq!(file.look(), None, "as it was");
        std::fs::write(&path, "{\"kind\": ").unwrap();
        assert!(file.look().unwrap().is_err());
        // Put in its place by a rename, as careful writers do.
        let next = directory.path().join("next");
        std::fs::write(&next, LIST).unwrap();
        std::fs::rename(&next, &path).unwrap();
        assert!(file.look().unwrap().is_ok());
        std::fs::remove_file(&path).unwrap();
        assert!(file.look().unwrap().is_err());
    }

    #[test]
    fn a_thread_looks_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pods.json");
        std::fs::write(&path, LIST).unwrap();
        let file = PodsFile::watch_every(&path, Duration::from_millis(1)).unwrap();
        let begun = std::time::Instant::now();
        let read = loop {
            if let Some(read) = file.news() {
                break read;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "nothing was read");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(read.unwrap().pods().len(), 2);
        assert_eq!(file.news(), None);
    }
}
