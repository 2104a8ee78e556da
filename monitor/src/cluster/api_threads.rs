//! The two threads that talk to the API server, each with a connection of its own. The watching thread keeps the pods and the node
//! up to date; the working thread carries out evictions, events, conditions and token reviews, one task each.
//!
//! They are apart because the watching thread sleeps between changes to take them together, and takes long to read a long list. An
//! eviction must wait for neither: it looks at its pod itself, and learns of a change from the watch only sooner.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use crate::config::KubernetesOptions;

use super::api_client::{Access, Context, ended};
use super::api_state::{Event, Reporter};
use super::events::EventRequest;
use super::evictions::intent::Intent;
use super::evictions::overwritten::Overwritten;
use super::evictions::taint_first::TaintFirst;
use super::ledger::Ledger;
use super::node_digest::NodeDigest;
use super::pod_cache::PodCache;
use super::reviews::Questions;
use super::status::NodeStatus;
use super::status::node_object::NodeObject;
use super::{events, evictions, lease, node_reflector, own_node_policy, pod_reflector, reviews, status};

/// The working thread's end of what the loop sends.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) evictions: mpsc::Receiver<Intent>,
    pub(super) events: mpsc::Receiver<(Timestamp, EventRequest)>,
    pub(super) status: watch::Receiver<NodeStatus>,
    pub(super) digest: watch::Receiver<NodeDigest>,
    pub(super) reviews: Questions,
}

#[derive(Clone)]
pub(super) struct Start {
    pub(super) access: Access,
    pub(super) options: watch::Receiver<KubernetesOptions>,
    pub(super) reporter: Reporter,
    pub(super) ledger: Arc<Ledger>,
    pub(super) node: watch::Sender<Option<Arc<NodeObject>>>,
    pub(super) overwritten: Overwritten,
}

impl Start {
    /// Connects; none: the loop ended first.
    async fn connect(self) -> Option<Context> {
        let Self { access, options, reporter, ledger, node, overwritten } = self;
        let node_name = access.node_name().into();
        let server = access.connect(&reporter, &options).await?;
        let (client, server) = (server.client().clone(), Arc::new(server));
        let restores = watch::Sender::default();
        Some(Context { client, server, node_name, reporter, ledger, node, restores, overwritten })
    }
}

/// The watching thread: runs until the loop ends. Publishes the cached pods before the API server is reached.
pub(super) async fn watch_objects(start: Start) {
    let Start { access, options, reporter, .. } = &start;
    let cache = access.lock_file().map(|lock_file| PodCache::beside(lock_file, &access.node_name().into()));
    if let Some((pods, as_of)) = cache.as_ref().and_then(PodCache::read) {
        reporter.with(|view| (view.pods, view.pods_as_of) = (Arc::new(pods), Some(as_of)));
        reporter.report(Event::Pods);
    }
    let options = options.clone();
    let Some(context) = start.connect().await else { return };
    let watches = async {
        tokio::join!(pod_reflector::watch(&context, options.clone(), cache), node_reflector::watch(&context));
    };
    tokio::select! {
        () = watches => {}
        () = ended(options.clone()) => {}
    }
}

/// The working thread: runs until the loop's end of `inbox` is dropped and the remaining work is done.
pub(super) async fn work(start: Start, inbox: Inbox) {
    let (options, is_of_pod) = (start.options.clone(), start.access.is_of_pod());
    let Some(context) = start.connect().await else { return };
    let (tainted, taints) = watch::channel(Vec::new());
    let work = async {
        let taints = TaintFirst { taints, options: options.clone() };
        tokio::join!(
            evictions::carry_out(&context, inbox.evictions, taints),
            events::send(&context, inbox.events, options.clone()),
            status::keep(&context, inbox.status, options.clone(), tainted),
        )
    };
    let reviews = async {
        reviews::answer(&context, inbox.reviews).await;
        std::future::pending::<()>().await;
    };
    let look_at_policy = async {
        if is_of_pod {
            own_node_policy::warn_if_missing(&context).await;
        }
        std::future::pending::<()>().await;
    };
    // These have no end of their own: they stop with the work.
    let ((), (), is_removed) = tokio::select! {
        ended = work => ended,
        () = reviews => return,
        () = look_at_policy => return,
        () = lease::keep(&context, inbox.digest, options.clone()) => return,
    };
    // The Lease tells a sweeper what is left on the node.
    if is_removed {
        lease::remove(&context).await;
    }
}
