use super::{Quantity, QuantityError};
use crate::units::{Amount, Bytes};
use std::cmp::Ordering;

/// The text, its whole units, what Kubernetes prints, and the canonical form where it differs.
#[test]
fn values_and_texts_equal_those_of_kubernetes() {
    for (text, value, printed, canonical) in [
        ("0", 0, "0", ""),
        ("-0", 0, "0", ""),
        ("00", 0, "0", ""),
        ("100Mi", 100 << 20, "100Mi", ""),
        ("0.5Gi", 512 << 20, "512Mi", ""),
        ("1.5Gi", 1536 << 20, "1536Mi", ""),
        ("1024Ki", 1 << 20, "1Mi", ""),
        ("+256Pi", 256 << 50, "256Pi", ""),
        ("512", 512, "512", ""),
        ("0.5Ki", 512, "512", ""),
        (".5Ki", 512, "512", ""),
        ("0.1Ki", 103, "102400m", ""),
        ("1000Ki", 1_024_000, "1000Ki", ""),
        ("1.1Ki", 1127, "1126400m", ""),
        ("1.1Mi", 1_153_434, "1153433600m", ""),
        ("1000M", 1_000_000_000, "1G", ""),
        ("1.5", 2, "1500m", ""),
        ("1.5e-20", 1, "1e-9", ""),
        ("1.0000000001", 2, "1000000001n", ""),
        ("10.0000000001", 11, "10000000001n", ""),
        ("0.00000000001", 1, "1n", ""),
        ("1.000", 1, "1", ""),
        ("12e-1", 2, "1200e-3", ""),
        ("12e4", 120_000, "120e3", ""),
        ("123e-2", 2, "1230e-3", ""),
        ("1e1", 10, "10", ""),
        ("1e+2", 100, "100", ""),
        ("100m", 1, "100m", ""),
        (".5", 1, "500m", ""),
        ("-100Mi", -(100 << 20), "-100Mi", ""),
        ("-1.5", -2, "-1500m", ""),
        ("-2048", -2048, "-2048", ""),
        // Printed as written: the power of ten is a multiple of three, and the digits neither start with 0 nor end in 000.
        ("007", 7, "007", "7"),
        ("+5", 5, "+5", "5"),
        ("5.", 5, "5.", "5"),
        ("472.", 472, "472.", "472"),
        ("1E", 1_000_000_000_000_000_000, "1E", ""),
        ("1e0", 1, "1e0", "1"),
        ("1e3", 1000, "1e3", ""),
        ("1E3", 1000, "1E3", "1e3"),
        ("1e+3", 1000, "1e+3", "1e3"),
        ("1E9", 1_000_000_000, "1E9", "1e9"),
        ("1.500", 2, "1.500", "1500m"),
        ("1.500k", 1500, "1.500k", "1500"),
        ("00140165T", 140_165_000_000_000_000, "00140165T", "140165T"),
        ("2000n", 1, "2u", ""),
        ("0100.0", 100, "100", ""),
        // Binary suffixes: a number that is not a multiple of eight.
        ("1023Ki", 1023 << 10, "1023Ki", ""),
        ("1025Ki", 1025 << 10, "1025Ki", ""),
        ("003Mi", 3 << 20, "003Mi", "3Mi"),
        ("3.Ki", 3 << 10, "3.Ki", "3Ki"),
        ("+3Ki", 3 << 10, "+3Ki", "3Ki"),
        ("008Ki", 8 << 10, "8Ki", ""),
        ("12345678901Ki", 12_345_678_901 << 10, "12345678901Ki", ""),
        ("012345678902Ki", 12_345_678_902 << 10, "012345678902Ki", "12345678902Ki"),
        ("01234567890123Ki", 1_264_197_519_485_952, "1234567890123Ki", ""),
        ("03Pi", 3 << 50, "3Pi", ""),
        ("1n", 1, "1n", ""),
        // Less than a billionth is rounded up to one.
        ("0.1n", 1, "1n", ""),
        ("1e-15", 1, "1e-9", ""),
        ("1e-64", 1, "1e-9", ""),
        ("-1e-15", -1, "-1e-9", ""),
        ("-0.0000000001", -1, "-1n", ""),
        ("0.0000000010000000000000000000000000000000000000001", 1, "2n", ""),
        ("0.0000000001Ki", 1, "103n", ""),
        ("0.00048828125Ki", 1, "500m", ""),
        ("0.1000000000000000055511151231257827021181583404541015625Gi", 107_374_183, "107374182400000006n", ""),
        // Malformed texts that Kubernetes takes for zero.
        (".", 0, "0", ""),
        ("-.", 0, "0", ""),
        ("+", 0, "0", ""),
        ("-", 0, "0", ""),
        ("Ki", 0, "0", ""),
        ("Ti", 0, "0", ""),
        ("m", 0, "0", ""),
        ("E", 0, "0", ""),
        ("e3", 0, "0", ""),
        ("0Pi", 0, "0", ""),
        (".0Pi", 0, "0", ""),
        // Beyond 64 bits binary amounts saturate. Decimal amounts stay exact, and only their whole units saturate.
        ("9Ei", i64::MAX, "9223372036854775807", ""),
        ("7.9999999999999999999Ei", i64::MAX, "9223372036854775807", ""),
        ("99999999999999999999999999999999999999999Ki", i64::MAX, "9223372036854775807", ""),
        ("59E", i64::MAX, "59E", ""),
        ("+59E", i64::MAX, "+59E", "59E"),
        ("1e30", i64::MAX, "1e30", ""),
        ("10e64", i64::MAX, "100e63", ""),
        ("-1e30", i64::MIN, "-1e30", ""),
        // No suffix exists.
        ("1000E", i64::MAX, "1", "1e21"),
    ] {
        let quantity = Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(quantity.value_bytes(), value, "{text}");
        assert_eq!(quantity.to_string(), printed, "{text}");
        let canonical = if canonical.is_empty() { printed } else { canonical };
        assert_eq!(quantity.canonical(), canonical, "{text}");
        let again = Quantity::parse(canonical).unwrap();
        assert_eq!(again, quantity, "{text} printed and read again");
    }
}

