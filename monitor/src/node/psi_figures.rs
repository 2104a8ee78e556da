//! Pressure stall information: the share of time in which tasks waited for a resource.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{PressureKind, PressureResource, PressureScope};

use super::hierarchy::{CgroupVersion, Hierarchy};

/// One line of a pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stall {
    /// The shares of the last 10, 60 and 300 seconds, 0 to 1. The kernel updates them every 2 s.
    pub averages: [f64; 3],
    /// The stalled time since boot.
    pub total: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Option<Stall>,
    /// All tasks that were not idle waited. The CPU has this line since Linux 5.13, always zero for the whole system.
    pub full: Option<Stall>,
}

impl Pressure {
    /// Parses the text of a pressure file. A malformed line is absent.
    pub fn parse(text: &str) -> Self {
        let mut pressure = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("some", rest)) => pressure.some = stall(rest),
                Some(("full", rest)) => pressure.full = stall(rest),
                _ => {}
            }
        }
        pressure
    }

    pub const fn of(&self, kind: PressureKind) -> Option<Stall> {
        match kind {
            PressureKind::Some => self.some,
            PressureKind::Full => self.full,
        }
    }
}

fn stall(text: &str) -> Option<Stall> {
    let value = |key: &str| text.split(' ').find_map(|field| field.strip_prefix(key)?.strip_prefix('='));
    let share = |key: &str| {
        let percent: f64 = value(key)?.parse().ok()?;
        (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
    };
    Some(Stall {
        averages: [share("avg10")?, share("avg60")?, share("avg300")?],
        total: Duration::from_micros(value("total")?.parse().ok()?),
    })
}

#[derive(Debug, Clone)]
pub struct PressureFiles {
    system: PathBuf,
    /// The root of a v2 hierarchy. v1 has no pressure files.
    unified: Option<PathBuf>,
}

/// The cgroup of all pods, by each of the kubelet's cgroup drivers.
const KUBEPODS: [&str; 2] = ["kubepods.slice", "kubepods"];

impl PressureFiles {
    pub fn new(proc_root: &Path, hierarchy: &Hierarchy) -> Self {
        let unified = (hierarchy.version == CgroupVersion::V2).then(|| hierarchy.memory.clone());
        Self { system: proc_root.join("pressure"), unified }
    }

    /// Reads one of the files. An error says why, and what to do.
    pub fn read(&self, scope: PressureScope, resource: PressureResource) -> Result<Pressure, String> {
        match scope {
            PressureScope::System => read(&self.system.join(resource.as_str()))
                .map_err(|error| format!("{error}; boot with psi=1 on Linux 4.20 or later")),
            PressureScope::Kubepods => {
                let root = self.unified.as_ref().ok_or("cgroup v1 has no pressure files; boot with cgroup v2")?;
                let name = format!("{}.pressure", resource.as_str());
                // Searched for at each read, because the kubelet may start later, and may create its cgroup again.
                let pods = KUBEPODS.iter().map(|pods| root.join(pods)).find(|pods| pods.is_dir());
                let pods = pods.ok_or_else(|| format!("no kubepods.slice or kubepods in {}", root.display()))?;
                read(&pods.join(name))
            }
        }
    }
}

fn read(path: &Path) -> Result<Pressure, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let pressure = Pressure::parse(&text);
    if pressure.some.is_none() {
        return Err(format!("{} has no valid `some` line", path.display()));
    }
    Ok(pressure)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux 6.18. Before 5.13 the CPU's file has no second line.
    const TEXT: &str = "some avg10=46.96 avg60=22.77 avg300=9.43 total=84558783\nfull avg10=0.36 avg60=0.00 avg300=0.05 total=8133111\n";

    #[test]
    fn both_lines_are_parsed() {
        let pressure = Pressure::parse(TEXT);
        let some = pressure.of(PressureKind::Some).unwrap();
        for (found, expected) in some.averages.iter().zip([0.4696, 0.2277, 0.0943]) {
            assert!((found - expected).abs() < 1e-12, "{found}");
        }
        assert_eq!(some.total, Duration::from_micros(84_558_783));
        assert_eq!(pressure.of(PressureKind::Full).unwrap().total, Duration::from_micros(8_133_111));
        let first = TEXT.lines().next().unwrap();
        assert_eq!(Pressure::parse(first), Pressure { full: None, ..pressure });
    }

    #[test]
    fn malformed_lines_are_absent() {
        for text in ["", "some\n", "some avg10=1 avg60=1 total=3\n", "some avg10=nan avg60=1 avg300=1 total=3\n"] {
            assert_eq!(Pressure::parse(text), Pressure::default(), "{text}");
        }
        let odd = "some avg10=101.00 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(Pressure::parse(odd), Pressure::default());
    }

    fn hierarchy(version: CgroupVersion, memory: &Path) -> Hierarchy {
        Hierarchy { version, memory: memory.to_owned(), freezer: None, hybrid: false }
    }

    #[test]
    fn the_cgroup_of_all_pods_is_found_by_either_name() {
        let root = tempfile::tempdir().unwrap();
        let files = PressureFiles::new(root.path(), &hierarchy(CgroupVersion::V2, root.path()));
        let read = || files.read(PressureScope::Kubepods, PressureResource::Memory);
        assert!(read().unwrap_err().contains("no kubepods.slice or kubepods in"));
        let pods = root.path().join("kubepods");
        std::fs::create_dir(&pods).unwrap();
        assert!(read().unwrap_err().contains("memory.pressure"), "psi is off");
        std::fs::write(pods.join("memory.pressure"), TEXT).unwrap();
        assert_eq!(read(), Ok(Pressure::parse(TEXT)));
        assert!(files.read(PressureScope::System, PressureResource::Io).unwrap_err().contains("psi=1"));
    }

    #[test]
    fn cgroup_v1_has_no_pressure_of_pods() {
        let files = PressureFiles::new(Path::new("/proc"), &hierarchy(CgroupVersion::V1, Path::new("/x")));
        let refused = files.read(PressureScope::Kubepods, PressureResource::Memory).unwrap_err();
        assert!(refused.contains("cgroup v1"), "{refused}");
    }
}
