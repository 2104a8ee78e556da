//! Which places have which project. The quota of a project shared by two places describes neither of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::project_quota::ProjectId;
use crate::kernel::DeviceId;

/// The places of each project, by filesystem.
#[derive(Debug, Default)]
pub struct Claims {
    holders: HashMap<(DeviceId, ProjectId), Vec<(String, PathBuf)>>,
}

impl Claims {
    /// Records that a place of a workload has the project. Returns whether it is the only one known.
    pub fn is_sole(&mut self, device: DeviceId, project: ProjectId, workload: &str, place: &Path) -> bool {
        let holders = self.holders.entry((device, project)).or_default();
        let is_known = holders.iter().any(|(of, path)| of == workload && path == place);
        // Two places are enough to know that the project is shared.
        if !is_known && holders.len() < 2 {
            holders.push((workload.to_owned(), place.to_owned()));
        }
        holders.len() == 1
    }

    /// Drops the places of workloads for which `is_wanted` is false.
    pub fn keep(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.holders.retain(|_, holders| {
            holders.retain(|(workload, _)| is_wanted(workload));
            !holders.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_project_has_no_sole_place() {
        let mut claims = Claims::default();
        let (disk, project) = (DeviceId(1), ProjectId(7));
        let mut is_sole = |device, workload, path: &str| claims.is_sole(device, project, workload, Path::new(path));
        assert!(is_sole(disk, "a", "/1") && is_sole(disk, "a", "/1"));
        assert!(is_sole(DeviceId(2), "a", "/2"), "another filesystem has other projects");
        assert!(!is_sole(disk, "b", "/3"));
        assert!(!is_sole(disk, "a", "/1") && !is_sole(disk, "c", "/4"));
        claims.keep(|workload| workload == "a");
        assert!(claims.is_sole(disk, project, "a", Path::new("/1")));
    }
}
