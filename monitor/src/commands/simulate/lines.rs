//! Reads the lines of a trace in constant memory.

use std::io::{self, BufRead, BufReader, Read};

/// Maximum length of a line: a kubelet's Summary with its pods is a thousandth of this.
pub const LONGEST_LINE: usize = 256 << 20;
/// Bytes per read of the file.
const CHUNK: usize = 256 << 10;
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
    buffer: Vec<u8>,
    longest: usize,
    lines: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// The text, without the line end.
    pub text: &'a str,
    /// The line number, counted from one; blank lines count.
    pub number: u64,
    /// Bytes from the start of the trace to the end of the line.
    pub end: u64,
}

/// Why there is no next line.
#[derive(Debug, thiserror::Error)]
pub enum LinesError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the line is longer than {} MiB", .longest >> 20)]
    TooLong {
        /// The maximum length in bytes.
        longest: usize,
    },
    #[error("not UTF-8")]
    NotUtf8 {
        /// The first invalid byte, counted from one.
        column: usize,
    },
}

impl LinesError {
    pub fn column(&self) -> usize {
        match self {
            Self::NotUtf8 { column } => *column,
            Self::Io(_) | Self::TooLong { .. } => 1,
        }
    }
}

impl<R: Read> Lines<R> {
    pub fn new(reader: R) -> Self {
        Self::with_longest(reader, LONGEST_LINE)
    }

    fn with_longest(reader: R, longest: usize) -> Self {
        Self { reader: BufReader::with_capacity(CHUNK, reader), buffer: Vec::new(), longest, lines: 0, bytes: 0 }
    }

    /// Returns the number of the last line read, counted from one; blank lines count.
    pub fn number(&self) -> u64 {
        self.lines
    }

    /// Whether reading the next line may block, so that buffered answers must be flushed now.
    pub fn may_wait(&self) -> bool {
        !self.reader.buffer().contains(&b'\n')
    }

    pub fn next_line(&mut self) -> Result<Option<Line<'_>>, LinesError> {
        loop {
            self.buffer.clear();
            let at_most = u64::try_from(self.longest).unwrap_or(u64::MAX).saturating_add(1);
            let read = (&mut self.reader).take(at_most).read_until(b'\n', &mut self.buffer)?;
            if read == 0 {
                return Ok(None);
            }
            self.lines += 1;
            self.bytes += u64::try_from(read).unwrap_or(0);
            if read > self.longest && !self.buffer.ends_with(b"\n") {
                return Err(LinesError::TooLong { longest: self.longest });
            }
            if self.lines == 1 && self.buffer.starts_with(BYTE_ORDER_MARK) {
                // The byte order mark is blanked, not removed, so that the column of an error is that of an editor.
                self.buffer[..BYTE_ORDER_MARK.len()].fill(b' ');
            }
            if !self.buffer.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        let (number, end) = (self.lines, self.bytes);
        let not_utf8 = |error: std::str::Utf8Error| LinesError::NotUtf8 { column: error.valid_up_to() + 1 };
        let text = std::str::from_utf8(self.buffer.trim_ascii_end()).map_err(not_utf8)?;
        Ok(Some(Line { text, number, end }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<(u64, String)> {
        let mut lines = Lines::new(text);
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            all.push((line.number, line.text.to_owned()));
        }
        all
    }

    #[test]
    fn blank_lines_are_counted_and_passed_over() {
        let text = b"\xef\xbb\xbf{}\r\n\r\n  \n{\"a\": 1}  \n\n";
        assert_eq!(all(text), [(1, "   {}".to_owned()), (4, "{\"a\": 1}".to_owned())]);
        assert_eq!(all(b"{}"), [(1, "{}".to_owned())]);
        assert_eq!(all(b""), []);
    }

    #[test]
    fn a_line_may_be_as_long_as_allowed_but_no_longer() {
        let mut lines = Lines::with_longest(&b"12345\n123456\n"[..], 5);
        assert_eq!(lines.next_line().unwrap().map(|line| line.text), Some("12345"));
        let error = lines.next_line().unwrap_err();
        assert!(matches!(error, LinesError::TooLong { longest: 5 }), "{error}");
    }

    #[test]
    fn bytes_that_are_no_text_are_placed() {
        let error = Lines::new(&b"{\"a\": \"\xff\"}\n"[..]).next_line().unwrap_err();
        assert!(matches!(error, LinesError::NotUtf8 { column: 8 }), "{error}");
    }
}
