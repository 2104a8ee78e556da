//! Quantities, durations, thresholds.

use node_pressure_monitor::config::threshold::{parse_grace_period, parse_min_reclaim, parse_threshold_value};
use node_pressure_monitor::config::{Quirks, Semantics, ThresholdValue};
use node_pressure_monitor::units::duration::SignedNanos;
use node_pressure_monitor::units::{Amount, Quantity, Signal, format_go_duration, parse_go_duration};

/// Enough to compare each with each.
const MOST_LINES: usize = 6;

/// One quantity a line.
pub fn quantity(text: &str) {
    let lines = || text.lines().take(MOST_LINES);
    let all: Vec<Quantity> = lines().filter_map(one_quantity).collect();
    for a in &all {
        for b in &all {
            assert_eq!(a.cmp(b), b.cmp(a).reverse(), "{a} and {b}");
            assert_eq!(a == b, a.cmp(b).is_eq(), "{a} and {b}");
            // Amounts stop at their ends, so that they may be equal where quantities are not; never the other way round.
            assert!(a > b || a.amount() <= b.amount(), "{a} and {b}: {:?} {:?}", a.amount(), b.amount());
            assert_eq!(a.sum(b), b.sum(a), "{a} and {b}");
            for c in &all {
                assert!(a > b || b > c || a <= c, "{a}, {b}, {c}");
            }
        }
    }
}

fn one_quantity(text: &str) -> Option<Quantity> {
    let parsed = Quantity::parse(text);
    if let Err(error) = &parsed {
        assert!(!error.to_string().is_empty(), "{text:?}");
    }
    // The API's form of it: in JSON, spaces around it make no difference.
    let json = serde_json::to_string(text).ok().and_then(|json| serde_json::from_str::<Quantity>(&json).ok());
    assert_eq!(json, Quantity::parse(text.trim()).ok(), "{text:?}");
    let quantity = parsed.ok()?;

    let canonical = quantity.canonical();
    let again = Quantity::parse(&canonical);
    assert_eq!(again.as_ref(), Ok(&quantity), "{text:?} prints {canonical}");
    assert_eq!(again.map(|again| again.canonical()), Ok(canonical.clone()), "{text:?}");
    assert!(canonical.len() <= 128, "{text:?} prints {canonical}");

    // As it was written or in canonical form, without its exponent where that has no suffix.
    let printed = quantity.to_string();
    assert!(printed == text || canonical.starts_with(&printed), "{text:?} prints {printed}");

    let amount = quantity.amount();
    assert_eq!(quantity.is_zero(), amount.is_zero(), "{text:?}");
    assert_eq!(quantity.is_negative(), amount.is_negative(), "{text:?}");
    assert_eq!(quantity.value_bytes(), amount.units(), "{text:?}");

    if text.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        let negative = Quantity::parse(&format!("-{text}")).map(|negative| negative.amount());
        assert_eq!(negative, Ok(Amount::ZERO - amount), "{text:?}");
    }
    Some(quantity)
}

/// One duration a line.
pub fn duration(text: &str) {
    let all: Vec<(&str, i64)> =
        text.lines().take(MOST_LINES).filter_map(|line| Some((line, one_duration(line)?))).collect();
    for (a, first) in &all {
        for (b, second) in &all {
            let is_plain = |text: &str| *text != *"0" && !text.starts_with(['+', '-']);
            let (true, true, Some(sum)) = (is_plain(a), is_plain(b), first.checked_add(*second)) else { continue };
            assert_eq!(parse_go_duration(&format!("{a}{b}")).map(|nanos| nanos.0), Ok(sum), "{a} then {b}");
        }
    }
}

