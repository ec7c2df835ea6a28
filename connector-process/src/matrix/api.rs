//! The client-server API of a homeserver.

use std::time::Duration;

use reqwest::{Method, Url};
use serde_json::Value;

use crate::back_off::back_off;
use crate::limits::{SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS, SERVICE_TIMEOUT_MS};
use crate::payload::text;
use crate::service::{ExchangeFailure, HttpAnswer, exchange};

/// Longest description of a homeserver that is repeated, in characters.
const DESCRIPTION_CHARS_MAX: usize = 200;

/// Codes of tokens and accounts that only a person can replace.
const TOKEN_CODES: [&str; 4] = [
    "M_UNKNOWN_TOKEN",
    "M_MISSING_TOKEN",
    "M_USER_DEACTIVATED",
    "M_USER_LOCKED",
];

/// Pause if the homeserver names none, in milliseconds.
const PAUSE_DEFAULT_MS: u64 = 1_000;

/// Reason for a failed request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ApiError {
    /// The token is invalid, or the account cannot be used.
    #[error(
        "the homeserver rejects the access token ({code}: {said}); log in again and replace the secret `accessToken`"
    )]
    BadToken { code: String, said: String },
    #[error("the homeserver requests a pause of {retry_after_ms} ms (M_LIMIT_EXCEEDED)")]
    TooMany {
        /// Time to wait, in milliseconds.
        retry_after_ms: u64,
    },
    #[error("the homeserver answered {status} {code}: {said}")]
    Refused {
        status: u16,
        code: String,
        said: String,
    },
    #[error("failed to connect to the homeserver: {0}")]
    Unreachable(String),
    /// The connection broke or timed out after the homeserver may have received the request.
    #[error("failed to connect to the homeserver: {0}")]
    Lost(String),
    /// The answer cannot be parsed.
    #[error("unexpected answer from the homeserver: {0}")]
    Strange(String),
    /// The daemon did not accept an event at the moment.
    #[error("the daemon accepts no events at the moment: {0}")]
    NotTaken(String),
}

impl ApiError {
    /// Pause after this error, for the n-th consecutive failure.
    pub(super) fn pause(&self, failures: u32) -> Duration {
        let back_off =
            |failures| back_off(failures, SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS);
        match self {
            Self::TooMany { retry_after_ms } => {
                Duration::from_millis(*retry_after_ms).max(back_off(1))
            }
            Self::BadToken { .. } => Duration::from_millis(SERVICE_BACK_OFF_MAX_MS),
            Self::Refused { .. }
            | Self::Unreachable(_)
            | Self::Lost(_)
            | Self::Strange(_)
            | Self::NotTaken(_) => back_off(failures),
        }
    }

    /// True if the requested thing does not exist, or the account must not see it.
    pub(super) fn is_absent(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                status: 403 | 404,
                ..
            }
        )
    }

    /// True if the homeserver does not know the position of a sync.
    pub(super) fn is_unknown_position(&self) -> bool {
        matches!(self, Self::Refused { status: 400, code, .. }
            if ["M_UNKNOWN", "M_UNKNOWN_POS", "M_INVALID_PARAM"].contains(&code.as_str()))
    }
}

/// The API for one account. Cheap to clone.
#[derive(Clone)]
pub(super) struct Api {
    client: reqwest::Client,
    base: Url,
    token: String,
}

