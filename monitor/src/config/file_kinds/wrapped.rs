//! Configurations inside other documents: in a `ConfigMap`, in the kubelet's answer to `/configz`, in a resource of OpenShift 4, and in a
//! list of them.

use super::distributions::find;
use super::stated_kind::kind_of;
use crate::config::config_error::ConfigError;
use crate::config::yaml::{Node, Value, parse_document};

/// The field of `/configz` with the configuration.
pub const CONFIGZ: &str = "kubeletconfig";
/// Where a ConfigMap has its texts.
const DATA: &str = "data";

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

/// Returns the kubelet's fields in OpenShift 4's resource `KubeletConfig`, if it has some.
pub fn of_operator_resource(document: &Node) -> Option<&Node> {
    document.field("kind").filter(|kind| kind.text() == Some(OPERATOR_KIND))?;
    let fields = OPERATOR_FIELDS.iter().try_fold(document, |node, name| node.field(name))?;
    matches!(fields.value, Value::Mapping(_)).then_some(fields)
}

/// Whether the document states neither kind nor version.
pub fn is_without_kind(document: &Node) -> bool {
    matches!(document.value, Value::Mapping(_))
        && ["apiVersion", "kind"].iter().all(|name| document.field(name).is_none())
}

/// An item that is not found: its place, the reason and the fix.
type Unclear<'n> = (&'n Node, String, String);

/// Returns the one object of a `List` that has fields of a kubelet, or that has the name. `None` for a document that is no list.
pub fn item_of_list<'n>(document: &'n Node, name: Option<&str>) -> Option<Result<&'n Node, Unclear<'n>>> {
    let kind = document.field("kind").and_then(Node::text).filter(|kind| kind.ends_with("List"))?;
    let Some(Node { value: Value::Sequence(items), .. }) = document.field("items") else { return None };
    let name_of = |item: &'n Node| item.field("metadata").and_then(|data| data.field("name")).and_then(Node::text);
    let is_meant =
        |item: &&Node| of_operator_resource(item).is_some() || kind_of(item).is_explicit || find(item).is_some();
    let all: Vec<&Node> = items.iter().filter(is_meant).collect();
    let chosen: Vec<&Node> = all.iter().copied().filter(|item| name.is_none() || name_of(item) == name).collect();
    let names: Vec<&str> = all.iter().map(|item| name_of(item).unwrap_or("without a name")).collect();
    Some(match (&chosen[..], name) {
        ([item], _) => Ok(*item),
        ([], None) => Err((
            document,
            format!("a {kind} without a configuration of a kubelet"),
            "name a list of KubeletConfig".to_owned(),
        )),
        ([], Some(name)) => {
            Err((document, format!("no object {name} in this {kind}"), format!("there are: {}", names.join(", "))))
        }
        _ => {
            let reason = format!("a {kind} of {} configurations, of which each node has one", names.len());
            Err((document, reason, format!("name one with --item: {}", names.join(", "))))
        }
    })
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
