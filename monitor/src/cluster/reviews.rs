//! Reviews of bearer tokens: the API server says whose a token is and whether its bearer may read a path, as it does for the kubelet.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::context::Context;

/// Questions that may wait; further ones fail.
const WAITING: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Review {
    Allowed,
    /// The token is invalid or has expired.
    Unknown,
    /// This user may not read the path.
    Forbidden(String),
}

#[derive(Debug)]
pub struct Question {
    pub token: String,
    /// As in `nonResourceURLs`.
    pub path: String,
    pub answer: oneshot::Sender<Result<Review, String>>,
}

/// Sends questions to the working thread.
#[derive(Debug, Clone)]
pub struct Reviewer(mpsc::Sender<Question>);

impl Reviewer {
    /// Returns a reviewer, and the other end of its questions.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Question>) {
        let (ask, questions) = mpsc::channel(WAITING);
        (Self(ask), questions)
    }

    /// Asks whether the bearer of this token may read the path.
    ///
    /// # Errors
    /// When the API server does not answer in time, or too many questions wait.
    pub async fn review(&self, token: &str, path: &str) -> Result<Review, String> {
        let (answer, answered) = oneshot::channel();
        let question = Question { token: token.to_owned(), path: path.to_owned(), answer };
        self.0.try_send(question).map_err(|_| "too many tokens wait to be reviewed".to_owned())?;
        match timeout(TIMEOUT, answered).await {
            Ok(Ok(review)) => review,
            Ok(Err(_)) => Err("the thread that talks to the API server has ended".to_owned()),
            Err(_) => Err(late()),
        }
    }
}

/// Answers the questions one by one.
pub(super) async fn answer(context: &Context, mut questions: mpsc::Receiver<Question>) {
    while let Some(Question { token, path, answer }) = questions.recv().await {
        if answer.is_closed() {
            continue;
        }
        let reviewed = timeout(TIMEOUT, review(&context.client, token, path)).await;
        let _gave_up = answer.send(reviewed.unwrap_or_else(|_| Err(late())));
    }
}

fn late() -> String {
    format!("the API server has not answered within {} s", TIMEOUT.as_secs())
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
    // An authorizer may say both; a denial counts.
    let is_allowed = status.allowed && status.denied != Some(true);
    Ok(if is_allowed { Review::Allowed } else { Review::Forbidden(name) })
}
