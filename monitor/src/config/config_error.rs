//! What is wrong with a configuration file, said so that it can be put right.

use std::fmt::{self, Write as _};

/// One thing wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file's name as given.
    pub file: String,
    /// Counted from one; zero when the whole file is meant.
    pub line: usize,
    /// Counted from one; zero when the whole file is meant.
    pub column: usize,
    /// The path to the field, e.g. `evictionHard.memory.available`; empty when the whole file is meant.
    pub field: String,
    /// The value as written, when there is one.
    pub value: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// What to write instead.
    pub fix: Option<String>,
}

/// Keeps what a file has in its names out of the terminal's hands, and each error on one line.
#[derive(Debug)]
pub struct Printable<'a, W>(pub &'a mut W);

/// Whether a terminal takes it for a command, or shows what stands around it in another order: controls, and Unicode's invisible
/// formatting, lines and directions (UTS 55).
#[must_use]
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

/// Something that is not wrong, but hardly meant; where it is, and what to write instead. Prints as an error does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigWarning(pub ConfigError);

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Everything wrong with a file, in the order of its lines. Prints one a line.
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
