//! Options of measurements on disks and of files that the agent keeps there: `diskUsage`, `incidents` and `filesystems` of a `MonitorConfiguration`.

use std::path::PathBuf;

use super::document_walk::{Fields, Walk};
use crate::units::{Bytes, named_enum};

/// Below this share, a walk of a million files takes an hour.
const SMALLEST_SHARE: f64 = 0.001;
/// In a smaller journal a few large records would displace each other.
const SMALLEST_JOURNAL: Bytes = Bytes(4 * Bytes::MIB);

/// The cost that measuring the disk usage of workloads may have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskUsageOptions {
    /// The share of one CPU during a measurement. On an idle node the average is a thousandth.
    pub cpu_share: f64,
    /// The share of one CPU while a filesystem runs full and a candidate has to be found.
    pub pressure_cpu_share: f64,
    pub project_quotas: ProjectQuotas,
}

named_enum! {
    /// The workloads whose project quotas count as measurements. The owner of a file may change its project, except from inside a user namespace
    /// (`fileattr_set_prepare`): a pod could hide its usage or charge it to another pod. The kubelet therefore measures by quota only
    /// pods with `hostUsers: false` (Kubernetes 1.31).
    #[derive(Default)]
    pub enum ProjectQuotas {
        /// Those of pods that are known (`pods:`) to have a user namespace of their own, `hostUsers: false`.
        #[default]
        Isolated = "isolated",
        /// Those of all pods: the operator vouches that no workload changes projects.
        Trusted = "trusted",
        /// No quotas: every directory is walked.
        Off = "off",
    }
}

impl Default for DiskUsageOptions {
    fn default() -> Self {
        Self { cpu_share: 0.02, pressure_cpu_share: 0.2, project_quotas: ProjectQuotas::default() }
    }
}

impl DiskUsageOptions {
    pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Self {
        let mut options = Self::default();
        let Some(section) = fields.get("diskUsage") else { return options };
        let inner = walk.fields(&section, "cpuShare pressureCpuShare projectQuotas");
        for (name, target) in
            [("cpuShare", &mut options.cpu_share), ("pressureCpuShare", &mut options.pressure_cpu_share)]
        {
            walk.set(target, inner.get(name), |walk, field| {
                let share = walk.percentage(field)?;
                if share < SMALLEST_SHARE {
                    walk.error(field, "too small", "write at least 0.1%: below, no walk comes to an end");
                }
                (share >= SMALLEST_SHARE).then_some(share)
            });
        }
        walk.set(&mut options.project_quotas, inner.get("projectQuotas"), |walk, field| {
            walk.choice(field, &ProjectQuotas::CHOICES)
        });
        if options.cpu_share > options.pressure_cpu_share && !walk.has_error_at(section.node) {
            let fix = "raise diskUsage.pressureCpuShare, which counts while a filesystem runs full";
            walk.error(&section, "cpuShare is above pressureCpuShare", fix);
        }
        options
    }
}

/// Where the journal of incidents is, and how large it may grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentOptions {
    pub directory: PathBuf,
    /// Beyond this size the oldest incidents are deleted.
    pub max_size: Bytes,
}

impl Default for IncidentOptions {
    fn default() -> Self {
        Self { directory: PathBuf::from("/var/lib/node-pressure-monitor/incidents"), max_size: Bytes::from_mib(32) }
    }
}

impl IncidentOptions {
    pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Self {
        let mut options = Self::default();
        let inner = walk.section(fields, "incidents", "directory maxSize");
        walk.set(&mut options.directory, inner.get("directory"), |walk, field| {
            walk.path(field, "/var/lib/node-pressure-monitor/incidents")
        });
        walk.set(&mut options.max_size, inner.get("maxSize"), |walk, field| {
            let size = walk.bytes(field, "32Mi")?;
            if size < SMALLEST_JOURNAL {
                walk.error(field, "too small: a single incident may take half a MiB", "write at least 4Mi");
            }
            Some(size)
        });
        options
    }
}

/// A path on each filesystem. A path that is not given is detected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilesystemPaths {
    /// `nodefs`: the kubelet's root directory, with logs and volumes.
    pub node: Option<PathBuf>,
    /// `imagefs`: the runtime's images.
    pub image: Option<PathBuf>,
    /// `containerfs`: the writable layers of containers.
    pub container: Option<PathBuf>,
}

impl FilesystemPaths {
    pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Self {
        let inner = walk.section(fields, "filesystems", "nodefs imagefs containerfs");
        let mut path = |name, example| inner.get(name).and_then(|field| walk.path(&field, example));
        Self {
            node: path("nodefs", "/var/lib/kubelet"),
            image: path("imagefs", "/var/lib/containerd"),
            container: path("containerfs", "/var/lib/containerd"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document_walk::Field;
    use crate::config::yaml::parse_document;

    fn read_text(text: &str) -> Result<DiskUsageOptions, String> {
        let document = parse_document(text).unwrap();
        let mut walk = Walk::new("m.yaml");
        let root = Field { path: String::new(), node: &document };
        let fields = walk.fields(&root, "diskUsage");
        let options = DiskUsageOptions::read(&mut walk, &fields);
        let (errors, _) = walk.finish();
        if errors.is_empty() { Ok(options) } else { Err(errors.iter().map(|error| format!("{error}\n")).collect()) }
    }

    #[test]
    fn shares_are_percentages_of_a_cpu() {
        assert_eq!(read_text("diskUsage: {}").unwrap(), DiskUsageOptions::default());
        let options = read_text("diskUsage: {cpuShare: 0.5%, pressureCpuShare: 100%, projectQuotas: trusted}").unwrap();
        let project_quotas = ProjectQuotas::Trusted;
        assert_eq!(options, DiskUsageOptions { cpu_share: 0.005, pressure_cpu_share: 1.0, project_quotas });
    }

    #[test]
    fn shares_that_cannot_be_kept_are_refused() {
        for (text, problem) in [
            ("diskUsage: {cpuShare: 2}", "must be a percentage"),
            ("diskUsage: {cpuShare: 0%}", "must be a percentage"),
            ("diskUsage: {cpuShare: 0.01%}", "too small"),
            ("diskUsage: {cpuShare: 30%}", "cpuShare is above pressureCpuShare"),
            ("diskUsage: {projectQuotas: on}", "write isolated or trusted or off"),
            ("diskUsage: {cpushare: 3%}", "did you mean cpuShare?"),
        ] {
            let error = read_text(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
