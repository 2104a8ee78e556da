//! Reviews of bearer tokens by the API server: kept for a while, and within budgets.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;

use super::connections::Peer;
use super::review_budgets::ReviewBudgets;
use super::secrets::is_same;
use crate::cluster::{Review, Reviewer, Turn};
use crate::config::serving_options::ServingOptions;
use crate::units::{Monotonic, lock};

/// A positive review is used without a new review for this time.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// A positive review is used for this time while a new review is impossible, because the API server is down.
const ALLOWED_AT_MOST: Duration = Duration::from_secs(300);
/// A negative review is used for this time. A short time lets a newly granted right take effect soon.
const DENIED_FOR: Duration = Duration::from_secs(10);
/// Maximum number of cached reviews. A node has a few scrapers, and each reads a few paths.
const KEPT: usize = 64;

#[derive(Debug)]
pub(super) struct TokenReviews {
    reviewer: Option<Reviewer>,
    audiences: Vec<String>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    answers: Vec<Answer>,
    budgets: ReviewBudgets,
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

/// What is to be done about a token.
enum Step {
    Use(Review),
    /// The review before stays good while the API server does not answer.
    Renew(Review),
    Ask(OwnedSemaphorePermit),
}

impl TokenReviews {
    pub(super) fn new(options: &ServingOptions, reviewer: Option<Reviewer>) -> Self {
        Self { reviewer, audiences: options.audiences.clone(), known: Mutex::default() }
    }

    /// Returns whether the bearer of this token may read the path.
    ///
    /// # Errors
    /// The reason why that cannot be found out now.
    pub(super) async fn review(&self, peer: Peer, token: &str, path: &str) -> Result<Review, String> {
        let Some(reviewer) = &self.reviewer else {
            return Err("there is no API server to review it".to_owned());
        };
        let now = Instant::now();
        let step = lock(&self.known).step(peer, token, path, now)?;
        let review = match step {
            Step::Use(review) => return Ok(review),
            Step::Renew(last) => match reviewer.review(token, &self.audiences, path, Turn::Renewal).await {
                Ok(review) => review,
                Err(_) => return Ok(last),
            },
            Step::Ask(_under_way) => reviewer.review(token, &self.audiences, path, Turn::First).await?,
        };
        lock(&self.known).note(token, path, review.clone(), now);
        Ok(review)
    }
}

impl Known {
    fn step(&mut self, peer: Peer, token: &str, path: &str, now: Instant) -> Result<Step, String> {
        let at = Monotonic::now();
        Ok(match self.recall(token, path, now) {
            // Only a positive review is kept after it was fresh.
            Some((review, is_fresh)) if is_fresh || !self.budgets.admits_renewal(at) => Step::Use(review),
            Some((review, _)) => Step::Renew(review),
            None => {
                let right = self.budgets.admit_first(peer, at);
                Step::Ask(right.ok_or_else(|| "too many tokens are to be reviewed".to_owned())?)
            }
        })
    }

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

/// Whether the token has the form of a JWT: a header in JSON, claims and a signature, in base64url (RFC 7515).
pub(super) fn is_jwt(token: &str) -> bool {
    let parts: Option<Vec<Vec<u8>>> = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).ok()).collect();
    let Some([header, claims, signature]) = parts.as_deref() else { return false };
    serde_json::from_slice::<Map<String, Value>>(header).is_ok() && !claims.is_empty() && !signature.is_empty()
}

#[cfg(test)]
#[path = "token_reviews_tests.rs"]
mod tests;
