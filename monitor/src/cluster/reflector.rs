//! Objects of one kind, listed once and then watched: what every client of Kubernetes does, with little in memory.
//!
//! A list is cut into its objects as it comes in, and a change is read into what is kept of it; nothing else of either stays. A watch goes on
//! where the last one ended. Where the server has forgotten that place (410), or has lost its store and is younger than it, everything is
//! listed again. What a whole list does not name is gone: a list that was read to its end is the truth.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::workloads::json_defaults::or_default;

use super::api_answer::{self as request, Refusal, Status, Text};
use super::api_client::Timeouts;
use super::api_threads::Context;
use super::backoff::{Backoff, jittered};
use super::list_stream::Items;

const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A watch that has held for so long is no sign of trouble when it ends.
const HELD: Duration = Duration::from_secs(5);
/// The server is asked to end a watch after half of this to this, as client-go asks it: so agents spread over its replicas anew.
const WATCH_SECONDS: Duration = Duration::from_secs(600);
/// While one change follows the other they are taken together so often: to wake up for each costs more than to read it.
const TOGETHER: Duration = Duration::from_millis(200);
/// One line of a watch holds one object.
const LONGEST_LINE: usize = 8 << 20;

/// Who keeps what is followed.
pub(super) trait Reflector {
    /// Where the objects are: `/api/v1/pods`.
    const PATH: &'static str;
    /// So few that they are simply listed again when a watch has ended.
    const IS_SMALL: bool;

    /// Which of them.
    fn field_selector(&self) -> String;
    /// A list begins.
    fn begin(&mut self);
    /// One object of it.
    fn listed(&mut self, object: &[u8]);
    /// The list was whole.
    fn end(&mut self);
    /// An object is new, or another than before; its resource version.
    fn put(&mut self, object: &str) -> Option<String>;
    /// An object is gone; the resource version of that.
    fn remove(&mut self, object: &str) -> Option<String>;
    /// The server has said something, if only that all is as it was.
    fn heard(&mut self);
    /// It did not do what was asked of it, so many times in a row.
    fn failed(&mut self, refusal: &Refusal, times: u32);
    /// When what has changed is to be told, if something has.
    fn due(&self) -> Option<Instant>;
    /// Tells it.
    fn publish(&mut self);
    /// Returns when other objects, or more of them, are wanted, so that they have to be listed again. Cancel-safe.
    async fn outdated(&mut self);
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    /// List everything. `latest`: what the store holds; else what the server remembers of it will do, which costs it much less.
    List { latest: bool },
    /// Go on from that resource version, once it is certain that the store is no younger.
    Resume(String),
    /// Go on from that resource version.
    Watch(String),
}

/// Follows them for ever.
pub(super) async fn follow(context: &Context, mirror: &mut impl Reflector) {
    let mut patience = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let (mut next, mut failures) = (Next::List { latest: false }, 0_u32);
    loop {
        let begun = Instant::now();
        // That the store can be asked how old it is does not make what was refused before possible.
        let is_check = matches!(next, Next::Resume(_));
        let (then, outcome) = step(context, mirror, next).await;
        next = then;
        if outcome.is_ok() && begun.elapsed() >= HELD {
            patience.reset();
        }
        if outcome.is_ok() && !is_check {
            failures = 0;
        }
        match outcome {
            Ok(Wait::None) => {}
            Ok(Wait::ALittle) => tokio::time::sleep(patience.after_failure(None)).await,
            Err(refusal) => {
                failures = failures.saturating_add(1);
                mirror.failed(&refusal, failures);
                if refusal.status.is_none() || refusal.status == Some(StatusCode::UNAUTHORIZED) {
                    // Certificates and tokens are renewed by others, and servers move.
                    context.server.renew().await;
                }
                let own = patience.after_failure(None);
                tokio::time::sleep(refusal.wait.map_or(own, |wait| wait + jittered(FIRST_WAIT))).await;
            }
        }
    }
}

/// How long to wait before what is next.
enum Wait {
    None,
    ALittle,
}

