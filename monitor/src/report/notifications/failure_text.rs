//! The end of a failure's text: what the receiver of a notification said.

/// Bytes of the receiver's output that a failure repeats.
pub(super) const SHOWN: usize = 200;

/// Returns the first line with a text of the first [`SHOWN`] bytes, after a colon.
pub(super) fn first_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output.get(..SHOWN).unwrap_or(output));
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(|line| format!(": {line}")).unwrap_or_default()
}
