//! Whose a bearer token is, and what that one may read: the API server is asked, as the kubelet and others ask it.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::api_threads::Context;

/// Questions that may wait; who asks more is told to come again.
const WAITING: usize = 16;
/// A scraper does not wait longer.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the API server says of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Review {
    /// Its bearer may read the path.
    Allowed,
    /// It is nobody's, or has expired.
    Unknown,
    /// It is this one's, who may not.
    Forbidden(String),
}

/// A question on its way.
#[derive(Debug)]
pub struct Question {
    /// The token.
    pub token: String,
    /// What is to be read, as `nonResourceURLs` name it.
    pub path: String,
    /// Where the answer is waited for.
    pub answer: oneshot::Sender<Result<Review, String>>,
}

/// Who asks.
#[derive(Debug, Clone)]
pub struct Reviewer(mpsc::Sender<Question>);

impl Reviewer {
    /// One, and where its questions come out.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Question>) {
        let (ask, questions) = mpsc::channel(WAITING);
        (Self(ask), questions)
    }

    /// Asks whether the bearer of this token may read the path.
    ///
    /// # Errors
    /// Why that could not be found out.
    pub async fn review(&self, token: &str, path: &str) -> Result<Review, String> {
        let (answer, answered) = oneshot::channel();
        let question = Question { token: token.to_owned(), path: path.to_owned(), answer };
        self.0.try_send(question).map_err(|_| "too many tokens wait to be reviewed".to_owned())?;
        match timeout(PATIENCE, answered).await {
            Ok(Ok(review)) => review,
            Ok(Err(_)) => Err("the thread that speaks to the API server has ended".to_owned()),
            Err(_) => Err(format!("the API server has not answered within {} s", PATIENCE.as_secs())),
        }
    }
}

/// Answers one question after the other.
pub(super) async fn answer(context: &Context, mut questions: mpsc::Receiver<Question>) {
    while let Some(Question { token, path, answer }) = questions.recv().await {
        if answer.is_closed() {
            continue;
        }
        let reviewed = timeout(PATIENCE, review(&context.client, token, path)).await;
        let late = |_| Err(format!("the API server has not answered within {} s", PATIENCE.as_secs()));
        // Who gave up waiting has been answered.
        let _gave_up = answer.send(reviewed.unwrap_or_else(late));
    }
}

async fn review(client: &kube::Client, token: String, path: String) -> Result<Review, String> {
    let refused = |what: &str, error: kube::Error| {
        format!("{what}: {error}; the agent's service account needs the cluster role system:auth-delegator")
    };
    let params = PostParams::default();
    let spec = TokenReviewSpec { token, audiences: None };
    let asked = TokenReview { spec, ..TokenReview::default() };
    let reviewed = Api::<TokenReview>::all(client.clone()).create(&params, &asked).await;
    let status = reviewed.map_err(|error| refused("TokenReview", error))?.status.unwrap_or_default();
    let user = match status.user {
        Some(user) if status.authenticated == Some(true) => user,
        Some(_) | None => return Ok(Review::Unknown),
    };
    let UserInfo { extra, groups, uid, username } = user;
    let name = username.clone().unwrap_or_default();
    let spec = SubjectAccessReviewSpec {
        extra,
        groups,
        non_resource_attributes: Some(NonResourceAttributes { path: Some(path), verb: Some("get".to_owned()) }),
        uid,
        user: username,
        ..SubjectAccessReviewSpec::default()
    };
    let asked = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviewed = Api::<SubjectAccessReview>::all(client.clone()).create(&params, &asked).await;
    let status = reviewed.map_err(|error| refused("SubjectAccessReview", error))?.status.unwrap_or_default();
    // Denied outweighs allowed, where an authorizer says both.
    let is_allowed = status.allowed && status.denied != Some(true);
    Ok(if is_allowed { Review::Allowed } else { Review::Forbidden(name) })
}
