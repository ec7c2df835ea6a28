//! HTTP requests of agents to hosts that the project allows.
//!
//! * `older`: headers and bodies of requests in the older contract. Pure.
//! * `page`: from HTML to text. Pure.
//!
//! # Invariants
//!
//! * No request goes to a host that `allow` does not name, not even through a redirect.
//! * Without a proxy, connections are made only to checked addresses: names are resolved here, and
//!   the checked address is the one connected to. With one, a name that resolves to forbidden
//!   addresses here is refused, and the proxy decides about the others.

mod older;
mod page;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use goondan_connectors::{AllowedHost, Values};
use goondan_log::error_chain;
use goondan_outbound::NetworkProblem;
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::{FetchResult, HTTP, Http, Recovery, ServiceSpec};
use goondan_protocol::time::Timestamp;
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use reqwest::{Method, Response, StatusCode, Url};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::content_encoding::{BodyDecoder, ContentEncoding};
use crate::gateway::Gateway;
use crate::http::{self, ForbiddenAddress, Resolver, may_reach};
use crate::limits::{
    OLDER_REDIRECTS_MAX, REDIRECTS_MAX, SERVICE_TIMEOUT_MS, SHOWN_HEADER_BYTES_MAX,
};
use crate::look_back::{Evidence, key_of};
use crate::service::FailureContext;
use crate::service_api::{ServiceApi, outbox_of};

/// Response headers shown to the model.
const SHOWN_HEADERS: [&str; 7] = [
    "content-type",
    "last-modified",
    "etag",
    "location",
    "link",
    "retry-after",
    "allow",
];

/// Headers that belong to the connection and not to the request.
const OWN_HEADERS: [&str; 9] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "proxy-authorization",
    "expect",
];

/// Place of the key in `lookBack`.
const KEY_PLACE: &str = "{key}";

/// Header of the key, if only `lookBack` is set.
const KEY_HEADER: &str = "Idempotency-Key";

/// Makes requests for agents.
pub(crate) struct Fetcher {
    client: reqwest::Client,
    allow: Arc<[AllowedHost]>,
    allows_private: bool,
    bytes_max: usize,
    /// The header that carries the key of a request that may change something.
    key_header: Option<HeaderName>,
    /// URL that shows whether a request took effect, with [`KEY_PLACE`].
    look_back: Option<String>,
}

impl Fetcher {
    /// Creates a connector from validated settings.
    ///
    /// # Errors
    ///
    /// A description of why the client cannot be created.
    pub(crate) fn new(config: &JsonObject) -> Result<Self, String> {
        let values = Values::of("http", config);
        let allow = values.names("allow").unwrap_or_default();
        let allow = allow
            .iter()
            .filter_map(|entry| AllowedHost::parse(entry).ok());
        let allows_private = values.truth("allowPrivate");
        let resolver = Arc::new(Resolver { allows_private });
        let look_back = values.text("lookBack").map(str::to_owned);
        if let Some(template) = look_back.as_ref().filter(|it| !it.contains(KEY_PLACE)) {
            return Err(format!(
                "`lookBack` is `{template}`; it must contain `{KEY_PLACE}`, the place of the key"
            ));
        }
        let header = values.text("idempotencyKey");
        let header = header.or(look_back.as_ref().map(|_| KEY_HEADER));
        let key_header = header
            .map(|name| HeaderName::from_bytes(name.as_bytes()))
            .transpose()
            .map_err(|_none| "`idempotencyKey` is not a valid header name".to_owned())?;
        Ok(Self {
            key_header,
            look_back,
            client: http::client_by(resolver)?,
            allow: allow.collect(),
            allows_private,
            bytes_max: usize::try_from(values.number("maxBytes").unwrap_or_default())
                .unwrap_or_default(),
        })
    }

