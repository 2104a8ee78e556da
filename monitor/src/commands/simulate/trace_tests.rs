use super::*;

fn fault(line: &str) -> Fault {
    match TraceLine::parse(line) {
        Err(fault) => fault,
        Ok(parsed) => pods(parsed.pods_text(), line).unwrap_err(),
    }
}

#[test]
fn all_but_the_time_may_be_missing_or_null() {
    for line in [
        r#"{"time": "2026-01-01T00:00:10Z"}"#,
        r#"{"time": "2026-01-01T00:00:10Z", "node": null, "summary": null, "summaryAfterGarbageCollection": null, "pods": null}"#,
        r#"{"pods": [], "unknown": {"a": [1]}, "node": {"capacity": null, "dedicatedImageFs": null}, "time": "2026-01-01T00:00:10Z"}"#,
    ] {
        let parsed = TraceLine::parse(line).unwrap();
        assert_eq!(parsed.time.text, "2026-01-01T00:00:10Z");
        assert_eq!(parsed.layout(), Layout::Single);
        assert_eq!(parsed.memory_capacity(), None);
        assert_eq!(parsed.summary, Summary::default());
        assert!(parsed.summary_after_garbage_collection.is_none());
        assert_eq!(pods(parsed.pods_text(), line), Ok(Vec::new()));
    }
}

#[test]
fn one_instant_in_two_zones() {
    let now = |time: &str| TraceLine::parse(&format!(r#"{{"time": "{time}"}}"#)).unwrap().time.at;
    assert_eq!(now("2026-01-01T00:00:10Z"), now("2026-01-01T09:00:10+09:00"));
    assert_eq!(now("2026-01-01T00:00:10.5Z").nanos_since(now("2026-01-01T00:00:10Z")), 500_000_000);
}

#[test]
fn filesystems_and_memory() {
    let line = r#"{"time": "2026-01-01T00:00:10Z", "node": {"capacity": {"cpu": "4", "memory": "10Gi"}, "dedicatedImageFs": true, "splitImageFs": true}}"#;
    let parsed = TraceLine::parse(line).unwrap();
    assert_eq!((parsed.layout(), parsed.memory_capacity()), (Layout::SplitImageFs, Some(10 << 30)));
}

#[test]
fn errors_name_the_wrong_field() {
    for (line, field, column, reason) in [
        ("[1]", "", 1, "expected an object"),
        ("nonsense", "", 1, "expected an object"),
        ("{}", "time", 1, "missing"),
        (r#"{"time": null}"#, "time", 1, "missing"),
        (r#"{"time": "yesterday"}"#, "time", 21, "\"yesterday\" is not a time of RFC 3339"),
        (r#"{"time": 5}"#, "time", 10, "expected a string"),
        (
            r#"{"time": "2026-01-01T00:00:10Z", "node": {"splitImageFs": true}}"#,
            "node.splitImageFs",
            1,
            "dedicatedImageFs",
        ),
        (
            r#"{"time": "2026-01-01T00:00:10Z", "node": {"capacity": {"memory": "10GB"}}}"#,
            "node.capacity.memory",
            71,
            "quantit",
        ),
        (r#"{"time": "2026-01-01T00:00:10Z", "pods": {"items": []}}"#, "pods", 42, "expected a list"),
        (
            r#"{"time": "2026-01-01T00:00:10Z", "pods": [{}, {"spec": {"priority": "high"}}]}"#,
            "pods[1].spec.priority",
            74,
            "expected a whole number",
        ),
        (r#"{"time": "2026-01-01T00:00:10Z", "pods": [{}"#, "pods", 44, "cut off"),
    ] {
        let fault = fault(line);
        assert_eq!(fault.field, field, "{line}: {fault}");
        assert_eq!((fault.line, fault.column), (1, column), "{line}: {fault}");
        assert!(fault.reason.contains(reason), "{line}: {fault}");
    }
}
