use super::{Quantity, QuantityError};
use std::cmp::Ordering;

#[test]
fn amounts_and_canonical_forms() {
    for (text, value, canonical) in [
        ("0", 0, "0"),
        ("-0", 0, "0"),
        ("100Mi", 100 << 20, "100Mi"),
        ("0.5Gi", 512 << 20, "512Mi"),
        ("1.5Gi", 1536 << 20, "1536Mi"),
        ("1024Ki", 1 << 20, "1Mi"),
        ("+256Pi", 256 << 50, "256Pi"),
        ("512", 512, "512"),
        ("0.5Ki", 512, "512"),
        ("1000Ki", 1_024_000, "1000Ki"),
        ("1.1Ki", 1127, "1126400m"),
        ("1000M", 1_000_000_000, "1G"),
        ("1E", 1_000_000_000_000_000_000, "1E"),
        ("1e3", 1000, "1e3"),
        ("1E9", 1_000_000_000, "1e9"),
        ("1e+2", 100, "100"),
        ("12e-1", 2, "1200e-3"),
        ("100m", 1, "100m"),
        (".5", 1, "500m"),
        ("1.500", 2, "1500m"),
        ("472.", 472, "472"),
        ("00140165T", 140_165_000_000_000_000, "140165T"),
        ("-100Mi", -(100 << 20), "-100Mi"),
        ("-1.5", -2, "-1500m"),
        ("1n", 1, "1n"),
        // Below a nano unit: up to one.
        ("0.1n", 1, "1n"),
        ("1e-15", 1, "1e-9"),
        ("1e-64", 1, "1e-9"),
        ("-1e-15", -1, "-1e-9"),
        // Loose texts that Kubernetes reads as zero.
        (".", 0, "0"),
        ("+", 0, "0"),
        ("Ki", 0, "0"),
        // Beyond 64 bits: binary amounts stop there, decimal ones stay exact and only their byte count stops.
        ("9Ei", i64::MAX, "9223372036854775807"),
        ("99999999999999999999999999999999999999999Ki", i64::MAX, "9223372036854775807"),
        ("59E", i64::MAX, "59E"),
        ("1e30", i64::MAX, "1e30"),
        ("1000E", i64::MAX, "1e21"),
        ("-1e30", i64::MIN, "-1e30"),
    ] {
        let quantity = Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(quantity.value_bytes(), value, "{text}");
        assert_eq!(quantity.to_string(), canonical, "{text}");
        let again = Quantity::parse(canonical).unwrap();
        assert_eq!(again, quantity, "{text} printed and read again");
    }
}

#[test]
fn refused_texts() {
    use QuantityError::{Digits, Exponent, Format, Suffix};
    for (text, expected) in [
        ("", Format),
        ("abc", Format),
        ("100Mx", Format),
        ("1.2.3", Format),
        (" 1", Format),
        ("1 ", Format),
        ("1 Gi", Format),
        ("--1", Suffix),
        ("0x10", Format),
        ("100MB", Format),
        ("1µ", Format),
        ("100Mb", Format),
        ("100mi", Suffix),
        ("100MM", Suffix),
        ("100K", Suffix),
        ("100KI", Format),
        ("1i", Suffix),
        ("1e", Suffix),
        ("1e-", Suffix),
        ("1ee3", Suffix),
        ("1Mi3", Suffix),
        ("1+3", Suffix),
        ("1e65", Exponent),
        ("1e9999999999", Exponent),
        ("1e-9999999999", Exponent),
        ("0e9999999999", Exponent),
        ("1e99999999999999999999999999999", Exponent),
        ("123456789012345678901234567890123456789", Digits),
        ("1.23456789012345678901234567890123456789Ei", Digits),
    ] {
        assert_eq!(Quantity::parse(text).err(), Some(expected), "{text:?}");
    }
}

#[test]
fn a_long_text_is_refused_quickly() {
    let nines = "9".repeat(1 << 20);
    assert_eq!(Quantity::parse(&nines).err(), Some(QuantityError::Digits));
    let small = format!("0.{}1", "0".repeat(1 << 20));
    // Leading zeros are not significant, so this is a number: less than a nano unit.
    assert_eq!(Quantity::parse(&small).unwrap().to_string(), "1n");
}

#[test]
fn comparison_is_exact() {
    let cmp = |a: &str, b: &str| Quantity::parse(a).unwrap().cmp(&Quantity::parse(b).unwrap());
    for (a, b, expected) in [
        ("1Ki", "1024", Ordering::Equal),
        ("1000m", "1", Ordering::Equal),
        ("100m", "0", Ordering::Greater),
        ("100m", "1", Ordering::Less),
        ("-1", "-2", Ordering::Greater),
        ("-1", "0", Ordering::Less),
        ("1e30", "1e31", Ordering::Less),
        ("1e64", "9999999999999999999999999999999999999", Ordering::Greater),
        ("9007199254740993", "9007199254740992", Ordering::Greater),
        ("12345678901234567890123456789012345678", "1.2345678901234567890123456789012345678e37", Ordering::Equal),
        ("1e64", "1n", Ordering::Greater),
    ] {
        assert_eq!(cmp(a, b), expected, "{a} and {b}");
        assert_eq!(cmp(b, a), expected.reverse(), "{b} and {a}");
    }
}
