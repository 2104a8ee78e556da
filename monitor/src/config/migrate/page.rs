//! The text of a migrated file: lines, each with its reasons.

use std::fmt::Write as _;

use crate::config::config_error::Printable;

/// The longest line of a comment.
const WIDTH: usize = 118;

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The path of its field, as a warning names it.
    pub path: String,
    pub indent: usize,
    pub text: String,
    /// Where the line comes from, in few words.
    pub origin: Option<String>,
    /// Sentences.
    pub notes: Vec<String>,
}

/// A file under construction.
#[derive(Debug, Default)]
pub struct Page {
    pub head: Vec<String>,
    pub lines: Vec<Line>,
    /// Paragraphs after the last line. One that begins with a hyphen is an item of a list.
    pub foot: Vec<String>,
}

impl Page {
    /// Adds a field with its value.
    pub fn field(&mut self, name: &str, value: &str) -> &mut Line {
        self.push(name.to_owned(), 0, format!("{name}: {value}"))
    }

    /// Adds a field that holds the following entries.
    pub fn section(&mut self, name: &str) -> &mut Line {
        self.push(name.to_owned(), 0, format!("{name}:"))
    }

    pub fn entry(&mut self, section: &str, name: &str, value: &str) -> &mut Line {
        self.push(format!("{section}.{name}"), 2, format!("{name}: {value}"))
    }

    fn push(&mut self, path: String, indent: usize, text: String) -> &mut Line {
        let index = self.lines.len();
        self.lines.push(Line { path, indent, text, origin: None, notes: Vec::new() });
        &mut self.lines[index]
    }

    /// Adds a note to the line of a field, or to the head where no line has the field.
    pub fn note(&mut self, path: &str, note: String) {
        match self.lines.iter_mut().find(|line| line.path == path) {
            Some(line) => line.notes.push(note),
            None => self.head.push(note),
        }
    }

    /// Returns the text of the file.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for paragraph in &self.head {
            comment(&mut text, 0, paragraph);
        }
        for line in &self.lines {
            if line.indent == 0 && line.path != "kind" {
                text.push('\n');
            }
            for note in &line.notes {
                comment(&mut text, line.indent, note);
            }
            let (indent, code) = (line.indent, &line.text);
            // Writing to a String does not fail.
            let _ = match line.origin.as_deref().map(printable) {
                Some(origin) if indent + code.chars().count() + origin.chars().count() + 4 <= WIDTH => {
                    writeln!(text, "{:indent$}{code}  # {origin}", "")
                }
                Some(origin) => {
                    comment(&mut text, indent, &origin);
                    writeln!(text, "{:indent$}{code}", "")
                }
                None => writeln!(text, "{:indent$}{code}", ""),
            };
        }
        if !self.foot.is_empty() {
            text.push('\n');
        }
        for paragraph in &self.foot {
            comment(&mut text, 0, paragraph);
        }
        text
    }
}

impl Line {
    pub fn origin(&mut self, origin: impl Into<String>) -> &mut Self {
        self.origin = Some(origin.into());
        self
    }

    pub fn note(&mut self, note: impl Into<String>) -> &mut Self {
        self.notes.push(note.into());
        self
    }
}

/// Returns the text on one line without control characters: a line break in a name would end the comment.
fn printable(text: &str) -> String {
    let mut printed = String::new();
    // Writing to a String does not fail.
    let _ = write!(Printable(&mut printed), "{text}");
    printed
}

/// Adds a paragraph as a comment, broken into lines at blanks.
fn comment(text: &mut String, indent: usize, paragraph: &str) {
    let paragraph = printable(paragraph);
    let hanging = if paragraph.starts_with("- ") { "  " } else { "" };
    let mut line = String::new();
    let flush = |line: &str, text: &mut String| {
        let _ = writeln!(text, "{:indent$}# {line}", "");
    };
    for word in paragraph.split(' ').filter(|word| !word.is_empty()) {
        if !line.trim().is_empty() && indent + 2 + line.chars().count() + 1 + word.chars().count() > WIDTH {
            flush(&line, text);
            hanging.clone_into(&mut line);
        }
        if !line.trim().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    flush(&line, text);
}

/// Returns a text as a YAML value that reads back as the same text.
pub fn value(text: &str) -> String {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b".%+_/:-".contains(&byte);
    let starts_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    let is_plain = text.bytes().all(is_safe)
        && text.as_bytes().first().is_some_and(starts_plain)
        && !text.ends_with(':')
        && text.parse::<f64>().is_err()
        && !["true", "false", "yes", "no", "on", "off", "y", "n", "null"].contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        return text.to_owned();
    }
    // JSON's strings are YAML's. Serializing a text does not fail.
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::parse_document;

    #[test]
    fn values_read_back_as_the_same_text() {
        for text in [
            "100Mi",
            "10%",
            ".5Gi",
            "1000",
            "1e3",
            "yes",
            "",
            "a: b",
            "# x",
            "it's",
            "a\"b\n",
            "unix:///run/x.sock",
            "-1",
            "5%%",
        ] {
            let document = parse_document(&format!("a: {}\n", value(text))).unwrap();
            assert_eq!(document.field("a").unwrap().text(), Some(text), "{}", value(text));
        }
    }

    #[test]
    fn comments_cannot_be_broken_out_of() {
        let mut page = Page::default();
        page.head.push("a\nmode: enforce \u{2028} b".to_owned());
        page.field("mode", "observe").origin("line 1\nlockFile: /x").note("long ".repeat(60) + "\rx");
        for line in page.render().lines() {
            assert!(line.is_empty() || line.starts_with('#') || line.starts_with("mode: observe  # line 1"), "{line}");
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }
}
