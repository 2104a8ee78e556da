//! Layout of the summary: a label column with wrapped text beside it.

use crate::units::Bytes;

/// Maximum line width in columns.
pub(super) const WIDTH: usize = 100;
/// Start of the text column.
const INDENT: usize = 12;

#[derive(Default)]
pub(super) struct Page {
    pub(super) text: String,
    last: String,
}

impl Page {
    /// Adds a line. Omits the label if it repeats that of the previous line.
    pub(super) fn row(&mut self, label: &str, text: &str) {
        let shown = if self.last == label { "" } else { label };
        label.clone_into(&mut self.last);
        let line = format!("{shown:<INDENT$}{text}");
        let line = if line.chars().count() > WIDTH {
            let kept: String = line.chars().take(WIDTH - 1).collect();
            kept + "…"
        } else {
            line
        };
        // Cgroup names are untrusted: keep control characters out of the terminal.
        self.text.extend(line.trim_end().chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }));
        self.text.push('\n');
    }

    /// Adds a row for a large workload: the amount aligned with the sums, then the name.
    pub(super) fn largest(&mut self, label: &str, bytes: Bytes, name: &str) {
        let name = shortened(name, WIDTH - INDENT - 29);
        self.row(label, &format!("{:16}{bytes:>11}  {name}", ""));
    }

    /// Adds text wrapped between words. The first line is indented by `first` columns, further lines by `hang`.
    pub(super) fn wrapped(&mut self, label: &str, text: &str, first: usize, hang: usize) {
        let room = WIDTH - INDENT;
        let mut line = " ".repeat(first);
        for word in text.split(' ') {
            let length = line.chars().count() + 1 + word.chars().count();
            if length > room && !line.trim_start().is_empty() {
                self.row(label, &line);
                line = " ".repeat(hang);
                line.push_str(word);
            } else {
                if !line.trim_start().is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        self.row(label, &line);
    }
}

/// Truncates a path at the front: its end identifies the workload.
fn shortened(name: &str, room: usize) -> String {
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    let kept: String = name.chars().skip(length - (room - 1)).collect();
    format!("…{kept}")
}