    /// Serves requests until `stop`.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        let hosts: Vec<String> = self.allow.iter().map(ToString::to_string).collect();
        let detail = format!("requests may go to {}", hosts.join(", "));
        gateway.serve(outbox_of(&Arc::new(self))).await;
        gateway.report(true, detail).await;
        stop.cancelled().await;
    }

    /// Checks that a request may go to a URL.
    fn check(&self, url: &Url) -> Result<(), CallError> {
        let refused = |message: String| Err(CallError::new(CallErrorCode::Refused, message));
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return refused("the URL must name a host".to_owned());
        };
        if !url.username().is_empty() || url.password().is_some() {
            return refused("a URL with a password is not accepted".to_owned());
        }
        let scheme = url.scheme();
        let is_allowed = |allowed: &AllowedHost| allowed.allows(scheme, host, port);
        if !self.allow.iter().any(is_allowed) {
            let message = format!("requests may not go to `{scheme}://{host}:{port}`");
            let hosts: Vec<String> = self.allow.iter().map(ToString::to_string).collect();
            let error = CallError::new(CallErrorCode::Refused, message);
            return Err(error.suggest(format!("they may go to {}", hosts.join(", "))));
        }
        // A name is checked when it is resolved.
        let address = host.trim_start_matches('[').trim_end_matches(']');
        match address.parse::<IpAddr>() {
            Ok(address) if !may_reach(address, self.allows_private) => {
                refused(forbidden_text(&ForbiddenAddress::at(host, address)))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn fetch(&self, action: Http) -> Result<FetchResult, CallError> {
        let Http::Fetch {
            method,
            url,
            headers,
            body,
            raw,
            whole,
            kept_bytes,
            timeout_ms,
            mark,
        } = action;
        let invalid = |message: String| CallError::new(CallErrorCode::Invalid, message);
        let url = Url::parse(&url).map_err(|error| invalid(format!("`{url}`: {error}")))?;
        let mut method = Method::from_bytes(method.as_bytes())
            .map_err(|_none| invalid(format!("`{method}` is not a valid method")))?;
        let requested = url.to_string();
        let is_repeatable = matches!(method, Method::GET | Method::HEAD);
        let mut request = FetchRequest {
            url,
            headers: match whole {
                true => older::to_headers(&headers)?,
                false => to_headers(&headers, body.is_some())?,
            },
            body,
        };
        if let Some(name) = self.key_header.clone().filter(|_| !mark.is_empty()) {
            let key = HeaderValue::from_str(&key_of(&mark))
                .map_err(|error| CallError::new(CallErrorCode::Internal, error.to_string()))?;
            request.headers.insert(name, key);
        }
        let failed = FailureContext {
            service: "the request",
            is_repeatable: false,
        };
        let time_limit = Duration::from_millis(timeout_ms);
        let most = match whole {
            true => OLDER_REDIRECTS_MAX,
            false => REDIRECTS_MAX,
        };
        let fetching = async {
            let mut hops = 0;
            loop {
                if whole {
                    older::remove_empty_query(&mut request.url);
                }
                self.check(&request.url)?;
                let checked = http::check_proxied(&request.url, self.allows_private).await;
                checked.map_err(|forbidden| {
                    CallError::new(CallErrorCode::Refused, forbidden_text(&forbidden))
                })?;
                let response = self.send(&method, &request).await;
                let response = response.map_err(|error| to_error(error, failed, is_repeatable))?;
                if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED
                    && let Some(problem) = goondan_outbound::rejection_by_proxy(&request.url)
                {
                    return Err(of_problem(problem));
                }
                let redirect = redirect_of(&response);
                if whole && matches!(redirect, Redirect::Invalid) {
                    let message = "the server redirects to an invalid URL";
                    return Err(CallError::new(CallErrorCode::Internal, message));
                }
                let Redirect::To(next) = redirect else {
                    let read = match whole {
                        true => {
                            let urls = (requested.clone(), &request.url);
                            self.read_whole(response, urls, kept_bytes).await
                        }
                        false => self.read(response, &request.url, raw).await,
                    };
                    return read.map_err(|failure| match failure {
                        ReadFailure::Broken(error) => to_error(error, failed, is_repeatable),
                        ReadFailure::Encoding(message) => {
                            CallError::new(CallErrorCode::Internal, message)
                        }
                    });
                };
                hops += 1;
                if hops > most {
                    let message = format!("more than {most} redirects");
                    return Err(CallError::new(CallErrorCode::Refused, message));
                }
                request.follow(&mut method, response.status().as_u16(), next);
            }
        };
        match goondan_clock::timeout(time_limit, fetching).await {
            Ok(fetched) => fetched,
            Err(_elapsed) => {
                let message = format!("no answer within {timeout_ms} ms");
                if is_repeatable {
                    return Err(CallError::new(CallErrorCode::TimedOut, message));
                }
                Err(failed.unknown(message))
            }
        }
    }

    async fn send(&self, method: &Method, request: &FetchRequest) -> reqwest::Result<Response> {
        let mut builder = self
            .client
            .request(method.clone(), request.url.clone())
            .headers(request.headers.clone());
        if let Some(body) = &request.body {
            builder = builder.body(body.clone());
        }
        builder.send().await
    }

    /// Reads and decodes the body up to a limit. Returns true as well if it has more.
    async fn body(response: &mut Response, most: usize) -> Result<(Vec<u8>, bool), ReadFailure> {
        let status = response.status();
        let failed = |reason: String| {
            let message = format!("failed to decode the body of the answer ({status}): {reason}");
            ReadFailure::Encoding(message)
        };
        // An answer to HEAD names an encoding and has no body.
        let encoding = ContentEncoding::of_answer(response.headers());
        let mut decoder = encoding.map(BodyDecoder::new);
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(ReadFailure::Broken)? {
            let decoder = decoder.as_mut().map_err(|reason| failed(reason.clone()))?;
            let has_more = decoder.decode_to(&mut body, most, &chunk);
            if has_more.map_err(|error| failed(error.to_string()))? {
                return Ok((body, true));
            }
        }
        Ok((body, false))
    }

    /// Reads a response in the older contract.
    async fn read_whole(
        &self,
        mut response: Response,
        urls: (String, &Url),
        kept_bytes: Option<u64>,
    ) -> Result<FetchResult, ReadFailure> {
        let most = older::read_bytes(response.headers(), kept_bytes, self.bytes_max);
        let (body, is_cut) = Self::body(&mut response, most).await?;
        Ok(older::to_result(&response, urls, (&body, is_cut)))
    }

    async fn read(
        &self,
        mut response: Response,
        url: &Url,
        raw: bool,
    ) -> Result<FetchResult, ReadFailure> {
        let (body, is_cut) = Self::body(&mut response, self.bytes_max).await?;
        let mut shown = BTreeMap::new();
        for name in SHOWN_HEADERS {
            if let Some(value) = response.headers().get(name) {
                let value = String::from_utf8_lossy(value.as_bytes());
                let end = value.floor_char_boundary(SHOWN_HEADER_BYTES_MAX);
                shown.insert(
                    name.to_owned(),
                    value.get(..end).unwrap_or_default().to_owned(),
                );
            }
        }
        let content_type = shown.get("content-type").map(String::as_str);
        let (text, mut note) = to_text(&body, content_type.unwrap_or_default(), url, raw);
        if is_cut {
            let cut = format!("only the first {} bytes are shown", self.bytes_max);
            note = Some(note.map_or(cut.clone(), |note| format!("{note}; {cut}")));
        }
        Ok(FetchResult {
            status: response.status().as_u16(),
            url: url.to_string(),
            headers: shown,
            requested_url: None,
            status_text: None,
            is_cut,
            bytes: u64::try_from(body.len()).unwrap_or(u64::MAX),
            text,
            note,
        })
    }
}

impl ServiceApi for Fetcher {
    type Action = Http;
    const SERVICE: &'static ServiceSpec = &HTTP;

    // The method determines if the request can be repeated.
    async fn run(&self, action: Http, _is_idempotent: bool) -> Result<Value, CallError> {
        let fetched = self.fetch(action).await?;
        serde_json::to_value(fetched)
            .map_err(|error| CallError::new(CallErrorCode::Internal, error.to_string()))
    }

    fn recovery(&self, action: &Http, _method: &str) -> Recovery {
        let Http::Fetch { method, mark, .. } = action;
        if matches!(method.as_str(), "GET" | "HEAD") {
            return Recovery::Repeatable;
        }
        if mark.is_empty() || self.key_header.is_none() {
            return Recovery::Unknown("the Connection has neither `idempotencyKey` nor `lookBack`");
        }
        Recovery::LookBack("as the Connection says")
    }

    async fn look_back(&self, action: &Http, _since: Timestamp) -> Result<Evidence, CallError> {
        let Http::Fetch { mark, .. } = action;
        let Some(template) = &self.look_back else {
            return Ok(Evidence::Recognized);
        };
        let fetched = self
            .fetch(Http::Fetch {
                method: Method::GET.to_string(),
                url: template.replace(KEY_PLACE, &key_of(mark)),
                headers: BTreeMap::new(),
                body: None,
                raw: true,
                whole: false,
                kept_bytes: None,
                timeout_ms: SERVICE_TIMEOUT_MS,
                mark: String::new(),
            })
            .await?;
        evidence_of(fetched)
    }

    fn secret(&self) -> &str {
        ""
    }
}

/// Reads the answer to a look-back: a successful one with content is the result of the request, and
/// 404, 410, no content or an empty list mean that it took no effect.
fn evidence_of(fetched: FetchResult) -> Result<Evidence, CallError> {
    let is_empty = || {
        let listed: Value = serde_json::from_str(&fetched.text).unwrap_or_default();
        let is_empty_list = listed.as_array().is_some_and(Vec::is_empty);
        fetched.text.trim().is_empty() || fetched.text.trim() == "null" || is_empty_list
    };
    match fetched.status {
        404 | 410 => Ok(Evidence::Absent),
        200..300 if is_empty() => Ok(Evidence::Absent),
        200..300 => {
            let result = serde_json::to_value(fetched);
            result
                .map(Evidence::Found)
                .map_err(|error| CallError::new(CallErrorCode::Internal, error.to_string()))
        }
        status => {
            let message = format!("`lookBack` answered {status}");
            let error = CallError::new(CallErrorCode::Unavailable, message);
            Err(if status == 429 || status >= 500 {
                error.later(None)
            } else {
                error
            })
        }
    }
}

struct FetchRequest {
    url: Url,
    headers: HeaderMap,
    body: Option<String>,
}

impl FetchRequest {
    fn follow(&mut self, method: &mut Method, status: u16, next: Url) {
        let becomes_get = match status {
            303 => *method != Method::HEAD,
            301 | 302 => *method == Method::POST,
            _ => false,
        };
        if becomes_get {
            *method = Method::GET;
            self.body = None;
            self.headers.remove(CONTENT_TYPE);
        }
        // Credentials for one host must not reach another.
        if self.url.origin() != next.origin() {
            self.headers.remove(AUTHORIZATION);
            self.headers.remove(COOKIE);
        }
        self.url = next;
    }
}

/// Reason why a body was not read.
#[derive(Debug)]
enum ReadFailure {
    Broken(reqwest::Error),
    /// The body is not encoded as its headers say, or in an encoding that is not supported.
    Encoding(String),
}

/// Redirect of a response.
enum Redirect {
    /// The response is not a redirect.
    None,
    To(Url),
    /// The target is not a valid URL.
    Invalid,
}

fn redirect_of(response: &Response) -> Redirect {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Redirect::None;
    }
    let Some(location) = response.headers().get(LOCATION) else {
        return Redirect::None;
    };
    // Servers send UTF-8 in this header.
    let location = String::from_utf8_lossy(location.as_bytes());
    let target = response.url().join(&location);
    target.map_or(Redirect::Invalid, Redirect::To)
}

