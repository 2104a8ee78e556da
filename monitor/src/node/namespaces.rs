//! The namespaces of the agent. Inside a namespace of its own, paths of cgroups and process ids differ from the machine's.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The links of the initial namespaces, whose inode numbers the kernel fixes (`include/uapi/linux/nsfs.h`, `PROC_*_INIT_INO`).
const INITIAL: [(&str, &str); 2] = [("cgroup", CGROUP), ("pid", "pid:[4026531836]")];
const CGROUP: &str = "cgroup:[4026531835]";
/// The namespace of the machine's init, for an agent that sees the machine's processes.
const OF_INIT: &str = "/proc/1/ns/cgroup";

/// Returns the namespaces that the agent does not share with the machine's init, by their names under `/proc/self/ns`.
pub fn private() -> Vec<&'static str> {
    let is_private = |(name, initial): &(&'static str, &str)| {
        // A kernel built without such namespaces has no link, and all processes share one.
        std::fs::read_link(Path::new("/proc/self/ns").join(name)).is_ok_and(|link| link != Path::new(initial))
    };
    INITIAL.into_iter().filter(is_private).map(|(name, _)| name).collect()
}

/// Moves this thread, and all threads that it starts later, to the machine's cgroup namespace. Returns whether the thread was in another.
/// On cgroup v2, container runtimes create a cgroup namespace for each container that is not privileged, and Kubernetes has no setting
/// against it.
pub fn join_cgroups_of_machine() -> Result<bool, String> {
    if !private().contains(&"cgroup") {
        return Ok(false);
    }
    join(Path::new(OF_INIT)).map(|()| true)
}

fn join(link: &Path) -> Result<(), String> {
    let cannot = |what: &str, error: std::io::Error| format!("cannot {what} {}: {error}", link.display());
    let namespace = File::open(link).map_err(|error| cannot("open", error) + " (needs hostPID and CAP_SYS_PTRACE)")?;
    // In a pid namespace of the agent's own, process 1 is not the machine's init.
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
    fn a_thread_returns_to_the_machines_namespace() {
        let mine = || std::fs::read_link("/proc/thread-self/ns/cgroup").unwrap();
        if mine() != Path::new(CGROUP) {
            println!("SKIPPED returning to the machine's cgroup namespace: this process is not in it");
            return;
        }
        let thread = std::thread::spawn(move || {
            // SAFETY: a new cgroup namespace changes only what this thread reads about cgroups, neither memory nor files.
            if unsafe { unshare_unsafe(UnshareFlags::NEWCGROUP) }.is_err() {
                println!("SKIPPED returning to the machine's cgroup namespace: no CAP_SYS_ADMIN");
                return;
            }
            assert_ne!(mine(), Path::new(CGROUP));
            assert!(join(Path::new("/proc/thread-self/ns/cgroup")).unwrap_err().contains("is not the machine's"));
            // The namespace of the process's first thread.
            join(Path::new("/proc/self/ns/cgroup")).unwrap();
            assert_eq!(mine(), Path::new(CGROUP));
        });
        thread.join().unwrap();
    }

    #[test]
    fn the_error_names_the_link_and_the_permission() {
        let reason = join(Path::new("/nonexistent/ns/cgroup")).unwrap_err();
        assert!(reason.contains("/nonexistent/ns/cgroup") && reason.contains("hostPID"), "{reason}");
    }
}
