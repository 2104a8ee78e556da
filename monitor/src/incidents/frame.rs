//! The journal's format: one record a line, `<length> <crc32> <json>`, both numbers as eight hexadecimal digits. The CRC-32 is that of
//! Ethernet, zip and `crc32(1)`.
//!
//! The JSON has no line breaks, so the next record begins after a line break even if this one is damaged: a flipped bit costs one record,
//! a crash in mid-write the last one. `cut -c19- FILE | jq` reads a journal without the agent.

use std::io::Write as _;

/// Two numbers, each with a space after it.
const HEADER: usize = 18;

/// Header and line break.
pub const OVERHEAD: usize = HEADER + 1;

/// Appends a record to `out`; `None` if the payload is too long for its length field or has a line break.
pub fn encode(payload: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let length = u32::try_from(payload.len()).ok().filter(|_| !payload.contains(&b'\n'))?;
    write!(out, "{length:08x} {:08x} ", crc32fast::hash(payload)).ok()?;
    out.extend_from_slice(payload);
    out.push(b'\n');
    Some(())
}

/// Decodes the record at the beginning of `bytes`. Returns its payload and the beginning of the next record.
fn record(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let header = bytes.get(..HEADER)?;
    let number = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let (length, crc) = (number(header.get(..8)?)?, number(header.get(9..17)?)?);
    if header[8] != b' ' || header[17] != b' ' {
        return None;
    }
    let end = HEADER.checked_add(usize::try_from(length).ok()?)?;
    let payload = bytes.get(HEADER..end)?;
    // A record without its line break is unfinished. A damaged line break does not cost the record.
    (bytes.len() > end && crc32fast::hash(payload) == crc).then_some((payload, end + 1))
}

/// Passes every record in `bytes` with its offset to `each`, in order.
pub fn scan<'a>(bytes: &'a [u8], mut each: impl FnMut(usize, &'a [u8])) -> Scanned {
    let mut scanned = Scanned::default();
    let mut in_damage = false;
    while let Some(rest) = bytes.get(scanned.end..).filter(|rest| !rest.is_empty()) {
        if let Some((payload, end)) = record(rest) {
            each(scanned.end, payload);
            scanned.end += end;
            in_damage = false;
        } else if let Some(line_break) = rest.iter().position(|byte| *byte == b'\n') {
            scanned.damaged += u64::from(!in_damage);
            scanned.end += line_break + 1;
            in_damage = true;
        } else {
            // The rest is being written, or a crash cut it off.
            break;
        }
    }
    scanned.unfinished = bytes.len() - scanned.end;
    scanned
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Scanned {
    /// Where the last record, or the damage after it, ends.
    pub end: usize,
    pub damaged: u64,
    /// Bytes of an unfinished record at the end.
    pub unfinished: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> (Vec<u8>, Vec<Vec<u8>>, Vec<usize>) {
        let payloads: Vec<Vec<u8>> =
            [&br#"{"id":"a"}"#[..], br#"{"id":"bb","x":[1,2,3]}"#, br#"{"id":"c"}"#].map(<[u8]>::to_vec).into();
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for payload in &payloads {
            encode(payload, &mut bytes).unwrap();
            ends.push(bytes.len());
        }
        (bytes, payloads, ends)
    }

    fn scanned(bytes: &[u8]) -> (Vec<Vec<u8>>, Scanned) {
        let mut found = Vec::new();
        let scanned = scan(bytes, |_, payload| found.push(payload.to_vec()));
        (found, scanned)
    }

    #[test]
    fn a_record_has_the_common_crc_32() {
        let mut bytes = Vec::new();
        encode(b"123456789", &mut bytes).unwrap();
        assert_eq!(bytes, b"00000009 cbf43926 123456789\n");
        assert_eq!(encode(b"two\nlines", &mut bytes), None);
    }

    #[test]
    fn a_cut_at_any_byte_keeps_the_records_before() {
        let (bytes, payloads, ends) = three();
        for length in 0..=bytes.len() {
            let (found, scanned) = scanned(&bytes[..length]);
            let whole = ends.iter().filter(|end| **end <= length).count() - 1;
            assert_eq!(found, payloads[..whole], "{length}");
            assert_eq!((scanned.end, scanned.damaged), (ends[whole], 0), "{length}");
            assert_eq!(scanned.unfinished, length - ends[whole], "{length}");
        }
    }

    #[test]
    fn a_flipped_bit_costs_at_most_one_record() {
        let (bytes, payloads, _) = three();
        let mut lost_one = 0;
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut broken = bytes.clone();
                broken[at] ^= 1 << bit;
                let (found, scanned) = scanned(&broken);
                assert!(found.iter().all(|payload| payloads.contains(payload)), "{at} {bit}: {found:?}");
                assert!(found.len() + 1 >= payloads.len(), "{at} {bit}: {found:?}");
                if found.len() < payloads.len() {
                    lost_one += 1;
                    assert!(scanned.damaged == 1 || scanned.unfinished > 0, "{at} {bit}: lost without a report");
                }
            }
        }
        assert!(lost_one > 8 * bytes.len() / 2, "{lost_one}");
    }

    #[test]
    fn other_bytes_yield_no_record() {
        for bytes in [&b"hello\n"[..], b"\n\n\n", &[0; 100], b"ffffffff 00000000 {}\n"] {
            assert_eq!(scanned(bytes).0, Vec::<Vec<u8>>::new());
        }
    }
}
