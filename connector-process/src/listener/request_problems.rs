//! Reasons why a request cannot become an event.

use axum::http::HeaderName;
use goondan_protocol::ids::InvalidId;

/// Reason why a request cannot become an event, reported to its sender.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MalformedRequest {
    /// The body is not text.
    #[error("the body is not valid UTF-8")]
    NotText(#[source] std::str::Utf8Error),
    /// The body is not text in the charset that its content type or its byte order mark names.
    #[error("the body is not valid {charset}")]
    NotInCharset { charset: &'static str },
    /// The body does not match its content type.
    #[error("request body is not valid JSON")]
    NotJson(#[source] serde_json::Error),
    /// The body is not compressed as its header says.
    #[error("the body is not compressed as `content-encoding` says")]
    NotCompressed,
    /// The body is not the form that its content type describes.
    #[error("the body is not a valid `multipart/form-data`: {reason}")]
    NotMultipart { reason: String },
    /// The body is not a batch of CloudEvents.
    #[error("the body is not a JSON array of CloudEvents")]
    NotBatch,
    /// The batch contains too many CloudEvents.
    #[error("the batch has {events} events; send at most {max} in one request")]
    LargeBatch { events: usize, max: usize },
    /// One event of a batch is invalid, counted from 0.
    #[error("the event {index} of the batch is invalid")]
    InBatch {
        index: usize,
        #[source]
        reason: Box<MalformedRequest>,
    },
    /// An element of a batch is not a CloudEvent.
    #[error("a CloudEvent needs `specversion`, `id` and `source`, each as text")]
    NotCloudEvent,
    /// The input for the agent is empty.
    #[error("the input is empty")]
    EmptyInput,
    /// `inputField` names a field that is missing or not a string.
    #[error("the input must be a string in the field `{field}` of a JSON body")]
    NoInput { field: String },
    /// A field for a key or an id is neither a string nor a whole number.
    #[error("the field `{field}` must be a string or a whole number")]
    NotAName { field: String },
    /// A header occurs twice, or is not text.
    #[error("the header `{header}` must occur once and be valid UTF-8")]
    BadHeader { header: HeaderName },
    /// A required header is missing.
    #[error("the header `{header}` is missing")]
    NoHeader { header: HeaderName },
    /// A required field of the body is missing or has another type.
    #[error("the field `{field}` of the body is missing or has the wrong type")]
    NoField { field: &'static str },
    /// The instance key is invalid.
    #[error("the instance key is invalid")]
    BadKey(#[source] InvalidId),
    /// The event id is invalid.
    #[error("the event id is invalid")]
    BadId(#[source] InvalidId),
}

impl MalformedRequest {
    /// A stable code for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::NotText(_) | Self::NotInCharset { .. } | Self::NotCompressed => "bad_encoding",
            Self::NotMultipart { .. }
            | Self::NotBatch
            | Self::LargeBatch { .. }
            | Self::NotCloudEvent => "bad_body",
            Self::InBatch { reason, .. } => reason.code(),
            Self::NotJson(_) => "bad_json",
            Self::EmptyInput | Self::NoInput { .. } => "no_input",
            Self::NotAName { .. } | Self::NoField { .. } => "bad_field",
            Self::BadHeader { .. } | Self::NoHeader { .. } => "bad_header",
            Self::BadKey(_) => "bad_instance_key",
            Self::BadId(_) => "bad_event_id",
        }
    }
}
