//! The HTTP client of a session with a remote server.
//!
//! After a restart, servers that have lost the session answer a request with an error without an id
//! or with a foreign one, or with an empty response. The library would wait for the answer until
//! the call times out. This client answers each request immediately and reports a lost session as
//! such, so that it is started again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::{HeaderName, HeaderValue};
use futures_util::StreamExt as _;
use goondan_protocol::JsonObject;
use goondan_protocol::lone_surrogates::without_lone_surrogates;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcError, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::Value;
use sse_stream::Sse;

use super::http_exchange::{self, EventStream, HttpError, RequestHeaders};
use super::initialize_result;
use crate::limits::MCP_MESSAGE_BYTES_MAX;

/// A client that correlates every answer with its request.
#[derive(Debug, Clone)]
pub(super) struct McpHttpClient {
    http: reqwest::Client,
    /// True if the server probably lost the session, so that the next request must start another.
    is_doubtful: Arc<AtomicBool>,
}

impl McpHttpClient {
    pub(super) fn new(http: reqwest::Client) -> Self {
        Self {
            http,
            is_doubtful: Arc::default(),
        }
    }

    /// Describes a request before it is sent.
    ///
    /// # Errors
    ///
    /// [`StreamableHttpError::SessionExpired`] if its session must be started again first.
    fn prepare(
        &self,
        message: &ClientJsonRpcMessage,
        has_session: bool,
    ) -> Result<Option<PendingRpc>, HttpError> {
        let request = PendingRpc::of(message, has_session);
        let in_session = request.as_ref().is_some_and(|request| request.in_session);
        if in_session && self.is_doubtful.swap(false, Ordering::AcqRel) {
            return Err(StreamableHttpError::SessionExpired);
        }
        Ok(request)
    }

    /// Handles the response to a message.
    fn receive(
        &self,
        request: Option<PendingRpc>,
        is_notification: bool,
        response: Result<StreamableHttpPostResponse, HttpError>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let response = match response {
            response if is_notification => accepted(response)?,
            Ok(response) => response,
            Err(error) => return Err(self.rejected(request.as_ref(), error)),
        };
        self.correlate(request, response)
    }

    /// The error of a request that the server answered with an error status. Servers report a lost
    /// session with other statuses than 404, and with bodies that are not messages.
    fn rejected(&self, request: Option<&PendingRpc>, error: HttpError) -> HttpError {
        let Some(request) = request.filter(|request| request.in_session) else {
            return error;
        };
        let StreamableHttpError::UnexpectedServerResponse(said) = &error else {
            return error;
        };
        match evidence_of_loss(said) {
            LossEvidence::Certain => StreamableHttpError::SessionExpired,
            LossEvidence::Possible if request.is_repeatable => StreamableHttpError::SessionExpired,
            LossEvidence::Possible => {
                self.is_doubtful.store(true, Ordering::Release);
                error
            }
            LossEvidence::None => error,
        }
    }

    fn correlate(
        &self,
        request: Option<PendingRpc>,
        response: StreamableHttpPostResponse,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let begins = request.as_ref().is_some_and(|request| request.begins);
        let addressee = request
            .as_ref()
            .map(|request| (request.id.clone(), request.in_session));
        let correlation = correlate(request, if begins { complete(response) } else { response })?;
        if correlation.is_doubtful {
            self.is_doubtful.store(true, Ordering::Release);
        }
        Ok(match (correlation.response, addressee) {
            (StreamableHttpPostResponse::Sse(events, session), Some((id, in_session))) => {
                let is_doubtful = Arc::clone(&self.is_doubtful);
                let events = events.map(move |event| -> Result<Sse, SseError> {
                    let mut event = event?;
                    let repaired = event.data.as_deref().and_then(without_lone_surrogates);
                    event.data = repaired.or(event.data);
                    if let Some(error) = event.data.as_deref().and_then(|it| error_for(it, &id)) {
                        is_doubtful.fetch_or(in_session, Ordering::AcqRel);
                        event.data = Some(error);
                    }
                    Ok(event)
                });
                StreamableHttpPostResponse::Sse(events.boxed(), session)
            }
            (response, _) => response,
        })
    }
}

