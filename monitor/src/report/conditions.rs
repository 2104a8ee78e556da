//! Node conditions as log records: one when a condition changes, none while it stays.

use std::collections::BTreeMap;

use super::ConditionReport;

/// A condition whose status is not what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionChange {
    /// Its name, e.g. `MemoryPressure`.
    pub condition: &'static str,
    /// Its status now.
    pub status: bool,
}

impl ConditionChange {
    /// Writes the record `event="condition"`.
    pub fn log(self) {
        let Self { condition, status } = self;
        if status {
            tracing::warn!(event = "condition", condition, status, "{condition} is now true");
        } else {
            tracing::info!(event = "condition", condition, status, "{condition} is now false");
        }
    }
}

/// Remembers what was reported.
#[derive(Debug, Default)]
pub struct ConditionLog {
    last: BTreeMap<&'static str, bool>,
}

impl ConditionLog {
    /// Returns what changed. A condition that is false when first seen is no change.
    pub fn update(&mut self, conditions: &[ConditionReport]) -> Vec<ConditionChange> {
        let mut changes = Vec::new();
        for &ConditionReport { condition, status } in conditions {
            if self.last.insert(condition, status).unwrap_or(false) != status {
                changes.push(ConditionChange { condition, status });
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_told() {
        let mut log = ConditionLog::default();
        let mut update = |status| log.update(&[ConditionReport { condition: "MemoryPressure", status }]);
        let change = |status| vec![ConditionChange { condition: "MemoryPressure", status }];
        assert_eq!(update(false), []);
        assert_eq!(update(true), change(true));
        assert_eq!(update(true), []);
        assert_eq!(update(false), change(false));
        assert_eq!(update(false), []);
        // Pressure from the start is news.
        let mut fresh = ConditionLog::default();
        assert_eq!(fresh.update(&[ConditionReport { condition: "MemoryPressure", status: true }]), change(true));
    }
}
