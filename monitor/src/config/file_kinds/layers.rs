//! The layers of a kubelet's settings: the file of `--config`, the drop-ins of `--config-dir` in their order, and the flags, merged as the
//! kubelet merges them (`mergeKubeletConfigurations` and `kubeletConfigFlagPrecedence` in cmd/kubelet/app/server.go, Kubernetes 1.30 to 1.37).

use super::openshift3::{Arguments, boolean};
use crate::config::document_walk::{Field, Walk};
use crate::config::yaml::{Node, Value};
use crate::units::parse_go_duration;

const HARD: &str = "evictionHard";
const KEEPS_DEFAULTS: &str = "mergeDefaultEvictionSettings";
const PERIOD: &str = "eviction-pressure-transition-period";

/// The flags whose value is a map, and what is between a name and its value.
const MAPS: [(&str, char, &str); 6] = [
    ("eviction-hard", '<', "write e.g. memory.available<500Mi"),
    ("eviction-soft", '<', "write e.g. memory.available<500Mi"),
    ("eviction-soft-grace-period", '=', "write e.g. memory.available=1m30s"),
    ("eviction-minimum-reclaim", '=', "write e.g. memory.available=100Mi"),
    ("system-reserved", '=', "write e.g. memory=1Gi"),
    ("kube-reserved", '=', "write e.g. memory=1Gi"),
];
const SWITCHES: [&str; 3] = ["local-storage-capacity-isolation", "fail-swap-on", "kernel-memcg-notification"];

/// Which default hard thresholds apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HardDefaults {
    /// Those of a file alone: where it has no `evictionHard`, or keeps them.
    #[default]
    OfFile,
    /// The file has no `evictionHard`: the defaults are put into it before the drop-ins are merged.
    Kept,
    /// A kubelet without `--config` has none since Kubernetes 1.25, and `--eviction-hard` replaces all.
    None,
}

/// How a document that is made of layers differs from a file that says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    pub defaults: HardDefaults,
    /// A flag says zero, which stands for no period at all; in a file it stands for the default.
    pub has_zero_period: bool,
}

#[derive(Debug, Default)]
pub struct Layers {
    /// The file of `--config`.
    pub base: Option<Node>,
    pub drop_ins: Vec<Node>,
    /// A map from the names of flags to lists of values.
    pub flags: Option<Node>,
}

impl Layers {
    /// Returns the fields of a `KubeletConfiguration` that says what the layers say together.
    pub fn merge(self, walk: &mut Walk<'_>) -> (Node, Reading) {
        let Self { base, drop_ins, flags } = self;
        let is_given = |node: &Node| node.field(HARD).is_some_and(|hard| hard.value != Value::Null);
        let is_named = drop_ins.iter().any(|drop_in| drop_in.field(HARD).is_some());
        let defaults = match &base {
            None => HardDefaults::None,
            Some(base) if is_named && !is_given(base) => HardDefaults::Kept,
            Some(_) => HardDefaults::OfFile,
        };
        let mut reading = Reading { defaults, has_zero_period: false };
        let place = drop_ins.first().or(flags.as_ref()).map_or((1, 1), |node| (node.line, node.column));
        let mut merged = base.unwrap_or_else(|| at(place, Value::Mapping(Vec::new())));
        for drop_in in drop_ins {
            refuse_repeated(walk, &drop_in);
            patch(&mut merged, without_own_defaults(walk, drop_in));
        }
        // A drop-in can take the whole field away, and no default comes back.
        if is_named && !is_given(&merged) {
            reading.defaults = HardDefaults::None;
        }
        if let Some(flags) = &flags {
            set_flags(walk, &mut merged, flags, &mut reading);
        }
        (merged, reading)
    }
}

/// Leaves out the field that only counts in the file of `--config`: the kubelet asks that file before it merges.
fn without_own_defaults(walk: &mut Walk<'_>, mut drop_in: Node) -> Node {
    if let Some(node) = drop_in.field(KEEPS_DEFAULTS) {
        let field = Field { path: KEEPS_DEFAULTS.to_owned(), node };
        let fix = "write it into the file of --config, or write each threshold out";
        walk.warning(&field, "has no effect in a drop-in: the kubelet asks only the file of --config for it", fix);
    }
    if let Value::Mapping(pairs) = &mut drop_in.value {
        pairs.retain(|(key, _)| key.text() != Some(KEEPS_DEFAULTS));
    }
    drop_in
}

/// Records an error for each name that a map of a drop-in has twice: a merge would hide it.
fn refuse_repeated(walk: &mut Walk<'_>, drop_in: &Node) {
    let root = Field { path: String::new(), node: drop_in };
    for (_, field) in walk.entries(&root, "write its fields") {
        if let Value::Mapping(_) = field.node.value {
            walk.entries(&field, "write its fields");
        }
    }
}

