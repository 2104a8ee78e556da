use super::*;
use crate::config::Semantics;

const MEMORY: Signal = Signal::MemoryAvailable;
/// All quirks of the kubelet.
const KUBELET: Quirks = Quirks::ALL;

/// Parses any of `hard signal=value; soft signal=value; grace signal=value; reclaim signal=value`, in this order, and `pods` for the
/// cgroup of all pods. Returns the thresholds, or the first error, at which the kubelet stops.
fn understood(text: &str, quirks: Quirks) -> Result<String, String> {
    let mut lists = ThresholdLists::default();
    for entry in text.split("; ").filter(|entry| !entry.is_empty()) {
        if entry == "pods" {
            lists.pods_enforced = true;
            continue;
        }
        let (list, pair) = entry.split_once(' ').unwrap();
        let (signal, value) = pair.split_once('=').unwrap();
        let signal: Signal = signal.parse().map_err(|error: crate::units::UnsupportedSignal| error.to_string())?;
        let failed = |error: ThresholdError| error.to_string();
        match list {
            "hard" => {
                let value = parse_threshold_value(signal, value, quirks).map_err(failed)?;
                lists.hard.extend(value.map(|value| (signal, value)));
            }
            "soft" => {
                let value = parse_threshold_value(signal, value, quirks).map_err(failed)?;
                lists.soft.extend(value.map(|value| (signal, value)));
            }
            "grace" => drop(lists.grace_periods.insert(signal, parse_grace_period(value).map_err(failed)?)),
            "reclaim" => drop(lists.min_reclaims.insert(signal, parse_min_reclaim(signal, value).map_err(failed)?)),
            other => panic!("{other}"),
        }
    }
    let thresholds = lists.assemble().map_err(|errors| errors[0].to_string())?;
    let shown = thresholds.iter().map(|threshold| {
        let grace = if threshold.is_hard() { String::new() } else { format!(" for {:?}", threshold.grace_period) };
        let reclaim = threshold.min_reclaim.as_ref().map_or_else(String::new, |value| format!(" +{value}"));
        format!("{threshold}{grace}{reclaim}")
    });
    Ok(shown.collect::<Vec<_>>().join(", "))
}