impl Api {
    /// Creates a client for the homeserver at `endpoint`.
    ///
    /// # Errors
    ///
    /// A description of an invalid setting.
    pub(super) fn new(
        client: reqwest::Client,
        endpoint: &str,
        token: &str,
    ) -> Result<Self, String> {
        let base = Url::parse(endpoint)
            .ok()
            .filter(|url| !url.cannot_be_a_base());
        let base = base.ok_or("`endpoint` is not the URL of a homeserver")?;
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the secret `accessToken` is not an access token".to_owned());
        }
        Ok(Self {
            client,
            base,
            token: token.to_owned(),
        })
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// A request to a path, whose segments are escaped.
    pub(super) fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> reqwest::RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("_matrix").extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.client.request(method, url).bearer_auth(&self.token)
    }

    /// Reads something.
    ///
    /// # Errors
    ///
    /// [`ApiError`] if it does not succeed.
    pub(super) async fn get(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Value, ApiError> {
        self.get_within(Duration::from_millis(SERVICE_TIMEOUT_MS), path, query)
            .await
    }

    /// As [`Self::get`], for a request that the homeserver answers later.
    pub(super) async fn get_within(
        &self,
        request_timeout: Duration,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Value, ApiError> {
        answer_to(self.request(Method::GET, path, query), request_timeout).await
    }

    /// As [`Self::get`]; `None` if it does not exist, or the account must not see it.
    pub(super) async fn find(&self, path: &[&str]) -> Result<Option<Value>, ApiError> {
        match self.get(path, &[]).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends JSON.
    ///
    /// # Errors
    ///
    /// [`ApiError`] if it does not succeed.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &[&str],
        body: &Value,
    ) -> Result<Value, ApiError> {
        let request = self
            .request(method, path, &[])
            .header("content-type", "application/json")
            .body(body.to_string());
        answer_to(request, Duration::from_millis(SERVICE_TIMEOUT_MS)).await
    }

    /// Sends an event to a room; `transaction` identifies it if it is sent again.
    ///
    /// # Errors
    ///
    /// [`ApiError`] if it does not succeed.
    pub(super) async fn send_event(
        &self,
        room: &str,
        (kind, transaction): (&str, &str),
        content: &Value,
    ) -> Result<Value, ApiError> {
        let path = ["client", "v3", "rooms", room, "send", kind, transaction];
        self.send(Method::PUT, &path, content).await
    }

    /// Uploads a file and returns its `mxc` URI.
    ///
    /// # Errors
    ///
    /// [`ApiError`] if it does not succeed.
    pub(super) async fn upload(
        &self,
        name: &str,
        mime_type: &str,
        content: Vec<u8>,
    ) -> Result<String, ApiError> {
        let path = ["media", "v3", "upload"];
        let request = self
            .request(Method::POST, &path, &[("filename", name)])
            .header("content-type", mime_type)
            .body(content);
        let uploaded = answer_to(request, Duration::from_millis(SERVICE_TIMEOUT_MS)).await?;
        let uri = text(&uploaded, "/content_uri").map(str::to_owned);
        uri.ok_or_else(|| ApiError::Strange("an upload without `content_uri`".to_owned()))
    }
}

async fn answer_to(
    request: reqwest::RequestBuilder,
    request_timeout: Duration,
) -> Result<Value, ApiError> {
    match exchange(request, request_timeout).await {
        Ok(answered) => read(&answered),
        Err(broken @ (ExchangeFailure::TooLong(_) | ExchangeFailure::Forbidden(_))) => {
            Err(ApiError::Strange(broken.to_string()))
        }
        Err(ExchangeFailure::NotSent(reason)) => Err(ApiError::Unreachable(reason)),
        Err(ExchangeFailure::Lost(reason)) => Err(ApiError::Lost(reason)),
    }
}

/// The result in an answer.
fn read(answered: &HttpAnswer) -> Result<Value, ApiError> {
    let status = answered.status;
    let body = answered.json();
    if status == 200 {
        return match body {
            Value::Object(_) => Ok(body),
            _ => Err(ApiError::Strange("an answer without JSON".to_owned())),
        };
    }
    let code = text(&body, "/errcode")
        .unwrap_or("without a code")
        .to_owned();
    let said = text(&body, "/error").unwrap_or("nothing further");
    let said: String = said.chars().take(DESCRIPTION_CHARS_MAX).collect();
    if status == 429 {
        let named = body.get("retry_after_ms").and_then(Value::as_u64);
        let retry_after_ms = named.or_else(|| answered.retry_after_ms());
        return Err(ApiError::TooMany {
            retry_after_ms: retry_after_ms.unwrap_or(PAUSE_DEFAULT_MS),
        });
    }
    if status == 401 || TOKEN_CODES.contains(&code.as_str()) {
        return Err(ApiError::BadToken { code, said });
    }
    Err(ApiError::Refused { status, code, said })
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, RETRY_AFTER};
    use serde_json::json;

    use super::*;

    fn answer(status: u16, body: &Value) -> HttpAnswer {
        HttpAnswer {
            status,
            headers: HeaderMap::new(),
            body: body.to_string().into_bytes(),
        }
    }

    /// Bodies of Synapse 1.163.2.
    #[test]
    fn conn_1_errors_of_a_homeserver_are_understood() {
        let error = |status, body: Value| read(&answer(status, &body)).unwrap_err();
        let token = error(
            401,
            json!({"errcode": "M_UNKNOWN_TOKEN", "error": "Invalid access token passed.",
                "soft_logout": false}),
        );
        assert!(token.to_string().contains("M_UNKNOWN_TOKEN"), "{token}");
        assert_eq!(token.pause(1).as_secs(), 60);
        let mut limited = answer(429, &json!({"errcode": "M_LIMIT_EXCEEDED"}));
        limited.headers.insert(RETRY_AFTER, "3".parse().unwrap());
        let pause = ApiError::TooMany {
            retry_after_ms: 3_000,
        };
        assert_eq!(read(&limited), Err(pause));
        limited.body = json!({"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many Requests",
            "retry_after_ms": 2_345})
        .to_string()
        .into_bytes();
        let pause = read(&limited).unwrap_err().pause(9);
        assert_eq!(pause.as_millis(), 2_345);
        let absent = json!({"errcode": "M_NOT_FOUND", "error": "Event not found."});
        assert!(error(404, absent).is_absent());
        let position = json!({"errcode": "M_UNKNOWN", "error": "Invalid stream token"});
        assert!(error(400, position).is_unknown_position());
        assert!(matches!(
            error(502, json!("x")),
            ApiError::Refused { status: 502, .. }
        ));
        assert!(matches!(error(200, json!([])), ApiError::Strange(_)));
        assert_eq!(read(&answer(200, &json!({"a": 1}))), Ok(json!({"a": 1})));
    }

    #[test]
    fn conn_1_ids_are_escaped_in_paths() {
        let client = || crate::http::service_client().unwrap();
        let api = Api::new(client(), "https://matrix.example.org/base/", "syt_1").unwrap();
        let path = ["client", "v3", "rooms", "!a/..:x?#", "state", "m.room.name"];
        let request = api.request(Method::GET, &path, &[("to", "s1&x")]);
        let request = request.build().unwrap();
        assert_eq!(
            request.url().as_str(),
            "https://matrix.example.org/base/_matrix/client/v3/rooms/!a%2F..:x%3F%23/state/\
             m.room.name?to=s1%26x"
        );
        assert!(Api::new(client(), "mailto:x", "t").is_err());
        assert!(Api::new(client(), "https://x", "a b").is_err());
    }
}
