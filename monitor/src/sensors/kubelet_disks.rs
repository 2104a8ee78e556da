//! Whether a disk is below a hard threshold of the kubelet that runs on this node.

use std::path::Path;
use std::time::Duration;

use crate::config::{Policy, Threshold};
use crate::eviction::{Armed, Layout, Observation, arm, is_below};
use crate::node::other_killers::{Acts, find_kubelet};
use crate::node::process_facts;
use crate::units::{Monotonic, Pid};

/// For so long a kubelet is searched for in each look: after it has ended, and after the agent's start.
const AWAITED: Duration = Duration::from_secs(300);
/// Afterwards it is searched for this often. That takes reading the name of every process.
const LOOKED_FOR: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub struct KubeletDisks {
    kubelet: Option<Known>,
    /// When a kubelet was last seen, or first looked for.
    seen: Option<Monotonic>,
    looked: Option<Monotonic>,
    policy: Policy,
    /// The layout that the kubelet's thresholds on disks are armed for, and whether each was met. The kubelet goes on until its minimum reclaim
    /// is there, too.
    armed: (Layout, Vec<(Armed, bool)>),
}

/// A kubelet reads its configuration when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    pid: i32,
    started: Option<u64>,
}

impl KubeletDisks {
    /// Looks whether the kubelet still runs. Otherwise searches for another one, which may have other thresholds, if there is time for that.
    pub(super) fn renew(&mut self, proc_root: &Path, may_search: bool, now: Monotonic) {
        let started = |pid: i32| process_facts::started(proc_root, Pid(pid));
        if self.kubelet.is_some_and(|known| known.started.is_some() && started(known.pid) == known.started) {
            self.seen = Some(now);
            return;
        }
        let seen = *self.seen.get_or_insert(now);
        let is_awaited = self.kubelet.is_some() || now.since(seen) < AWAITED;
        let is_due = self.looked.is_none_or(|looked| now.since(looked) >= LOOKED_FOR);
        let searches = may_search && (is_awaited || is_due);
        let mut found = None;
        if searches {
            (self.looked, found) = (Some(now), find_kubelet(proc_root));
        }
        if found.is_some() {
            self.seen = Some(now);
        }
        self.kubelet = found.as_ref().map(|kubelet| Known { pid: kubelet.pid, started: started(kubelet.pid) });
        let thresholds: Vec<Threshold> = match found.map(|kubelet| kubelet.acts) {
            Some(Acts::At(thresholds)) => thresholds.into_iter().filter(Threshold::is_hard).collect(),
            Some(Acts::Unknown(_) | Acts::ByOwnRules) | None => Vec::new(),
        };
        self.policy = Policy { hard_count: thresholds.len(), thresholds, ..Policy::default() };
        self.arm(self.armed.0);
    }

    /// Takes in the signals. Returns whether a disk is below one of the kubelet's thresholds.
    pub(super) fn observe(&mut self, observation: &Observation, layout: Layout) -> bool {
        if self.kubelet.is_none() {
            return false;
        }
        if self.armed.0 != layout {
            self.arm(layout);
        }
        for (armed, was_met) in &mut self.armed.1 {
            *was_met = is_below(&self.policy, &armed.threshold, observation, *was_met);
        }
        self.armed.1.iter().any(|(_, is_met)| *is_met)
    }

    fn arm(&mut self, layout: Layout) {
        let armed = arm(&self.policy, layout).into_iter();
        let on_disk = |armed: &Armed| armed.counts(false) && armed.threshold.signal.resource().is_on_disk();
        self.armed = (layout, armed.filter(on_disk).map(|armed| (armed, false)).collect());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::eviction::SignalValue;
    use crate::units::{Bytes, Signal};

    const SECOND: u64 = 1_000_000_000;

    /// Makes a process of this user that is a kubelet with these thresholds.
    fn start(proc_root: &Path, pid: u32, user: u32, thresholds: &str) {
        let directory = proc_root.join(pid.to_string());
        fs::create_dir_all(&directory).unwrap();
        for (file, text) in [
            ("comm", "kubelet\n".to_owned()),
            ("cmdline", format!("kubelet\0--eviction-hard=memory.available<1Gi,{thresholds}\0")),
            ("status", format!("Name:\tkubelet\nUid:\t{user}\t{user}\t{user}\t{user}\n")),
            ("stat", format!("{pid} (kubelet) S{}{pid}00", " 0".repeat(18) + " ")),
        ] {
            fs::write(directory.join(file), text).unwrap();
        }
    }

    struct Node(tempfile::TempDir, KubeletDisks);

    impl Node {
        fn is_below(&mut self, available: u64, seconds: u64) -> bool {
            self.1.renew(self.0.path(), true, Monotonic(seconds * SECOND));
            let of = |signal, available| SignalValue::now(signal, Bytes(available), Bytes(1000));
            let signals = vec![of(Signal::MemoryAvailable, 0), of(Signal::NodeFsAvailable, available)];
            self.1.observe(&Observation { signals }, Layout::Single)
        }

        fn start(&self, pid: u32, user: u32, thresholds: &str) {
            start(self.0.path(), pid, user, thresholds);
        }

        fn end(&self, pid: u32) {
            fs::remove_dir_all(self.0.path().join(pid.to_string())).unwrap();
        }
    }

    #[test]
    fn the_thresholds_are_those_of_the_kubelet_that_runs() {
        let mut node = Node(tempfile::tempdir().unwrap(), KubeletDisks::default());
        assert!(!node.is_below(0, 1), "there is no kubelet");
        node.start(5, 1000, "nodefs.available<99%");
        assert!(!node.is_below(0, 20), "a user's process may have any name");
        node.start(7, 0, "nodefs.available<10%");
        assert!(node.is_below(99, 40) && !node.is_below(100, 60));
        node.end(7);
        assert!(!node.is_below(0, 80), "it is gone");
        node.start(8, 0, "nodefs.available<20%");
        assert!(node.is_below(199, 100) && !node.is_below(200, 120), "it was started again");
        node.end(8);
        node.start(9, 0, "nodefs.available<0%");
        assert!(!node.is_below(0, 140), "its eviction is off");
        node.end(9);
        assert!(!node.is_below(0, 160) && !node.is_below(0, 500));
        node.start(10, 0, "nodefs.available<20%");
        assert!(!node.is_below(0, 520), "it is looked for seldom");
        assert!(node.is_below(0, 800));
    }

    #[test]
    fn the_kubelet_goes_on_until_its_minimum_reclaim_is_there() {
        let mut node = Node(tempfile::tempdir().unwrap(), KubeletDisks::default());
        let file = node.0.path().join("7/root/kubelet.yaml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let fields = "evictionHard: {nodefs.available: \"100\"}\nevictionMinimumReclaim: {nodefs.available: \"50\"}\n";
        fs::write(file, format!("{head}{fields}")).unwrap();
        node.start(7, 0, "");
        fs::write(node.0.path().join("7/cmdline"), "kubelet\0--config=/kubelet.yaml\0").unwrap();
        assert!(!node.is_below(120, 1) && node.is_below(99, 2));
        assert!(node.is_below(149, 3) && !node.is_below(150, 4) && !node.is_below(120, 5));
    }
}
