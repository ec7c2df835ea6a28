//! The webhook: `POST` one text, and an agent gets it as an event.
//!
//! * `settings`: what `goondan.yaml` may say about it.
//! * `mapping`: from a request to an event. Pure.

mod mapping;
mod settings;

use std::collections::BTreeMap;

use goondan_protocol::JsonObject;

use self::settings::Settings;
use crate::listener::{HttpEndpoint, Meaning, Received, Refusal, Service};

/// One webhook.
#[derive(Debug)]
pub(crate) struct Webhook(Settings);

impl Webhook {
    pub(crate) fn new(config: &JsonObject, secrets: &BTreeMap<String, String>) -> Self {
        Self(Settings::new(config, secrets))
    }
}

impl Service for Webhook {
    fn http_endpoint(&self) -> &HttpEndpoint {
        &self.0.http_endpoint
    }

    fn is_guarded(&self) -> bool {
        self.0.signature.is_some()
    }

    fn callback_path(&self) -> Option<&str> {
        self.0.callback_path.as_deref()
    }

    fn read(&self, received: &Received<'_>) -> Result<Meaning, Refusal> {
        if let Some(check) = &self.0.signature {
            check.check(received.headers, received.body)?;
        }
        let event = mapping::to_event(&self.0, received)?;
        Ok(Meaning::Event(Box::new(event)))
    }
}

#[cfg(test)]
#[path = "webhook/documentation.rs"]
mod documentation;
