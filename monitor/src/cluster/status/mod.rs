//! The node's conditions and taints: written when they change, removed when the agent stops.
//!
//! Other writers' conditions and taints are kept: conditions are merged by type, and the list of taints is written only if it has not
//! changed since it was read. The node's reflector delivers the object at the start and after changes by other writers.

mod checked_taints;
mod next_look;
pub mod node_object;
pub mod status_patches;
mod status_writer;
mod taint_requests;
pub mod wanted;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::KubernetesOptions;

use super::api_client::{Context, ended};
use status_writer::StatusWriter;

pub use wanted::{Effect, NodeStatus, WantedCondition, WantedTaint};

/// Keeps the node's status as `wanted` until the sender is dropped, then removes it. Tells by `tainted` which conditions have their taint
/// on the node. Returns whether nothing of ours is left on the node.
pub(super) async fn keep(
    context: &Context,
    mut wanted: watch::Receiver<NodeStatus>,
    mut options: watch::Receiver<KubernetesOptions>,
    tainted: watch::Sender<Vec<String>>,
) -> bool {
    let mut writer = StatusWriter::new(context, tainted);
    let mut nodes = context.node.subscribe();
    let end = ended(wanted.clone());
    tokio::pin!(end);
    loop {
        let (status, latest_options) = (wanted.borrow_and_update().clone(), options.borrow_and_update().clone());
        // A request that hangs must not delay the removal when the agent stops.
        let wait = tokio::select! {
            biased;
            () = &mut end => break,
            wait = writer.write(&status, &latest_options) => wait,
        };
        let deadline = Instant::now() + wait;
        let changed = loop {
            tokio::select! {
                changed = wanted.changed() => break Some(changed),
                changed = options.changed() => break Some(changed),
                _ = nodes.changed() => if let Some(node) = &*nodes.borrow_and_update() {
                    writer.note_node(node);
                },
                () = tokio::time::sleep_until(writer.due(deadline)) => break None,
            }
        };
        let Some(changed) = changed else {
            writer.come_due();
            continue;
        };
        if changed.is_err() {
            break;
        }
        tokio::time::sleep(writer.wait_before_change()).await;
    }
    writer.remove().await
}
