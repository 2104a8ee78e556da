//! Writes YAML in one fixed form: block style, sorted keys, texts of several lines as literal blocks.

use std::fmt::Write as _;

use serde_json::Value;

/// Returns a document.
#[must_use]
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    block(&mut text, value, 0);
    text
}

/// Writes a value that begins on a line of its own, at this depth.
fn block(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            for key in keys {
                indent(text, depth);
                let _ = write!(text, "{}:", scalar(key));
                after_key(text, &fields[key], depth);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                indent(text, depth);
                text.push('-');
                if is_nested(item) {
                    let mut inner = String::new();
                    block(&mut inner, item, depth + 1);
                    // The first line of the item stands behind the dash.
                    text.push(' ');
                    text.push_str(inner.trim_start_matches(' '));
                } else {
                    after_key(text, item, depth);
                }
            }
        }
        other => {
            indent(text, depth);
            text.push_str(&inline(other));
            text.push('\n');
        }
    }
}

fn after_key(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::String(lines) if is_literal(lines) => {
            text.push_str(if lines.ends_with('\n') { " |\n" } else { " |-\n" });
            for line in lines.lines() {
                if !line.is_empty() {
                    indent(text, depth + 1);
                }
                text.push_str(line);
                text.push('\n');
            }
        }
        value if is_nested(value) => {
            text.push('\n');
            block(text, value, depth + 1);
        }
        value => {
            let _ = writeln!(text, " {}", inline(value));
        }
    }
}

fn indent(text: &mut String, depth: usize) {
    text.push_str(&"  ".repeat(depth));
}

fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

/// Whether a text can be a literal block: several lines, without blanks that the form would lose.
fn is_literal(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.contains('\n')
        && !body.starts_with([' ', '\n'])
        && !body.ends_with('\n')
        && body.chars().all(|c| c == '\n' || !c.is_control())
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        // Numbers, truth values, null, and the empty collections.
        other => other.to_string(),
    }
}

/// Returns a text without quotes if it can only be read as that text, otherwise as JSON.
fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '@')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./@".contains(c))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_ascii_lowercase().as_str());
    // A plain text cannot begin with @; the marks of templates do, and are replaced before YAML is read.
    if is_plain { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::documents;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let value = json!({
            "a": {"b": [1, "2", true, "true", null, 1.5, {"x": "y: z", "w": ["v", ["u"]]}], "empty": {}, "none": []},
            "text": "one\n  two\n\nthree\n", "other": "one\ntwo", "odd": " x\ny", "blank": "", "brace": "{{ .x }}", "time": "5m", "kind": "No",
        });
        let written = write(&value);
        assert_eq!(documents::parse(&written).unwrap(), [value], "{written}");
        assert!(written.contains("text: |\n  one\n    two\n\n  three\n"), "{written}");
    }
}
