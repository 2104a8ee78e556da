//! The pool of this node. Its fields are in force once the node's labels are known. An agent that starts while the API server does not
//! answer uses the labels that the previous agent has recorded.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{KubeletVersion, Mode, MonitorConfig};
use crate::units::boot_id;

use super::replaced_file::replace;

/// Name among the missing capabilities.
pub const CAPABILITY: &str = "pool";
pub const EFFECT: &str = "the node only observes until its labels are known";

/// Chooses the configuration of this node from those of the file.
#[derive(Debug)]
pub struct PoolChoice {
    /// The configuration of the file, with all its pools.
    wanted: MonitorConfig,
    record: PathBuf,
    /// The labels of the node as they were last read, in this boot.
    labels: Option<BTreeMap<String, String>>,
    /// The version of the kubelet on this node.
    kubelet: Option<KubeletVersion>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    boot: String,
    labels: BTreeMap<String, String>,
}

impl PoolChoice {
    /// Reads the record of an earlier agent. Without an API server a node has no labels.
    pub fn of(wanted: MonitorConfig, has_api_server: bool) -> Self {
        let record = wanted.lock_file.with_added_extension("labels");
        let labels = if has_api_server { read(&record) } else { Some(BTreeMap::new()) };
        Self { wanted, record, labels, kubelet: None }
    }

    pub fn set_wanted(&mut self, wanted: MonitorConfig) {
        self.wanted = wanted;
    }

    pub fn has_pools(&self) -> bool {
        !self.wanted.pools.is_empty()
    }

    /// Returns whether the node's pool is known.
    pub fn is_known(&self) -> bool {
        !self.has_pools() || self.labels.is_some()
    }

    /// Returns the mode for the leftovers of an earlier agent. While the pool is not known, the evictions of an enforcing agent are not
    /// given up.
    pub fn mode_for_leftovers(&self) -> Mode {
        if self.is_known() { self.choose().mode } else { self.wanted.strictest_mode() }
    }

    /// Returns the configuration of this node.
    pub fn choose(&self) -> MonitorConfig {
        let mut config = self.wanted.of_pool(self.labels.as_ref());
        config.policy.follow_kubelet(self.kubelet);
        config
    }

    /// Takes the version of the kubelet on this node. Returns whether it has changed.
    pub fn learn_kubelet(&mut self, version: Option<KubeletVersion>) -> bool {
        std::mem::replace(&mut self.kubelet, version) != version
    }

    /// Takes the labels of the node's object, and records them for the next agent. Without pools they have no effect.
    pub fn learn(&mut self, labels: &BTreeMap<String, String>) {
        if self.labels.as_ref() == Some(labels) || !self.has_pools() {
            return;
        }
        self.labels = Some(labels.clone());
        let record = Record { boot: boot_id(), labels: labels.clone() };
        let written = replace(&self.record, |file| Ok(serde_json::to_writer(file, &record)?));
        if let Err(error) = written {
            // The next agent must not use outdated labels.
            let _absent = fs::remove_file(&self.record);
            tracing::warn!(
                event = "degraded",
                capability = CAPABILITY,
                path = %self.record.display(),
                reason = %error,
                "the labels of this node cannot be recorded: an agent that starts without the API server will only observe"
            );
        }
    }
}

fn read(record: &Path) -> Option<BTreeMap<String, String>> {
    let record: Record = serde_json::from_slice(&fs::read(record).ok()?).ok()?;
    (record.boot == boot_id()).then_some(record.labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Quirk;

    #[test]
    fn the_kubelet_of_the_node_is_followed_until_the_file_names_one() {
        let header = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
        let version = |text| KubeletVersion::parse(text);
        for (fields, beside, checks_sidecars) in [
            ("semantics: kubelet", None, false),
            ("semantics: kubelet", version("v1.36.4"), false),
            ("semantics: kubelet", version("v1.37.0-eks-1a2b3c4"), true),
            ("semantics: kubelet\nkubeletVersion: '1.36'", version("v1.37.0"), false),
            ("semantics: kubelet\nquirks: {sidecarStorageLimitIgnored: true}", version("v1.37.0+rke2r1"), false),
            ("semantics: corrected", version("v1.36.4"), true),
        ] {
            let wanted = MonitorConfig::parse("m.yaml", &format!("{header}{fields}\n")).unwrap().config;
            let mut choice = PoolChoice::of(wanted, false);
            assert_eq!(choice.learn_kubelet(beside), beside.is_some(), "{fields}");
            assert!(!choice.learn_kubelet(beside), "it is known");
            let quirks = choice.choose().policy.quirks;
            assert_eq!(!quirks.has(Quirk::SidecarStorageLimitIgnored), checks_sidecars, "{fields} {beside:?}");
        }
    }

    #[test]
    fn labels_are_remembered_until_the_next_boot() {
        let root = tempfile::tempdir().unwrap();
        let lock_file = root.path().join("lock");
        let header = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nmode: observe\n";
        let parsed = |pools: &str| {
            let text = format!("{header}lockFile: {}\npools:\n{pools}\n", lock_file.display());
            MonitorConfig::parse("m.yaml", &text).unwrap().config
        };
        let wanted = parsed("  - {name: batch, nodeSelector: {pool: batch}, mode: enforce}");
        let labels = |value: &str| BTreeMap::from([("pool".to_owned(), value.to_owned())]);
        let after = |wanted: &MonitorConfig, labels: Option<&BTreeMap<String, String>>| {
            let mut choice = PoolChoice::of(wanted.clone(), true);
            if let Some(labels) = labels {
                choice.learn(labels);
            }
            let config = choice.choose();
            (config.mode, config.pool.as_deref().map(str::to_owned), choice.is_known())
        };
        assert_eq!(wanted.strictest_mode(), Mode::Enforce);
        assert_eq!(after(&wanted, None), (Mode::Observe, None, false), "nothing is known");
        let batch = (Mode::Enforce, Some("batch".to_owned()), true);
        assert_eq!((after(&wanted, Some(&labels("batch"))), after(&wanted, None)), (batch.clone(), batch));
        let others = parsed("  - {name: batch, nodeSelector: {pool: other}, mode: enforce}");
        assert_eq!(after(&others, None), (Mode::Observe, None, true), "the file has changed meanwhile");
        assert_eq!(after(&wanted, Some(&labels("web"))), (Mode::Observe, None, true));
        fs::write(lock_file.with_added_extension("labels"), r#"{"boot": "another", "labels": {"pool": "batch"}}"#)
            .unwrap();
        assert_eq!(after(&wanted, None), (Mode::Observe, None, false));
        assert!(PoolChoice::of(wanted, false).is_known(), "without an API server there are no labels");
    }
}
