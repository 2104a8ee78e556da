//! The agent beside a real kubelet and a real control plane.

mod disk;
mod elsewhere;
mod ending;
mod figures;
mod hard;
mod install;
mod journal_hook;
mod lease;
mod no_execute;
mod oom;
mod owners;
mod preemption;
mod removal;
mod resize;
mod scene;
mod set_ups;
mod soft;
mod swarm;
mod thrash;
mod times;

pub use disk::{disk, disk_below_both};
pub use elsewhere::elsewhere;
pub use figures::figures;
pub use hard::{agent_killed, kubelet_restarted, outage, ramp};
pub use install::install;
pub use journal_hook::journal_hook;
pub use no_execute::no_execute;
pub use oom::oom;
pub use owners::owners;
pub use preemption::preemption;
pub use removal::removal;
pub use resize::resize;
pub use set_ups::{instead, watch};
pub use soft::{budget, drain};
pub use swarm::swarm;
pub use thrash::thrash;
