//! containerd's own garbage collection, which frees the layers of removed containers. containerd 1.6 and 2 start it by themselves only after
//! an image was deleted or after a hundred changes (`mutation_threshold`; `deletion_threshold` is 0).

use prost::Message;

use super::cri_client::{CallError, Client, Namespace};

/// Of the CRI plugin.
const NAMESPACE: Namespace = Namespace("k8s.io");
/// A lease that a killed agent has left is deleted like a new one; it holds no content.
const LEASE: &str = "node-pressure-monitor";

/// For `Leases.Delete`; field numbers of containerd's `api/services/leases/v1`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteLease {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    /// Wait until the garbage is collected.
    #[prost(bool, tag = "2")]
    pub(super) sync: bool,
}

/// Starts containerd's garbage collection and waits for it. Deleting an empty lease does only that.
pub(super) async fn collect_garbage(client: &Client) -> Result<(), CallError> {
    let id = LEASE.to_owned();
    // Field 1 of the request, of which no more is needed, is the id.
    let created = client.change("/containerd.services.leases.v1.Leases/Create", id.clone(), NAMESPACE).await;
    // Refused if the lease exists already.
    if let Err(error) = created
        && (error.is_unknown_call() || !error.is_refusal())
    {
        return Err(error);
    }
    let delete = DeleteLease { id, sync: true };
    client.change("/containerd.services.leases.v1.Leases/Delete", delete, NAMESPACE).await
}
