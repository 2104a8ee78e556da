//! Sessions of browsers where the agent asks for a bearer token: a browser can send no header when it opens a page or a stream.
//!
//! A client with a token asks for a code. The link with that code works once and within a minute; it sets a cookie, which is good for
//! reading only, and for half a day.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};

use super::secrets::{is_same, secret};
use crate::units::lock;

/// The path of the link. It needs no token: its code stands for one.
pub(super) const LINK: &str = "/open";
const CODE_TIME: Duration = Duration::from_secs(60);
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);
/// Codes and sessions at the same time. The oldest gives way.
const MOST: usize = 16;
const COOKIE: &str = "node-pressure-session";

#[derive(Debug, Default)]
pub struct BrowserSessions(Mutex<Secrets>);

#[derive(Debug, Default)]
struct Secrets {
    codes: Vec<(String, Instant)>,
    sessions: Vec<(String, Instant)>,
}

impl BrowserSessions {
    /// Returns a new code; `None` while the kernel gives no random numbers.
    pub(super) fn code(&self, now: Instant) -> Option<String> {
        let code = secret()?;
        keep(&mut lock(&self.0).codes, &code, now + CODE_TIME, now);
        Some(code)
    }

    /// Redeems a code for the value of `Set-Cookie`.
    pub(super) fn redeem(&self, code: &str, is_encrypted: bool, now: Instant) -> Option<String> {
        let mut secrets = lock(&self.0);
        let place = secrets.codes.iter().position(|(known, until)| is_same(known, code) && now < *until)?;
        secrets.codes.remove(place);
        let session = secret()?;
        keep(&mut secrets.sessions, &session, now + SESSION_TIME, now);
        let secure = if is_encrypted { "; Secure" } else { "" };
        Some(format!(
            "{COOKIE}={session}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}",
            SESSION_TIME.as_secs()
        ))
    }

    /// Whether a request has the cookie of a session.
    pub(super) fn has(&self, headers: &HeaderMap, now: Instant) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookie| cookie.to_str().ok());
        let mut own = cookies.flat_map(|cookie| cookie.split("; ")).filter_map(|pair| pair.split_once('='));
        let Some((_, given)) = own.find(|(name, _)| *name == COOKIE) else { return false };
        let secrets = lock(&self.0);
        // Compare with every session: the response time must not show which one matched.
        secrets.sessions.iter().fold(false, |found, (known, until)| found | (is_same(known, given) & (now < *until)))
    }
}

fn keep(all: &mut Vec<(String, Instant)>, new: &str, until: Instant, now: Instant) {
    all.retain(|(_, until)| now < *until);
    if all.len() >= MOST {
        all.remove(0);
    }
    all.push((new.to_owned(), until));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, cookie.parse().unwrap());
        headers
    }

    #[test]
    fn a_code_is_good_once_and_for_a_minute() {
        let (sessions, now) = (BrowserSessions::default(), Instant::now());
        let code = sessions.code(now).unwrap();
        assert_eq!(sessions.redeem("", false, now), None);
        assert_eq!(sessions.redeem(&code, false, now + CODE_TIME), None);
        let cookie = sessions.redeem(&code, true, now).unwrap();
        assert!(cookie.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
        assert_eq!(sessions.redeem(&code, false, now), None, "it was used");
        let session = headers(&format!("other=1; {}", cookie.split(';').next().unwrap()));
        assert!(sessions.has(&session, now) && !sessions.has(&session, now + SESSION_TIME));
        assert!(!sessions.has(&headers("node-pressure-session="), now) && !sessions.has(&HeaderMap::new(), now));
    }

    #[test]
    fn the_oldest_gives_way() {
        let (sessions, now) = (BrowserSessions::default(), Instant::now());
        let first = sessions.code(now).unwrap();
        let later: Vec<String> = (0..MOST).map(|_| sessions.code(now).unwrap()).collect();
        assert_eq!(sessions.redeem(&first, false, now), None);
        assert!(later.iter().all(|code| sessions.redeem(code, false, now).is_some()));
    }
}
