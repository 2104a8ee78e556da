//! Lists objects of one kind once, then watches them, as every Kubernetes client does, with little memory.
//!
//! A list is split into its objects as it comes in, and of each object only the needed fields are kept. A watch resumes where the last one
//! ended. If the API server has forgotten that resource version (410), or its store was restored from a backup and is older, everything is
//! listed again. Objects that a complete list does not name do not exist any more.
//!
//! A 410 may reach the agents of all nodes in the same second. So they wait for different times, and list from the API server's cache.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::workloads::json_defaults::or_default;

use super::api_answer::{self, AnswerBody, Refusal};
use super::api_client::{Context, Timeouts};
use super::backoff::{Backoff, jittered};
use super::list_stream::ListStream;

const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A watch that has lasted this long resets the backoff when it ends.
const HELD: Duration = Duration::from_secs(5);
/// The API server is asked to end a watch after half of this to all of it, as client-go asks: agents spread over its replicas anew.
const WATCH_TIME: Duration = Duration::from_secs(600);
/// Changes within this time are taken together: a wake-up for each costs more than to read it.
const BATCH_TIME: Duration = Duration::from_millis(200);
/// Bytes; a line of a watch holds one object.
const LONGEST_LINE: usize = 8 << 20;

/// Keeps the objects of one kind.
pub(super) trait Reflector {
    /// The collection: `/api/v1/pods`.
    const PATH: &'static str;
    /// The objects are so few that they are listed again whenever a watch has ended.
    const IS_SMALL: bool;

    fn field_selector(&self) -> String;
    fn begin(&mut self);
    fn listed(&mut self, object: &[u8]);
    fn end(&mut self);
    /// Takes a new or changed object; returns its resource version.
    fn put(&mut self, object: &str) -> Option<String>;
    /// Removes a deleted object; returns the resource version of the deletion.
    fn remove(&mut self, object: &str) -> Option<String>;
    /// The API server has sent something, if only a bookmark.
    fn answered(&mut self);
    /// A request has failed, for the `times`th time in a row.
    fn failed(&mut self, refusal: &Refusal, times: u32);
    /// Returns when to publish the changes, if there are any.
    fn due(&self) -> Option<Instant> {
        None
    }
    fn publish(&mut self) {}
    /// Returns when everything must be listed again because the options have changed. Cancel-safe.
    async fn outdated(&mut self) {
        std::future::pending::<()>().await;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    List(Source),
    /// Watch from this resource version after checking that the store is not older.
    Resume(String),
    Watch(String),
}

/// Where the API server reads a list.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// Its cache, which costs it much less than the store.
    Cache,
    /// Its cache, if that is not older than this resource version.
    CacheSince(String),
    Store,
}

impl Source {
    /// Returns where to list after a refusal. A cache that is older than wanted, for instance because the store was restored from a backup,
    /// is refused with a timeout: `Too large resource version`.
    fn after(self, refusal: &Refusal) -> Self {
        match (&self, refusal.status) {
            (Self::CacheSince(_), Some(StatusCode::GATEWAY_TIMEOUT | StatusCode::GONE | StatusCode::BAD_REQUEST)) => {
                Self::Store
            }
            _ => self,
        }
    }

    fn query(&self) -> String {
        let version = match self {
            Self::Cache => "0",
            Self::CacheSince(version) => version,
            Self::Store => return String::new(),
        };
        format!("&resourceVersion={}&resourceVersionMatch=NotOlderThan", escaped(version))
    }
}

/// Lists and watches for ever.
pub(super) async fn run(context: &Context, reflector: &mut impl Reflector) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let (mut next, mut failures) = (Next::List(Source::Cache), 0_u32);
    loop {
        let begun = Instant::now();
        // A successful check of the store's version does not mean that the refused request will work.
        let is_check = matches!(next, Next::Resume(_));
        let (then, outcome) = step(context, reflector, next).await;
        next = then;
        if outcome.is_ok() && begun.elapsed() >= HELD {
            backoff.reset();
        }
        if outcome.is_ok() && !is_check {
            failures = 0;
        }
        match outcome {
            Ok(Wait::None) => {}
            Ok(Wait::Backoff) => tokio::time::sleep(backoff.next_wait(None)).await,
            Ok(Wait::Spread) => {
                let wait = spread(context.server.timeouts().spread) + backoff.next_wait(None);
                tokio::time::sleep(wait).await;
            }
            Err(refusal) => {
                failures = failures.saturating_add(1);
                reflector.failed(&refusal, failures);
                if refusal.status.is_none() || refusal.status == Some(StatusCode::UNAUTHORIZED) {
                    context.server.renew().await;
                }
                let own = backoff.next_wait(None);
                tokio::time::sleep(refusal.wait.map_or(own, |wait| wait + jittered(FIRST_WAIT))).await;
            }
        }
    }
}

