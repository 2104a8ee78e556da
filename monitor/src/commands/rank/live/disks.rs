//! Measures the workloads' disk usage once and completely. The command may use a whole CPU, because the user waits for
//! it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{DiskUsageOptions, MonitorConfig};
use crate::disk::{Roots, Usages, Walker, WorkloadPlaces};
use crate::units::Monotonic;

use super::super::super::output;

/// Time limit of the measurement.
const LONGEST: Duration = Duration::from_secs(300);
/// Interval of progress notes.
const NOTE_INTERVAL: Duration = Duration::from_secs(5);
const ASKED_AGAIN: Duration = Duration::from_millis(20);

/// The measured usage, and whether the measurement is complete.
#[derive(Debug)]
pub struct Measured {
    pub usages: Arc<Usages>,
    pub is_over: bool,
}

pub fn measure(config: &MonitorConfig, wanted: Vec<WorkloadPlaces>) -> std::io::Result<Measured> {
    let options = DiskUsageOptions { cpu_share: 1.0, pressure_cpu_share: 1.0, ..config.disk_usage };
    measure_within(LONGEST, &options, Roots::of(config), wanted)
}

fn measure_within(
    longest: Duration,
    options: &DiskUsageOptions,
    roots: Roots,
    wanted: Vec<WorkloadPlaces>,
) -> std::io::Result<Measured> {
    let count = wanted.len();
    if count == 0 {
        return Ok(Measured { usages: Arc::default(), is_over: true });
    }
    let walker = Walker::start(options, roots)?;
    walker.set_workloads(wanted);
    let (begun, mut noted) = (Instant::now(), Instant::now());
    loop {
        let usages = walker.usages();
        // The number of workloads is unknown until the first one is measured.
        let is_over = usages.effort.measured > 0 && usages.unmeasured == 0;
        let hangs = walker.stall_reason(Monotonic::now());
        if is_over || hangs.is_some() || begun.elapsed() >= longest {
            hangs.iter().for_each(output::note);
            return Ok(Measured { usages, is_over });
        }
        if noted.elapsed() >= NOTE_INTERVAL {
            noted = Instant::now();
            let done = if usages.effort.measured > 0 { count.saturating_sub(usages.unmeasured) } else { 0 };
            output::note(format_args!(
                "measuring the disks for {} s: {done} of {count} pods done, {} files seen",
                begun.elapsed().as_secs(),
                usages.effort.entries
            ));
        }
        std::thread::sleep(ASKED_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::CgroupId;
    use crate::workloads::PodUid;

    fn wanted(directory: &tempfile::TempDir) -> (Roots, Vec<WorkloadPlaces>) {
        let path = |name: &str| directory.path().join(name);
        let places = |uid: &str| {
            let volume = path("kubelet/pods").join(uid).join("volumes/kubernetes.io~empty-dir/cache");
            std::fs::create_dir_all(&volume).unwrap();
            for file in 0..5 {
                std::fs::write(volume.join(file.to_string()), "").unwrap();
            }
            let pod = Some(PodUid(uid.to_owned()));
            WorkloadPlaces {
                workload: format!("pod{uid}"),
                id: CgroupId(1),
                cgroup: path("none"),
                pod,
                layers: Vec::new(),
                is_limited: false,
                trusts_quotas: false,
            }
        };
        let roots = Roots { kubelet: path("kubelet"), pod_logs: path("logs"), ..Roots::new("/proc".into()) };
        (roots, ["u-1", "u-2", "u-3"].map(places).to_vec())
    }

    #[test]
    fn unmeasured_workloads_are_known() {
        let directory = tempfile::tempdir().unwrap();
        let (roots, places) = wanted(&directory);
        let options = DiskUsageOptions { cpu_share: 1.0, ..DiskUsageOptions::default() };
        let Measured { usages, is_over } = measure_within(LONGEST, &options, roots.clone(), places.clone()).unwrap();
        assert!(is_over);
        for WorkloadPlaces { workload, id, .. } in &places {
            assert!(usages.get(workload, *id).unwrap().inodes >= 5, "{usages:?}");
        }
        assert!(
            measure_within(LONGEST, &options, roots.clone(), Vec::new()).unwrap().is_over,
            "no workload is to be measured"
        );
        assert!(!measure_within(Duration::ZERO, &options, roots, places).unwrap().is_over);
    }
}
