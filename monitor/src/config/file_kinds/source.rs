//! Finds the configuration in a text, and in the files that belong to it.

mod documents;
mod rancher;

use self::documents::Chosen;
use super::distributions::{self, Found};
use super::layers::{Layers, Reading, lower};
use super::other_files::{self, NamedText, OtherFiles};
use super::stated_kind::{CONFIG_MAP, kind, kind_of, refuse_api_version};
use super::{FileKind, kubelet_configuration, kubelet_flags, monitor_configuration, openshift3, wrapped};
use crate::config::config_error::{ConfigError, ConfigErrors, ConfigWarning};
use crate::config::document_walk::{Field, Walk};
use crate::config::file_lines::FileLines;
use crate::config::policy::MonitorConfig;
use crate::config::yaml::{Node, Value, parse_document};

/// The configuration in a text: the whole document, or the part of one that holds the configuration, with what other files add to it.
#[derive(Debug)]
pub struct Source {
    /// The path of the part in the document; empty for the whole.
    pub path: String,
    pub node: Node,
    /// The files of the node's lines.
    pub lines: FileLines,
    /// What the document is, where its kind does not tell.
    pub what: Option<&'static str>,
    form: Form,
    reading: Reading,
    /// Warnings about this form: the reason, and the advice.
    notices: Vec<(String, &'static str)>,
    /// Warnings about the other files.
    warnings: Vec<ConfigWarning>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Flags,
    /// The kubelet's fields without their kind.
    Fields,
    /// The document states its kind.
    Stated,
}

/// The files that a kubelet is started with, and the text of which flag names each.
const CONFIG: &str = "config";
const CONFIG_DIR: &str = "config-dir";

impl Source {
    /// Finds the configuration in a text. Fails when the text is no YAML, or when it refers to files that decide about thresholds.
    pub fn locate(file_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        Self::assemble(file_name, text, OtherFiles::default())
    }

    /// Finds the configuration in a text and in the other files.
    pub fn assemble(file_name: &str, text: &str, others: OtherFiles<'_>) -> Result<Self, ConfigErrors> {
        // A byte order mark is no part of the text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = FileLines::of_first(text);
        let assembly = Assembly { file_name, others, lines, warnings: Vec::new() };
        if let Some(line) = kubelet_flags::of_rancher(text) {
            return assembly.of_rancher(line);
        }
        if let Some(flags) = kubelet_flags::document(text) {
            return assembly.of_flags(flags);
        }
        let of_file = |error: Box<ConfigError>| ConfigErrors(vec![named(file_name, *error)]);
        match parse_document(text) {
            Ok(document) => assembly.of_document(text, document),
            Err(error) => match documents::choose(text) {
                Some(Chosen::One(document)) => assembly.of_document(text, document),
                Some(Chosen::Kubeadm { fields, flags }) => assembly.of_kubeadm(fields, flags),
                None => Err(of_file(error)),
            },
        }
    }

    fn new(path: impl Into<String>, node: Node, form: Form) -> Self {
        Self {
            path: path.into(),
            node,
            lines: FileLines::default(),
            what: None,
            form,
            reading: Reading::default(),
            notices: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Starts the walk through the configuration.
    pub fn walk<'a>(&self, file_name: &'a str) -> Walk<'a> {
        Walk::of_files(file_name, self.lines.clone())
    }

    /// Reads the configuration. Errors are recorded in `walk`. Returns `None` where the kind is not known.
    pub fn read(&self, walk: &mut Walk<'_>) -> Option<(FileKind, MonitorConfig)> {
        let kind = match self.form {
            Form::Flags => FileKind::KubeletFlags,
            Form::Fields => FileKind::Kubelet,
            Form::Stated => kind(walk, &self.node)?,
        };
        let root = Field { path: self.path.clone(), node: &self.node };
        for (reason, advice) in &self.notices {
            walk.warning(&root, reason.clone(), advice);
        }
        walk.take_warnings(self.warnings.clone());
        let config = match kind {
            FileKind::Monitor => monitor_configuration::read(walk, &root),
            FileKind::Kubelet if self.form == Form::Fields => {
                kubelet_configuration::read_without_kind(walk, &root, self.reading)
            }
            FileKind::Kubelet => kubelet_configuration::read(walk, &root),
            FileKind::KubeletFlags => openshift3::read_flags(walk, &root),
            FileKind::OpenShift3 => openshift3::read(walk, &root),
        };
        Some((kind, config))
    }
}

fn named(file_name: &str, error: ConfigError) -> ConfigError {
    ConfigError { file: file_name.to_owned(), ..error }
}

/// A source on its way from the first file to all of them.
struct Assembly<'a> {
    file_name: &'a str,
    others: OtherFiles<'a>,
    lines: FileLines,
    warnings: Vec<ConfigWarning>,
}

