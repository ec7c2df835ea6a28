//! One HTTP exchange with a remote server: a request, and its response as messages.
//!
//! The library's own exchange reads neither compressed bodies nor batches. Servers and gateways
//! send both without a request for them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::pin::pin;

use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use futures_util::future::ready;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use goondan_protocol::lone_surrogates::without_lone_surrogates;
use reqwest::{Body, RequestBuilder, Response, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ErrorCode, ErrorData, JsonRpcError, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::json_rpc;
use crate::content_encoding::{BodyDecoder, ContentEncoding};
use crate::limits::{
    ENCODED_PIECE_BYTES, MCP_ERROR_BYTES_MAX, MCP_MESSAGE_BYTES_MAX, NOTE_BYTES_MAX,
};

pub(super) type HttpError = StreamableHttpError<reqwest::Error>;
pub(super) type EventStream = BoxStream<'static, Result<Sse, SseError>>;

const SESSION_ID: &str = "mcp-session-id";
const LAST_EVENT_ID: &str = "last-event-id";
const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";

/// Byte order mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Headers of a request.
pub(super) struct RequestHeaders<'h> {
    pub(super) session_id: Option<&'h str>,
    pub(super) last_event_id: Option<String>,
    pub(super) bearer_token: Option<String>,
    pub(super) others: HashMap<HeaderName, HeaderValue>,
}

impl RequestHeaders<'_> {
    fn add_to(self, mut request: RequestBuilder) -> Result<RequestBuilder, HttpError> {
        request = request.header(ACCEPT, format!("{EVENT_STREAM}, {JSON}"));
        // Without this header, some servers select an encoding, such as `br`.
        if !self.others.contains_key(&ACCEPT_ENCODING) {
            request = request.header(ACCEPT_ENCODING, "identity");
        }
        if let Some(session_id) = self.session_id {
            request = request.header(SESSION_ID, session_id);
        }
        if let Some(last_event_id) = self.last_event_id {
            request = request.header(LAST_EVENT_ID, last_event_id);
        }
        if let Some(token) = self.bearer_token {
            request = request.bearer_auth(token);
        }
        for (name, value) in self.others {
            let name_text = name.as_str();
            if name == ACCEPT || name_text == SESSION_ID || name_text == LAST_EVENT_ID {
                let name = name_text.to_owned();
                return Err(StreamableHttpError::ReservedHeaderConflict(name));
            }
            request = request.header(name, value);
        }
        Ok(request)
    }
}

/// Sends a message and returns the response, with at most `event_bytes_max` in one event.
///
/// # Errors
///
/// [`StreamableHttpError`] if the server cannot be reached, or its response has no message.
pub(super) async fn post(
    request: RequestBuilder,
    headers: RequestHeaders<'_>,
    message: &ClientJsonRpcMessage,
    event_bytes_max: usize,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let in_session = headers.session_id.is_some();
    let response = headers.add_to(request)?.json(message).send().await?;
    check_authorization(&response)?;
    let status = response.status();
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    if status == StatusCode::NOT_FOUND && in_session {
        return Err(StreamableHttpError::SessionExpired);
    }
    let session_id = response.headers().get(SESSION_ID);
    let session_id = session_id.and_then(|id| id.to_str().ok().map(str::to_owned));
    let content_type = content_type_of(&response);
    if !status.is_success() {
        return of_error(response, content_type.as_deref(), session_id).await;
    }
    if is_of_type(content_type.as_deref(), EVENT_STREAM) {
        let asked = match message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let events = events_of(decoded(response)?, event_bytes_max, asked);
        return Ok(StreamableHttpPostResponse::Sse(events, session_id));
    }
    let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
    if !is_of_type(content_type.as_deref(), JSON) {
        return match is_request || response.content_length() != Some(0) {
            true => Err(StreamableHttpError::UnexpectedContentType(content_type)),
            false => Ok(StreamableHttpPostResponse::Accepted),
        };
    }
    let body = bounded(decoded(response)?, MCP_MESSAGE_BYTES_MAX).await?;
    match of_json(&body, session_id) {
        Err(error) if !is_request => {
            tracing::debug!(%error, "ignored the answer of the MCP server to a notification");
            Ok(StreamableHttpPostResponse::Accepted)
        }
        response => response,
    }
}

