//! Starts containerd's garbage collection, which frees the layers of removed containers and images. containerd 1.6 and 2 start it by
//! themselves only after an image was deleted or after a hundred changes (`mutation_threshold`; `deletion_threshold` is 0), and containerd 2
//! does not wait for it when it removes an image.

use prost::Message;

use super::cri_client::{CallError, Client, Namespace};

/// The namespace of the CRI plugin.
const NAMESPACE: Namespace = Namespace("k8s.io");
/// The id of the lease. The lease of a killed agent has no content, and is deleted like a new one.
const LEASE: &str = "node-pressure-monitor";

/// The request of `Leases.Delete`, with the field numbers of containerd's `api/services/leases/v1`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteLease {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    /// Whether the call waits until the garbage is collected.
    #[prost(bool, tag = "2")]
    pub(super) sync: bool,
}

/// Starts containerd's garbage collection and waits for it. Deleting an empty lease has no other effect.
pub(super) async fn collect_garbage(client: &Client) -> Result<(), CallError> {
    let id = LEASE.to_owned();
    // The request needs only field 1, the id.
    let created = client.change("/containerd.services.leases.v1.Leases/Create", id.clone(), NAMESPACE).await;
    // containerd refuses the call if the lease already exists.
    if let Err(error) = created
        && (error.is_unknown_call() || !error.is_refusal())
    {
        return Err(error);
    }
    let delete = DeleteLease { id, sync: true };
    client.change("/containerd.services.leases.v1.Leases/Delete", delete, NAMESPACE).await
}
