//! Standard output of a piece of work. Work that runs beside other work prints whole lines only, each with its name in front, so
//! that the lines of two pieces never mix.

use std::fmt;
use std::io::{self, IsTerminal as _};

/// Standard output, for one piece of work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Console {
    mark: Option<String>,
}

impl Console {
    /// Returns the console of work that runs alone; its lines get no name.
    pub const fn alone() -> Self {
        Self { mark: None }
    }

    /// Returns the console of work that runs beside other work; the name is put before every line.
    pub fn beside_others(name: &str) -> Self {
        Self { mark: Some(format!("{name}| ")) }
    }

    /// Prints one line, or several that stay together.
    pub fn say(&self, text: impl fmt::Display) {
        // One call locks standard output once. Between several calls another lane could print.
        println!("{}", self.marked(&text.to_string()));
    }

    /// Returns whether a line may be completed later. Beside other work, another line could come in between.
    pub const fn is_alone(&self) -> bool {
        self.mark.is_none()
    }

    /// Returns whether the last line may be overwritten.
    pub fn draws(&self) -> bool {
        self.is_alone() && io::stdout().is_terminal()
    }

    fn marked(&self, text: &str) -> String {
        match &self.mark {
            None => text.to_owned(),
            Some(mark) if text.is_empty() => mark.trim_end().to_owned(),
            Some(mark) => text.lines().map(|line| format!("{mark}{line}")).collect::<Vec<_>>().join("\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_beside_other_work_has_a_name() {
        let console = Console::beside_others("6.1 v1");
        assert_eq!(console.marked("[  1.0 s] ramp"), "6.1 v1| [  1.0 s] ramp");
        assert_eq!(console.marked("two\nlines\n"), "6.1 v1| two\n6.1 v1| lines");
        assert_eq!(console.marked(""), "6.1 v1|");
        assert!(!console.is_alone() && !console.draws());
    }

    #[test]
    fn text_of_work_that_runs_alone_is_unchanged() {
        assert_eq!(Console::alone().marked("  two\nlines"), "  two\nlines");
        assert!(Console::alone().is_alone());
    }
}
