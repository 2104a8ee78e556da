//! Configurations inside other documents: in a `ConfigMap`, in the kubelet's answer to `/configz`, in the configuration of k3s and RKE2,
//! and in a resource of OpenShift 4.

use super::kind_of;
use super::openshift3::ARGUMENTS;
use crate::config::config_error::ConfigError;
use crate::config::yaml::{Node, Value, parse_document};

/// The field of `/configz` with the configuration.
pub const CONFIGZ: &str = "kubeletconfig";
/// Where a ConfigMap has its texts.
const DATA: &str = "data";

/// The kubelet's flags in `/etc/rancher/k3s/config.yaml` and `/etc/rancher/rke2/config.yaml`.
const K3S_ARGUMENTS: &str = "kubelet-arg";
/// The same in a file of `config.yaml.d`, where the flags are appended to those of other files.
const K3S_APPENDED: &str = "kubelet-arg+";
/// The thresholds that k3s and RKE2 set where the flags do not (docs.k3s.io, `k3s agent`).
const K3S_DEFAULTS: [(&str, &str); 2] = [
    ("eviction-hard", "imagefs.available<5%,nodefs.available<5%"),
    ("eviction-minimum-reclaim", "imagefs.available=10%,nodefs.available=10%"),
];

pub const OPERATOR_KIND: &str = "KubeletConfig";
/// Where that resource of `machineconfiguration.openshift.io` has the kubelet's fields.
pub const OPERATOR_FIELDS: [&str; 2] = ["spec", "kubeletConfig"];

/// A configuration and its path in the document.
#[derive(Debug)]
pub struct Wrapped {
    pub path: String,
    pub node: Node,
}

/// Returns the configuration in a `ConfigMap`, or `None` where the map has none, or more than one.
///
/// # Errors
/// When the only text of the map is no YAML.
pub fn of_config_map(text: &str, document: &Node) -> Result<Option<Wrapped>, Box<ConfigError>> {
    let Some(Node { value: Value::Mapping(entries), .. }) = document.field(DATA) else { return Ok(None) };
    let parsed = entries.iter().filter_map(|(key, value)| {
        let inner = parse_document(value.text()?).map(|mut node| {
            moved(&mut node, place(text, value));
            node
        });
        let inner = inner.map_err(|mut error| {
            (error.line, error.column) = place(text, value).of(error.line, error.column);
            error
        });
        Some((key.text()?, inner))
    });
    let mut all: Vec<_> = parsed.collect();
    if all.len() == 1 && all[0].1.is_err() {
        return all.remove(0).1.map(|_| None);
    }
    let mut found = all.into_iter().filter_map(|(key, node)| {
        let node = node.ok().filter(|node| kind_of(node).is_explicit)?;
        Some(Wrapped { path: format!("{DATA}.{key}"), node })
    });
    Ok(found.next().filter(|_| found.next().is_none()))
}

/// The kubelet's flags in the configuration of k3s or RKE2.
#[derive(Debug)]
pub struct K3sFlags {
    /// The field that has them.
    pub path: &'static str,
    /// A map from the names of flags to lists of values.
    pub node: Node,
    /// The flags that the file leaves at the default of k3s.
    pub defaults: Vec<String>,
}

