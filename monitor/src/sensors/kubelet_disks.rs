//! Whether a disk is below a hard threshold of the kubelet that runs on this node.

use std::path::Path;
use std::time::Duration;

use crate::config::Policy;
use crate::eviction::{Armed, Layout, Observation, arm, is_below};
use crate::node::other_killers::{Acts, Killer, OtherKiller, find, look_at};
use crate::units::Monotonic;

/// Where no kubelet was found before, one is looked for this often. That takes reading the name of every process.
const LOOKED_FOR: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub struct KubeletDisks {
    kubelet: Option<OtherKiller>,
    looked: Option<Monotonic>,
    policy: Policy,
    /// The kubelet's thresholds on disks, and the layout that they are armed for.
    armed: (Layout, Vec<Armed>),
}

impl KubeletDisks {
    /// Looks whether the kubelet still runs, and at its thresholds: a kubelet that was started again may have others.
    pub(super) fn renew(&mut self, proc_root: &Path, now: Monotonic) {
        let known = self.kubelet.take();
        let same = known.as_ref().and_then(|kubelet| look_at(proc_root, kubelet.pid));
        let is_due = known.is_some() || self.looked.is_none_or(|looked| now.since(looked) >= LOOKED_FOR);
        let look = || find(proc_root).into_iter().find(|other| other.killer == Killer::Kubelet);
        if same.is_none() && is_due {
            self.looked = Some(now);
        }
        self.kubelet = same.or_else(|| look().filter(|_| is_due));
        if self.kubelet != known {
            let thresholds = match self.kubelet.as_ref().map(|kubelet| &kubelet.acts) {
                Some(Acts::At(thresholds)) => thresholds.clone(),
                Some(Acts::Unknown(_) | Acts::ByOwnRules) | None => Vec::new(),
            };
            self.policy = Policy { hard_count: thresholds.len(), thresholds, ..Policy::default() };
            self.arm(self.armed.0);
        }
    }

    /// Returns whether a disk is below one of the kubelet's thresholds.
    pub(super) fn are_below(&mut self, observation: &Observation, layout: Layout) -> bool {
        if self.policy.thresholds.is_empty() || self.kubelet.is_none() {
            return false;
        }
        if self.armed.0 != layout {
            self.arm(layout);
        }
        self.armed.1.iter().any(|armed| is_below(&self.policy, &armed.threshold, observation, false))
    }

    fn arm(&mut self, layout: Layout) {
        let armed = arm(&self.policy, layout).into_iter();
        let on_disk = |armed: &Armed| armed.counts(false) && armed.threshold.signal.resource().is_on_disk();
        self.armed = (layout, armed.filter(on_disk).collect());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::eviction::SignalValue;
    use crate::units::{Bytes, Signal};

    const SECOND: u64 = 1_000_000_000;

    /// Makes a kubelet with this threshold on the node's file system.
    fn start(proc_root: &Path, pid: u32, threshold: &str) {
        let directory = proc_root.join(pid.to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("comm"), "kubelet\n").unwrap();
        let arguments = format!("kubelet\0--eviction-hard=nodefs.available<{threshold},memory.available<1Gi\0");
        fs::write(directory.join("cmdline"), arguments).unwrap();
    }

    #[test]
    fn the_thresholds_are_those_of_the_kubelet_that_runs() {
        let proc = tempfile::tempdir().unwrap();
        let mut disks = KubeletDisks::default();
        let mut is_below = |available: u64, seconds: u64| {
            disks.renew(proc.path(), Monotonic(seconds * SECOND));
            let of = |signal, available| SignalValue::now(signal, Bytes(available), Bytes(1000));
            let signals = vec![of(Signal::MemoryAvailable, 0), of(Signal::NodeFsAvailable, available)];
            disks.are_below(&Observation { signals }, Layout::Single)
        };
        assert!(!is_below(0, 1), "there is no kubelet");
        start(proc.path(), 7, "10%");
        assert!(!is_below(0, 300), "it is not looked for yet");
        assert!(is_below(99, 301) && !is_below(100, 302));
        fs::remove_dir_all(proc.path().join("7")).unwrap();
        start(proc.path(), 8, "20%");
        assert!(is_below(199, 303) && !is_below(200, 304), "it was started again");
        start(proc.path(), 8, "0%");
        assert!(!is_below(0, 305), "its eviction is off");
        start(proc.path(), 8, "20%");
        assert!(is_below(199, 306));
        fs::remove_dir_all(proc.path().join("8")).unwrap();
        assert!(!is_below(0, 307), "it is gone");
    }
}
