//! Reasons for which the loop wakes.

/// The reason for which the loop woke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// The eBPF programs streamed an event.
    KernelEvent,
    /// The kernel's log is readable, or a kill has waited for the log long enough.
    KernelLog,
    /// The PSI trigger fired.
    Psi,
    /// The computed sampling deadline.
    Deadline,
    /// An eviction under way is to be polled, or the next one may start.
    Eviction,
    /// The kernel has answered a reclaim request.
    Reclaim,
    /// A filesystem crossed a threshold in either direction, or filesystems have moved.
    Filesystems,
    /// The container runtime came, went, or completed an order.
    Runtime,
    /// The control plane has an event.
    Cluster,
    /// Pressure is to be evaluated for the node's conditions.
    Pressure,
    /// The configuration file has changed, or a reload was requested.
    Configuration,
    /// A client requested the metrics.
    Scrape,
    /// The whole tree is to be scanned.
    Housekeeping,
}

impl Wakeup {
    /// Returns the name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KernelEvent => "kernel_event",
            Self::KernelLog => "kernel_log",
            Self::Psi => "psi",
            Self::Deadline => "deadline",
            Self::Eviction => "eviction",
            Self::Reclaim => "reclaim",
            Self::Filesystems => "filesystems",
            Self::Runtime => "runtime",
            Self::Cluster => "cluster",
            Self::Pressure => "pressure",
            Self::Configuration => "configuration",
            Self::Scrape => "scrape",
            Self::Housekeeping => "housekeeping",
        }
    }
}
