//! Times as the API writes them: `metav1.Time`, in whole seconds.

use jiff::Timestamp;

pub fn format(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub fn now() -> String {
    format(Timestamp::now())
}

pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}
