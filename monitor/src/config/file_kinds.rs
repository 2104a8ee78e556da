//! The kinds of configuration files: a `KubeletConfiguration`, OpenShift 3's node configuration, and the agent's own
//! `MonitorConfiguration`. The content of a file decides its kind.

mod distributions;
mod kubelet_configuration;
mod kubelet_flags;
mod layers;
pub(super) mod monitor_configuration;
pub(super) mod openshift3;
mod other_files;
mod reservations;
mod source;
mod stated_kind;
pub mod threshold_fields;
mod wrapped;

use std::path::Path;

use super::config_error::{ConfigError, ConfigErrors, ConfigWarning};
use super::document_walk::WrittenThreshold;
use super::file_watch::read_limited;
use super::policy::MonitorConfig;

pub use other_files::{OtherFiles, arguments_of_k3s};
pub use source::Source;

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
    /// What the document is, where its kind does not tell.
    pub what: Option<&'static str>,
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
        Self::parse_with(file_name, text, OtherFiles::default())
    }

    /// Checks the text of a configuration file together with the other files of a kubelet. Only messages use the name.
    pub fn parse_with(file_name: &str, text: &str, others: OtherFiles<'_>) -> Result<Loaded, ConfigErrors> {
        let source = Source::assemble(file_name, text, others)?;
        let mut walk = source.walk(file_name);
        let read = source.read(&mut walk);
        let written = std::mem::take(&mut walk.thresholds);
        let (errors, warnings) = walk.finish();
        match read {
            Some((kind, config)) if errors.is_empty() => {
                Ok(Loaded { kind, what: source.what, config, warnings, written })
            }
            _ => Err(ConfigErrors(errors)),
        }
    }
}

fn whole_file(file_name: &str, reason: impl Into<String>, fix: &str) -> ConfigErrors {
    ConfigErrors(vec![ConfigError::whole_file(file_name, reason, fix)])
}

#[cfg(test)]
mod foreign_tests;
#[cfg(test)]
mod refused_tests;

#[cfg(test)]
#[path = "file_kinds_tests.rs"]
mod tests;