async fn step<M: Reflector>(context: &Context, mirror: &mut M, next: Next) -> (Next, Result<Wait, Refusal>) {
    match next {
        Next::List { latest } => match list(context, mirror, latest).await {
            Ok(version) => (Next::Watch(version), Ok(Wait::None)),
            Err(refusal) => (Next::List { latest }, Err(refusal)),
        },
        Next::Resume(_) if M::IS_SMALL => (Next::List { latest: false }, Ok(Wait::ALittle)),
        Next::Resume(version) => match store_version(context).await {
            Ok(now) if is_older(&now, &version) => {
                tracing::warn!(
                    event = "store_went_back",
                    version,
                    now,
                    "the API server's store is younger than what was seen of it: everything is listed again"
                );
                (Next::List { latest: true }, Ok(Wait::None))
            }
            Ok(_) => (Next::Watch(version), Ok(Wait::None)),
            // It cannot be told.
            Err(refusal) if refusal.status.is_some_and(|status| status.is_client_error()) => {
                (Next::List { latest: false }, Ok(Wait::ALittle))
            }
            Err(refusal) => (Next::Resume(version), Err(refusal)),
        },
        Next::Watch(version) => watch(context, mirror, version).await,
    }
}

/// Lists everything; the resource version as of which that is.
async fn list<M: Reflector>(context: &Context, mirror: &mut M, latest: bool) -> Result<String, Refusal> {
    mirror.begin();
    let selector = escaped(&mirror.field_selector());
    let cached = if latest { "" } else { "&resourceVersion=0&resourceVersionMatch=NotOlderThan" };
    let mut path = format!("{}?fieldSelector={selector}{cached}", M::PATH);
    loop {
        let meta = page(context, &path, |item| mirror.listed(item)).await?;
        if meta.after.is_empty() {
            mirror.end();
            mirror.publish();
            mirror.heard();
            return Ok(meta.resource_version);
        }
        path = format!("{}?fieldSelector={selector}&continue={}", M::PATH, escaped(&meta.after));
    }
}

/// Reads one page of a list.
async fn page(context: &Context, path: &str, mut take: impl FnMut(&[u8])) -> Result<ListMeta, Refusal> {
    let Timeouts { answer, .. } = context.server.timeouts();
    let mut text = request::get(&context.client, path, answer).await?;
    let mut items = Items::default();
    loop {
        let late = |_| Refusal::unanswered(format!("the list stopped half-way for {} s", answer.as_secs_f64()));
        match tokio::time::timeout(answer, text.next()).await.map_err(late)? {
            Some(Ok(piece)) => items.push(&piece, &mut take).map_err(Refusal::unanswered)?,
            Some(Err(reason)) => return Err(Refusal::unanswered(reason)),
            None => break,
        }
    }
    let frame = items.end().map_err(Refusal::unanswered)?;
    let list: ListFrame = serde_json::from_slice(&frame)
        .map_err(|error| Refusal::unanswered(format!("the list is not what was asked for: {error}")))?;
    Ok(list.metadata)
}

/// As of which resource version the store is now. Nodes by their name are read from the store itself, one object alone.
async fn store_version(context: &Context) -> Result<String, Refusal> {
    let selector = escaped(&format!("metadata.name={}", context.node_name));
    let meta = page(context, &format!("/api/v1/nodes?fieldSelector={selector}"), |_| {}).await?;
    Ok(meta.resource_version)
}

/// Resource versions are compared as numbers, as Kubernetes 1.35 allows for (KEP-5504) and always was; what is no number is not older.
fn is_older(now: &str, seen: &str) -> bool {
    matches!((now.parse::<u64>(), seen.parse::<u64>()), (Ok(now), Ok(seen)) if now < seen)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListFrame {
    #[serde(deserialize_with = "or_default")]
    metadata: ListMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    #[serde(deserialize_with = "or_default")]
    resource_version: String,
    #[serde(rename = "continue", deserialize_with = "or_default")]
    after: String,
}

/// Watches from `version` on, until the server ends it.
async fn watch<M: Reflector>(context: &Context, mirror: &mut M, version: String) -> (Next, Result<Wait, Refusal>) {
    let Timeouts { answer, silence } = context.server.timeouts();
    let path = format!(
        "{}?fieldSelector={}&watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
        M::PATH,
        escaped(&mirror.field_selector()),
        escaped(&version),
        jittered(WATCH_SECONDS).as_secs()
    );
    let mut text = match request::get(&context.client, &path, answer).await {
        Ok(text) => text,
        Err(refusal) if refusal.is_gone() => return (Next::List { latest: true }, Ok(Wait::ALittle)),
        Err(refusal) => return (Next::Resume(version), Err(refusal)),
    };
    mirror.heard();
    let mut lines = Lines { version, waiting: Vec::new() };
    let mut silent_at = Instant::now() + silence;
    let mut taken = None;
    loop {
        let due = mirror.due();
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(due.unwrap_or(silent_at)), if due.is_some() => mirror.publish(),
            () = mirror.outdated() => return (Next::List { latest: false }, Ok(Wait::None)),
            piece = next_piece(&mut text, taken) => {
                taken = Some(Instant::now());
                let Some(Ok(piece)) = piece else {
                    // The server has ended it, or the way there is cut: what comes of asking again tells.
                    mirror.publish();
                    return (Next::Resume(lines.version), Ok(Wait::ALittle));
                };
                silent_at = Instant::now() + silence;
                mirror.heard();
                if let Err(end) = lines.take(&piece, mirror) {
                    mirror.publish();
                    return match end {
                        End::Gone => (Next::List { latest: true }, Ok(Wait::ALittle)),
                        End::Unreadable(reason) => (Next::List { latest: true }, Err(Refusal::unanswered(reason))),
                        End::Refused(refusal) => (Next::Resume(lines.version), Err(refusal)),
                    };
                }
            }
            // Bookmarks come about once a minute to who asks for them: this connection is dead, and nobody has told.
            () = tokio::time::sleep_until(silent_at) => return (Next::Resume(lines.version), Ok(Wait::None)),
        }
    }
}

