//! The two threads that speak to the API server. One listens: what the pods and the node are. The other does what is to be done there, one
//! task for each thing. Whoever listens to a hundred changes a second sleeps in between to take them together, and a long list takes its
//! time to read: an eviction waits for neither, nor do their connections.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::config::KubernetesOptions;

use super::api_client::{Access, Server};
use super::pod_cache::PodCache;
use super::{Event, Inbox, Ledger, Shared, events, evictions, node_reflector, pod_reflector, reviews, status};

/// What every task needs.
#[derive(Clone)]
pub(super) struct Context {
    /// Stays good when certificates and tokens change.
    pub(super) client: kube::Client,
    pub(super) server: Arc<Server>,
    pub(super) node_name: Arc<str>,
    pub(super) shared: Arc<Shared>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) news: mpsc::UnboundedSender<Event>,
}

/// Until whoever could change it is gone: the loop has ended.
pub(super) async fn ended<T>(mut watched: tokio::sync::watch::Receiver<T>) {
    while watched.changed().await.is_ok() {}
}

impl Context {
    /// Says it to the loop. Pods and the node are said once until they are looked at.
    pub(super) fn tell(&self, event: Event) {
        if self.shared.is_news(&event) {
            // Without a loop this thread is about to end.
            let _no_loop = self.news.send(event);
        }
    }
}

/// What both threads begin with.
#[derive(Clone)]
pub(super) struct Start {
    pub(super) access: Access,
    pub(super) options: watch::Receiver<KubernetesOptions>,
    pub(super) shared: Arc<Shared>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) news: mpsc::UnboundedSender<Event>,
}

impl Start {
    /// A connection of the thread's own; nothing when nobody wants it any more.
    async fn connect(self) -> Option<Context> {
        let Self { access, options, shared, ledger, news } = self;
        let node_name = access.node_name().into();
        let server = access.connect(&shared, &news, &options).await?;
        Some(Context { client: server.client().clone(), server: Arc::new(server), node_name, shared, ledger, news })
    }
}

/// Listens until nobody hands anything over any more.
pub(super) async fn listen(start: Start) {
    let Start { access, options, shared, news, .. } = &start;
    let remembered = access.lock_file().map(|lock_file| PodCache::beside(lock_file, &access.node_name().into()));
    if let Some((pods, as_of)) = remembered.as_ref().and_then(PodCache::read) {
        shared.with(|view| (view.pods, view.pods_as_of) = (Arc::new(pods), Some(as_of)));
        if shared.is_news(&Event::Pods) {
            let _no_loop = news.send(Event::Pods);
        }
    }
    let options = options.clone();
    let Some(context) = start.connect().await else { return };
    let watches = async {
        tokio::join!(pod_reflector::watch(&context, options.clone(), remembered), node_reflector::watch(&context));
    };
    tokio::select! {
        () = watches => {}
        () = ended(options.clone()) => {}
    }
}

/// Does what is handed over until nobody hands anything over any more.
pub(super) async fn work(start: Start, inbox: Inbox) {
    let options = start.options.clone();
    let Some(context) = start.connect().await else { return };
    let work = async {
        tokio::join!(
            evictions::carry_out(&context, inbox.evictions),
            events::send(&context, inbox.events, options.clone()),
            status::keep(&context, inbox.status, options),
        );
    };
    let reviews = async {
        reviews::answer(&context, inbox.reviews).await;
        std::future::pending::<()>().await;
    };
    // The work ends when the loop's end is dropped; tokens are reviewed for as long as there is work.
    tokio::select! {
        () = work => {}
        () = reviews => {}
    }
}
