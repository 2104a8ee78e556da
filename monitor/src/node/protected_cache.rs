//! Page cache that the kernel spares. `MemAvailable` counts it, but what `memory.min` protects is never handed out, and what `memory.low`
//! protects only when nothing else is left (cgroup v2).

use std::collections::HashMap;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};

use crate::units::{Bytes, CgroupId, kernel_text};

use super::hierarchy::{CgroupVersion, Hierarchy};
use super::mountinfo;
use super::pinned_file::{keyed_value, number_or_max};

/// No more cgroups are looked at in one reading. Each one that is protected gets an equal share of them for those in it, so that nobody's many
/// hide the others.
const MOST: usize = 512;
const MOST_DEEP: usize = 16;
/// With this mount option a cgroup's protection holds for the cgroups in it too (Linux 5.7). systemd sets it since version 246.
const RECURSIVE: &str = "memory_recursiveprot";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProtectedCache {
    /// Cache that `memory.min` protects.
    pub min: Bytes,
    /// Cache that `memory.low` protects, without that of `memory.min`.
    pub low: Bytes,
}

/// The protected cache of the node, and of each cgroup that has some, those below it included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Protections {
    pub all: ProtectedCache,
    pub by_cgroup: HashMap<CgroupId, ProtectedCache>,
}

#[derive(Debug)]
pub struct ProtectedCacheReader {
    root: PathBuf,
    is_recursive: bool,
}

type ByCgroup = HashMap<CgroupId, ProtectedCache>;

/// The figures of one cgroup.
#[derive(Debug)]
struct Group {
    id: CgroupId,
    path: PathBuf,
    usage: u64,
    /// `memory.min` and `memory.low`.
    settings: [u64; 2],
}

/// What protects a cgroup's children: its usage and its effective protections. The root has none, and bounds its children's by nothing.
#[derive(Debug, Clone, Copy)]
struct Parent {
    usage: u64,
    effective: [u64; 2],
}

/// The cgroups that may be looked at below one.
#[derive(Debug, Clone, Copy)]
struct Room {
    cgroups: usize,
    levels: usize,
}

impl ProtectedCacheReader {
    /// Returns the reader; `None` on cgroup v1, which protects nothing.
    pub fn new(proc_root: &Path, hierarchy: &Hierarchy) -> Option<Self> {
        let is_recursive = || {
            let text = kernel_text::read(proc_root.join("self/mountinfo")).unwrap_or_default();
            let mut options = mountinfo::mounts(&text).filter(|it| it.kind == "cgroup2").map(|it| it.options);
            options.any(|options| options.split(',').any(|option| option == RECURSIVE))
        };
        let is_v2 = hierarchy.version == CgroupVersion::V2;
        is_v2.then(|| Self { root: hierarchy.memory.clone(), is_recursive: is_recursive() })
    }

    /// Reads the protections from the root down, and the cache of the protected cgroups that hold no others. Reads three files of each
    /// cgroup at the top, and nothing below one without protection.
    pub fn read(&self) -> Protections {
        let top = groups(&self.root, MOST);
        let mut by_cgroup = HashMap::new();
        let room = Room { cgroups: MOST.saturating_sub(top.len()), levels: MOST_DEEP };
        let all = self.of_groups(&top, None, room, &mut by_cgroup);
        Protections { all, by_cgroup }
    }

    fn of_groups(
        &self,
        groups: &[Group],
        parent: Option<Parent>,
        room: Room,
        by_cgroup: &mut ByCgroup,
    ) -> ProtectedCache {
        let claimed =
            [0, 1].map(|kind| groups.iter().map(|it| it.settings[kind].min(it.usage)).fold(0, u64::saturating_add));
        let effective = |group: &Group| {
            [0, 1].map(|kind| match parent {
                None => group.settings[kind].min(group.usage),
                Some(parent) => {
                    let of = Share { usage: group.usage, setting: group.settings[kind], claimed: claimed[kind] };
                    of.effective(parent.usage, parent.effective[kind], self.is_recursive)
                }
            })
        };
        let protected = groups.iter().map(|group| (group, effective(group))).filter(|(_, it)| *it != [0, 0]);
        let protected: Vec<_> = protected.collect();
        let room = Room { cgroups: room.cgroups / protected.len().max(1), ..room };
        let found = protected.into_iter().map(|(group, effective)| {
            let found = self.of_group(group, effective, room, by_cgroup);
            if found != ProtectedCache::default() {
                by_cgroup.insert(group.id, found);
            }
            found
        });
        found.fold(ProtectedCache::default(), ProtectedCache::plus)
    }

