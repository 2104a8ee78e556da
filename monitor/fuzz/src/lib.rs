//! Properties that hold for any content of a file or an API's answer. Run by libFuzzer (`cargo xtask fuzz`) over
//! everything that it can think of, and by `cargo test` (`tests/fuzz_seeds.rs` includes this file) over the committed seeds.
//!
//! A claim is an assertion, a hang is libFuzzer's time limit. Each says what a reader of its text relies on.

mod configuration;
mod documents;
mod numbers;

/// A target: its name, which is also that of its program and of its directory of seeds, and what it claims.
type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 9] = [
    ("quantity", |data| on_text(data, numbers::quantity)),
    ("duration", |data| on_text(data, numbers::duration)),
    ("threshold", |data| on_text(data, numbers::threshold)),
    // One door for the three kinds of file: what differs is where the search starts.
    ("config_monitor", |data| on_text(data, configuration::file)),
    ("config_kubelet", |data| on_text(data, configuration::file)),
    ("config_openshift3", |data| on_text(data, configuration::file)),
    ("summary_json", documents::summary),
    ("pod_json", documents::pod),
    ("pass", |data| on_text(data, documents::trace)),
];

/// Checks the claims of one target.
pub fn run(target: &str, data: &[u8]) {
    let check = TARGETS.iter().find(|(name, _)| *name == target).map(|(_, check)| check);
    assert!(check.is_some(), "there is no target {target}");
    if let Some(check) = check {
        check(data);
    }
}

/// Texts reach these parsers as text: what is not UTF-8 is refused before.
fn on_text(data: &[u8], check: fn(&str)) {
    if let Ok(text) = std::str::from_utf8(data) {
        check(text);
    }
}
