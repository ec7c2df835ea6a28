//! Errors of requests to the daemon, as the page shows them.

use axum::http::StatusCode;
use goondan_client::{CallError, ConnectError};
use serde::Serialize;

use crate::limits::{STREAMS_MAX, WAITS_MAX};

/// Reason why the page gets no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonRequestError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{STREAMS_MAX} streams are open already")]
    TooManyStreams,
    #[error("{WAITS_MAX} requests wait already")]
    TooManyWaits,
    #[error("invalid parameters of a stream: {0}")]
    Params(#[source] serde_json::Error),
}

/// An error as shown by the page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PageError {
    /// The daemon's stable code, or one of Studio's own.
    pub(crate) code: String,
    pub(crate) message: String,
    /// The next step for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suggestion: Option<String>,
}

impl PageError {
    pub(crate) fn new(code: &str, message: &dyn std::fmt::Display, suggestion: &str) -> Self {
        Self {
            code: code.to_owned(),
            message: format!("{message}"),
            suggestion: Some(suggestion.to_owned()),
        }
    }
}

impl DaemonRequestError {
    /// The error for the page, and the status of the response.
    pub(crate) fn to_response(&self) -> (StatusCode, PageError) {
        match self {
            Self::Call(CallError::Refused(refused) | CallError::Replaced(refused)) => {
                let code = serde_json::to_value(refused.code).unwrap_or_default();
                let page_error = PageError {
                    code: code.as_str().unwrap_or("internal").to_owned(),
                    message: refused.message.clone(),
                    suggestion: refused.suggestion.clone(),
                };
                (StatusCode::OK, page_error)
            }
            Self::Call(error) => {
                let why = with_causes(error);
                let told =
                    PageError::new("lost", &why, "check if it was done before you repeat it");
                (StatusCode::SERVICE_UNAVAILABLE, told)
            }
            Self::Connect(error) => {
                let suggestion = match error {
                    ConnectError::NotRunning { .. } => "start it in your project: `gdn run`",
                    ConnectError::NotListening { .. } => {
                        "stop it, then start it again: `gdn daemon shutdown`"
                    }
                    ConnectError::VersionMismatch { .. } => "restart Studio: `gdn studio`",
                    ConnectError::Remote { .. } => {
                        "find the problem: `gdn --remote URL daemon status`"
                    }
                    _ => "find the problem: `gdn doctor`",
                };
                let told = PageError::new("unreachable", &with_causes(error), suggestion);
                (StatusCode::SERVICE_UNAVAILABLE, told)
            }
            Self::TooManyStreams => {
                let told = PageError::new("overloaded", self, "close tabs of other browsers");
                (StatusCode::TOO_MANY_REQUESTS, told)
            }
            Self::TooManyWaits => {
                let told = PageError::new(
                    "overloaded",
                    self,
                    "try again when an earlier request has ended",
                );
                (StatusCode::TOO_MANY_REQUESTS, told)
            }
            Self::Params(_) => {
                let told = PageError::new("invalidRequest", self, "load the page again");
                (StatusCode::BAD_REQUEST, told)
            }
        }
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
