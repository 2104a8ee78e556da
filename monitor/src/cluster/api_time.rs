//! Times as the API writes them: `metav1.Time`, in whole seconds.

use jiff::Timestamp;

#[must_use]
pub fn format(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[must_use]
pub fn now() -> String {
    format(Timestamp::now())
}

#[must_use]
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}
