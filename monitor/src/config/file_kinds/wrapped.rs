//! Configurations inside other documents: in a `ConfigMap`, and in the kubelet's answer to `/configz`.

use super::kind_of;
use crate::config::config_error::ConfigError;
use crate::config::yaml::{Node, Value, parse_document};

/// The field of `/configz` with the configuration.
pub const CONFIGZ: &str = "kubeletconfig";
/// Where a ConfigMap has its texts.
const DATA: &str = "data";

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
