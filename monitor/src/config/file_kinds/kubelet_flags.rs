//! A kubelet's flags as text: a command line, a unit, an environment file (`KUBELET_ARGS="…"`), or only the value of `--eviction-hard`.

use crate::config::yaml::{Node, Value};
use crate::units::Signal;

pub const KIND: &str = "KubeletFlags";

/// Flags that are known without their hyphens.
const BARE: [&str; 6] = [
    "eviction-hard",
    "eviction-soft",
    "eviction-soft-grace-period",
    "eviction-minimum-reclaim",
    "system-reserved",
    "kube-reserved",
];

/// A word of the text and its place, both counted from one.
type Word<'t> = (usize, usize, &'t str);

/// A command line that starts k3s or RKE2: their own flags, among them the kubelet's as `--kubelet-arg`.
#[derive(Debug)]
pub struct RancherLine {
    pub program: &'static str,
    pub flags: Node,
    /// Where the program is named, or the first flag.
    pub place: Node,
}

/// The programs of Rancher that have a kubelet in them, and the commands that start it.
const RANCHER: [&str; 2] = ["k3s", "rke2"];
const STARTS: [&str; 2] = ["server", "agent"];
const KUBELET_ARGUMENT: &str = "kubelet-arg";

/// Returns the command line of k3s or RKE2 in a text, such as a unit or `INSTALL_K3S_EXEC="server --kubelet-arg=…"`.
pub fn of_rancher(text: &str) -> Option<RancherLine> {
    let words = words(text);
    if is_of_fields(&words) {
        return None;
    }
    let program = |word: &Word<'_>| RANCHER.into_iter().find(|program| word.2.rsplit('/').next() == Some(program));
    let started =
        words.windows(2).find_map(|pair| Some((program(&pair[0])?, pair[0])).filter(|_| STARTS.contains(&pair[1].2)));
    let flags = document(text).unwrap_or_else(|| map(Vec::new(), &(1, 1, "")));
    let has_arguments = flags.field(KUBELET_ARGUMENT).is_some();
    let (program, place) = started.or_else(|| has_arguments.then(|| (RANCHER[0], words[0])))?;
    Some(RancherLine { program, flags, place: scalar(&place, program) })
}

/// Returns whether the text is of another kind: it begins with a field, and may name flags in its comments.
fn is_of_fields(words: &[Word<'_>]) -> bool {
    let Some((_, _, first)) = words.first() else { return true };
    let is_quoted_field = words.get(1).is_some_and(|second| second.2.starts_with(':'));
    first.ends_with(':') || first.starts_with('{') || *first == "---" || is_quoted_field
}

/// Returns the flags as a map from their names to lists of values, or `None` where the text is no flags.
pub fn document(text: &str) -> Option<Node> {
    let words = words(text);
    let first = words.first()?;
    if is_threshold(first.2) {
        let values = words.iter().map(|word| scalar(word, word.2)).collect();
        return Some(map(vec![(scalar(first, "eviction-hard"), sequence(first, values))], first));
    }
    if is_of_fields(&words) || !words.iter().any(|word| name(word.2).is_some()) {
        return None;
    }
    let mut flags: Vec<(Node, Vec<Node>)> = Vec::new();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let Some(flag) = name(word.2) else { continue };
        let (flag, own) = flag.split_once('=').map_or((flag, None), |(flag, value)| (flag, Some(value)));
        let value = match own.filter(|value| !value.is_empty()) {
            Some(value) => Some((word, value)),
            // A quote or a blank is between the flag and its value.
            None => words.next_if(|next| is_value(flag, next.2)).map(|next| (next, next.2)),
        };
        // A flag without a value is a switch, except where `=` says that the value is empty.
        let (place, text) = value.unwrap_or((word, if own.is_some() { "" } else { "true" }));
        let mut values = vec![scalar(&place, text)];
        // A blank beside a comma does not end a list: the kubelet trims what is between commas.
        let mut last = text;
        while let Some(next) =
            words.next_if(|next| name(next.2).is_none() && (last.ends_with(',') || next.2.starts_with(',')))
        {
            last = next.2;
            values.push(scalar(&next, last));
        }
        let is_it =
            |(key, _): &&mut (Node, Vec<Node>)| matches!(&key.value, Value::Scalar { text, .. } if text == flag);
        match flags.iter_mut().find(|entry| is_it(entry)) {
            Some((_, known)) => known.extend(values),
            None => flags.push((scalar(&word, flag), values)),
        }
    }
    let place = (1, 1, "");
    let lists = flags.into_iter().map(|(key, values)| {
        let value = Node { line: key.line, column: key.column, value: Value::Sequence(values) };
        (key, value)
    });
    Some(map(lists.collect(), &place))
}

/// Returns whether a word can be the value of the flag before it. That of an argument for the kubelet looks like a flag without hyphens.
fn is_value(flag: &str, word: &str) -> bool {
    name(word).is_none() || flag == KUBELET_ARGUMENT && !word.starts_with("--")
}

/// Splits at blanks and quotes. Comments and the backslashes at line ends are no words.
fn words(text: &str) -> Vec<Word<'_>> {
    let is_between = |character: char| character.is_whitespace() || matches!(character, '"' | '\'');
    let mut words = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let mut rest = content;
        while let Some(start) = rest.find(|character| !is_between(character)) {
            let end = rest[start..].find(is_between).map_or(rest.len(), |length| start + length);
            let column = content.len() - rest.len() + start + 1;
            if !["\\", "-"].contains(&&rest[start..end]) {
                words.push((line, column, &rest[start..end]));
            }
            rest = &rest[end..];
        }
    }
    words
}

/// Returns the flag, with its value, of a word such as `--eviction-hard=…`.
fn name(word: &str) -> Option<&str> {
    // In an environment file the first flag may follow `KUBELET_ARGS=`.
    let flag = word.split_once("=--").filter(|(before, _)| !before.starts_with('-')).map(|(_, flag)| flag);
    // Options such as `kubelet-extra-args` take flags without their hyphens.
    let is_bare = || word.split_once('=').is_some_and(|(name, _)| BARE.contains(&name));
    let flag = flag.or_else(|| word.strip_prefix("--")).or_else(|| is_bare().then_some(word))?;
    flag.starts_with(|first: char| first.is_ascii_lowercase()).then_some(flag)
}

/// Returns whether the word begins with a threshold, such as `memory.available<500Mi`.
fn is_threshold(word: &str) -> bool {
    word.split_once('<').is_some_and(|(signal, _)| signal.parse::<Signal>().is_ok())
}

fn scalar(&(line, column, _): &Word<'_>, text: &str) -> Node {
    Node { line, column, value: Value::Scalar { text: text.to_owned(), quoted: true } }
}

fn sequence(&(line, column, _): &Word<'_>, items: Vec<Node>) -> Node {
    Node { line, column, value: Value::Sequence(items) }
}

fn map(pairs: Vec<(Node, Node)>, &(line, column, _): &Word<'_>) -> Node {
    Node { line, column, value: Value::Mapping(pairs) }
}
