//! The one document with a kubelet's settings, among several in a file.

use crate::config::file_kinds::distributions::{self, arguments_of_kubeadm};
use crate::config::file_kinds::kubelet_configuration;
use crate::config::file_kinds::stated_kind::kind_of;
use crate::config::yaml::{Node, Value, parse_document};

/// More documents than a file of Talos has.
const MOST_DOCUMENTS: usize = 64;

#[derive(Debug)]
pub(super) enum Chosen {
    One(Node),
    /// The file of `kubeadm init --config` or `kubeadm join --config`.
    Kubeadm {
        fields: Node,
        flags: Option<Node>,
    },
}

/// Returns the settings of a kubelet in a text of several documents: those in the form of a distribution, or a `KubeletConfiguration` among
/// documents of other kinds. `None` where no document has some, or more than one has.
pub(super) fn choose(text: &str) -> Option<Chosen> {
    let count = text.lines().filter(|line| is_separator(line)).count();
    if !(1..=MOST_DOCUMENTS).contains(&count) {
        return None;
    }
    let parsed = || (0..=count).map(|number| parse_document(&alone(text, number)));
    let readable: Vec<Node> = parsed().filter_map(Result::ok).collect();
    if let Some(document) = only(&readable, |document| distributions::find(document).is_some()) {
        return Some(Chosen::One(document));
    }
    // A line of dashes in the middle of one document makes two: what states no kind is not passed over.
    let all: Vec<Node> = parsed().collect::<Result<_, _>>().ok()?;
    let states_kind = |it: &Node| it.value == Value::Null || !kind_of(it).name.is_empty();
    let fields = only(&all, |document| kind_of(document).name == kubelet_configuration::KIND)?;
    if !all.iter().all(states_kind) {
        return None;
    }
    Some(match all.iter().find_map(arguments_of_kubeadm) {
        Some(flags) => Chosen::Kubeadm { fields, flags },
        None => Chosen::One(fields),
    })
}

fn only(all: &[Node], is_meant: impl Fn(&Node) -> bool) -> Option<Node> {
    let mut found = all.iter().filter(|document| is_meant(document));
    found.next().filter(|_| found.next().is_none()).cloned()
}

/// Returns one document of the text. The lines of the others become empty, so that each keeps its number.
fn alone(text: &str, wanted: usize) -> String {
    let mut number = 0;
    let lines = text.lines().map(|line| {
        number += usize::from(is_separator(line));
        if number == wanted && !is_separator(line) { line } else { "" }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn is_separator(line: &str) -> bool {
    line == "---" || line.starts_with("--- ")
}
