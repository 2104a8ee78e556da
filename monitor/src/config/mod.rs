//! What the operator asked for. Every error names file, line, field and the fix.

pub mod disk_usage;
pub mod error;
pub mod file;
pub mod filesystems;
pub mod incidents;
pub mod kubernetes;
pub mod patterns;
pub mod policy;
pub mod pressure;
pub mod quirks;
pub mod reload;
pub mod runtime;
pub mod serving;
pub mod stamp;
pub mod threshold;
pub mod walk;
pub mod watch;
pub mod yaml;

pub use disk_usage::{DiskUsageOptions, ProjectQuotas};
pub use error::{ConfigError, ConfigErrors, ConfigWarning};
pub use file::{FileKind, Loaded};
pub use filesystems::FilesystemPaths;
pub use incidents::IncidentOptions;
pub use kubernetes::KubernetesOptions;
pub use patterns::{NamePattern, PatternError, built_in_patterns};
pub use policy::{
    EvictionLimits, KernelOptions, Mode, MonitorConfig, OomScores, Policy, Ranking, RankingKey, Reservations, Sampling,
    Semantics,
};
pub use pressure::{PressureCondition, PressureKind, PressureLevel, PressureResource, PressureScope};
pub use quirks::{Quirk, Quirks};
pub use reload::Adopted;
pub use runtime::{RuntimeEndpoint, RuntimeOptions};
pub use serving::{ServingOptions, TlsFiles};
pub use stamp::Stamp;
pub use threshold::{Percentage, Threshold, ThresholdError, ThresholdLists, ThresholdValue};
pub use watch::{ConfigNews, ConfigWatch, Fingerprint, Wanted};
