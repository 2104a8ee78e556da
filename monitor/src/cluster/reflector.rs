//! Lists objects of one kind once, then watches them, as every Kubernetes client does, with little memory.
//!
//! A list is split into its objects as it comes in, and of each object only the needed fields are kept. Objects that a complete list does
//! not name do not exist any more.
//!
//! A watch resumes where the last one ended, by one request. Everything is listed again if the API server has forgotten that resource
//! version (410), or if its store was restored from a backup and is older. A watch of an older store stays silent until the store has
//! reached the version, and misses the changes before. So the versions are compared after an outage, which a restore needs, after a
//! silence, and after repeated refusals.
//!
//! A 410, or the end of an API server, may reach the agents of all nodes in the same second. So they wait for different times, and list
//! from the API server's cache. The end that a watch has asked for differs from agent to agent, and is followed by the next watch at once.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::Instant;

use super::api_answer::{self, AnswerBody, Refusal};
use super::api_client::{Context, Timeouts};
use super::backoff::{Backoff, jittered, spread};
use super::list_page::{self, escaped};
use super::resource_version::is_older;
use super::watch_stream::{Change, End, Meta, WatchStream};

const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A watch that has lasted this long resets the backoff when it ends.
const HELD: Duration = Duration::from_secs(5);
/// The API server is asked to end a watch after half of this to all of it, as client-go asks: agents spread over its replicas anew.
const WATCH_TIME: Duration = Duration::from_secs(600);
/// Changes within this time are taken together: a wake-up for each costs more than to read it. While an eviction waits for a change of its pod,
/// they are not: in this time the kubelet may begin to restart a container.
const BATCH_TIME: Duration = Duration::from_millis(200);
/// A watch that ends so much before the time that it has asked for was cut.
const EARLY: Duration = Duration::from_secs(2);
/// After as many refusals in a row the store's version is compared, each time.
const REFUSALS: u32 = 2;

