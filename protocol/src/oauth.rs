//! OAuth: the applications of a project, the placeholders for their tokens, and the requests to
//! authorization servers (`SYS-2`, `SYS-4`).
//!
//! The orchestrator decides and stores; a connector process named [`OAUTH`] sends the requests. No
//! other process sees a refresh token, a client secret or a PKCE verifier.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{OAuthSubject, ResourceName};
use crate::secret::SecretValue;

/// Name of the implicit connection, and of its connector, whose process sends the requests. No
/// project defines it.
pub const OAUTH: &str = "oauth";

/// Prefix of a reference to an application, as in `OAuthApp/github`.
pub const OAUTH_APP_PREFIX: &str = "OAuthApp/";

/// Method that reads the metadata of an authorization server: takes a [`MetadataRequest`] and
/// returns a [`Reply`] of [`Metadata`].
pub const METADATA: &str = "metadata";

/// Method that requests tokens: takes a [`FormRequest`] and returns a [`Reply`] of [`Token`].
pub const TOKEN: &str = "token";

/// Method that revokes a token: takes a [`FormRequest`] and returns an empty [`Reply`].
pub const REVOKE: &str = "revoke";

/// Method that starts a login on another device: takes a [`FormRequest`] and returns a [`Reply`] of
/// [`DeviceCode`].
pub const DEVICE: &str = "device";

/// Method that registers an application at a server (RFC 7591): takes a [`RegisterRequest`] and
/// returns a [`Reply`] of [`OAuthClient`].
pub const REGISTER: &str = "register";

/// Fields of stored documents of tokens and logins whose values are secret.
pub const SECRET_FIELDS: [&str; 7] = [
    "accessToken",
    "refreshToken",
    "clientSecret",
    "codeVerifier",
    "state",
    "deviceCode",
    "code",
];

/// Prefix of the placeholder that a configuration holds until a process starts with the token.
const PLACEHOLDER: &str = "goondan-oauth:";

/// Identifies the token that a resource needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuthNeed {
    /// The `OAuthApp`.
    pub app: ResourceName,
    /// The subject of the token: [`OAuthSubject::global`] unless the application has a token per
    /// person.
    pub subject: OAuthSubject,
}

impl OAuthNeed {
    /// Placeholder that a configuration holds instead of the token.
    #[must_use]
    pub fn placeholder(&self) -> String {
        format!("{PLACEHOLDER}{}:{}", self.app, self.subject)
    }

    /// Parses a placeholder; `None` if the text is not one.
    #[must_use]
    pub fn of_placeholder(text: &str) -> Option<Self> {
        let (app, subject) = text.strip_prefix(PLACEHOLDER)?.split_once(':')?;
        Some(Self {
            app: app.parse().ok()?,
            subject: subject.parse().ok()?,
        })
    }

    /// Arguments that follow `gdn secret oauth login`, `show` and similar commands.
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

/// Client authentication method of an application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuth {
    /// In the `Authorization` header.
    Basic,
    /// In fields of the request body.
    Post,
    /// The application has no secret; only its id is sent.
    #[default]
    None,
}

impl ClientAuth {
    /// The name of the method in configuration files.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Post => "post",
            Self::None => "none",
        }
    }

    /// Names of the methods, in the order of the variants.
    pub const WORDS: [&'static str; 3] = ["basic", "post", "none"];

    /// Looks up a method by its name.
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
    /// The authorization server, which publishes its endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Configured endpoints; they override published ones.
    #[serde(default)]
    pub endpoints: Endpoints,
    /// The server that accepts the tokens (RFC 8707), such as an MCP server. Without `issuer` it
    /// names its authorization server (RFC 9728).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The application's id at the server, or the URL of its client metadata document. If absent,
    /// the application is registered dynamically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Its secret, if it has one. Never logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretValue>,
    /// Its client authentication method.
    #[serde(default)]
    pub client_auth: ClientAuth,
    /// Scopes to request.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Further scopes that a person may be asked to grant when a server reports that a token lacks
    /// permission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wider_scopes: Vec<String>,
    /// Redirect URI, exactly as registered at the server; if absent, a loopback port of this
    /// machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    /// True if each person has a separate token; false if all share one.
    #[serde(default)]
    pub per_user: bool,
    /// Additional fields of the authorization request.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
}

/// Endpoints of an authorization server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    /// Authorization endpoint, at which people consent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<String>,
    /// Token endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Revocation endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation: Option<String>,
    /// Device authorization endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_authorization: Option<String>,
}

