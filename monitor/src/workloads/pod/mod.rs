//! Pods as the API prints them.

mod allocation;
mod bounds;
mod claimed_memory;
mod deletion;
mod identity;
mod object;
mod owner;
mod pod_list;
mod pod_protection;
mod qos;
mod resource_name;
mod resources;
mod scheduled_request;

pub use deletion::Deletion;
pub use identity::{EVICTION_IN_PROGRESS, Exemption, FullName, has_ended, system_priority};
pub use object::{
    Container, ContainerStatus, EmptyDir, HostPath, Metadata, Owner, Pod, ResourceList, Resources, Spec, Status,
    Toleration, Volume,
};
pub use pod_list::Pods;
pub use resource_name::ResourceName;
