//! The lines of the ledger. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Unfinished;
use crate::cluster::evictions::{Intent, Progress};

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub(super) enum Record {
    /// A pod is about to go.
    Intent {
        /// In which boot: what was killed in an earlier one has been started anew since.
        boot: String,
        /// What was decided.
        intent: Intent,
    },
    /// So much has been done.
    Progress {
        /// Of which pod.
        uid: String,
        /// What.
        #[serde(flatten)]
        progress: Progress,
    },
    /// Nothing is left to do.
    End {
        /// With which pod.
        uid: String,
        /// And which decision about it.
        decided: u64,
    },
}

impl Record {
    /// Without the end of the line. Text and numbers can always be written as JSON.
    pub(super) fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What the lines leave unfinished. What cannot be read, or was decided in another boot, is left out.
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

/// The lines that say what is not finished of one.
pub(super) fn text_of(open: &Unfinished, boot: &str) -> String {
    let intent = Record::Intent { boot: boot.to_owned(), intent: open.intent.clone() };
    let progress = Record::Progress { uid: open.intent.uid.clone(), progress: open.progress };
    format!("{}\n{}\n", intent.line(), progress.line())
}
