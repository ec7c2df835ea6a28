//! The webhook: a `POST` sends a text to an agent as an event.
//!
//! * `settings`: its settings in `goondan.yaml`.
//! * `address_check`: answers to services that check the address. Pure.
//! * `verifier`: checks signatures by the presets of `goondan_connectors::signatures`. Pure.
//! * `sns`: checks messages of Amazon SNS, and confirms subscriptions.
//! * `body`: parses a body by its content type. Pure.
//! * `event_input`: from a request to an event. Pure.

mod address_check;
mod body;
mod event_input;
mod settings;
mod sns;
mod verifier;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::header::CONTENT_ENCODING;
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_connectors::signatures::Challenge;
use goondan_protocol::JsonObject;
use goondan_protocol::ipc::EventAccepted;
use goondan_protocol::trace::TraceContext;
use serde_json::{Value, json};

use self::settings::WebhookSettings;
use self::sns::Sns;
pub(crate) use self::verifier::{SignedRequest, Verifier};
use crate::connector::Ready;
use crate::limits::{REPLY_TIMEOUT_MS, SWIFT_REPLY_TIMEOUT_MS};
use crate::listener::{
    self, Callbacks, CheckAnswer, DirectResponse, HttpEndpoint, InboundRequest, InboundService,
    RawRequest, RequestRejection, SignatureError,
};
use crate::payload::text;

#[derive(Debug)]
pub(crate) struct Webhook {
    settings: WebhookSettings,
    sns: Option<Sns>,
    callbacks: Option<Callbacks>,
}

impl Webhook {
    /// Creates a webhook that returns replies to waiting senders, if configured.
    #[cfg(test)]
    pub(crate) fn new(config: &JsonObject, secrets: &BTreeMap<String, String>) -> Self {
        Self {
            settings: WebhookSettings::new(config, secrets),
            sns: None,
            callbacks: None,
        }
    }

    /// Creates a webhook connector, with a reply callback if configured.
    ///
    /// # Errors
    ///
    /// A description of why the callback target is unusable.
    pub(crate) fn ready(
        config: &JsonObject,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Ready, String> {
        let settings = WebhookSettings::new(config, secrets);
        let mut webhook = Self {
            sns: settings.topics.clone().map(Sns::new).transpose()?,
            settings,
            callbacks: None,
        };
        let Some(target) = settings::reply_target(config, secrets)? else {
            return Ok(Ready::to_listen(webhook));
        };
        let (callbacks, worker) = Callbacks::new(target);
        webhook.callbacks = Some(callbacks);
        Ok(Ready::to_listen_and_reply(webhook, worker))
    }
}

impl Webhook {
    /// Checks the signature of a body as sent, or as decompressed: services sign either.
    fn verify(&self, received: &RawRequest<'_>, uri: &Uri) -> Result<(), RequestRejection> {
        let Some(verifier) = &self.settings.verifier else {
            return Ok(());
        };
        let request = SignedRequest {
            headers: received.headers,
            uri,
            body: received.body,
            now_s: received.now_s,
        };
        let Err(wrong) = verifier.verify(&request) else {
            return Ok(());
        };
        if !received.headers.contains_key(CONTENT_ENCODING) {
            return Err(wrong.into());
        }
        let bytes_max = self.settings.http_endpoint.body_bytes_max;
        let plain = body::decompressed(received.headers, received.body, bytes_max);
        // An unauthenticated sender gets no other answer than that.
        let plain = plain.map_err(|_damaged| wrong.clone())?;
        let request = SignedRequest {
            body: &plain,
            ..request
        };
        Ok(verifier.verify(&request)?)
    }

    /// The answer to a service that checks the address, if the request is such a check.
    fn answer_to_challenge(&self, message: &Value) -> Option<DirectResponse> {
        let text = |pointer| text(message, pointer);
        match self.settings.preset.challenge {
            Challenge::Slack if text("/type") == Some("url_verification") => {
                let challenge = text("/challenge")?;
                Some(DirectResponse::ok(json!({"challenge": challenge})))
            }
            Challenge::Zoom if text("/event") == Some("endpoint.url_validation") => {
                let token = text("/payload/plainToken")?;
                let verifier = self.settings.verifier.as_ref()?;
                let encrypted = verifier.answer_to(token);
                let answer = json!({"plainToken": token, "encryptedToken": encrypted});
                Some(DirectResponse::ok(answer))
            }
            Challenge::None | Challenge::Slack | Challenge::Zoom => None,
        }
    }

