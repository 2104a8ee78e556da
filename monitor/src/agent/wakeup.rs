//! Why the loop woke.

/// Why the loop woke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// The kernel's programs streamed something.
    KernelEvent,
    /// The kernel's log has something to read, or a kill has waited for it long enough.
    KernelLog,
    /// The PSI trigger fired.
    Psi,
    /// The computed sampling deadline.
    Deadline,
    /// An eviction under way wants to be looked at, or the next one may start.
    Eviction,
    /// The kernel has answered to being asked for memory.
    Reclaim,
    /// A threshold on a filesystem is crossed, or was, or filesystems are found elsewhere.
    Filesystems,
    /// The container runtime came or went, or has done what it was asked to.
    Runtime,
    /// The control plane has something to say.
    Cluster,
    /// Pressure is to be looked at, for the conditions that follow from it.
    Pressure,
    /// The configuration file has changed, or is to be read again.
    Configuration,
    /// Somebody asked for the metrics.
    Scrape,
    /// Time to scan the whole tree.
    Housekeeping,
}

impl Wakeup {
    /// As metrics and logs call it.
    #[must_use]
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
