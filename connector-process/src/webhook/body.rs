//! Parses the body of a request: compression, charset, JSON, forms, CloudEvents. Pure.
//!
//! * `charset`: the text of a body.
//! * `cloud_event`: the attributes of a CloudEvent, in both modes.
//! * `multipart`: the fields of `multipart/form-data`.

mod charset;
mod cloud_event;
mod multipart;

use std::borrow::Cow;
use std::io::{self, Read};

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use goondan_protocol::lone_surrogates;
use serde_json::Value;

pub(crate) use self::cloud_event::CloudEvent;
use crate::content_encoding::ContentEncoding;
use crate::limits::BATCH_EVENTS_MAX;
use crate::listener::{MalformedRequest, RequestRejection};
use crate::payload::{form_pairs, is_form};

/// A body as text, its fields, and the CloudEvent that it belongs to.
#[derive(Debug)]
pub(crate) struct ParsedBody<'b> {
    /// The body, or the fields of a multipart form as JSON.
    pub(crate) text: Cow<'b, str>,
    /// The body as JSON, or the fields of a form.
    pub(crate) json: Option<Value>,
    pub(crate) cloud_event: Option<CloudEvent>,
}

/// Decompresses a body to at most `bytes_max`.
///
/// # Errors
///
/// [`RequestRejection`] if it has an unknown encoding, is damaged or too large.
pub(crate) fn decompressed<'b>(
    headers: &HeaderMap,
    body: &'b [u8],
    bytes_max: usize,
) -> Result<Cow<'b, [u8]>, RequestRejection> {
    let encoding = ContentEncoding::of(headers);
    let plain = match encoding.map_err(|_name| RequestRejection::UnknownEncoding)? {
        ContentEncoding::Identity => return Ok(Cow::Borrowed(body)),
        ContentEncoding::Gzip => read_up_to(bytes_max, MultiGzDecoder::new(body)),
        ContentEncoding::Deflate => read_up_to(bytes_max, ZlibDecoder::new(body))
            .or_else(|_no_frame| read_up_to(bytes_max, DeflateDecoder::new(body))),
    };
    let plain = plain.map_err(|_damaged| MalformedRequest::NotCompressed)?;
    if plain.len() > bytes_max {
        return Err(RequestRejection::TooLarge { max: bytes_max });
    }
    Ok(Cow::Owned(plain))
}

/// Reads at most one byte more than `bytes_max`.
fn read_up_to(bytes_max: usize, from: impl Read) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(bytes_max)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut plain = Vec::new();
    from.take(limit).read_to_end(&mut plain)?;
    Ok(plain)
}

/// Content type of several CloudEvents.
const BATCH: &str = "application/cloudevents-batch+json";

/// Content type of one CloudEvent.
pub(crate) const STRUCTURED: &str = "application/cloudevents+json";

/// True if the request contains several CloudEvents.
pub(crate) fn is_batch(headers: &HeaderMap) -> bool {
    media_type(content_type(headers)) == BATCH
}

/// The CloudEvents of a batch, each as the body of its own request.
///
/// # Errors
///
/// [`MalformedRequest`] if one of them is not a CloudEvent, or there are too many.
pub(crate) fn batch(body: &[u8]) -> Result<Vec<String>, MalformedRequest> {
    let Value::Array(events) = from_json(&charset::json_text("", body)?)? else {
        return Err(MalformedRequest::NotBatch);
    };
    if events.len() > BATCH_EVENTS_MAX {
        return Err(MalformedRequest::LargeBatch {
            events: events.len(),
            max: BATCH_EVENTS_MAX,
        });
    }
    let events = events.into_iter().enumerate();
    let events = events.map(|(index, event)| {
        let is_text = |name: &str| event.get(name).is_some_and(Value::is_string);
        let is_event = is_text("specversion") && is_text("id") && is_text("source");
        if is_event && CloudEvent::in_envelope(&event).is_some() {
            return Ok(event.to_string());
        }
        Err(MalformedRequest::InBatch {
            index,
            reason: Box::new(MalformedRequest::NotCloudEvent),
        })
    });
    events.collect()
}

impl<'b> ParsedBody<'b> {
    /// Parses a decompressed body by its content type.
    ///
    /// # Errors
    ///
    /// [`MalformedRequest`] if it does not match its content type.
    pub(crate) fn parse(headers: &HeaderMap, body: &'b [u8]) -> Result<Self, MalformedRequest> {
        let content_type = content_type(headers);
        let media_type = media_type(content_type);
        let cloud_event = CloudEvent::in_headers(headers);
        if media_type == "multipart/form-data" {
            let fields = multipart::fields(content_type, body)?;
            return Ok(Self {
                text: Cow::Owned(fields.to_string()),
                json: Some(fields),
                cloud_event,
            });
        }
        let is_json = media_type == "application/json" || media_type.ends_with("+json");
        let text = match is_json {
            true => charset::json_text(content_type, body)?,
            false => charset::text(content_type, body)?,
        };
        let parsed = |text, json| Self {
            text,
            json,
            cloud_event,
        };
        if is_json {
            let json = from_json(&text)?;
            if media_type == STRUCTURED
                && let Some((event, data)) = CloudEvent::in_envelope(&json)
            {
                return Self::from_data(event, data, text);
            }
            return Ok(parsed(text, Some(json)));
        }
        // Many clients send JSON with another content type.
        let json = if text.trim_start().starts_with('{') {
            from_json(&text).ok()
        } else {
            None
        };
        if json.is_some() || !is_form(headers) || !text.contains('=') {
            return Ok(parsed(text, json));
        }
        let pairs = form_pairs(&text).into_iter();
        let fields: serde_json::Map<String, Value> = pairs
            .map(|(name, value)| (name, Value::String(value)))
            .collect();
        // Several services put JSON into this field.
        let payload = fields.get("payload").and_then(Value::as_str);
        if let Some(payload) = payload
            && let Ok(json @ Value::Object(_)) = from_json(payload)
        {
            return Ok(Self {
                text: Cow::Owned(payload.to_owned()),
                json: Some(json),
                cloud_event: CloudEvent::in_headers(headers),
            });
        }
        Ok(parsed(text, Some(Value::Object(fields))))
    }

    /// The data of a CloudEvent; the whole envelope for an event without data.
    fn from_data(
        event: CloudEvent,
        data: cloud_event::Data,
        envelope: Cow<'b, str>,
    ) -> Result<Self, MalformedRequest> {
        let (text, json) = match data {
            cloud_event::Data::None => (envelope, None),
            cloud_event::Data::Json(Value::String(text)) => (Cow::Owned(text), None),
            cloud_event::Data::Json(json) => (Cow::Owned(json.to_string()), Some(json)),
            cloud_event::Data::Bytes(bytes) => {
                let text = String::from_utf8(bytes)
                    .map_err(|error| MalformedRequest::NotText(error.utf8_error()))?;
                let json = from_json(&text).ok().filter(Value::is_object);
                (Cow::Owned(text), json)
            }
        };
        Ok(Self {
            text,
            json,
            cloud_event: Some(event),
        })
    }
}

/// The content type of a request; empty without one.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("")
}

/// The content type without parameters, in lower case.
fn media_type(content_type: &str) -> String {
    let media_type = content_type.split(';').next().unwrap_or("");
    media_type.trim().to_ascii_lowercase()
}

fn from_json(text: &str) -> Result<Value, MalformedRequest> {
    lone_surrogates::from_json(text).map_err(MalformedRequest::NotJson)
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
