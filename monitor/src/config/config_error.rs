//! Errors and warnings about a configuration file. Each names the file, the line, the field and the fix.

use std::fmt::{self, Write as _};

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigError {
    /// The file's name as given.
    #[serde(skip)]
    pub file: String,
    /// Counted from one; zero for an error about the whole file.
    pub line: usize,
    /// Counted from one; zero for an error about the whole file.
    pub column: usize,
    /// The path to the field, e.g. `evictionHard.memory.available`; empty for an error about the whole file.
    pub field: String,
    pub value: Option<String>,
    pub reason: String,
    /// The text to write instead.
    pub fix: Option<String>,
}

impl ConfigError {
    /// Returns an error about a place outside of any field.
    pub fn at(line: usize, column: usize, reason: impl Into<String>, fix: impl Into<String>) -> Self {
        let (file, field, value) = (String::new(), String::new(), None);
        Self { file, line, column, field, value, reason: reason.into(), fix: Some(fix.into()) }
    }

    pub fn whole_file(file: &str, reason: impl Into<String>, fix: &str) -> Self {
        Self { file: file.to_owned(), ..Self::at(0, 0, reason, fix) }
    }
}

/// Replaces characters that could control a terminal, so that each error is one readable line.
#[derive(Debug)]
pub struct Printable<'a, W>(pub &'a mut W);

/// Returns whether a terminal obeys the character instead of showing it: controls, and Unicode's invisible formatting characters, line
/// separators and direction marks (UTS 55).
pub fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl<W: fmt::Write> fmt::Write for Printable<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (index, piece) in text.split(is_unprintable).enumerate() {
            if index > 0 {
                self.0.write_char(char::REPLACEMENT_CHARACTER)?;
            }
            self.0.write_str(piece)?;
        }
        Ok(())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = &mut Printable(f);
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        if let Some(value) = &self.value {
            write!(f, ": {value:?}")?;
        }
        write!(f, ": {}", self.reason)?;
        if let Some(fix) = &self.fix {
            write!(f, "; {fix}")?;
        }
        Ok(())
    }
}

/// A value that is valid, but probably not intended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigWarning(pub ConfigError);

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// All errors of a file in the order of its lines, displayed one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