/// Opens the stream of the server's own messages.
///
/// # Errors
///
/// [`StreamableHttpError`] if the server does not open a stream.
pub(super) async fn get(
    request: RequestBuilder,
    headers: RequestHeaders<'_>,
    event_bytes_max: usize,
) -> Result<EventStream, HttpError> {
    let response = headers.add_to(request)?.send().await?;
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        return Err(StreamableHttpError::ServerDoesNotSupportSse);
    }
    check_authorization(&response)?;
    if let Some(error) = status_error(response.status(), response.headers()) {
        return Err(error.into());
    }
    let response = response.error_for_status()?;
    let content_type = content_type_of(&response);
    if !is_of_type(content_type.as_deref(), EVENT_STREAM)
        && !is_of_type(content_type.as_deref(), JSON)
    {
        return Err(StreamableHttpError::UnexpectedContentType(content_type));
    }
    Ok(events_of(decoded(response)?, event_bytes_max, None))
}

/// # Errors
///
/// If the server challenges the request's token.
fn check_authorization(response: &Response) -> Result<(), HttpError> {
    let status = response.status();
    let Some(challenge) = response.headers().get(WWW_AUTHENTICATE) else {
        return Ok(());
    };
    let challenge = String::from_utf8_lossy(challenge.as_bytes()).into_owned();
    match status {
        StatusCode::UNAUTHORIZED => Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(
            challenge,
        ))),
        StatusCode::FORBIDDEN => Err(StreamableHttpError::InsufficientScope(
            InsufficientScopeError::new(challenge, None),
        )),
        _ => Ok(()),
    }
}

fn content_type_of(response: &Response) -> Option<String> {
    let value = response.headers().get(CONTENT_TYPE)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn is_of_type(content_type: Option<&str>, expected: &str) -> bool {
    let found = content_type.unwrap_or_default();
    let found = found.split(';').next().unwrap_or_default();
    found.trim().eq_ignore_ascii_case(expected)
}

/// The error of an overloaded or failing server, which names no message.
fn status_error(status: StatusCode, headers: &HeaderMap) -> Option<HttpStatusError> {
    let is_of_server = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    let retry_after = headers.get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok().map(str::to_owned));
    is_of_server.then(|| HttpStatusError::new(status.as_u16(), retry_after))
}

/// A response with an error status: the error message in its body, or its status and text.
async fn of_error(
    response: Response,
    content_type: Option<&str>,
    session_id: Option<String>,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let status = response.status();
    let is_json = is_of_type(content_type, JSON);
    let status_error = status_error(status, response.headers());
    let status_error = match status_error {
        Some(error) if status == StatusCode::TOO_MANY_REQUESTS || !is_json => {
            return Err(error.into());
        }
        other => other,
    };
    let body = bounded(decoded(response)?, MCP_ERROR_BYTES_MAX).await;
    let body = match body {
        Ok(body) => body,
        Err(error) => return Err(status_error.map_or(error, StreamableHttpError::from)),
    };
    // The status of a rejected token says more than a message.
    let is_of_token = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let message = serde_json::from_slice(&body);
    if let Ok(message @ ServerJsonRpcMessage::Error(_)) = message
        && is_json
        && !is_of_token
    {
        return Ok(StreamableHttpPostResponse::Json(message, session_id));
    }
    if let Some(error) = status_error {
        return Err(error.into());
    }
    let text = String::from_utf8_lossy(&body);
    let text = format!("HTTP {status}: {text}");
    Err(StreamableHttpError::UnexpectedServerResponse(text.into()))
}

/// The messages of a JSON body.
fn of_json(
    body: &[u8],
    session_id: Option<String>,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let repaired = std::str::from_utf8(body)
        .ok()
        .and_then(without_lone_surrogates);
    let body = repaired.as_deref().map_or(body, str::as_bytes);
    let messages = json_rpc::messages(body).unwrap_or_default();
    if let [message] = messages.as_slice() {
        return match serde_json::from_slice(message) {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session_id)),
            Err(error) => Err(no_message(&error.to_string(), body)),
        };
    }
    if messages.is_empty() {
        return Err(no_message("expected a JSON-RPC message", body));
    }
    let events: Vec<Result<Sse, SseError>> = messages
        .into_iter()
        .map(|message| Ok(event_of(&String::from_utf8_lossy(&message))))
        .collect();
    let events = stream::iter(events).boxed();
    Ok(StreamableHttpPostResponse::Sse(events, session_id))
}

fn no_message(reason: &str, body: &[u8]) -> HttpError {
    let start: String = String::from_utf8_lossy(body)
        .chars()
        .take(NOTE_BYTES_MAX)
        .collect();
    let start = match start.trim().is_empty() {
        true => Cow::Borrowed("<empty>"),
        false => Cow::Owned(start),
    };
    let text = format!("the body cannot be read: {reason}: {start}");
    StreamableHttpError::UnexpectedServerResponse(text.into())
}

fn event_of(data: &str) -> Sse {
    Sse::default().data(data)
}