    /// The answer to a message of the service that is not an event.
    fn answer_to_service(
        &self,
        received: &RawRequest<'_>,
    ) -> Result<Option<InboundRequest>, RequestRejection> {
        let is_sns = self.settings.topics.is_some();
        if !is_sns && self.settings.preset.challenge == Challenge::None {
            let answer = address_check::answer_to_body(received.body);
            return Ok(answer.map(|it| InboundRequest::Answer(DirectResponse::ok(it))));
        }
        let Ok(message) = crate::payload::json(received.body) else {
            return Ok(None);
        };
        if is_sns {
            return Ok(sns::answer_to(&message)?);
        }
        let answer = self.answer_to_challenge(&message);
        Ok(answer.map(InboundRequest::Answer))
    }
}

impl InboundService for Webhook {
    fn http_endpoint(&self) -> &HttpEndpoint {
        &self.settings.http_endpoint
    }

    fn is_guarded(&self) -> bool {
        self.settings.verifier.is_some() || self.settings.topics.is_some()
    }

    fn answer_to_check(&self, head: &Parts) -> Option<CheckAnswer> {
        address_check::answer_to(&head.method, &head.uri, &head.headers)
    }

    fn callback_path(&self) -> Option<&str> {
        self.settings.callback_path.as_deref()
    }

    fn reply_timeout(&self) -> Duration {
        let is_swift = self.settings.verifier.is_some() && self.settings.preset.is_swift;
        Duration::from_millis(if is_swift {
            SWIFT_REPLY_TIMEOUT_MS
        } else {
            REPLY_TIMEOUT_MS
        })
    }

    fn authenticate<'a>(
        &'a self,
        received: &'a RawRequest<'a>,
        uri: &'a Uri,
    ) -> BoxFuture<'a, Result<(), RequestRejection>> {
        async move {
            let Some(sns) = &self.sns else {
                return self.verify(received, uri);
            };
            let message = crate::payload::json(received.body);
            let message = message.map_err(|_not_json| SignatureError::Refused {
                reason: "the body is not a message of Amazon SNS; disable raw message delivery",
            })?;
            sns.authenticate(&message).await
        }
        .boxed()
    }

    fn read(&self, received: &RawRequest<'_>) -> Result<InboundRequest, RequestRejection> {
        let bytes_max = self.settings.http_endpoint.body_bytes_max;
        let plain = body::decompressed(received.headers, received.body, bytes_max)?;
        let received = RawRequest {
            body: &plain,
            ..*received
        };
        if let Some(answer) = self.answer_to_service(&received)? {
            return Ok(answer);
        }
        if body::is_batch(received.headers) {
            let events = event_input::to_batch(&self.settings, &received)?;
            return Ok(InboundRequest::Batch(events));
        }
        let event = event_input::to_event(&self.settings, &received)?;
        Ok(InboundRequest::Event(Box::new(event)))
    }

    /// A service that only sends notifications reads no replies.
    fn acknowledges_unroutable(&self) -> bool {
        self.settings.reply_wait.is_none() && self.callbacks.is_none()
    }

    fn confirm(&self, url: String) -> BoxFuture<'_, Result<(), RequestRejection>> {
        async move {
            let sns = self.sns.as_ref().ok_or(RequestRejection::NotFound)?;
            sns.confirm(&url).await
        }
        .boxed()
    }

    fn on_accepted(&self, accepted: &EventAccepted, trace: TraceContext) -> DirectResponse {
        let answer = listener::accepted(accepted, trace);
        let status = StatusCode::from_u16(self.settings.preset.status);
        match status.unwrap_or(answer.status) {
            StatusCode::NO_CONTENT => DirectResponse {
                status: StatusCode::NO_CONTENT,
                body: Value::Null,
                ..answer
            },
            status => DirectResponse { status, ..answer },
        }
    }

    fn reply_wait(&self) -> Option<Duration> {
        self.settings.reply_wait
    }

    fn callbacks(&self) -> Option<&Callbacks> {
        self.callbacks.as_ref()
    }
}

#[cfg(test)]
#[path = "webhook/documentation.rs"]
mod documentation;

#[cfg(test)]
#[path = "webhook/preset_tests.rs"]
mod tests;
