//! Watches: sends existing objects, then changes, as one JSON line each.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::answer::{Failure, Reply};
use crate::api::{Api, Call, News};
use crate::resource::Resource;
use crate::selector::Selector;
use crate::store::Change;

/// Silence before a bookmark, as in the real server.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The number of lines that may wait for a slow client.
const AHEAD: usize = 64;
/// The real server ends watches without a timeout after 30 to 60 minutes.
const LONGEST: Duration = Duration::from_secs(1800);

struct Watch {
    api: Arc<Api>,
    resource: &'static Resource,
    namespace: String,
    selector: Selector,
    bookmarks: bool,
    /// The version up to which everything was sent.
    seen: u64,
    until: Instant,
    lines: mpsc::Sender<Bytes>,
}

/// The client has closed the watch, or its time is over.
struct Over;

/// GET with `watch=true`.
pub(crate) fn watch(api: &Arc<Api>, call: &Call) -> Result<Reply, Failure> {
    let query = &call.query;
    let resource = call.target.resource;
    let mut fields = query.get("fieldSelector").map(str::to_owned);
    if !call.target.name.is_empty() {
        fields = Some(format!("metadata.name={}", call.target.name));
    }
    let selector = Selector::read(resource, fields.as_deref(), query.get("labelSelector"))?;
    let initial = query.on("sendInitialEvents");
    let bookmarks = query.on("allowWatchBookmarks");
    let matching = query.get("resourceVersionMatch");
    if query.get("sendInitialEvents").is_some() && matching != Some("NotOlderThan") {
        let what = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return Err(Failure::list_options("resourceVersionMatch", what));
    }
    let from = query.number("resourceVersion").unwrap_or_default();
    let time = query.number("timeoutSeconds").map_or(LONGEST, Duration::from_secs);
    let (lines, receiver) = mpsc::channel(AHEAD);
    let watch = Watch {
        api: Arc::clone(api),
        resource,
        namespace: call.target.namespace.clone(),
        selector,
        bookmarks,
        seen: from,
        until: Instant::now() + time,
        lines,
    };
    // The subscription starts here, so that no later change is missed.
    let news = api.news();
    let before = *news.borrow();
    tokio::spawn(watch.run(news, before, from == 0 || initial, initial));
    let stream = futures_util::stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    let body = StreamBody::new(stream.map(|line| Ok::<_, Infallible>(Frame::data(line))));
    let mut reply = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(reply)
}

impl Watch {
    async fn run(mut self, news: watch::Receiver<News>, before: News, all_first: bool, say_when_all: bool) {
        let Err(Over) = self.follow(news, before, all_first, say_when_all).await;
    }

    async fn follow(
        &mut self,
        mut news: watch::Receiver<News>,
        mut before: News,
        all_first: bool,
        say_when_all: bool,
    ) -> Result<Infallible, Over> {
        if all_first {
            let (lines, revision) = self.all();
            for line in lines {
                self.send(line).await?;
            }
            self.seen = self.seen.max(revision);
            if say_when_all {
                self.bookmark(true).await?;
            }
        }
        let mut bookmark_at = Instant::now() + BOOKMARK_EVERY;
        loop {
            let now = *news.borrow_and_update();
            for line in self.changes() {
                bookmark_at = Instant::now() + BOOKMARK_EVERY;
                let ends = line["type"] == "ERROR";
                self.send(line).await?;
                if ends {
                    return Err(Over);
                }
            }
            if now.expired != before.expired {
                let gone = Failure::expired("The resourceVersion for the provided watch is too old.");
                self.send(event("ERROR", &gone.status())).await?;
                return Err(Over);
            }
            let is_over = Instant::now() >= self.until;
            if is_over || Instant::now() >= bookmark_at || now.bookmarks != before.bookmarks {
                bookmark_at = Instant::now() + BOOKMARK_EVERY;
                if self.bookmarks {
                    self.bookmark(false).await?;
                }
                if is_over {
                    return Err(Over);
                }
            }
            before = now;
            tokio::select! {
                changed = news.changed() => changed.map_err(|_| Over)?,
                () = tokio::time::sleep_until(bookmark_at.min(self.until).into()) => {}
                () = self.lines.closed() => return Err(Over),
            }
        }
    }

    /// Sends all existing objects as added.
    fn all(&self) -> (Vec<Value>, u64) {
        let store = self.api.store();
        let objects = store.list(self.resource, &self.namespace).filter(|(_, object)| self.selector.matches(object));
        (objects.map(|(_, object)| event("ADDED", object)).collect(), store.revision())
    }

    /// Sends the changes since the last call.
    fn changes(&mut self) -> Vec<Value> {
        let store = self.api.store();
        let changes = match store.since(self.seen) {
            Ok(changes) => changes,
            Err(gone) => return vec![event("ERROR", &gone.status())],
        };
        let of_resource = changes.filter(|change| {
            change.key.plural == self.resource.plural
                && (self.namespace.is_empty() || change.key.namespace == self.namespace)
        });
        let lines = of_resource.filter_map(|change| seen_by(&self.selector, change)).collect();
        // A client with a later version than this server's gets nothing until that version is reached.
        self.seen = self.seen.max(store.revision());
        lines
    }

    async fn bookmark(&self, initial: bool) -> Result<(), Over> {
        let mut metadata = json!({"resourceVersion": self.seen.to_string(), "creationTimestamp": null});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object =
            json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata});
        self.send(event("BOOKMARK", &object)).await
    }

    async fn send(&self, event: Value) -> Result<(), Over> {
        self.lines.send(Bytes::from(format!("{event}\n"))).await.map_err(|_| Over)
    }
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

/// Converts a change for a selector: an object that starts to match is added, one that stops matching is deleted.
fn seen_by(selector: &Selector, change: &Change) -> Option<Value> {
    let matched = change.before.as_ref().is_some_and(|before| selector.matches(before));
    let matches = change.after.as_ref().filter(|after| selector.matches(after));
    match (matched, matches) {
        (false, None) => None,
        (false, Some(after)) => Some(event("ADDED", after)),
        (true, Some(after)) => Some(event("MODIFIED", after)),
        (true, None) => {
            // An object that stops matching is sent as it last matched, with the version of the change.
            let mut last = (**change.tombstone.as_ref().or(change.before.as_ref())?).clone();
            last["metadata"]["resourceVersion"] = json!(change.revision.to_string());
            Some(event("DELETED", &last))
        }
    }
}
