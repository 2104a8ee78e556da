//! The thread that speaks to the API server: one task for each thing that it does, all on this thread.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::client::{Access, Server};
use super::remembered::Remembered;
use super::{Event, Inbox, Ledger, Shared, events, evictions, node, pods, reviews, status};

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

/// Until nobody hands anything over any more.
pub(super) async fn run(
    access: Access,
    inbox: Inbox,
    shared: Arc<Shared>,
    ledger: Arc<Ledger>,
    news: mpsc::UnboundedSender<Event>,
) {
    let Inbox { evictions: wanted_evictions, events: wanted_events, status: wanted_status, options, reviews: asked } =
        inbox;
    let node_name: Arc<str> = access.node_name().into();
    let remembered = access.lock_file().map(|lock_file| Remembered::beside(lock_file, &node_name));
    if let Some((pods, as_of)) = remembered.as_ref().and_then(Remembered::read) {
        shared.with(|view| (view.pods, view.pods_as_of) = (Arc::new(pods), Some(as_of)));
        if shared.is_news(&Event::Pods) {
            let _no_loop = news.send(Event::Pods);
        }
    }
    let Some(server) = access.connect(&shared, &news, &options).await else { return };
    let context =
        Context { client: server.client().clone(), server: Arc::new(server), node_name, shared, ledger, news };
    let of_pods = options.clone();
    let watches = async {
        tokio::join!(
            pods::watch(&context, of_pods, remembered),
            node::watch(&context),
            reviews::answer(&context, asked)
        );
    };
    let work = async {
        tokio::join!(
            evictions::carry_out(&context, wanted_evictions),
            events::send(&context, wanted_events, options.clone()),
            status::keep(&context, wanted_status, options),
        );
    };
    // Watches go on for as long as there is work; the work ends when the loop's end is dropped.
    tokio::select! {
        () = watches => {}
        () = work => {}
    }
}
