//! The webhook: a `POST` sends a text to an agent as an event.
//!
//! * `settings`: its settings in `goondan.yaml`.
//! * `event_input`: from a request to an event. Pure.

mod event_input;
mod settings;

use std::collections::BTreeMap;
use std::time::Duration;

use goondan_protocol::JsonObject;

use self::settings::WebhookSettings;
use crate::connector::Ready;
use crate::listener::{
    Callbacks, HttpEndpoint, InboundRequest, InboundService, RawRequest, RequestRejection,
};

#[derive(Debug)]
pub(crate) struct Webhook {
    settings: WebhookSettings,
    callbacks: Option<Callbacks>,
}

impl Webhook {
    /// Creates a webhook that returns replies to waiting senders, if configured.
    #[cfg(test)]
    pub(crate) fn new(config: &JsonObject, secrets: &BTreeMap<String, String>) -> Self {
        Self {
            settings: WebhookSettings::new(config, secrets),
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
        let Some(target) = settings::reply_target(config, secrets)? else {
            let callbacks = None;
            return Ok(Ready::to_listen(Self {
                settings,
                callbacks,
            }));
        };
        let (callbacks, worker) = Callbacks::new(target);
        let webhook = Self {
            settings,
            callbacks: Some(callbacks),
        };
        Ok(Ready::to_listen_and_reply(webhook, worker))
    }
}

impl InboundService for Webhook {
    fn http_endpoint(&self) -> &HttpEndpoint {
        &self.settings.http_endpoint
    }

    fn is_guarded(&self) -> bool {
        self.settings.signature.is_some()
    }

    fn callback_path(&self) -> Option<&str> {
        self.settings.callback_path.as_deref()
    }

    fn read(&self, received: &RawRequest<'_>) -> Result<InboundRequest, RequestRejection> {
        if let Some(check) = &self.settings.signature {
            check.check(received.headers, received.body)?;
        }
        let event = event_input::to_event(&self.settings, received)?;
        Ok(InboundRequest::Event(Box::new(event)))
    }

    /// A sender that gets replies is no service that only notifies.
    fn acknowledges_unroutable(&self) -> bool {
        self.settings.reply_wait.is_none() && self.callbacks.is_none()
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
