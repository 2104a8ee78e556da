//! Reasons for which the loop wakes.

use crate::units::named_enum;

named_enum! {
    /// The reason for which the loop woke.
    pub enum Wakeup {
        /// The eBPF programs streamed an event.
        KernelEvent = "kernel_event",
        /// The kernel's log is readable, or a kill has waited for the log long enough.
        KernelLog = "kernel_log",
        /// The PSI trigger fired.
        Psi = "psi",
        /// The computed sampling deadline.
        Deadline = "deadline",
        /// An eviction under way is to be polled, or the next one may start.
        Eviction = "eviction",
        /// The kernel has answered a reclaim request.
        Reclaim = "reclaim",
        /// A filesystem crossed a threshold in either direction, or filesystems have moved.
        Filesystems = "filesystems",
        /// The container runtime came, went, or completed an order.
        Runtime = "runtime",
        /// The control plane has an event.
        Cluster = "cluster",
        /// Pressure is to be evaluated for the node's conditions.
        Pressure = "pressure",
        /// The configuration file has changed, or a reload was requested.
        Configuration = "configuration",
        /// A client requested the metrics.
        Scrape = "scrape",
        /// The whole tree is to be scanned.
        Housekeeping = "housekeeping",
    }
}
