//! What `goondan.yaml` may say about a webhook.
//!
//! Every setting has a default, and a name this version does not know is an error: a misspelt
//! setting must not turn into a silent default, least of all when it guards something.

use std::collections::BTreeMap;

use axum::http::HeaderName;
use goondan_protocol::JsonObject;
use serde_json::Value;

use super::signature::{ALGORITHM, DEFAULT_HEADER, DEFAULT_PREFIX, ENCODING, SignatureCheck};
use crate::limits::{BODY_BYTES_CEILING, DEFAULT_BODY_BYTES_MAX};

/// The host it listens on when the settings name none: this machine only.
pub(crate) const DEFAULT_HOST: &str = "127.0.0.1";

/// The port it listens on when the settings name none: any free one.
pub(crate) const DEFAULT_PORT: u16 = 0;

/// The path it answers on when the settings name none.
pub(crate) const DEFAULT_PATH: &str = "/";

/// The secret that turns the signature check on.
pub(crate) const HMAC_SECRET: &str = "hmac";

/// Every setting.
pub(crate) const SETTINGS: [&str; 8] = [
    "host",
    "port",
    "path",
    "maxBodyBytes",
    "inputField",
    "keyField",
    "idField",
    "signature",
];

/// Every setting within `signature`.
pub(crate) const SIGNATURE_SETTINGS: [&str; 4] = ["header", "algorithm", "prefix", "encoding"];

/// Why the settings cannot work. No text of it holds a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettingsError {
    /// A name no setting has.
    #[error("`{name}` is no setting; there are {}", listed(known))]
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: &'static [&'static str],
    },
    /// A value that its setting cannot have.
    #[error("`{name}` must be {expected}, and is {found}")]
    Wrong {
        /// The setting.
        name: &'static str,
        /// What it may be, in words.
        expected: String,
        /// What it is, shortened.
        found: String,
    },
    /// A secret of a name that means nothing here.
    #[error("a webhook knows the secret `{HMAC_SECRET}` only, and the connection has `{name}`")]
    UnknownSecret {
        /// The name.
        name: String,
    },
    /// The secret is the empty text.
    #[error("the secret `{HMAC_SECRET}` is empty, so that anybody could sign with it")]
    EmptySecret,
    /// Signatures are described, and there is no secret to check them by.
    #[error(
        "`signature` is set, and the connection has no secret `{HMAC_SECRET}` to check signatures by"
    )]
    NoSecret,
}

fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// A field of a JSON body: a top-level field's name, or a JSON Pointer if it begins with `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldPath(String);

impl FieldPath {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The field's value in `body`, if it is there.
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

/// The settings of one webhook, checked.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The host or address it listens on.
    pub(crate) host: String,
    /// The port; 0 is any free one.
    pub(crate) port: u16,
    /// The one path it answers on.
    pub(crate) path: String,
    /// Largest body it takes, in bytes.
    pub(crate) body_bytes_max: usize,
    /// Where in a JSON body the input is. None: the rule of [`super::mapping`].
    pub(crate) input_field: Option<FieldPath>,
    /// Where in a JSON body the instance key is.
    pub(crate) key_field: Option<FieldPath>,
    /// Where in a JSON body the event id is.
    pub(crate) id_field: Option<FieldPath>,
    /// How requests must be signed. None: they need not be.
    pub(crate) signature: Option<SignatureCheck>,
}

impl Settings {
    /// Reads a connection's settings and secrets.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] naming the first setting that cannot work.
    pub(crate) fn new(
        config: &JsonObject,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Self, SettingsError> {
        let mut settings = Self {
            host: DEFAULT_HOST.to_owned(),
            port: DEFAULT_PORT,
            path: DEFAULT_PATH.to_owned(),
            body_bytes_max: DEFAULT_BODY_BYTES_MAX,
            input_field: None,
            key_field: None,
            id_field: None,
            signature: None,
        };
        let mut scheme = None;
        for (name, value) in config {
            match name.as_str() {
                "host" => settings.host = text("host", value)?.to_owned(),
                "port" => settings.port = port(value)?,
                "path" => settings.path = path(value)?,
                "maxBodyBytes" => settings.body_bytes_max = body_bytes_max(value)?,
                "inputField" => settings.input_field = Some(field("inputField", value)?),
                "keyField" => settings.key_field = Some(field("keyField", value)?),
                "idField" => settings.id_field = Some(field("idField", value)?),
                "signature" => scheme = Some(SignatureScheme::new(value)?),
                _ => return Err(unknown(name, &SETTINGS)),
            }
        }
        settings.signature = signature_check(scheme, secrets)?;
        Ok(settings)
    }
}

/// The secret decides whether signatures are checked; the settings only say how.
fn signature_check(
    scheme: Option<SignatureScheme>,
    secrets: &BTreeMap<String, String>,
) -> Result<Option<SignatureCheck>, SettingsError> {
    if let Some(name) = secrets.keys().find(|name| *name != HMAC_SECRET) {
        return Err(SettingsError::UnknownSecret { name: name.clone() });
    }
    match (secrets.get(HMAC_SECRET), scheme) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(SettingsError::NoSecret),
        (Some(secret), scheme) => {
            let SignatureScheme { header, prefix } = scheme.unwrap_or_default();
            SignatureCheck::new(header, prefix, secret)
                .map(Some)
                .ok_or(SettingsError::EmptySecret)
        }
    }
}