fn one_duration(text: &str) -> Option<i64> {
    let parsed = parse_go_duration(text);
    if let Err(error) = &parsed {
        let error = error.to_string();
        assert!(error.starts_with("time: ") && error.is_ascii(), "{text:?}: {error}");
    }
    let nanos = parsed.ok()?;
    if let Some(duration) = nanos.to_duration() {
        let printed = format_go_duration(duration);
        assert_eq!(parse_go_duration(&printed), Ok(nanos), "{text:?} prints {printed}");
        assert!(printed.len() <= 32, "{text:?} prints {printed}");
    }
    if !text.starts_with(['+', '-']) {
        let negative = parse_go_duration(&format!("-{text}")).map(|negative| negative.0);
        assert_eq!(negative, Ok(-nanos.0), "{text:?}");
    }
    Some(nanos.0)
}

/// Capacities of nodes small, ordinary, and broken.
const CAPACITIES: [i64; 8] = [i64::MIN, -1, 0, 1, 1000, 10 << 30, 100 << 30, i64::MAX];

/// Signal, value, grace period and minimum reclaim, a line each.
pub fn threshold(text: &str) {
    let mut lines = text.lines();
    let signal = lines.next().and_then(|name| name.parse().ok()).unwrap_or(Signal::MemoryAvailable);
    let value = lines.next().unwrap_or_default();
    for semantics in [Semantics::Kubelet, Semantics::Corrected] {
        let parse = |text: &str| parse_threshold_value(signal, text, Quirks::of(semantics));
        match parse(value) {
            Ok(Some(parsed)) => {
                resolves(value, &parsed, true);
                reads_back(value, &parsed, |text| parse(text).ok().flatten());
                let taken_by_the_kubelet = parse_threshold_value(signal, value, Quirks::ALL);
                assert_eq!(taken_by_the_kubelet, Ok(Some(parsed)), "{value:?}");
            }
            Ok(None) => assert!(value == "0%" || value == "100%", "{value:?} is silently dropped"),
            Err(error) => assert!(!error.to_string().is_empty(), "{value:?}"),
        }
    }
    if let Some(grace) = lines.next() {
        let parsed = parse_grace_period(grace);
        let nanos = parse_go_duration(grace).ok().and_then(SignedNanos::to_duration);
        assert_eq!(parsed.ok(), nanos, "{grace:?}");
    }
    if let Some(reclaim) = lines.next()
        && let Ok(parsed) = parse_min_reclaim(signal, reclaim)
    {
        resolves(reclaim, &parsed, false);
        reads_back(reclaim, &parsed, |text| parse_min_reclaim(signal, text).ok());
    }
}

/// A larger capacity never means a smaller amount; a share of what is there is neither negative nor, of a threshold, more than all.
fn resolves(text: &str, value: &ThresholdValue, is_threshold: bool) {
    for semantics in [Semantics::Kubelet, Semantics::Corrected] {
        let quirks = Quirks::of(semantics);
        let amounts = CAPACITIES.map(|capacity| value.resolve(capacity, quirks));
        assert!(amounts.is_sorted(), "{text:?}: {amounts:?}");
        for capacity in CAPACITIES {
            assert!(!value.quantity_text(capacity, quirks).is_empty(), "{text:?} of {capacity}");
        }
        for (amount, capacity) in amounts.into_iter().zip(CAPACITIES) {
            let whole = Amount::from_units(capacity.max(0));
            assert!(capacity < 0 || !amount.is_negative(), "{text:?} of {capacity}: {amount:?}");
            let is_share = is_threshold && matches!(value, ThresholdValue::Percentage(_));
            assert!(!is_share || amount <= whole, "{text:?} of {capacity}: {amount:?}");
        }
    }
}

/// A printed value reads back as the same value, to the last bit of the kubelet's arithmetic. `0%` and `100%` are no values but "off".
fn reads_back(text: &str, value: &ThresholdValue, parse: impl Fn(&str) -> Option<ThresholdValue>) {
    let printed = value.to_string();
    if printed == "0%" || printed == "100%" {
        return;
    }
    let again = parse(&printed);
    let kubelet = Quirks::of(Semantics::Kubelet);
    let resolve = |value: &ThresholdValue| CAPACITIES.map(|capacity| value.resolve(capacity, kubelet));
    assert_eq!(again.as_ref().map(resolve), Some(resolve(value)), "{text:?} prints {printed}");
}
