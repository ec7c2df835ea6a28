//! OAuth: the applications a project names, what asks for their tokens, and the requests to authorization
//! servers (`SYS-2`, `SYS-4`).
//!
//! The orchestrator decides and keeps; a connector process of the name [`OAUTH`] makes the requests. Nobody
//! else sees a refresh token, a client secret or a verifier.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{OAuthSubject, ResourceName};
use crate::secret::SecretValue;

/// The connection whose process makes the requests, and its connector: one that nobody writes.
pub const OAUTH: &str = "oauth";

/// What stands before the name of an application where one is referred to: `OAuthApp/github`.
pub const OAUTH_APP_PREFIX: &str = "OAuthApp/";

/// The method that reads what an authorization server says of itself: from a [`MetadataRequest`] to a
/// [`Reply`] of [`Metadata`].
pub const METADATA: &str = "metadata";

/// The method that asks for tokens: from a [`FormRequest`] to a [`Reply`] of [`Token`].
pub const TOKEN: &str = "token";

/// The method that takes a token back: from a [`FormRequest`] to a [`Reply`] of nothing.
pub const REVOKE: &str = "revoke";

/// The method that begins a login on another device: from a [`FormRequest`] to a [`Reply`] of
/// [`DeviceCode`].
pub const DEVICE: &str = "device";

/// The method that registers an application at a server (RFC 7591): from a [`RegisterRequest`] to a [`Reply`]
/// of [`Client`].
pub const REGISTER: &str = "register";

/// What stands in a configuration for a token until a process is started with it.
const PLACEHOLDER: &str = "goondan-oauth:";

/// Whose token something needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuthNeed {
    /// The `OAuthApp`.
    pub app: ResourceName,
    /// For whom: [`OAuthSubject::global`] unless the application tells people apart.
    pub subject: OAuthSubject,
}

impl OAuthNeed {
    /// What stands in a configuration in place of the token.
    #[must_use]
    pub fn placeholder(&self) -> String {
        format!("{PLACEHOLDER}{}:{}", self.app, self.subject)
    }

    /// What this text stands for, if it is such a placeholder.
    #[must_use]
    pub fn of_placeholder(text: &str) -> Option<Self> {
        let (app, subject) = text.strip_prefix(PLACEHOLDER)?.split_once(':')?;
        Some(Self {
            app: app.parse().ok()?,
            subject: subject.parse().ok()?,
        })
    }

    /// What comes behind `gdn oauth login`, `show` and the like.
    #[must_use]
    pub fn arguments(&self) -> String {
        if self.subject.is_global() {
            self.app.to_string()
        } else {
            format!("{} --subject {}", self.app, self.subject)
        }
    }
}

impl fmt::Display for OAuthNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{OAUTH_APP_PREFIX}{}", self.app)?;
        if self.subject.is_global() {
            Ok(())
        } else {
            write!(f, " of `{}`", self.subject)
        }
    }
}

/// How an application says who it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuth {
    /// By the header `Authorization`.
    Basic,
    /// By fields of the request.
    Post,
    /// It has no secret: only its id is sent.
    #[default]
    None,
}

impl ClientAuth {
    /// The word by which it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Post => "post",
            Self::None => "none",
        }
    }

    /// How each is written, in the order of the variants.
    pub const WORDS: [&'static str; 3] = ["basic", "post", "none"];

    /// The one that is written so.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            "basic" => Some(Self::Basic),
            "post" => Some(Self::Post),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

/// One `OAuthApp` resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OAuthApp {
    /// Its name.
    pub name: ResourceName,
    /// The authorization server, which says itself where its endpoints are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Its endpoints as they are written; they come before what it says.
    #[serde(default)]
    pub endpoints: Endpoints,
    /// The server whose tokens they are (RFC 8707), such as an MCP server. Without `issuer` it says itself which
    /// authorization server that is (RFC 9728).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The application's id at the server, or the address of what is said of it; none: it is registered there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Its secret, if it has one. Never logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretValue>,
    /// How it says who it is.
    #[serde(default)]
    pub client_auth: ClientAuth,
    /// What it asks for.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// What people may be asked for beyond that when a server says that a token allows too little.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wider_scopes: Vec<String>,
    /// Where the server sends people back to, exactly as it is registered there; none: a port of this
    /// machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    /// Whether there is a token for each person rather than one for all.
    #[serde(default)]
    pub per_user: bool,
    /// Further fields of the authorization request.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
}

/// Where an authorization server takes requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    /// Where people consent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<String>,
    /// Where tokens are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Where they are taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation: Option<String>,
    /// Where a login on another device begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_authorization: Option<String>,
}

/// The event by which a connection tells that somebody came back from an authorization server to a public address
/// that it hears. Its input is the query of that address; it goes to no agent.
pub const CALLBACK_EVENT: &str = "oauth.callback";

/// The setting of a webhook that names the path on which it hears them.
pub const CALLBACK_SETTING: &str = "oauthCallback";

