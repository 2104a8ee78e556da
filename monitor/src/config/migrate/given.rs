//! The values of a kubelet's configuration, in one form for its files and for its flags.

use crate::config::document_walk::{Field, Walk};
use crate::config::file_kinds::openshift3::{self, Arguments};
use crate::config::file_kinds::{FileKind, Source};
use crate::config::yaml::{Node, Value};

/// A value of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Counted from one.
    pub line: usize,
    /// The value alone.
    pub text: String,
    /// The value as the source writes it: `memory.available<500Mi`, or the same as `text`.
    pub shown: String,
}

/// A field of the source that holds several values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenMap {
    pub line: usize,
    /// Names, such as those of signals, and their values, in the order written.
    pub entries: Vec<(String, Given)>,
}

/// The fields of a kubelet's configuration, by the names of `KubeletConfiguration`.
#[derive(Debug)]
pub struct Settings<'n> {
    /// The map of fields, or of arguments.
    node: &'n Node,
    arguments: Option<Arguments<'n>>,
    /// The map around `kubeletArguments`, in OpenShift 3's file.
    around: Option<&'n Node>,
}

impl<'n> Settings<'n> {
    /// Returns the fields of a source without errors.
    pub fn of(source: &'n Source, kind: FileKind) -> Self {
        // The warnings are those of the first reading.
        let mut walk = Walk::new("");
        let mut arguments = |node| Arguments::read(&mut walk, &Field { path: String::new(), node });
        match kind {
            FileKind::KubeletFlags => {
                Self { node: &source.node, arguments: Some(arguments(&source.node)), around: None }
            }
            FileKind::OpenShift3 => match source.node.field(openshift3::ARGUMENTS) {
                Some(node) if node.value != Value::Null => {
                    Self { node, arguments: Some(arguments(node)), around: Some(&source.node) }
                }
                _ => Self { node: &source.node, arguments: Some(Arguments::default()), around: Some(&source.node) },
            },
            FileKind::Kubelet | FileKind::Monitor => Self { node: &source.node, arguments: None, around: None },
        }
    }

    pub fn is_arguments(&self) -> bool {
        self.arguments.is_some()
    }

    /// Returns the name that the source has for a field.
    pub fn name_of(&self, field: &str) -> String {
        if self.is_arguments() { argument_name(field) } else { field.to_owned() }
    }

    /// Returns a field that is a map from names to texts, or `None` where it is absent.
    pub fn map(&self, field: &str) -> Option<GivenMap> {
        let Some(arguments) = &self.arguments else {
            let node = self.node.field(field)?;
            let Value::Mapping(pairs) = &node.value else { return None };
            let entries = pairs.iter().filter_map(|(key, value)| {
                let text = value.text()?.to_owned();
                Some((key.text()?.to_owned(), Given { line: value.line, shown: text.clone(), text }))
            });
            return Some(GivenMap { line: self.line_of(field)?, entries: entries.collect() });
        };
        let name = argument_name(field);
        let line = self.line_of(field).or_else(|| Some(arguments.items(&name).first()?.field.node.line))?;
        let separator = if matches!(field, "evictionHard" | "evictionSoft") { '<' } else { '=' };
        let pairs = arguments.pairs(&mut Walk::new(""), &name, separator, "");
        let entries = pairs.into_iter().map(|(key, item)| {
            let (text, shown) = (item.text.to_owned(), item.shown.trim().to_owned());
            (key.to_owned(), Given { line: item.field.node.line, text, shown })
        });
        Some(GivenMap { line, entries: entries.collect() })
    }

    /// Returns a field with one value. Of several values of an argument the last counts.
    pub fn one(&self, field: &str) -> Option<Given> {
        self.list(field)?.pop()
    }

    /// Returns a field that is a list, or one value as a list. `None` where the field is absent.
    pub fn list(&self, field: &str) -> Option<Vec<Given>> {
        let name = self.name_of(field);
        let value = |node: &Node, text: &str| Given { line: node.line, text: text.to_owned(), shown: text.to_owned() };
        if let Some(items) = self.arguments.as_ref().map(|arguments| arguments.items(&name)).filter(|it| !it.is_empty())
        {
            return Some(items.iter().map(|item| value(item.field.node, item.text)).collect());
        }
        let node = self.node.field(&name)?;
        match &node.value {
            Value::Scalar { text, .. } => Some(vec![value(node, text)]),
            Value::Sequence(items) => Some(items.iter().filter_map(|item| Some(value(item, item.text()?))).collect()),
            Value::Null | Value::Mapping(_) => None,
        }
    }

