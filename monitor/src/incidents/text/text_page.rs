//! Text in lines of at most a hundred columns.

use super::words::NO_BREAK;
use crate::config::config_error::is_unprintable;

/// The longest line, unless a word has no place to break it.
pub const WIDTH: usize = 100;
/// Column of the text after a label.
const LABEL: usize = 13;

#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    pub fn finish(self) -> String {
        self.text
    }

    /// Adds a line unchanged. The text must come from this module, not from a record.
    pub fn line(&mut self, line: &str) {
        self.text.push_str(&line.trim_end().replace(NO_BREAK, " "));
        self.text.push('\n');
    }

    /// Adds a line with a text at each end.
    pub fn heading(&mut self, left: &str, right: &str) {
        let (left, right) = (clean(left), clean(right));
        let gap = WIDTH.saturating_sub(columns(&left) + columns(&right)).max(2);
        self.line(&format!("{left}{}{right}", " ".repeat(gap)));
    }

    pub fn section(&mut self, title: &str) {
        self.text.push('\n');
        self.line(title);
    }

    pub fn paragraph(&mut self, text: &str) {
        self.wrapped("  ", "  ", text);
    }

    pub fn point(&mut self, text: &str) {
        self.wrapped("  - ", "    ", text);
    }

    /// Adds a label and its text. An empty label continues the item before.
    pub fn item(&mut self, label: &str, text: &str) {
        let rest = " ".repeat(LABEL);
        self.wrapped(&format!("  {label:<width$}", width = LABEL - 2), &rest, text);
    }

    /// Adds a label and a drawing, whose blanks are kept.
    pub fn drawing(&mut self, label: &str, drawing: &str) {
        self.line(&format!("  {label:<width$}{drawing}", width = LABEL - 2));
    }

    /// Adds a text in lines that begin with `first`, then `rest`.
    pub fn wrapped(&mut self, first: &str, rest: &str, text: &str) {
        let text = clean(text);
        let mut line = first.to_owned();
        let mut is_empty = true;
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            for (index, part) in parts(word, WIDTH - columns(rest)).into_iter().enumerate() {
                let gap = usize::from(!is_empty && index == 0);
                if !is_empty && columns(&line) + gap + columns(part) > WIDTH {
                    self.line(&line);
                    rest.clone_into(&mut line);
                } else if gap == 1 {
                    line.push(' ');
                }
                line.push_str(part);
                is_empty = false;
            }
        }
        self.line(&line);
    }
}

/// Splits a word that is too long; a path breaks after its slashes.
fn parts(word: &str, width: usize) -> Vec<&str> {
    if columns(word) <= width {
        return vec![word];
    }
    let mut parts = Vec::new();
    for piece in word.split_inclusive('/') {
        let mut rest = piece;
        while let Some((at, _)) = rest.char_indices().nth(width) {
            let (head, tail) = rest.split_at(at);
            parts.push(head);
            rest = tail;
        }
        parts.push(rest);
    }
    parts
}

/// Counts columns: each character printed here is one column wide.
pub fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Replaces control characters: processes choose their names, and a name must not control a terminal.
pub fn clean(text: &str) -> String {
    text.chars()
        .map(|character| if is_unprintable(character) { char::REPLACEMENT_CHARACTER } else { character })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(act: impl FnOnce(&mut Page)) -> String {
        let mut page = Page::default();
        act(&mut page);
        page.finish()
    }

    #[test]
    fn words_wrap_and_long_paths_break_after_a_slash() {
        let text = of(|page| page.item("cgroup", &format!("in {}/b{} x", "a".repeat(60), "c".repeat(60))));
        assert_eq!(text, format!("  cgroup     in {}/\n{:13}b{} x\n", "a".repeat(60), "", "c".repeat(60)));
        let text = of(|page| page.point(&"word ".repeat(60)));
        assert!(text.lines().all(|line| columns(line) <= WIDTH && line.contains("word")), "{text}");
        let text = of(|page| page.paragraph(&"x".repeat(250)));
        assert_eq!(text.lines().map(columns).collect::<Vec<_>>(), [100, 100, 56]);
    }

    #[test]
    fn names_cannot_control_a_terminal() {
        let text = of(|page| page.paragraph("a\u{1b}[31m\nb\u{202e}c\u{9b}"));
        assert_eq!(text, "  a\u{fffd}[31m\u{fffd}b\u{fffd}c\u{fffd}\n");
    }
}
