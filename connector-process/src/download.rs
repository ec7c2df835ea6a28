//! Fetches files of services for agents.

use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::DOWNLOAD_BYTES_MAX;
use reqwest::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName};
use serde_json::{Value, json};

use crate::content_encoding::{BodyDecoder, ContentEncoding};
use crate::limits::{ENCODED_PIECE_BYTES, SERVICE_TIMEOUT_MS};
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
    let too_long = || {
        let message = format!("the file has more than {bytes_max} bytes");
        CallError::new(CallErrorCode::TooLarge, message)
    };
    let answered = match exchange_within(request, within, bytes_max).await {
        Ok(answered) => answered,
        Err(ExchangeFailure::TooLong(_)) => return Err(too_long()),
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
    let strange = |reason: String| {
        let message = format!("{service}: {reason}");
        CallError::new(CallErrorCode::Internal, message)
    };
    let encoding = ContentEncoding::of_answer(&answered.headers).map_err(strange)?;
    let content = decoded(&answered.body, encoding, bytes_max);
    let content = content.map_err(|error| strange(error.to_string()))?;
    let content = content.ok_or_else(too_long)?;
    let header = |name: HeaderName| {
        let value = answered.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let length = header(CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    Ok(json!({
        "contentType": header(CONTENT_TYPE), "contentLength": length, "etag": header(ETAG),
        "contentDisposition": header(CONTENT_DISPOSITION), "base64": STANDARD.encode(&content),
    }))
}

/// Decodes a body; `None` if it is longer than `most`.
fn decoded(body: &[u8], encoding: ContentEncoding, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut decoder = BodyDecoder::new(encoding);
    let mut content = Vec::new();
    for piece in body.chunks(ENCODED_PIECE_BYTES) {
        content.extend_from_slice(&decoder.decode(piece)?);
        if content.len() > most {
            return Ok(None);
        }
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_file_that_is_compressed_unasked_is_decoded_up_to_the_limit() {
        let plain = vec![b'a'; 100_000];
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(&plain).unwrap();
        let gzip = gzip.finish().unwrap();
        let of = |most| decoded(&gzip, ContentEncoding::Gzip, most).unwrap();
        assert_eq!(of(plain.len()).as_deref(), Some(&plain[..]));
        assert_eq!(of(plain.len() - 1), None);
        assert!(decoded(b"plain text, and more", ContentEncoding::Gzip, 99).is_err());
        let same = decoded(b"as it is", ContentEncoding::Identity, 99).unwrap();
        assert_eq!(same.as_deref(), Some(&b"as it is"[..]));
    }
}
