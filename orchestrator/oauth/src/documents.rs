//! Stored documents of grants, logins and refreshes in progress: flat fields, which the caller
//! encrypts (`SYS-3`).

use std::collections::BTreeMap;
use std::path::Path;

use goondan_protocol::ids::LoginId;
use goondan_protocol::oauth::{ClientAuth, OAuthClient, OAuthNeed, SECRET_FIELDS};
use goondan_protocol::secret::SecretValue;
use goondan_protocol::time::Timestamp;

use crate::key::{DocumentKey, GrantKey};

const VERSION: &str = "1";

/// Fields of one document. Never displayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(BTreeMap<String, SecretValue>);

/// Documents on disk of one application of one workspace.
#[derive(Debug, Clone, Default)]
pub struct Documents {
    /// Grants, logins and locks, in any order.
    pub found: Vec<Fields>,
    pub problems: Vec<String>,
}

impl Fields {
    /// Wraps fields read from disk.
    #[must_use]
    pub fn new(fields: BTreeMap<String, SecretValue>) -> Self {
        Self(fields)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &SecretValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the values that must be masked in logs.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretValue> {
        let fields = self.0.iter();
        fields.filter_map(|(name, value)| SECRET_FIELDS.contains(&name.as_str()).then_some(value))
    }

    /// Returns the reason why these fields cannot be the document at this path below the OAuth
    /// directory, if there is one.
    #[must_use]
    pub fn problem_at(&self, path: &Path) -> Option<&'static str> {
        let place = match ParsedDocument::read(self) {
            None => return Some("unknown kind or version of document"),
            Some(ParsedDocument::Grant(key, _)) => DocumentKey::Grant(key),
            Some(ParsedDocument::Lock(key, _)) => DocumentKey::Lock(key),
            Some(ParsedDocument::Session(key, session)) => DocumentKey::Session(key, session.id),
        };
        let is_its_own = place.path() == path;
        (!is_its_own).then_some(
            "the content belongs to another application, subject or login than the file name",
        )
    }

    fn of(kind: &str, key: &GrantKey) -> Self {
        let mut fields = Self::default();
        fields.put("version", VERSION);
        fields.put("kind", kind);
        fields.put("workspaceId", key.workspace_id.as_str());
        fields.put("app", key.need.app.as_str());
        fields.put("subject", key.need.subject.as_str());
        fields
    }

    fn put(&mut self, name: &str, value: &str) {
        // An empty value means an absent one and is not stored.
        if !value.is_empty() {
            let value = SecretValue::new(value.to_owned());
            self.0.insert(name.to_owned(), value);
        }
    }

    fn put_some(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    fn put_time(&mut self, name: &str, ms: i64) {
        self.put(name, &Timestamp::from_unix_millis(ms).to_string());
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(SecretValue::expose)
    }

    fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    fn secret(&self, name: &str) -> Option<SecretValue> {
        self.0.get(name).cloned()
    }

    fn time(&self, name: &str) -> Option<i64> {
        let at: Timestamp = self.text(name)?.parse().ok()?;
        Some(at.as_unix_millis())
    }

    fn key(&self) -> Option<GrantKey> {
        Some(GrantKey {
            workspace_id: self.text("workspaceId")?.parse().ok()?,
            need: OAuthNeed {
                app: self.text("app")?.parse().ok()?,
                subject: self.text("subject")?.parse().ok()?,
            },
        })
    }
}

#[derive(Debug)]
pub(crate) enum ParsedDocument {
    Grant(GrantKey, Grant),
    Lock(GrantKey, Lock),
    Session(GrantKey, LoginSession),
}

impl ParsedDocument {
    /// Parses a document; `None` if its version or kind is unknown.
    pub(crate) fn read(fields: &Fields) -> Option<Self> {
        if fields.text("version") != Some(VERSION) {
            return None;
        }
        let key = fields.key()?;
        match fields.text("kind")? {
            "grant" => Some(Self::Grant(key, Grant::read(fields)?)),
            "lock" => Some(Self::Lock(key, Lock::read(fields)?)),
            "session" => Some(Self::Session(key, LoginSession::read(fields)?)),
            _ => None,
        }
    }
}

/// Server of a grant and the client registered there, if the configuration does not define them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GrantServer {
    pub(crate) issuer: String,
    /// The resource identifier for which the tokens were requested.
    pub(crate) resource: Option<String>,
    /// The registered client, if any.
    pub(crate) client: Option<OAuthClient>,
}