/// The error in an event as the answer of a request, if the event is an error without the request's
/// id or without the form of a message. The stream answers only this request.
fn error_for(data: &str, id: &RequestId) -> Option<String> {
    const FIELDS: [&str; 3] = ["jsonrpc", "id", "error"];
    let said: JsonObject = serde_json::from_str(data).ok()?;
    // Other fields are of a log record or of another message.
    if !said.keys().all(|field| FIELDS.contains(&field.as_str())) {
        return None;
    }
    let error = said.get("error").filter(|error| !error.is_null())?;
    let is_own = said.get("id") == serde_json::to_value(id).ok().as_ref();
    if is_own && said.contains_key("jsonrpc") {
        return None;
    }
    let message = error.as_str().or_else(|| error.get("message")?.as_str());
    let message = message.unwrap_or("the server reported an error");
    let code = error.get("code").and_then(Value::as_i64);
    let code = code.and_then(|code| i32::try_from(code).ok());
    let code = code.map_or(ErrorCode::INTERNAL_ERROR, ErrorCode);
    let error = ErrorData::new(code, message.to_owned(), None);
    let error = JsonRpcError::new(Some(id.clone()), error);
    serde_json::to_string(&ServerJsonRpcMessage::Error(error)).ok()
}

impl StreamableHttpClient for McpHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            MCP_MESSAGE_BYTES_MAX,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let pending = self.prepare(&message, session_id.is_some())?;
        let is_notification = matches!(message, ClientJsonRpcMessage::Notification(_));
        let request = self.http.post(uri.as_ref());
        let headers = RequestHeaders {
            session_id: session_id.as_deref(),
            last_event_id: None,
            bearer_token: auth_header,
            others: custom_headers,
        };
        let response = http_exchange::post(request, headers, &message, max_sse_event_size).await;
        self.receive(pending, is_notification, response)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        self.http
            .delete_session(uri, session_id, auth_header, custom_headers)
            .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<EventStream, HttpError> {
        self.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            MCP_MESSAGE_BYTES_MAX,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<EventStream, HttpError> {
        let request = self.http.get(uri.as_ref());
        let headers = RequestHeaders {
            session_id: session_id.as_deref(),
            last_event_id,
            bearer_token: auth_header,
            others: custom_headers,
        };
        http_exchange::get(request, headers, max_sse_event_size).await
    }
}

/// A request that expects an answer.
struct PendingRpc {
    id: RequestId,
    /// True if the request is `initialize`.
    begins: bool,
    /// True if the request belongs to a session that the server may have lost.
    in_session: bool,
    /// True if the request can be sent twice without a second effect.
    is_repeatable: bool,
}

impl PendingRpc {
    fn of(message: &ClientJsonRpcMessage, has_session: bool) -> Option<Self> {
        let ClientJsonRpcMessage::Request(request) = message else {
            return None;
        };
        let begins = matches!(request.request, ClientRequest::InitializeRequest(_));
        Some(Self {
            id: request.id.clone(),
            begins,
            in_session: has_session && !begins,
            is_repeatable: !matches!(request.request, ClientRequest::CallToolRequest(_)),
        })
    }
}

/// Answer of a request.
#[derive(Debug)]
struct Correlation {
    response: StreamableHttpPostResponse,
    /// True if the server probably lost the session.
    is_doubtful: bool,
}

impl Correlation {
    fn certain(response: StreamableHttpPostResponse) -> Self {
        Self {
            response,
            is_doubtful: false,
        }
    }

    /// An error as the answer of a request.
    fn error(request: PendingRpc, error: ErrorData, session: Option<String>) -> Self {
        let error = JsonRpcError::new(Some(request.id), error);
        Self {
            response: StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session),
            is_doubtful: request.in_session,
        }
    }
}

/// Evidence that a server lost the session, in the error of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LossEvidence {
    None,
    /// The error can be the result of a tool as well, such as that of a browser's session. The
    /// server may have executed the request.
    Possible,
    /// The server rejected the request because of its session, and did not execute it.
    Certain,
}

