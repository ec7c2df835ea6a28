//! Headers and bodies in the older contract, which are those of `fetch` in JavaScript. Pure.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::FetchResult;
use hyper::ext::ReasonPhrase;
use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, SET_COOKIE};
use reqwest::{Response, Url};

use super::OWN_HEADERS;

/// Those of [`OWN_HEADERS`] that calls may name, although the connection's own values are sent.
const IGNORED_HEADERS: [&str; 2] = ["connection", "content-length"];

/// Those of [`OWN_HEADERS`] that are sent, because they change nothing.
const HARMLESS_HEADERS: [&str; 2] = ["te", "trailer"];

/// White space around the value of a header.
const HEADER_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// Headers of a request, without a default type of the body. Values are Latin-1.
pub(super) fn to_headers(given: &BTreeMap<String, String>) -> Result<HeaderMap, CallError> {
    let invalid = |message: String| CallError::new(CallErrorCode::Invalid, message);
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let lowercase = name.to_ascii_lowercase();
        let lowercase = lowercase.as_str();
        if IGNORED_HEADERS.contains(&lowercase) {
            continue;
        }
        if OWN_HEADERS.contains(&lowercase) && !HARMLESS_HEADERS.contains(&lowercase) {
            return Err(invalid(format!("the header `{name}` cannot be set")));
        }
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_none| invalid(format!("`{name}` is not a valid header name")))?;
        let bytes = value.trim_matches(HEADER_SPACE).chars();
        let bytes: Option<Vec<u8>> = bytes.map(|c| u8::try_from(c).ok()).collect();
        let value = bytes.and_then(|bytes| HeaderValue::from_bytes(&bytes).ok());
        let value =
            value.ok_or_else(|| invalid(format!("the header `{name}` cannot have this value")))?;
        headers.insert(header, value);
    }
    Ok(headers)
}

/// Removes a question mark without a query, which `fetch` does not send.
pub(super) fn remove_empty_query(url: &mut Url) {
    if url.query() == Some("") {
        url.set_query(None);
    }
}

/// Number of bytes of the decoded body that are read: at most `bytes_max`. The call's own limit
/// `kept_bytes` applies only if the `content-length`, which is that of the encoded body, exceeds it.
pub(super) fn read_bytes(headers: &HeaderMap, kept_bytes: Option<u64>, bytes_max: usize) -> usize {
    let length = headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok());
    let length: Option<u64> = length.and_then(|length| length.trim().parse().ok());
    let kept = kept_bytes.filter(|kept| length > Some(*kept));
    let kept = kept.and_then(|kept| usize::try_from(kept).ok());
    kept.map_or(bytes_max, |kept| kept.min(bytes_max))
}

/// A response with all its headers. Its body is decoded as UTF-8, also if its type has another
/// charset.
pub(super) fn to_result(
    response: &Response,
    (requested, reached): (String, &Url),
    (body, is_cut): (&[u8], bool),
) -> FetchResult {
    let text = String::from_utf8_lossy(body);
    FetchResult {
        status: response.status().as_u16(),
        url: reached.to_string(),
        headers: all_headers(response.headers()),
        requested_url: Some(requested),
        status_text: Some(status_text(response)),
        is_cut,
        bytes: u64::try_from(body.len()).unwrap_or(u64::MAX),
        text: text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned(),
        note: None,
    }
}

/// All headers of a response. Repeated ones are joined, except `set-cookie`, whose last one counts.
fn all_headers(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in headers {
        // Bytes beyond ASCII are Latin-1 in HTTP.
        let value: String = value.as_bytes().iter().copied().map(char::from).collect();
        match all.entry(name.as_str().to_owned()) {
            Entry::Occupied(mut known) if name != SET_COOKIE => {
                known.get_mut().push_str(&format!(", {value}"));
            }
            Entry::Occupied(mut known) => {
                known.insert(value);
            }
            Entry::Vacant(place) => {
                place.insert(value);
            }
        }
    }
    all
}

/// The reason phrase that the server sent.
fn status_text(response: &Response) -> String {
    // Only an unusual phrase is stored.
    let unusual = response.extensions().get::<ReasonPhrase>();
    match unusual {
        Some(phrase) => String::from_utf8_lossy(phrase.as_bytes()).into_owned(),
        None => response
            .status()
            .canonical_reason()
            .unwrap_or_default()
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compat_2_all_headers_of_a_response_are_shown() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-a", "1"),
            ("set-cookie", "a=1"),
            ("x-a", "2"),
            ("set-cookie", "b=2"),
            ("content-type", "text/plain"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let expected = [
            ("content-type", "text/plain"),
            ("set-cookie", "b=2"),
            ("x-a", "1, 2"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(all_headers(&headers), BTreeMap::from(expected));
    }

    #[test]
    fn compat_2_headers_of_a_request_are_those_of_fetch() {
        let of = |name: &str, value: &str| {
            let given = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            to_headers(&given)
        };
        for (name, value, sent) in [
            ("X-A", "1", Some(&b"1"[..])),
            ("x-a", " padded ", Some(b"padded")),
            ("x-a", "", Some(b"")),
            ("x-a", "caf\u{e9}", Some(b"caf\xe9")),
            ("te", "trailers", Some(b"trailers")),
            ("Connection", "close", None),
            ("Content-Length", "5", None),
        ] {
            let headers = of(name, value).unwrap();
            let found = headers.get(name).map(HeaderValue::as_bytes);
            assert_eq!(found, sent, "{name}: {value}");
        }
        for (name, value) in [
            ("host", "b.org"),
            ("proxy-authorization", "x"),
            ("transfer-encoding", "chunked"),
            ("a b", "x"),
            ("", "x"),
            ("x-a", "a\nb"),
            ("x-a", "\u{d55c}"),
        ] {
            assert!(of(name, value).is_err(), "{name}: {value}");
        }
    }

    #[test]
    fn compat_2_an_empty_query_is_not_sent() {
        for (written, sent) in [
            ("http://a.org/b?", "http://a.org/b"),
            ("http://a.org/b?#c", "http://a.org/b#c"),
            ("http://a.org/b?c=", "http://a.org/b?c="),
            ("http://a.org/b", "http://a.org/b"),
        ] {
            let mut url: Url = written.parse().unwrap();
            remove_empty_query(&mut url);
            assert_eq!(url.as_str(), sent);
        }
    }

    #[test]
    fn compat_2_the_limit_of_a_call_is_compared_with_the_declared_length() {
        let of = |length: Option<&'static str>, kept: Option<u64>| {
            let length = length.map(|it| (CONTENT_LENGTH, HeaderValue::from_static(it)));
            read_bytes(&length.into_iter().collect(), kept, 100)
        };
        assert_eq!(of(None, Some(5)), 100);
        assert_eq!(of(Some("5"), Some(5)), 100);
        assert_eq!(of(Some("6"), Some(5)), 5);
        assert_eq!(of(Some("6"), None), 100);
        assert_eq!(of(Some("900"), Some(200)), 100);
        assert_eq!(of(Some("many"), Some(5)), 100);
    }
}
