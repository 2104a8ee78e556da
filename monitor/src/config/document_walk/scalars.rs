//! Readers of single values. Each returns `None` after recording an error.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::{Change, Field, Shape, Walk};
use crate::config::amount_mistakes;
use crate::config::yaml::{Node, Value};
use crate::units::{Bytes, Quantity, parse_go_duration};

impl Walk<'_> {
    pub fn text<'n>(&mut self, field: &Field<'n>, fix: &str) -> Option<&'n str> {
        self.describe(field, || Shape::Text);
        if let Value::Scalar { text, .. } = &field.node.value {
            return Some(text);
        }
        self.error(field, format!("must be a plain value, not {}", field.node.value.kind()), fix);
        None
    }

    pub fn choice<T: Clone>(&mut self, field: &Field<'_>, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        let fix = format!("write {}", names.join(" or "));
        self.describe(field, || Shape::Choice(names.iter().map(|name| (*name).to_owned()).collect()));
        let text = self.text(field, &fix)?;
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| value.clone());
        if found.is_none() {
            self.error(field, "not one of the choices", &fix);
            // Another spelling of the same word. A word that is only similar may be meant otherwise.
            if let Some(meant) = names.iter().find(|name| name.eq_ignore_ascii_case(text)) {
                self.mend_text(field, text, (*meant).to_owned(), None);
            }
        }
        found
    }

    /// Reads text that `parse` accepts. The error's fix repeats `example`.
    fn parsed<T>(
        &mut self,
        field: &Field<'_>,
        example: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let fix = format!("write e.g. {example}");
        let parsed = parse(self.text(field, &fix)?);
        parsed.map_err(|reason| self.error(field, reason, &fix)).ok()
    }

    pub fn bytes(&mut self, field: &Field<'_>, example: &str) -> Option<Bytes> {
        self.describe(field, || Shape::Bytes);
        let found = self.parsed(field, example, |text| {
            let quantity = Quantity::parse(text).map_err(|error| error.to_string())?;
            let bytes = u64::try_from(quantity.value_bytes()).ok().filter(|bytes| *bytes > 0);
            bytes.map(Bytes).ok_or_else(|| "must be positive".to_owned())
        });
        if found.is_none() {
            let text = field.node.text().unwrap_or_default();
            let meant = amount_mistakes::meant(text).filter(|meant| Quantity::parse(&meant.text).is_ok());
            if let Some(meant) = meant {
                self.mend_text(field, text, meant.text, meant.assumption);
            }
        }
        found
    }

    pub fn duration(&mut self, field: &Field<'_>, example: &str) -> Option<Duration> {
        self.describe(field, || Shape::Duration);
        let found = self.parsed(field, example, duration);
        self.mend_duration(field, found.is_none());
        found
    }

    pub fn positive_duration(&mut self, field: &Field<'_>, example: &str) -> Option<Duration> {
        self.describe(field, || Shape::PositiveDuration);
        let found = self.parsed(field, example, |text| match duration(text)? {
            Duration::ZERO => Err("must be longer than zero".to_owned()),
            duration => Ok(duration),
        });
        self.mend_duration(field, found.is_none());
        found
    }

    fn mend_duration(&mut self, field: &Field<'_>, is_wrong: bool) {
        let text = field.node.text().unwrap_or_default();
        if let Some(meant) = amount_mistakes::meant_duration(text).filter(|_| is_wrong) {
            self.mend_text(field, text, meant.text, meant.assumption);
        }
    }

    /// Reads a whole number, which must not be quoted.
    pub fn whole_number<T: FromStr + PartialOrd + Display>(
        &mut self,
        field: &Field<'_>,
        range: RangeInclusive<T>,
        example: &str,
    ) -> Option<T> {
        let fix = format!("write e.g. {example}");
        self.describe(field, || Shape::WholeNumber(range.start().to_string(), range.end().to_string()));
        match self.text(field, &fix)?.parse::<T>() {
            Ok(_) if is_quoted(field.node) => {
                self.error(field, "must be a number, not text", "remove the quotes");
                self.unquote(field);
                None
            }
            Ok(number) if range.contains(&number) => Some(number),
            _ => {
                let reason = format!("must be a whole number from {} to {}", range.start(), range.end());
                self.error(field, reason, &fix);
                None
            }
        }
    }

    /// Reads a boolean in each of YAML 1.1's spellings, which must not be quoted.
    pub fn boolean(&mut self, field: &Field<'_>) -> Option<bool> {
        const FIX: &str = "write true or false";
        self.describe(field, || Shape::Boolean);
        let text = self.text(field, FIX)?;
        let is_any_of = |names: [&str; 4]| names.iter().any(|name| text.eq_ignore_ascii_case(name));
        let value = match (is_any_of(["true", "yes", "on", "y"]), is_any_of(["false", "no", "off", "n"])) {
            (true, _) => true,
            (_, true) => false,
            _ => {
                self.error(field, "must be true or false", FIX);
                return None;
            }
        };
        if is_quoted(field.node) {
            self.error(field, "must be true or false, not text", "remove the quotes");
            self.unquote(field);
            return None;
        }
        Some(value)
    }

    fn unquote(&mut self, field: &Field<'_>) {
        let text = field.node.text().unwrap_or_default().to_owned();
        self.mend(&field.path, field.node, Change::Unquote(text), None);
    }

    /// Reads a list of `what`, and returns its items unread.
    pub fn list<'n>(&mut self, field: &Field<'n>, what: &str, fix: &str) -> Vec<Field<'n>> {
        self.describe(field, || Shape::List);
        let Field { path, node } = field;
        let Value::Sequence(items) = &node.value else {
            self.error(field, format!("must be a list of {what}, not {}", node.value.kind()), fix);
            // A text with a blank may be several items.
            if let Some(text) = node.text().filter(|text| !text.contains(char::is_whitespace)) {
                self.mend(path, node, Change::List(text.to_owned()), None);
            }
            return Vec::new();
        };
        items.iter().enumerate().map(|(index, node)| Field { path: format!("{path}[{index}]"), node }).collect()
    }

    pub fn texts(&mut self, field: &Field<'_>, fix: &str) -> Vec<String> {
        let items = self.list(field, "texts", fix);
        items.iter().filter_map(|item| self.text(item, fix)).map(str::to_owned).collect()
    }

    /// Reads a percentage above 0% as a share of one.
    pub fn percentage(&mut self, field: &Field<'_>) -> Option<f64> {
        self.describe(field, || Shape::Percentage);
        self.parsed(field, "10%", |text| {
            let is_plain = |number: &&str| number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let percent = text.strip_suffix('%').filter(is_plain).and_then(|number| number.parse::<f64>().ok());
            let share = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0).map(|percent| percent / 100.0);
            share.ok_or_else(|| "must be a percentage of time, above 0% and up to 100%".to_owned())
        })
    }

    pub fn address(&mut self, field: &Field<'_>) -> Option<SocketAddr> {
        self.describe(field, || Shape::Address);
        self.parsed(field, "127.0.0.1:9946 or \"[::1]:9946\"", |text| {
            text.parse().map_err(|_| "must be an IP address and a port".to_owned())
        })
    }

    pub fn path(&mut self, field: &Field<'_>, example: &str) -> Option<PathBuf> {
        self.describe(field, || Shape::AbsolutePath);
        self.parsed(field, example, |text| {
            let path = PathBuf::from(text);
            if path.is_absolute() { Ok(path) } else { Err("must be an absolute path".to_owned()) }
        })
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let nanos = parse_go_duration(text).map_err(|error| error.to_string())?;
    nanos.to_duration().ok_or_else(|| "must not be negative".to_owned())
}

fn is_quoted(node: &Node) -> bool {
    matches!(node.value, Value::Scalar { quoted: true, .. })
}
