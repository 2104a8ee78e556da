//! `/api/v1/open`, `/open` and `/logout`: a link that opens the status page in a browser without a token, and the end of that session.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::browser_sessions::{LINK, LOGOUT};
use super::guard::{Guard, bearer};
use super::parameter;

pub(super) fn router(guard: Arc<Guard>) -> Router {
    Router::new().route("/api/v1/open", post(code)).route(LINK, get(open)).route(LOGOUT, post(logout)).with_state(guard)
}

/// Returns the path of a link that works once, within a minute.
async fn code(State(guard): State<Arc<Guard>>, headers: HeaderMap) -> Response {
    match guard.sessions.code(bearer(&headers).unwrap_or_default(), Instant::now()) {
        Some(code) => ([(header::CACHE_CONTROL, "no-store")], format!("{LINK}?code={code}\n")).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the kernel gives no random number\n").into_response(),
    }
}

/// Leads to the page from here, because a browser sends a strict cookie only where the page before is of the same site. Without an icon a browser
/// asks for /favicon.ico if it has the time.
const ONWARD: &str = "<!doctype html><link rel=\"icon\" href=\"data:,\"><meta http-equiv=\"refresh\" content=\"0;url=/\"><a href=\"/\">the status page</a>\n";

/// Sets the cookie, and leads to the page. The address with the code is used up then.
async fn open(State(guard): State<Arc<Guard>>, RawQuery(query): RawQuery) -> Response {
    let code = parameter(query.as_deref(), "code").unwrap_or_default();
    let headers = [(header::CACHE_CONTROL, "no-store"), (header::REFERRER_POLICY, "no-referrer")];
    match guard.sessions.redeem(code, Instant::now()) {
        Some(cookie) => {
            let page = [(header::SET_COOKIE, &*cookie), (header::CONTENT_TYPE, "text/html; charset=utf-8")];
            (headers, page, ONWARD).into_response()
        }
        None => {
            let text = "this link was used, or is older than a minute; make another: node-pressure-monitor open\n";
            (StatusCode::FORBIDDEN, headers, text).into_response()
        }
    }
}

/// Ends the browser's session.
async fn logout(State(guard): State<Arc<Guard>>, headers: HeaderMap) -> Response {
    let cookie = guard.sessions.end(&headers);
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, &*cookie), (header::CACHE_CONTROL, "no-store")]).into_response()
}
