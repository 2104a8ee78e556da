use std::time::Duration;

use super::*;
use crate::config::MonitorConfig;

const HEAD: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";

fn parse(body: &str) -> Result<Vec<PressureCondition>, String> {
    let loaded = MonitorConfig::parse("f", &format!("{HEAD}{body}"));
    loaded.map(|loaded| loaded.config.pressure_conditions).map_err(|errors| errors.to_string())
}

const ONE: &str = "pressureConditions:
  - condition: SystemMemoryContentionPressure
    scope: system
    resource: memory
    kind: full
    set: {level: 10%, for: 30s}
    clear: {level: 5%, for: 1m}
";

#[test]
fn a_condition_is_read_as_written() {
    let level = |share, seconds| PressureLevel { share, lasting: Duration::from_secs(seconds) };
    let expected = PressureCondition {
        condition: "SystemMemoryContentionPressure".to_owned(),
        scope: PressureScope::System,
        resource: PressureResource::Memory,
        kind: PressureKind::Full,
        set: level(0.1, 30),
        clear: level(0.05, 60),
    };
    assert_eq!(parse(ONE), Ok(vec![expected]));
    assert_eq!(parse(""), Ok(Vec::new()));
    assert_eq!(parse("pressureConditions: []"), Ok(Vec::new()));
    // Equal levels and no duration are valid.
    let nervous = ONE.replace("5%", "10%").replace("30s", "0s").replace("1m", "0");
    assert_eq!(parse(&nervous).map(|conditions| conditions.len()), Ok(1));
}

#[test]
fn errors_have_place_and_fix() {
    for (was, is, message) in [
        (
            "SystemMemoryContentionPressure",
            "memory-contention",
            r#"f:4: pressureConditions[0].condition: "memory-contention": must be up to 63 letters and digits, the first one a capital; write e.g. SystemMemoryContentionPressure"#,
        ),
        (
            "SystemMemoryContentionPressure",
            "MemoryPressure",
            r#"f:4: pressureConditions[0].condition: "MemoryPressure": the name of a condition that follows from something else;"#,
        ),
        (
            "scope: system",
            "scope: node",
            r#"f:5: pressureConditions[0].scope: "node": not one of the choices; write system or kubepods"#,
        ),
        ("resource: memory", "resource: irq", "not one of the choices; write memory or io or cpu"),
        ("kind: full", "kind: all", "not one of the choices; write some or full"),
        ("    kind: full\n", "", "f:4: pressureConditions[0].kind: missing; write some or full"),
        ("kind: full", "sort: full", "unknown field"),
        (
            "level: 10%",
            "level: 0.1",
            r#"f:8: pressureConditions[0].set.level: "0.1": must be a percentage of time, above 0% and up to 100%; write e.g. 10%"#,
        ),
        ("level: 10%", "level: 0%", "above 0%"),
        ("level: 10%", "level: 101%", "up to 100%"),
        ("level: 10%", "level: -1%", "must be a percentage"),
        ("for: 30s", "for: long", "f:8: pressureConditions[0].set.for"),
        ("level: 10%, for: 30s", "level: 10%", "pressureConditions[0].set.for: missing; write e.g. 30s"),
        ("level: 5%", "level: 11%", "f:4: pressureConditions[0]: clear.level is above set.level"),
        (
            "resource: memory",
            "resource: cpu",
            "never true: the kernel keeps no full CPU pressure of the whole system; write kind: some, or scope: kubepods",
        ),
        ("{level: 10%, for: 30s}", "10%", "pressureConditions[0].set: \"10%\": must be a map"),
    ] {
        let text = ONE.replacen(was, is, 1);
        let errors = parse(&text).unwrap_err();
        assert!(errors.contains(message), "{is}:\n{errors}");
    }
}

#[test]
fn names_are_unique_and_their_number_is_bounded() {
    let twice = format!("{ONE}{}", ONE.split_once('\n').unwrap().1);
    let errors = parse(&twice).unwrap_err();
    assert!(
        errors.contains("pressureConditions[1].condition: \"SystemMemoryContentionPressure\": given twice;"),
        "{errors}"
    );
    let errors = parse(&format!("pressureConditions: [{}]", vec!["{}"; 17].join(", "))).unwrap_err();
    assert!(errors.contains("more than 16 conditions"), "{errors}");
    let errors = parse("pressureConditions: {a: b}").unwrap_err();
    assert!(errors.contains("must be a list of conditions, not a map"), "{errors}");
}