/// Decodes the body while it arrives.
///
/// # Errors
///
/// If its encoding is unknown.
fn decoded(response: Response) -> Result<Response, HttpError> {
    let encoding = ContentEncoding::of(response.headers()).map_err(|name| {
        let text = format!("the body has the content encoding `{name}`, which was not requested");
        StreamableHttpError::UnexpectedServerResponse(text.into())
    })?;
    if encoding == ContentEncoding::Identity {
        return Ok(response);
    }
    let (status, mut headers) = (response.status(), response.headers().clone());
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    let mut decoder = BodyDecoder::new(encoding);
    // A small piece can be large when it is decoded.
    let pieces = response.bytes_stream().flat_map(|part| {
        let pieces = match part {
            Ok(part) => (0..part.len())
                .step_by(ENCODED_PIECE_BYTES)
                .map(|at| Ok(part.slice(at..part.len().min(at + ENCODED_PIECE_BYTES))))
                .collect(),
            Err(error) => vec![Err(io::Error::other(error))],
        };
        stream::iter(pieces)
    });
    let plain = pieces.map(move |piece| {
        let piece = piece?;
        let plain = decoder.decode(&piece)?;
        Ok::<_, io::Error>(Bytes::from(plain.into_owned()))
    });
    let mut response = axum::http::Response::new(Body::wrap_stream(plain));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(Response::from(response))
}

/// Reads a whole body.
///
/// # Errors
///
/// If it is longer than `bytes_max`, or interrupted.
async fn bounded(response: Response, bytes_max: usize) -> Result<Vec<u8>, HttpError> {
    let mut parts = pin!(response.bytes_stream());
    let mut body = Vec::new();
    while let Some(part) = parts.try_next().await? {
        if part.len() > bytes_max - body.len() {
            return Err(StreamableHttpError::ResponseBodyTooLarge {
                max_size: bytes_max,
            });
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}

/// The events of a stream, each with one message. An event of more than `bytes_max` ends it, with
/// an error as the answer of the request.
fn events_of(response: Response, bytes_max: usize, request: Option<RequestId>) -> EventStream {
    let mut size = EventSize::default();
    let parts = response.bytes_stream().map(move |part| {
        let part = part.map_err(io::Error::other)?;
        match size.add(&part) > bytes_max {
            true => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
            false => Ok(part),
        }
    });
    let events = SseStream::from_bytes_stream(parts);
    let events = events.scan(false, move |has_ended, event| {
        if *has_ended {
            return ready(None);
        }
        *has_ended = event.is_err();
        ready(Some(match (event, &request) {
            (Err(SseError::Body(error)), Some(request)) if is_too_large(error.as_ref()) => {
                Ok(event_of(&too_large(request, bytes_max)))
            }
            (event, _) => event,
        }))
    });
    events.flat_map(|event| stream::iter(split(event))).boxed()
}

/// The answer of a request whose event is too long.
fn too_large(request: &RequestId, bytes_max: usize) -> String {
    let text = format!("an event of the answer has more than {bytes_max} bytes");
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, text, None);
    let error = JsonRpcError::new(Some(request.clone()), error);
    serde_json::to_string(&ServerJsonRpcMessage::Error(error)).unwrap_or_default()
}

fn is_too_large(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::FileTooLarge)
}

/// The events of a batch in an event; another event is unchanged.
fn split(event: Result<Sse, SseError>) -> Vec<Result<Sse, SseError>> {
    let Ok(event) = event else {
        return vec![event];
    };
    let data = event.data.as_deref().unwrap_or_default();
    if !data.trim_start().starts_with('[') {
        return vec![Ok(event)];
    }
    let messages = json_rpc::messages(data.as_bytes()).unwrap_or_default();
    let parts = messages.into_iter().map(|message| {
        Ok(Sse {
            data: Some(String::from_utf8_lossy(&message).into_owned()),
            ..event.clone()
        })
    });
    let parts: Vec<_> = parts.collect();
    match parts.is_empty() {
        true => vec![Ok(event)],
        false => parts,
    }
}

/// Size of an event in a stream: the bytes since the last empty line.
#[derive(Debug, Default)]
struct EventSize {
    bytes: usize,
    is_line_empty: bool,
}

impl EventSize {
    /// Adds the next part of the stream. Returns the size of the largest event so far in it.
    fn add(&mut self, part: &[u8]) -> usize {
        let mut most = 0;
        for byte in part {
            match byte {
                b'\n' if self.is_line_empty => self.bytes = 0,
                b'\n' => self.is_line_empty = true,
                b'\r' => {}
                _ => self.is_line_empty = false,
            }
            self.bytes += 1;
            most = most.max(self.bytes);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    const FIRST: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"a"}}"#;
    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;

