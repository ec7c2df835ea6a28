//! Fetches files of services for agents.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::DOWNLOAD_BYTES_MAX;
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName};
use serde_json::{Value, json};

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
