//! Node conditions as log records: one when a condition changes, none while it stays.

use std::collections::BTreeMap;

/// A condition whose status is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionChange {
    /// Its name, e.g. `MemoryPressure`.
    pub condition: String,
    /// Its status now.
    pub status: bool,
}

impl ConditionChange {
    /// Writes the record `event="condition"`.
    pub fn log(&self) {
        let Self { condition, status } = self;
        if *status {
            tracing::warn!(event = "condition", condition, status, "{condition} is now true");
        } else {
            tracing::info!(event = "condition", condition, status, "{condition} is now false");
        }
    }
}

/// Remembers what was reported.
#[derive(Debug, Default)]
pub struct ConditionLog {
    last: BTreeMap<String, bool>,
}

impl ConditionLog {
    /// Returns what changed, if anything. A condition that is false when first seen is no change.
    pub fn update(&mut self, condition: &str, status: bool) -> Option<ConditionChange> {
        let before = self.last.get_mut(condition).map(|before| std::mem::replace(before, status));
        if before.is_none() {
            self.last.insert(condition.to_owned(), status);
        }
        (before.unwrap_or(false) != status).then(|| ConditionChange { condition: condition.to_owned(), status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_told() {
        let mut log = ConditionLog::default();
        let mut update = |status| log.update("MemoryPressure", status);
        let change = |status| Some(ConditionChange { condition: "MemoryPressure".to_owned(), status });
        assert_eq!(update(false), None);
        assert_eq!(update(true), change(true));
        assert_eq!(update(true), None);
        assert_eq!(update(false), change(false));
        assert_eq!(update(false), None);
        // Pressure from the start is news.
        let mut fresh = ConditionLog::default();
        assert_eq!(fresh.update("MemoryPressure", true), change(true));
    }
}
