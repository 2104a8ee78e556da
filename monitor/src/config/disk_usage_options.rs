//! What finding out who keeps what on the disks may cost.

/// Shares of one CPU, and what is believed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskUsageOptions {
    /// While it measures; where nothing happens it takes a thousandth on average.
    pub cpu_share: f64,
    /// While a filesystem runs full, and somebody has to be chosen.
    pub pressure_cpu_share: f64,
    /// Whose project quotas are read.
    pub project_quotas: ProjectQuotas,
}

/// Whose project quotas are believed. Whoever owns a file may give it another project, unless from inside a user namespace
/// (`fileattr_set_prepare`): a pod could hide what it has, or have another charged with it. The kubelet therefore measures by quota only
/// pods with `hostUsers: false` (Kubernetes 1.31).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ProjectQuotas {
    /// Those of pods that are known (`pods:`) to have a user namespace of their own, `hostUsers: false`.
    #[default]
    Isolated,
    /// Everybody's: nobody on this node changes projects.
    Trusted,
    /// Nobody's: everything is walked.
    Off,
}

impl ProjectQuotas {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Isolated, Self::Trusted, Self::Off];

    /// Returns the name used in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Isolated => "isolated",
            Self::Trusted => "trusted",
            Self::Off => "off",
        }
    }
}

impl Default for DiskUsageOptions {
    fn default() -> Self {
        Self { cpu_share: 0.02, pressure_cpu_share: 0.2, project_quotas: ProjectQuotas::default() }
    }
}