/// Event by which a connection reports that a browser returned from an authorization server to its
/// public URL. The input is the query of that URL. No agent receives the event.
pub const CALLBACK_EVENT: &str = "oauth.callback";

/// Setting of a webhook that names the path of its OAuth callbacks.
pub const CALLBACK_SETTING: &str = "oauthCallback";

/// Path of a public redirect URI; `None` if the URI does not use `https`, because a local program
/// then receives the callback.
#[must_use]
pub fn public_path(redirect_uri: &str) -> Option<&str> {
    let rest = redirect_uri.strip_prefix("https://")?;
    let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/");
    path.split('?').next()
}

/// Parameters of [`METADATA`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataRequest {
    /// The authorization server; if absent, `resource` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The server that accepts the tokens, if they are limited to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// True if `resource` named the `issuer`, not a person. The issuer may then only use addresses
    /// that `resource` may use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_found: bool,
}

/// Metadata of an authorization server (RFC 8414) and of a protected resource (RFC 9728).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The endpoints.
    pub endpoints: Endpoints,
    /// True if each callback contains the issuer (RFC 9207).
    #[serde(default)]
    pub says_issuer: bool,
    /// The issuer that the metadata names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Identifier of the protected resource, as it publishes it (RFC 8707).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Scopes to request if the application does not configure any.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Registration endpoint (RFC 7591).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration: Option<String>,
    /// True if a client id may be the URL of a client metadata document.
    #[serde(default)]
    pub takes_client_documents: bool,
    /// Client authentication method for registered applications.
    #[serde(default)]
    pub registered_auth: ClientAuth,
    /// True if a server on the Internet named the endpoints. They may then only resolve to public
    /// addresses.
    #[serde(default)]
    pub public_only: bool,
}

/// Parameters of [`REGISTER`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegisterRequest {
    /// The endpoint that receives the request.
    pub endpoint: String,
    /// Redirect URI; if absent, people log in on another device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    /// Scopes to request.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Client authentication method that the application prefers.
    pub client_auth: ClientAuth,
    /// True if the request may only go to a public address.
    #[serde(default)]
    pub public_only: bool,
}

/// Credentials of an application at one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuthClient {
    /// Its id.
    pub id: String,
    /// Its secret, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretValue>,
    /// Its client authentication method.
    pub auth: ClientAuth,
}

/// Form request to the token endpoint or a similar one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormRequest {
    /// The endpoint that receives the request.
    pub endpoint: String,
    /// The application's id.
    pub client_id: String,
    /// Its secret, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretValue>,
    /// Its client authentication method.
    pub client_auth: ClientAuth,
    /// The fields, without those for client authentication.
    pub form: BTreeMap<String, SecretValue>,
    /// True if the request may only go to a public address.
    #[serde(default)]
    pub public_only: bool,
}

/// Answer of an authorization server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply<T> {
    /// The request succeeded.
    Granted(T),
    /// The server refused the request.
    Refused(TokenErrorResponse),
}

/// Error response of an authorization server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenErrorResponse {
    /// Its code, such as `invalid_grant`.
    pub error: String,
    /// Description of the error in the server's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl fmt::Display for TokenErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.description {
            Some(description) => write!(f, "`{}`: {description}", self.error),
            None => write!(f, "`{}`", self.error),
        }
    }
}

/// Response of a token endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// The access token.
    pub access_token: SecretValue,
    /// The refresh token, if the server issued a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<SecretValue>,
    /// Lifetime of the access token, in seconds; absent if the server does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
    /// Granted scopes, if the server reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// Device authorization response (RFC 8628).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceCode {
    /// The code to poll the token endpoint with.
    pub device_code: SecretValue,
    /// The code that the person types.
    pub user_code: String,
    /// URL at which the person types it.
    pub verification_uri: String,
    /// URL that includes the code, if the server provides one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification_uri_complete: Option<String>,
    /// Lifetime of the codes, in seconds.
    pub expires_in_s: u64,
    /// Polling interval, in seconds.
    pub interval_s: u64,
}

/// True if a byte needs no escape in a form or a query.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Percent-encodes a text for a form or a query.
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

/// Encodes fields as a form or a query.
#[must_use]
pub fn form_encoded<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let fields = fields.into_iter();
    let fields =
        fields.map(|(name, value)| format!("{}={}", url_encoded(name), url_encoded(value)));
    fields.collect::<Vec<_>>().join("&")
}

/// Decodes a percent-encoded text of a form or a query; `None` if the result is not UTF-8.
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
    fn oauth_need_is_parsed_from_its_placeholder() {
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
    fn url_encoded_text_is_decoded_unchanged() {
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
