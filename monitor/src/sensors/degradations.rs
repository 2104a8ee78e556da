//! The table of missing capabilities. The loop sets an entry as often as it likes; the reporter gets each change once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

/// Something that the agent can miss and still run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// As logs, `/readyz` and `doctor` call it; unique.
    pub name: &'static str,
    /// What the agent does without it.
    pub effect: &'static str,
}

impl Capability {
    #[must_use]
    pub const fn new(name: &'static str, effect: &'static str) -> Self {
        Self { name, effect }
    }
}

/// One capability that was lost or restored, or whose reason changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was there before.
    Degraded(Capability, String),
    /// It was missing before, for another reason; not worth a log line, since a reason may hold a duration.
    ReasonChanged(Capability, String),
    Restored(Capability),
}

/// In the order in which they happened.
pub type Changes = Vec<Change>;

/// Capabilities that are missing, with the reasons, and the changes that were not reported yet.
#[derive(Debug, Default)]
pub struct Degradations {
    missing: BTreeMap<&'static str, Missing>,
    changes: Changes,
}

#[derive(Debug)]
struct Missing {
    capability: Capability,
    reason: String,
}

impl Degradations {
    /// Sets why a capability is missing, or that it is there. Allocates only when that changes.
    pub fn set(&mut self, capability: Capability, reason: Option<&str>) {
        let Some(reason) = reason else {
            self.changes.extend(self.missing.remove(capability.name).map(|it| Change::Restored(it.capability)));
            return;
        };
        match self.missing.entry(capability.name) {
            Entry::Vacant(entry) => {
                entry.insert(Missing { capability, reason: reason.to_owned() });
                self.changes.push(Change::Degraded(capability, reason.to_owned()));
            }
            Entry::Occupied(mut entry) if entry.get().reason != reason => {
                entry.insert(Missing { capability, reason: reason.to_owned() });
                self.changes.push(Change::ReasonChanged(capability, reason.to_owned()));
            }
            Entry::Occupied(_) => {}
        }
    }

    /// Returns what changed since the last call.
    #[must_use]
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    #[must_use]
    pub fn is_missing(&self, capability: Capability) -> bool {
        self.missing.contains_key(capability.name)
    }

    /// Returns the missing capabilities as text, `name: reason`, by name.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        self.missing.values().map(ToString::to_string)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.capability.name, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Capability = Capability::new("disk_usage", "no workload is evicted for a full disk");
    const VMSTAT: Capability = Capability::new("vmstat", "refaults are unknown");

    #[test]
    fn each_change_is_reported_once() {
        let mut table = Degradations::default();
        table.set(DISK, None);
        assert_eq!(table.take_changes(), [], "a capability that was there from the start is not restored");
        table.set(DISK, Some("no answer for 30 s"));
        table.set(DISK, Some("no answer for 30 s"));
        table.set(VMSTAT, Some("EIO"));
        let degraded = |capability, reason: &str| Change::Degraded(capability, reason.to_owned());
        assert_eq!(table.take_changes(), [degraded(DISK, "no answer for 30 s"), degraded(VMSTAT, "EIO")]);
        assert_eq!(table.texts().collect::<Vec<_>>(), ["disk_usage: no answer for 30 s", "vmstat: EIO"]);
        table.set(DISK, Some("no answer for 31 s"));
        assert_eq!(table.take_changes(), [Change::ReasonChanged(DISK, "no answer for 31 s".to_owned())]);
        table.set(DISK, None);
        table.set(DISK, None);
        assert_eq!(table.take_changes(), [Change::Restored(DISK)]);
        assert!(table.is_missing(VMSTAT) && !table.is_missing(DISK));
    }
}
