//! A threshold that is not configured: when it would be crossed, and the pods that it would evict.

use node_pressure_state::{SignalState, State};

use crate::text;

/// The threshold as typed: a number of the signal's unit, or a share of its capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub text: String,
    amount: Amount,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Amount {
    Number(f64),
    Share(f64),
}

const SUFFIXES: [(&str, f64); 10] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("k", 1e3),
    ("K", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("%", 0.01),
];

impl Asked {
    /// Reads a threshold such as `500Mi` or `10%`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no threshold; write for example 500Mi or 10%");
        let suffix = SUFFIXES.iter().find(|(suffix, _)| text.ends_with(suffix));
        let (digits, factor) = match suffix {
            Some((suffix, factor)) => (text.strip_suffix(suffix).unwrap_or(text), *factor),
            None => (text, 1.0),
        };
        let is_number = digits.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
        let number: f64 = digits.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
        let is_share = text.ends_with('%');
        if is_share && number > 100.0 {
            return Err(format!("{text} is more than all; write a share up to 100%"));
        }
        let amount = if is_share { Amount::Share(number * factor) } else { Amount::Number(number * factor) };
        Ok(Self { text: text.to_owned(), amount })
    }
}

/// The answer for one signal at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf {
    /// In the signal's unit.
    pub value: f64,
    pub sentence: String,
}

impl WhatIf {
    /// Returns the threshold in the signal's unit; `None` if the capacity is not known for a share.
    #[must_use]
    pub fn value(asked: &Asked, signal: &SignalState) -> Option<f64> {
        match asked.amount {
            Amount::Number(number) => Some(number),
            Amount::Share(share) => Some(share * text::float(signal.capacity?)),
        }
    }

    /// Returns `None` if the signal is not observed, or its capacity is not known for a share.
    #[must_use]
    pub fn of(asked: &Asked, state: &State, signal: &SignalState) -> Option<Self> {
        let value = Self::value(asked, signal)?;
        let left = text::float(signal.available?) - value;
        let when = match signal.per_second {
            _ if left < 0.0 => "is met now".to_owned(),
            Some(rate) if rate < 0.0 && left / -rate <= 3600.0 => {
                format!("would be met in {}", text::wait(left / -rate))
            }
            Some(rate) if rate < 0.0 => "would not be met within an hour".to_owned(),
            _ => format!("is not approached; {} are left", distance(left, &signal.unit)),
        };
        let then = match state.ranking(&signal.signal) {
            None => "what would be evicted is not known".to_owned(),
            Some(ranking) => match (&ranking.next, &ranking.none_because) {
                (Some(next), _) => {
                    let place = ranking.places.iter().find(|place| place.workload == *next);
                    format!("{} would be evicted", place.map_or(&**next, |place| &place.display))
                }
                (None, Some(reason)) => format!("nothing would be evicted: {reason}"),
                (None, None) => "nothing would be evicted".to_owned(),
            },
        };
        Some(Self { value, sentence: format!("{}<{} {when}; {then}", signal.signal, asked.text) })
    }
}

fn distance(left: f64, unit: &str) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and for display")]
    let left = left as u64;
    text::amount(left, unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_pressure_state::{Place, Ranking};

    #[test]
    fn thresholds_are_read_as_in_the_configuration() {
        for (text, amount) in [
            ("500Mi", Some(Amount::Number(524_288_000.0))),
            ("1.5Gi", Some(Amount::Number(1_610_612_736.0))),
            ("10%", Some(Amount::Share(0.1))),
            ("1000", Some(Amount::Number(1000.0))),
            ("100Mj", None),
            ("-5Mi", None),
            ("101%", None),
            ("inf", None),
            ("", None),
        ] {
            assert_eq!(Asked::parse(text).ok().map(|asked| asked.amount), amount, "{text}");
        }
    }

    #[test]
    fn the_answer_says_when_and_what() {
        let place = Place { workload: "/a".to_owned(), display: "batch/report".to_owned(), ..Place::default() };
        let ranking = Ranking {
            signal: "memory.available".to_owned(),
            places: vec![place],
            next: Some("/a".to_owned()),
            none_because: None,
        };
        let state = State { rankings: vec![ranking], ..State::default() };
        for (typed, available, rate, when) in [
            ("10%", 300, Some(-4.0), "would be met in 50 s"),
            ("10%", 50, Some(-4.0), "is met now"),
            ("100", 1000, Some(1.0), "is not approached; 900 are left"),
            ("100", 1_000_000, Some(-1.0), "would not be met within an hour"),
        ] {
            let signal = SignalState {
                signal: "memory.available".to_owned(),
                unit: "inodes".to_owned(),
                available: Some(available),
                capacity: Some(1000),
                per_second: rate,
                ..SignalState::default()
            };
            let answer = WhatIf::of(&Asked::parse(typed).unwrap(), &state, &signal).unwrap();
            assert_eq!(answer.sentence, format!("memory.available<{typed} {when}; batch/report would be evicted"));
        }
        assert_eq!(WhatIf::of(&Asked::parse("1").unwrap(), &state, &SignalState::default()), None);
    }
}