enum Wait {
    None,
    Backoff,
    /// Agents of all nodes may have to list at the same time.
    Spread,
}

/// Returns a random wait of at most `longest`.
fn spread(longest: Duration) -> Duration {
    (jittered(longest) - longest / 2).saturating_mul(2)
}

async fn step<R: Reflector>(context: &Context, reflector: &mut R, next: Next) -> (Next, Result<Wait, Refusal>) {
    match next {
        Next::List(source) => match list(context, reflector, &source).await {
            Ok(version) => (Next::Watch(version), Ok(Wait::None)),
            Err(refusal) => (Next::List(source.after(&refusal)), Err(refusal)),
        },
        Next::Resume(_) if R::IS_SMALL => (Next::List(Source::Cache), Ok(Wait::Backoff)),
        Next::Resume(version) => match store_version(context).await {
            Ok(now) if is_older(&now, &version) => {
                tracing::warn!(
                    event = "store_went_back",
                    version,
                    now,
                    "the API server's store is older than what was read from it; everything is listed again"
                );
                (Next::List(Source::Store), Ok(Wait::Spread))
            }
            Ok(_) => (Next::Watch(version), Ok(Wait::None)),
            // The version cannot be read.
            Err(refusal) if refusal.status.is_some_and(|status| status.is_client_error()) => {
                (Next::List(Source::Cache), Ok(Wait::Backoff))
            }
            Err(refusal) => (Next::Resume(version), Err(refusal)),
        },
        Next::Watch(version) => watch(context, reflector, version).await,
    }
}

/// Lists everything; returns the list's resource version.
async fn list<R: Reflector>(context: &Context, reflector: &mut R, source: &Source) -> Result<String, Refusal> {
    reflector.begin();
    let selector = escaped(&reflector.field_selector());
    let mut path = format!("{}?fieldSelector={selector}{}", R::PATH, source.query());
    loop {
        let meta = page(context, &path, |item| reflector.listed(item)).await?;
        if meta.next.is_empty() {
            reflector.end();
            reflector.publish();
            reflector.answered();
            return Ok(meta.resource_version);
        }
        path = format!("{}?fieldSelector={selector}&continue={}", R::PATH, escaped(&meta.next));
    }
}

async fn page(context: &Context, path: &str, mut take: impl FnMut(&[u8])) -> Result<Meta, Refusal> {
    let Timeouts { answer, .. } = context.server.timeouts();
    let mut body = api_answer::get(&context.client, path, answer).await?;
    let mut items = ListStream::default();
    loop {
        let late = |_| Refusal::unanswered(format!("the list stopped half-way for {} s", answer.as_secs_f64()));
        match tokio::time::timeout(answer, body.next()).await.map_err(late)? {
            Some(Ok(piece)) => items.push(&piece, &mut take).map_err(Refusal::unanswered)?,
            Some(Err(reason)) => return Err(Refusal::unanswered(reason)),
            None => break,
        }
    }
    let frame = items.end().map_err(Refusal::unanswered)?;
    let list: Frame = serde_json::from_slice(&frame)
        .map_err(|error| Refusal::unanswered(format!("the answer is no list: {error}")))?;
    Ok(list.metadata)
}

/// Returns the store's resource version. A node listed by name is read from the store itself, one object alone.
async fn store_version(context: &Context) -> Result<String, Refusal> {
    let selector = escaped(&format!("metadata.name={}", context.node_name));
    let meta = page(context, &format!("/api/v1/nodes?fieldSelector={selector}"), |_| {}).await?;
    Ok(meta.resource_version)
}

/// Compares resource versions as numbers, which Kubernetes 1.35 specifies (KEP-5504) and earlier versions allowed in practice. A version
/// that is no number is not older.
fn is_older(now: &str, seen: &str) -> bool {
    matches!((now.parse::<u64>(), seen.parse::<u64>()), (Ok(now), Ok(seen)) if now < seen)
}

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

