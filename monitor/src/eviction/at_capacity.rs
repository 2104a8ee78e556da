//! What thresholds are at a capacity, and which of them cannot act there: shares and quantities can only be compared with one. Pure.

use crate::config::{Policy, Threshold};
use crate::units::{Bytes, Quantity, Signal};

/// The capacity of a signal, in its unit, as far as it is known.
pub type Capacities<'c> = &'c dyn Fn(Signal) -> Option<i64>;

/// A threshold that does not do what it seems to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    pub signal: Signal,
    pub is_hard: bool,
    pub reason: String,
    pub fix: &'static str,
    /// The reason is what is reserved, and not the other thresholds.
    pub is_of_reservation: bool,
}

impl Remark {
    /// Returns the reason as a sentence that names its threshold.
    pub fn sentence(&self) -> String {
        format!("{} threshold on {}: {}", if self.is_hard { "hard" } else { "soft" }, self.signal, self.reason)
    }
}

/// Signals whose filesystems may be one, the second of which is the images'.
const ON_ONE_DISK: [(Signal, Signal); 2] =
    [(Signal::NodeFsAvailable, Signal::ImageFsAvailable), (Signal::NodeFsInodesFree, Signal::ImageFsInodesFree)];
/// Resources that are reserved and have a signal.
const RESERVED: [(&str, Signal); 2] =
    [("memory", Signal::MemoryAvailable), ("ephemeral-storage", Signal::NodeFsAvailable)];

/// A threshold with its amount at the capacity.
struct Resolved<'p> {
    threshold: &'p Threshold,
    amount: i64,
    capacity: i64,
}

impl Resolved<'_> {
    fn shown(&self) -> String {
        shown(self.threshold.signal, self.amount)
    }

    /// Shows the threshold as written, and its amount where that is another text.
    fn explained(&self) -> String {
        let Self { threshold, capacity, .. } = self;
        format!("{threshold}, which is {} of {}", self.shown(), shown(threshold.signal, *capacity))
    }

    fn remark(&self, reason: String, fix: &'static str) -> Remark {
        let Threshold { signal, .. } = *self.threshold;
        Remark { signal, is_hard: self.threshold.is_hard(), reason, fix, is_of_reservation: false }
    }
}

/// Shows an amount of a signal: bytes with their unit, anything else as a number.
pub fn shown(signal: Signal, amount: i64) -> String {
    match u64::try_from(amount).ok().filter(|_| signal.resource().is_bytes()) {
        Some(bytes) => Bytes(bytes).to_string(),
        None => amount.to_string(),
    }
}

/// Returns the thresholds that cannot act, or act on memory that is promised to pods. `is_one_disk` says that images are on nodefs.
pub fn remarks(policy: &Policy, capacities: Capacities<'_>, is_one_disk: bool) -> Vec<Remark> {
    let all = policy.thresholds.iter().filter_map(|threshold| {
        let capacity = capacities(threshold.signal)?;
        Some(Resolved { threshold, amount: threshold.value.resolve(capacity, policy.quirks).units(), capacity })
    });
    let all: Vec<Resolved<'_>> = all.collect();
    let mut remarks = soft_below_hard(&all);
    if is_one_disk {
        remarks.extend(shadowed(&all));
    }
    remarks.extend(RESERVED.iter().filter_map(|(resource, signal)| uncovered(policy, &all, resource, *signal)));
    remarks
}

/// A soft threshold that is met only when the hard one is.
fn soft_below_hard(all: &[Resolved<'_>]) -> Vec<Remark> {
    let of = |soft: &Resolved<'_>| {
        let hard = all.iter().find(|it| it.threshold.is_hard() && it.threshold.signal == soft.threshold.signal)?;
        (!soft.threshold.is_hard() && soft.amount <= hard.amount).then(|| {
            let reason = format!(
                "{} is not above the hard threshold {}: that one is met first and evicts at once, and this one never acts",
                soft.shown(),
                hard.explained()
            );
            soft.remark(reason, "raise the soft threshold, or leave it out")
        })
    };
    all.iter().filter_map(of).collect()
}

/// Of two thresholds on one filesystem only the larger one acts.
fn shadowed(all: &[Resolved<'_>]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for (node, image) in ON_ONE_DISK {
        for is_hard in [true, false] {
            let find =
                |signal| all.iter().find(|it| it.threshold.signal == signal && it.threshold.is_hard() == is_hard);
            let (Some(node), Some(image)) = (find(node), find(image)) else { continue };
            let (smaller, larger) = if node.amount < image.amount { (node, image) } else { (image, node) };
            if smaller.amount < larger.amount {
                let reason = format!(
                    "never acts where images are on the same filesystem as nodefs: {} is met first",
                    larger.explained()
                );
                remarks.push(smaller.remark(reason, "leave it so if that is meant, or give both the same value"));
            }
        }
    }
    remarks
}

