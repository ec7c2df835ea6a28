//! Recognizes servers that offer only HTTP with server-sent events, the transport of protocol
//! version 2024-11-05, as the specification of streamable HTTP describes it under "Backwards
//! Compatibility".

use std::time::Duration;

use axum::http::header::{ACCEPT, CONTENT_TYPE};
use goondan_clock::timeout;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use crate::limits::{MCP_OLDER_TRANSPORT_BYTES_MAX, MCP_OLDER_TRANSPORT_TIMEOUT_MS};

/// Reason of the failure, with the next step.
pub(super) const OFFERS_ONLY_EVENTS: &str = "it offers only the older transport HTTP+SSE, which goondan does not \
    support; use its address for streamable HTTP (often `/mcp`), or a bridge such as `mcp-remote` as `command`";

/// True if the server at this address begins with the event of the older transport.
pub(super) async fn is_the_only_one(
    http: &reqwest::Client,
    config: &StreamableHttpClientTransportConfig,
) -> bool {
    let mut request = http
        .get(config.uri.as_ref())
        .header(ACCEPT, "text/event-stream");
    for (name, value) in &config.custom_headers {
        request = request.header(name, value);
    }
    if let Some(token) = &config.auth_header {
        request = request.bearer_auth(token);
    }
    let begins = async {
        let mut response = request.send().await.ok()?.error_for_status().ok()?;
        let kind = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
        if !kind.starts_with("text/event-stream") {
            return None;
        }
        let mut read = Vec::new();
        while read.len() < MCP_OLDER_TRANSPORT_BYTES_MAX {
            read.extend_from_slice(&response.chunk().await.ok()??);
            let text = String::from_utf8_lossy(&read);
            let mut lines = text.lines();
            if lines.any(|line| line.strip_prefix("event:").map(str::trim) == Some("endpoint")) {
                return Some(());
            }
        }
        None
    };
    let limit = Duration::from_millis(MCP_OLDER_TRANSPORT_TIMEOUT_MS);
    matches!(timeout(limit, begins).await, Ok(Some(())))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Asks a server that answers once with these bytes, and returns the verdict and the request.
    async fn asked(answer: &'static [u8]) -> (bool, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}/sse", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap();
            stream.write_all(answer).unwrap();
            String::from_utf8(request.get(..read).unwrap().to_vec()).unwrap()
        });
        let http = crate::http::client(Duration::from_secs(10)).unwrap();
        let config = StreamableHttpClientTransportConfig::with_uri(uri).auth_header("a-token");
        let is_older = is_the_only_one(&http, &config).await;
        (is_older, server.join().unwrap())
    }

    #[tokio::test]
    async fn prov_1_a_server_of_the_older_transport_is_recognized() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n\
            event: endpoint\ndata: /messages?id=1\n\n";
        let (is_older, request) = asked(head).await;
        assert!(is_older);
        let request = request.to_lowercase();
        assert!(
            request.contains("accept: text/event-stream")
                && request.contains("authorization: bearer a-token"),
            "{request}"
        );
        for other in [
            &b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: message\ndata: 1\n\n",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nevent: endpoint\n",
        ] {
            assert!(!asked(other).await.0, "{}", String::from_utf8_lossy(other));
        }
    }
}