    /// The messages of a response with these headers and this body, read in one exchange.
    async fn messages_of(headers: &str, body: &[u8]) -> Result<Vec<String>, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let head = format!("HTTP/1.1 200 OK\r\n{headers}\r\nconnection: close\r\n\r\n");
        let answer = [head.as_bytes(), body].concat();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).unwrap() > 0);
            for part in answer.chunks(7) {
                stream.write_all(part).unwrap();
            }
        });
        let http = crate::http::service_client().unwrap();
        let headers = RequestHeaders {
            session_id: None,
            last_event_id: None,
            bearer_token: None,
            others: HashMap::new(),
        };
        let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
        let message: ClientJsonRpcMessage = serde_json::from_str(ping).unwrap();
        let response = post(http.post(url), headers, &message, 1_000).await;
        server.join().unwrap();
        match response {
            Ok(StreamableHttpPostResponse::Json(message, _)) => {
                Ok(vec![serde_json::to_string(&message).unwrap()])
            }
            Ok(StreamableHttpPostResponse::Sse(events, _)) => {
                let events: Vec<_> = events.collect().await;
                let events = events.into_iter().map(|event| {
                    let event = event.map_err(|error| error.to_string())?;
                    Ok(event.data.unwrap_or_default())
                });
                events.collect()
            }
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn gzip(body: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(body.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn prov_1_compressed_answers_over_http_are_decoded() {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(ANSWER.as_bytes()).unwrap();
        let zlib = zlib.finish().unwrap();
        let events = format!("data: {FIRST}\n\ndata: {ANSWER}\n\n");
        for (headers, body, expected) in [
            (
                "content-type: application/json\r\ncontent-encoding: gzip",
                gzip(ANSWER),
                &[ANSWER][..],
            ),
            (
                "content-type: Application/JSON; charset=utf-8\r\ncontent-encoding: deflate",
                zlib,
                &[ANSWER],
            ),
            (
                "content-type: text/event-stream\r\ncontent-encoding: GZIP",
                gzip(&events),
                &[FIRST, ANSWER],
            ),
            (
                "content-type: application/json",
                ANSWER.as_bytes().to_vec(),
                &[ANSWER],
            ),
        ] {
            assert_eq!(
                messages_of(headers, &body).await.unwrap(),
                expected,
                "{headers}"
            );
        }
        let headers = "content-type: application/json\r\ncontent-encoding: br";
        let error = messages_of(headers, b"?").await.unwrap_err();
        assert!(error.contains("`br`"), "{error}");
        let headers = "content-type: application/json\r\ncontent-encoding: gzip";
        assert!(messages_of(headers, b"plain text").await.is_err());
    }

    #[tokio::test]
    async fn prov_1_batches_over_http_are_read() {
        let batch = format!("\u{feff}[{FIRST},\n{ANSWER}]");
        let json = "content-type: application/json";
        let found = messages_of(json, batch.as_bytes()).await.unwrap();
        assert_eq!(found, [FIRST, ANSWER]);
        let found = messages_of(json, format!("[{ANSWER}]").as_bytes())
            .await
            .unwrap();
        assert_eq!(found, [ANSWER]);
        let events = format!("data: [{FIRST},{ANSWER}]\n\ndata: {FIRST}\n\n");
        let found = messages_of("content-type: text/event-stream", events.as_bytes()).await;
        assert_eq!(found.unwrap(), [FIRST, ANSWER, FIRST]);
        // An answer without a version.
        let found = messages_of(json, br#"{"id":7,"result":{}}"#).await.unwrap();
        assert_eq!(found, [ANSWER]);
        for body in ["", "[]", "{}", "[1]", "<html>"] {
            let error = messages_of(json, body.as_bytes()).await.unwrap_err();
            assert!(error.contains("cannot be read"), "{error}");
        }
    }

    #[tokio::test]
    async fn prov_1_an_event_that_is_too_long_is_an_error_of_the_request() {
        let events = "content-type: text/event-stream";
        let long = format!("data: {FIRST}\r\n\r\ndata: {}\r\n\r\n", "x".repeat(1_000));
        let found = messages_of(events, long.as_bytes()).await.unwrap();
        assert!(
            found
                .iter()
                .any(|event| event.contains("more than 1000 bytes")),
            "{found:?}"
        );
        let many = format!("data: {FIRST}\r\n\r\n").repeat(20);
        assert_eq!(
            messages_of(events, many.as_bytes()).await.unwrap().len(),
            20
        );
    }
}
