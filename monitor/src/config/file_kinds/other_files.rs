//! The files that a kubelet's settings are spread over beside the one that was given.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::distributions::k3s_items;
use super::layers::lower;
use crate::config::config_error::{ConfigError, ConfigErrors};
use crate::config::file_lines::FileLines;
use crate::config::policy::MonitorConfig;
use crate::config::yaml::{Node, parse_document};

/// More drop-ins than any node has.
const MOST_FILES: usize = 256;
/// Deeper than any directory of drop-ins.
const MAX_DEPTH: usize = 8;

/// Where the other files are.
#[derive(Default, Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a function has no text")]
pub struct OtherFiles<'a> {
    /// Returns the place of a file that a flag names. `None`: what flags name is not read.
    pub named: Option<&'a dyn Fn(&str) -> PathBuf>,
    /// The directory of drop-ins that counts instead of the one that a flag names.
    pub config_dir: Option<&'a Path>,
    /// A file with the kubelet's flags.
    pub flags: Option<&'a Path>,
    /// The file itself, to find those that k3s and RKE2 read beside it.
    pub own: Option<&'a Path>,
    /// The name of the object that is meant, in a list of several.
    pub item: Option<&'a str>,
}

/// A text with its name, which messages repeat.
#[derive(Debug)]
pub struct NamedText {
    pub name: String,
    pub text: String,
}

impl NamedText {
    /// Parses the text as one document, and counts its lines after those of the files before.
    pub fn document(&self, lines: &mut FileLines) -> Result<Node, ConfigErrors> {
        let own = |error: Box<ConfigError>| ConfigErrors(vec![ConfigError { file: self.name.clone(), ..*error }]);
        let mut node = parse_document(self.text.trim_start_matches('\u{feff}')).map_err(own)?;
        lower(&mut node, lines.add(&self.name, &self.text));
        Ok(node)
    }
}

/// Reads a file of settings.
pub fn read(name: &str, path: &Path) -> Result<NamedText, ConfigErrors> {
    let rename = |mut errors: ConfigErrors| {
        errors.0.iter_mut().for_each(|error| name.clone_into(&mut error.file));
        errors
    };
    let text = MonitorConfig::read(path).map_err(rename).and_then(|bytes| MonitorConfig::text_of(name, bytes))?;
    Ok(NamedText { name: name.to_owned(), text })
}

/// Reads the files of a directory whose names end so, in the order in which the kubelet walks: by name, a directory's files at its place.
pub fn read_all(name: &str, directory: &Path, endings: &[&str], depth: usize) -> Result<Vec<NamedText>, ConfigErrors> {
    let failed = |error: &std::io::Error| {
        let fix = "check the path and its permissions";
        ConfigErrors(vec![ConfigError::whole_file(name, format!("cannot be read: {error}"), fix)])
    };
    let mut entries =
        fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(|it| failed(&it))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut texts = Vec::new();
    for entry in entries {
        let own = entry.file_name();
        let shown = format!("{}/{}", name.trim_end_matches('/'), own.display());
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory && depth < MAX_DEPTH {
            texts.extend(read_all(&shown, &entry.path(), endings, depth + 1)?);
        } else if !is_directory && endings.iter().any(|ending| own.as_encoded_bytes().ends_with(ending.as_bytes())) {
            texts.push(read(&shown, &entry.path())?);
        }
        if texts.len() > MOST_FILES {
            return Err(failed(&ErrorKind::FileTooLarge.into()));
        }
    }
    Ok(texts)
}

/// Reads the files that k3s and RKE2 read after `config.yaml`: those of `config.yaml.d` (docs.k3s.io, configuration file).
pub fn beside(own: &Path) -> Result<Vec<NamedText>, ConfigErrors> {
    let mut directory = own.as_os_str().to_owned();
    directory.push(".d");
    let directory = PathBuf::from(directory);
    match directory.is_dir() {
        true => read_all(&directory.display().to_string(), &directory, &[".yaml", ".yml"], MAX_DEPTH),
        false => Ok(Vec::new()),
    }
}

/// Returns the kubelet's flags in a `config.yaml` of k3s or RKE2 and in the files beside it, such as `eviction-hard=…`.
pub fn arguments_of_k3s(path: &Path) -> Result<Vec<String>, ConfigErrors> {
    let mut lines = FileLines::default();
    let texts = [read(&path.display().to_string(), path)?].into_iter().chain(beside(path)?);
    let documents = texts.map(|text| text.document(&mut lines)).collect::<Result<Vec<_>, _>>()?;
    let items = k3s_items(&documents.iter().collect::<Vec<_>>());
    Ok(items.into_iter().filter_map(|item| item.text().map(str::to_owned)).collect())
}
