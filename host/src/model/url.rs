//! URLs that the host calls: those of destinations, of readers, of object stores. What is called and what a
//! configuration may say is one rule, so that nothing is started with a URL that cannot be called as it is meant.
//!
//! Invariant: no refusal repeats more of a URL than its host. The rest may carry a token.

use std::net::{IpAddr, Ipv6Addr};

use http::Uri;
use http::uri::Scheme;

/// The longest DNS name, in characters (RFC 1035).
const NAME_LENGTH_MAX: usize = 253;
/// The longest label of a DNS name, in characters (RFC 1035).
const LABEL_LENGTH_MAX: usize = 63;

/// Why a URL cannot be called. Each text goes on after the URL's name: "`url` must …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It cannot be read.
    #[error("is not a URL")]
    Unreadable,
    /// It is of another scheme, or of none.
    #[error("must begin with http:// or https://")]
    Scheme,
    /// It has no host.
    #[error("must name a host")]
    NoHost,
    /// It has a user or a password in it.
    #[error("must not contain a user or a password")]
    User,
    /// It has a `#`.
    #[error("must not contain a fragment")]
    Fragment,
    /// Its host is neither an address in its usual spelling nor a DNS name.
    #[error("has the host `{0}`, which is neither an IP address in its usual spelling nor a DNS name")]
    Host(String),
    /// What stands behind its host's colon is no port.
    #[error("has no port from 1 to 65535 behind its host's `:`")]
    Port,
}

/// The host of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name to look up.
    Name(String),
}

impl Host {
    /// The host of `url`. Spellings of addresses that the system's resolver would take (`127.1`, `0x7f000001`) are
    /// refused: whoever writes them means to be misread.
    pub fn of(url: &Uri) -> Result<Self, UrlError> {
        let text = url.host().unwrap_or_default();
        let refused = || UrlError::Host(text.to_owned());
        if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            return inner.parse::<Ipv6Addr>().map(|ip| Host::Address(ip.into())).map_err(|_| refused());
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Host::Address(ip));
        }
        if is_dns_name(text) { Ok(Host::Name(text.to_ascii_lowercase())) } else { Err(refused()) }
    }
}

/// The port of `url`, or that of its scheme if it names none.
pub fn port_of(url: &Uri) -> Result<u16, UrlError> {
    let authority = url.authority().ok_or(UrlError::NoHost)?;
    // What cannot be a port is for the library no port at all, and would be called on the scheme's.
    let behind = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, behind)| behind);
    match behind.strip_prefix(authority.host()).unwrap_or(behind) {
        "" => Ok(if url.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 }),
        port => {
            let digits = port.strip_prefix(':').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
            digits.and_then(|digits| digits.parse().ok()).filter(|port| *port > 0).ok_or(UrlError::Port)
        }
    }
}

/// Reads a URL that is to be called.
pub fn parse(text: &str) -> Result<Uri, UrlError> {
    let url: Uri = text.parse().map_err(|_| UrlError::Unreadable)?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(UrlError::Scheme);
    }
    let authority = url.authority().ok_or(UrlError::NoHost)?;
    if authority.as_str().contains('@') {
        return Err(UrlError::User);
    }
    if authority.host().is_empty() {
        return Err(UrlError::NoHost);
    }
    if text.contains('#') {
        return Err(UrlError::Fragment);
    }
    Host::of(&url)?;
    port_of(&url)?;
    Ok(url)
}

/// Letters, digits, hyphens and underscores in labels; the last one is no number (else it would be an IPv4 address in
/// some resolver's eyes).
fn is_dns_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        (1..=LABEL_LENGTH_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last.get(..2).is_some_and(|prefix| prefix.eq_ignore_ascii_case("0x"))
            && last[2..].bytes().all(|byte| byte.is_ascii_hexdigit());
    name.len() <= NAME_LENGTH_MAX && name.split('.').all(is_label) && !is_number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_in_its_usual_spelling_or_a_name() {
        let host = |url: &str| Host::of(&url.parse().unwrap());
        assert_eq!(host("http://192.0.2.1:80/"), Ok(Host::Address("192.0.2.1".parse().unwrap())));
        assert_eq!(host("http://[2001:db8::1]/"), Ok(Host::Address("2001:db8::1".parse().unwrap())));
        for name in
            ["hooks.example.com", "hooks.example.com.", "a_b.example", "xn--bcher-kva.example", "1.2.3.4.example"]
        {
            assert_eq!(host(&format!("https://{name}/x")), Ok(Host::Name(name.to_owned())));
        }
        assert_eq!(host("https://HOOKS.Example/"), Ok(Host::Name("hooks.example".to_owned())));
    }

    #[test]
    fn odd_spellings_of_addresses_are_no_hosts() {
        for odd in [
            "2130706433",
            "0x7f000001",
            "0X7F000001",
            "0177.0.0.1",
            "127.1",
            "127.0.0.1.",
            "127.0.0.0x1",
            "256.1.1.1",
            "1.2.3.4.5",
            "0x",
            "a..b",
            ".",
            "[::1",
            "[127.0.0.1]",
            "１２７.0.0.1",
            "[fe80::1%25eth0]",
        ] {
            assert!(parse(&format!("http://{odd}/")).is_err(), "{odd}");
        }
        let long = format!("http://{}.example/", "a".repeat(LABEL_LENGTH_MAX + 1));
        assert!(matches!(parse(&long), Err(UrlError::Host(_))));
    }

    #[test]
    fn a_port_is_one_or_is_not_there() {
        for (url, port) in [
            ("http://a.example", 80),
            ("https://a.example/x:9", 443),
            ("https://a.example:1/", 1),
            ("http://[::1]:65535/", 65_535),
            ("http://[::1]/", 80),
        ] {
            assert_eq!(parse(url).and_then(|url| port_of(&url)), Ok(port), "{url}");
        }
        for port in ["0", "99999", "65536", "-1", "+1", "", "4294967376", "8o"] {
            for host in ["127.0.0.9", "[::1]", "a.example"] {
                let refused = parse(&format!("http://{host}:{port}/ok")).unwrap_err();
                assert!(matches!(refused, UrlError::Port | UrlError::Unreadable), "{host}:{port}: {refused:?}");
            }
        }
        assert_eq!(parse("http://127.0.0.9:99999/ok"), Err(UrlError::Port));
    }

    #[test]
    fn what_is_refused_says_why_and_repeats_no_token() {
        for (url, error) in [
            ("hooks.example.com", UrlError::Scheme),
            ("ftp://hooks.example.com/", UrlError::Scheme),
            ("https://user:topsecret@example.com/", UrlError::User),
            ("https://example.com/#x", UrlError::Fragment),
            ("https://exa mple.com/", UrlError::Unreadable),
            ("/only/a/path", UrlError::Scheme),
        ] {
            assert_eq!(parse(url), Err(error), "{url}");
        }
    }
}
