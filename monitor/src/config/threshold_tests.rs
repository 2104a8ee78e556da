use super::*;

const MEMORY: Signal = Signal::MemoryAvailable;

fn value(text: &str) -> Result<Option<ThresholdValue>, String> {
    parse_threshold_value(MEMORY, text).map_err(|error| error.to_string())
}

#[test]
fn accepted_quantities() {
    for (text, bytes, printed) in [
        ("100Mi", 100 << 20, "100Mi"),
        ("1.5Gi", 1536 << 20, "1536Mi"),
        ("100M", 100_000_000, "100M"),
        ("1e3", 1000, "1k"),
        // Fractions round up: available < 0.5 exactly when available < 1.
        ("100m", 1, "1"),
        (".5", 1, "1"),
        ("+1Ki", 1024, "1Ki"),
        ("1025", 1025, "1025"),
        ("59E", i64::MAX as u64, "9223372036854775807"),
    ] {
        let parsed = value(text).unwrap().unwrap();
        assert_eq!(parsed, ThresholdValue::Quantity(Bytes(bytes)), "{text}");
        assert_eq!(parsed.to_string(), printed, "{text}");
    }
}

#[test]
fn exactly_zero_and_hundred_percent_switch_off() {
    for text in ["0%", "100%"] {
        assert_eq!(value(text), Ok(None), "{text}");
    }
    for (text, fraction) in [("0.0%", 0.0), ("-0%", 0.0), ("100.0%", 1.0), ("0%%", 0.0)] {
        assert_eq!(value(text), Ok(Some(ThresholdValue::Percentage(fraction))), "{text}");
    }
}

#[test]
fn accepted_percentages() {
    for (text, fraction, printed) in [
        ("10%", 10.0_f32 / 100.0, "10%"),
        ("15%", 15.0_f32 / 100.0, "15%"),
        ("5%%", 5.0_f32 / 100.0, "5%"),
        ("1e1%", 10.0_f32 / 100.0, "10%"),
        ("0x1p3%", 8.0_f32 / 100.0, "8%"),
        ("0.1%", 0.1_f32 / 100.0, "0.1%"),
        ("+7.25%", 7.25_f32 / 100.0, "7.25%"),
    ] {
        let parsed = value(text).unwrap().unwrap();
        assert_eq!(parsed, ThresholdValue::Percentage(fraction), "{text}");
        assert_eq!(parsed.to_string(), printed, "{text}");
    }
}

