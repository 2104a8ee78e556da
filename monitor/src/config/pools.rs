//! Pools: nodes that share labels, with fields of their own. Each pool is a whole configuration, so that all of them are checked together.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::document_walk::{Field, Fields, Walk};
use super::policy::{Mode, MonitorConfig, Pool};
use super::yaml::{Node, Value};

/// The fields of the file that a pool may have: those that need no restart, since an agent learns its pool while it runs.
pub const FIELDS: &str = "\
    mode semantics kubeletVersion quirks ranking oomScoreAdj evictionHard mergeDefaultEvictionSettings evictionSoft \
    evictionSoftGracePeriod evictionMinimumReclaim evictionMaxPodGracePeriod evictionPressureTransitionPeriod \
    localStorageCapacityIsolation systemReserved kubeReserved enforceNodeAllocatable sampling evictions \
    pressureConditions protected notifications kubernetes";
/// Maps of options that are independent of each other: a pool replaces single ones. Any other field is replaced as a whole.
const MERGED: [&str; 3] = ["sampling", "evictions", "kubernetes"];

impl MonitorConfig {
    /// Returns whether a node may be in a pool that evicts.
    pub fn strictest_mode(&self) -> Mode {
        let modes = self.pools.iter().map(|pool| pool.config.mode);
        if modes.chain([self.mode]).any(|mode| mode == Mode::Enforce) { Mode::Enforce } else { Mode::Observe }
    }

    /// Returns the configuration of a node with these labels: that of the first pool whose labels it has, or the file's own. Until its
    /// labels are known, a node only observes.
    pub fn of_pool(&self, labels: Option<&BTreeMap<String, String>>) -> Self {
        let Some(labels) = labels.filter(|_| !self.pools.is_empty()) else {
            let mode = if self.pools.is_empty() { self.mode } else { Mode::Observe };
            return Self { mode, pools: Vec::new(), pool: None, ..self.clone() };
        };
        let pool = self.pools.iter().find(|pool| pool.selects(labels));
        let config = pool.map_or(self, |pool| &pool.config).clone();
        Self { pools: Vec::new(), pool: pool.map(|pool| Arc::clone(&pool.name)), ..config }
    }
}

impl Pool {
    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// Reads the pools of a file. `read` reads a whole file.
pub fn read(
    walk: &mut Walk<'_>,
    document: &Field<'_>,
    fields: &Fields<'_>,
    read: fn(&mut Walk<'_>, &Field<'_>) -> MonitorConfig,
) -> Vec<Pool> {
    let Some(list) = fields.get("pools") else { return Vec::new() };
    let known = format!("name nodeSelector {FIELDS}");
    let mut pools: Vec<Pool> = Vec::new();
    for item in walk.list(&list, "pools", "write `- name: …`, with a nodeSelector and what differs in this pool") {
        let own = walk.fields(&item, &known);
        walk.require(&item.path, "name");
        walk.require(&item.path, "nodeSelector");
        let name = own.get("name").and_then(|field| walk.text(&field, "batch"));
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            walk.error(&item, "a pool without a name", "write `name: …`");
            continue;
        };
        if pools.iter().any(|pool| *pool.name == *name) {
            walk.error(&item, format!("a second pool {name}"), "give each pool a name of its own");
        }
        let selector = read_selector(walk, &item, &own);
        refuse_fixed(walk, &own);
        let node = merged(document.node, item.node);
        let whole = Field { path: item.path.clone(), node: &node };
        let config = walk.within(|walk| read(walk, &whole));
        pools.push(Pool { name: name.into(), selector, config });
    }
    pools
}

/// Refuses the fields of `kubernetes` that need a restart.
fn refuse_fixed(walk: &mut Walk<'_>, own: &Fields<'_>) {
    let Some(field) = own.get("kubernetes").filter(|field| matches!(field.node.value, Value::Mapping(_))) else {
        return;
    };
    for (name, value) in walk.entries(&field, "") {
        if ["api", "kubeconfig", "nodeName"].contains(&name) {
            walk.error(&value, "cannot differ in a pool: it needs a restart", "write it outside of the pools");
        }
    }
}

fn read_selector(walk: &mut Walk<'_>, item: &Field<'_>, own: &Fields<'_>) -> BTreeMap<String, String> {
    const FIX: &str = "write e.g. `nodeSelector: {node-role.kubernetes.io/batch: \"\"}`";
    let mut selector = BTreeMap::new();
    if let Some(field) = own.get("nodeSelector") {
        for (label, value) in walk.entries(&field, FIX) {
            if let Some(value) = walk.text(&value, "a label's value") {
                selector.insert(label.to_owned(), value.to_owned());
            }
        }
    }
    if selector.is_empty() {
        walk.error(item, "a pool without labels would have every node", FIX);
    }
    selector
}

/// Returns the document with the fields of the pool in place of its own.
fn merged(document: &Node, pool: &Node) -> Node {
    let (Value::Mapping(base), Value::Mapping(own)) = (&document.value, &pool.value) else { return document.clone() };
    let named = |name: Option<&str>| own.iter().any(|(key, _)| key.text() == name);
    let mut pairs: Vec<(Node, Node)> = Vec::with_capacity(base.len() + own.len());
    pairs.extend(base.iter().filter(|(key, _)| key.text() != Some("pools") && !named(key.text())).cloned());
    for (key, value) in own {
        let Some(name) = key.text().filter(|name| !["name", "nodeSelector"].contains(name)) else { continue };
        let value = match document.field(name).filter(|_| MERGED.contains(&name)) {
            Some(before) => merged_map(before, value),
            None => value.clone(),
        };
        pairs.push((key.clone(), value));
    }
    Node { line: document.line, column: document.column, value: Value::Mapping(pairs) }
}