fn to_headers(given: &BTreeMap<String, String>, has_body: bool) -> Result<HeaderMap, CallError> {
    let invalid = |message: String| CallError::new(CallErrorCode::Invalid, message);
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(invalid(format!("the header `{name}` cannot be set")));
        }
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_none| invalid(format!("`{name}` is not a valid header name")))?;
        let value = HeaderValue::from_str(value)
            .map_err(|_none| invalid(format!("the header `{name}` cannot have this value")))?;
        headers.insert(header, value);
    }
    if has_body && !headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(headers)
}

fn of_problem(problem: NetworkProblem) -> CallError {
    CallError::new(CallErrorCode::Unavailable, problem.message).suggest(problem.hint)
}

/// Converts a failure without a response. Only the model retries.
fn to_error(error: reqwest::Error, failed: FailureContext<'_>, is_repeatable: bool) -> CallError {
    if let Some(forbidden) = ForbiddenAddress::of(&error) {
        return CallError::new(CallErrorCode::Refused, forbidden_text(forbidden));
    }
    let is_unsent = error.is_connect() || error.is_builder();
    if let Some(problem) = goondan_outbound::problem_of(&error).filter(|_| is_unsent) {
        return of_problem(problem);
    }
    let message = error_chain(&error.without_url());
    if is_unsent || is_repeatable {
        return CallError::new(CallErrorCode::Unavailable, message);
    }
    failed.unknown(message)
}

