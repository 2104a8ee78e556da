//! Who says that a project is its own: a project that two directories share tells of neither what it holds.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::quota::ProjectId;
use crate::kernel::DeviceId;

/// Who holds each project of each filesystem.
#[derive(Debug, Default)]
pub struct Claims {
    holders: HashMap<(DeviceId, ProjectId), Vec<(String, PathBuf)>>,
}

impl Claims {
    /// Notes that a place of a workload has the project, and tells whether it is the only one known.
    pub fn is_sole(&mut self, device: DeviceId, project: ProjectId, workload: &str, place: &Path) -> bool {
        let holders = self.holders.entry((device, project)).or_default();
        let is_known = holders.iter().any(|(of, path)| of == workload && path == place);
        // A third one tells nothing more.
        if !is_known && holders.len() < 2 {
            holders.push((workload.to_owned(), place.to_owned()));
        }
        holders.len() == 1
    }

    /// Forgets what workloads hold that are not wanted any more.
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
    fn a_project_that_is_shared_is_nobodys() {
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
