//! The text of a watch: one event a line.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::workloads::json_defaults::or_default;

use super::api_answer::{self, Refusal};

/// Bytes; a line of a watch holds one object.
const LONGEST_LINE: usize = 8 << 20;

/// A bookmark, an object of which no more is needed, or what is around the items of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Frame {
    #[serde(deserialize_with = "or_default")]
    pub(super) metadata: Meta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta {
    #[serde(deserialize_with = "or_default")]
    pub(super) uid: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) resource_version: String,
    /// Of a list that has more pages.
    #[serde(rename = "continue", deserialize_with = "or_default")]
    pub(super) next: String,
}

/// A change of one object, as JSON.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change<'a> {
    /// The object is new or has changed.
    Put(&'a str),
    Removed(&'a str),
}

/// Why a watch cannot continue.
#[derive(Debug)]
pub(super) enum End {
    /// The server has forgotten the resource version (410).
    Gone,
    Refused(Refusal),
    /// The text is no watch.
    Unreadable(String),
}

/// The part of the text that has come in.
#[derive(Debug)]
pub(super) struct WatchStream {
    /// The resource version up to which everything is taken in.
    pub(super) version: String,
    /// The begin of a line.
    waiting: Vec<u8>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl WatchStream {
    /// Returns the text of a watch from this resource version on.
    pub(super) const fn from(version: String) -> Self {
        Self { version, waiting: Vec::new() }
    }

    /// Takes more of the text. Calls `apply` with each change, which returns the resource version of the change.
    pub(super) fn take(
        &mut self,
        piece: &[u8],
        mut apply: impl FnMut(Change<'_>) -> Option<String>,
    ) -> Result<(), End> {
        self.waiting.extend_from_slice(piece);
        let mut begin = 0;
        while let Some(length) = self.waiting[begin..].iter().position(|byte| *byte == b'\n') {
            let line = self.waiting[begin..begin + length].trim_ascii();
            begin += length + 1;
            if !line.is_empty()
                && let Some(version) = event(line, &mut apply)?
            {
                self.version = version;
            }
        }
        self.waiting.drain(..begin);
        if self.waiting.len() > LONGEST_LINE {
            return Err(End::Unreadable("a line of the watch is longer than any object".to_owned()));
        }
        Ok(())
    }
}

/// Takes in one event; returns its resource version.
fn event(line: &[u8], apply: &mut impl FnMut(Change<'_>) -> Option<String>) -> Result<Option<String>, End> {
    let unreadable = |error: &dyn std::fmt::Display| End::Unreadable(format!("the watch cannot be read: {error}"));
    let Line { kind, object } = serde_json::from_slice(line).map_err(|error| unreadable(&error))?;
    let object = object.get();
    Ok(match kind {
        "ADDED" | "MODIFIED" => apply(Change::Put(object)),
        "DELETED" => apply(Change::Removed(object)),
        "BOOKMARK" => {
            let bookmark: Frame = serde_json::from_str(object).map_err(|error| unreadable(&error))?;
            Some(bookmark.metadata.resource_version)
        }
        "ERROR" => {
            let status = serde_json::from_str(object).unwrap_or_default();
            let refusal = Refusal::from_status(api_answer::code_of(&status), &status);
            return Err(if refusal.is_gone() { End::Gone } else { End::Refused(refusal) });
        }
        // A type of a later Kubernetes.
        _ => None,
    }
    .filter(|version| !version.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the changes.
    fn record(changes: &mut Vec<String>) -> impl FnMut(Change<'_>) -> Option<String> {
        |change| {
            let (sign, object, version) = match change {
                Change::Put(object) => ('+', object, "8"),
                Change::Removed(object) => ('-', object, "9"),
            };
            changes.push(format!("{sign}{object}"));
            Some(version.to_owned())
        }
    }

    fn stream() -> WatchStream {
        WatchStream::from("1".to_owned())
    }

    #[test]
    fn events_are_read_wherever_the_text_breaks() {
        let text = concat!(
            r#"{"type":"ADDED","object":{"a":1},"new":[{}]}"#,
            "\n\n",
            r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"12","annotations":{}}}}"#,
            "\r\n",
            r#"{"object":{"b":2},"type":"DELETED"}"#,
            "\n",
            r#"{"type":"LATER","object":{}}"#,
            "\n",
        );
        for step in 1..text.len() {
            let (mut stream, mut changes) = (stream(), Vec::new());
            for piece in text.as_bytes().chunks(step) {
                assert!(stream.take(piece, record(&mut changes)).is_ok());
            }
            assert_eq!(changes, [r#"+{"a":1}"#, r#"-{"b":2}"#]);
            assert_eq!((stream.version.as_str(), stream.waiting.len()), ("9", 0));
        }
    }

    #[test]
    fn a_forgotten_version_differs_from_other_errors() {
        let error = |object: &str| {
            let line = format!("{{\"type\":\"ERROR\",\"object\":{object}}}\n");
            stream().take(line.as_bytes(), |_| None).err()
        };
        assert!(matches!(error(r#"{"kind":"Status","code":410,"reason":"Expired"}"#), Some(End::Gone)));
        assert!(
            matches!(error(r#"{"code":500,"message":"etcd"}"#), Some(End::Refused(refusal)) if refusal.reason.contains("etcd"))
        );
        let end = stream().take(b"<html>\n", |_| None);
        assert!(matches!(end, Err(End::Unreadable(_))));
    }

    #[test]
    fn an_incomplete_event_is_ignored() {
        let (mut stream, mut changes) = (stream(), Vec::new());
        assert!(stream.take(br#"{"type":"ADDED","object":{"a":1}"#, record(&mut changes)).is_ok());
        assert_eq!((changes.len(), stream.version.as_str()), (0, "1"));
    }
}
