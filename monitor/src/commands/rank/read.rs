//! Reads the output of `kubectl` for `rank`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::workloads::json_defaults::or_default;
use crate::workloads::pod::Pods;
use crate::workloads::{Pod, Summary};

use super::super::input::{CommandError, Fault, is_stdin, parse};
use super::nodes::{Node, Nodes};

const PODS_FIX: &str = "write it with: kubectl get pods -A -o json";
const NODES_FIX: &str = "write it with: kubectl get nodes -o json";
const SUMMARY_FIX: &str = "write it with: kubectl get --raw /api/v1/nodes/NODE/proxy/stats/summary";

/// Reads pods: a list as `kubectl get pods -o json` prints it, one pod, or a plain JSON array of pods.
pub fn pods(path: &Path) -> Result<Vec<Pod>, CommandError> {
    let (name, text) = read(path, MOST_PODS)?;
    parse_pods(&text).map_err(|fault| wrong(&name, &fault, PODS_FIX))
}

/// Reads nodes in the same forms as pods.
pub fn nodes(path: &Path) -> Result<Vec<Node>, CommandError> {
    let (name, text) = read(path, MOST_PODS)?;
    parse_nodes(&text).map_err(|fault| wrong(&name, &fault, NODES_FIX))
}

pub fn summary(path: &Path) -> Result<Summary, CommandError> {
    let (name, text) = read(path, MOST_SUMMARY)?;
    parse_summary(&text).map_err(|fault| wrong(&name, &fault, SUMMARY_FIX))
}

fn wrong(name: &str, fault: &Fault, fix: &str) -> CommandError {
    CommandError::Wrong(format!("{name}:{}:{}: {fault}; {fix}", fault.line, fault.column))
}

/// Maximum size of a file: a cluster's pods, its nodes and a node's Summary are far smaller.
const MOST_PODS: u64 = 1 << 30;
const MOST_SUMMARY: u64 = 256 << 20;

fn read_at_most(source: impl Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    source.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(u64::try_from(bytes.len()).is_ok_and(|length| length <= most).then_some(bytes))
}