/// A threshold above what is reserved: the scheduler fills the node until it is met.
fn uncovered(policy: &Policy, all: &[Resolved<'_>], resource: &str, signal: Signal) -> Option<Remark> {
    let of_signal = || all.iter().filter(|it| it.threshold.signal == signal);
    let largest = of_signal().max_by_key(|it| it.amount)?;
    let reservations = &policy.reservations;
    let given = reservations.system.iter().chain(&reservations.kube).filter(|(name, _)| name == resource);
    let by_name: Quantity = given.map(|(_, amount)| amount).sum();
    let hard = of_signal().filter(|it| it.threshold.is_hard() && reservations.hard_thresholds);
    let hard = hard.map(|it| it.amount).max().unwrap_or(0);
    let covered = by_name.value_bytes().saturating_add(hard);
    if covered >= largest.amount {
        return None;
    }
    let subtracted =
        if hard > 0 { format!(", {} of it the hard threshold", shown(signal, hard)) } else { String::new() };
    let reason = format!(
        "{} is kept from pods ({resource}{subtracted}), less than the largest threshold, {}: the scheduler fills what evictions keep free",
        shown(signal, covered),
        largest.explained()
    );
    let remark = largest
        .remark(reason, "reserve what the system needs and the threshold (systemReserved), or lower the threshold");
    Some(Remark { is_of_reservation: true, ..remark })
}

/// Returns the signal of nodefs that has the same figures where images are on nodefs.
pub fn as_node_fs(signal: Signal) -> Signal {
    ON_ONE_DISK.iter().find(|(_, image)| *image == signal).map_or(signal, |(node, _)| *node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MonitorConfig;
    use crate::units::signed;

    /// Returns what is said of thresholds at 64Gi of memory and 100Gi of disk with a million inodes.
    fn said(file: &str, memory: u64, is_one_disk: bool) -> Vec<String> {
        let policy = MonitorConfig::parse("f", file).unwrap_or_else(|errors| panic!("{file}\n{errors}")).config.policy;
        let capacities = |signal: Signal| match signal {
            Signal::MemoryAvailable => Some(signed(memory << 30)),
            Signal::NodeFsAvailable | Signal::ImageFsAvailable => Some(100 << 30),
            Signal::NodeFsInodesFree | Signal::ImageFsInodesFree => Some(1_000_000),
            _ => None,
        };
        let remarks = remarks(&policy, &capacities, is_one_disk);
        remarks
            .iter()
            .map(|it| format!("{} {}: {}", if it.is_hard { "hard" } else { "soft" }, it.signal, it.reason))
            .collect()
    }

    const HEAD: &str =
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nsystemReserved: {memory: 8Gi}\n";

    // kubernetes-sigs/karpenter#2852: 5% beside 500Mi.
    #[test]
    fn a_soft_threshold_below_the_hard_one_never_acts() {
        for (hard, soft, memory, is_said) in [
            ("5%", "500Mi", 64, true),
            ("5%", "500Mi", 16, true),
            ("5%", "500Mi", 4, false),
            ("1Gi", "10%", 8, true),
            ("1Gi", "10%", 16, false),
            ("10%", "5%", 16, true),
        ] {
            let grace = "evictionSoftGracePeriod: {memory.available: 1m}\n";
            let file = format!(
                "{HEAD}evictionHard: {{memory.available: {hard}}}\nevictionSoft: {{memory.available: {soft}}}\n{grace}"
            );
            let found = said(&file, memory, false);
            assert_eq!(found.len(), usize::from(is_said), "{hard} {soft} {memory}: {found:?}");
        }
        let file = format!(
            "{HEAD}evictionHard: {{memory.available: 5%}}\nevictionSoft: {{memory.available: 500Mi}}\nevictionSoftGracePeriod: {{memory.available: 1m}}\n"
        );
        let expected = "soft memory.available: 500.0 MiB is not above the hard threshold memory.available<5%, which is 3.2 GiB of 64.0 GiB: that \
                        one is met first and evicts at once, and this one never acts";
        assert_eq!(said(&file, 64, false), [expected]);
    }

    #[test]
    fn of_two_thresholds_on_one_disk_the_larger_one_acts() {
        let file = format!(
            "{HEAD}evictionHard: {{nodefs.available: 10%, imagefs.available: 15%, nodefs.inodesFree: 100k, imagefs.inodesFree: 5%}}\n"
        );
        let found = said(&file, 64, true);
        assert!(found[0].starts_with("hard nodefs.available: never acts where images"), "{found:?}");
        assert!(found[0].contains("imagefs.available<15%, which is 15.0 GiB of 100.0 GiB"), "{found:?}");
        assert!(
            found[1].starts_with("hard imagefs.inodesFree: never acts") && found[1].contains("is 100000 of 1000000"),
            "{found:?}"
        );
        assert_eq!(said(&file, 64, false), [""; 0]);
    }

    #[test]
    fn the_reservation_covers_the_largest_threshold() {
        let soft = "evictionSoft: {memory.available: 10%}\nevictionSoftGracePeriod: {memory.available: 1m}\n";
        let own = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
        for (file, is_said) in [
            (format!("{HEAD}{soft}"), false),
            (format!("{HEAD}{soft}").replace("8Gi", "1Gi"), true),
            (format!("{own}systemReserved: {{memory: 1Gi}}\n{soft}"), true),
            (format!("{own}systemReserved: {{memory: 7Gi}}\n{soft}"), false),
            (
                "kubeletArguments:\n  system-reserved: [memory=1Gi]\n  eviction-hard: ['memory.available<5%']\n"
                    .to_owned(),
                true,
            ),
            (
                "kubeletArguments:\n  system-reserved: [memory=4Gi]\n  eviction-hard: ['memory.available<5%']\n"
                    .to_owned(),
                false,
            ),
            ("kubelet --system-reserved=memory=1Gi --eviction-hard=memory.available<5%".to_owned(), false),
        ] {
            let found = said(&file, 64, false);
            assert_eq!(found.len(), usize::from(is_said), "{file}: {found:?}");
            assert!(found.iter().all(|it| it.contains("is kept from pods (memory")), "{found:?}");
        }
    }
}