#[test]
fn bytes_print_with_binary_suffixes() {
    for (units, bytes, counted) in [
        (0, "0", "0"),
        (1, "1", "1"),
        (500, "500", "500"),
        (1000, "1k", "1k"),
        (1023, "1023", "1023"),
        (1024, "1Ki", "1024"),
        (1025, "1025", "1025"),
        (2000, "2000", "2k"),
        (2048, "2Ki", "2048"),
        (1_048_576, "1Mi", "1048576"),
        (1_048_577, "1048577", "1048577"),
        (1_073_741_823, "1073741823", "1073741823"),
        (-1, "-1", "-1"),
        (-2048, "-2Ki", "-2048"),
        (i64::MAX, "9223372036854775807", "9223372036854775807"),
        (i64::MIN, "-8Ei", "-9223372036854775808"),
    ] {
        assert_eq!(Quantity::from_units(units, true).to_string(), bytes);
        assert_eq!(Quantity::from_units(units, false).to_string(), counted);
        assert_eq!(Quantity::from_units(units, true).value_bytes(), units);
    }
    assert_eq!(Quantity::binary(Bytes(1 << 63)).to_string(), "8Ei");
    assert_eq!(Quantity::from_amount(Amount::from_billionths(-1_500_000_000), false).to_string(), "-1500m");
    assert!(Quantity::from_amount(Amount::from_billionths(i128::MAX), true) > Quantity::parse("1e25").unwrap());
}