impl Assembly<'_> {
    fn of_document(self, text: &str, document: Node) -> Result<Source, ConfigErrors> {
        let of_file = |error: Box<ConfigError>| ConfigErrors(vec![named(self.file_name, *error)]);
        if let Some(node) = document.field(wrapped::CONFIGZ).cloned() {
            return Ok(Source::new(wrapped::CONFIGZ, node, Form::Fields));
        }
        refuse_api_version(self.file_name, &document)?;
        let document = match wrapped::item_of_list(&document, self.others.item) {
            None => document,
            Some(Ok(item)) => item.clone(),
            Some(Err((node, reason, fix))) => {
                return Err(ConfigErrors(vec![named(
                    self.file_name,
                    ConfigError::at(node.line, node.column, reason, fix),
                )]));
            }
        };
        if let Some(found) = distributions::find(&document) {
            return self.of_distribution(&document, found);
        }
        if let Some(node) = wrapped::of_operator_resource(&document) {
            let reason = "the machine config operator merges these fields into its own, which may reserve more and set other thresholds";
            let advice = "name the file that it writes on the node: /etc/kubernetes/kubelet.conf";
            let mut source = Source::new(wrapped::OPERATOR_FIELDS.join("."), node.clone(), Form::Fields);
            source.notices.push((reason.to_owned(), advice));
            return Ok(source);
        }
        if wrapped::is_without_kind(&document) {
            return self.of_k3s(document);
        }
        let is_config_map = kind_of(&document).name == CONFIG_MAP;
        let wrapped = if is_config_map { wrapped::of_config_map(text, &document).map_err(of_file)? } else { None };
        let (path, node) = wrapped.map_or_else(|| (String::new(), document), |it| (it.path, it.node));
        self.of_stated(path, node)
    }

    /// Adds drop-ins and flags to a document that states its kind.
    fn of_stated(mut self, path: String, node: Node) -> Result<Source, ConfigErrors> {
        if self.others.config_dir.is_none() && self.others.flags.is_none() {
            return Ok(Source::new(path, node, Form::Stated));
        }
        if kind(&mut Walk::new(""), &node) != Some(FileKind::Kubelet) {
            let reason = "drop-ins and flags belong to a KubeletConfiguration, which this file is not";
            return Err(ConfigErrors(vec![ConfigError::whole_file(
                self.file_name,
                reason,
                "name the file of --config",
            )]));
        }
        self.check(|walk| kubelet_configuration::check_file(walk, &Field { path: path.clone(), node: &node }))?;
        let flags = self.flags_of_option()?;
        let drop_ins = self.drop_ins_of_option()?.unwrap_or_default();
        self.layered(path, Layers { base: Some(node), drop_ins, flags })
    }

    /// kubeadm gives the kubelet the fields of the one document as a file, and the arguments of another as flags.
    fn of_kubeadm(mut self, fields: Node, flags: Option<Node>) -> Result<Source, ConfigErrors> {
        self.check(|walk| kubelet_configuration::check_file(walk, &Field { path: String::new(), node: &fields }))?;
        let mut source = self.layered(String::new(), Layers { base: Some(fields), drop_ins: Vec::new(), flags })?;
        let reason = "kubeadm writes these fields into /var/lib/kubelet/config.yaml, and the arguments of nodeRegistration become flags, as here; \
                      its patches are not known here";
        source.notices.push((reason.to_owned(), "for all of it, name what the node's kubelet answers to /configz"));
        source.what = Some("configuration of kubeadm");
        Ok(source)
    }

    fn of_distribution(mut self, document: &Node, found: Found) -> Result<Source, ConfigErrors> {
        self.check(|walk| distributions::check_names(walk, document, found.names))?;
        let own = found.own.as_ref().map(|own| own.document(&mut self.lines)).transpose()?;
        let (what, path, notice) = (found.what, found.path, found.notice.clone());
        if let Some(node) = &found.fields {
            self.check(|walk| kubelet_configuration::check_names(walk, &Field { path: path.to_owned(), node }))?;
        }
        let mut source = self.layered(path.to_owned(), found.layers(own))?;
        source.notices.push(notice);
        source.what = Some(what);
        Ok(source)
    }

    fn of_flags(mut self, flags: Node) -> Result<Source, ConfigErrors> {
        let names = |name: &str| flags.field(name).is_some();
        if references(&flags).is_empty() && self.others.config_dir.is_none() {
            let mut source = Source::new("", flags.clone(), Form::Flags);
            if !names("eviction-hard") {
                let reason = "no --eviction-hard and no --config among these flags: the thresholds shown are the defaults of a kubelet whose \
                              file has no evictionHard; since Kubernetes 1.25 a kubelet without --config has no hard thresholds";
                source.notices.push((reason.to_owned(), "name the file of --config, and these flags with --flags"));
            }
            return Ok(source);
        }
        let given = self.read_references(&flags)?;
        if given.is_none_read {
            let mut source = Source::new("", flags, Form::Flags);
            source.warnings = self.warnings;
            return Ok(source);
        }
        let layers = Layers { base: given.config, drop_ins: given.drop_ins, flags: Some(without_references(flags)) };
        self.layered(String::new(), layers)
    }

    fn layered(mut self, path: String, layers: Layers) -> Result<Source, ConfigErrors> {
        let (node, reading) = self.check(|walk| layers.merge(walk))?;
        let mut source = Source::new(path, node, Form::Fields);
        (source.lines, source.reading, source.warnings) = (self.lines, reading, self.warnings);
        Ok(source)
    }

    /// Keeps the warnings of a check, and returns its errors, if there are any.
    fn check<T>(&mut self, check: impl FnOnce(&mut Walk<'_>) -> T) -> Result<T, ConfigErrors> {
        let mut walk = Walk::of_files(self.file_name, self.lines.clone());
        let found = check(&mut walk);
        let (errors, warnings) = walk.finish();
        self.warnings.extend(warnings);
        if errors.is_empty() { Ok(found) } else { Err(ConfigErrors(errors)) }
    }

    fn flags_of_option(&mut self) -> Result<Option<Node>, ConfigErrors> {
        let Some(path) = self.others.flags else { return Ok(None) };
        let name = path.display().to_string();
        let NamedText { text, .. } = other_files::read(&name, path)?;
        let Some(mut flags) = kubelet_flags::document(&text) else {
            let fix = "name a command line, a unit or an environment file with flags such as --eviction-hard=…";
            return Err(ConfigErrors(vec![ConfigError::whole_file(&name, "has no flags of a kubelet", fix)]));
        };
        lower(&mut flags, self.lines.add(&name, &text));
        Ok(Some(without_references(flags)))
    }

    fn drop_ins_of_option(&mut self) -> Result<Option<Vec<Node>>, ConfigErrors> {
        let Some(directory) = self.others.config_dir else { return Ok(None) };
        let name = directory.display().to_string();
        let texts = other_files::read_all(&name, directory, &[".conf"], 0)?;
        texts.iter().map(|text| self.layer(text)).collect::<Result<_, _>>().map(Some)
    }

    /// Parses a file of the kubelet, and checks that it is one.
    fn layer(&mut self, text: &NamedText) -> Result<Node, ConfigErrors> {
        let node = text.document(&mut self.lines)?;
        self.check(|walk| kubelet_configuration::check_file(walk, &Field { path: String::new(), node: &node }))?;
        Ok(node)
    }

    /// Reads the files that flags name. Fails where one that is not read decides about the hard thresholds.
    fn read_references(&mut self, flags: &Node) -> Result<Given, ConfigErrors> {
        let mut given = Given { drop_ins: self.drop_ins_of_option()?.unwrap_or_default(), ..Given::default() };
        let mut unread: Vec<(Node, &str, String)> = Vec::new();
        let mut is_read = self.others.config_dir.is_some();
        for (name, value) in references(flags) {
            let path = value.text().unwrap_or_default().to_owned();
            if name == CONFIG_DIR && self.others.config_dir.is_some() {
                continue;
            }
            let Some(place) = self.others.named.map(|place| place(&path)) else {
                unread.push((value.clone(), name, "no --root says where it is".to_owned()));
                continue;
            };
            if !place.exists() {
                unread.push((value.clone(), name, format!("{} does not exist", place.display())));
                continue;
            }
            is_read = true;
            if name == CONFIG {
                let text = other_files::read(&path, &place)?;
                given.config = Some(self.layer(&text)?);
            } else {
                for text in other_files::read_all(&path, &place, &[".conf"], 0)? {
                    let node = self.layer(&text)?;
                    given.drop_ins.push(node);
                }
            }
        }
        given.is_none_read = !is_read;
        self.check(|walk| name_unread(walk, &unread, flags.field("eviction-hard").is_none()))?;
        Ok(given)
    }
}

