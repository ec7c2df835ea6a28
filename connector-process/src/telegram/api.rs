//! The Bot API: its methods by name.

use std::time::Duration;

use serde_json::Value;

use super::answer::{ApiError, read};
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
        match exchange(request, request_timeout).await {
            Ok(answered) => read(answered.status, &answered.body),
            Err(broken @ (ExchangeFailure::TooLong(_) | ExchangeFailure::Forbidden(_))) => {
                Err(ApiError::Strange(broken.to_string()))
            }
            Err(ExchangeFailure::NotSent(reason)) => Err(ApiError::Unreachable(reason)),
            Err(ExchangeFailure::Lost(reason)) => Err(ApiError::Lost(reason)),
        }
    }
}
