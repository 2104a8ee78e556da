//! Guesses the quantity that a wrong text stands for, and says so in a sentence.

use std::fmt;

use crate::units::{QuantityError, parse_go_duration};

/// The units of other programs, the suffix of Kubernetes with binary steps, and that with decimal steps.
const UNITS: [(&[&str], &str, &str); 4] = [
    (&["kb", "kib", "ki", "k"], "Ki", "k"),
    (&["mb", "mib", "mi"], "Mi", "M"),
    (&["gb", "gib", "gi", "g"], "Gi", "G"),
    (&["tb", "tib", "ti", "t"], "Ti", "T"),
];

/// The most probable meaning of a wrong text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meant {
    pub text: String,
    /// Another possible meaning.
    pub assumption: Option<String>,
}

/// Returns the reason against a text that is no quantity and the fix. The kubelet's own words are the reason where the mistake is not known.
pub fn explain(text: &str, error: &QuantityError, otherwise: &str) -> (String, String) {
    known(text).unwrap_or_else(|| (error.to_string(), otherwise.to_owned()))
}

fn known(text: &str) -> Option<(String, String)> {
    let amount = without_sign(text);
    if amount.len() < text.len() {
        let reason = "the sign is no part of the value: a threshold is always `less than`".to_owned();
        let fix = corrected(amount).map_or_else(|| amount.to_owned(), |corrected| corrected.to_string());
        return Some((reason, format!("write {fix}")));
    }
    let reason = if text.contains(',') {
        "a comma is no decimal point".to_owned()
    } else if text.trim().contains(' ') {
        "a blank is between the number and its unit".to_owned()
    } else {
        let (_, unit) = split(text)?;
        format!("{unit} is no unit of Kubernetes")
    };
    Some((reason, format!("write {}", corrected(text)?)))
}

/// Returns what a text that is no quantity and no percentage most probably means.
pub fn meant(text: &str) -> Option<Meant> {
    let amount = without_sign(text);
    let corrected = corrected(amount)?;
    // The comma of `1,024` can separate thousands or decimals.
    let is_thousand = amount
        .split_once(',')
        .is_some_and(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count() == 3 || rest.contains(','));
    let assumption =
        corrected.decimal.map(|decimal| format!("steps of 1024 are assumed; in steps of 1000 it is {decimal}"));
    (!is_thousand).then_some(Meant { text: corrected.text, assumption })
}

/// Returns the duration that a text without a unit of Go most probably means.
pub fn meant_duration(text: &str) -> Option<Meant> {
    let plain: String = text.chars().filter(|it| !it.is_whitespace()).collect();
    let (number, unit) = split(&plain)?;
    let meant = match unit {
        "" if number.bytes().all(|it| it.is_ascii_digit()) => {
            let assumption = Some("seconds are assumed".to_owned());
            return Some(Meant { text: format!("{number}s"), assumption });
        }
        "sec" | "secs" | "second" | "seconds" | "S" => "s",
        "min" | "mins" | "minute" | "minutes" => "m",
        "hr" | "hrs" | "hour" | "hours" | "H" => "h",
        "msec" | "millis" | "milliseconds" => "ms",
        "d" | "day" | "days" => {
            let hours = number.parse::<u32>().ok()?.checked_mul(24)?;
            return Some(Meant { text: format!("{hours}h"), assumption: None });
        }
        _ if plain.len() < text.len() && parse_go_duration(&plain).is_ok() => {
            return Some(Meant { text: plain, assumption: None });
        }
        _ => return None,
    };
    Some(Meant { text: format!("{number}{meant}"), assumption: None })
}

fn without_sign(text: &str) -> &str {
    text.trim_start_matches(['<', '=', ' '])
}

/// Splits a text into a number with digits and the unit.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.contains(|it: char| it.is_ascii_digit()) && number.matches('.').count() <= 1)
        .then_some((number, unit.trim()))
}

/// A possible meaning of a text, as Kubernetes writes it.
#[derive(Debug)]
struct Corrected {
    text: String,
    /// The amount in steps of 1000, where the unit may mean both.
    decimal: Option<String>,
}

impl fmt::Display for Corrected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.decimal {
            Some(decimal) => write!(f, "{} (steps of 1024) or {decimal} (steps of 1000)", self.text),
            None => f.write_str(&self.text),
        }
    }
}

fn corrected(text: &str) -> Option<Corrected> {
    let certain = |text: String| Some(Corrected { text, decimal: None });
    let text = text.trim().replace(',', ".");
    let (number, unit) = split(&text)?;
    if unit.is_empty() || unit == "%" {
        return certain(format!("{number}{unit}"));
    }
    let lower = unit.to_ascii_lowercase();
    if ["b", "byte", "bytes"].contains(&lower.as_str()) {
        return certain(number.to_owned());
    }
    let (names, binary, decimal) = UNITS.iter().find(|(names, ..)| names.contains(&lower.as_str()))?;
    // `MiB` and a correct suffix leave no doubt.
    let is_certain = lower.contains('i') || unit == *decimal && names.contains(&lower.as_str());
    match is_certain {
        true if unit == *decimal => certain(format!("{number}{decimal}")),
        true => certain(format!("{number}{binary}")),
        false => Some(Corrected { text: format!("{number}{binary}"), decimal: Some(format!("{number}{decimal}")) }),
    }
}

#[cfg(test)]
mod tests {
    use crate::units::Quantity;

    use super::*;

    #[test]
    fn each_mistake_has_its_sentence() {
        for (text, reason, fix) in [
            ("100MB", "MB is no unit of Kubernetes", "write 100Mi (steps of 1024) or 100M (steps of 1000)"),
            ("100mb", "mb is no unit of Kubernetes", "write 100Mi (steps of 1024) or 100M (steps of 1000)"),
            ("100MiB", "MiB is no unit of Kubernetes", "write 100Mi"),
            ("100mi", "mi is no unit of Kubernetes", "write 100Mi"),
            ("4K", "K is no unit of Kubernetes", "write 4Ki (steps of 1024) or 4k (steps of 1000)"),
            ("1.5GB", "GB is no unit of Kubernetes", "write 1.5Gi (steps of 1024) or 1.5G (steps of 1000)"),
            ("500B", "B is no unit of Kubernetes", "write 500"),
            ("1,5Gi", "a comma is no decimal point", "write 1.5Gi"),
            ("1,5", "a comma is no decimal point", "write 1.5"),
            ("100 Mi", "a blank is between the number and its unit", "write 100Mi"),
            ("10 %", "a blank is between the number and its unit", "write 10%"),
            ("<100Mi", "the sign is no part of the value: a threshold is always `less than`", "write 100Mi"),
            ("100Mx", "unable to parse", "otherwise"),
            ("soon", "quantities must match", "otherwise"),
            ("", "quantities must match", "otherwise"),
        ] {
            let error = Quantity::parse(text).unwrap_err();
            let (found, way) = explain(text, &error, "otherwise");
            assert!(found.starts_with(reason) || reason.starts_with("unable"), "{text}: {found}");
            assert_eq!(way, fix, "{text}");
        }
    }
}
