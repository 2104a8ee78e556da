//! Single values.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::Walk;
use crate::config::yaml::{Node, Value};
use crate::units::amount::Bytes;
use crate::units::duration::parse_go_duration;
use crate::units::quantity::Quantity;

impl Walk<'_> {
    /// Reads text, quoted or not.
    pub fn text<'n>(&mut self, field: &str, node: &'n Node, fix: &str) -> Option<&'n str> {
        if let Value::Scalar { text, .. } = &node.value {
            return Some(text);
        }
        let reason = format!("must be a plain value, not {}", node.value.kind());
        self.error(field, node, reason, fix);
        None
    }

    /// Reads one of the given names.
    pub fn choice<T: Clone>(&mut self, field: &str, node: &Node, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        let fix = format!("write {}", names.join(" or "));
        let text = self.text(field, node, &fix)?;
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, value)| value.clone());
        if found.is_none() {
            self.error(field, node, "not one of the choices", &fix);
        }
        found
    }

    /// Reads an amount of bytes above zero.
    pub fn bytes(&mut self, field: &str, node: &Node, example: &str) -> Option<Bytes> {
        let fix = format!("write e.g. {example}");
        let text = self.text(field, node, &fix)?;
        let quantity = match Quantity::parse(text) {
            Ok(quantity) => quantity,
            Err(error) => {
                self.error(field, node, error.to_string(), &fix);
                return None;
            }
        };
        match u64::try_from(quantity.value_bytes()) {
            Ok(bytes) if bytes > 0 => Some(Bytes(bytes)),
            _ => {
                self.error(field, node, "must be positive", &fix);
                None
            }
        }
    }

    /// Reads a duration that is not negative.
    pub fn duration(&mut self, field: &str, node: &Node, example: &str) -> Option<Duration> {
        let fix = format!("write e.g. {example}");
        let text = self.text(field, node, &fix)?;
        match parse_go_duration(text) {
            Ok(nanos) => {
                let duration = nanos.to_duration();
                if duration.is_none() {
                    self.error(field, node, "must not be negative", &fix);
                }
                duration
            }
            Err(error) => {
                self.error(field, node, error.to_string(), &fix);
                None
            }
        }
    }

    /// Reads a duration above zero.
    pub fn positive_duration(&mut self, field: &str, node: &Node, example: &str) -> Option<Duration> {
        let duration = self.duration(field, node, example)?;
        if duration.is_zero() {
            let fix = format!("write e.g. {example}");
            self.error(field, node, "must be longer than zero", &fix);
            return None;
        }
        Some(duration)
    }

    /// Reads a whole number, which must not stand in quotes.
    pub fn whole_number(&mut self, field: &str, node: &Node, range: RangeInclusive<i64>, example: &str) -> Option<i64> {
        let fix = format!("write e.g. {example}");
        let text = self.text(field, node, &fix)?;
        match text.parse::<i64>() {
            Ok(_) if is_quoted(node) => {
                self.error(field, node, "must be a number, not text", "remove the quotes");
                None
            }
            Ok(number) if range.contains(&number) => Some(number),
            _ => {
                let reason = format!("must be a whole number from {} to {}", range.start(), range.end());
                self.error(field, node, reason, &fix);
                None
            }
        }
    }

    /// Reads yes or no, in all the ways in which YAML says so; it must not stand in quotes.
    pub fn boolean(&mut self, field: &str, node: &Node) -> Option<bool> {
        const FIX: &str = "write true or false";
        let text = self.text(field, node, FIX)?;
        let is_any_of = |names: [&str; 4]| names.iter().any(|name| text.eq_ignore_ascii_case(name));
        let value = match (is_any_of(["true", "yes", "on", "y"]), is_any_of(["false", "no", "off", "n"])) {
            (true, _) => true,
            (_, true) => false,
            _ => {
                self.error(field, node, "must be true or false", FIX);
                return None;
            }
        };
        if is_quoted(node) {
            self.error(field, node, "must be true or false, not text", "remove the quotes");
            return None;
        }
        Some(value)
    }

    /// Reads a list, `what` of, without looking at what is in it.
    pub fn list<'n>(&mut self, field: &str, node: &'n Node, what: &str, fix: &str) -> &'n [Node] {
        if let Value::Sequence(items) = &node.value {
            return items;
        }
        self.error(field, node, format!("must be a list of {what}, not {}", node.value.kind()), fix);
        &[]
    }

    /// Reads an address and port to listen on.
    pub fn address(&mut self, field: &str, node: &Node) -> Option<SocketAddr> {
        const FIX: &str = "write e.g. 127.0.0.1:9946 or \"[::1]:9946\"";
        let text = self.text(field, node, FIX)?;
        let address = text.parse().ok();
        if address.is_none() {
            self.error(field, node, "must be an IP address and a port", FIX);
        }
        address
    }

    /// Reads an absolute path.
    pub fn path(&mut self, field: &str, node: &Node, example: &str) -> Option<PathBuf> {
        let fix = format!("write e.g. {example}");
        let text = self.text(field, node, &fix)?;
        if text.starts_with('/') {
            return Some(PathBuf::from(text));
        }
        self.error(field, node, "must be an absolute path", &fix);
        None
    }
}

fn is_quoted(node: &Node) -> bool {
    matches!(node.value, Value::Scalar { quoted: true, .. })
}