/// Names each file that was not read: as an error where it decides about the hard thresholds.
fn name_unread(walk: &mut Walk<'_>, unread: &[(Node, &str, String)], decides: bool) {
    let fix = "name the directory that the node's files are in with --root (on the node itself: --root /)";
    for (node, name, why) in unread {
        let field = Field { path: (*name).to_owned(), node };
        let what = if *name == CONFIG { "file" } else { "directory" };
        let reason = format!("names a {what} of the kubelet's settings that was not read ({why})");
        if decides {
            let effect = "the hard thresholds are not known, and no defaults are put in their place";
            walk.error(&field, format!("{reason}: {effect}"), fix);
        } else {
            walk.warning(
                &field,
                format!("{reason}: its soft thresholds, reservations and other fields are missing here"),
                fix,
            );
        }
    }
}

/// The files that flags name.
#[derive(Debug, Default)]
struct Given {
    config: Option<Node>,
    drop_ins: Vec<Node>,
    is_none_read: bool,
}

/// Returns the flags that name files, each with its last value.
fn references(flags: &Node) -> Vec<(&'static str, &Node)> {
    let last = |name: &'static str| match &flags.field(name)?.value {
        Value::Sequence(items) => {
            items.last().filter(|item| item.text().is_some_and(|text| !text.is_empty())).map(|item| (name, item))
        }
        _ => None,
    };
    [CONFIG, CONFIG_DIR].into_iter().filter_map(last).collect()
}

fn without_references(mut flags: Node) -> Node {
    if let Value::Mapping(pairs) = &mut flags.value {
        pairs.retain(|(key, _)| !matches!(key.text(), Some(CONFIG | CONFIG_DIR)));
    }
    flags
}
