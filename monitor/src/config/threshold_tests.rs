use super::*;
use crate::config::Semantics;

const MEMORY: Signal = Signal::MemoryAvailable;
/// All of them.
const KUBELET: Quirks = Quirks::ALL;

fn fraction_of(value: &Result<Option<ThresholdValue>, String>) -> Option<f32> {
    match value {
        Ok(Some(ThresholdValue::Percentage(percentage))) => Some(percentage.fraction),
        _ => None,
    }
}

fn value(text: &str) -> Result<Option<ThresholdValue>, String> {
    parse_threshold_value(MEMORY, text).map_err(|error| error.to_string())
}

#[test]
fn accepted_quantities() {
    for (text, bytes, printed) in [
        ("100Mi", 100 << 20, "100Mi"),
        ("1.5Gi", 1536 << 20, "1536Mi"),
        ("100M", 100_000_000, "100M"),
        ("1e3", 1000, "1e3"),
        ("100m", 1, "100m"),
        (".5", 1, "500m"),
        ("+1Ki", 1024, "1Ki"),
        ("1025", 1025, "1025"),
        ("59E", i64::MAX as u64, "59E"),
    ] {
        let parsed = value(text).unwrap().unwrap();
        assert_eq!(parsed.resolve(0, KUBELET).bytes(), Bytes(bytes), "{text}");
        assert_eq!(parsed.to_string(), printed, "{text}");
    }
}

#[test]
fn exactly_zero_and_hundred_percent_switch_off() {
    for text in ["0%", "100%"] {
        assert_eq!(value(text), Ok(None), "{text}");
    }
    for (text, fraction) in [("0.0%", 0.0), ("-0%", 0.0), ("100.0%", 1.0), ("0%%", 0.0)] {
        assert_eq!(fraction_of(&value(text)), Some(fraction), "{text}");
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
        assert_eq!(fraction_of(&Ok(Some(parsed.clone()))), Some(fraction), "{text}");
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
        ("0", ThresholdValue::bytes(Bytes::ZERO)),
        ("500Mi", ThresholdValue::bytes(Bytes(500 << 20))),
        ("10%", percentage(10.0)),
        ("150%", percentage(150.0)),
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

fn percentage(percent: f32) -> ThresholdValue {
    ThresholdValue::Percentage(Percentage { fraction: percent / 100.0, percent: percent.into() })
}

#[test]
fn percentages_resolve_through_32_bits_as_in_the_kubelet_and_exactly_when_corrected() {
    let corrected = Quirks::of(Semantics::Corrected);
    for (percent, capacity, kubelet, exact) in [
        (10.0, 100 << 30, 10_737_418_400, 10_737_418_240),
        (5.0, 100 << 30, 5_368_709_200, 5_368_709_120),
        (100.0, 77, 77, 77),
    ] {
        let value = percentage(percent);
        assert_eq!(value.resolve(capacity, KUBELET), Amount::from_units(kubelet), "{percent}");
        assert_eq!(value.resolve(capacity, corrected), Amount::from_units(exact), "{percent}");
    }
    assert_eq!(ThresholdValue::bytes(Bytes(5)).resolve(1, KUBELET), Amount::from_units(5));
}

#[test]
fn lists_go_together_hard_first() {
    let ten = percentage(10.0);
    let hundred = ThresholdValue::bytes(Bytes::from_mib(100));
    let mut lists = ThresholdLists {
        hard: vec![(Signal::NodeFsAvailable, ten.clone()), (MEMORY, hundred.clone())],
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
    lists.min_reclaims.insert(MEMORY, hundred.clone());
    let thresholds = lists.assemble().unwrap();
    let shown: Vec<_> = thresholds
        .iter()
        .map(|threshold| (threshold.to_string(), threshold.kind(), threshold.min_reclaim.clone()))
        .collect();
    assert_eq!(
        shown,
        [
            ("nodefs.available<10%".to_owned(), "hard", None),
            ("memory.available<100Mi".to_owned(), "hard", Some(hundred.clone())),
            ("memory.available<10%".to_owned(), "soft", Some(hundred)),
        ]
    );
    // A soft threshold with no grace at all is a hard one, as in the kubelet.
    lists.grace_periods.insert(MEMORY, Duration::ZERO);
    assert_eq!(lists.assemble().unwrap()[2].kind(), "hard");
}
