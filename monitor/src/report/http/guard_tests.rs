use super::*;
use crate::report::http::material::Material;

const GOOD: &str = "0123456789abcdef0123456789abcdef";

fn headers(authorization: Option<&str>) -> HeaderMap {
    authorization.map(|value| (header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())).into_iter().collect()
}

fn guard(token_file: bool, token_review: bool, reviewer: Option<Reviewer>) -> Guard {
    let tokens = if token_file { vec!["another-good-token".to_owned(), GOOD.to_owned()] } else { Vec::new() };
    let options = ServingOptions { tls: None, token_file: token_file.then(|| "/tokens".into()), token_review };
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
        assert_eq!(guard.admit(&Method::GET, &headers(authorization), path).await, expected, "{name}");
    }
    assert_eq!(Guard::default().admit(&Method::GET, &headers(None), "/metrics").await, Admission::Granted);
}

#[tokio::test]
async fn each_token_and_path_is_reviewed_once() {
    let (reviewer, mut questions) = Reviewer::new();
    let server = tokio::spawn(async move {
        let mut asked = Vec::new();
        while let Some(question) = questions.recv().await {
            let review = match question.token.as_str() {
                "prometheus" if question.path == "/metrics" => Ok(Review::Allowed),
                "prometheus" => Ok(Review::Forbidden("system:serviceaccount:monitoring:prometheus".to_owned())),
                "broken" => Err("no connection".to_owned()),
                _ => Ok(Review::Unknown),
            };
            asked.push(format!("{} {}", question.token, question.path));
            question.answer.send(review).unwrap();
        }
        asked
    });
    let guard = guard(true, true, Some(reviewer));
    let admit =
        async |token: &str, path| guard.admit(&Method::GET, &headers(Some(&format!("Bearer {token}"))), path).await;
    for _ in 0..3 {
        assert_eq!(admit("prometheus", "/metrics").await, Admission::Granted);
        let forbidden = Admission::Forbidden("system:serviceaccount:monitoring:prometheus".to_owned());
        assert_eq!(admit("prometheus", "/summary").await, forbidden);
        assert_eq!(admit("somebody", "/metrics").await, Admission::Unknown);
        assert_eq!(admit("broken", "/metrics").await, Admission::Later("no connection".to_owned()));
        assert_eq!(admit(GOOD, "/metrics").await, Admission::Granted, "of the file");
    }
    // Invented tokens reach the rate limit; known tokens are still admitted.
    let mut put_off = 0;
    for number in 0..200 {
        let admission = admit(&format!("made-up-{number}"), "/metrics").await;
        put_off += usize::from(matches!(admission, Admission::Later(_)));
    }
    assert!(put_off > 150, "{put_off}");
    assert_eq!(admit("prometheus", "/metrics").await, Admission::Granted);
    assert!(guard.known.lock().unwrap().answers.len() <= KEPT);
    // A positive review that is no longer fresh stays valid while it cannot be repeated.
    for answer in &mut guard.known.lock().unwrap().answers {
        answer.until = Instant::now();
    }
    while !matches!(admit("made-up", "/metrics").await, Admission::Later(_)) {
        guard.known.lock().unwrap().answers.retain(|it| it.token != "made-up");
    }
    assert_eq!(admit("prometheus", "/metrics").await, Admission::Granted);
    for answer in &mut guard.known.lock().unwrap().answers {
        answer.at_most = Instant::now();
    }
    assert!(matches!(admit("prometheus", "/metrics").await, Admission::Later(_)));
    drop(guard);
    let asked = server.await.unwrap();
    let times = |what: &str| asked.iter().filter(|it| *it == what).count();
    assert_eq!((times("prometheus /metrics"), times("prometheus /summary"), times("somebody /metrics")), (1, 1, 1));
    assert_eq!(times("broken /metrics"), 3, "what could not be found out is not remembered");
    assert!(asked.len() < 40, "{}", asked.len());
}

#[tokio::test]
async fn without_an_api_server_no_review_admits_a_request() {
    let guard = guard(false, true, None);
    let admission = guard.admit(&Method::GET, &headers(Some("Bearer whatever-it-may-be")), "/metrics").await;
    assert_eq!(admission, Admission::Later("there is no API server to review it".to_owned()));
    assert_eq!(guard.admit(&Method::GET, &headers(None), "/healthz").await, Admission::Granted);
}

#[tokio::test]
async fn a_browsers_session_reads_and_does_nothing_else() {
    let guard = guard(true, false, None);
    let code = guard.sessions.code(Instant::now()).unwrap();
    let cookie = guard.sessions.redeem(&code, false, Instant::now()).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(header::COOKIE, HeaderValue::from_str(cookie.split(';').next().unwrap()).unwrap());
    assert_eq!(guard.admit(&Method::GET, &headers, "/api/v1/watch").await, Admission::Granted);
    assert_eq!(guard.admit(&Method::POST, &headers, "/api/v1/open").await, Admission::NoToken);
    assert_eq!(guard.admit(&Method::GET, &HeaderMap::new(), "/open").await, Admission::Granted, "its code is checked");
}
