//! Mends the text of a configuration: makes the corrections that are certain, and leaves every other byte as it is.

mod edits;

use super::config_error::ConfigErrors;
use super::document_walk::{Change, Mend, Walk};
use super::file_kinds::Source;
use super::yaml;

use edits::Edit;

/// More rounds than any file needs: one for each grace period, and a few for errors that earlier ones hide.
const MOST_ROUNDS: usize = 64;
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A text after its corrections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mended {
    pub text: String,
    /// A sentence for each correction, with its line.
    pub changes: Vec<String>,
    /// The errors that are left, with the lines of `text`.
    pub left: Option<ConfigErrors>,
}

/// Mends a configuration file of any kind. Only messages use the name. A valid text stays as it is.
pub fn mend(file_name: &str, text: &str) -> Mended {
    let mark = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
    let (mark, body) = text.split_at(mark);
    let mut text = body.to_owned();
    let mut changes: Vec<(usize, String)> = Vec::new();
    let mut state = examine(file_name, &text);
    for _ in 0..MOST_ROUNDS {
        if state.errors.is_none() {
            break;
        }
        let Some((next, sentences)) = round(file_name, &text, &state.mends) else { break };
        let after = examine(file_name, &next);
        // A correction that makes the text unreadable was none.
        if !after.is_readable && state.is_readable {
            break;
        }
        (text, state) = (next, after);
        changes.extend(sentences);
    }
    changes.sort_by_key(|(line, _)| *line);
    let changes = changes.into_iter().map(|(_, sentence)| sentence).collect();
    Mended { text: format!("{mark}{text}"), changes, left: state.errors }
}

struct Examined {
    is_readable: bool,
    errors: Option<ConfigErrors>,
    mends: Vec<Mend>,
}

fn examine(file_name: &str, text: &str) -> Examined {
    let source = match Source::locate(file_name, text) {
        Ok(source) => source,
        Err(errors) => {
            let line = errors.0.first().map_or(0, |error| error.line);
            let missing = yaml::missing_colon(text, line).map(|missing| Mend {
                line: missing.line,
                column: missing.column,
                field: String::new(),
                change: Change::Replace(missing.content, missing.pair),
                assumption: None,
            });
            return Examined { is_readable: false, errors: Some(errors), mends: missing.into_iter().collect() };
        }
    };
    let mut walk = Walk::new(file_name);
    source.read(&mut walk);
    let mends = std::mem::take(&mut walk.mends);
    let (errors, _) = walk.finish();
    let errors = (!errors.is_empty()).then_some(ConfigErrors(errors));
    Examined { is_readable: true, errors, mends }
}

/// Makes the corrections that can be made together. Returns the new text, and for each the line and a sentence, or `None` where there is
/// none to make.
fn round(file_name: &str, text: &str, mends: &[Mend]) -> Option<(String, Vec<(usize, String)>)> {
    // Corrections within a line come first, so that their sentences name the lines of the file as it was.
    let is_within = |mend: &&Mend| matches!(mend.change, Change::Replace(..) | Change::Unquote(_) | Change::List(_));
    let is_removal = |mend: &&Mend| mend.change == Change::RemoveRepeated;
    let groups: [&dyn Fn(&&Mend) -> bool; 3] = [&is_within, &is_removal, &|mend| !is_within(mend) && !is_removal(mend)];
    for (group, is_of) in groups.iter().enumerate() {
        let mut edits: Vec<(Edit, (usize, String))> = Vec::new();
        // Additions to the same place are made one by one.
        let most = if group == 2 { 1 } else { usize::MAX };
        for mend in mends.iter().filter(|mend| is_of(mend)) {
            let Some(edit) = edits::edit(file_name, text, mend) else { continue };
            if edits.len() < most && !edits.iter().any(|(other, _)| other.overlaps(&edit)) {
                // An addition has no line in the file as it was.
                let line = if group == 2 { usize::MAX } else { mend.line };
                edits.push((edit, (line, sentence(mend))));
            }
        }
        if !edits.is_empty() {
            edits.sort_by_key(|(edit, _)| edit.start);
            let mut new = text.to_owned();
            for (edit, _) in edits.iter().rev() {
                new.replace_range(edit.start..edit.end, &edit.text);
            }
            return Some((new, edits.into_iter().map(|(_, sentence)| sentence).collect()));
        }
    }
    None
}

fn sentence(mend: &Mend) -> String {
    let place = if mend.field.is_empty() { String::new() } else { format!("{}: ", mend.field) };
    let what = match &mend.change {
        Change::Replace(old, new) => format!("line {}: {place}{old} -> {new}", mend.line),
        Change::Unquote(text) => format!("line {}: {place}\"{text}\" -> {text}", mend.line),
        Change::List(text) => format!("line {}: {place}{text} -> [{text}]", mend.line),
        Change::RemoveRepeated => format!("line {}: {place}removed: an earlier line says the same", mend.line),
        Change::AddField(name, value) => format!("added `{name}: {value}`"),
        Change::AddGrace(signal) => {
            format!("added `{signal}: {}` to evictionSoftGracePeriod", super::document_walk::ASSUMED_GRACE)
        }
    };
    match &mend.assumption {
        Some(assumption) => format!("{what}; {assumption}"),
        None => what,
    }
}

#[cfg(test)]
mod tests;