/// Merges as RFC 7396 does: maps key by key, everything else as a whole; null takes a key away.
pub fn patch(target: &mut Node, patch_of: Node) {
    (target.line, target.column) = (patch_of.line, patch_of.column);
    let changes = match patch_of.value {
        Value::Mapping(changes) => changes,
        value => {
            target.value = value;
            return;
        }
    };
    if !matches!(target.value, Value::Mapping(_)) {
        target.value = Value::Mapping(Vec::new());
    }
    let Value::Mapping(pairs) = &mut target.value else { return };
    for (key, value) in changes {
        let place = pairs.iter().position(|(known, _)| known.text() == key.text());
        match (place, &value.value) {
            (Some(place), Value::Null) => drop(pairs.remove(place)),
            (None, Value::Null) => {}
            (Some(place), Value::Mapping(_)) => {
                patch(&mut pairs[place].1, value);
                pairs[place].0 = key;
            }
            (Some(place), _) => pairs[place] = (key, value),
            (None, Value::Mapping(_)) => {
                let mut new = Node { value: Value::Mapping(Vec::new()), ..value };
                patch(&mut new, value);
                pairs.push((key, new));
            }
            (None, _) => pairs.push((key, value)),
        }
    }
}

/// Sets the fields that flags name. A flag replaces the whole field, also a map.
fn set_flags(walk: &mut Walk<'_>, merged: &mut Node, flags: &Node, reading: &mut Reading) {
    let arguments = Arguments::read(walk, &Field { path: String::new(), node: flags });
    let Value::Mapping(given) = &flags.value else { return };
    for (key, values) in given {
        let (Some(name), Value::Sequence(items)) = (key.text(), &values.value) else { continue };
        let Some(last) = items.last() else { continue };
        let value = if let Some((_, separator, fix)) = MAPS.iter().find(|(map, ..)| *map == name) {
            let pairs = arguments.pairs(walk, name, *separator, fix).into_iter();
            let pairs = pairs
                .map(|(key, item)| (text_at(item.field.node, key, true), text_at(item.field.node, item.text, true)));
            Value::Mapping(pairs.collect())
        } else if name == "enforce-node-allocatable" {
            let scopes = items
                .iter()
                .flat_map(|item| item.text().unwrap_or_default().split(',').map(move |it| (item, it.trim())));
            Value::Sequence(
                scopes.filter(|(_, it)| !it.is_empty()).map(|(item, it)| text_at(item, it, false)).collect(),
            )
        } else {
            let text = last.text().unwrap_or_default();
            let switch = SWITCHES.contains(&name).then(|| boolean(text).ok()).flatten();
            let text = switch.map_or_else(|| text.to_owned(), |is_on| is_on.to_string());
            Value::Scalar { text, quoted: false }
        };
        match name {
            "eviction-hard" => reading.defaults = HardDefaults::None,
            PERIOD => reading.has_zero_period = last.text().is_some_and(is_zero),
            _ => {}
        }
        let field = text_at(key, &field_name(name), false);
        let value = Node { line: key.line, column: key.column, value };
        let Value::Mapping(pairs) = &mut merged.value else { return };
        pairs.retain(|(known, _)| known.text() != field.text());
        pairs.push((field, value));
    }
}

fn is_zero(text: &str) -> bool {
    parse_go_duration(text).is_ok_and(|nanos| nanos.to_duration().is_some_and(|period| period.is_zero()))
}

/// Returns the field of a flag: `evictionHard` of `eviction-hard`.
fn field_name(flag: &str) -> String {
    if flag == "minimum-image-ttl-duration" {
        return "imageMinimumGCAge".to_owned();
    }
    let mut name = String::new();
    for (index, word) in flag.split('-').enumerate() {
        let mut letters = word.chars();
        match letters.next().filter(|_| index > 0) {
            Some(first) => name.extend(first.to_uppercase().chain(letters)),
            None => name.push_str(word),
        }
    }
    name
}

/// Returns a text at the place of a node.
pub fn text_at(place: &Node, text: &str, quoted: bool) -> Node {
    at((place.line, place.column), Value::Scalar { text: text.to_owned(), quoted })
}

fn at((line, column): (usize, usize), value: Value) -> Node {
    Node { line, column, value }
}

/// Raises the line of a node and of everything in it.
pub fn lower(node: &mut Node, lines: usize) {
    node.line += lines;
    match &mut node.value {
        Value::Null | Value::Scalar { .. } => {}
        Value::Sequence(items) => items.iter_mut().for_each(|item| lower(item, lines)),
        Value::Mapping(pairs) => pairs.iter_mut().for_each(|(key, value)| {
            lower(key, lines);
            lower(value, lines);
        }),
    }
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
