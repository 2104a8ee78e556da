//! Answers: objects, and `Status` objects of refusals in the real server's words.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::resource::Resource;

pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;
pub type Reply = Response<Body>;

#[must_use]
pub fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

#[must_use]
pub fn json(code: StatusCode, value: &Value) -> Reply {
    with_type(code, "application/json", value.to_string())
}

/// Returns plain text, for endpoints that serve no objects.
#[must_use]
pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Reply {
    with_type(code, "text/plain; charset=utf-8", text)
}

/// Returns a proxy's error page.
#[must_use]
pub fn page(code: u16) -> Reply {
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_type(code, "text/html", format!("<html><body><h1>{code}</h1></body></html>\n"))
}

fn with_type(code: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(whole(body));
    *reply.status_mut() = code;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

/// A refusal, with the content of its `Status` object.
#[derive(Debug, Clone)]
pub struct Failure {
    pub code: StatusCode,
    /// The machine-readable reason.
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Value>,
}

impl Failure {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    fn with(self, details: Value) -> Self {
        Self { details: Some(details), ..self }
    }

    /// Adds details about an object or, without a name, about a kind.
    fn about(self, resource: &Resource, kind: &str, name: &str) -> Self {
        let mut details = json!({"kind": kind});
        for (field, text) in [("name", name), ("group", resource.group)] {
            if !text.is_empty() {
                details[field] = json!(text);
            }
        }
        self.with(details)
    }

    /// Makes a refusal with these values, for tests.
    #[must_use]
    pub(crate) fn of_test(code: u16, reason: &'static str, message: &str, retry_after: Option<u32>) -> Self {
        let details = retry_after.map_or_else(|| json!({}), |seconds| json!({"retryAfterSeconds": seconds}));
        Self::new(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), reason, message)
            .with(details)
    }

    /// 404: the object does not exist.
    #[must_use]
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(resource, resource.plural, name)
    }

    /// 404: the resource is not served.
    #[must_use]
    pub fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with(json!({}))
    }

    /// 409: an object of this name exists.
    #[must_use]
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, resource.plural, name)
    }

    /// 409: the object has changed.
    #[must_use]
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        Self::conflict_on(&resource.qualified(), resource, resource.plural, name, why)
    }

    /// 409: a deletion's precondition failed. The real server names the kind here.
    #[must_use]
    pub fn precondition(resource: &Resource, name: &str, why: &str) -> Self {
        Self::conflict_on(resource.kind, resource, resource.kind, name, why)
    }

    fn conflict_on(what: &str, resource: &Resource, kind: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {what} \"{name}\": {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(resource, kind, name)
    }

    /// 422: a field is invalid.
    #[must_use]
    pub fn invalid(resource: &Resource, name: &str, cause: &'static str, field: &str, what: &str) -> Self {
        let full = if resource.group.is_empty() {
            resource.kind.to_owned()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        let message = format!("{full} \"{name}\" is invalid: {field}: {what}");
        let failure = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        let mut failure = failure.about(resource, resource.kind, name);
        if let Some(details) = &mut failure.details {
            details["causes"] = json!([{"reason": cause, "message": what, "field": field}]);
        }
        failure
    }

    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403: the user may not access the object.
    #[must_use]
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let of = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let message = format!("{}{of} is forbidden: {why}", resource.qualified());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(resource, resource.plural, name)
    }

    /// 403: the user may not access the path.
    #[must_use]
    pub fn forbidden_path(why: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", format!("forbidden: {}", why.into())).with(json!({}))
    }

    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with(json!({}))
    }

    /// 410: the resource version has expired.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 415: the media type of a patch is not supported.
    #[must_use]
    pub fn unsupported_media_type() -> Self {
        let message = "415: Unsupported Media Type";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message).with(json!({}))
    }

    /// 422: the patch cannot be applied.
    #[must_use]
    pub fn inapplicable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with(json!({}))
    }

    /// 422: a parameter of a list or a watch is invalid.
    #[must_use]
    pub fn list_options(field: &str, what: &str) -> Self {
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {what}");
        let causes = json!([{"reason": "FieldValueForbidden", "message": what, "field": field}]);
        let details = json!({"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes});
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with(details)
    }

    /// 429: a disruption budget refuses the eviction. With 0 seconds the answer has no `Retry-After`.
    #[must_use]
    pub fn budget(cause: &str, retry_after: u32) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
        if retry_after > 0 {
            details["retryAfterSeconds"] = json!(retry_after);
        }
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).with(details)
    }

    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// 500: an unexpected failure, without a reason.
    #[must_use]
    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 504: this server has not reached the client's version.
    #[must_use]
    pub fn too_large_version(wanted: u64, current: u64) -> Self {
        let message =
            format!("Timeout: Too large resource version: Too large resource version: {wanted}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).with(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1
        }))
    }

    #[must_use]
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }

    #[must_use]
    pub fn reply(&self) -> Reply {
        let mut reply = json(self.code, &self.status());
        let wait = self.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64());
        if let Some(wait) = wait {
            reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait));
        }
        reply
    }
}