impl LossEvidence {
    /// The evidence in an error message.
    fn of(message: &str) -> Self {
        /// Messages of servers' libraries, in lower case.
        const CERTAIN: [&str; 12] = [
            "mcp-session-id",
            "mcp session",
            "session id",
            "sessionid",
            "no active session",
            "no valid session",
            "server not initialized",
            "server is not initialized",
            "server not initialised",
            "session not initialized",
            "session has been terminated",
            "before initialization",
        ];
        const POSSIBLE: [&str; 3] = ["session", "initializ", "initialis"];
        let message = message.to_lowercase();
        let says_any = |words: &[&str]| words.iter().any(|word| message.contains(word));
        if says_any(&CERTAIN) {
            Self::Certain
        } else if says_any(&POSSIBLE) {
            Self::Possible
        } else {
            Self::None
        }
    }
}

/// The evidence in a response with an error status, which its text begins with.
fn evidence_of_loss(said: &str) -> LossEvidence {
    let has_status = |status: &&str| said.starts_with(&format!("HTTP {status}"));
    if has_status(&"410") {
        return LossEvidence::Certain;
    }
    // The session of a token is another one.
    let is_of_token = ["401", "403"].iter().any(has_status);
    match has_status(&"4") && !is_of_token {
        true => LossEvidence::of(said),
        false => LossEvidence::None,
    }
}

/// The response to a notification. A page, a body without a media type, an event stream, and an
/// error are ignored: a notification needs no answer, and the session of such servers works.
fn accepted(
    response: Result<StreamableHttpPostResponse, HttpError>,
) -> Result<StreamableHttpPostResponse, HttpError> {
    match response {
        Err(
            StreamableHttpError::UnexpectedContentType(_)
            | StreamableHttpError::UnexpectedServerResponse(_)
            | StreamableHttpError::Deserialize(_),
        )
        | Ok(StreamableHttpPostResponse::Sse(..)) => {
            tracing::debug!(
                ?response,
                "ignored the answer of the MCP server to a notification"
            );
            Ok(StreamableHttpPostResponse::Accepted)
        }
        response => response,
    }
}

/// Completes the result of `initialize`, as for a server that is a program.
fn complete(response: StreamableHttpPostResponse) -> StreamableHttpPostResponse {
    match response {
        StreamableHttpPostResponse::Json(message, session) => {
            let completed = serde_json::to_vec(&message)
                .ok()
                .and_then(|text| initialize_result::completed(&text))
                .and_then(|text| serde_json::from_slice(&text).ok());
            StreamableHttpPostResponse::Json(completed.unwrap_or(message), session)
        }
        StreamableHttpPostResponse::Sse(events, session) => {
            let events = events.map(|event| event.map(complete_event)).boxed();
            StreamableHttpPostResponse::Sse(events, session)
        }
        other => other,
    }
}

/// Completes the result of `initialize` in an event; other events are unchanged.
fn complete_event(mut event: Sse) -> Sse {
    let completed = event
        .data
        .as_ref()
        .and_then(|data| initialize_result::completed(data.as_bytes()))
        .and_then(|text| String::from_utf8(text).ok());
    event.data = completed.or(event.data);
    event
}

