//! The kinds of configuration files: a `KubeletConfiguration`, OpenShift 3's node configuration, and the agent's own
//! `MonitorConfiguration`. The content of a file decides its kind.

mod kubelet_configuration;
mod kubelet_flags;
pub(super) mod monitor_configuration;
pub(super) mod openshift3;
mod reservations;
pub mod threshold_fields;
mod wrapped;

use std::path::Path;

use super::config_error::{ConfigError, ConfigErrors, ConfigWarning};
use super::document_walk::{Field, Walk, WrittenThreshold};
use super::file_watch::read_limited;
use super::policy::MonitorConfig;
use super::yaml::{Node, Value, parse_document};

const MAX_FILE_SIZE: u64 = 256 << 10;

/// The kind of a file, whose rules apply where the file does not name others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    Monitor,
    Kubelet,
    /// A kubelet's flags.
    KubeletFlags,
    /// OpenShift 3's node configuration, with `kubeletArguments`.
    OpenShift3,
}

impl FileKind {
    /// Returns the value of the file's `kind`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Monitor => monitor_configuration::KIND,
            Self::Kubelet => kubelet_configuration::KIND,
            Self::KubeletFlags => kubelet_flags::KIND,
            Self::OpenShift3 => openshift3::KIND,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub kind: FileKind,
    /// Fields absent from the file have their defaults.
    pub config: MonitorConfig,
    pub warnings: Vec<ConfigWarning>,
    /// Where the thresholds are written.
    pub written: Vec<WrittenThreshold>,
}

impl MonitorConfig {
    /// Reads and checks a configuration file of any kind. Returns all errors of the file at once.
    pub fn load(path: &Path) -> Result<Loaded, ConfigErrors> {
        Self::parse_bytes(&path.display().to_string(), Self::read(path)?)
    }

    /// Reads the bytes of a configuration file, at most one byte more than a file may have.
    pub fn read(path: &Path) -> Result<Vec<u8>, ConfigErrors> {
        std::fs::File::open(path).and_then(Self::read_from).map_err(|error| {
            let reason = format!("cannot be read: {error}");
            whole_file(&path.display().to_string(), reason, "check the path and its permissions")
        })
    }

    /// Reads the bytes of a configuration file, at most one byte more than a file may have.
    pub fn read_from(source: impl std::io::Read) -> std::io::Result<Vec<u8>> {
        read_limited(source, MAX_FILE_SIZE)
    }

    /// Checks the bytes of a configuration file of any kind. Only messages use the name. Returns all errors of the file at once.
    pub fn parse_bytes(file_name: &str, bytes: Vec<u8>) -> Result<Loaded, ConfigErrors> {
        Self::parse(file_name, &Self::text_of(file_name, bytes)?)
    }

    /// Returns the bytes of a configuration file as text. Only messages use the name.
    pub fn text_of(file_name: &str, bytes: Vec<u8>) -> Result<String, ConfigErrors> {
        if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_FILE_SIZE) {
            return Err(whole_file(file_name, "larger than 256 KiB", "check the path"));
        }
        String::from_utf8(bytes)
            .map_err(|error| whole_file(file_name, format!("not UTF-8: {error}"), "save it as UTF-8"))
    }

    /// Checks the text of a configuration file of any kind. Only messages use the name. Returns all errors of the file at once.
    pub fn parse(file_name: &str, text: &str) -> Result<Loaded, ConfigErrors> {
        let source = Source::locate(file_name, text)?;
        let mut walk = Walk::new(file_name);
        let read = source.read(&mut walk);
        let written = std::mem::take(&mut walk.thresholds);
        let (errors, warnings) = walk.finish();
        match read {
            Some((kind, config)) if errors.is_empty() => Ok(Loaded { kind, config, warnings, written }),
            _ => Err(ConfigErrors(errors)),
        }
    }
}

/// The configuration in a text: the whole document, or the part of one that holds the configuration.
#[derive(Debug)]
pub struct Source {
    /// The path of the part in the document; empty for the whole.
    pub path: String,
    pub node: Node,
    form: Form,
    /// A warning about this form: the reason, and the advice.
    notice: Option<(String, &'static str)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Flags,
    /// The kubelet's fields without their kind.
    Fields,
    /// The document states its kind.
    Stated,
}

impl Source {
    /// Finds the configuration in a text. Fails when the text is no YAML.
    pub fn locate(file_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        // A byte order mark is no part of the text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let of_file =
            |error: Box<ConfigError>| ConfigErrors(vec![ConfigError { file: file_name.to_owned(), ..*error }]);
        if let Some(node) = kubelet_flags::document(text) {
            return Ok(Self { path: String::new(), node, form: Form::Flags, notice: None });
        }
        let document = parse_document(text).map_err(of_file)?;
        if let Some(node) = document.field(wrapped::CONFIGZ).cloned() {
            return Ok(Self { path: wrapped::CONFIGZ.to_owned(), node, form: Form::Fields, notice: None });
        }
        if let Some(wrapped::K3sFlags { path, node, defaults }) = wrapped::of_k3s(&document) {
            let reason = format!(
                "not set in this file; unless another file or the command line sets them, k3s and RKE2 start the kubelet with {}",
                defaults.join(" ")
            );
            let advice = "set eviction-hard and eviction-minimum-reclaim here to replace them";
            let notice = (!defaults.is_empty()).then_some((reason, advice));
            return Ok(Self { path: path.to_owned(), node, form: Form::Flags, notice });
        }
        if let Some(node) = wrapped::of_operator_resource(&document) {
            let reason = "the machine config operator merges these fields into its own, which may reserve more and set other thresholds";
            let notice =
                Some((reason.to_owned(), "name the file that it writes on the node: /etc/kubernetes/kubelet.conf"));
            let path = wrapped::OPERATOR_FIELDS.join(".");
            return Ok(Self { path, node: node.clone(), form: Form::Fields, notice });
        }
        let is_config_map = kind_of(&document).name == CONFIG_MAP;
        let wrapped = if is_config_map { wrapped::of_config_map(text, &document).map_err(of_file)? } else { None };
        Ok(match wrapped {
            Some(wrapped) => Self { path: wrapped.path, node: wrapped.node, form: Form::Stated, notice: None },
            None => Self { path: String::new(), node: document, form: Form::Stated, notice: None },
        })
    }

