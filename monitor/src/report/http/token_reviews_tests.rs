use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn peer(number: u8) -> Peer {
    Peer::of([10, 0, 0, number].into())
}

/// Answers questions until the reviews are dropped. Returns what was asked.
fn api_server(is_down: Arc<AtomicBool>) -> (TokenReviews, tokio::task::JoinHandle<Vec<String>>) {
    let (reviewer, mut questions) = Reviewer::new();
    let server = tokio::spawn(async move {
        let mut asked = Vec::new();
        while let Some(question) = questions.recv().await {
            let review = match question.token.as_str() {
                _ if is_down.load(Ordering::Relaxed) => Err("no connection".to_owned()),
                "prometheus" if question.path == "/metrics" => Ok(Review::Allowed),
                "prometheus" => Ok(Review::Forbidden("system:serviceaccount:monitoring:prometheus".to_owned())),
                "broken" => Err("no connection".to_owned()),
                _ => Ok(Review::Unknown),
            };
            assert_eq!(question.audiences, ["monitor"]);
            asked.push(format!("{} {}", question.token, question.path));
            question.answer.send(review).unwrap();
        }
        asked
    });
    let options = ServingOptions { audiences: vec!["monitor".to_owned()], ..ServingOptions::default() };
    (TokenReviews::new(&options, Some(reviewer)), server)
}

#[tokio::test]
async fn each_token_and_path_is_reviewed_once() {
    let (reviews, server) = api_server(Arc::default());
    for _ in 0..3 {
        let review = async |token: &str, path| reviews.review(peer(1), token, path).await;
        assert_eq!(review("prometheus", "/metrics").await, Ok(Review::Allowed));
        let forbidden = Review::Forbidden("system:serviceaccount:monitoring:prometheus".to_owned());
        assert_eq!(review("prometheus", "/summary").await, Ok(forbidden));
        assert_eq!(review("somebody", "/metrics").await, Ok(Review::Unknown));
        assert_eq!(review("broken", "/metrics").await, Err("no connection".to_owned()));
    }
    drop(reviews);
    let asked = server.await.unwrap();
    let times = |what: &str| asked.iter().filter(|it| *it == what).count();
    assert_eq!((times("prometheus /metrics"), times("prometheus /summary"), times("somebody /metrics")), (1, 1, 1));
    assert_eq!(times("broken /metrics"), 3, "what could not be found out is not remembered");
}

#[tokio::test]
async fn invented_tokens_lock_out_neither_a_known_token_nor_another_peer() {
    let is_down = Arc::new(AtomicBool::new(false));
    let (reviews, server) = api_server(Arc::clone(&is_down));
    assert_eq!(reviews.review(peer(1), "prometheus", "/metrics").await, Ok(Review::Allowed));
    let mut put_off = 0;
    for number in 0..200 {
        put_off += usize::from(reviews.review(peer(2), &format!("made-up-{number}"), "/metrics").await.is_err());
    }
    assert!(put_off > 150, "{put_off}");
    assert_eq!(reviews.review(peer(3), "another", "/metrics").await, Ok(Review::Unknown), "it is reviewed");
    assert!(lock(&reviews.known).answers.len() <= KEPT);
    let grow_old = || lock(&reviews.known).answers.iter_mut().for_each(|answer| answer.until = Instant::now());
    grow_old();
    assert_eq!(reviews.review(peer(1), "prometheus", "/metrics").await, Ok(Review::Allowed), "it is renewed");
    assert!(matches!(lock(&reviews.known).recall("prometheus", "/metrics", Instant::now()), Some((_, true))));
    // While the API server is down, a positive review stays valid for a while.
    is_down.store(true, Ordering::Relaxed);
    grow_old();
    assert_eq!(reviews.review(peer(1), "prometheus", "/metrics").await, Ok(Review::Allowed));
    lock(&reviews.known).answers.clear();
    assert!(reviews.review(peer(1), "prometheus", "/metrics").await.is_err());
    drop(reviews);
    let asked = server.await.unwrap();
    assert_eq!(asked.iter().filter(|it| *it == "prometheus /metrics").count(), 4);
}

#[test]
fn three_parts_with_a_header_in_json_are_a_jwt() {
    for (name, token, expected) in [
        ("a service account's", "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJhIn0.c2lnbmVk", true),
        ("of OpenShift's OAuth server", "sha256~Tq3ZcZ2bPuK0XbV9L8yZCk3mI0cT5oP1yQ2s3u4v5wX", false),
        ("random", "0123456789abcdef0123456789abcdef", false),
        ("a header that is no object", "IngiCg.eyJzdWIiOiJhIn0.c2lnbmVk", false),
        ("a header that is no base64", "!!!.eyJzdWIiOiJhIn0.c2lnbmVk", false),
        ("not signed", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.", false),
        ("two parts", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0", false),
        ("four parts", "eyJhbGciOiJSUzI1NiJ9.e30.e30.e30", false),
    ] {
        assert_eq!(is_jwt(token), expected, "{name}");
    }
}