#[test]
fn refused_values_in_the_kubelets_words() {
    const REGULAR: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    for (text, message) in [
        ("-1%", "eviction percentage threshold memory.available must be >= 0%: -1%"),
        ("101%", "eviction percentage threshold memory.available must be <= 100%: 101%"),
        ("inf%", "eviction percentage threshold memory.available must be <= 100%: inf%"),
        ("-inf%", "eviction percentage threshold memory.available must be >= 0%: -inf%"),
        ("NaN%", "eviction percentage of memory.available must be a finite number: NaN%"),
        (" 5%", r#"strconv.ParseFloat: parsing " 5": invalid syntax"#),
        ("5 %", r#"strconv.ParseFloat: parsing "5 ": invalid syntax"#),
        ("%", r#"strconv.ParseFloat: parsing "": invalid syntax"#),
        ("abc%", r#"strconv.ParseFloat: parsing "abc": invalid syntax"#),
        ("1e39%", r#"strconv.ParseFloat: parsing "1e39": value out of range"#),
        ("0", "eviction threshold memory.available must be positive: 0"),
        ("-100Mi", "eviction threshold memory.available must be positive: -100Mi"),
        ("", REGULAR),
        ("abc", REGULAR),
        ("100Mx", REGULAR),
        ("5% ", REGULAR),
        ("100mi", "unable to parse quantity's suffix"),
    ] {
        assert_eq!(value(text), Err(message.to_owned()), "{text:?}");
    }
}

#[test]
fn grace_periods() {
    for (text, duration) in [
        ("30s", Duration::from_secs(30)),
        ("1m30s", Duration::from_secs(90)),
        ("100ms", Duration::from_millis(100)),
        ("0", Duration::ZERO),
        ("-0s", Duration::ZERO),
    ] {
        assert_eq!(parse_grace_period(text), Ok(duration), "{text}");
    }
    for (text, message) in [
        ("-30s", "invalid eviction grace period specified: -30s, must be a positive value"),
        ("30", r#"time: missing unit in duration "30""#),
        ("", r#"time: invalid duration """#),
        ("3d", r#"time: unknown unit "d" in duration "3d""#),
    ] {
        assert_eq!(parse_grace_period(text).unwrap_err().to_string(), message);
    }
}

#[test]
fn minimum_reclaims() {
    for (text, expected) in [
        ("0", ThresholdValue::Quantity(Bytes::ZERO)),
        ("500Mi", ThresholdValue::Quantity(Bytes(500 << 20))),
        ("10%", ThresholdValue::Percentage(0.1)),
        ("150%", ThresholdValue::Percentage(1.5)),
    ] {
        assert_eq!(parse_min_reclaim(MEMORY, text), Ok(expected), "{text}");
    }
    for (text, message) in [
        ("-1", "negative eviction minimum reclaim specified for memory.available"),
        ("0%", "eviction percentage minimum reclaim memory.available must be positive: 0%"),
        ("-1%", "eviction percentage minimum reclaim memory.available must be positive: -1%"),
        ("inf%", "eviction percentage of memory.available must be a finite number: inf%"),
        ("NaN%", "eviction percentage of memory.available must be a finite number: NaN%"),
        ("100MM", "unable to parse quantity's suffix"),
    ] {
        assert_eq!(parse_min_reclaim(MEMORY, text).unwrap_err().to_string(), message, "{text}");
    }
}

/// A computation in f64 alone would give …240.
#[test]
fn percentages_resolve_through_32_bits() {
    let ten = ThresholdValue::Percentage(10.0_f32 / 100.0);
    assert_eq!(ten.resolve(Bytes::from_gib(100)), Bytes(10_737_418_400));
    let five = ThresholdValue::Percentage(5.0_f32 / 100.0);
    assert_eq!(five.resolve(Bytes::from_gib(100)), Bytes(5_368_709_200));
    assert_eq!(ThresholdValue::Percentage(1.0).resolve(Bytes(77)), Bytes(77));
    assert_eq!(ThresholdValue::Quantity(Bytes(5)).resolve(Bytes(1)), Bytes(5));
}

#[test]
fn lists_go_together_hard_first() {
    let ten = ThresholdValue::Percentage(0.1);
    let hundred = ThresholdValue::Quantity(Bytes::from_mib(100));
    let mut lists = ThresholdLists {
        hard: vec![(Signal::NodeFsAvailable, ten), (MEMORY, hundred)],
        soft: vec![(MEMORY, ten)],
        ..ThresholdLists::default()
    };
    assert_eq!(
        lists.assemble().unwrap_err()[0].to_string(),
        "grace period must be specified for the soft eviction threshold memory.available"
    );
    lists.grace_periods.insert(MEMORY, Duration::from_secs(30));
    // A grace period without a soft threshold means nothing.
    lists.grace_periods.insert(Signal::PidAvailable, Duration::from_secs(1));
    lists.min_reclaims.insert(MEMORY, hundred);
    let thresholds = lists.assemble().unwrap();
    let shown: Vec<_> =
        thresholds.iter().map(|threshold| (threshold.to_string(), threshold.kind(), threshold.min_reclaim)).collect();
    assert_eq!(
        shown,
        [
            ("nodefs.available<10%".to_owned(), "hard", None),
            ("memory.available<100Mi".to_owned(), "hard", Some(hundred)),
            ("memory.available<10%".to_owned(), "soft", Some(hundred)),
        ]
    );
    // A soft threshold with no grace at all is a hard one, as in the kubelet.
    lists.grace_periods.insert(MEMORY, Duration::ZERO);
    assert_eq!(lists.assemble().unwrap()[2].kind(), "hard");
}