/// Where a signature is and how it is written.
struct SignatureScheme {
    header: HeaderName,
    prefix: String,
}

impl Default for SignatureScheme {
    fn default() -> Self {
        Self {
            header: HeaderName::from_static(DEFAULT_HEADER),
            prefix: DEFAULT_PREFIX.to_owned(),
        }
    }
}

impl SignatureScheme {
    fn new(value: &Value) -> Result<Self, SettingsError> {
        let Some(fields) = value.as_object() else {
            return Err(wrong("signature", "a map", kind_of(value)));
        };
        let mut scheme = Self::default();
        for (name, value) in fields {
            match name.as_str() {
                "header" => scheme.header = header("signature.header", value)?,
                "prefix" => {
                    let wrong = || wrong("signature.prefix", "a text", kind_of(value));
                    scheme.prefix = value.as_str().ok_or_else(wrong)?.to_owned();
                }
                "algorithm" => only("signature.algorithm", ALGORITHM, value)?,
                "encoding" => only("signature.encoding", ENCODING, value)?,
                _ => {
                    let name = format!("signature.{name}");
                    return Err(unknown(&name, &SIGNATURE_SETTINGS));
                }
            }
        }
        Ok(scheme)
    }
}

fn unknown(name: &str, known: &'static [&'static str]) -> SettingsError {
    SettingsError::Unknown {
        name: name.to_owned(),
        known,
    }
}

fn wrong(
    name: &'static str,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> SettingsError {
    SettingsError::Wrong {
        name,
        expected: expected.into(),
        found: found.into(),
    }
}

/// The value itself, shortened. For settings that nobody would put a secret in.
fn shown(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}

/// What a value is, where the value itself might be a secret in the wrong place.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(text) if text.is_empty() => "empty",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// A whole number, or its digits: a value from the environment is always a text.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(digits) => digits.parse().ok(),
        other => other.as_u64(),
    }
}

fn text<'a>(name: &'static str, value: &'a Value) -> Result<&'a str, SettingsError> {
    match value.as_str() {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(wrong(name, "a text that is not empty", kind_of(value))),
    }
}

fn only(name: &'static str, choice: &str, value: &Value) -> Result<(), SettingsError> {
    if value.as_str() == Some(choice) {
        Ok(())
    } else {
        Err(wrong(name, format!("`{choice}`"), shown(value)))
    }
}

fn port(value: &Value) -> Result<u16, SettingsError> {
    let port = number(value).and_then(|port| u16::try_from(port).ok());
    port.ok_or_else(|| wrong("port", "a whole number from 0 to 65535", shown(value)))
}

fn body_bytes_max(value: &Value) -> Result<usize, SettingsError> {
    let bytes = number(value).and_then(|bytes| usize::try_from(bytes).ok());
    bytes
        .filter(|bytes| (1..=BODY_BYTES_CEILING).contains(bytes))
        .ok_or_else(|| {
            let expected = format!("a whole number of bytes from 1 to {BODY_BYTES_CEILING}");
            wrong("maxBodyBytes", expected, shown(value))
        })
}

/// A path as requests write it: what a URL cannot hold would never be asked for.
fn path(value: &Value) -> Result<String, SettingsError> {
    let in_url = |b: u8| b.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@%".contains(&b);
    let path = text("path", value)?;
    if path.starts_with('/') && path.bytes().all(in_url) {
        Ok(path.to_owned())
    } else {
        let expected = "a URL path that begins with `/`, other characters written as `%XX`";
        Err(wrong("path", expected, shown(value)))
    }
}

fn field(name: &'static str, value: &Value) -> Result<FieldPath, SettingsError> {
    text(name, value).map(FieldPath::new)
}