fn merged_map(before: &Node, own: &Node) -> Node {
    let (Value::Mapping(base), Value::Mapping(pairs)) = (&before.value, &own.value) else { return own.clone() };
    let is_own = |key: &Node| pairs.iter().any(|(own, _)| own.value == key.value);
    let kept = base.iter().filter(|(key, _)| !is_own(key)).cloned();
    let value = Value::Mapping(kept.chain(pairs.iter().cloned()).collect());
    Node { line: own.line, column: own.column, value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigErrors;
    use std::time::Duration;

    /// Two lines.
    const HEADER: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";

    fn parsed(text: &str) -> MonitorConfig {
        MonitorConfig::parse("m.yaml", &format!("{HEADER}{text}")).unwrap_or_else(|errors| panic!("{errors}")).config
    }

    fn refused(text: &str) -> ConfigErrors {
        MonitorConfig::parse("m.yaml", &format!("{HEADER}{text}")).unwrap_err()
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    const FILE: &str = "
mode: observe
evictionHard: {memory.available: 300Mi, pid.available: 10%}
evictions: {maxPerMinute: 3}
kubernetes: {heartbeat: 2m, nodeName: n}
pools:
  - name: canary
    nodeSelector: {pool: batch, canary: \"true\"}
    mode: enforce
    evictionHard: {memory.available: 1Gi}
    evictions: {coolDown: 1s}
    kubernetes: {conditions: off}
  - name: batch
    nodeSelector: {pool: batch}
    mode: enforce
";

    #[test]
    fn the_first_pool_whose_labels_the_node_has() {
        let file = parsed(FILE);
        let of = |pairs: &[(&str, &str)]| file.of_pool(Some(&labels(pairs)));
        let found = |pairs| of(pairs).pool.as_deref().map(str::to_owned);
        assert_eq!(found(&[("pool", "batch"), ("canary", "true"), ("x", "")]).as_deref(), Some("canary"));
        assert_eq!(found(&[("pool", "batch"), ("canary", "false")]).as_deref(), Some("batch"));
        assert_eq!(found(&[("pool", "web"), ("canary", "true")]), None);
        let canary = of(&[("pool", "batch"), ("canary", "true")]);
        assert_eq!((canary.mode, canary.policy.hard_count), (Mode::Enforce, 1), "thresholds are replaced");
        assert_eq!((canary.evictions.max_per_minute, canary.evictions.cool_down), (3, Duration::from_secs(1)));
        assert_eq!(canary.kubernetes.heartbeat, Duration::from_secs(120), "options are merged");
        assert_eq!(canary.kubernetes.node_name.as_deref(), Some("n"));
        let batch = of(&[("pool", "batch")]);
        assert_eq!((batch.mode, batch.policy.hard_count, batch.pools.len()), (Mode::Enforce, 2, 0));
        assert_eq!(of(&[]).mode, Mode::Observe);
    }

    #[test]
    fn without_knowledge_a_node_observes() {
        let file = parsed(FILE);
        let enforcing = MonitorConfig { mode: Mode::Enforce, ..file };
        assert_eq!(enforcing.of_pool(None).mode, Mode::Observe);
        assert_eq!(enforcing.of_pool(Some(&BTreeMap::new())).mode, Mode::Enforce, "in no pool");
        let alone = MonitorConfig { pools: Vec::new(), ..enforcing };
        assert_eq!(alone.of_pool(None).mode, Mode::Enforce);
    }

    #[test]
    fn a_mistake_in_a_pool_is_named_once_and_in_its_place() {
        for (name, text, expected) in [
            ("a threshold", "evictionHard: {memory.available: 1XB}", "pools[0].evictionHard"),
            ("a field that needs a restart", "lockFile: /run/x", "pools[0].lockFile"),
            ("an unknown field", "evictonHard: {}", "did you mean evictionHard?"),
            ("how to find its labels", "kubernetes: {nodeName: n}", "pools[0].kubernetes.nodeName"),
        ] {
            let file = format!("pools:\n  - name: a\n    nodeSelector: {{a: b}}\n    {text}\n");
            let errors = refused(&file);
            assert_eq!((errors.0.len(), errors.0[0].line), (1, 6), "{name}: {errors}");
            assert!(errors.to_string().contains(expected), "{name}: {errors}");
        }
        for (text, expected) in [
            ("pools: [{nodeSelector: {a: b}}]", "a pool without a name"),
            ("pools: [{name: a}]", "every node"),
            ("pools: [{name: a, nodeSelector: {a: b}}, {name: a, nodeSelector: {a: c}}]", "a second pool a"),
            ("evictionHard: {memory.available: 1XB}\npools: [{name: a, nodeSelector: {a: b}}]", "evictionHard"),
        ] {
            let errors = refused(text);
            assert_eq!(errors.0.len(), 1, "{text}: {errors}");
            assert!(errors.to_string().contains(expected), "{text}: {errors}");
        }
    }
}
