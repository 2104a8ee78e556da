//! Times as the API writes them.

use jiff::Timestamp;

/// `metav1.Time`: whole seconds.
#[must_use]
pub fn words(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The wall clock's.
#[must_use]
pub fn now() -> String {
    words(Timestamp::now())
}

/// A time that the API wrote, if it is one.
#[must_use]
pub fn read(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}