fn header(name: &'static str, value: &Value) -> Result<HeaderName, SettingsError> {
    text(name, value)?
        .parse()
        .map_err(|_no_header| wrong(name, "the name of an HTTP header", kind_of(value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(config: &Value, secrets: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let config = config.as_object().unwrap().clone();
        let secrets = secrets
            .iter()
            .map(|(name, secret)| ((*name).to_owned(), (*secret).to_owned()))
            .collect();
        Settings::new(&config, &secrets)
    }

    #[test]
    fn without_settings_it_listens_on_this_machine_only() {
        let settings = settings(&json!({}), &[]).unwrap();
        assert_eq!(settings.host, "127.0.0.1");
        assert_eq!((settings.port, settings.path.as_str()), (0, "/"));
        assert_eq!(settings.body_bytes_max, 256 * 1024);
        assert!(settings.signature.is_none());
    }

    #[test]
    fn every_setting_is_read() {
        let config = json!({
            "host": "::1", "port": 8080, "path": "/hooks/a%20b", "maxBodyBytes": 10,
            "inputField": "comment", "keyField": "/repo/name", "idField": "id",
            "signature": {"header": "X-Sig", "algorithm": "sha256", "prefix": "", "encoding": "hex"},
        });
        assert_eq!(config.as_object().unwrap().len(), SETTINGS.len());
        let settings = settings(&config, &[("hmac", "s")]).unwrap();
        assert_eq!((settings.host.as_str(), settings.port), ("::1", 8080));
        assert_eq!(settings.path, "/hooks/a%20b");
        assert_eq!(settings.body_bytes_max, 10);
        assert_eq!(settings.input_field, Some(FieldPath::new("comment")));
        assert_eq!(settings.id_field, Some(FieldPath::new("id")));
        let body = json!({"repo": {"name": "r"}, "/repo/name": "no"});
        let key = settings.key_field.unwrap();
        assert_eq!(key.find(&body), Some(&json!("r")));
        assert!(settings.signature.is_some());
    }

    #[test]
    fn a_secret_alone_turns_the_check_on() {
        assert!(
            settings(&json!({}), &[("hmac", "s")])
                .unwrap()
                .signature
                .is_some()
        );
    }

    #[test]
    fn what_could_switch_the_check_off_by_mistake_is_an_error() {
        let no_secret = settings(&json!({"signature": {}}), &[]).unwrap_err();
        assert_eq!(no_secret, SettingsError::NoSecret);
        let empty = settings(&json!({}), &[("hmac", "")]).unwrap_err();
        assert_eq!(empty, SettingsError::EmptySecret);
        let misspelt = settings(&json!({}), &[("hmca", "swordfish")]).unwrap_err();
        assert!(misspelt.to_string().contains("`hmca`"), "{misspelt}");
        assert!(!misspelt.to_string().contains("swordfish"), "{misspelt}");
    }

    #[test]
    fn numbers_may_come_from_the_environment() {
        let config = json!({"port": "8080", "maxBodyBytes": "1000"});
        let settings = settings(&config, &[]).unwrap();
        assert_eq!((settings.port, settings.body_bytes_max), (8080, 1000));
    }

    #[test]
    fn a_secret_in_the_wrong_place_is_not_repeated() {
        for config in [
            json!({"signature": "swordfish"}),
            json!({"signature": {"header": "sword fish"}}),
        ] {
            let error = settings(&config, &[("hmac", "s")]).unwrap_err().to_string();
            assert!(!error.contains("sword"), "{error}");
        }
    }

    #[test]
    fn each_wrong_value_is_named() {
        for (config, said) in [
            (
                json!({"prot": 1}),
                "`prot` is no setting; there are `host`, `port`",
            ),
            (
                json!({"signature": {"key": "x"}}),
                "`signature.key` is no setting",
            ),
            (
                json!({"port": 65536}),
                "`port` must be a whole number from 0 to 65535, and is 65536",
            ),
            (json!({"port": "http"}), "and is \"http\""),
            (
                json!({"host": ""}),
                "`host` must be a text that is not empty",
            ),
            (json!({"path": "hook"}), "`path` must be a URL path"),
            (json!({"path": "/a b"}), "`path` must be a URL path"),
            (json!({"path": "/{x}"}), "`path` must be a URL path"),
            (json!({"path": "/a?b"}), "`path` must be a URL path"),
            (json!({"maxBodyBytes": 0}), "from 1 to 1048576"),
            (json!({"maxBodyBytes": 1_048_577}), "from 1 to 1048576"),
            (json!({"inputField": 1}), "`inputField`"),
            (
                json!({"signature": "sha256"}),
                "`signature` must be a map, and is a text",
            ),
            (
                json!({"signature": {"algorithm": "sha1"}}),
                "must be `sha256`, and is \"sha1\"",
            ),
            (
                json!({"signature": {"encoding": "base64"}}),
                "must be `hex`",
            ),
            (
                json!({"signature": {"header": "a b"}}),
                "the name of an HTTP header",
            ),
        ] {
            let error = settings(&config, &[("hmac", "s")]).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
