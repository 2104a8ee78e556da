//! Whether the agent sees the whole machine: paths of cgroups and ids of processes mean something else inside a namespace.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Inode numbers of the initial namespaces, fixed by the kernel (`include/uapi/linux/nsfs.h`, `PROC_*_INIT_INO`).
const INITIAL: [(&str, &str); 2] = [("cgroup", CGROUP), ("pid", "pid:[4026531836]")];
const CGROUP: &str = "cgroup:[4026531835]";
/// That of the machine's init, as far as its processes can be seen at all.
const OF_INIT: &str = "/proc/1/ns/cgroup";

/// The namespaces in which the agent is not with the machine's init, by their names under `/proc/self/ns`.
#[must_use]
pub fn private() -> Vec<&'static str> {
    let is_private = |(name, initial): &(&'static str, &str)| {
        // A kernel built without such namespaces has no such link, and everybody is in the same.
        std::fs::read_link(Path::new("/proc/self/ns").join(name)).is_ok_and(|link| link != Path::new(initial))
    };
    INITIAL.into_iter().filter(is_private).map(|(name, _)| name).collect()
}

/// Moves this thread, and all that it starts from now on, to the machine's cgroup namespace; true when it was in another. Container
/// runtimes give every container that is not privileged one of its own on cgroup v2, and Kubernetes has no word against it.
///
/// # Errors
/// Why it stays where it is.
pub fn join_cgroups_of_machine() -> Result<bool, String> {
    if !private().contains(&"cgroup") {
        return Ok(false);
    }
    join(Path::new(OF_INIT)).map(|()| true)
}

fn join(link: &Path) -> Result<(), String> {
    let cannot = |what: &str, error: std::io::Error| format!("cannot {what} {}: {error}", link.display());
    let namespace = File::open(link).map_err(|error| cannot("open", error) + " (needs hostPID and CAP_SYS_PTRACE)")?;
    // Process 1 of a pid namespace of the agent's own is no help.
    if std::fs::read_link(link).is_ok_and(|found| found != Path::new(CGROUP)) {
        return Err(format!("{} is not the machine's: run the agent with hostPID: true", link.display()));
    }
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ControlGroup))
        .map_err(|errno| cannot("enter", errno.into()) + " (needs CAP_SYS_ADMIN)")
}

#[cfg(test)]
mod tests {
    use rustix::thread::{UnshareFlags, unshare_unsafe};

    use super::*;

    #[test]
    fn a_thread_in_a_namespace_of_its_own_comes_back() {
        let mine = || std::fs::read_link("/proc/thread-self/ns/cgroup").unwrap();
        if mine() != Path::new(CGROUP) {
            println!("SKIPPED coming back to the machine's cgroup namespace: this process is not in it");
            return;
        }
        let gone_and_back = std::thread::spawn(move || {
            // SAFETY: a cgroup namespace of its own changes what this thread reads of cgroups, and nothing of memory or files.
            if unsafe { unshare_unsafe(UnshareFlags::NEWCGROUP) }.is_err() {
                println!("SKIPPED coming back to the machine's cgroup namespace: no CAP_SYS_ADMIN");
                return;
            }
            assert_ne!(mine(), Path::new(CGROUP));
            assert!(join(Path::new("/proc/thread-self/ns/cgroup")).unwrap_err().contains("is not the machine's"));
            // That of the process's first thread.
            join(Path::new("/proc/self/ns/cgroup")).unwrap();
            assert_eq!(mine(), Path::new(CGROUP));
        });
        gone_and_back.join().unwrap();
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let reason = join(Path::new("/nonexistent/ns/cgroup")).unwrap_err();
        assert!(reason.contains("/nonexistent/ns/cgroup") && reason.contains("hostPID"), "{reason}");
    }
}
