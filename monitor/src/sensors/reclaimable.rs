//! How much memory the kernel may reclaim from a cgroup.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::eviction::proactive_reclaim::Holding;
use crate::node::pinned_file::{keyed_value, number_or_max};
use crate::units::Bytes;
use crate::workloads::cgroup_processes::{children, read};

/// Returns the reclaimable memory of the cgroup `directory`. `swap_free` is the free swap of the node.
///
/// # Errors
/// When its figures cannot be read.
pub fn holding(directory: BorrowedFd<'_>, above_request: Bytes, swap_free: Bytes) -> std::io::Result<Holding> {
    let stat = read(directory, "memory.stat")?;
    let bytes = |key| Bytes(keyed_value(&stat, key).unwrap_or(0));
    let swappable = if swap_free.is_zero() { Bytes::ZERO } else { swappable(directory, &stat).min(swap_free) };
    Ok(Holding { above_request, active_file: bytes("active_file"), inactive_file: bytes("inactive_file"), swappable })
}

/// Returns the memory that may be swapped out. The kubelet's `NoSwap` limits the containers but usually not the pod, so the
/// limits of the child cgroups count if there are any.
fn swappable(directory: BorrowedFd<'_>, stat: &str) -> Bytes {
    let pages = |stat: &str| {
        let bytes = |key| keyed_value(stat, key).unwrap_or(0);
        Bytes(bytes("inactive_anon").saturating_add(bytes("active_anon")))
    };
    let own = pages(stat).min(swap_left(directory));
    let below: Vec<Bytes> = children(directory)
        .unwrap_or_default()
        .iter()
        .filter_map(|child| Some(pages(&read(child.as_fd(), "memory.stat").ok()?).min(swap_left(child.as_fd()))))
        .collect();
    if below.is_empty() { own } else { own.min(below.into_iter().sum()) }
}

/// Returns how much more of the workload in the cgroup `directory` may be swapped out: by its own limit, by those of the cgroups above, and by
/// the strictest one of the cgroups in it. Which of these grows is not known.
pub(super) fn room_in_swap(directory: BorrowedFd<'_>) -> Bytes {
    let inside = children(directory).unwrap_or_default();
    let mut room = inside.iter().map(|child| swap_left(child.as_fd())).fold(swap_left(directory), Bytes::min);
    let mut above = parent(directory);
    // The root of the hierarchy has no limit, and nothing above it is a cgroup.
    while let Some(cgroup) = above.filter(|cgroup| read(cgroup.as_fd(), "memory.swap.max").is_ok()) {
        room = room.min(swap_left(cgroup.as_fd()));
        above = parent(cgroup.as_fd());
    }
    room
}

fn parent(directory: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, "..", flags, Mode::empty()).ok()
}

/// Returns how much swap the cgroup's own limit still allows.
fn swap_left(directory: BorrowedFd<'_>) -> Bytes {
    let number = |name| number_or_max(&read(directory, name).unwrap_or_default());
    match (number("memory.swap.max"), number("memory.swap.current")) {
        (Ok(Some(limit)), Ok(Some(used))) => Bytes(limit).saturating_sub(Bytes(used)),
        (Ok(Some(limit)), _) => Bytes(limit),
        // Without these files the kernel does not account for swap, and therefore does not limit it.
        (Ok(None) | Err(_), _) => Bytes::MAX,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    fn held(files: &[(&str, &str)], swap_free: u64) -> Holding {
        let directory = directory(files);
        let open = fs::File::open(directory.path()).unwrap();
        holding(open.as_fd(), Bytes(7), Bytes(swap_free)).unwrap()
    }

    const STAT: &str = "anon 90\nfile 60\ninactive_anon 60\nactive_anon 40\ninactive_file 30\nactive_file 20\n";

    #[test]
    fn swappable_memory_respects_the_limits() {
        let stat = ("memory.stat", STAT);
        let child = |max: &'static str| {
            [stat, ("c/memory.stat", STAT), ("c/memory.swap.max", max), ("c/memory.swap.current", "0\n")]
        };
        let swappable = |files: &[(&str, &str)], swap_free| held(files, swap_free).swappable;
        assert_eq!(swappable(&[stat], 0), Bytes(0), "no swap");
        assert_eq!(swappable(&[stat], 1000), Bytes(100));
        assert_eq!(swappable(&[stat], 10), Bytes(10), "at most the free swap of the node");
        assert_eq!(swappable(&[stat, ("memory.swap.max", "50\n"), ("memory.swap.current", "20\n")], 1000), Bytes(30));
        assert_eq!(swappable(&child("max\n"), 1000), Bytes(100));
        assert_eq!(swappable(&child("0\n"), 1000), Bytes(0), "the kubelet's NoSwap");
        let whole = held(&[stat], 0);
        assert_eq!((whole.above_request, whole.active_file, whole.inactive_file), (Bytes(7), Bytes(20), Bytes(30)));
    }

    #[test]
    fn room_in_swap_is_that_of_the_strictest_limit() {
        let limit = |path: &str, max: &str, used: &str| {
            [
                (format!("{path}memory.swap.max"), max.to_owned()),
                (format!("{path}memory.swap.current"), used.to_owned()),
            ]
        };
        let open = |max: [&str; 4]| {
            let [above, own, one, other] = max;
            let files = [
                limit("", above, "5"),
                limit("pod/", own, "5"),
                limit("pod/a/", one, "5"),
                limit("pod/b/", other, "5"),
            ]
            .concat();
            let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
            let root = directory(&files);
            room_in_swap(fs::File::open(root.path().join("pod")).unwrap().as_fd())
        };
        assert_eq!(open(["max"; 4]), Bytes::MAX);
        assert_eq!(open(["max", "105", "max", "max"]), Bytes(100));
        assert_eq!(open(["25", "105", "max", "max"]), Bytes(20), "the class or all pods are limited");
        assert_eq!(open(["max", "max", "max", "0"]), Bytes(0), "the kubelet's NoSwap of one container");
    }
}