/// The path of a public address that people are sent back to; none of one that is no address with `https`, which a
/// program of the person's own hears.
#[must_use]
pub fn public_path(redirect_uri: &str) -> Option<&str> {
    let rest = redirect_uri.strip_prefix("https://")?;
    let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/");
    path.split('?').next()
}

/// What [`METADATA`] is asked with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataRequest {
    /// The authorization server; none: `resource` says which it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The server whose tokens are wanted, if they are for one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Whether `issuer` was named by `resource`, and not by a person: then it leads where that may lead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_found: bool,
}

/// What an authorization server says of itself (RFC 8414), and a resource of its tokens (RFC 9728).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Where it takes requests.
    pub endpoints: Endpoints,
    /// Whether it says in every callback who it is (RFC 9207).
    #[serde(default)]
    pub says_issuer: bool,
    /// Who it says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// What the tokens are for, as it calls itself (RFC 8707).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// What is asked for where the application does not say.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Where applications are registered (RFC 7591).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration: Option<String>,
    /// Whether an application's id may be the address of what is said of it.
    #[serde(default)]
    pub takes_client_documents: bool,
    /// How a registered application is to say who it is.
    #[serde(default)]
    pub registered_auth: ClientAuth,
    /// Whether its addresses were named by a server of the Internet, and so lead to such alone.
    #[serde(default)]
    pub public_only: bool,
}

/// What [`REGISTER`] is asked with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegisterRequest {
    /// Where it goes.
    pub endpoint: String,
    /// Where people are sent back to; none: they log in on another device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    /// What is asked for.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// How the application wants to say who it is.
    pub client_auth: ClientAuth,
    /// Whether it goes to an address of the Internet alone.
    #[serde(default)]
    pub public_only: bool,
}

/// Who an application is at one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Client {
    /// Its id.
    pub id: String,
    /// Its secret, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretValue>,
    /// How it says who it is.
    pub auth: ClientAuth,
}

/// A request with a form, to the token endpoint or one like it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormRequest {
    /// Where it goes.
    pub endpoint: String,
    /// The application's id.
    pub client_id: String,
    /// Its secret, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretValue>,
    /// How it says who it is.
    pub client_auth: ClientAuth,
    /// The fields, but for those by which it says so.
    pub form: BTreeMap<String, SecretValue>,
    /// Whether it goes to an address of the Internet alone.
    #[serde(default)]
    pub public_only: bool,
}

/// What an authorization server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply<T> {
    /// What was asked for.
    Granted(T),
    /// It declines.
    Refused(Refused),
}

/// Why an authorization server declines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// Its code, such as `invalid_grant`.
    pub error: String,
    /// The same in its words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.description {
            Some(description) => write!(f, "`{}`: {description}", self.error),
            None => write!(f, "`{}`", self.error),
        }
    }
}

/// What a token endpoint gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// What opens the service.
    pub access_token: SecretValue,
    /// What gets the next one, if there is a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<SecretValue>,
    /// How long the access token lives, in seconds; none if the server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
    /// What it allows, if the server says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// How a person logs in on another device (RFC 8628).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceCode {
    /// What the token endpoint is asked with.
    pub device_code: SecretValue,
    /// What the person types.
    pub user_code: String,
    /// Where.
    pub verification_uri: String,
    /// The same with the code in it, if the server has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification_uri_complete: Option<String>,
    /// How long it may be used, in seconds.
    pub expires_in_s: u64,
    /// How long to wait between two questions, in seconds.
    pub interval_s: u64,
}

/// Whether a byte stands for itself in a form or a query.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// A text as it stands in a form or a query.
#[must_use]
pub fn url_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Fields as a form or a query.
#[must_use]
pub fn form_encoded<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let fields = fields.into_iter();
    let fields =
        fields.map(|(name, value)| format!("{}={}", url_encoded(name), url_encoded(value)));
    fields.collect::<Vec<_>>().join("&")
}

/// The text that stands in a form or a query so; `None` if it is no text in UTF-8.
#[must_use]
pub fn url_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_is_read_back_from_what_stands_for_its_token() {
        let need = OAuthNeed {
            app: "github".parse().unwrap(),
            subject: "ada@example.org".parse().unwrap(),
        };
        assert_eq!(OAuthNeed::of_placeholder(&need.placeholder()), Some(need));
        for other in [
            "",
            "goondan-oauth:",
            "goondan-oauth:x",
            "goondan-oauth:x:a b",
        ] {
            assert_eq!(OAuthNeed::of_placeholder(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        for text in ["", "a b&c=d", "가나다", "100%", "x+y", "~-._"] {
            assert_eq!(url_decoded(&url_encoded(text)).as_deref(), Some(text));
        }
        assert_eq!(url_decoded("a+b%20c").as_deref(), Some("a b c"));
        for wrong in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(url_decoded(wrong), None, "{wrong}");
        }
        let form = form_encoded([("grant_type", "a b"), ("x", "1&2")]);
        assert_eq!(form, "grant_type=a%20b&x=1%262");
    }
}
