//! The configuration: what the operator asks for. Each error names the file, the line, the field and the fix.

pub mod adopted;
mod amount_mistakes;
pub mod candidate_options;
pub mod config_error;
pub mod config_watch;
pub mod disk_options;
pub mod document_walk;
pub mod file_kinds;
mod file_lines;
pub mod file_watch;
pub mod fix;
mod kubelet_version;
pub mod kubernetes_options;
pub mod migrate;
pub mod notification_options;
pub mod patterns;
pub mod policy;
pub mod pools;
pub mod pressure_conditions;
pub mod quirks;
pub mod runtime_options;
pub mod schema;
pub mod serving_options;
pub mod threshold;
pub mod yaml;

pub use adopted::Adopted;
pub use candidate_options::{CandidateOptions, Candidates};
pub use config_error::{ConfigError, ConfigErrors, ConfigWarning};
pub use config_watch::{ConfigUpdate, ConfigWatch, Fingerprint};
pub use disk_options::{DiskUsageOptions, FilesystemPaths, IncidentOptions, ProjectQuotas};
pub use file_kinds::{FileKind, Loaded, OtherFiles, arguments_of_k3s};
pub use file_watch::{FileWatch, Stamp, read_limited};
pub use kubelet_version::{FollowedKubelet, KubeletVersion};
pub use kubernetes_options::KubernetesOptions;
pub use notification_options::NotificationOptions;
pub use patterns::{NamePattern, built_in_patterns};
pub use policy::{
    EvictionLimits, KernelOptions, LOCK_DIRECTORY, Mode, MonitorConfig, OomScores, Policy, Pool, Ranking, RankingKey,
    Reservations, Sampling,
};
pub use pressure_conditions::{PressureCondition, PressureKind, PressureLevel, PressureResource, PressureScope};
pub use quirks::{Quirk, Quirks, Semantics};
pub use runtime_options::{RuntimeEndpoint, RuntimeOptions};
pub use serving_options::{ServingOptions, TlsFiles};
pub use threshold::{Percentage, Threshold, ThresholdError, ThresholdLists, ThresholdValue};
