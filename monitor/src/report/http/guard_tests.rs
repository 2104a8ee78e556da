use super::*;
use crate::report::http::material::Material;

const GOOD: &str = "0123456789abcdef0123456789abcdef";

fn headers(authorization: Option<&str>) -> HeaderMap {
    authorization.map(|value| (header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())).into_iter().collect()
}

fn peer() -> Peer {
    Peer::of([10, 0, 0, 1].into())
}

fn guard(token_file: bool, token_review: bool, reviewer: Option<Reviewer>) -> Guard {
    let tokens = if token_file { vec!["another-good-token".to_owned(), GOOD.to_owned()] } else { Vec::new() };
    let token_file = token_file.then(|| "/tokens".into());
    let options = ServingOptions { token_file, token_review, ..ServingOptions::default() };
    Guard::new(options, Arc::new(Current::new(Material { tls: None, tokens })), reviewer)
}

#[tokio::test]
async fn health_is_open_and_other_paths_need_a_token_of_the_file() {
    let guard = guard(true, false, None);
    let bearer = format!("Bearer {GOOD}");
    for (name, authorization, path, expected) in [
        ("health", None, "/healthz", Admission::Granted),
        ("readiness", None, "/readyz", Admission::Granted),
        ("no token", None, "/metrics", Admission::NoToken),
        ("what is not there", None, "/none", Admission::NoToken),
        ("almost health", None, "/healthz/", Admission::NoToken),
        ("good", Some(bearer.as_str()), "/metrics", Admission::Granted),
        ("the scheme in small letters", Some("bearer another-good-token"), "/metrics", Admission::Granted),
        ("another scheme", Some("Basic another-good-token"), "/metrics", Admission::NoToken),
        ("bad", Some("Bearer another-bad-token!"), "/metrics", Admission::Unknown),
        ("the beginning of a good one", Some("Bearer 0123456789abcdef"), "/metrics", Admission::Unknown),
        ("empty", Some("Bearer "), "/metrics", Admission::NoToken),
    ] {
        assert_eq!(guard.admit(peer(), &Method::GET, &headers(authorization), path).await, expected, "{name}");
    }
    assert_eq!(Guard::default().admit(peer(), &Method::GET, &headers(None), "/metrics").await, Admission::Granted);
}

#[tokio::test]
async fn without_an_api_server_no_review_admits_a_request() {
    let guard = guard(false, true, None);
    let admission =
        guard.admit(peer(), &Method::GET, &headers(Some("Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln")), "/metrics").await;
    assert_eq!(admission, Admission::Later("there is no API server to review it".to_owned()));
    assert_eq!(guard.admit(peer(), &Method::GET, &headers(None), "/healthz").await, Admission::Granted);
}

#[tokio::test]
async fn a_browsers_session_reads_and_does_nothing_else() {
    let guard = guard(true, false, None);
    let session = |token: &str| {
        let code = guard.sessions.code(token, Instant::now()).unwrap();
        let cookie = guard.sessions.redeem(&code, Instant::now()).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_str(cookie.split(';').next().unwrap()).unwrap());
        headers
    };
    let headers = session(GOOD);
    let admit = async |headers: &HeaderMap, method, path| guard.admit(peer(), &method, headers, path).await;
    assert_eq!(admit(&headers, Method::GET, "/api/v1/watch").await, Admission::Granted);
    assert_eq!(admit(&headers, Method::POST, "/api/v1/open").await, Admission::NoToken);
    assert_eq!(admit(&HeaderMap::new(), Method::GET, "/open").await, Admission::Granted, "its code is checked");
    let rotated = session("a-token-of-yesterday");
    assert_eq!(admit(&rotated, Method::GET, "/metrics").await, Admission::Unknown);
    assert_eq!(guard.session(&rotated), None, "the session has ended");
}

#[tokio::test]
async fn only_jwts_are_reviewed_unless_opaque_tokens_are_configured() {
    let opaque = headers(Some("Bearer sha256~an-opaque-token-of-openshift"));
    let admission = guard(false, true, None).admit(peer(), &Method::GET, &opaque, "/metrics").await;
    assert_eq!(admission, Admission::Opaque);
    let options = ServingOptions { token_review: true, opaque_tokens: true, ..ServingOptions::default() };
    let admission = Guard::new(options, Arc::default(), None).admit(peer(), &Method::GET, &opaque, "/metrics").await;
    assert_eq!(admission, Admission::Later("there is no API server to review it".to_owned()));
}

#[tokio::test]
async fn without_a_token_the_name_of_the_agent_must_be_known() {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, HeaderValue::from_static("rebound.example.com"));
    let open = Guard::default();
    assert_eq!(open.admit(peer(), &Method::GET, &headers, "/metrics").await, Admission::ForeignHost);
    let options = ServingOptions { host_names: vec!["rebound.example.com".to_owned()], ..ServingOptions::default() };
    let named = Guard::new(options, Arc::default(), None);
    assert_eq!(named.admit(peer(), &Method::GET, &headers, "/metrics").await, Admission::Granted);
    // The proxy of the API server passes on the name by which it was asked.
    headers.insert(header::HOST, HeaderValue::from_static("api.example.com:6443"));
    let in_cluster = |host_names| {
        let options = ServingOptions { host_names, ..ServingOptions::default() };
        Guard::new(options, Arc::default(), Some(Reviewer::new().0))
    };
    let any = in_cluster(Vec::new());
    assert_eq!(any.admit(peer(), &Method::GET, &headers, "/metrics").await, Admission::Granted);
    let limited = in_cluster(vec!["node1.example.com".to_owned()]);
    assert_eq!(limited.admit(peer(), &Method::GET, &headers, "/metrics").await, Admission::ForeignHost);
    assert_eq!(guard(true, false, None).admit(peer(), &Method::GET, &headers, "/metrics").await, Admission::NoToken);
}
