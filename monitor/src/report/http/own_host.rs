//! The check of the header `Host` where no token is asked for. By DNS rebinding a web page reaches the agent through a browser under a name
//! of its own, and may then read all answers. It cannot do so under an address, nor under a name that others own.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};

const LOCAL: &str = "localhost";

/// Whether each `Host` is an address, `localhost` or one of these names. Browsers always send one; a client without one is no browser.
pub(super) fn is_own(headers: &HeaderMap, names: &[String]) -> bool {
    headers.get_all(header::HOST).iter().all(|host| {
        let authority = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        authority.is_some_and(|authority| is_address(authority.host()) || is_name(authority.host(), names))
    })
}

fn is_address(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.map_or_else(|| host.parse::<IpAddr>().is_ok(), |inner| inner.parse::<Ipv6Addr>().is_ok())
}

fn is_name(host: &str, names: &[String]) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host.eq_ignore_ascii_case(LOCAL) || names.iter().any(|name| host.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_own_names_are_accepted() {
        let names = ["node1.example.com".to_owned()];
        for (host, expected) in [
            (Some("127.0.0.1:9946"), true),
            (Some("10.1.2.3"), true),
            (Some("[::1]:9946"), true),
            (Some("localhost:9946"), true),
            (Some("LOCALHOST."), true),
            (Some("Node1.example.com:80"), true),
            (None, true),
            (Some("rebound.example.com:9946"), false),
            (Some("127.0.0.1.example.com"), false),
            (Some("localhost.example.com"), false),
            (Some("2130706433"), false),
            (Some("user@127.0.0.1/"), false),
            (Some(""), false),
        ] {
            let headers: HeaderMap = host.map(|host| (header::HOST, host.parse().unwrap())).into_iter().collect();
            assert_eq!(is_own(&headers, &names), expected, "{host:?}");
        }
    }
}
