//! What only containerd needs: it gives the layer of a removed container back when it collects its own garbage, which without being
//! asked it does after an image was deleted or a hundred changes (`mutation_threshold`; `deletion_threshold` is 0, containerd 1.6 and 2).

use prost::Message;

use super::cri_client::{CallError, Client, Namespace};

/// In which its CRI plugin keeps everything.
const NAMESPACE: Namespace = Namespace("k8s.io");
/// One that was left by an agent that died in between is deleted like this one; it holds nothing.
const LEASE: &str = "node-pressure-monitor";

/// Of `Leases.Create`; field numbers of containerd's `api/services/leases/v1`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CreateLease {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

/// Of `Leases.Delete`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteLease {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    /// Answered when the garbage is collected.
    #[prost(bool, tag = "2")]
    pub(super) sync: bool,
}

/// Has containerd collect its garbage, and waits for it: the one call that does so and takes nothing away.
pub(super) async fn collect_garbage(client: &Client) -> Result<(), CallError> {
    let id = LEASE.to_owned();
    let create = CreateLease { id: id.clone() };
    let created = client.change("/containerd.services.leases.v1.Leases/Create", create, NAMESPACE).await;
    // Refused where one is there already.
    if let Err(error) = created
        && (error.is_unknown_call() || !error.is_refusal())
    {
        return Err(error);
    }
    let delete = DeleteLease { id, sync: true };
    client.change("/containerd.services.leases.v1.Leases/Delete", delete, NAMESPACE).await
}
