//! Authorization of HTTP requests. Health endpoints are open; with tokens configured, every other path requires a valid one.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio_rustls::rustls::ServerConfig;

use super::browser_sessions::{self, BrowserSessions};
use super::material::Current;
use super::secrets::is_same;
use crate::cluster::{Review, Reviewer};
use crate::config::serving_options::ServingOptions;
use crate::report::RateLimiter;
use crate::units::{Monotonic, lock};

/// Paths that need no token: kubelet probes have none, and these paths show nothing about workloads.
const OPEN: [&str; 3] = ["/healthz", "/readyz", browser_sessions::LINK];
/// A positive review is used without a new review for this time.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// A positive review is used for this time while a new review is impossible: the rate limit is reached, or the API server is down.
/// Requests with invented tokens must not lock out a scraper.
const ALLOWED_AT_MOST: Duration = Duration::from_secs(300);
/// A negative review is used for this time. A short time lets a newly granted right take effect soon.
const DENIED_FOR: Duration = Duration::from_secs(10);
/// Maximum number of cached reviews. A node has a few scrapers, and each reads a few paths.
const KEPT: usize = 64;
/// Burst of token reviews. The rate limit protects the API server from clients that invent tokens.
const REVIEWS_AT_ONCE: u32 = 16;
/// After the burst, one review is sent per this interval.
const REVIEW_EVERY: Duration = Duration::from_millis(200);

/// Authorizes HTTP requests by token file or by TokenReview.
#[derive(Debug)]
pub struct Guard {
    options: ServingOptions,
    material: Arc<Current>,
    reviewer: Option<Reviewer>,
    known: Mutex<Known>,
    /// Browsers that may read without a token.
    pub(super) sessions: BrowserSessions,
}

#[derive(Debug)]
struct Known {
    answers: Vec<Answer>,
    limiter: RateLimiter,
}

/// A cached review of a token for a path.
#[derive(Debug)]
struct Answer {
    token: String,
    path: String,
    review: Review,
    /// The review is repeated from this time on.
    until: Instant,
    /// The review is discarded at this time, even if it cannot be repeated.
    at_most: Instant,
}

/// The decision about a request.
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Granted,
    NoToken,
    Unknown,
    Forbidden(String),
    /// The token cannot be reviewed at the moment.
    Later(String),
}

impl Default for Guard {
    /// Returns a guard that admits every request, without TLS.
    fn default() -> Self {
        Self::new(ServingOptions::default(), Arc::default(), None)
    }
}

impl Guard {
    /// Creates a guard. `reviewer` is used only if the options enable token review.
    pub fn new(options: ServingOptions, material: Arc<Current>, reviewer: Option<Reviewer>) -> Self {
        let limiter = RateLimiter::new(REVIEWS_AT_ONCE, REVIEW_EVERY);
        let reviewer = reviewer.filter(|_| options.token_review);
        Self {
            options,
            material,
            reviewer,
            known: Mutex::new(Known { answers: Vec::new(), limiter }),
            sessions: BrowserSessions::default(),
        }
    }

    /// Returns the TLS configuration, or `None` for plain HTTP.
    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.material.get().tls.clone()
    }

    async fn admit(&self, method: &Method, headers: &HeaderMap, path: &str) -> Admission {
        if OPEN.contains(&path) || !self.options.asks_for_token() {
            return Admission::Granted;
        }
        let Some(token) = bearer(headers) else {
            let may_read = method == Method::GET && self.sessions.has(headers, Instant::now());
            return if may_read { Admission::Granted } else { Admission::NoToken };
        };
        // Compare with every token: the response time must not show which one matched.
        let is_good = self.material.get().tokens.iter().fold(false, |found, good| found | is_same(good, token));
        if is_good {
            return Admission::Granted;
        }
        if !self.options.token_review {
            return Admission::Unknown;
        }
        match self.review(token, path).await {
            Ok(Review::Allowed) => Admission::Granted,
            Ok(Review::Unknown) => Admission::Unknown,
            Ok(Review::Forbidden(name)) => Admission::Forbidden(name),
            Err(reason) => Admission::Later(reason),
        }
    }

    async fn review(&self, token: &str, path: &str) -> Result<Review, String> {
        let Some(reviewer) = &self.reviewer else {
            return Err("there is no API server to review it".to_owned());
        };
        let now = Instant::now();
        let last = {
            let mut known = lock(&self.known);
            match known.recall(token, path, now) {
                Some((review, true)) => return Ok(review),
                old => {
                    let last = old.map(|(review, _)| review);
                    if known.limiter.admit(Monotonic::now()).is_none() {
                        return last.ok_or_else(|| "too many tokens are to be reviewed".to_owned());
                    }
                    last
                }
            }
        };
        let review = match (reviewer.review(token, path).await, last) {
            (Ok(review), _) => review,
            (Err(_), Some(last)) => return Ok(last),
            (Err(reason), None) => return Err(reason),
        };
        let mut known = lock(&self.known);
        known.note(token, path, review.clone(), now);
        Ok(review)
    }
}

impl Known {
    /// Returns the cached review of this token for this path, and whether it is fresh.
    fn recall(&mut self, token: &str, path: &str, now: Instant) -> Option<(Review, bool)> {
        self.answers.retain(|answer| now < answer.at_most);
        let answer = self.answers.iter().find(|it| it.path == path && is_same(&it.token, token))?;
        Some((answer.review.clone(), now < answer.until))
    }

    /// Caches a review and replaces an earlier one of the same token and path.
    fn note(&mut self, token: &str, path: &str, review: Review, now: Instant) {
        self.answers.retain(|it| it.path != path || !is_same(&it.token, token));
        if self.answers.len() >= KEPT {
            // Evict a negative review first: invented tokens must not push out valid ones.
            let oldest = self.answers.iter().position(|it| it.review != Review::Allowed).unwrap_or(0);
            self.answers.remove(oldest);
        }
        let (fresh, at_most) =
            if review == Review::Allowed { (ALLOWED_FOR, ALLOWED_AT_MOST) } else { (DENIED_FOR, DENIED_FOR) };
        let (token, path) = (token.to_owned(), path.to_owned());
        self.answers.push(Answer { token, path, review, until: now + fresh, at_most: now + at_most });
    }
}

/// Passes an authorized request on. Answers any other one with 401, 403 or 503 and the reason.
pub(super) async fn authorize(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.admit(request.method(), request.headers(), request.uri().path()).await {
        Admission::Granted => next.run(request).await,
        Admission::NoToken => unauthorized("a bearer token is asked for; /healthz and /readyz need none\n"),
        Admission::Unknown => unauthorized("this bearer token is not known, or has expired\n"),
        Admission::Forbidden(name) => {
            let text = format!(
                "{name} may not read this: grant the verb get on nonResourceURLs [\"{}\"]\n",
                request.uri().path()
            );
            (StatusCode::FORBIDDEN, text).into_response()
        }
        Admission::Later(reason) => {
            let text = format!("the bearer token cannot be checked now: {reason}\n");
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")], text).into_response()
        }
    }
}

fn unauthorized(text: &'static str) -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
    (StatusCode::UNAUTHORIZED, challenge, text).into_response()
}

/// Returns the token of `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
