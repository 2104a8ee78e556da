//! Whether the agent sees the whole machine: paths of cgroups and ids of processes mean something else inside a namespace.

use std::path::Path;

/// Inode numbers of the initial namespaces, fixed by the kernel (`include/uapi/linux/nsfs.h`, `PROC_*_INIT_INO`).
const INITIAL: [(&str, &str); 2] = [("cgroup", "cgroup:[4026531835]"), ("pid", "pid:[4026531836]")];

/// The namespaces in which the agent is not with the machine's init, by their names under `/proc/self/ns`.
#[must_use]
pub fn private() -> Vec<&'static str> {
    let is_private = |(name, initial): &(&'static str, &str)| {
        // A kernel built without such namespaces has no such link, and everybody is in the same.
        std::fs::read_link(Path::new("/proc/self/ns").join(name)).is_ok_and(|link| link != Path::new(initial))
    };
    INITIAL.into_iter().filter(is_private).map(|(name, _)| name).collect()
}
