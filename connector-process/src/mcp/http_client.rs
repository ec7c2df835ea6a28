//! The HTTP client of a session with a remote server.
//!
//! After a restart, servers that have lost the session answer a request with an error without an id
//! or with a foreign one, or with an empty response. The library would wait for the answer until
//! the call times out. This client answers each request immediately and reports a lost session as
//! such, so that it is started again.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use futures_util::stream::BoxStream;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcError, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

type HttpError = StreamableHttpError<reqwest::Error>;
type EventStream = BoxStream<'static, Result<Sse, SseError>>;

/// A client that correlates every answer with its request.
#[derive(Debug, Clone)]
pub(super) struct McpHttpClient(pub(super) reqwest::Client);

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
        let request = PendingRpc::of(&message, session_id.is_some());
        let response = self
            .0
            .post_message(uri, message, session_id, auth_header, custom_headers)
            .await?;
        correlate(request, response)
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
        let request = PendingRpc::of(&message, session_id.is_some());
        let response = self
            .0
            .post_message_with_max_sse_event_size(
                uri,
                message,
                session_id,
                auth_header,
                custom_headers,
                max_sse_event_size,
            )
            .await?;
        correlate(request, response)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        self.0
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
        self.0
            .get_stream(uri, session_id, last_event_id, auth_header, custom_headers)
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
        self.0
            .get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                auth_header,
                custom_headers,
                max_sse_event_size,
            )
            .await
    }
}

/// A request that expects an answer.
struct PendingRpc {
    id: RequestId,
    /// True if the request belongs to a session that the server may have lost.
    in_session: bool,
}

impl PendingRpc {
    fn of(message: &ClientJsonRpcMessage, has_session: bool) -> Option<Self> {
        let ClientJsonRpcMessage::Request(request) = message else {
            return None;
        };
        let begins = matches!(request.request, ClientRequest::InitializeRequest(_));
        Some(Self {
            id: request.id.clone(),
            in_session: has_session && !begins,
        })
    }
}

/// Assigns an answer to its request.
fn correlate(
    request: Option<PendingRpc>,
    response: StreamableHttpPostResponse,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let Some(request) = request else {
        return Ok(response);
    };
    match response {
        StreamableHttpPostResponse::Accepted => {
            let message = "the server accepted the request and sent no answer";
            let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None);
            let error = JsonRpcError::new(Some(request.id), error);
            Ok(StreamableHttpPostResponse::Json(
                ServerJsonRpcMessage::Error(error),
                None,
            ))
        }
        StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session)
            if error.id.as_ref() != Some(&request.id) =>
        {
            if request.in_session && is_about_session(&error.error.message) {
                return Err(StreamableHttpError::SessionExpired);
            }
            let error = JsonRpcError::new(Some(request.id), error.error);
            Ok(StreamableHttpPostResponse::Json(
                ServerJsonRpcMessage::Error(error),
                session,
            ))
        }
        other => Ok(other),
    }
}

/// True if the error means that the server does not know the session.
fn is_about_session(message: &str) -> bool {
    message.to_lowercase().contains("session")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awaited(in_session: bool) -> Option<PendingRpc> {
        Some(PendingRpc {
            id: RequestId::Number(7),
            in_session,
        })
    }

    fn error(id: Option<RequestId>, message: &str) -> StreamableHttpPostResponse {
        let error = ErrorData::new(ErrorCode(-32_000), message.to_owned(), None);
        StreamableHttpPostResponse::Json(
            ServerJsonRpcMessage::Error(JsonRpcError::new(id, error)),
            None,
        )
    }

    fn answered(response: Result<StreamableHttpPostResponse, HttpError>) -> Option<RequestId> {
        match response.unwrap() {
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

    #[test]
    fn prov_1_a_forgotten_session_is_begun_again() {
        let forgotten = || error(None, "Bad Request: no valid session ID provided");
        assert!(matches!(
            correlate(awaited(true), forgotten()),
            Err(StreamableHttpError::SessionExpired)
        ));
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