/// Assigns an answer to its request. The request is sent again in a new session if the server
/// certainly did not execute it. If it is unknown whether the server did, only the next request
/// starts a new session.
fn correlate(
    request: Option<PendingRpc>,
    response: StreamableHttpPostResponse,
) -> Result<Correlation, HttpError> {
    let Some(request) = request else {
        return Ok(Correlation::certain(response));
    };
    match response {
        StreamableHttpPostResponse::Accepted if request.in_session && request.is_repeatable => {
            Err(StreamableHttpError::SessionExpired)
        }
        StreamableHttpPostResponse::Accepted => {
            let message = "the server accepted the request and sent no answer";
            let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None);
            Ok(Correlation::error(request, error, None))
        }
        StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session)
            if error.id.as_ref() != Some(&request.id) =>
        {
            let is_lost = LossEvidence::of(&error.error.message) == LossEvidence::Certain;
            if request.in_session && (is_lost || request.is_repeatable) {
                return Err(StreamableHttpError::SessionExpired);
            }
            Ok(Correlation::error(request, error.error, session))
        }
        other => Ok(Correlation::certain(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awaited(in_session: bool) -> Option<PendingRpc> {
        Some(PendingRpc {
            id: RequestId::Number(7),
            begins: false,
            in_session,
            is_repeatable: false,
        })
    }

    fn error(id: Option<RequestId>, message: &str) -> StreamableHttpPostResponse {
        let error = ErrorData::new(ErrorCode(-32_000), message.to_owned(), None);
        StreamableHttpPostResponse::Json(
            ServerJsonRpcMessage::Error(JsonRpcError::new(id, error)),
            None,
        )
    }

    fn answered(response: Result<Correlation, HttpError>) -> Option<RequestId> {
        match response.unwrap().response {
            StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), _) => error.id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn prov_1_every_request_over_http_gets_its_answer() {
        let foreign = Some(RequestId::String("server-error".into()));
        for id in [None, foreign] {
            let response = correlate(awaited(false), error(id, "overloaded"));
            assert_eq!(answered(response), Some(RequestId::Number(7)));
        }
        let response = correlate(awaited(true), StreamableHttpPostResponse::Accepted);
        assert_eq!(answered(response), Some(RequestId::Number(7)));
    }

    #[tokio::test]
    async fn prov_1_an_error_in_an_event_is_the_answer_of_the_request() {
        let own = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"no"}}"#;
        let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
        let result = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        for (data, is_changed) in [
            (r#"{"error":"no"}"#, true),
            (r#"{"error":{"message":"no"}}"#, true),
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}"#,
                true,
            ),
            (
                r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32000,"message":"no"}}"#,
                true,
            ),
            (own, false),
            (note, false),
            (result, false),
            (r#"{"level":"warn","error":"retrying"}"#, false),
            (r#"{"id":8,"result":{},"error":"no"}"#, false),
            ("ping", false),
        ] {
            let event = Sse {
                data: Some(data.to_owned()),
                ..Sse::default()
            };
            let events = futures_util::stream::iter([Ok(event)]).boxed();
            let client = McpHttpClient::new(crate::http::service_client().unwrap());
            let response = StreamableHttpPostResponse::Sse(events, None);
            let response = client.correlate(awaited(true), response).unwrap();
            let StreamableHttpPostResponse::Sse(mut events, _) = response else {
                panic!("{data}");
            };
            let found = events.next().await.unwrap().unwrap().data.unwrap();
            assert_eq!(client.is_doubtful.load(Ordering::Acquire), is_changed);
            if is_changed {
                let error: ServerJsonRpcMessage = serde_json::from_str(&found).unwrap();
                let ServerJsonRpcMessage::Error(error) = error else {
                    panic!("{found}");
                };
                assert_eq!(error.id, Some(RequestId::Number(7)), "{found}");
                assert_eq!(error.error.message, "no");
            } else {
                assert_eq!(found, data);
            }
        }
    }

    #[test]
    fn prov_1_a_lost_session_is_recognized_in_any_body() {
        let lost = |request: Option<PendingRpc>, said: &str| {
            let client = McpHttpClient::new(crate::http::service_client().unwrap());
            let error = StreamableHttpError::UnexpectedServerResponse(said.to_owned().into());
            let found = client.rejected(request.as_ref(), error);
            let is_lost = matches!(found, StreamableHttpError::SessionExpired);
            (is_lost, client.is_doubtful.load(Ordering::Acquire))
        };
        for said in [
            "HTTP 400 Bad Request: No active session",
            "HTTP 400 Bad Request: {\"error\":\"Unknown Mcp-Session-Id header\"}",
            "HTTP 409 Conflict: the server is not initialized",
            "HTTP 410 Gone: ",
        ] {
            assert_eq!(lost(awaited(true), said), (true, false), "{said}");
            assert_eq!(lost(awaited(false), said), (false, false), "{said}");
        }
        // A tool may have been executed. The next request starts a new session.
        for said in [
            "HTTP 400 Bad Request: the session of the browser has crashed",
            "HTTP 422 Unprocessable Entity: failed to initialize the database",
        ] {
            assert_eq!(lost(awaited(true), said), (false, true), "{said}");
            let listing = awaited(true).map(|request| PendingRpc {
                is_repeatable: true,
                ..request
            });
            assert_eq!(lost(listing, said), (true, false), "{said}");
        }
        for said in [
            "HTTP 400 Bad Request: no such field",
            "HTTP 302 Found: session",
            "HTTP 401 Unauthorized: the session has expired",
        ] {
            assert_eq!(lost(awaited(true), said), (false, false), "{said}");
        }
    }

    #[test]
    fn prov_1_an_odd_response_to_a_notification_ends_no_session() {
        let html = "text/html".to_owned();
        let events = futures_util::stream::empty().boxed();
        for response in [
            Err(StreamableHttpError::UnexpectedContentType(None)),
            Err(StreamableHttpError::UnexpectedContentType(Some(html))),
            Err(StreamableHttpError::UnexpectedServerResponse(
                "HTTP 404 Not Found".into(),
            )),
            Ok(StreamableHttpPostResponse::Sse(events, None)),
            Ok(StreamableHttpPostResponse::Accepted),
        ] {
            let shown = format!("{response:?}");
            let found = accepted(response);
            assert!(
                matches!(found, Ok(StreamableHttpPostResponse::Accepted)),
                "{shown}"
            );
        }
        let lost = accepted(Err(StreamableHttpError::SessionExpired));
        assert!(matches!(lost, Err(StreamableHttpError::SessionExpired)));
    }

    #[tokio::test]
    async fn prov_1_an_incomplete_initialize_result_over_http_is_completed() {
        let text = r#"{"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": "2025-06-18"}}"#;
        let event = Sse {
            data: Some(text.to_owned()),
            ..Sse::default()
        };
        let events = futures_util::stream::iter([Ok(event)]).boxed();
        for response in [
            StreamableHttpPostResponse::Json(serde_json::from_str(text).unwrap(), None),
            StreamableHttpPostResponse::Sse(events, None),
        ] {
            let initialized = complete(response).expect_initialized::<reqwest::Error>();
            let (message, _session) = initialized.await.unwrap();
            let shown = format!("{message:?}");
            assert!(shown.contains("InitializeResult"), "{shown}");
        }
    }

    #[test]
    fn prov_1_a_forgotten_session_is_begun_again() {
        let forgotten = || error(None, "Bad Request: no valid session ID provided");
        let is_begun_again =
            |correlated| matches!(correlated, Err(StreamableHttpError::SessionExpired));
        assert!(is_begun_again(correlate(awaited(true), forgotten())));
        let early = error(None, "Bad Request: Server not initialized");
        assert!(is_begun_again(correlate(awaited(true), early)));
        // A request without an effect is sent again after any error.
        let repeatable = || {
            awaited(true).map(|request| PendingRpc {
                is_repeatable: true,
                ..request
            })
        };
        let broken = || error(None, "Internal error");
        assert!(is_begun_again(correlate(repeatable(), broken())));
        let accepted = StreamableHttpPostResponse::Accepted;
        assert!(is_begun_again(correlate(repeatable(), accepted)));
        // A call may have been executed: the next request starts the session.
        let call = correlate(awaited(true), broken()).unwrap();
        assert!(call.is_doubtful);
        let call = correlate(awaited(true), StreamableHttpPostResponse::Accepted).unwrap();
        assert!(call.is_doubtful);
        assert_eq!(
            answered(correlate(awaited(false), forgotten())),
            Some(RequestId::Number(7))
        );
        let own = error(Some(RequestId::Number(7)), "no such session of the game");
        assert_eq!(
            answered(correlate(awaited(true), own)),
            Some(RequestId::Number(7))
        );
    }
}
