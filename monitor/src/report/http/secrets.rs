//! Secrets of HTTP clients: made at random, and compared in constant time.

use std::fmt::Write as _;
use std::mem::MaybeUninit;

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns 128 random bits in hexadecimal digits; `None` while the kernel has none.
pub(super) fn secret() -> Option<String> {
    let mut buffer = [MaybeUninit::uninit(); 16];
    let (random, missing) = getrandom(&mut buffer, GetRandomFlags::NONBLOCK).ok()?;
    if !missing.is_empty() {
        return None;
    }
    let mut text = String::new();
    for byte in random {
        write!(text, "{byte:02x}").ok()?;
    }
    Some(text)
}

/// Compares two tokens in a time that does not depend on where they differ.
pub(super) fn is_same(good: &str, given: &str) -> bool {
    let difference = good.bytes().zip(given.bytes()).fold(0, |difference, (a, b)| difference | (a ^ b));
    good.len() == given.len() && std::hint::black_box(difference) == 0
}
