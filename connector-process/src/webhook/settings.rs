//! Settings of a webhook.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::HeaderName;
use goondan_connectors::Values;
use goondan_connectors::signatures::{self, SignaturePreset, SignatureScheme};
use goondan_protocol::JsonObject;
use goondan_protocol::oauth::CALLBACK_SETTING;
use serde_json::Value;

use super::verifier::Verifier;
use crate::listener::{HttpEndpoint, ReplyTarget};

/// The secret that enables the signature check, and the one before its rotation.
const HMAC_SECRETS: [&str; 2] = ["hmac", "previousHmac"];

/// The secret that signs delivered replies.
const CALLBACK_SECRET: &str = "callbackHmac";

/// A field of a JSON body: a top-level field's name, or a JSON Pointer if it begins with `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldPath(String);

impl FieldPath {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The field's value in `body`, if it exists.
    pub(crate) fn find<'a>(&self, body: &'a Value) -> Option<&'a Value> {
        if self.0.starts_with('/') {
            body.pointer(&self.0)
        } else {
            body.get(&self.0)
        }
    }
}

impl std::fmt::Display for FieldPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct WebhookSettings {
    pub(crate) http_endpoint: HttpEndpoint,
    /// Location of the input in a JSON body. `None` selects the rule of [`super::event_input`].
    pub(crate) input_field: Option<FieldPath>,
    /// Location of the instance key in a JSON body.
    pub(crate) key_field: Option<FieldPath>,
    /// Location of the event id in a JSON body.
    pub(crate) id_field: Option<FieldPath>,
    /// Header with the event id.
    pub(crate) id_header: Option<HeaderName>,
    /// Header with the event type.
    pub(crate) type_header: Option<HeaderName>,
    pub(crate) preset: &'static SignaturePreset,
    /// The signature check by a secret; `None` if requests need none.
    pub(crate) verifier: Option<Verifier>,
    /// Topics of Amazon SNS, if the preset is for its messages.
    pub(crate) topics: Option<Vec<String>>,
    /// Path to which users return from authorization servers.
    pub(crate) callback_path: Option<String>,
    /// Time for which a sender may wait for the reply; `None` disables waiting.
    pub(crate) reply_wait: Option<Duration>,
}

impl WebhookSettings {
    /// Creates settings from a configuration and secrets that passed
    /// [`goondan_connectors::check()`].
    pub(crate) fn new(config: &JsonObject, secrets: &BTreeMap<String, String>) -> Self {
        let values = Values::of("webhook", config);
        let field = |name| values.text(name).map(FieldPath::new);
        let header = |name| values.text(name).and_then(|name| name.parse().ok());
        let signature = values.map("signature");
        let preset = signatures::preset_of(config).unwrap_or(&signatures::PLAIN);
        let keys: Vec<&str> = HMAC_SECRETS
            .iter()
            .filter_map(|name| secrets.get(*name).map(String::as_str))
            .collect();
        let is_sns = preset.scheme == SignatureScheme::Sns;
        Self {
            http_endpoint: HttpEndpoint::new(&values),
            input_field: field("inputField"),
            key_field: field("keyField"),
            id_field: field("idField"),
            id_header: header("idHeader"),
            type_header: header("typeHeader"),
            preset,
            verifier: Verifier::new(preset, &signature, &keys),
            topics: is_sns.then(|| signature.names("topics").unwrap_or_default()),
            callback_path: values.text(CALLBACK_SETTING).map(str::to_owned),
            reply_wait: reply_wait(config),
        }
    }
}

/// Time for which a sender may wait, if configured.
fn reply_wait(config: &JsonObject) -> Option<Duration> {
    config.get("reply")?.get("wait")?;
    let values = Values::of("webhook", config);
    let timeout_ms = values.map("reply").map("wait").number("timeoutMs")?;
    Some(Duration::from_millis(timeout_ms))
}

/// Target of reply callbacks, if configured.
///
/// # Errors
///
/// A description of why the target is unusable.
pub(crate) fn reply_target(
    config: &JsonObject,
    secrets: &BTreeMap<String, String>,
) -> Result<Option<ReplyTarget>, String> {
    let reply = config.get("reply");
    if reply.and_then(|reply| reply.get("callback")).is_none() {
        return Ok(None);
    }
    let secret = secrets.get(CALLBACK_SECRET).map(String::as_str);
    let values = Values::of("webhook", config);
    ReplyTarget::new(&values.map("reply").map("callback"), secret).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(config: &Value, secrets: &[(&str, &str)]) -> WebhookSettings {
        let config = config.as_object().unwrap().clone();
        let secrets = secrets
            .iter()
            .map(|(name, secret)| ((*name).to_owned(), (*secret).to_owned()))
            .collect();
        WebhookSettings::new(&config, &secrets)
    }

    #[test]
    fn without_settings_it_listens_on_this_machine_only() {
        let settings = settings(&json!({}), &[]);
        assert_eq!(settings.http_endpoint.host, "127.0.0.1");
        assert_eq!(
            (
                settings.http_endpoint.port,
                settings.http_endpoint.path.as_str()
            ),
            (0, "/")
        );
        assert_eq!(settings.http_endpoint.body_bytes_max, 256 * 1024);
        assert!(settings.verifier.is_none() && settings.topics.is_none());
        assert_eq!(settings.preset.name, "github");
        assert_eq!(settings.reply_wait, None);
    }

    #[test]
    fn every_setting_is_read() {
        let config = json!({
            "host": "::1", "port": "8080", "path": "/hooks/a%20b", "maxBodyBytes": 10,
            "inputField": "comment", "keyField": "/repo/name", "idField": "id",
            "idHeader": "X-Id", "typeHeader": "X-Type",
            "signature": {"preset": "stripe", "header": "X-Sig", "algorithm": "sha256", "prefix": "",
                "encoding": "hex"},
            "oauthCallback": "/oauth/callback",
            "reply": {"wait": {"timeoutMs": 5}, "callback": {"url": "https://example.com/replies"}},
        });
        let described = goondan_connectors::find("webhook").unwrap().settings;
        assert_eq!(config.as_object().unwrap().len(), described.len());
        let settings = settings(&config, &[("hmac", "s")]);
        let http_endpoint = HttpEndpoint {
            host: "::1".into(),
            port: 8080,
            path: "/hooks/a%20b".into(),
            body_bytes_max: 10,
        };
        assert_eq!(settings.http_endpoint, http_endpoint);
        assert_eq!(settings.input_field, Some(FieldPath::new("comment")));
        assert_eq!(settings.id_field, Some(FieldPath::new("id")));
        let body = json!({"repo": {"name": "r"}, "/repo/name": "no"});
        let key = settings.key_field.unwrap();
        assert_eq!(key.find(&body), Some(&json!("r")));
        assert!(settings.verifier.is_some());
        assert_eq!(settings.preset.name, "stripe");
        assert_eq!(settings.id_header.unwrap(), "x-id");
        assert_eq!(settings.type_header.unwrap(), "x-type");
        assert_eq!(settings.callback_path.as_deref(), Some("/oauth/callback"));
        assert_eq!(settings.reply_wait, Some(Duration::from_millis(5)));
    }

    #[test]
    fn a_secret_alone_turns_the_check_on() {
        assert!(settings(&json!({}), &[("hmac", "s")]).verifier.is_some());
    }
}