    /// Returns the protected cache of a cgroup: the sum of those in it, unless there are none, or too many.
    fn of_group(&self, group: &Group, effective: [u64; 2], room: Room, by_cgroup: &mut ByCgroup) -> ProtectedCache {
        let inner = groups(&group.path, room.cgroups + 1);
        let below = room.levels.checked_sub(1).filter(|_| !inner.is_empty());
        let below = below.zip(room.cgroups.checked_sub(inner.len()));
        let Some((levels, cgroups)) = below else { return group.protected_cache(effective) };
        self.of_groups(&inner, Some(Parent { usage: group.usage, effective }), Room { cgroups, levels }, by_cgroup)
    }
}

impl ProtectedCache {
    const fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), low: self.low.saturating_add(other.low) }
    }
}

/// Returns the cgroups in `directory` that have figures for memory, at most `most`.
fn groups(directory: &Path, most: usize) -> Vec<Group> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.take(most).filter_map(|entry| Group::read(CgroupId(entry.ino()), entry.path())).collect()
}

impl Group {
    /// Returns the cache of a cgroup that reclaim leaves. Reclaim ends when the usage has fallen to the protected amount.
    fn protected_cache(&self, [min, low]: [u64; 2]) -> ProtectedCache {
        let Ok(stat) = kernel_text::read(self.path.join("memory.stat")) else { return ProtectedCache::default() };
        let value = |key| keyed_value(&stat, key).unwrap_or(0);
        let cache = value("inactive_file").saturating_add(value("active_file")).min(self.usage);
        let left = |protected: u64| protected.saturating_sub(self.usage - cache).min(cache);
        let by_min = left(min);
        ProtectedCache { min: Bytes(by_min), low: Bytes(left(low).saturating_sub(by_min)) }
    }

    /// Returns `None` for a cgroup that is gone, or without the memory controller.
    fn read(id: CgroupId, path: PathBuf) -> Option<Self> {
        let number = |name: &str| number_or_max(&kernel_text::read(path.join(name)).ok()?).ok();
        let usage = number("memory.current")??;
        let settings =
            ["memory.min", "memory.low"].map(|name| number(name).map_or(0, |value| value.unwrap_or(u64::MAX)));
        Some(Self { id, path, usage, settings })
    }
}

/// One cgroup's claim on the protection of the cgroup above it. `claimed` is what it and its siblings claim together.
struct Share {
    usage: u64,
    setting: u64,
    claimed: u64,
}

impl Share {
    /// Returns the effective protection as the kernel computes it (`effective_protection`, mm/page_counter.c, Linux 5.7 to 6.18): the claims
    /// share what the parent has, and with the mount option unclaimed protection goes to unprotected usage.
    fn effective(&self, parent_usage: u64, parent_effective: u64, is_recursive: bool) -> u64 {
        let Self { usage, setting, claimed } = *self;
        let protected = usage.min(setting);
        if claimed > parent_effective {
            return part(protected, parent_effective, claimed);
        }
        let (unprotected, whole) = (usage - protected, parent_usage.saturating_sub(claimed));
        if !is_recursive || whole == 0 {
            return protected;
        }
        protected.saturating_add(part(parent_effective - claimed, unprotected, whole)).min(usage)
    }
}

