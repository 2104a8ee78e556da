//! Lines of at most a hundred columns.

use super::words::NO_BREAK;
use crate::config::config_error::is_unprintable;

/// No line is longer, as long as there is a place to break it.
pub const WIDTH: usize = 100;
/// Labels stand in front of this column.
const LABEL: usize = 13;

/// A text under way.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// The text.
    pub fn finish(self) -> String {
        self.text
    }

    /// A line as it is, of text that this room has made.
    pub fn line(&mut self, line: &str) {
        self.text.push_str(&line.trim_end().replace(NO_BREAK, " "));
        self.text.push('\n');
    }

    /// Two texts at both ends of a line.
    pub fn heading(&mut self, left: &str, right: &str) {
        let (left, right) = (clean(left), clean(right));
        let gap = WIDTH.saturating_sub(columns(&left) + columns(&right)).max(2);
        self.line(&format!("{left}{}{right}", " ".repeat(gap)));
    }

    /// What follows is about something else.
    pub fn section(&mut self, title: &str) {
        self.text.push('\n');
        self.line(title);
    }

    /// Words, broken where lines end.
    pub fn paragraph(&mut self, text: &str) {
        self.wrapped("  ", "  ", text);
    }

    /// One of several points.
    pub fn point(&mut self, text: &str) {
        self.wrapped("  - ", "    ", text);
    }

    /// A label and what there is to say; without a label it goes on with what the line before said.
    pub fn item(&mut self, label: &str, text: &str) {
        let rest = " ".repeat(LABEL);
        self.wrapped(&format!("  {label:<width$}", width = LABEL - 2), &rest, text);
    }

    /// A label and a drawing, whose blanks count.
    pub fn drawing(&mut self, label: &str, drawing: &str) {
        self.line(&format!("  {label:<width$}{drawing}", width = LABEL - 2));
    }

    fn wrapped(&mut self, first: &str, rest: &str, text: &str) {
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

/// A word in pieces that fit; a path breaks behind its slashes.
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

/// Columns that a text takes: all that is printed here is one column wide.
pub fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Processes choose their names: none of them is to command a terminal.
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
    fn words_wrap_and_long_paths_break_behind_a_slash() {
        let text = of(|page| page.item("cgroup", &format!("in {}/b{} x", "a".repeat(60), "c".repeat(60))));
        assert_eq!(text, format!("  cgroup     in {}/\n{:13}b{} x\n", "a".repeat(60), "", "c".repeat(60)));
        let text = of(|page| page.point(&"word ".repeat(60)));
        assert!(text.lines().all(|line| columns(line) <= WIDTH && line.contains("word")), "{text}");
        let text = of(|page| page.paragraph(&"x".repeat(250)));
        assert_eq!(text.lines().map(columns).collect::<Vec<_>>(), [100, 100, 56]);
    }

    #[test]
    fn names_cannot_command_a_terminal() {
        let text = of(|page| page.paragraph("a\u{1b}[31m\nb\u{202e}c\u{9b}"));
        assert_eq!(text, "  a\u{fffd}[31m\u{fffd}b\u{fffd}c\u{fffd}\n");
    }
}
