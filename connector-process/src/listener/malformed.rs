//! Why no event can be made of a request.

use axum::http::HeaderName;
use goondan_protocol::ids::InvalidId;

/// Why no event can be made of a request. The sender is at fault and told so.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    /// The body is no text.
    #[error("the body is not valid UTF-8")]
    NotText(#[source] std::str::Utf8Error),
    /// The body is not what its content type says.
    #[error("the body is to be JSON and is not")]
    NotJson(#[source] serde_json::Error),
    /// There is nothing to say to an agent.
    #[error("the input is empty")]
    EmptyInput,
    /// `inputField` names a field that is not there or holds no text.
    #[error("the input must be a text in the field `{field}` of a JSON body")]
    NoInput {
        /// The field.
        field: String,
    },
    /// A field that holds a key or an id holds neither text nor whole number.
    #[error("the field `{field}` must hold a text or a whole number")]
    NotAName {
        /// The field.
        field: String,
    },
    /// A header occurs twice, or is no text.
    #[error("the header `{header}` must occur once and be valid UTF-8")]
    BadHeader {
        /// The header.
        header: HeaderName,
    },
    /// A header that every request has is missing.
    #[error("the header `{header}` is missing")]
    NoHeader {
        /// The header.
        header: HeaderName,
    },
    /// A field of the body that every request has is missing, or holds something else.
    #[error("the field `{field}` of the body is missing, or holds something else than it should")]
    NoField {
        /// The field.
        field: &'static str,
    },
    /// The instance key cannot be one.
    #[error("the instance key cannot be used")]
    BadKey(#[source] InvalidId),
    /// The event id cannot be one.
    #[error("the event id cannot be used")]
    BadId(#[source] InvalidId),
}

impl Malformed {
    /// A stable code for the sender's program.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::NotText(_) => "bad_encoding",
            Self::NotJson(_) => "bad_json",
            Self::EmptyInput | Self::NoInput { .. } => "no_input",
            Self::NotAName { .. } | Self::NoField { .. } => "bad_field",
            Self::BadHeader { .. } | Self::NoHeader { .. } => "bad_header",
            Self::BadKey(_) => "bad_instance_key",
            Self::BadId(_) => "bad_event_id",
        }
    }
}
