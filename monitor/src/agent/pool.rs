//! The pool of this node. Its fields are in force once the node's labels are known. An agent that starts while the API server is away
//! goes on in the pool of the agent before it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::config::{KnownPool, Mode, MonitorConfig};
use crate::node::replaced_file::replace;
use crate::units::boot_id;

/// Chooses the configuration of this node from those of the file.
#[derive(Debug)]
pub struct PoolChoice {
    /// The configuration of the file, with all its pools.
    wanted: MonitorConfig,
    record: PathBuf,
    /// The pool in the record, of this boot. Empty: no pool.
    recorded: Option<String>,
}

impl PoolChoice {
    pub fn of(wanted: MonitorConfig) -> Self {
        let record = wanted.lock_file.with_added_extension("pool");
        let recorded = read(&record);
        Self { wanted, record, recorded }
    }

    pub(super) fn set_wanted(&mut self, wanted: MonitorConfig) {
        self.wanted = wanted;
    }

    /// Tells whether the node may be in a pool that evicts.
    pub fn strictest_mode(&self) -> Mode {
        let modes = self.wanted.pools.iter().map(|pool| pool.config.mode);
        if modes.chain([self.wanted.mode]).any(|mode| mode == Mode::Enforce) { Mode::Enforce } else { Mode::Observe }
    }

    pub(super) fn has_pools(&self) -> bool {
        !self.wanted.pools.is_empty()
    }

    /// Returns the configuration of this node. `labels` are those of the node's object, if they are known; without an API server a node
    /// has none.
    pub fn choose(&mut self, labels: Option<&BTreeMap<String, String>>) -> MonitorConfig {
        let known = match (labels, &self.recorded) {
            (Some(labels), _) => KnownPool::Labels(labels),
            (None, Some(last)) => KnownPool::Last(last),
            (None, None) => KnownPool::Nothing,
        };
        let config = self.wanted.of_pool(known);
        if labels.is_some() && self.has_pools() {
            self.remember(config.pool.as_deref().unwrap_or_default());
        }
        config
    }

    fn remember(&mut self, pool: &str) {
        if self.recorded.as_deref() == Some(pool) {
            return;
        }
        self.recorded = Some(pool.to_owned());
        if let Err(error) = replace(&self.record, |file| write!(file, "{} {pool}", boot_id())) {
            tracing::warn!(
                event = "degraded",
                capability = "pool",
                path = %self.record.display(),
                reason = %error,
                "the pool of this node cannot be recorded: an agent that starts without the API server will only observe"
            );
        }
    }
}

fn read(record: &Path) -> Option<String> {
    let text = fs::read_to_string(record).ok()?;
    let (boot, pool) = text.split_once(' ')?;
    (boot == boot_id()).then(|| pool.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_remembered_until_the_next_boot() {
        let root = tempfile::tempdir().unwrap();
        let lock_file = root.path().join("lock");
        let text = format!(
            "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nmode: observe\nlockFile: {}\npools:\n  - {{name: batch, nodeSelector: {{pool: batch}}, mode: enforce}}\n",
            lock_file.display()
        );
        let wanted = MonitorConfig::parse("m.yaml", &text).unwrap().config;
        let labels = |value: &str| BTreeMap::from([("pool".to_owned(), value.to_owned())]);
        let after = |labels: Option<&BTreeMap<String, String>>| {
            let mut choice = PoolChoice::of(wanted.clone());
            let config = choice.choose(labels);
            (config.mode, config.pool.as_deref().map(str::to_owned))
        };
        assert_eq!(PoolChoice::of(wanted.clone()).strictest_mode(), Mode::Enforce);
        assert_eq!(after(None), (Mode::Observe, None), "nothing is known");
        let batch = (Mode::Enforce, Some("batch".to_owned()));
        assert_eq!((after(Some(&labels("batch"))), after(None)), (batch.clone(), batch));
        assert_eq!(after(Some(&labels("web"))), (Mode::Observe, None));
        fs::write(lock_file.with_added_extension("pool"), "another-boot batch").unwrap();
        assert_eq!(after(None), (Mode::Observe, None));
    }
}
