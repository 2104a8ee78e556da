//! What finding out who keeps what on the disks may cost.

/// Shares of one CPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskUsageOptions {
    /// While it measures; where nothing happens it takes a thousandth on average.
    pub cpu_share: f64,
    /// While a filesystem runs full, and somebody has to be chosen.
    pub pressure_cpu_share: f64,
}

impl Default for DiskUsageOptions {
    fn default() -> Self {
        Self { cpu_share: 0.02, pressure_cpu_share: 0.2 }
    }
}
