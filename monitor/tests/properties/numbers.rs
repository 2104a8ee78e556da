//! Properties of quantities, durations and percentages.

use std::time::Duration;

use node_pressure_monitor::config::threshold::parse_threshold_value;
use node_pressure_monitor::config::{Quirks, Semantics};
use node_pressure_monitor::units::{Amount, Quantity, Signal, format_go_duration, parse_go_duration};
use proptest::prelude::*;
use proptest::sample::select;

use super::check::forall;

/// Suffixes and their values in billionths.
const SUFFIXES: [(&str, i128); 13] = [
    ("n", 1),
    ("u", 1_000),
    ("m", 1_000_000),
    ("", 1_000_000_000),
    ("k", 1_000_000_000_000),
    ("M", 1_000_000_000_000_000),
    ("G", 1_000_000_000_000_000_000),
    ("e3", 1_000_000_000_000),
    ("E-3", 1_000_000),
    ("Ki", 1_000_000_000 << 10),
    ("Mi", 1_000_000_000 << 20),
    ("Gi", 1_000_000_000 << 30),
    ("Ti", 1_000_000_000 << 40),
];

/// Generates a text and its value in billionths, computed here from the parts. Values below one billionth are rounded away from zero.
fn quantity() -> impl Strategy<Value = (String, i128)> {
    (any::<bool>(), 0_u32..10_000_000, 0_u32..4, select(&SUFFIXES[..])).prop_map(
        |(negative, digits, places, (suffix, one))| {
            let divisor = 10_i128.pow(places);
            let (whole, rest) = (i128::from(digits) / divisor, i128::from(digits) % divisor);
            let width = places as usize;
            let fraction = if places == 0 { String::new() } else { format!(".{rest:0width$}") };
            let magnitude = (i128::from(digits) * one + divisor - 1) / divisor;
            // Binary quantities end at 64 bits.
            let magnitude =
                if suffix.ends_with('i') { magnitude.min(i128::from(i64::MAX) * 1_000_000_000) } else { magnitude };
            let (sign, billionths) = if negative { ("-", -magnitude) } else { ("", magnitude) };
            (format!("{sign}{whole}{fraction}{suffix}"), billionths)
        },
    )
}

/// Catches a wrong power for a suffix, rounding in floats, and a canonical form that loses a digit or the sign.
#[test]
fn quantities_have_their_value_and_read_back() {
    forall(4000, 2000, &quantity(), |(text, billionths), seen| {
        let parsed = Quantity::parse(&text).unwrap();
        prop_assert_eq!(parsed.amount(), Amount::from_billionths(billionths), "{}", text);
        for printed in [parsed.canonical(), parsed.to_string()] {
            let again = Quantity::parse(&printed).unwrap();
            prop_assert_eq!(&again, &parsed, "{} prints {}", text, printed);
            prop_assert_eq!(again.canonical(), parsed.canonical(), "{} prints {}", text, printed);
        }
        seen.when(parsed.canonical() != text);
        Ok(())
    });
}

/// Catches comparisons by text, by value in whole units, or within one family of suffixes only.
#[test]
fn quantities_compare_and_add_by_their_amounts() {
    forall(4000, 2000, &(quantity(), quantity()), |((a, x), (b, y)), seen| {
        let (first, second) = (Quantity::parse(&a).unwrap(), Quantity::parse(&b).unwrap());
        prop_assert_eq!(first.cmp(&second), x.cmp(&y), "{} and {}", a, b);
        prop_assert_eq!(first.amount() + second.amount(), Amount::from_billionths(x + y), "{} and {}", a, b);
        seen.when(x.signum() == y.signum());
        Ok(())
    });
}

/// Catches a lost nanosecond, and printed units that the parser does not know.
#[test]
fn durations_read_back() {
    let nanos = prop_oneof![
        0_u64..10_000_000_000,
        0..=i64::MAX.unsigned_abs(),
        (0_u64..200_000).prop_map(|it| it * 1_000_000_000)
    ];
    forall(4000, 1000, &nanos, |nanos, seen| {
        let printed = format_go_duration(Duration::from_nanos(nanos));
        prop_assert_eq!(parse_go_duration(&printed).map(|nanos| nanos.0.unsigned_abs()), Ok(nanos), "{}", printed);
        seen.when(printed.contains('m') && printed.ends_with('s') && !printed.ends_with("ms"));
        Ok(())
    });
}

/// Catches corrected percentages computed in 32 bits, shares above the whole, and lost or additional units.
#[test]
fn a_corrected_percentage_is_its_share_of_the_whole() {
    let percent =
        (0_i64..=10_000, select(&[1_i64, 10, 100][..])).prop_filter("at most all", |(p, scale)| p / scale <= 100);
    let capacity = prop_oneof![0_i64..2_000_000, 0_i64..(1 << 50)];
    forall(4000, 1000, &(percent, capacity), |((percent, scale), capacity), seen| {
        #[expect(clippy::cast_precision_loss, reason = "a few digits")]
        let text = format!("{}%", percent as f64 / scale as f64);
        let Ok(Some(value)) = parse_threshold_value(Signal::NodeFsAvailable, &text, Quirks::ALL) else { return Ok(()) };
        let amount = |semantics| value.resolve(capacity, Quirks::of(semantics)).units();
        let exact = i128::from(capacity) * i128::from(percent) / i128::from(100 * scale);
        let (corrected, kubelet) = (i128::from(amount(Semantics::Corrected)), i128::from(amount(Semantics::Kubelet)));
        prop_assert!((0..=i128::from(capacity)).contains(&corrected), "{} of {}: {}", text, capacity, corrected);
        prop_assert!((corrected - exact).abs() <= 1, "{} of {}: {}", text, capacity, corrected);
        // A float of 32 bits has 24 bits of precision.
        let error = i128::from(capacity) / (1 << 23) + 1;
        prop_assert!((kubelet - exact).abs() <= error, "{} of {}: {}", text, capacity, kubelet);
        seen.when(kubelet != corrected);
        Ok(())
    });
}
