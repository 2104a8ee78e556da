//! Who may read what is served: health is everybody's, all else is whose token is good, where tokens are asked for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio_rustls::rustls::ServerConfig;

use super::material::Current;
use crate::cluster::{Review, Reviewer};
use crate::config::serving_options::ServingOptions;
use crate::report::RateLimiter;
use crate::units::Monotonic;

/// What probes ask without a token: it tells how the agent is, and nothing of the workloads.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];
/// For so long an answer of the API server is believed.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// For so long a yes is believed while the API server cannot be asked again, because others ask too much or it does not answer: a scraper
/// does not go blind because somebody makes up tokens.
const ALLOWED_AT_MOST: Duration = Duration::from_secs(300);
/// A right that was just granted is to be had soon.
const DENIED_FOR: Duration = Duration::from_secs(10);
/// Answers that are kept: a few scrapers, and a few paths.
const KEPT: usize = 64;
/// Whoever makes up tokens must not have the API server asked all day: so many at once, and one in each while.
const REVIEWS_AT_ONCE: u32 = 16;
const REVIEW_EVERY: Duration = Duration::from_millis(200);

/// Stands at the door.
#[derive(Debug)]
pub struct Guard {
    options: ServingOptions,
    material: Arc<Current>,
    reviewer: Option<Reviewer>,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    answers: Vec<Answer>,
    limiter: RateLimiter,
}

/// What was said of a token.
#[derive(Debug)]
struct Answer {
    token: String,
    path: String,
    review: Review,
    /// From then on it is asked for again.
    until: Instant,
    /// From then on it is not believed, even where it cannot be asked for.
    at_most: Instant,
}

/// Whether somebody may come in.
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Granted,
    NoToken,
    Unknown,
    Forbidden(String),
    /// It cannot be told now.
    Later(String),
}

impl Default for Guard {
    /// Everybody may, and nothing is encrypted.
    fn default() -> Self {
        Self::new(ServingOptions::default(), Arc::default(), None)
    }
}

impl Guard {
    /// By these files, and by the API server where there is one to ask.
    #[must_use]
    pub fn new(options: ServingOptions, material: Arc<Current>, reviewer: Option<Reviewer>) -> Self {
        let limiter = RateLimiter::new(REVIEWS_AT_ONCE, REVIEW_EVERY);
        let reviewer = reviewer.filter(|_| options.token_review);
        Self { options, material, reviewer, known: Mutex::new(Known { answers: Vec::new(), limiter }) }
    }

    /// What connections are encrypted by, if they are.
    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.material.get().tls.clone()
    }

    async fn admit(&self, headers: &HeaderMap, path: &str) -> Admission {
        if OPEN.contains(&path) || !self.options.asks_for_token() {
            return Admission::Granted;
        }
        let Some(token) = bearer(headers) else { return Admission::NoToken };
        // All of them are compared, in the same time for each.
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
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.note(token, path, review.clone(), now);
        Ok(review)
    }
}

impl Known {
    /// What was said of this token, and whether that is still fresh.
    fn recall(&mut self, token: &str, path: &str, now: Instant) -> Option<(Review, bool)> {
        self.answers.retain(|answer| now < answer.at_most);
        let answer = self.answers.iter().find(|it| it.path == path && is_same(&it.token, token))?;
        Some((answer.review.clone(), now < answer.until))
    }

    /// Keeps it in the place of what was said before.
    fn note(&mut self, token: &str, path: &str, review: Review, now: Instant) {
        self.answers.retain(|it| it.path != path || !is_same(&it.token, token));
        if self.answers.len() >= KEPT {
            // Those who may not come in are never so many that they push out those who may.
            let oldest = self.answers.iter().position(|it| it.review != Review::Allowed).unwrap_or(0);
            self.answers.remove(oldest);
        }
        let (fresh, at_most) =
            if review == Review::Allowed { (ALLOWED_FOR, ALLOWED_AT_MOST) } else { (DENIED_FOR, DENIED_FOR) };
        let (token, path) = (token.to_owned(), path.to_owned());
        self.answers.push(Answer { token, path, review, until: now + fresh, at_most: now + at_most });
    }
}

/// Lets requests through, or says why not.
pub(super) async fn stand(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.admit(request.headers(), request.uri().path()).await {
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

/// The token of `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Compares in a time that tells nothing of where they differ.
fn is_same(good: &str, given: &str) -> bool {
    let difference = good.bytes().zip(given.bytes()).fold(0, |difference, (a, b)| difference | (a ^ b));
    good.len() == given.len() && std::hint::black_box(difference) == 0
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