/// Watches from `version` on, until the server ends the watch.
async fn watch<R: Reflector>(context: &Context, reflector: &mut R, version: String) -> (Next, Result<Wait, Refusal>) {
    let Timeouts { answer, silence, .. } = context.server.timeouts();
    let path = format!(
        "{}?fieldSelector={}&watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
        R::PATH,
        escaped(&reflector.field_selector()),
        escaped(&version),
        jittered(WATCH_TIME).as_secs()
    );
    let mut body = match api_answer::get(&context.client, &path, answer).await {
        Ok(body) => body,
        Err(refusal) if refusal.is_gone() => return (Next::List(Source::CacheSince(version)), Ok(Wait::Spread)),
        Err(refusal) => return (Next::Resume(version), Err(refusal)),
    };
    reflector.answered();
    let mut lines = Lines { version, waiting: Vec::new() };
    let mut silent_at = Instant::now() + silence;
    let mut taken = None;
    loop {
        let due = reflector.due();
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(due.unwrap_or(silent_at)), if due.is_some() => reflector.publish(),
            () = reflector.outdated() => return (Next::List(Source::Cache), Ok(Wait::None)),
            piece = next_piece(&mut body, taken) => {
                taken = Some(Instant::now());
                let Some(Ok(piece)) = piece else {
                    // The server or the connection has ended; the next request finds out which.
                    reflector.publish();
                    return (Next::Resume(lines.version), Ok(Wait::Backoff));
                };
                silent_at = Instant::now() + silence;
                reflector.answered();
                if let Err(end) = lines.take(&piece, reflector) {
                    reflector.publish();
                    return match end {
                        End::Gone => (Next::List(Source::CacheSince(lines.version)), Ok(Wait::Spread)),
                        End::Unreadable(reason) => {
                            (Next::List(Source::CacheSince(lines.version)), Err(Refusal::unanswered(reason)))
                        }
                        End::Refused(refusal) => (Next::Resume(lines.version), Err(refusal)),
                    };
                }
            }
            // No bookmark within the timeout: the connection is dead.
            () = tokio::time::sleep_until(silent_at) => return (Next::Resume(lines.version), Ok(Wait::None)),
        }
    }
}

/// Returns the next piece of a watch. Soon after the last piece it waits, so that changes come together. Cancel-safe.
async fn next_piece(body: &mut AnswerBody, taken: Option<Instant>) -> Option<Result<Bytes, String>> {
    // The task that reads from the connection needs its turn.
    tokio::task::yield_now().await;
    tokio::select! {
        biased;
        piece = body.next() => return piece,
        () = std::future::ready(()) => {}
    }
    if taken.is_some_and(|taken| taken.elapsed() < BATCH_TIME) {
        // Blocks the whole thread, which only watches: an asynchronous sleep would still wake it for each packet.
        std::thread::sleep(BATCH_TIME);
    }
    body.next().await
}

/// Why a watch cannot continue.
enum End {
    /// The server has forgotten the resource version (410).
    Gone,
    Refused(Refusal),
    /// The text is no watch.
    Unreadable(String),
}

/// The text of a watch, one event a line.
struct Lines {
    /// The resource version up to which everything is taken in.
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

impl Lines {
    fn take(&mut self, piece: &[u8], reflector: &mut impl Reflector) -> Result<(), End> {
        self.waiting.extend_from_slice(piece);
        let mut begin = 0;
        while let Some(length) = self.waiting[begin..].iter().position(|byte| *byte == b'\n') {
            let line = self.waiting[begin..begin + length].trim_ascii();
            begin += length + 1;
            if !line.is_empty()
                && let Some(version) = event(line, reflector)?
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
fn event(line: &[u8], reflector: &mut impl Reflector) -> Result<Option<String>, End> {
    let unreadable = |error: &dyn std::fmt::Display| End::Unreadable(format!("the watch cannot be read: {error}"));
    let Line { kind, object } = serde_json::from_slice(line).map_err(|error| unreadable(&error))?;
    let object = object.get();
    Ok(match kind {
        "ADDED" | "MODIFIED" => reflector.put(object),
        "DELETED" => reflector.remove(object),
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

/// Percent-encodes a value of a query.
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
