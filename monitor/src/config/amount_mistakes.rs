//! Guesses the quantity that a wrong text stands for, and says so in a sentence.

use crate::units::QuantityError;

/// The units of other programs, the suffix of Kubernetes with binary steps, and that with decimal steps.
const UNITS: [(&[&str], &str, &str); 4] = [
    (&["kb", "kib", "ki", "k"], "Ki", "k"),
    (&["mb", "mib", "mi"], "Mi", "M"),
    (&["gb", "gib", "gi", "g"], "Gi", "G"),
    (&["tb", "tib", "ti", "t"], "Ti", "T"),
];

/// Returns the reason against a text that is no quantity and the fix. The kubelet's own words are the reason where the mistake is not known.
pub fn explain(text: &str, error: &QuantityError, otherwise: &str) -> (String, String) {
    known(text).unwrap_or_else(|| (error.to_string(), otherwise.to_owned()))
}

fn known(text: &str) -> Option<(String, String)> {
    let amount = text.trim_start_matches(['<', '=', ' ']);
    if amount.len() < text.len() {
        let reason = "the sign is no part of the value: a threshold is always `less than`".to_owned();
        return Some((reason, format!("write {}", corrected(amount).unwrap_or_else(|| amount.to_owned()))));
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

/// Splits a text into a number with digits and the unit.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.contains(|it: char| it.is_ascii_digit()) && number.matches('.').count() <= 1)
        .then_some((number, unit.trim()))
}

/// Returns what the text may mean, as Kubernetes writes it.
fn corrected(text: &str) -> Option<String> {
    let text = text.trim().replace(',', ".");
    let (number, unit) = split(&text)?;
    if unit.is_empty() || unit == "%" {
        return Some(format!("{number}{unit}"));
    }
    let lower = unit.to_ascii_lowercase();
    if ["b", "byte", "bytes"].contains(&lower.as_str()) {
        return Some(number.to_owned());
    }
    let (names, binary, decimal) = UNITS.iter().find(|(names, ..)| names.contains(&lower.as_str()))?;
    // `MiB` and a correct suffix leave no doubt.
    let is_certain = lower.contains('i') || unit == *decimal && names.contains(&lower.as_str());
    Some(match is_certain {
        true if unit == *decimal => format!("{number}{decimal}"),
        true => format!("{number}{binary}"),
        false => format!("{number}{binary} (steps of 1024) or {number}{decimal} (steps of 1000)"),
    })
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
