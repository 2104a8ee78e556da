//! Sessions of browsers where the agent asks for a bearer token: a browser can send no header when it opens a page or a stream.
//!
//! A client with a token asks for a code. The link with that code works once and within a minute; it sets a cookie. The cookie stands for
//! the token: for reading only, as far as the token may read, and no longer than the token is valid.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};

use super::secrets::{is_same, secret};
use crate::units::lock;

/// The path of the link. It needs no token: its code stands for one.
pub(super) const LINK: &str = "/open";
/// The path that ends a session. It needs no token: it changes nothing but the session of its cookie.
pub(super) const LOGOUT: &str = "/logout";
const CODE_TIME: Duration = Duration::from_secs(60);
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);
/// Codes and sessions at the same time. The oldest gives way.
const MOST: usize = 16;

#[derive(Debug)]
pub struct BrowserSessions {
    /// Whether connections are encrypted. Only then do browsers accept the prefix `__Host-`, which keeps other hosts and plain HTTP from
    /// setting the cookie.
    is_encrypted: bool,
    secrets: Mutex<Secrets>,
}

#[derive(Debug, Default)]
struct Secrets {
    codes: Vec<Secret>,
    sessions: Vec<Secret>,
}

/// A code or a session, and the token that it stands for.
#[derive(Debug)]
struct Secret {
    value: String,
    token: String,
    until: Instant,
}

impl BrowserSessions {
    pub(super) fn new(is_encrypted: bool) -> Self {
        Self { is_encrypted, secrets: Mutex::default() }
    }

    /// Returns a new code for the bearer of this token; `None` while the kernel gives no random numbers.
    pub(super) fn code(&self, token: &str, now: Instant) -> Option<String> {
        let value = secret()?;
        let code = Secret { value: value.clone(), token: token.to_owned(), until: now + CODE_TIME };
        keep(&mut lock(&self.secrets).codes, code, now);
        Some(value)
    }

    /// Redeems a code for the value of `Set-Cookie`.
    pub(super) fn redeem(&self, code: &str, now: Instant) -> Option<String> {
        let mut secrets = lock(&self.secrets);
        let place = secrets.codes.iter().position(|it| is_same(&it.value, code) && now < it.until)?;
        let Secret { token, .. } = secrets.codes.remove(place);
        let value = secret()?;
        let cookie = self.cookie(&value, SESSION_TIME);
        keep(&mut secrets.sessions, Secret { value, token, until: now + SESSION_TIME }, now);
        Some(cookie)
    }

    /// Returns the token that the cookie of a request stands for.
    pub(super) fn token(&self, headers: &HeaderMap, now: Instant) -> Option<String> {
        let given = self.given(headers)?;
        let secrets = lock(&self.secrets);
        // Compare with every session: the response time must not show which one matched.
        let matches = |it: &Secret| is_same(&it.value, given) & (now < it.until);
        let found = secrets.sessions.iter().fold(None, |found, it| if matches(it) { Some(it) } else { found });
        found.map(|it| it.token.clone())
    }

    /// Ends the session of a request. Returns the value of `Set-Cookie` that removes the cookie.
    pub(super) fn end(&self, headers: &HeaderMap) -> String {
        if let Some(given) = self.given(headers) {
            lock(&self.secrets).sessions.retain(|it| !is_same(&it.value, given));
        }
        self.cookie("", Duration::ZERO)
    }

    const fn name(&self) -> &'static str {
        if self.is_encrypted { "__Host-node-pressure-session" } else { "node-pressure-session" }
    }

    fn cookie(&self, value: &str, time: Duration) -> String {
        let (name, secure) = (self.name(), if self.is_encrypted { "; Secure" } else { "" });
        format!("{name}={value}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", time.as_secs())
    }

    fn given<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookie| cookie.to_str().ok());
        let mut pairs = cookies.flat_map(|cookie| cookie.split("; ")).filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(name, value)| (name == self.name()).then_some(value))
    }
}

fn keep(all: &mut Vec<Secret>, new: Secret, now: Instant) {
    all.retain(|it| now < it.until);
    if all.len() >= MOST {
        all.remove(0);
    }
    all.push(new);
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
        let (sessions, now) = (BrowserSessions::new(true), Instant::now());
        let code = sessions.code("t", now).unwrap();
        assert_eq!(sessions.redeem("", now), None);
        assert_eq!(sessions.redeem(&code, now + CODE_TIME), None);
        let cookie = sessions.redeem(&code, now).unwrap();
        assert!(cookie.starts_with("__Host-node-pressure-session="), "{cookie}");
        assert!(cookie.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure"), "{cookie}");
        assert_eq!(sessions.redeem(&code, now), None, "it was used");
        let session = headers(&format!("other=1; {}", cookie.split(';').next().unwrap()));
        assert_eq!(sessions.token(&session, now).as_deref(), Some("t"));
        assert_eq!(sessions.token(&session, now + SESSION_TIME), None);
        let without_prefix = headers(cookie.split(';').next().unwrap().trim_start_matches("__Host-"));
        for none in [without_prefix, headers("__Host-node-pressure-session="), HeaderMap::new()] {
            assert_eq!(sessions.token(&none, now), None);
        }
        assert!(sessions.end(&session).starts_with("__Host-node-pressure-session=; Path=/; Max-Age=0; "));
        assert_eq!(sessions.token(&session, now), None, "it was ended");
    }

    #[test]
    fn the_oldest_gives_way() {
        let (sessions, now) = (BrowserSessions::new(false), Instant::now());
        let first = sessions.code("t", now).unwrap();
        let later: Vec<String> = (0..MOST).map(|_| sessions.code("t", now).unwrap()).collect();
        assert_eq!(sessions.redeem(&first, now), None);
        let cookies: Vec<String> = later.iter().filter_map(|code| sessions.redeem(code, now)).collect();
        assert!(cookies.len() == MOST && cookies.iter().all(|it| it.starts_with("node-pressure-session=")));
    }
}
