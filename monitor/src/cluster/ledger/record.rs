//! The lines of the ledger. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::evictions::intent::{Intent, Progress};
use crate::units::Monotonic;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    pub intent: Intent,
    pub progress: Progress,
    /// An earlier agent began it.
    pub is_resumed: bool,
}

/// A second decision about a pod that follows the first by less than this is about the same end.
const SAME_END: Duration = Duration::from_secs(5);

impl Unfinished {
    /// Returns whether a later kill of the pod makes this one obsolete: the kubelet has restarted it in between.
    pub(super) fn is_followed_by(&self, later: &Intent) -> bool {
        let passed = Monotonic(later.decided_mono_ns).since(Monotonic(self.intent.decided_mono_ns));
        later.is_certain && !self.progress.removed && passed >= SAME_END
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub(super) enum Record {
    Intent {
        /// The id of the boot: pods that were killed in an earlier boot have been restarted since.
        boot: String,
        intent: Intent,
    },
    Progress {
        uid: String,
        #[serde(flatten)]
        progress: Progress,
    },
    End {
        uid: String,
        /// The intent's `decided_mono_ns`: a newer intent for the same pod is not ended.
        decided: u64,
    },
}

impl Record {
    pub(super) fn line(&self) -> String {
        // Text and numbers always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Returns the evictions that the lines leave unfinished. Lines that cannot be read, and those of another boot, are ignored.
pub(super) fn replay(text: &str, boot: &str) -> BTreeMap<String, Unfinished> {
    let mut open = BTreeMap::new();
    for record in text.lines().filter_map(|line| serde_json::from_str::<Record>(line).ok()) {
        match record {
            Record::Intent { boot: of, intent } if of == boot && intent.has_plain_names() => {
                let uid = intent.uid.clone();
                let progress = open.get(&uid).map(|known: &Unfinished| known.progress).unwrap_or_default();
                open.insert(uid, Unfinished { intent: intent.bounded(), progress, is_resumed: true });
            }
            Record::Intent { .. } => {}
            Record::Progress { uid, progress } => {
                if let Some(open) = open.get_mut(&uid) {
                    open.progress = progress;
                }
            }
            Record::End { uid, decided } => {
                if open.get(&uid).is_some_and(|open| open.intent.decided_mono_ns == decided) {
                    open.remove(&uid);
                }
            }
        }
    }
    open
}

/// Returns the lines from which one unfinished eviction is read again.
pub(super) fn text_of(open: &Unfinished, boot: &str) -> String {
    let intent = Record::Intent { boot: boot.to_owned(), intent: open.intent.clone() };
    let progress = Record::Progress { uid: open.intent.uid.clone(), progress: open.progress };
    format!("{}\n{}\n", intent.line(), progress.line())
}
