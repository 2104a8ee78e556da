//! Which cgroup hierarchy accounts memory on this machine: v1, v2, or v1 with v2 beside it (hybrid).

use std::fmt;
use std::path::{Path, PathBuf};

use crate::units::named_enum;

/// Name among the missing capabilities.
pub const NESTED_ACCOUNTING: &str = "nested cgroups";

named_enum! {
    /// The interface version of the hierarchy with the memory controller.
    pub enum CgroupVersion {
        V1 = "v1",
        V2 = "v2",
    }
}

impl fmt::Display for CgroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    pub version: CgroupVersion,
    /// The mount point of the hierarchy with the memory controller.
    pub memory: PathBuf,
    pub freezer: Option<PathBuf>,
    /// Whether a v2 hierarchy is mounted beside the v1 hierarchies.
    pub hybrid: bool,
}

impl Hierarchy {
    /// Finds the hierarchies mounted under `root`, usually `/sys/fs/cgroup`.
    /// Fails when neither a v2 nor a v1 memory hierarchy can be read there.
    pub fn detect(root: &Path) -> Result<Self, String> {
        let no_hierarchy = |detail: String| {
            let root = root.display();
            format!(
                "no cgroup hierarchy with the memory controller under {root}: {detail}; mount one there \
                 (`mount -t cgroup2 none {root}`), boot with cgroup_enable=memory, or set cgroupRoot in the configuration"
            )
        };
        let controllers = root.join("cgroup.controllers");
        let v2 = std::fs::read_to_string(&controllers);
        if let Ok(text) = &v2 {
            if text.split_ascii_whitespace().any(|controller| controller == "memory") {
                return Ok(Self { version: CgroupVersion::V2, memory: root.to_owned(), freezer: None, hybrid: false });
            }
            return Err(no_hierarchy(format!("{} does not list memory", controllers.display())));
        }
        let memory = root.join("memory");
        let usage = memory.join("memory.usage_in_bytes");
        match std::fs::read_to_string(&usage) {
            Ok(_) => Ok(Self {
                version: CgroupVersion::V1,
                memory,
                freezer: Some(root.join("freezer")).filter(|freezer| freezer.join("cgroup.procs").exists()),
                hybrid: root.join("unified/cgroup.controllers").exists(),
            }),
            Err(v1) => Err(no_hierarchy(format!(
                "{}: {}; {}: {v1}",
                controllers.display(),
                v2.err().map_or_else(String::new, |error| error.to_string()),
                usage.display(),
            ))),
        }
    }

    /// Returns why the figures of a cgroup leave out the cgroups inside it, if they do. Before Linux 5.11 that depends on a file of cgroup v1.
    pub fn leaves_out_nested(&self) -> Option<String> {
        let file = self.memory.join("memory.use_hierarchy");
        let is_off = self.version == CgroupVersion::V1
            && std::fs::read_to_string(&file).is_ok_and(|text| text.trim_ascii() == "0");
        is_off.then(|| {
            format!(
                "{} is 0, so the memory of a pod is not known: that of its containers is left out; write 1 to it at boot before other \
                 cgroups are made, as systemd does, or boot with cgroup v2",
                file.display()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn nested_cgroups_are_left_out_on_v1_only() {
        for (switch, is_left_out) in [("0\n", true), ("1\n", false)] {
            let root = tree(&[("memory/memory.usage_in_bytes", "1\n"), ("memory/memory.use_hierarchy", switch)]);
            let reason = Hierarchy::detect(root.path()).unwrap().leaves_out_nested();
            assert_eq!(reason.is_some_and(|it| it.contains("memory.use_hierarchy is 0")), is_left_out, "{switch}");
        }
        let root = tree(&[("memory/memory.usage_in_bytes", "1\n")]);
        assert_eq!(Hierarchy::detect(root.path()).unwrap().leaves_out_nested(), None, "no such file");
        let root = tree(&[("cgroup.controllers", "memory\n"), ("memory.use_hierarchy", "0\n")]);
        assert_eq!(Hierarchy::detect(root.path()).unwrap().leaves_out_nested(), None, "v2");
    }

    #[test]
    fn v2_is_detected() {
        let root = tree(&[("cgroup.controllers", "cpu memory pids\n")]);
        let hierarchy = Hierarchy::detect(root.path()).unwrap();
        assert_eq!(hierarchy.version, CgroupVersion::V2);
        assert_eq!(hierarchy.memory, root.path());
    }

    #[test]
    fn v1_and_hybrid_are_detected() {
        let root = tree(&[
            ("memory/memory.usage_in_bytes", "1\n"),
            ("freezer/cgroup.procs", ""),
            ("unified/cgroup.controllers", ""),
        ]);
        let hierarchy = Hierarchy::detect(root.path()).unwrap();
        assert_eq!(hierarchy.version, CgroupVersion::V1);
        assert!(hierarchy.hybrid);
        assert!(hierarchy.freezer.is_some());
    }

    #[test]
    fn the_error_names_the_remedies() {
        let root = tree(&[("cgroup.controllers", "cpu pids\n")]);
        let error = Hierarchy::detect(root.path()).unwrap_err();
        assert!(error.contains("does not list memory") && error.contains("cgroup_enable=memory"), "{error}");
        let error = Hierarchy::detect(Path::new("/nonexistent")).unwrap_err();
        assert!(error.contains("cgroupRoot"), "{error}");
    }
}
