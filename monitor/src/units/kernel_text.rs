//! Text of the kernel. Names in it are bytes: of processes (cut at 15 bytes, also inside a character), cgroups, mount points and swap files.
//! Everything below `/proc` and cgroupfs is read through here, so that a name never makes its file unreadable.
//!
//! Bytes that are not UTF-8 are written as `mountinfo` writes special characters, by a backslash and three octal digits (`\377`). systemd
//! writes `\x2d`, so the names of units are unchanged.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// A backslash of the name itself, where `\` would read as the beginning of a byte.
const BACKSLASH: &str = "\\134";

/// Reads a file of the kernel. The bytes of a foreign name in it never fail the read.
///
/// # Errors
/// When the file cannot be opened or read.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    std::fs::read(path).map(text)
}

/// Returns the bytes as text, each that is not UTF-8 as `\377`.
pub fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        let mut text = String::with_capacity(error.as_bytes().len() + 16);
        push_valid(error.as_bytes(), |valid| text.push_str(valid.unwrap_or_else(|byte| byte)));
        text
    })
}

/// Passes the valid parts of `bytes`, and each other byte as an escape, as the error.
fn push_valid(bytes: &[u8], mut push: impl FnMut(Result<&str, &str>)) {
    let mut escape = String::with_capacity(4);
    for chunk in bytes.utf8_chunks() {
        push(Ok(chunk.valid()));
        for byte in chunk.invalid() {
            escape.clear();
            let _infallible = write!(escape, "\\{byte:03o}");
            push(Err(&escape));
        }
    }
}

/// Returns a file name or path as text. [`path`] gives its bytes back: two names never have the same text.
pub fn name(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(valid) if !valid.contains('\\') => Cow::Borrowed(valid),
        _ => {
            let mut text = String::with_capacity(bytes.len() + 16);
            push_valid(bytes, |part| match part {
                Ok(valid) => push_literal(&mut text, valid),
                Err(escape) => text.push_str(escape),
            });
            Cow::Owned(text)
        }
    }
}

fn push_literal(text: &mut String, valid: &str) {
    for (at, character) in valid.char_indices() {
        let rest = valid.get(at + 1..).filter(|_| character == '\\');
        if rest.is_some_and(is_ambiguous) {
            text.push_str(BACKSLASH);
        } else {
            text.push(character);
        }
    }
}

/// Returns whether a backslash before `rest` would read as an escape: of a byte, or of a backslash before one.
fn is_ambiguous(mut rest: &str) -> bool {
    while let Some(after) = rest.strip_prefix("134") {
        rest = after;
    }
    high_byte(rest.as_bytes()).is_some()
}

/// Parses the three octal digits of a byte above 127. No other byte can be invalid.
fn high_byte(digits: &[u8]) -> Option<u8> {
    let digits = digits.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok().filter(|byte| *byte >= 0x80)
}

/// Returns the path whose text is `name`, byte by byte.
pub fn path(name: &str) -> PathBuf {
    if !name.contains('\\') {
        return PathBuf::from(name);
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(name.len()), name);
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let literal = after.strip_prefix("134").filter(|following| is_ambiguous(following));
        match (literal, high_byte(after.as_bytes())) {
            (Some(following), _) => {
                bytes.push(b'\\');
                rest = following;
            }
            (None, Some(byte)) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            (None, None) => {
                bytes.push(b'\\');
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    PathBuf::from(OsString::from_vec(bytes))
}

/// Returns the text of a path for people and for machines.
pub fn of_path(path: &Path) -> Cow<'_, str> {
    name(path.as_os_str().as_bytes())
}

/// Returns the text of one name in a directory.
pub fn of_name(name_in_directory: &OsStr) -> Cow<'_, str> {
    name(name_in_directory.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_return_to_their_bytes_and_never_meet() {
        let names: [&[u8]; 14] = [
            b"system.slice/nginx.service",
            br"machine-qemu\x2d1\x2ddb.scope",
            br"foo\xc3\xa9.service",
            b"\xff",
            br"\377",
            br"\134377",
            br"\134134377",
            b"\\\xff",
            b"\\134\xff",
            b"a\xc3/b\xfe",
            "caf\u{e9}\u{fffd}".as_bytes(),
            br"\040\011\177",
            b"\\",
            b"",
        ];
        let mut shown: Vec<String> = names.iter().map(|bytes| name(bytes).into_owned()).collect();
        for (bytes, text) in names.iter().zip(&shown) {
            assert_eq!(path(text).as_os_str().as_bytes(), *bytes, "{text}");
        }
        assert_eq!(
            shown[..5],
            [
                "system.slice/nginx.service",
                r"machine-qemu\x2d1\x2ddb.scope",
                r"foo\xc3\xa9.service",
                r"\377",
                r"\134377"
            ]
        );
        shown.sort_unstable();
        shown.dedup();
        assert_eq!(shown.len(), names.len());
    }

    #[test]
    fn every_byte_and_every_pair_of_pieces_returns() {
        let pieces: Vec<Vec<u8>> = (0..=255_u8)
            .map(|byte| vec![byte])
            .chain([br"\".as_slice(), b"134", b"377", b"200", b"x5c", "é".as_bytes()].map(<[u8]>::to_vec))
            .collect();
        for (one, other) in pieces.iter().flat_map(|one| pieces.iter().map(move |other| (one, other))) {
            for whole in [[one.as_slice(), other].concat(), [br"\".as_slice(), one, other].concat()] {
                assert_eq!(path(&name(&whole)).as_os_str().as_bytes(), whole, "{whole:?}");
            }
        }
    }

    #[test]
    fn a_file_with_a_cut_character_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let status = directory.path().join("status");
        std::fs::write(&status, b"Name:\tpr\xc3\nUid:\t0\n").unwrap();
        assert_eq!(read(&status).unwrap(), "Name:\tpr\\303\nUid:\t0\n");
        assert!(read(directory.path().join("none")).is_err());
    }
}