/// Text of a body, and a note about its decoding.
fn to_text(body: &[u8], content_type: &str, url: &Url, raw: bool) -> (String, Option<String>) {
    let kind = content_type.split(';').next().unwrap_or_default();
    let kind = kind.trim().to_ascii_lowercase();
    let is_text = kind.is_empty()
        || kind.starts_with("text/")
        || ["json", "xml", "javascript", "yaml", "urlencoded", "graphql"]
            .iter()
            .any(|word| kind.contains(word));
    if !is_text || body.contains(&0) {
        let kind = if kind.is_empty() { "data" } else { &kind };
        let note = format!("{kind} of {} bytes is not shown", body.len());
        return (String::new(), Some(note));
    }
    let (text, note) = decoded(body, content_type);
    if !raw && (kind == "text/html" || kind == "application/xhtml+xml") {
        let note = note.unwrap_or_else(|| "HTML, converted to text".to_owned());
        return (page::to_text(&text, url), Some(note));
    }
    (text, note)
}

/// The text of HTML without an address, such as an e-mail.
pub(crate) fn html_to_text(html: &str) -> String {
    let base = Url::parse("about:blank");
    base.map_or_else(|_error| String::new(), |base| page::to_text(html, &base))
}

fn decoded(body: &[u8], content_type: &str) -> (String, Option<String>) {
    let error = match std::str::from_utf8(body) {
        Ok(text) => return (text.to_owned(), None),
        Err(error) => error,
    };
    let content_type = content_type.to_ascii_lowercase();
    let is_latin = ["8859-1", "windows-1252", "latin1", "us-ascii"]
        .iter()
        .any(|charset| content_type.contains(charset));
    if is_latin {
        return (body.iter().copied().map(char::from).collect(), None);
    }
    let text = String::from_utf8_lossy(body).into_owned();
    // A truncated text may end within a character.
    let note = error
        .error_len()
        .map(|_not_at_the_end| "not UTF-8: some characters were unreadable".to_owned());
    (text, note)
}

