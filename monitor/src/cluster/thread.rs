//! The thread that speaks to the API server: one task for each thing that it does, all on this thread.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::client::Access;
use super::{Event, Inbox, Ledger, Shared, events, evictions, node, pods, reviews, status};

/// What every task needs.
#[expect(dead_code, reason = "each task takes what it needs as it is written")]
#[derive(Clone)]
pub(super) struct Context {
    pub(super) client: kube::Client,
    pub(super) node_name: Arc<str>,
    pub(super) shared: Arc<Shared>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) news: mpsc::UnboundedSender<Event>,
}

/// Until whoever could change it is gone: the loop has ended.
pub(super) async fn ended<T>(mut watched: tokio::sync::watch::Receiver<T>) {
    while watched.changed().await.is_ok() {}
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
    let Some(client) = access.connect(&shared, &news, &options).await else { return };
    let context = Context { client, node_name, shared, ledger, news };
    let watches = async {
        tokio::join!(pods::watch(&context), node::watch(&context), reviews::answer(&context, asked));
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