fn read(path: &Path, most: u64) -> Result<(String, String), CommandError> {
    let is_stdin = is_stdin(path);
    let name = if is_stdin { "(standard input)".to_owned() } else { path.display().to_string() };
    let read = if is_stdin {
        read_at_most(io::stdin().lock(), most)
    } else {
        File::open(path).and_then(|file| read_at_most(file, most))
    };
    let bytes = match read {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            let reason = format!("{name}: larger than {} MiB; check the path", most >> 20);
            return Err(CommandError::Usage(reason));
        }
        Err(source) => return Err(CommandError::Unreadable { file: name, source }),
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().split_at(error.utf8_error().valid_up_to()).0;
        let line = before.split(|byte| *byte == b'\n').count();
        let column = before.rsplit(|byte| *byte == b'\n').next().map_or(0, <[u8]>::len) + 1;
        CommandError::Wrong(format!("{name}:{line}:{column}: not UTF-8; save it as UTF-8"))
    })?;
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    Ok((name, text))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    #[serde(deserialize_with = "or_default")]
    kind: String,
    #[serde(deserialize_with = "or_default")]
    items: Option<Vec<Item>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Item {
    #[serde(deserialize_with = "or_default")]
    kind: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Listed<L> {
    items: L,
}

fn parse_pods(text: &str) -> Result<Vec<Pod>, Fault> {
    parse_objects(text, "Pod", |Pods(pods)| pods)
}

fn parse_nodes(text: &str) -> Result<Vec<Node>, Fault> {
    let nodes = parse_objects(text, "Node", |Nodes(nodes)| nodes)?;
    let missing = nodes.iter().find_map(|node| Some((node, node.missing_field()?)));
    match missing {
        Some((node, field)) => {
            let field = format!("node {:?}: {field}", node.name());
            Err(Fault { field, ..Fault::whole("missing, and needed to know what fits on the node") })
        }
        None => Ok(nodes),
    }
}

/// Parses objects of a kind: a list as `kubectl` prints it, one object, or an array. `L` is the type of the list.
fn parse_objects<T, L>(text: &str, wanted: &str, objects: impl Fn(L) -> Vec<T>) -> Result<Vec<T>, Fault>
where
    T: DeserializeOwned,
    L: DeserializeOwned + Default,
{
    if text.trim_ascii_start().starts_with('[') {
        return parse(text).map(objects);
    }
    let Object { kind, items } = object(text)?;
    let is_list = kind == "List" || kind.strip_suffix("List") == Some(wanted);
    let is_other = |kind: &str| !kind.is_empty() && kind != wanted;
    let other = |field: String, kind: &str| Err(Fault { field, ..Fault::whole(format!("a {kind}, not a {wanted}")) });
    match items {
        _ if kind == wanted => parse(text).map(|object| vec![object]),
        Some(items) if is_list || kind.is_empty() => match items.iter().position(|item| is_other(&item.kind)) {
            Some(index) => other(format!("items[{index}]"), items.get(index).map_or("", |item| &item.kind)),
            None => parse::<Listed<L>>(text).map(|listed| objects(listed.items)),
        },
        None if is_list => Ok(Vec::new()),
        None if kind.is_empty() => {
            let reason = format!("neither a {wanted} nor a list of them: it has no kind and no items");
            Err(Fault::whole(reason))
        }
        _ => other(String::new(), &kind),
    }
}

fn parse_summary(text: &str) -> Result<Summary, Fault> {
    let Object { kind, .. } = object(text)?;
    if kind.is_empty() { parse(text) } else { Err(Fault::whole(format!("a {kind}, not a Summary"))) }
}

fn object(text: &str) -> Result<Object, Fault> {
    match text.trim_ascii_start().chars().next() {
        Some('{') => parse(text),
        Some(other) => Err(Fault::whole(format!("expected an object, found {other:?}"))),
        None => Err(Fault::whole("the file is empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        parse_pods(text).unwrap().into_iter().map(|pod| pod.metadata.name).collect()
    }

    fn fault(text: &str) -> String {
        parse_pods(text).unwrap_err().to_string()
    }

    #[test]
    fn pods_come_in_many_forms() {
        let pod = r#"{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}"#;
        for text in [
            pod.to_owned(),
            format!("[{pod}]"),
            format!(r#"{{"kind": "List", "items": [{pod}]}}"#),
            r#"{"kind": "PodList", "metadata": {}, "items": [{"metadata": {"name": "a"}}]}"#.to_owned(),
            format!(r#"{{"items": [{pod}]}}"#),
        ] {
            assert_eq!(names(&text), ["a"], "{text}");
        }
        for text in ["[]", r#"{"kind": "PodList", "items": null}"#, r#"{"kind": "List"}"#] {
            assert!(names(text).is_empty(), "{text}");
        }
        assert_eq!(names("[null]"), [""]);
    }

    #[test]
    fn a_file_may_be_as_large_as_allowed_but_no_larger() {
        assert_eq!(read_at_most(&b"12345"[..], 5).unwrap(), Some(b"12345".to_vec()));
        assert_eq!(read_at_most(&b"123456"[..], 5).unwrap(), None);
        assert_eq!(read_at_most(io::repeat(0), 1 << 20).unwrap(), None);
    }

    #[test]
    fn objects_other_than_pods_are_refused() {
        assert_eq!(fault(r#"{"kind": "Node"}"#), "a Node, not a Pod");
        assert_eq!(
            fault(r#"{"kind": "List", "items": [{"kind": "Pod"}, {"kind": "Service"}]}"#),
            "items[1]: a Service, not a Pod"
        );
        assert_eq!(fault("{}"), "neither a Pod nor a list of them: it has no kind and no items");
        assert_eq!(fault(""), "the file is empty");
        assert_eq!(
            fault(r#"[[{"name": "a"}]]"#),
            "[0]: invalid type: sequence, expected an object: Pod",
            "no fields without names"
        );
        assert_eq!(fault("5"), "expected an object, found '5'");
        let wrong = parse_pods("{\"kind\": \"List\",\n \"items\": [{\"spec\": {\"priority\": \"x\"}}]}").unwrap_err();
        assert_eq!((wrong.line, wrong.field.as_str()), (2, "items[0].spec.priority"));
    }

    #[test]
    fn a_node_needs_a_name_and_what_it_can_hold() {
        let node = |name: &str, allocatable: &str| {
            let capacity = r#""capacity": {"cpu": "9", "memory": "9Gi", "pods": 9}"#;
            format!(
                r#"{{"kind": "Node", "metadata": {{"name": {name}}}, "status": {{{capacity}, "allocatable": {allocatable}}}}}"#
            )
        };
        let whole = node("\"a\"", r#"{"cpu": "1", "memory": "1Gi", "pods": "10"}"#);
        for text in [whole.clone(), format!("[{whole}]"), format!(r#"{{"kind": "List", "items": [{whole}]}}"#)] {
            assert_eq!(parse_nodes(&text).unwrap()[0].allocatable("pods").to_string(), "10", "{text}");
        }
        // The API server copies the capacity, if a node reports nothing else.
        assert_eq!(parse_nodes(&node("\"a\"", "{}")).unwrap()[0].allocatable("cpu").to_string(), "9");
        let missing = "missing, and needed to know what fits on the node";
        for (text, reason) in [
            (node("\"\"", "{}"), format!("node \"\": metadata.name: {missing}")),
            (node("\"a\"", r#"{"cpu": "1"}"#), format!("node \"a\": status.allocatable.memory: {missing}")),
            ("[null]".to_owned(), format!("node \"\": metadata.name: {missing}")),
            (r#"{"kind": "Pod"}"#.to_owned(), "a Pod, not a Node".to_owned()),
        ] {
            assert_eq!(parse_nodes(&text).unwrap_err().to_string(), reason, "{text}");
        }
    }

    #[test]
    fn a_summary_is_distinguished_from_an_object() {
        assert_eq!(parse_summary("{}"), Ok(Summary::default()));
        assert_eq!(
            parse_summary(r#"{"kind": "PodList", "items": []}"#).unwrap_err().reason,
            "a PodList, not a Summary"
        );
    }
}