/// Returns `of * numerator / denominator`.
fn part(of: u64, numerator: u64, denominator: u64) -> u64 {
    let part = u128::from(of) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A cgroup: its path, usage, cache, `memory.min` and `memory.low`, in MiB.
    type Given<'g> = (&'g str, u64, u64, u64, u64);

    fn read(groups: &[Given<'_>], is_recursive: bool) -> (u64, u64) {
        let root = tempfile::tempdir().unwrap();
        for (path, usage, cache, min, low) in groups {
            let directory = root.path().join(path);
            std::fs::create_dir_all(&directory).unwrap();
            let write = |name: &str, text: String| std::fs::write(directory.join(name), text).unwrap();
            write("memory.current", format!("{}\n", usage * MIB));
            write("memory.min", format!("{}\n", min * MIB));
            write("memory.low", format!("{}\n", low * MIB));
            write(
                "memory.stat",
                format!("anon 1\nfile 1\ninactive_file {}\nactive_file {}\n", cache * MIB / 4, cache * MIB / 4 * 3),
            );
        }
        let found = ProtectedCacheReader { root: root.path().to_owned(), is_recursive }.read().all;
        (found.min.0 / MIB, found.low.0 / MIB)
    }

    #[test]
    fn protection_goes_to_anonymous_memory_first() {
        for (name, group, expected) in [
            // The task's scenario: 300 MiB of cache, all of it protected.
            ("all", ("a", 302, 300, 302, 0), (300, 0)),
            ("half", ("a", 300, 300, 150, 0), (150, 0)),
            ("anonymous memory takes all of it", ("a", 900, 300, 600, 0), (0, 0)),
            ("anonymous memory takes a part", ("a", 900, 300, 700, 0), (100, 0)),
            ("more than there is", ("a", 300, 200, 9000, 0), (200, 0)),
            ("low only", ("a", 300, 200, 0, 250), (0, 150)),
            ("low above min", ("a", 300, 300, 100, 250), (100, 150)),
            ("none", ("a", 300, 300, 0, 0), (0, 0)),
        ] {
            assert_eq!(read(&[group], false), expected, "{name}");
        }
    }

    /// Memory QoS of Kubernetes (KEP 2570) sets `memory.min` of each Guaranteed pod and of the groups above it.
    #[test]
    fn a_child_has_no_more_than_its_parent() {
        let kubelets =
            [("kubepods", 1000, 800, 600, 0), ("kubepods/pod1", 500, 400, 300, 0), ("kubepods/pod2", 500, 400, 300, 0)];
        assert_eq!(read(&kubelets, false), (400, 0), "each has 300 MiB, of which 100 are anonymous memory");
        let unprotected_parent = [("user", 1000, 800, 0, 0), ("user/own", 500, 400, 500, 0)];
        assert_eq!(read(&unprotected_parent, false), (0, 0), "the owner of a delegated cgroup protects nothing");
        let overcommitted = [("a", 1000, 1000, 400, 0), ("a/b", 600, 600, 600, 0), ("a/c", 400, 400, 400, 0)];
        assert_eq!(read(&overcommitted, false), (400, 0), "the claims share what the parent has");
    }

    /// What goes with a pod is what it and the cgroups in it have.
    #[test]
    fn each_protected_cgroup_has_the_cache_below_it() {
        let groups = [("pods", 900, 700, 600, 0), ("pods/a", 500, 400, 300, 0), ("pods/a/c", 500, 400, 300, 0)];
        let root = tempfile::tempdir().unwrap();
        for (path, usage, cache, min, _) in groups {
            let directory = root.path().join(path);
            std::fs::create_dir_all(&directory).unwrap();
            for (name, text) in [
                ("memory.current", usage.to_string()),
                ("memory.min", min.to_string()),
                ("memory.low", "0".to_owned()),
                ("memory.stat", format!("inactive_file {cache}\nactive_file 0")),
            ] {
                std::fs::write(directory.join(name), text + "\n").unwrap();
            }
        }
        std::fs::create_dir(root.path().join("bare")).unwrap();
        let found = ProtectedCacheReader { root: root.path().to_owned(), is_recursive: false }.read();
        assert_eq!(found.all.min, Bytes(200));
        let mut each: Vec<Bytes> = groups
            .iter()
            .map(|(path, ..)| found.by_cgroup[&CgroupId(std::fs::metadata(root.path().join(path)).unwrap().ino())].min)
            .collect();
        each.dedup();
        assert_eq!((each, found.by_cgroup.len()), (vec![Bytes(200)], 3));
    }

    /// The values of the kernel's documentation of `memory.low` (mm/page_counter.c).
    #[test]
    fn unclaimed_protection_is_shared_only_where_it_is_recursive() {
        let groups = [("a", 1000, 1000, 500, 0), ("a/b", 600, 600, 0, 0), ("a/c", 400, 400, 0, 0)];
        assert_eq!(read(&groups, false), (0, 0));
        assert_eq!(read(&groups, true), (500, 0));
        let claimed = [("a", 1000, 1000, 500, 0), ("a/b", 600, 600, 300, 0), ("a/c", 400, 400, 0, 0)];
        assert_eq!(read(&claimed, false), (300, 0));
        assert_eq!(read(&claimed, true), (499, 0), "300, and a share of 200 of each; rounded down");
    }

    /// Desktops protect the sessions of users, who may make as many cgroups as they like.
    #[test]
    fn the_many_cgroups_of_one_hide_no_other() {
        let many: Vec<String> = (0..MOST).map(|number| format!("user/{number:04}")).collect();
        let mut groups: Vec<Given<'_>> = vec![("database", 300, 300, 200, 0), ("database/a", 300, 300, 200, 0)];
        groups.push(("user", 100, 80, 60, 0));
        groups.extend(many.iter().map(|path| (path.as_str(), 0, 0, 0, 0)));
        assert_eq!(
            read(&groups, true),
            (240, 0),
            "200 of the database, and 40 of the user by the figures of his own cgroup"
        );
    }

    #[test]
    fn cgroup_v1_has_no_reader_and_a_bare_cgroup_no_figures() {
        let root = tempfile::tempdir().unwrap();
        let hierarchy = |version| Hierarchy { version, memory: root.path().to_owned(), freezer: None, hybrid: false };
        assert!(ProtectedCacheReader::new(Path::new("/proc"), &hierarchy(CgroupVersion::V1)).is_none());
        std::fs::create_dir(root.path().join("bare")).unwrap();
        let reader = ProtectedCacheReader::new(Path::new("/proc"), &hierarchy(CgroupVersion::V2)).unwrap();
        assert_eq!(reader.read(), Protections::default());
    }
}