impl GrantServer {
    fn put(&self, fields: &mut Fields) {
        fields.put("boundIssuer", &self.issuer);
        fields.put_some("boundResource", self.resource.as_deref());
        if let Some(client) = &self.client {
            fields.put("clientId", &client.id);
            let secret = client.secret.as_ref();
            fields.put_some("clientSecret", secret.map(SecretValue::expose));
            fields.put("clientAuth", client.auth.word());
        }
    }

    /// Parses the binding of a document: `Some(None)` if it has none, `None` if it is invalid.
    fn read(fields: &Fields) -> Option<Option<Self>> {
        let Some(issuer) = fields.owned("boundIssuer") else {
            return Some(None);
        };
        let client = match fields.owned("clientId") {
            None => None,
            Some(id) => Some(OAuthClient {
                id,
                secret: fields.secret("clientSecret"),
                auth: ClientAuth::of_word(fields.text("clientAuth")?)?,
            }),
        };
        Some(Some(Self {
            issuer,
            resource: fields.owned("boundResource"),
            client,
        }))
    }
}

/// Tokens issued by a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Fingerprint of the application when the tokens were issued.
    pub(crate) fingerprint: String,
    /// Their server and client, if the configuration does not define them.
    pub(crate) binding: Option<GrantServer>,
    /// Increases with each stored response of the server.
    pub(crate) generation: u64,
    /// Reason why the user must log in again, if so.
    pub(crate) needs_auth: Option<String>,
    pub(crate) access_token: SecretValue,
    pub(crate) refresh_token: Option<SecretValue>,
    pub(crate) obtained_at_ms: i64,
    pub(crate) expires_at_ms: Option<i64>,
    pub(crate) scope: Option<String>,
    /// Missing scopes, as reported by servers that were called with the token.
    pub(crate) wider: Option<String>,
    /// True if the token was renewed after its predecessor was rejected, and no server has accepted
    /// it yet.
    pub(crate) is_on_trial: bool,
}

impl Grant {
    pub(crate) fn fields(&self, key: &GrantKey) -> Fields {
        let mut fields = Fields::of("grant", key);
        fields.put("fingerprint", &self.fingerprint);
        fields.put("generation", &self.generation.to_string());
        let state = match self.needs_auth {
            None => "active",
            Some(_) => "needs_auth",
        };
        fields.put("status", state);
        fields.put_some("reason", self.needs_auth.as_deref());
        fields.put("accessToken", self.access_token.expose());
        let refresh_token = self.refresh_token.as_ref();
        fields.put_some("refreshToken", refresh_token.map(SecretValue::expose));
        fields.put_time("obtainedAt", self.obtained_at_ms);
        if let Some(ms) = self.expires_at_ms {
            fields.put_time("expiresAt", ms);
        }
        fields.put_some("scope", self.scope.as_deref());
        fields.put_some("widerScope", self.wider.as_deref());
        fields.put_some("onTrial", self.is_on_trial.then_some("true"));
        if let Some(binding) = &self.binding {
            binding.put(&mut fields);
        }
        fields
    }

    fn read(fields: &Fields) -> Option<Self> {
        let needs_auth = match fields.text("status")? {
            "active" => None,
            _ => Some(fields.owned("reason").unwrap_or_default()),
        };
        Some(Self {
            fingerprint: fields.owned("fingerprint")?,
            binding: GrantServer::read(fields)?,
            generation: fields.text("generation")?.parse().ok()?,
            needs_auth,
            access_token: fields.secret("accessToken")?,
            refresh_token: fields.secret("refreshToken"),
            obtained_at_ms: fields.time("obtainedAt")?,
            expires_at_ms: fields.time("expiresAt"),
            scope: fields.owned("scope"),
            wider: fields.owned("widerScope"),
            is_on_trial: fields.text("onTrial") == Some("true"),
        })
    }
}

