//! Describes communication errors for people, because the library's messages contain its type
//! names.

use std::error::Error as StdError;

use goondan_log::error_chain;
use goondan_protocol::call::TokenVerdict;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError};

use crate::bearer::verdict_of_header;

/// Describes why a session could not be started.
pub(super) fn of_start(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => of_transport(error),
        other => error_chain(other),
    }
}

/// Describes why a request has no answer.
pub(super) fn of_request(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportSend(error) => of_transport(error),
        other => error_chain(other),
    }
}

/// True if a request was certainly not sent, because the connection failed.
pub(super) fn is_unsent(error: &ServiceError) -> bool {
    match error {
        ServiceError::TransportSend(error) => {
            of_http(error).is_some_and(reqwest::Error::is_connect)
        }
        _ => false,
    }
}

/// The server's verdict on the request's token, if the token caused the error.
pub(super) fn verdict_of(error: &ServiceError) -> Option<TokenVerdict> {
    let ServiceError::TransportSend(error) = error else {
        return None;
    };
    let mut next: Option<&(dyn StdError + 'static)> = Some(&*error.error);
    while let Some(error) = next {
        if let Some(declined) = error.downcast_ref::<AuthRequiredError>() {
            return verdict_of_header(401, &declined.www_authenticate_header);
        }
        if let Some(narrow) = error.downcast_ref::<InsufficientScopeError>() {
            return verdict_of_header(403, &narrow.www_authenticate_header);
        }
        next = error.source();
    }
    None
}

/// Verdict in the challenge of a server that fails to start: it comes with 403 if the token has too
/// little scope, otherwise with 401.
pub(super) fn verdict_of_challenge(header: &str) -> Option<TokenVerdict> {
    verdict_of_header(403, header).or_else(|| verdict_of_header(401, header))
}

fn of_transport(error: &DynamicTransportError) -> String {
    match of_http(error) {
        Some(error) => match goondan_outbound::problem_of(error) {
            Some(problem) => problem.to_string(),
            None => error_chain(error),
        },
        None => error_chain(&*error.error),
    }
}

/// The underlying error of the HTTP client, if any.
fn of_http(error: &DynamicTransportError) -> Option<&reqwest::Error> {
    let mut next: Option<&(dyn StdError + 'static)> = Some(&*error.error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;
    use std::io;

    use super::*;

    fn sending(error: impl StdError + Send + Sync + 'static) -> ServiceError {
        ServiceError::TransportSend(DynamicTransportError::from_parts(
            "rmcp::transport::Some<rmcp::Type>",
            TypeId::of::<()>(),
            Box::new(error),
        ))
    }

    #[tokio::test]
    async fn failed_connection_counts_as_unsent_request() {
        let gone = {
            let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            socket.local_addr().unwrap()
        };
        let client = crate::http::client(std::time::Duration::from_secs(10)).unwrap();
        let refused = client.get(format!("http://{gone}/mcp")).send().await;
        let error = sending(refused.unwrap_err());
        assert!(is_unsent(&error));
        let told = of_request(&error);
        assert!(told.contains("refused") && !told.contains("rmcp"), "{told}");
        let broken = sending(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(!is_unsent(&broken));
        assert_eq!(of_request(&broken), "broken pipe");
    }
}
