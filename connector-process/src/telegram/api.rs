//! The Bot API: its methods by name.

use std::time::Duration;

use goondan_protocol::JsonObject;
use serde_json::Value;

use super::answer::{ApiError, read};
use crate::limits::SERVICE_TIMEOUT_MS;
use crate::multipart::{Multipart, UploadedFile};
use crate::service::{ExchangeFailure, exchange};

/// The Bot API for one bot. Cheap to clone.
#[derive(Clone)]
pub(super) struct Api {
    client: reqwest::Client,
    /// The URL that methods are appended to. Contains the token, so it is never displayed.
    base: String,
    /// The URL that file paths are appended to. Also contains the token.
    files: String,
}

impl Api {
    /// Creates a client for the Bot API at `endpoint`. The token must contain only valid token
    /// characters.
    pub(super) fn new(client: reqwest::Client, endpoint: &str, token: &str) -> Self {
        let endpoint = endpoint.trim_end_matches('/');
        Self {
            client,
            base: format!("{endpoint}/bot{token}"),
            files: format!("{endpoint}/file/bot{token}"),
        }
    }

    pub(super) fn file(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(format!("{}/{path}", self.files))
    }

    /// Calls a method.
    ///
    /// # Errors
    ///
    /// [`ApiError`] if it does not succeed.
    pub(super) async fn call(
        &self,
        method: &str,
        params: &Value,
        request_timeout: Duration,
    ) -> Result<Value, ApiError> {
        let request = self
            .client
            .post(format!("{}/{method}", self.base))
            .header("content-type", "application/json")
            .body(params.to_string());
        answer_to(request, request_timeout).await
    }

    /// Calls a method with a file as the field `field`.
    ///
    /// # Errors
    ///
    /// [`ApiError`] if it does not succeed.
    pub(super) async fn upload(
        &self,
        method: &str,
        params: &JsonObject,
        (field, file): (&str, &UploadedFile<'_>),
    ) -> Result<Value, ApiError> {
        let mut form = Multipart::new();
        for (name, value) in params {
            match value {
                Value::String(text) => form.text(name, text),
                other => form.text(name, &other.to_string()),
            }
        }
        form.file(field, file);
        let request = form.into_request(self.client.post(format!("{}/{method}", self.base)));
        answer_to(request, Duration::from_millis(SERVICE_TIMEOUT_MS)).await
    }
}

async fn answer_to(
    request: reqwest::RequestBuilder,
    request_timeout: Duration,
) -> Result<Value, ApiError> {
    match exchange(request, request_timeout).await {
        Ok(answered) => read(answered.status, &answered.body),
        Err(broken @ (ExchangeFailure::TooLong(_) | ExchangeFailure::Forbidden(_))) => {
            Err(ApiError::Strange(broken.to_string()))
        }
        Err(ExchangeFailure::NotSent(reason)) => Err(ApiError::Unreachable(reason)),
        Err(ExchangeFailure::Lost(reason)) => Err(ApiError::Lost(reason)),
    }
}
