//! The address as providers write it when they sign it.

use std::borrow::Cow;

use crate::model::verification::{SignatureScheme, SignedPart, UriForm};

/// The percent-escapes that HubSpot decodes before it signs an address, and what they stand for.
const HUBSPOT_DECODED: [(&str, char); 12] = [
    ("3A", ':'),
    ("2F", '/'),
    ("3F", '?'),
    ("40", '@'),
    ("21", '!'),
    ("24", '$'),
    ("27", '\''),
    ("28", '('),
    ("29", ')'),
    ("2A", '*'),
    ("2C", ','),
    ("3B", ';'),
];

/// The ways in which the scheme's provider may have written `uri`: one, or two.
pub(super) fn written<'request>(scheme: &SignatureScheme, uri: &'request str) -> Vec<Cow<'request, str>> {
    let form = scheme.signed.iter().find_map(|part| match part {
        SignedPart::Uri(form) => Some(*form),
        SignedPart::Body
        | SignedPart::Form
        | SignedPart::Method
        | SignedPart::Timestamp
        | SignedPart::Header(_)
        | SignedPart::Literal(_) => None,
    });
    match form {
        Some(UriForm::HubSpot) if uri.contains('%') => vec![Cow::Owned(hubspot_decoded(uri))],
        Some(UriForm::HubSpot | UriForm::AsRequested) | None => vec![Cow::Borrowed(uri)],
        Some(UriForm::AnyPort) => {
            let mut written = vec![Cow::Borrowed(uri)];
            written.extend(with_other_port(uri).map(Cow::Owned));
            written
        }
    }
}

/// Decodes the percent-escapes of the characters that HubSpot signs as themselves, and no others.
/// <https://developers.hubspot.com/docs/apps/legacy-apps/authentication/validating-requests>
fn hubspot_decoded(uri: &str) -> String {
    let mut decoded = String::with_capacity(uri.len());
    let mut rest = uri;
    while let Some((before, after)) = rest.split_once('%') {
        decoded.push_str(before);
        let escaped = after.get(..2).and_then(|hex| {
            HUBSPOT_DECODED.into_iter().find(|(code, _)| code.eq_ignore_ascii_case(hex)).map(|(_, character)| character)
        });
        match escaped {
            Some(character) => {
                decoded.push(character);
                rest = &after[2..];
            }
            None => {
                decoded.push('%');
                rest = after;
            }
        }
    }
    decoded.push_str(rest);
    decoded
}

/// The same address without its port; or, if it has none, with its scheme's default one.
/// <https://www.twilio.com/docs/usage/security#validating-requests>
fn with_other_port(uri: &str) -> Option<String> {
    let (scheme, rest) = uri.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    // In an IPv6 literal, colons are no port's.
    let port_at = authority.rfind(':').filter(|at| authority[at + 1..].bytes().all(|byte| byte.is_ascii_digit()));
    match port_at {
        Some(at) => Some(format!("{scheme}://{}{path}", &authority[..at])),
        None => {
            let port = if scheme == "http" { 80 } else { 443 };
            Some(format!("{scheme}://{authority}:{port}{path}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_hubspot_signs_it() {
        let written = hubspot_decoded("https://a.example/in/t%2Fh?q=%40%3a%21%20%25%4&x=%C3%A4%");
        assert_eq!(written, "https://a.example/in/t/h?q=@:!%20%25%4&x=%C3%A4%");
    }

    #[test]
    fn an_address_is_written_with_and_without_its_port() {
        for (one, other) in [
            ("https://a.example/in?x=1", "https://a.example:443/in?x=1"),
            ("http://a.example?x=http://b:1", "http://a.example:80?x=http://b:1"),
            ("https://a.example:8443/in", "https://a.example/in"),
            ("https://[::1]:8443/in", "https://[::1]/in"),
            ("https://[::1]/in", "https://[::1]:443/in"),
        ] {
            assert_eq!(with_other_port(one).as_deref(), Some(other), "{one}");
        }
        assert_eq!(with_other_port(""), None);
    }
}