/// Explains why a request is forbidden, and which setting allows it.
fn forbidden_text(forbidden: &ForbiddenAddress) -> String {
    if forbidden.is_private {
        format!("{forbidden}; `allowPrivate: true` of the Connection allows that")
    } else {
        forbidden.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    fn fetcher(config: &Value) -> Fetcher {
        Fetcher::new(config.as_object().unwrap()).unwrap()
    }

    fn refusal(fetcher: &Fetcher, url: &str) -> Option<String> {
        let checked = fetcher.check(&Url::parse(url).unwrap());
        checked.err().map(|error| error.message)
    }

    #[test]
    fn a_request_goes_nowhere_that_is_not_allowed() {
        let allow = json!([
            "example.com",
            "http://127.0.0.1:8080",
            "http://169.254.169.254",
            "*.a.org"
        ]);
        let careful = fetcher(&json!({"allow": allow}));
        assert_eq!(refusal(&careful, "https://example.com/x?y"), None);
        assert_eq!(refusal(&careful, "https://b.a.org"), None);
        for url in [
            "http://example.com",
            "https://example.com:8443",
            "https://u:p@example.com",
            "https://example.com.evil.org",
            "ftp://example.com",
            "http://127.0.0.1:8080",
            // Other notations of the same address.
            "http://2130706433:8080",
            "http://0x7f.1:8080",
            "http://[::ffff:127.0.0.1]:8080",
            "http://169.254.169.254",
        ] {
            assert!(refusal(&careful, url).is_some(), "{url}");
        }
        let trusting = fetcher(&json!({"allow": allow, "allowPrivate": true}));
        assert_eq!(refusal(&trusting, "http://0x7f.1:8080/"), None);
        assert!(refusal(&trusting, "http://169.254.169.254").is_some());
    }

    #[test]
    fn msg_13_the_answer_to_a_look_back_says_whether_a_request_happened() {
        let answer = |status, text: &str| FetchResult {
            status,
            url: "https://a.org/".to_owned(),
            headers: BTreeMap::new(),
            requested_url: None,
            status_text: None,
            is_cut: false,
            text: text.to_owned(),
            bytes: 0,
            note: None,
        };
        for (status, text) in [
            (404, "x"),
            (410, ""),
            (204, ""),
            (200, "[]"),
            (200, " null "),
        ] {
            let found = evidence_of(answer(status, text)).unwrap();
            assert_eq!(found, Evidence::Absent, "{status} {text}");
        }
        for text in ["{}", "[1]", "order 7"] {
            let found = evidence_of(answer(200, text)).unwrap();
            assert!(matches!(found, Evidence::Found(_)), "{text}");
        }
        for (status, retryable) in [(500, true), (429, true), (401, false), (302, false)] {
            let error = evidence_of(answer(status, "")).unwrap_err();
            assert_eq!(error.retryable, retryable, "{status}");
        }
    }

    #[test]
    fn msg_13_a_connection_says_how_its_requests_are_found_again() {
        let recovery = |config: &Value, method: &str, mark: &str| {
            let action = Http::Fetch {
                method: method.to_owned(),
                url: "https://a.org/".to_owned(),
                headers: BTreeMap::new(),
                body: None,
                raw: false,
                whole: false,
                kept_bytes: None,
                timeout_ms: 1,
                mark: mark.to_owned(),
            };
            fetcher(config).recovery(&action, "fetch")
        };
        let plain = json!({"allow": ["a.org"]});
        assert!(recovery(&plain, "GET", "").is_repeatable());
        assert!(recovery(&plain, "POST", "m").why_unknown().is_some());
        let keyed = json!({"allow": ["a.org"], "idempotencyKey": "x-key"});
        assert!(recovery(&keyed, "POST", "m").is_automatic());
        assert!(recovery(&keyed, "POST", "").why_unknown().is_some());
        let looking = json!({"allow": ["a.org"], "lookBack": "https://a.org/orders/{key}"});
        assert!(recovery(&looking, "DELETE", "m").is_automatic());
        let wrong = json!({"allow": ["a.org"], "lookBack": "https://a.org/orders"});
        let error = Fetcher::new(wrong.as_object().unwrap()).err().unwrap();
        assert!(error.contains("{key}"), "{error}");
    }

    /// Answers each request to it with the given bytes, and closes the connection.
    async fn answering(answer: Vec<u8>) -> (JoinSet<()>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let mut server = JoinSet::new();
        server.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4_096];
                let _read = stream.read(&mut request).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        });
        (server, url)
    }

    async fn fetched(answer: Vec<u8>, kept_bytes: Option<u64>) -> Result<FetchResult, CallError> {
        let (server, url) = answering(answer).await;
        let host = url.trim_end_matches('/').to_owned();
        let fetcher = fetcher(&json!({"allow": [host], "allowPrivate": true, "maxBytes": 1_000}));
        let action = Http::Fetch {
            method: "GET".to_owned(),
            url,
            headers: BTreeMap::new(),
            body: None,
            raw: false,
            whole: true,
            kept_bytes,
            timeout_ms: 30_000,
            mark: String::new(),
        };
        let result = fetcher.fetch(action).await;
        drop(server);
        result
    }

    /// An answer with this content encoding and body.
    fn encoded(encoding: &str, body: &[u8]) -> Vec<u8> {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-encoding: {encoding}\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    }

    #[tokio::test]
    async fn compat_2_a_body_that_is_compressed_unasked_is_decoded() {
        let plain = "hello ".repeat(200);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(plain.as_bytes()).unwrap();
        zlib.write_all(plain.as_bytes()).unwrap();
        bare.write_all(plain.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        for (encoding, body) in [
            ("GZIP", &gzip),
            ("x-gzip", &gzip),
            ("deflate", &zlib.finish().unwrap()),
            ("deflate", &bare.finish().unwrap()),
        ] {
            // The connection's limit counts decoded bytes.
            let found = fetched(encoded(encoding, body), None).await.unwrap();
            let length = body.len().to_string();
            assert_eq!(Some(found.text.as_str()), plain.get(..1_000), "{encoding}");
            assert!(found.is_cut, "{encoding}");
            assert_eq!(found.headers["content-length"], length);
            assert_eq!(found.headers["content-encoding"], encoding);
        }
        // A call's own limit is compared with the header, and counts decoded bytes.
        let length = u64::try_from(gzip.len()).unwrap();
        for (kept, expected) in [(length - 1, length - 1), (length, 1_000)] {
            let found = fetched(encoded("gzip", &gzip), Some(kept)).await.unwrap();
            assert_eq!(found.bytes, expected, "{kept}");
        }
        let unknown = fetched(encoded("other", b"as it is"), None).await.unwrap();
        assert_eq!(unknown.text, "as it is");
        for (encoding, body) in [
            ("gzip", &b"not compressed"[..]),
            ("br", b"x"),
            ("zstd", b"x"),
            ("gzip, br", b"x"),
        ] {
            let error = fetched(encoded(encoding, body), None).await.unwrap_err();
            assert_eq!(error.code, CallErrorCode::Internal, "{encoding}: {error}");
        }
    }

    #[tokio::test]
    async fn compat_2_a_cut_body_has_its_first_bytes() {
        for (body, kept, expected) in [
            ("\u{feff}hi there", 6, "hi "),
            ("\u{feff}hi there", 2, "\u{fffd}"),
            ("h\u{e9}llo", 2, "h\u{fffd}"),
            ("hello", 0, ""),
            ("hello", 5, "hello"),
        ] {
            let found = fetched(encoded("identity", body.as_bytes()), Some(kept)).await;
            assert_eq!(found.unwrap().text, expected, "{body} {kept}");
        }
    }

    #[tokio::test]
    async fn an_encoding_without_a_body_is_no_failure() {
        let found = fetched(encoded("br", b""), None).await.unwrap();
        assert_eq!((found.status, found.text.as_str()), (200, ""));
    }

    #[tokio::test]
    async fn compat_2_redirects_without_end_or_to_nowhere_fail() {
        for (location, expected) in [
            ("/", "more than 20 redirects"),
            ("http://[", "an invalid URL"),
        ] {
            let answer = format!(
                "HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: \
                 close\r\n\r\n"
            );
            let error = fetched(answer.into_bytes(), None).await.unwrap_err();
            assert!(error.message.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_redirect_takes_no_password_to_another_host() {
        let request = || FetchRequest {
            url: "https://a.org/1".parse().unwrap(),
            headers: to_headers(
                &BTreeMap::from([("Authorization".into(), "x".into())]),
                true,
            )
            .unwrap(),
            body: Some("{}".into()),
        };
        let (mut same, mut method) = (request(), Method::POST);
        same.follow(&mut method, 307, "https://a.org/2".parse().unwrap());
        assert!(same.headers.contains_key(AUTHORIZATION) && same.body.is_some());
        assert_eq!(method, Method::POST);
        let mut other = request();
        other.follow(&mut method, 303, "https://b.org/".parse().unwrap());
        assert!(other.headers.is_empty() && other.body.is_none());
        assert_eq!(method, Method::GET);
    }

    #[test]
    fn response_body_is_decoded_by_its_content_type() {
        let url: Url = "https://a.org/".parse().unwrap();
        let of = |body: &[u8], kind: &str| to_text(body, kind, &url, false);
        assert_eq!(of(b"{}", "application/problem+json"), ("{}".into(), None));
        assert_eq!(of(b"<p>a</p>", "text/html; charset=utf-8").0, "a");
        assert_eq!(to_text(b"<p>", "text/html", &url, true).0, "<p>");
        assert_eq!(of(b"caf\xe9", "text/plain; charset=ISO-8859-1").0, "café");
        assert!(
            of(b"caf\xe9!", "text/plain")
                .1
                .unwrap()
                .contains("not UTF-8")
        );
        let (text, note) = of(b"\x89PNG", "image/png");
        assert!(text.is_empty() && note.unwrap().contains("image/png of 4 bytes"));
        assert!(of(b"a\0b", "").0.is_empty());
    }
}
