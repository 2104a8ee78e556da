//! Reviews of bearer tokens: the API server says whose a token is and whether its bearer may read a path, as it does for the kubelet.

use std::time::Duration;

use kube::api::PostParams;
use kube::core::Request;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::api_call::{Failure, call};
use super::api_client::Context;

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
    /// The audiences of which the token must have one; none: that of the API server.
    pub audiences: Vec<String>,
    /// As in `nonResourceURLs`.
    pub path: String,
    pub answer: oneshot::Sender<Result<Review, String>>,
}

/// Whether an earlier review has allowed the token to read the path. Renewals overtake first reviews, because anybody can invent tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Renewal,
    First,
}

/// Sends questions to the working thread.
#[derive(Debug, Clone)]
pub struct Reviewer {
    renewals: mpsc::Sender<Question>,
    first: mpsc::Sender<Question>,
}

/// The questions, in the order in which they are to be answered.
#[derive(Debug)]
pub struct Questions {
    renewals: mpsc::Receiver<Question>,
    first: mpsc::Receiver<Question>,
}

impl Questions {
    pub async fn recv(&mut self) -> Option<Question> {
        tokio::select! {
            biased;
            question = self.renewals.recv() => question,
            question = self.first.recv() => question,
        }
    }
}

impl Reviewer {
    /// Returns a reviewer, and the other end of its questions.
    pub fn new() -> (Self, Questions) {
        let ((renewals, asked_again), (first, asked)) = (mpsc::channel(WAITING), mpsc::channel(WAITING));
        (Self { renewals, first }, Questions { renewals: asked_again, first: asked })
    }

    /// Asks whether the bearer of this token may read the path.
    ///
    /// # Errors
    /// When the API server does not answer in time, or too many questions wait.
    pub async fn review(&self, token: &str, audiences: &[String], path: &str, turn: Turn) -> Result<Review, String> {
        let (answer, answered) = oneshot::channel();
        let question =
            Question { token: token.to_owned(), audiences: audiences.to_vec(), path: path.to_owned(), answer };
        let questions = if turn == Turn::Renewal { &self.renewals } else { &self.first };
        questions.try_send(question).map_err(|_| "too many tokens wait to be reviewed".to_owned())?;
        match timeout(TIMEOUT, answered).await {
            Ok(Ok(review)) => review,
            Ok(Err(_)) => Err("the thread that talks to the API server has ended".to_owned()),
            Err(_) => Err(late()),
        }
    }
}

pub(super) async fn answer(context: &Context, mut questions: Questions) {
    while let Some(Question { token, audiences, path, answer }) = questions.recv().await {
        if answer.is_closed() {
            continue;
        }
        let reviewed = timeout(TIMEOUT, review(&context.client, &token, &audiences, &path)).await;
        let _gave_up = answer.send(reviewed.unwrap_or_else(|_| Err(late())));
    }
}

fn late() -> String {
    format!("the API server has not answered within {} s", TIMEOUT.as_secs())
}

async fn review(client: &kube::Client, token: &str, audiences: &[String], path: &str) -> Result<Review, String> {
    let mut spec = json!({"token": token});
    if !audiences.is_empty() {
        spec["audiences"] = json!(audiences);
    }
    let reviewed = create_as_delegate(client, "authentication.k8s.io", "TokenReview", spec).await?;
    let user = &reviewed["status"]["user"];
    if reviewed["status"]["authenticated"] != true || user.is_null() || !is_meant(&reviewed, audiences) {
        return Ok(Review::Unknown);
    }
    let spec = json!({
        "user": user["username"], "groups": user["groups"], "uid": user["uid"], "extra": user["extra"],
        "nonResourceAttributes": {"path": path, "verb": "get"},
    });
    let reviewed = create_as_delegate(client, "authorization.k8s.io", "SubjectAccessReview", spec).await?;
    let name = || user["username"].as_str().unwrap_or_default().to_owned();
    Ok(if is_allowed(&reviewed) { Review::Allowed } else { Review::Forbidden(name()) })
}

async fn create_as_delegate(client: &kube::Client, group: &str, kind: &str, spec: Value) -> Result<Value, String> {
    create(client, group, kind, spec).await.map_err(|failure| {
        format!("{kind}: {failure}; the agent's service account needs the cluster role system:auth-delegator")
    })
}

/// Whether the token is meant for one of these audiences. An authenticator that knows no audiences answers none: such a token is refused.
fn is_meant(reviewed: &Value, audiences: &[String]) -> bool {
    let answered = reviewed["status"]["audiences"].as_array();
    let has = |wanted: &String| answered.is_some_and(|all| all.iter().any(|it| it.as_str() == Some(wanted)));
    audiences.is_empty() || audiences.iter().any(has)
}

/// Returns whether an access review grants the access.
pub(super) fn is_allowed(reviewed: &Value) -> bool {
    // An authorizer may say both; a denial counts.
    reviewed["status"]["allowed"] == true && reviewed["status"]["denied"] != true
}

/// Creates a review, which the API server answers with its status filled in.
pub(super) async fn create(client: &kube::Client, group: &str, kind: &str, spec: Value) -> Result<Value, Failure> {
    let body = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec}).to_string().into_bytes();
    let reviews = Request::new(format!("/apis/{group}/v1/{}s", kind.to_ascii_lowercase()));
    call(client, reviews.create(&PostParams::default(), body), TIMEOUT).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_must_name_a_configured_audience() {
        let answer = |audiences: Value| json!({"status": {"authenticated": true, "audiences": audiences}});
        let own = ["monitor".to_owned(), "metrics".to_owned()];
        for (name, reviewed, wanted, expected) in [
            ("none is configured", answer(Value::Null), &own[..0], true),
            ("one of two", answer(json!(["metrics"])), &own[..], true),
            ("that of the API server", answer(json!(["https://kubernetes.default.svc"])), &own[..], false),
            ("an authenticator without audiences", answer(Value::Null), &own[..], false),
            ("no audience", answer(json!([])), &own[..], false),
        ] {
            assert_eq!(is_meant(&reviewed, wanted), expected, "{name}");
        }
    }
}