#[test]
fn a_sum_has_the_suffixes_of_the_first_nonzero() {
    let quantity = |text: &str| Quantity::parse(text).unwrap();
    for (a, b, sum) in [
        ("1", "1Gi", "1073741825"),
        ("0", "1Mi", "1Mi"),
        ("0Ki", "5", "5"),
        ("0", "0Ki", "0"),
        ("100m", "1Gi", "1073741824100m"),
        ("8E", "8E", "16E"),
        ("9Ei", "1", "8Ei"),
        ("007", "0", "7"),
        ("1Gi", "512Mi", "1536Mi"),
        ("1Gi", "-1Gi", "0"),
        ("1Mi", "-2Mi", "-1Mi"),
        ("1e3", "1", "1001"),
        ("1e64", "-1e64", "0"),
        // More digits than fit are rounded away from zero.
        ("99999999999999999999999999999999999999", "1m", "100000000000000000000000000000000000010"),
        ("1e64", "1n", "10000000000000000000000000000000000001e27"),
        ("0", "1e64", "10e63"),
    ] {
        assert_eq!(quantity(a).sum(&quantity(b)).canonical(), sum, "{a} + {b}");
    }
    // Half a byte has decimal suffixes.
    assert_eq!(quantity("0.0001Ki").sum(&quantity("1Mi")).to_string(), "1048576102400u");
    let total = |texts: &[&str]| texts.iter().map(|text| quantity(text)).collect::<Vec<_>>().iter().sum::<Quantity>();
    assert_eq!(total(&[]).to_string(), "0");
    assert_eq!(total(&["1E3"]).to_string(), "1E3");
    assert_eq!(total(&["1E3", "0"]).to_string(), "1e3");
    assert_eq!(total(&["0", "0Ki", "1024"]).to_string(), "1024");
    assert_eq!(Quantity::default().sum(&quantity("1Ki")).to_string(), "1Ki");
}

#[test]
fn json_may_be_text_or_number() {
    let read = |json: &str| serde_json::from_str::<Quantity>(json).map(|quantity| quantity.to_string());
    for (json, printed) in [
        ("\" 007 \"", "007"),
        ("5", "5"),
        ("-5", "-5"),
        ("1.5", "1500m"),
        ("18446744073709551615", "18446744073709551615"),
    ] {
        assert_eq!(read(json).unwrap(), printed, "{json}");
    }
    for json in ["\"\"", "\"1Q\"", "true", "{}", "1e300", "null"] {
        assert!(read(json).is_err(), "{json}");
    }
    // A null in a list of resources is zero, as in the whole API.
    assert_eq!(serde_json::from_str::<Option<Quantity>>("null").unwrap().unwrap_or_default(), Quantity::default());
}

#[test]
fn refused_texts() {
    use QuantityError::{Digits, Exponent, Format, Numeric, Suffix};
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
        ("e", Suffix),
        ("1Eie5", Suffix),
        ("1KiB", Format),
        ("1e6Mi", Format),
        ("1_0", Format),
        ("\u{ff11}", Format),
        // No digits where Kubernetes parses a number.
        ("Pi", Numeric),
        ("-Pi", Numeric),
        (".Pi", Numeric),
        ("Ei", Numeric),
        ("e-10", Numeric),
        ("1e65", Exponent),
        ("100e64", Exponent),
        ("1e9999999999", Exponent),
        ("1e-9999999999", Exponent),
        ("0e9999999999", Exponent),
        ("1e99999999999999999999999999999", Exponent),
        ("123456789012345678901234567890123456789", Digits),
        ("12345678901234567890123456789012345678.5", Digits),
    ] {
        assert_eq!(Quantity::parse(text).err(), Some(expected), "{text:?}");
    }
}

#[test]
fn a_long_text_is_refused_quickly() {
    let nines = "9".repeat(1 << 20);
    assert_eq!(Quantity::parse(&nines).err(), Some(QuantityError::Digits));
    let small = format!("0.{}1", "0".repeat(1 << 20));
    // Leading zeros are not significant, so this is valid: less than a billionth.
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

/// Trailing zeros are not significant, however many there are. Each printed quantity can be parsed again.
#[test]
fn the_largest_quantities_parse_back() {
    let digits = "12345678901234567890123456789012345678";
    for text in [
        digits.to_owned(),
        format!("{}.8", &digits[1..]),
        format!("{digits}e-1"),
        format!("1{}", "0".repeat(60)),
        "1e64".to_owned(),
        "10e64".to_owned(),
    ] {
        let quantity = Quantity::parse(&text).unwrap();
        assert_eq!(Quantity::parse(&quantity.canonical()), Ok(quantity), "{text}");
    }
    for (text, error) in [
        (format!("{digits}9"), QuantityError::Digits),
        (format!("{}.00000000001", &digits[..30]), QuantityError::Digits),
        (format!("1{}", "0".repeat(66)), QuantityError::Exponent),
        ("100e64".to_owned(), QuantityError::Exponent),
        ("1e65".to_owned(), QuantityError::Exponent),
    ] {
        assert_eq!(Quantity::parse(&text), Err(error), "{text}");
    }
}