/// Keeps the objects of one kind.
pub(super) trait Reflector {
    /// The collection: `/api/v1/pods`.
    const PATH: &'static str;
    /// The objects are so few that they are listed again instead of comparing the store's version.
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
    /// Returns when everything must be listed again: the options have changed, or the store was restored from a backup. Cancel-safe.
    async fn outdated(&mut self) {
        std::future::pending::<()>().await;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    List(Source),
    /// Watch from this resource version after checking that the store is not older.
    Check(String),
    Watch(String),
}

impl Next {
    /// Returns the next request after the `times`th failure in a row. The store may have been restored from a backup meanwhile, or the
    /// refusal may be due to the version. Objects that are few (`is_small`) are listed again when the reflector of the others finds that.
    fn after_refusal(self, refusal: &Refusal, times: u32, is_small: bool) -> Self {
        let is_outage = refusal.status.is_none() && !is_small;
        match self {
            Self::Watch(version) if is_outage || refusal.status.is_some() && times.is_multiple_of(REFUSALS) => {
                Self::Check(version)
            }
            next => next,
        }
    }
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
pub(super) async fn run<R: Reflector>(context: &Context, reflector: &mut R) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let (mut next, mut failures) = (Next::List(Source::Cache), 0_u32);
    loop {
        let begun = Instant::now();
        // A successful comparison does not mean that the refused request will work.
        let is_check = matches!(next, Next::Check(_));
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
            Ok(Wait::Renewal) => {
                let wait = spread(context.server.timeouts().renewal).max(backoff.next_wait(None));
                tokio::time::sleep(wait).await;
            }
            Ok(Wait::Spread) => {
                let wait = spread(context.server.timeouts().spread) + backoff.next_wait(None);
                tokio::time::sleep(wait).await;
            }
            Err(refusal) => {
                failures = failures.saturating_add(1);
                reflector.failed(&refusal, failures);
                next = next.after_refusal(&refusal, failures, R::IS_SMALL);
                if refusal.status.is_none() || refusal.status == Some(StatusCode::UNAUTHORIZED) {
                    context.server.renew().await;
                }
                let own = backoff.next_wait(None);
                tokio::time::sleep(refusal.wait.map_or(own, |wait| wait + jittered(FIRST_WAIT))).await;
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    None,
    /// Agents of all nodes may have to renew their watches at the same time.
    Renewal,
    /// Agents of all nodes may have to list at the same time.
    Spread,
}

impl Wait {
    /// Returns the wait after a watch that has ended without an error of the API server.
    fn after_watch(lasted: Duration, asked_for: Duration) -> Self {
        if lasted.saturating_add(EARLY) >= asked_for { Self::None } else { Self::Renewal }
    }
}

async fn step<R: Reflector>(context: &Context, reflector: &mut R, next: Next) -> (Next, Result<Wait, Refusal>) {
    match next {
        Next::List(source) => match list(context, reflector, &source).await {
            Ok(version) => (Next::Watch(version), Ok(Wait::None)),
            Err(refusal) => (Next::List(source.after(&refusal)), Err(refusal)),
        },
        Next::Check(version) if R::IS_SMALL => match list(context, reflector, &Source::Cache).await {
            Ok(version) => (Next::Watch(version), Ok(Wait::None)),
            Err(refusal) => (Next::Check(version), Err(refusal)),
        },
        Next::Check(version) => match store_version(context).await {
            Ok(now) if is_older(&now, &version) => {
                tracing::warn!(
                    event = "store_went_back",
                    version,
                    now,
                    "the API server's store is older than what was read from it; everything is listed again"
                );
                context.restores.send_modify(|restores| *restores += 1);
                (Next::List(Source::Store), Ok(Wait::Spread))
            }
            Ok(_) => (Next::Watch(version), Ok(Wait::None)),
            // The version cannot be read.
            Err(refusal) if refusal.status.is_some_and(|status| status.is_client_error()) => {
                (Next::List(Source::Cache), Ok(Wait::Renewal))
            }
            Err(refusal) => (Next::Check(version), Err(refusal)),
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

async fn page(context: &Context, path: &str, take: impl FnMut(&[u8])) -> Result<Meta, Refusal> {
    list_page::read(&context.client, path, context.server.timeouts().answer, take).await
}

/// Returns the store's resource version. A node listed by name is read from the store itself, one object alone.
async fn store_version(context: &Context) -> Result<String, Refusal> {
    let selector = escaped(&format!("metadata.name={}", context.node_name));
    let meta = page(context, &format!("/api/v1/nodes?fieldSelector={selector}"), |_| {}).await?;
    Ok(meta.resource_version)
}

/// Watches from `version` on, until the server ends the watch.
async fn watch<R: Reflector>(context: &Context, reflector: &mut R, version: String) -> (Next, Result<Wait, Refusal>) {
    let Timeouts { answer, silence, .. } = context.server.timeouts();
    let time = jittered(WATCH_TIME);
    let path = format!(
        "{}?fieldSelector={}&watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
        R::PATH,
        escaped(&reflector.field_selector()),
        escaped(&version),
        time.as_secs()
    );
    let begun = Instant::now();
    let mut body = match api_answer::get(&context.client, &path, answer).await {
        Ok(body) => body,
        Err(refusal) if refusal.is_gone() => return (Next::List(Source::CacheSince(version)), Ok(Wait::Spread)),
        Err(refusal) => return (Next::Watch(version), Err(refusal)),
    };
    reflector.answered();
    let mut stream = WatchStream::from(version);
    let mut silent_at = Instant::now() + silence;
    let mut taken = None;
    loop {
        let due = reflector.due();
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(due.unwrap_or(silent_at)), if due.is_some() => reflector.publish(),
            () = reflector.outdated() => return (Next::List(Source::Cache), Ok(Wait::None)),
            piece = next_piece(&mut body, taken.filter(|_| !context.overwritten.is_awaited())) => {
                taken = Some(Instant::now());
                let Some(Ok(piece)) = piece else {
                    reflector.publish();
                    return (Next::Watch(stream.version), Ok(Wait::after_watch(begun.elapsed(), time)));
                };
                silent_at = Instant::now() + silence;
                reflector.answered();
                let apply = |change: Change<'_>| match change {
                    Change::Put(object) => reflector.put(object),
                    Change::Removed(object) => reflector.remove(object),
                };
                if let Err(end) = stream.take(&piece, apply) {
                    reflector.publish();
                    return match end {
                        End::Gone => (Next::List(Source::CacheSince(stream.version)), Ok(Wait::Spread)),
                        End::Unreadable(reason) => {
                            (Next::List(Source::CacheSince(stream.version)), Err(Refusal::unanswered(reason)))
                        }
                        End::Refused(refusal) => (Next::Watch(stream.version), Err(refusal)),
                    };
                }
            }
            // No bookmark within the timeout: the connection is dead, or the store is older than the version.
            () = tokio::time::sleep_until(silent_at) => return (Next::Check(stream.version), Ok(Wait::None)),
        }
    }
}

/// Returns the next piece of a watch. Soon after the last piece, which was `taken` then, it waits, so that changes come together. Cancel-safe.
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

#[cfg(test)]
#[path = "reflector_tests.rs"]
mod tests;
