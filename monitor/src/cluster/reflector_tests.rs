use super::*;

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
fn only_a_watch_that_was_cut_waits_for_its_renewal() {
    let asked_for = Duration::from_secs(400);
    for (name, lasted, expected) in [
        ("its own end", asked_for, Wait::None),
        ("the server's clock is fast", Duration::from_secs(399), Wait::None),
        ("the server stops", Duration::from_secs(397), Wait::Renewal),
        ("a server that ends each watch at once", Duration::ZERO, Wait::Renewal),
    ] {
        assert_eq!(Wait::after_watch(lasted, asked_for), expected, "{name}");
    }
}

#[test]
fn versions_are_compared_after_an_outage_and_the_second_refusal() {
    let [watch, check] = [Next::Watch, Next::Check].map(|next| next("7".to_owned()));
    let server_error = Some(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, before, status, times, expected, of_few) in [
        ("refused once", &watch, server_error, 1, &watch, &watch),
        ("refused twice", &watch, server_error, 2, &check, &check),
        ("refused since", &watch, server_error, 3, &watch, &watch),
        ("refused for ever", &watch, server_error, 8, &check, &check),
        ("no connection", &watch, None, 1, &check, &watch),
        ("no connection since", &check, None, 9, &check, &check),
        ("refused comparison", &check, server_error, 9, &check, &check),
    ] {
        let refusal = Refusal { status, ..Refusal::unanswered("") };
        let after = |is_small| before.clone().after_refusal(&refusal, times, is_small);
        assert_eq!((after(false), after(true)), (expected.clone(), of_few.clone()), "{name}");
    }
}