    /// Reads the configuration. Errors are recorded in `walk`. Returns `None` where the kind is not known.
    pub fn read(&self, walk: &mut Walk<'_>) -> Option<(FileKind, MonitorConfig)> {
        let kind = match self.form {
            Form::Flags => FileKind::KubeletFlags,
            Form::Fields => FileKind::Kubelet,
            Form::Stated => kind(walk, &self.node)?,
        };
        let read = match kind {
            FileKind::Monitor => monitor_configuration::read,
            FileKind::Kubelet if self.form == Form::Fields => kubelet_configuration::read_without_kind,
            FileKind::Kubelet => kubelet_configuration::read,
            FileKind::KubeletFlags => openshift3::read_flags,
            FileKind::OpenShift3 => openshift3::read,
        };
        let root = Field { path: self.path.clone(), node: &self.node };
        if let Some((reason, advice)) = &self.notice {
            walk.warning(&root, reason.clone(), advice);
        }
        Some((kind, read(walk, &root)))
    }
}

fn whole_file(file_name: &str, reason: impl Into<String>, fix: &str) -> ConfigErrors {
    ConfigErrors(vec![ConfigError::whole_file(file_name, reason, fix)])
}

/// The `kind` of a Kubernetes object that has files in it.
const CONFIG_MAP: &str = "ConfigMap";

/// The kind that a document names.
#[derive(Debug)]
struct StatedKind<'n> {
    name: &'n str,
    /// Whether the document is a configuration for certain.
    is_explicit: bool,
}

fn kind_of(document: &Node) -> StatedKind<'_> {
    let text = |name| match document.field(name).map(|node| &node.value) {
        Some(Value::Scalar { text, .. }) => text.as_str(),
        _ => "",
    };
    let name = text("kind");
    let is_known = [monitor_configuration::KIND, kubelet_configuration::KIND, openshift3::KIND].contains(&name);
    let is_kubelets = name.is_empty() && text("apiVersion") == kubelet_configuration::API_VERSION;
    let is_openshift = document.field(openshift3::ARGUMENTS).is_some();
    StatedKind { name, is_explicit: is_known || is_kubelets || is_openshift }
}

/// Returns the kind of a file, or `None` after recording that the file is of no known kind.
fn kind(walk: &mut Walk<'_>, document: &Node) -> Option<FileKind> {
    let Value::Mapping(pairs) = &document.value else {
        let reason = match document.value {
            Value::Null => "the file is empty".to_owned(),
            _ => format!("the file must be a map of fields, not {}", document.value.kind()),
        };
        let (version, kind) = (monitor_configuration::API_VERSION, monitor_configuration::KIND);
        let fix = format!("start with `apiVersion: {version}` and `kind: {kind}`");
        walk.error(&Field { path: String::new(), node: document }, reason, &fix);
        return None;
    };
    let find = |name: &str| {
        let named = |node: &Node| matches!(&node.value, Value::Scalar { text, .. } if text == name);
        pairs.iter().find(|(key, _)| named(key)).map(|(_, value)| value)
    };
    let text = |node: Option<&'_ Node>| match node.map(|node| &node.value) {
        Some(Value::Scalar { text, .. }) => text.clone(),
        _ => String::new(),
    };
    let kind = find("kind");
    let (reason, fix) = match text(kind).as_str() {
        monitor_configuration::KIND => return Some(FileKind::Monitor),
        kubelet_configuration::KIND => return Some(FileKind::Kubelet),
        openshift3::KIND => return Some(FileKind::OpenShift3),
        _ if find(openshift3::ARGUMENTS).is_some() => return Some(FileKind::OpenShift3),
        "" if text(find("apiVersion")) == kubelet_configuration::API_VERSION => return Some(FileKind::Kubelet),
        "" => return Some(FileKind::Monitor),
        CONFIG_MAP => (
            "a ConfigMap without a configuration in its `data`, or with several",
            "save the text below one of its `data` keys (node-config.yaml, kubelet) as a file of its own, and name that",
        ),
        wrapped::OPERATOR_KIND | "MachineConfig" => (
            "a resource of OpenShift's operators without fields of the kubelet",
            "name the file that they write on the node: /etc/kubernetes/kubelet.conf",
        ),
        _ => {
            ("not one of the kinds of configuration", "write MonitorConfiguration, KubeletConfiguration or NodeConfig")
        }
    };
    walk.error(&Field { path: "kind".to_owned(), node: kind.unwrap_or(document) }, reason, fix);
    None
}

#[cfg(test)]
mod foreign_tests;
#[cfg(test)]
mod refused_tests;

#[cfg(test)]
#[path = "file_kinds_tests.rs"]
mod tests;
