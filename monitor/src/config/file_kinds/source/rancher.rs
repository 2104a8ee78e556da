//! The settings of the kubelet in k3s and RKE2: in their `config.yaml` and the files beside it, and on their command line.

use super::{Assembly, CONFIG, Form, Source, references, without_references};
use crate::config::config_error::ConfigErrors;
use crate::config::document_walk::Field;
use crate::config::file_kinds::distributions::{self, OfK3s};
use crate::config::file_kinds::kubelet_flags::RancherLine;
use crate::config::file_kinds::layers::Layers;
use crate::config::file_kinds::other_files;
use crate::config::yaml::{Node, Value};

impl Assembly<'_> {
    /// Reads `config.yaml` with the files beside it. Any other document without a kind is read as one that states its kind.
    pub(super) fn of_k3s(mut self, document: Node) -> Result<Source, ConfigErrors> {
        let texts = self.others.own.map(other_files::beside).transpose()?.unwrap_or_default();
        let mut documents = vec![document];
        for text in texts {
            documents.push(text.document(&mut self.lines)?);
        }
        let all: Vec<&Node> = documents.iter().collect();
        match distributions::of_k3s(&all) {
            Some(found) => self.of_k3s_flags(found),
            None => {
                let first = documents.swap_remove(0);
                self.of_stated(String::new(), first)
            }
        }
    }

    /// Reads a command line. Arguments for the kubelet there replace those of `config.yaml`.
    pub(super) fn of_rancher(mut self, line: RancherLine) -> Result<Source, ConfigErrors> {
        let RancherLine { program, flags, place } = line;
        let empty = |name: &str, value| Node {
            value: Value::Mapping(vec![(Node { value: scalar(name), ..place.clone() }, value)]),
            ..place.clone()
        };
        let given = flags.field(distributions::K3S_ARGUMENTS).cloned();
        let documents = match given {
            Some(given) => vec![empty(distributions::K3S_ARGUMENTS, given)],
            None => {
                let mut documents = self.config_of(program, &flags, &place)?;
                // Without arguments of a user the defaults of the program remain.
                let none = Node { value: Value::Sequence(Vec::new()), ..place.clone() };
                documents.insert(0, empty(distributions::K3S_ARGUMENTS, none));
                documents
            }
        };
        let all: Vec<&Node> = documents.iter().collect();
        match distributions::of_k3s(&all) {
            Some(found) => self.of_k3s_flags(found),
            None => self.of_flags(flags),
        }
    }

    /// Reads the `config.yaml` that a command line means, and the files beside it. Names it where it is not read.
    fn config_of(&mut self, program: &str, flags: &Node, place: &Node) -> Result<Vec<Node>, ConfigErrors> {
        let named = references(flags).into_iter().find(|(name, _)| *name == CONFIG);
        let named = named.map(|(_, node)| (node.text().unwrap_or_default().to_owned(), node.clone()));
        let is_named = named.is_some();
        let (path, node) = named.unwrap_or_else(|| (format!("/etc/rancher/{program}/config.yaml"), place.clone()));
        let found = self.others.named.map(|of| of(&path));
        if let Some(file) = found.as_ref().filter(|file| file.exists()) {
            let texts = [other_files::read(&path, file)?].into_iter().chain(other_files::beside(file)?);
            return texts.map(|text| text.document(&mut self.lines)).collect();
        }
        // Where the files of the node are known, one that is not there and that nothing names is no gap.
        if found.is_some() && !is_named {
            return Ok(Vec::new());
        }
        let field = Field { path: CONFIG.to_owned(), node: &node };
        let reason =
            format!("the settings of {program} in {path} were not read: kubelet-arg there replaces what is shown here");
        let fix = "name the directory that the node's files are in with --root (on the node itself: --root /)";
        self.check(|walk| if is_named { walk.error(&field, reason, fix) } else { walk.warning(&field, reason, fix) })?;
        Ok(Vec::new())
    }

    fn of_k3s_flags(mut self, found: OfK3s) -> Result<Source, ConfigErrors> {
        if references(&found.flags).is_empty() {
            let mut source = Source::new(found.path, found.flags, Form::Flags);
            if !found.defaults.is_empty() {
                let reason = format!(
                    "not set in this file; unless another file or the command line sets them, k3s and RKE2 start the kubelet with {}",
                    found.defaults.join(" ")
                );
                source.notices.push((reason, "set eviction-hard and eviction-minimum-reclaim here to replace them"));
            }
            (source.lines, source.warnings) = (self.lines, self.warnings);
            return Ok(source);
        }
        let given = self.read_references(&found.flags)?;
        let own = distributions::k3s_drop_in().document(&mut self.lines)?;
        // Since 1.32 the file is copied into the directory of drop-ins, and the flag is taken away.
        let drop_ins = [own].into_iter().chain(given.config).chain(given.drop_ins).collect();
        let flags = Some(without_references(found.flags));
        let mut source = self.layered(found.path.to_owned(), Layers { base: None, drop_ins, flags })?;
        let reason = "k3s and RKE2 merge this file key by key over their own thresholds since 1.32, as here; before, their own flags \
                      replaced its evictionHard";
        source.notices.push((reason.to_owned(), "for all of it, name what the node's kubelet answers to /configz"));
        Ok(source)
    }
}

fn scalar(text: &str) -> Value {
    Value::Scalar { text: text.to_owned(), quoted: true }
}
