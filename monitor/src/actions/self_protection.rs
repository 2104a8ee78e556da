//! Keeping the agent alive and quick when memory is short.

use std::path::Path;

use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, Rlimit};

/// The value that the kubelet gives itself.
const OWN_OOM_SCORE_ADJ: &str = "-999";

/// A loop that sleeps nearly always may go first when it wakes.
const OWN_NICE: i32 = -10;

/// Locks the agent's memory, makes it the last choice of the OOM killer, and lets it hold all the files it needs. Returns what
/// could not be had, each with its consequence.
#[must_use]
pub fn apply(proc_root: &Path) -> Vec<String> {
    let mut missing = Vec::new();
    // ONFAULT (Linux 4.4): what is used stays; what is merely mapped costs nothing.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(errno) = rustix::mm::mlockall(flags) {
        missing.push(format!(
            "locked memory: mlockall: {errno}; under pressure the agent may wait for its own pages (needs CAP_IPC_LOCK)"
        ));
    }
    let path = proc_root.join("self/oom_score_adj");
    if let Err(error) = std::fs::write(&path, OWN_OOM_SCORE_ADJ) {
        missing.push(format!(
            "own oom_score_adj: cannot write {OWN_OOM_SCORE_ADJ} to {}: {error}; the OOM killer may choose the agent \
             (needs CAP_SYS_RESOURCE)",
            path.display()
        ));
    }
    if let Err(errno) = rustix::process::setpriority_process(None, OWN_NICE) {
        missing.push(format!(
            "own priority: cannot set nice {OWN_NICE}: {errno}; on a busy machine the agent may have to wait for a CPU \
             (needs CAP_SYS_NICE)"
        ));
    }
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // Four files a workload are held open; the hard limit is what the operator allows.
    if let Err(errno) = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        missing.push(format!("open files: cannot raise the limit: {errno}"));
    }
    missing
}
