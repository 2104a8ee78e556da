//! The server behind the connection: computes the answer to a complete request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Request, StatusCode};
use serde_json::Value;
use tokio::sync::watch;

use crate::access::Access;
use crate::answer::{Failure, Reply, json};
use crate::resource;
use crate::route::{Query, Route, Target};
use crate::store::Store;
use crate::{delete, discovery, eviction, lists, reviews, watching, writes};

/// The API server in memory.
#[derive(Debug)]
pub struct Api {
    store: Mutex<Store>,
    access: Mutex<Access>,
    news: watch::Sender<News>,
}

/// The counters whose changes wake watches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// The newest version.
    pub(crate) revision: u64,
    /// The number of requests for bookmarks.
    pub(crate) bookmarks: u64,
    /// The number of expirations of all watches.
    pub(crate) expired: u64,
}

/// A parsed request for objects.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) content_type: String,
    /// The field manager of this write.
    pub(crate) manager: String,
    pub(crate) body: Bytes,
}

impl Call {
    /// The body as an object; an empty one is null.
    pub(crate) fn object(&self) -> Result<Value, Failure> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| Failure::bad_request(format!("the body of the request cannot be read: {error}")))
    }
}

impl Default for Api {
    fn default() -> Self {
        let api = Self { store: Mutex::default(), access: Mutex::default(), news: watch::Sender::default() };
        api.furnish();
        api
    }
}

impl Api {
    /// Locks the objects. A caller holds the lock for one request, and never across a wait.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the tokens and users.
    pub fn access(&self) -> MutexGuard<'_, Access> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn news(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    fn changed(&self) {
        let revision = self.store().revision();
        self.news.send_if_modified(|news| std::mem::replace(&mut news.revision, revision) != revision);
    }

    /// Creates the objects that every cluster has from its start.
    fn furnish(&self) {
        let mut store = self.store();
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            writes::furnish(&mut store, name);
        }
    }

    /// Forgets the history. A client that resumes from an earlier version gets 410.
    pub fn compact(&self) {
        self.compact_to(u64::MAX);
    }

    /// Forgets the history up to a version.
    pub fn compact_to(&self, revision: u64) {
        self.store().compact(revision);
    }

    /// Returns the version of the newest write.
    pub fn revision(&self) -> u64 {
        self.store().revision()
    }

    /// Ends all watches with the error that their version has expired.
    pub fn expire_watches(&self) {
        self.news.send_modify(|news| news.expired += 1);
    }

    /// Sends a bookmark to each watch that allows them.
    pub fn bookmark(&self) {
        self.news.send_modify(|news| news.bookmarks += 1);
    }

    /// Removes all objects, as if the cluster had lost its store.
    pub fn forget_everything(&self) {
        *self.store() = Store::default();
        self.furnish();
        self.changed();
    }

    /// Answers a request.
    pub fn handle(self: &Arc<Self>, request: Request<Bytes>) -> Reply {
        let answer = self.answer(request).unwrap_or_else(|failure| failure.reply());
        self.changed();
        answer
    }

    fn answer(self: &Arc<Self>, request: Request<Bytes>) -> Result<Reply, Failure> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let query = Query::of(head.uri.query());
        let user = self.access().authenticate(&head.headers)?;
        let target = match Route::of(path) {
            Route::Objects(target) => target,
            Route::NoSuchResource => return Err(Failure::no_such_resource()),
            Route::Review(kind) => return reviews::answer(self, &kind, &user, &body),
            Route::Other(path) => {
                self.access().authorize_path(&self.store(), &user, &head.method, &path)?;
                return Ok(discovery::answer(&path));
            }
        };
        let header = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = header.unwrap_or("application/json").to_owned();
        let verb = target.verb(head.method.as_str(), &query).ok_or_else(Failure::method_not_allowed)?;
        self.access().authorize(&self.store(), &user, verb, &target)?;
        let agent = head.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("unknown");
        let manager =
            query.get("fieldManager").unwrap_or_else(|| agent.split('/').next().unwrap_or_default()).to_owned();
        let call = Call { target, query, content_type, manager, body };
        self.carry_out(verb, &call)
    }

    fn carry_out(self: &Arc<Self>, verb: &str, call: &Call) -> Result<Reply, Failure> {
        let parts: &[&str] = match call.target.resource.plural {
            "pods" => &["", "status", "eviction"],
            "serviceaccounts" => &["", "token"],
            _ if call.target.resource.status => &["", "status"],
            _ => &[""],
        };
        if !parts.contains(&call.target.part.as_str()) {
            return Err(Failure::no_such_resource());
        }
        if call.target.part == "token" {
            return reviews::token(self, call);
        }
        let mut store = self.store();
        match (verb, call.target.part.as_str()) {
            ("create", "eviction") => eviction::evict(&mut store, call),
            (_, "eviction") => Err(Failure::method_not_allowed()),
            ("create", "") => writes::create(&mut store, call),
            ("get", _) => Ok(json(StatusCode::OK, &*lists::existing(&store, &call.target)?)),
            ("update", _) => writes::update(&mut store, call),
            ("patch", _) => writes::patch(&mut store, call),
            ("list", "") => lists::list(&store, call),
            ("watch", "") => {
                drop(store);
                watching::watch(self, call)
            }
            ("delete", "") => delete::delete(&mut store, call),
            _ => Err(Failure::method_not_allowed()),
        }
    }
}

/// All resources are known by their plural.
pub(crate) fn pods() -> Result<&'static resource::Resource, Failure> {
    resource::named("pods").ok_or_else(|| Failure::internal("pods are not served"))
}
