//! Server responses about bearer tokens (RFC 6750): a token is required, rejected, or has too
//! little scope.

use goondan_protocol::call::TokenVerdict;
use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

use crate::limits::OAUTH_SCOPES_MAX;

/// The scheme of bearer tokens.
const BEARER: &str = "Bearer";
/// The error of a token with too little scope.
const INSUFFICIENT_SCOPE: &str = "insufficient_scope";

/// A server's challenge to a request without an acceptable token.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// URL of the metadata that names the authorization server.
    pub(crate) metadata: Option<String>,
    pub(crate) scopes: Vec<String>,
    error: Option<String>,
}

/// Parses the challenge of a response. Unreadable parts are ignored.
pub(crate) fn challenge_of(headers: &HeaderMap) -> Challenge {
    let mut challenge = Challenge::default();
    let values = headers.get_all(WWW_AUTHENTICATE).into_iter();
    for value in values.filter_map(|value| value.to_str().ok()) {
        challenge.read(value);
    }
    challenge
}

impl Challenge {
    fn read(&mut self, value: &str) {
        let mut scheme = String::new();
        for (name, value) in parts_of(value) {
            let Some(value) = value else {
                scheme = name;
                continue;
            };
            if !scheme.eq_ignore_ascii_case(BEARER) {
                continue;
            }
            match name.to_ascii_lowercase().as_str() {
                "resource_metadata" => self.metadata = Some(value),
                "scope" => self.scopes = words(&value),
                "error" => self.error = Some(value),
                _ => {}
            }
        }
    }
}

/// Verdict of a response with this status on the token of the request (RFC 6750, 3.1), if any.
pub(crate) fn verdict_of(status: u16, headers: &HeaderMap) -> Option<TokenVerdict> {
    verdict(status, challenge_of(headers))
}

/// Verdict of a raw challenge header on the token of the request, if any.
pub(crate) fn verdict_of_header(status: u16, header: &str) -> Option<TokenVerdict> {
    let mut challenge = Challenge::default();
    challenge.read(header);
    verdict(status, challenge)
}

fn verdict(status: u16, challenge: Challenge) -> Option<TokenVerdict> {
    match status {
        401 => Some(TokenVerdict::Declined),
        403 if challenge.error.as_deref() == Some(INSUFFICIENT_SCOPE) => {
            let scopes = challenge.scopes;
            Some(TokenVerdict::TooLittle { scopes })
        }
        _ => None,
    }
}

/// The schemes of a header, each followed by its parameters.
fn parts_of(header: &str) -> Vec<(String, Option<String>)> {
    let is_name = |c: char| !c.is_whitespace() && !matches!(c, ',' | '=' | '"');
    let mut parts = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches(|c: char| !is_name(c));
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        if name.is_empty() {
            return parts;
        }
        let value = behind.trim_start().strip_prefix('=').map(str::trim_start);
        let (value, next) = match value {
            None => (None, behind),
            Some(value) => match value.strip_prefix('"') {
                Some(quoted) => {
                    let (value, next) = unquoted(quoted);
                    (Some(value), next)
                }
                None => {
                    let end = value.find(|c| !is_name(c)).unwrap_or(value.len());
                    let (value, next) = value.split_at(end);
                    (Some(value.to_owned()), next)
                }
            },
        };
        parts.push((name.to_owned(), value));
        rest = next;
    }
}

/// Splits at the closing quotation mark.
fn unquoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => break,
            '\\' => value.extend(rest.next()),
            c => value.push(c),
        }
    }
    (value, rest.as_str())
}

fn words(text: &str) -> Vec<String> {
    let words = text.split_whitespace().take(OAUTH_SCOPES_MAX);
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(headers: &[&'static str]) -> Challenge {
        let mut map = HeaderMap::new();
        for header in headers {
            map.append(WWW_AUTHENTICATE, header.parse().unwrap());
        }
        challenge_of(&map)
    }

    #[test]
    fn sys_4_bearer_challenge_is_parsed_among_others_in_any_form() {
        let place = Some("https://mcp.example/.well-known/x".to_owned());
        for good in [
            r#"Bearer resource_metadata="https://mcp.example/.well-known/x", scope="a b""#,
            r#"bearer realm="a, \"b\" = c",scope="a b",Resource_Metadata = "https://mcp.example/.well-known/x""#,
            r#"Basic realm="x", Bearer scope="a b", resource_metadata=https://mcp.example/.well-known/x"#,
        ] {
            let read = challenge(&[r#"Digest nonce="y""#, good]);
            assert_eq!(read.metadata, place, "{good}");
            assert_eq!(read.scopes, ["a", "b"], "{good}");
        }
        for other in [
            "",
            "Bearer",
            "=",
            "\"",
            r#"Basic resource_metadata="https://evil.example""#,
        ] {
            assert_eq!(challenge(&[other]), Challenge::default(), "{other}");
        }
    }

    #[test]
    fn sys_4_status_401_declines_token_and_403_needs_scope_error() {
        assert_eq!(verdict_of_header(401, ""), Some(TokenVerdict::Declined));
        let header = r#"Bearer error="insufficient_scope", scope="files:read files:write""#;
        let scopes = ["files:read", "files:write"].map(str::to_owned).to_vec();
        let too_little = Some(TokenVerdict::TooLittle { scopes });
        assert_eq!(verdict_of_header(403, header), too_little);
        for (status, other) in [
            (403, "Bearer"),
            (403, r#"Bearer error="invalid_token""#),
            (403, r#"Basic error="insufficient_scope""#),
            (404, header),
            (200, header),
        ] {
            assert_eq!(verdict_of_header(status, other), None, "{status} {other}");
        }
    }
}