/// `eviction-semantics.md` §2.1 and its addenda, row by row.
#[test]
fn thresholds_parse_as_in_the_kubelet() {
    const REGULAR: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    const SUFFIX: &str = "unable to parse quantity's suffix";
    let rows: &[(&str, Result<&str, &str>)] = &[
        // Hard thresholds, then soft ones, each as written, then the copies for the cgroup of all pods.
        (
            "hard nodefs.available=10%; hard memory.available=1Gi; soft memory.available=2Gi; grace memory.available=30s; pods",
            Ok(
                "nodefs.available<10%, memory.available<1Gi, memory.available<2Gi for 30s, allocatableMemory.available<1Gi",
            ),
        ),
        ("", Ok("")),
        // Signals.
        ("hard allocatableMemory.available=1Gi", Ok("allocatableMemory.available<1Gi")),
        ("hard containerfs.available=1Gi", Ok("containerfs.available<1Gi")),
        ("hard containerfs.inodesFree=1k", Ok("containerfs.inodesFree<1k")),
        ("hard pid.available=10%", Ok("pid.available<10%")),
        ("hard memory.avail=1Gi", Err("unsupported eviction signal memory.avail")),
        ("soft Memory.available=1Gi", Err("unsupported eviction signal Memory.available")),
        ("grace x=1s", Err("unsupported eviction signal x")),
        ("reclaim =1", Err("unsupported eviction signal ")),
        // Exactly two percentages switch a threshold off.
        ("hard memory.available=0%", Ok("")),
        ("hard memory.available=100%", Ok("")),
        ("soft memory.available=100%", Ok("")),
        ("hard memory.available=0.0%", Ok("memory.available<0%")),
        ("hard memory.available=-0%", Ok("memory.available<-0%")),
        ("hard memory.available=0%%", Ok("memory.available<0%")),
        ("hard memory.available=100.0%", Ok("memory.available<100%")),
        ("hard memory.available=1e2%", Ok("memory.available<100%")),
        ("hard memory.available=10%", Ok("memory.available<10%")),
        ("hard memory.available=15%", Ok("memory.available<15%")),
        ("hard memory.available=5%%", Ok("memory.available<5%")),
        ("hard memory.available=1e1%", Ok("memory.available<10%")),
        ("hard memory.available=0x1p3%", Ok("memory.available<8%")),
        ("hard memory.available=.5%", Ok("memory.available<0.5%")),
        ("hard memory.available=+7.25%", Ok("memory.available<7.25%")),
        ("hard memory.available=0.1%", Ok("memory.available<0.1%")),
        ("hard memory.available= 5%", Err(r#"strconv.ParseFloat: parsing " 5": invalid syntax"#)),
        ("hard memory.available=5 %", Err(r#"strconv.ParseFloat: parsing "5 ": invalid syntax"#)),
        ("hard memory.available=%", Err(r#"strconv.ParseFloat: parsing "": invalid syntax"#)),
        ("hard memory.available=abc%", Err(r#"strconv.ParseFloat: parsing "abc": invalid syntax"#)),
        ("hard memory.available=1e39%", Err(r#"strconv.ParseFloat: parsing "1e39": value out of range"#)),
        ("hard memory.available=-1%", Err("eviction percentage threshold memory.available must be >= 0%: -1%")),
        ("hard memory.available=101%", Err("eviction percentage threshold memory.available must be <= 100%: 101%")),
        ("hard memory.available=inf%", Err("eviction percentage threshold memory.available must be <= 100%: inf%")),
        ("hard memory.available=-inf%", Err("eviction percentage threshold memory.available must be >= 0%: -inf%")),
        // The kubelet accepts it, and then never evicts.
        ("hard memory.available=NaN%", Err("eviction percentage of memory.available must be a finite number: NaN%")),
        // Quantities.
        ("hard memory.available=100Mi", Ok("memory.available<100Mi")),
        ("hard memory.available=1.5Gi", Ok("memory.available<1536Mi")),
        ("hard memory.available=.5", Ok("memory.available<500m")),
        ("hard memory.available=100m", Ok("memory.available<100m")),
        ("hard memory.available=1E3", Ok("memory.available<1e3")),
        ("hard memory.available=+1Ki", Ok("memory.available<1Ki")),
        ("hard memory.available=59E", Ok("memory.available<59E")),
        ("hard memory.available=", Err(REGULAR)),
        ("hard memory.available=abc", Err(REGULAR)),
        ("hard memory.available=100Mx", Err(REGULAR)),
        ("hard memory.available=5% ", Err(REGULAR)),
        ("hard memory.available= 5", Err(REGULAR)),
        ("hard memory.available=100mi", Err(SUFFIX)),
        ("hard memory.available=1e9999999999", Err("quantity's exponent is out of range: at most 64 either way")),
        ("hard memory.available=0", Err("eviction threshold memory.available must be positive: 0")),
        ("hard memory.available=Ki", Err("eviction threshold memory.available must be positive: 0")),
        ("hard memory.available=-100Mi", Err("eviction threshold memory.available must be positive: -100Mi")),
        ("hard memory.available=-1E3", Err("eviction threshold memory.available must be positive: -1E3")),
        // Soft thresholds and their grace periods.
        ("soft memory.available=1Gi; grace memory.available=1m30s", Ok("memory.available<1Gi for 90s")),
        ("soft memory.available=1Gi; grace memory.available=100ms", Ok("memory.available<1Gi for 100ms")),
        ("soft memory.available=1Gi; grace memory.available=+5s", Ok("memory.available<1Gi for 5s")),
        ("soft memory.available=1Gi; grace memory.available=.5s", Ok("memory.available<1Gi for 500ms")),
        ("soft memory.available=1Gi; grace memory.available=1.s", Ok("memory.available<1Gi for 1s")),
        ("soft memory.available=1Gi; grace memory.available=1\u{b5}s", Ok("memory.available<1Gi for 1\u{b5}s")),
        ("soft memory.available=1Gi; grace memory.available=1\u{3bc}s", Ok("memory.available<1Gi for 1\u{b5}s")),
        // A grace period of zero makes a hard threshold, which is copied for the cgroup of all pods too.
        ("soft memory.available=1Gi; grace memory.available=0", Ok("memory.available<1Gi")),
        (
            "soft memory.available=1Gi; grace memory.available=-0s; pods",
            Ok("memory.available<1Gi, allocatableMemory.available<1Gi"),
        ),
        ("grace memory.available=30", Err(r#"time: missing unit in duration "30""#)),
        ("grace memory.available=", Err(r#"time: invalid duration """#)),
        ("grace memory.available=3d", Err(r#"time: unknown unit "d" in duration "3d""#)),
        ("grace memory.available=-30s", Err("invalid eviction grace period specified: -30s, must be a positive value")),
        ("hard memory.available=1Gi; grace memory.available=30s", Ok("memory.available<1Gi")),
        (
            "soft memory.available=1Gi; soft nodefs.available=1Gi; grace nodefs.available=30s",
            Err("grace period must be specified for the soft eviction threshold memory.available"),
        ),
        // A minimum reclaim applies to the hard and the soft threshold of its signal, and to the copy.
        (
            "hard memory.available=1Gi; soft memory.available=2Gi; grace memory.available=1s; reclaim memory.available=500Mi; pods",
            Ok(
                "memory.available<1Gi +500Mi, memory.available<2Gi for 1s +500Mi, allocatableMemory.available<1Gi +500Mi",
            ),
        ),
        ("hard memory.available=1Gi; reclaim nodefs.available=1Gi", Ok("memory.available<1Gi")),
        ("hard memory.available=1Gi; reclaim memory.available=0", Ok("memory.available<1Gi +0")),
        ("hard memory.available=1Gi; reclaim memory.available=150%", Ok("memory.available<1Gi +150%")),
        ("hard memory.available=1Gi; reclaim memory.available=100%", Ok("memory.available<1Gi +100%")),
        (
            "reclaim memory.available=0%",
            Err("eviction percentage minimum reclaim memory.available must be positive: 0%"),
        ),
        (
            "reclaim memory.available=-1%",
            Err("eviction percentage minimum reclaim memory.available must be positive: -1%"),
        ),
        ("reclaim memory.available=-1", Err("negative eviction minimum reclaim specified for memory.available")),
        ("reclaim memory.available=100MM", Err(SUFFIX)),
        ("reclaim memory.available=x%", Err(r#"strconv.ParseFloat: parsing "x": invalid syntax"#)),
        // The kubelet accepts these, and cannot print them.
        ("reclaim memory.available=inf%", Err("eviction percentage of memory.available must be a finite number: inf%")),
        ("reclaim memory.available=NaN%", Err("eviction percentage of memory.available must be a finite number: NaN%")),
    ];
    for (text, expected) in rows {
        assert_eq!(understood(text, KUBELET), expected.map(str::to_owned).map_err(str::to_owned), "{text}");
    }
}

#[test]
fn corrected_semantics_refuse_a_threshold_that_is_always_met() {
    let corrected = Quirks::of(Semantics::Corrected);
    for text in ["100.0%", "1e2%", "100%%", "99.9999999%"] {
        let error = format!("eviction percentage threshold memory.available is always met: {text}");
        assert_eq!(understood(&format!("hard memory.available={text}"), corrected), Err(error));
    }
    assert_eq!(understood("hard memory.available=100%", corrected), Ok(String::new()));
    assert_eq!(understood("hard memory.available=99.9%", corrected), Ok("memory.available<99.9%".to_owned()));
    assert_eq!(understood("reclaim memory.available=100.0%", corrected), Ok(String::new()));
}

#[test]
fn percentages_keep_32_bits_as_the_kubelet_does() {
    for (text, fraction) in [("10%", 10.0_f32 / 100.0), ("15%", 15.0_f32 / 100.0), ("0x1p3%", 8.0_f32 / 100.0)] {
        let Ok(Some(ThresholdValue::Percentage(percentage))) = parse_threshold_value(MEMORY, text, KUBELET) else {
            panic!("{text}");
        };
        assert_eq!(percentage.fraction.to_bits(), fraction.to_bits(), "{text}");
    }
}

#[test]
fn messages_print_shares_in_binary_units() {
    let text = |value: &str, capacity| {
        parse_threshold_value(MEMORY, value, KUBELET).unwrap().unwrap().quantity_text(capacity, KUBELET)
    };
    for (value, capacity, expected) in [
        ("1E3", 0, "1E3"),
        ("1.5Gi", 0, "1536Mi"),
        ("10%", 100 << 30, "10737418400"),
        ("10%", 10 << 30, "1073741840"),
        ("50%", 1 << 30, "512Mi"),
        ("10%", 5000, "500"),
        ("10%", 10_000, "1k"),
        ("10%", 20_480, "2Ki"),
        ("10%", 0, "0"),
        ("10%", -10_000, "-1k"),
    ] {
        assert_eq!(text(value, capacity), expected, "{value} of {capacity}");
    }
}

fn percentage(percent: f32) -> ThresholdValue {
    ThresholdValue::Percentage(Percentage { fraction: percent / 100.0, percent: percent.into() })
}

#[test]
fn only_the_kubelets_percentages_round_to_32_bits() {
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
