//! Times as the API writes them: `metav1.Time`, in whole seconds.

use std::time::Duration;

use jiff::Timestamp;

pub fn format(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub fn now() -> String {
    format(Timestamp::now())
}

/// Returns the time as `metav1.MicroTime`.
pub fn format_in_micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Returns whether at least this long has passed since a time. A time in the future has not passed.
pub fn has_passed(since: Timestamp, span: Duration, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(since)).is_ok_and(|age| age >= span)
}
