//! The lines of several files, counted through, so that a node of a document made of them still knows its file.

/// The files after the first, each with the number of the lines before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileLines {
    later: Vec<(usize, String)>,
    count: usize,
}

impl FileLines {
    /// Starts with the first file, whose name the caller knows.
    pub fn of_first(text: &str) -> Self {
        Self { later: Vec::new(), count: lines_of(text) }
    }

    /// Adds a file. Returns what its own line numbers are to be raised by.
    pub fn add(&mut self, name: &str, text: &str) -> usize {
        let before = self.count;
        self.later.push((before, name.to_owned()));
        self.count += lines_of(text);
        before
    }

    /// Returns the file of a line, `None` for the first one, and the line's number there.
    pub fn place(&self, line: usize) -> (Option<&str>, usize) {
        match self.later.iter().rfind(|(before, _)| *before < line) {
            Some((before, name)) => (Some(name), line - before),
            None => (None, line),
        }
    }

    /// Returns the place of a file among the files, zero for the first one.
    pub fn order(&self, name: &str) -> usize {
        self.later.iter().position(|(_, later)| later == name).map_or(0, |position| position + 1)
    }

    /// Returns the names of the files after the first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.later.iter().map(|(_, name)| name.as_str())
    }

    /// Names a line as a sentence does: `line 3`, or `line 3 of 10-more.conf` where it is not of the first file.
    pub fn shown(&self, line: usize) -> String {
        match self.place(line) {
            (Some(file), line) => format!("line {line} of {file}"),
            (None, line) => format!("line {line}"),
        }
    }
}

/// A parser may name the line after the last one.
fn lines_of(text: &str) -> usize {
    text.lines().count() + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_knows_its_file() {
        let mut lines = FileLines::of_first("a\nb\n");
        let (second, third) = (lines.add("s", "c\n"), lines.add("t", ""));
        assert_eq!((lines.place(1), lines.place(4)), ((None, 1), (None, 4)));
        assert_eq!(lines.place(second + 1), (Some("s"), 1));
        assert_eq!(lines.place(third + 1), (Some("t"), 1));
        assert_eq!((lines.shown(2), lines.shown(second + 1)), ("line 2".to_owned(), "line 1 of s".to_owned()));
    }
}
