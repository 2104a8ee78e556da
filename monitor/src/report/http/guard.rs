//! Authorization of HTTP requests. Health endpoints are open; with tokens configured, every other path requires a valid one.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio_rustls::rustls::ServerConfig;

use super::browser_sessions::{self, BrowserSessions};
use super::connections::Peer;
use super::material::Current;
use super::own_host;
use super::secrets::is_same;
use super::state_page::Client;
use super::token_reviews::{TokenReviews, is_jwt};
use crate::cluster::{Review, Reviewer};
use crate::config::serving_options::ServingOptions;

/// Paths that need no token: kubelet probes have none, and these paths show nothing about workloads.
const OPEN: [&str; 4] = ["/healthz", "/readyz", browser_sessions::LINK, browser_sessions::LOGOUT];

/// Authorizes HTTP requests by token file or by TokenReview.
#[derive(Debug)]
pub struct Guard {
    options: ServingOptions,
    material: Arc<Current>,
    reviews: TokenReviews,
    /// Requests may come through the API server's proxy, under a name of the API server that the agent does not know.
    has_api_server: bool,
    /// Browsers that may read without a token.
    pub(super) sessions: BrowserSessions,
}

/// The decision about a request.
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Granted,
    ForeignHost,
    NoToken,
    Unknown,
    /// The token is no JWT, and only those are reviewed.
    Opaque,
    Forbidden(String),
    /// The token cannot be reviewed at the moment.
    Later(String),
}

impl Default for Guard {
    /// Returns a guard that admits every request to an own name, without TLS.
    fn default() -> Self {
        Self::new(ServingOptions::default(), Arc::default(), None)
    }
}

impl Guard {
    /// Creates a guard. `reviewer` is used only if the options enable token review.
    pub fn new(options: ServingOptions, material: Arc<Current>, reviewer: Option<Reviewer>) -> Self {
        let has_api_server = reviewer.is_some();
        let reviews = TokenReviews::new(&options, reviewer.filter(|_| options.token_review));
        let sessions = BrowserSessions::new(options.tls.is_some());
        Self { options, material, reviews, has_api_server, sessions }
    }

    /// Returns the TLS configuration, or `None` for plain HTTP.
    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.material.get().tls.clone()
    }

    /// Returns the token that the session of this browser stands for.
    pub(super) fn session(&self, headers: &HeaderMap) -> Option<String> {
        self.sessions.token(headers, Instant::now())
    }

    async fn admit(&self, peer: Peer, method: &Method, headers: &HeaderMap, path: &str) -> Admission {
        if !self.options.asks_for_token() {
            return if self.is_own(headers) { Admission::Granted } else { Admission::ForeignHost };
        }
        if OPEN.contains(&path) {
            return Admission::Granted;
        }
        if let Some(token) = bearer(headers) {
            return self.admit_token(peer, token, path).await;
        }
        let session = if method == Method::GET { self.session(headers) } else { None };
        let Some(token) = session else { return Admission::NoToken };
        let admission = self.admit_token(peer, &token, path).await;
        if admission == Admission::Unknown {
            self.sessions.end(headers);
        }
        admission
    }

    /// Whether the request names the agent by a name of its own. In a cluster any name is accepted, unless some are configured.
    fn is_own(&self, headers: &HeaderMap) -> bool {
        let names = &self.options.host_names;
        self.has_api_server && names.is_empty() || own_host::is_own(headers, names)
    }

    async fn admit_token(&self, peer: Peer, token: &str, path: &str) -> Admission {
        // Compare with every token: the response time must not show which one matched.
        let is_good = self.material.get().tokens.iter().fold(false, |found, good| found | is_same(good, token));
        if is_good {
            return Admission::Granted;
        }
        if !self.options.token_review {
            return Admission::Unknown;
        }
        if !self.options.opaque_tokens && !is_jwt(token) {
            return Admission::Opaque;
        }
        match self.reviews.review(peer, token, path).await {
            Ok(Review::Allowed) => Admission::Granted,
            Ok(Review::Unknown) => Admission::Unknown,
            Ok(Review::Forbidden(name)) => Admission::Forbidden(name),
            Err(reason) => Admission::Later(reason),
        }
    }
}

/// Passes an authorized request on. Answers any other one with 401, 403, 421 or 503 and the reason.
pub(super) async fn authorize(
    State(guard): State<Arc<Guard>>,
    Extension(client): Extension<Client>,
    request: Request,
    next: Next,
) -> Response {
    match guard.admit(client.peer, request.method(), request.headers(), request.uri().path()).await {
        Admission::Granted => next.run(request).await,
        Admission::ForeignHost => (StatusCode::MISDIRECTED_REQUEST, FOREIGN_HOST).into_response(),
        Admission::NoToken => unauthorized("a bearer token is asked for; /healthz and /readyz need none\n"),
        Admission::Unknown => unauthorized("this bearer token is not known, or has expired\n"),
        Admission::Opaque => unauthorized(
            "this bearer token is not known; only JWTs are reviewed, unless metrics.bearerToken.opaque is true\n",
        ),
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

const FOREIGN_HOST: &str = "the agent is asked under a name that it does not know; ask by its IP address or localhost, or add the name to \
                            metrics.hostNames\n";

fn unauthorized(text: &'static str) -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
    (StatusCode::UNAUTHORIZED, challenge, text).into_response()
}

/// Returns the token of `Authorization: Bearer TOKEN`.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