    /// Returns a field with one value beside `kubeletArguments`.
    pub fn beside(&self, field: &str) -> Option<Given> {
        let node = self.around?.field(field)?;
        let text = node.text()?.to_owned();
        Some(Given { line: node.line, shown: text.clone(), text })
    }

    /// Returns every name of the source with its line and, for a single value, its text.
    pub fn names(&self) -> Vec<(String, usize, Option<String>)> {
        let around =
            self.around.into_iter().flat_map(pairs).filter(|(key, _)| key.text() != Some(openshift3::ARGUMENTS));
        let own =
            if self.around.is_some_and(|around| std::ptr::eq(around, self.node)) { None } else { Some(self.node) };
        let all = around.chain(own.into_iter().flat_map(pairs));
        let name = |(key, value): &(Node, Node)| Some((key.text()?.to_owned(), key.line, single(value)));
        all.filter_map(name).collect()
    }

    /// Returns the line of a field's name.
    pub fn line_of(&self, field: &str) -> Option<usize> {
        let name = self.name_of(field);
        pairs(self.node).find(|(key, _)| key.text() == Some(&name)).map(|(key, _)| key.line)
    }
}

fn pairs(node: &Node) -> impl Iterator<Item = &(Node, Node)> {
    let pairs: &[(Node, Node)] = match &node.value {
        Value::Mapping(pairs) => pairs,
        _ => &[],
    };
    pairs.iter()
}

fn single(node: &Node) -> Option<String> {
    match &node.value {
        Value::Scalar { text, .. } => Some(text.clone()),
        Value::Sequence(items) if items.len() == 1 => items[0].text().map(str::to_owned),
        _ => None,
    }
}

/// Returns the flag of a field: `eviction-hard` of `evictionHard`.
pub fn argument_name(field: &str) -> String {
    let mut name = String::new();
    for character in field.chars() {
        if character.is_ascii_uppercase() {
            name.push('-');
        }
        name.push(character.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Source, FileKind) {
        let source = Source::locate("f", text).unwrap();
        let kind = source.read(&mut Walk::new("f")).unwrap().0;
        (source, kind)
    }

    #[test]
    fn files_and_flags_give_the_same() {
        for (text, shown, line) in [
            ("kind: KubeletConfiguration\nevictionHard:\n  memory.available: .5Gi\nfailSwapOn: false\n", ".5Gi", 2),
            (
                "kubelet \\\n --eviction-hard=memory.available<1Gi,memory.available<.5Gi \\\n --fail-swap-on=false\n",
                "memory.available<.5Gi",
                2,
            ),
            (
                "kubeletArguments:\n  eviction-hard: [\"memory.available<.5Gi\"]\n  fail-swap-on: ['false']\n",
                "memory.available<.5Gi",
                2,
            ),
        ] {
            let (source, kind) = read(text);
            let settings = Settings::of(&source, kind);
            let map = settings.map("evictionHard").unwrap();
            assert_eq!((map.line, map.entries.len()), (line, 1), "{text}");
            let (signal, given) = &map.entries[0];
            assert_eq!(
                (signal.as_str(), given.text.as_str(), given.shown.as_str()),
                ("memory.available", ".5Gi", shown)
            );
            assert_eq!(settings.one("failSwapOn").unwrap().text, "false", "{text}");
            assert_eq!((settings.map("evictionSoft"), settings.one("maxPods")), (None, None), "{text}");
        }
    }

    #[test]
    fn fields_have_flags() {
        for (field, flag) in [
            ("evictionHard", "eviction-hard"),
            ("evictionMaxPodGracePeriod", "eviction-max-pod-grace-period"),
            ("rootDir", "root-dir"),
        ] {
            assert_eq!(argument_name(field), flag);
        }
    }
}
