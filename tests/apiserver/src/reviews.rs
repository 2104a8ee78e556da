//! Requests that store no object: reviews of tokens and of access, and tokens of service accounts.

use std::sync::Arc;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::access::{User, Wish, allows};
use crate::answer::{Failure, Reply, json as reply};
use crate::api::{Api, Call};
use crate::lists::existing;
use crate::object::{at, new_uid, text};

pub(crate) fn answer(api: &Arc<Api>, kind: &str, user: &User, body: &[u8]) -> Result<Reply, Failure> {
    let mut review: Value = serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the body of the request cannot be read: {error}")))?;
    let group = match kind {
        "tokenreviews" => "authentication.k8s.io",
        "subjectaccessreviews" | "selfsubjectaccessreviews" => "authorization.k8s.io",
        _ => return Err(Failure::no_such_resource()),
    };
    let wish = Wish { verb: "create", group, plural: kind, ..Wish::default() };
    let store = api.store();
    if !allows(&store, user, &wish) {
        let mut failure = Failure::forbidden_path("");
        failure.message = format!("{kind}.{group} is forbidden: {}", wish.refusal(user));
        failure.details = Some(json!({"group": group, "kind": kind}));
        return Err(failure);
    }
    review["status"] = match kind {
        "tokenreviews" => match api.access().user_of(text(&review, "/spec/token")) {
            Some(user) => json!({
                "authenticated": true,
                "user": {"username": user.name, "uid": user.uid, "groups": user.groups},
            }),
            None => json!({"user": {}, "error": "[invalid bearer token, token lookup failed]"}),
        },
        "subjectaccessreviews" => {
            let groups = review["spec"]["groups"].as_array().into_iter().flatten();
            let groups = groups.filter_map(|group| group.as_str().map(str::to_owned)).collect();
            let name = text(&review, "/spec/user").to_owned();
            verdict(allows_review(api, &store, &User { name, uid: String::new(), groups }, &review))
        }
        _ => verdict(allows_review(api, &store, user, &review)),
    };
    Ok(reply(StatusCode::CREATED, &review))
}

fn verdict(allowed: bool) -> Value {
    if allowed { json!({"allowed": true, "reason": "granted"}) } else { json!({"allowed": false}) }
}

fn allows_review(api: &Api, store: &crate::store::Store, user: &User, review: &Value) -> bool {
    if let path @ [_, ..] = text(review, "/spec/nonResourceAttributes/path").as_bytes() {
        let path = String::from_utf8_lossy(path);
        let verb = text(review, "/spec/nonResourceAttributes/verb").to_uppercase();
        let method = http::Method::from_bytes(verb.as_bytes()).unwrap_or(http::Method::GET);
        return api.access().authorize_path(store, user, &method, &path).is_ok();
    }
    let attribute = |name: &str| text(&review["spec"]["resourceAttributes"], &format!("/{name}")).to_owned();
    let (verb, group, plural) = (attribute("verb"), attribute("group"), attribute("resource"));
    let (part, namespace, name) = (attribute("subresource"), attribute("namespace"), attribute("name"));
    let wish = Wish { verb: &verb, group: &group, plural: &plural, part: &part, namespace: &namespace, name: &name };
    allows(store, user, &wish)
}

/// Answers POST `serviceaccounts/NAME/token`.
pub(crate) fn token(api: &Arc<Api>, call: &Call) -> Result<Reply, Failure> {
    let account = existing(&api.store(), &call.target)?;
    let mut request = call.object()?;
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
    let token = format!("test-token-{}", new_uid());
    let expires = Timestamp::now().checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    let user = User::service_account(&call.target.namespace, &call.target.name, text(&account, "/metadata/uid"));
    api.access().add_token(&token, user);
    request["status"] = json!({"token": token, "expirationTimestamp": at(expires)});
    Ok(reply(StatusCode::CREATED, &request))
}