/// The next piece of a watch; soon after the last one what comes meanwhile is waited for. Cancel-safe.
async fn next_piece(text: &mut Text, taken: Option<Instant>) -> Option<Result<Bytes, String>> {
    // Whoever reads from the connection has to have its turn.
    tokio::task::yield_now().await;
    tokio::select! {
        biased;
        piece = text.next() => return piece,
        () = std::future::ready(()) => {}
    }
    if taken.is_some_and(|taken| taken.elapsed() < TOGETHER) {
        // The whole thread, which only listens: otherwise it wakes up for whatever comes in, and be it to do nothing.
        std::thread::sleep(TOGETHER);
    }
    text.next().await
}

/// Why a watch is over before its end.
enum End {
    /// The server has forgotten where it was to go on from.
    Gone,
    /// Something else is wrong with it.
    Refused(Refusal),
    /// What came is no watch.
    Unreadable(String),
}

/// A watch's text, one event a line.
struct Lines {
    /// As of which resource version everything was taken in.
    version: String,
    waiting: Vec<u8>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Bookmark {
    #[serde(deserialize_with = "or_default")]
    metadata: ListMeta,
}

impl Lines {
    fn take(&mut self, piece: &[u8], mirror: &mut impl Reflector) -> Result<(), End> {
        self.waiting.extend_from_slice(piece);
        let mut begin = 0;
        while let Some(length) = self.waiting[begin..].iter().position(|byte| *byte == b'\n') {
            let line = self.waiting[begin..begin + length].trim_ascii();
            begin += length + 1;
            if !line.is_empty()
                && let Some(version) = event(line, mirror)?
            {
                self.version = version;
            }
        }
        self.waiting.drain(..begin);
        if self.waiting.len() > LONGEST_LINE {
            return Err(End::Unreadable("a line of the watch is longer than any object may be".to_owned()));
        }
        Ok(())
    }
}

/// Takes in one event; the resource version that it brings.
fn event(line: &[u8], mirror: &mut impl Reflector) -> Result<Option<String>, End> {
    let unreadable = |error: &dyn std::fmt::Display| End::Unreadable(format!("the watch is not readable: {error}"));
    let Line { kind, object } = serde_json::from_slice(line).map_err(|error| unreadable(&error))?;
    let object = object.get();
    Ok(match kind {
        "ADDED" | "MODIFIED" => mirror.put(object),
        "DELETED" => mirror.remove(object),
        "BOOKMARK" => {
            let bookmark: Bookmark = serde_json::from_str(object).map_err(|error| unreadable(&error))?;
            Some(bookmark.metadata.resource_version)
        }
        "ERROR" => {
            let refusal = serde_json::from_str::<Status>(object).unwrap_or_default().refusal();
            return Err(if refusal.is_gone() { End::Gone } else { End::Refused(refusal) });
        }
        // What it may be tells nothing of the objects.
        _ => None,
    }
    .filter(|version| !version.is_empty()))
}

/// For the value of a query: everything but what never means anything there.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
#[path = "reflector_tests.rs"]
mod tests;