/// Returns the kubelet's flags in the configuration of k3s or RKE2, or `None` for any other document. That file states no kind.
pub fn of_k3s(document: &Node) -> Option<K3sFlags> {
    if ["apiVersion", "kind", ARGUMENTS].iter().any(|name| document.field(name).is_some()) {
        return None;
    }
    let (path, given) = [K3S_ARGUMENTS, K3S_APPENDED].iter().find_map(|path| Some((*path, document.field(path)?)))?;
    let items = match &given.value {
        Value::Sequence(items) => items.as_slice(),
        _ => std::slice::from_ref(given),
    };
    let mut flags: Vec<(String, Vec<Node>)> = Vec::new();
    for item in items {
        // The parser of flags refuses what is no text.
        let text = item.text().unwrap_or("eviction-hard").trim_start_matches("--");
        // A flag without a value is a switch.
        let (name, value) = text.split_once('=').unwrap_or((text, "true"));
        // `name+=value` and `name-=value` add to the values before, which may be k3s's own.
        let (is_added, name) = (name.ends_with(['+', '-']), name.trim_end_matches(['+', '-']));
        let value = if item.text().is_some() { scalar(item, value) } else { item.clone() };
        let of_k3s = K3S_DEFAULTS.iter().find(|(known, _)| is_added && *known == name);
        match flags.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(value),
            None => {
                let before = of_k3s.map(|(_, default)| scalar(given, default));
                flags.push((name.to_owned(), before.into_iter().chain([value]).collect()));
            }
        }
    }
    let mut defaults = Vec::new();
    for (name, value) in K3S_DEFAULTS {
        if !flags.iter().any(|(known, _)| known == name) {
            flags.push((name.to_owned(), vec![scalar(given, value)]));
            defaults.push(format!("--{name}={value}"));
        }
    }
    let at = |node: &Node, value| Node { line: node.line, column: node.column, value };
    let lists = flags.into_iter().map(|(name, values)| {
        let first = values.first().unwrap_or(given).clone();
        (scalar(&first, &name), at(&first, Value::Sequence(values)))
    });
    Some(K3sFlags { path, node: at(given, Value::Mapping(lists.collect())), defaults })
}

/// Returns a text at the place of `node`.
fn scalar(node: &Node, text: &str) -> Node {
    Node { line: node.line, column: node.column, value: Value::Scalar { text: text.to_owned(), quoted: true } }
}

/// Returns the kubelet's fields in OpenShift 4's resource `KubeletConfig`, if it has some.
pub fn of_operator_resource(document: &Node) -> Option<&Node> {
    document.field("kind").filter(|kind| kind.text() == Some(OPERATOR_KIND))?;
    let fields = OPERATOR_FIELDS.iter().try_fold(document, |node, name| node.field(name))?;
    matches!(fields.value, Value::Mapping(_)).then_some(fields)
}

/// The place of a text within another one.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// A block of lines, which begins after this line and is indented by so many columns.
    Block(usize, usize),
    /// A text in quotes: its lines are all in one line.
    Quoted(usize, usize),
}

impl Place {
    fn of(self, line: usize, column: usize) -> (usize, usize) {
        match self {
            Self::Block(before, indent) => (before + line, indent + column),
            Self::Quoted(line, column) => (line, column),
        }
    }
}

fn place(text: &str, value: &Node) -> Place {
    let lines: Vec<&str> = text.lines().take(value.line).collect();
    let is_header = |line: &&str| line.trim_end().trim_end_matches(['+', '-', '1', '2', '4', '8']).ends_with('|');
    // The parser gives the place of the first line of a block, or that of its `|`.
    let (before, own) = lines.split_at(lines.len().saturating_sub(1));
    let above = before.iter().rposition(|line| !line.trim().is_empty()).filter(|above| is_header(&lines[*above]));
    let Some(header) = above.map(|above| above + 1).or_else(|| own.iter().any(is_header).then_some(value.line)) else {
        return Place::Quoted(value.line, value.column);
    };
    let first = text.lines().skip(header).find(|line| !line.trim().is_empty()).unwrap_or_default();
    Place::Block(header, first.len() - first.trim_start().len())
}

fn moved(node: &mut Node, place: Place) {
    (node.line, node.column) = place.of(node.line, node.column);
    match &mut node.value {
        Value::Null | Value::Scalar { .. } => {}
        Value::Sequence(items) => items.iter_mut().for_each(|item| moved(item, place)),
        Value::Mapping(pairs) => pairs.iter_mut().for_each(|(key, value)| {
            moved(key, place);
            moved(value, place);
        }),
    }
}
