//! The status page: one file without requests to other hosts. It shows the document of `/api/v1/state`, and nothing else but incidents.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::secrets::secret;

const PAGE: &str = include_str!("status_page.html");
/// In the page, in place of the number that marks its script and its style as its own.
const PLACE: &str = "NONCE";
/// In the page, the attributes of the button that ends the browser's session.
const LOGOUT: &str = "id=\"logout\" hidden";

/// Whether the client is a browser.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Returns the page. Its policy allows the script and the style of this response only, and connections to the agent only: what a workload
/// is called can neither run nor load anything. A browser with a session gets the button that ends it.
pub fn page(has_session: bool) -> Response {
    let Some(nonce) = secret() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the kernel gives no random number; /summary needs none\n")
            .into_response();
    };
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    let page = PAGE.replace(PLACE, &nonce);
    (headers, if has_session { page.replace(LOGOUT, "id=\"logout\"") } else { page }).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_response_has_its_own_policy() {
        let policy = || page(false).headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        let (first, second) = (policy(), policy());
        assert!(first.starts_with("default-src 'none'; script-src 'nonce-") && first != second, "{first}");
    }

    #[test]
    fn the_page_refers_to_no_other_host() {
        for foreign in ["http:", "https:", "src=", "@import", "url(", "innerHTML", "insertAdjacentHTML", "eval("] {
            let others = PAGE.replace("http://www.w3.org/2000/svg", "");
            assert!(!others.contains(foreign), "{foreign}");
        }
        assert_eq!((PAGE.matches(PLACE).count(), PAGE.matches(LOGOUT).count()), (2, 1));
    }

    #[test]
    fn a_browser_gets_the_page_and_curl_the_paths() {
        for (accept, expected) in [
            (Some("text/html,application/xhtml+xml,*/*;q=0.8"), true),
            (Some("*/*"), false),
            (Some("application/json"), false),
            (None, false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, accept.parse().unwrap());
            }
            assert_eq!(is_asked_for(&headers), expected, "{accept:?}");
        }
    }
}
