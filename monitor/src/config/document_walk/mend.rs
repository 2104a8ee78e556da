//! Corrections of a configuration's text, recorded beside the errors that they remove.

use super::{Field, Walk};
use crate::config::yaml::Node;
use crate::units::Signal;

/// A correction of the text at the place of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mend {
    /// Counted from one.
    pub line: usize,
    /// Counted from one.
    pub column: usize,
    /// The path of the field.
    pub field: String,
    pub change: Change,
    /// The change's assumption, where the text could be meant otherwise.
    pub assumption: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The first text becomes the second.
    Replace(String, String),
    /// The text loses its quotes.
    Unquote(String),
    /// The value becomes a list of one.
    List(String),
    /// The pair goes, because an earlier one says the same.
    RemoveRepeated,
    /// The map that begins here gets another field at its start.
    AddField(&'static str, &'static str),
    /// `evictionSoftGracePeriod` gets an entry.
    AddGrace(Signal),
}

/// The grace period that a soft threshold gets where the file has none.
pub const ASSUMED_GRACE: &str = "30s";

impl Walk<'_> {
    pub fn mend(&mut self, path: &str, node: &Node, change: Change, assumption: Option<String>) {
        let (line, column, field) = (node.line, node.column, path.to_owned());
        let is_known =
            self.mends.iter().any(|known| (known.line, known.column) == (line, column) && known.change == change);
        if !is_known && self.mends.len() < super::MOST_ERRORS {
            self.mends.push(Mend { line, column, field, change, assumption });
        }
    }

    /// Records that another text can stand in the place of a field's.
    pub fn mend_text(&mut self, field: &Field<'_>, old: &str, new: String, assumption: Option<String>) {
        self.mend(&field.path, field.node, Change::Replace(old.to_owned(), new), assumption);
    }

    /// Takes over the corrections that were recorded while a part of the document was read again.
    pub fn take_mends(&mut self, inner: Vec<Mend>) {
        for mend in inner {
            let place = Node { line: mend.line, column: mend.column, value: crate::config::yaml::Value::Null };
            if !matches!(mend.change, Change::AddGrace(_) | Change::AddField(..)) {
                self.mend(&mend.field, &place, mend.change, mend.assumption);
            }
        }
    }
}
