//! Fetches files of services for agents.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::DOWNLOAD_BYTES_MAX;
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName};
use serde_json::{Value, json};

use crate::content_encoding::ContentEncoding;
use crate::limits::SERVICE_TIMEOUT_MS;
use crate::service::{ExchangeFailure, FailureContext, exchange_within};

/// Fetches a file of at most `bytes_max`. Returns `{contentType, contentLength, etag,
/// contentDisposition, base64}`.
///
/// # Errors
///
/// [`CallError`] if the file does not exist or is too long.
pub(crate) async fn fetch(
    request: reqwest::RequestBuilder,
    service: &str,
    bytes_max: u64,
) -> Result<Value, CallError> {
    let failed = FailureContext {
        service,
        is_repeatable: true,
    };
    let bytes_max = usize::try_from(bytes_max.min(DOWNLOAD_BYTES_MAX)).unwrap_or(usize::MAX);
    let within = Duration::from_millis(SERVICE_TIMEOUT_MS);
    let answered = match exchange_within(request, within, bytes_max).await {
        Ok(answered) => answered,
        Err(ExchangeFailure::TooLong(_)) => {
            let message = format!("the file has more than {bytes_max} bytes");
            return Err(CallError::new(CallErrorCode::TooLarge, message));
        }
        Err(broken) => return Err(failed.without_answer(&broken)),
    };
    if (300..400).contains(&answered.status) {
        let message = format!("{service} redirects the file to another address");
        return Err(CallError::new(CallErrorCode::Refused, message)
            .suggest("the token may lack the right to read files"));
    }
    if answered.status != 200 {
        let said = "no file";
        return Err(failed.by_status(answered.status, said, answered.retry_after_ms()));
    }
    // The exchange decodes only supported encodings.
    ContentEncoding::of_answer(&answered.headers).map_err(|reason| {
        CallError::new(CallErrorCode::Internal, format!("{service}: {reason}"))
    })?;
    let header = |name: HeaderName| {
        let value = answered.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let length = header(CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    Ok(json!({
        "contentType": header(CONTENT_TYPE), "contentLength": length, "etag": header(ETAG),
        "contentDisposition": header(CONTENT_DISPOSITION), "base64": STANDARD.encode(&answered.body),
    }))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[tokio::test]
    async fn a_file_that_is_compressed_unasked_is_decoded_once() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(b"a file").unwrap();
        let gzip = gzip.finish().unwrap();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", socket.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            for (encoding, body) in [("gzip", &*gzip), ("br", b"?"), ("identity", b"a file")] {
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-length: {}\r\n\
                     connection: close\r\n\r\n",
                    body.len()
                );
                let (mut stream, _) = socket.accept().unwrap();
                let mut request = [0; 4096];
                assert!(stream.read(&mut request).unwrap() > 0);
                stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
            }
        });
        let client = crate::http::service_client().unwrap();
        let expected = json!(STANDARD.encode("a file"));
        let found = fetch(client.get(&url), "it", 100).await.unwrap();
        assert_eq!(found["base64"], expected);
        let error = fetch(client.get(&url), "it", 100).await.unwrap_err();
        assert!(error.message.contains("`br`"), "{error}");
        let found = fetch(client.get(&url), "it", 100).await.unwrap();
        assert_eq!(found["base64"], expected);
        server.join().unwrap();
    }
}
