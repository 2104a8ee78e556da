use super::*;

/// Records the calls.
#[derive(Default)]
struct Notes(Vec<String>);

impl Reflector for Notes {
    const PATH: &'static str = "/api/v1/pods";
    const IS_SMALL: bool = false;

    fn field_selector(&self) -> String {
        String::new()
    }
    fn begin(&mut self) {}
    fn listed(&mut self, _: &[u8]) {}
    fn end(&mut self) {}
    fn put(&mut self, object: &str) -> Option<String> {
        self.0.push(format!("+{object}"));
        Some("8".to_owned())
    }
    fn remove(&mut self, object: &str) -> Option<String> {
        self.0.push(format!("-{object}"));
        Some("9".to_owned())
    }
    fn answered(&mut self) {}
    fn failed(&mut self, _: &Refusal, _: u32) {}
    fn due(&self) -> Option<Instant> {
        None
    }
    fn publish(&mut self) {}
    async fn outdated(&mut self) {
        std::future::pending::<()>().await;
    }
}

fn lines() -> Lines {
    Lines { version: "1".to_owned(), waiting: Vec::new() }
}

#[test]
fn events_are_read_wherever_the_text_breaks() {
    let text = concat!(
        r#"{"type":"ADDED","object":{"a":1},"new":[{}]}"#,
        "\n\n",
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"12","annotations":{}}}}"#,
        "\r\n",
        r#"{"object":{"b":2},"type":"DELETED"}"#,
        "\n",
        r#"{"type":"LATER","object":{}}"#,
        "\n",
    );
    for step in 1..text.len() {
        let (mut lines, mut notes) = (lines(), Notes::default());
        for piece in text.as_bytes().chunks(step) {
            assert!(lines.take(piece, &mut notes).is_ok());
        }
        assert_eq!(notes.0, [r#"+{"a":1}"#, r#"-{"b":2}"#]);
        assert_eq!((lines.version.as_str(), lines.waiting.len()), ("9", 0));
    }
}

#[test]
fn a_forgotten_version_differs_from_other_errors() {
    let error = |object: &str| {
        let line = format!("{{\"type\":\"ERROR\",\"object\":{object}}}\n");
        lines().take(line.as_bytes(), &mut Notes::default()).err()
    };
    assert!(matches!(error(r#"{"kind":"Status","code":410,"reason":"Expired"}"#), Some(End::Gone)));
    assert!(
        matches!(error(r#"{"code":500,"message":"etcd"}"#), Some(End::Refused(refusal)) if refusal.reason.contains("etcd"))
    );
    let end = lines().take(b"<html>\n", &mut Notes::default());
    assert!(matches!(end, Err(End::Unreadable(_))));
}

#[test]
fn an_incomplete_event_is_ignored() {
    let (mut lines, mut notes) = (lines(), Notes::default());
    assert!(lines.take(br#"{"type":"ADDED","object":{"a":1}"#, &mut notes).is_ok());
    assert_eq!((notes.0.len(), lines.version.as_str()), (0, "1"));
}

#[test]
fn an_older_store_is_known_by_its_version() {
    assert!(is_older("5", "1000"));
    for (now, seen) in [("1000", "1000"), ("1001", "1000"), ("x", "1"), ("1", "")] {
        assert!(!is_older(now, seen), "{now} {seen}");
    }
}

#[test]
fn selectors_are_escaped() {
    assert_eq!(escaped("spec.nodeName=a-1.b"), "spec.nodeName%3Da-1.b");
}

#[test]
fn a_cache_that_is_too_old_leads_to_the_store() {
    let since = || Source::CacheSince("7".to_owned());
    for (source, status, expected) in [
        (since(), Some(StatusCode::GATEWAY_TIMEOUT), Source::Store),
        (since(), Some(StatusCode::GONE), Source::Store),
        (since(), Some(StatusCode::TOO_MANY_REQUESTS), since()),
        (since(), None, since()),
        (Source::Cache, Some(StatusCode::GATEWAY_TIMEOUT), Source::Cache),
        (Source::Store, Some(StatusCode::GATEWAY_TIMEOUT), Source::Store),
    ] {
        let refusal = Refusal { status, ..Refusal::unanswered("") };
        assert_eq!(source.clone().after(&refusal), expected, "{source:?} {status:?}");
    }
    assert_eq!(since().query(), "&resourceVersion=7&resourceVersionMatch=NotOlderThan");
}

#[test]
fn nodes_return_spread_over_the_whole_time() {
    let longest = Duration::from_secs(20);
    let waits: Vec<Duration> = (0..200).map(|_| spread(longest)).collect();
    assert!(waits.iter().all(|wait| *wait <= longest));
    for quarter in 0..4 {
        let from = longest * quarter / 4;
        let in_quarter = waits.iter().filter(|wait| **wait >= from && **wait <= from + longest / 4).count();
        assert!(in_quarter > 20, "{in_quarter} of 200 in quarter {quarter}");
    }
}