/// Marks a refresh of a grant in progress. If the mark exists and the generation is still current,
/// the outcome of the refresh is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lock {
    /// Generation of the grant that is renewed.
    pub(crate) generation: u64,
    pub(crate) since_ms: i64,
}

impl Lock {
    pub(crate) fn fields(&self, key: &GrantKey) -> Fields {
        let mut fields = Fields::of("lock", key);
        fields.put("generation", &self.generation.to_string());
        fields.put_time("since", self.since_ms);
        fields
    }

    fn read(fields: &Fields) -> Option<Self> {
        Some(Self {
            generation: fields.text("generation")?.parse().ok()?,
            since_ms: fields.time("since")?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginSession {
    pub(crate) id: LoginId,
    pub(crate) fingerprint: String,
    /// Its server, if the configuration does not define it.
    pub(crate) binding: Option<GrantServer>,
    pub(crate) how: ConsentMethod,
    pub(crate) expires_at_ms: i64,
    /// Scopes requested from the user, if any.
    pub(crate) scope: Option<String>,
    /// True if its code was submitted already.
    pub(crate) is_used: bool,
}

/// Way of obtaining the user's consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConsentMethod {
    /// A browser that is redirected with a code.
    Code {
        state: SecretValue,
        verifier: SecretValue,
        /// Must be repeated exactly in the exchange.
        redirect_uri: String,
        /// Expected issuer in the redirect, if the server sends one.
        issuer: Option<String>,
        /// True if the server must send its issuer.
        says_issuer: bool,
    },
    Device {
        device_code: SecretValue,
        interval_ms: i64,
    },
}

impl LoginSession {
    pub(crate) fn fields(&self, key: &GrantKey) -> Fields {
        let mut fields = Fields::of("session", key);
        fields.put("loginId", self.id.as_str());
        fields.put("fingerprint", &self.fingerprint);
        fields.put("status", if self.is_used { "used" } else { "open" });
        fields.put_time("expiresAt", self.expires_at_ms);
        fields.put_some("scope", self.scope.as_deref());
        if let Some(binding) = &self.binding {
            binding.put(&mut fields);
        }
        match &self.how {
            ConsentMethod::Code {
                state,
                verifier,
                redirect_uri,
                issuer,
                says_issuer,
            } => {
                fields.put("state", state.expose());
                fields.put("codeVerifier", verifier.expose());
                fields.put("redirectUri", redirect_uri);
                fields.put_some("issuer", issuer.as_deref());
                fields.put("saysIssuer", if *says_issuer { "true" } else { "false" });
            }
            ConsentMethod::Device {
                device_code,
                interval_ms,
            } => {
                fields.put("deviceCode", device_code.expose());
                fields.put("intervalMs", &interval_ms.to_string());
            }
        }
        fields
    }

    fn read(fields: &Fields) -> Option<Self> {
        let how = match fields.secret("deviceCode") {
            Some(device_code) => ConsentMethod::Device {
                device_code,
                interval_ms: fields.text("intervalMs")?.parse().ok()?,
            },
            None => ConsentMethod::Code {
                state: fields.secret("state")?,
                verifier: fields.secret("codeVerifier")?,
                redirect_uri: fields.owned("redirectUri")?,
                issuer: fields.owned("issuer"),
                says_issuer: fields.text("saysIssuer") == Some("true"),
            },
        };
        Some(Self {
            id: fields.text("loginId")?.parse().ok()?,
            fingerprint: fields.owned("fingerprint")?,
            binding: GrantServer::read(fields)?,
            how,
            expires_at_ms: fields.time("expiresAt")?,
            scope: fields.owned("scope"),
            is_used: fields.text("status") != Some("open"),
        })
    }
}
