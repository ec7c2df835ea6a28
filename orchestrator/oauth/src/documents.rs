//! What is kept of a grant, of a login and of a refresh under way: flat fields, which whoever keeps them
//! encrypts (`SYS-3`).

use std::collections::BTreeMap;
use std::path::Path;

use goondan_protocol::ids::LoginId;
use goondan_protocol::oauth::{Client, ClientAuth, OAuthNeed};
use goondan_protocol::secret::SecretValue;
use goondan_protocol::time::Timestamp;

use crate::key::{GrantKey, Place};

/// The version of these documents.
const VERSION: &str = "1";

/// The fields of one document. Shown nowhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(BTreeMap<String, SecretValue>);

/// What is on disk of one application of one workspace.
#[derive(Debug, Clone, Default)]
pub struct Documents {
    /// Grants, logins and locks, whichever they are.
    pub found: Vec<Fields>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
}

impl Fields {
    /// Fields that were read.
    #[must_use]
    pub fn new(fields: BTreeMap<String, SecretValue>) -> Self {
        Self(fields)
    }

    /// Each field with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &SecretValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Which of the values nobody is to see in any log.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretValue> {
        const SECRET: [&str; 7] = [
            "accessToken",
            "refreshToken",
            "clientSecret",
            "codeVerifier",
            "state",
            "deviceCode",
            "code",
        ];
        let fields = self.0.iter();
        fields.filter_map(|(name, value)| SECRET.contains(&name.as_str()).then_some(value))
    }

    /// Why these cannot be the document at this path below the directory of OAuth; none if they can.
    #[must_use]
    pub fn problem_at(&self, path: &Path) -> Option<&'static str> {
        let place = match Known::read(self) {
            None => return Some("it is no grant, login or lock that this version knows"),
            Some(Known::Grant(key, _)) => Place::Grant(key),
            Some(Known::Lock(key, _)) => Place::Lock(key),
            Some(Known::Session(key, session)) => Place::Session(key, session.id),
        };
        let is_its_own = place.path() == path;
        (!is_its_own).then_some("it is of another application, subject or login than its name says")
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
        // An empty value is as good as none, and is not kept.
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

/// A document, told apart.
#[derive(Debug)]
pub(crate) enum Known {
    Grant(GrantKey, Grant),
    Lock(GrantKey, Lock),
    Session(GrantKey, Session),
}

impl Known {
    /// What a document says; none if it is of another version, or is none of these.
    pub(crate) fn read(fields: &Fields) -> Option<Self> {
        if fields.text("version") != Some(VERSION) {
            return None;
        }
        let key = fields.key()?;
        match fields.text("kind")? {
            "grant" => Some(Self::Grant(key, Grant::read(fields)?)),
            "lock" => Some(Self::Lock(key, Lock::read(fields)?)),
            "session" => Some(Self::Session(key, Session::read(fields)?)),
            _ => None,
        }
    }
}

/// Which server tokens are of, and who the application is there, where that is not written in the
/// configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
    /// The server, as it says itself.
    pub(crate) issuer: String,
    /// What they are for, as that called itself when they were asked for.
    pub(crate) resource: Option<String>,
    /// Who the application is there, if it was registered.
    pub(crate) client: Option<Client>,
}

impl Binding {
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

    /// What a document says of it: nothing, or none if that makes no sense.
    fn read(fields: &Fields) -> Option<Option<Self>> {
        let Some(issuer) = fields.owned("boundIssuer") else {
            return Some(None);
        };
        let client = match fields.owned("clientId") {
            None => None,
            Some(id) => Some(Client {
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

/// The tokens that a server gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// What was said of the application when they were given.
    pub(crate) fingerprint: String,
    /// Whose they are, if that is not written in the configuration.
    pub(crate) binding: Option<Binding>,
    /// Grows with each answer of the server that was kept.
    pub(crate) generation: u64,
    /// Why a person has to log in again, if so.
    pub(crate) needs_auth: Option<String>,
    pub(crate) access_token: SecretValue,
    pub(crate) refresh_token: Option<SecretValue>,
    pub(crate) obtained_at_ms: i64,
    pub(crate) expires_at_ms: Option<i64>,
    pub(crate) scope: Option<String>,
    /// What it would have to allow besides, as servers said that were called with it.
    pub(crate) wider: Option<String>,
    /// Whether it was asked for since the token before was declined, and nobody has seen it taken yet.
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
            binding: Binding::read(fields)?,
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

/// That a refresh of a grant is under way: if it is there and the grant is still that one, nobody knows
/// what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lock {
    /// Which grant is renewed.
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

/// A login that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) id: LoginId,
    pub(crate) fingerprint: String,
    /// Which server it is at, if that is not written in the configuration.
    pub(crate) binding: Option<Binding>,
    pub(crate) how: How,
    pub(crate) expires_at_ms: i64,
    /// What the person is asked to consent to, if anything is named.
    pub(crate) scope: Option<String>,
    /// Whether its code was handed in already.
    pub(crate) is_used: bool,
}

/// By which way a person consents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum How {
    /// In a browser that comes back with a code.
    Code {
        state: SecretValue,
        verifier: SecretValue,
        /// To be said again at the exchange, exactly.
        redirect_uri: String,
        /// Who the server must say it is, if it says so.
        issuer: Option<String>,
        /// Whether it must.
        says_issuer: bool,
    },
    /// On another device.
    Device {
        device_code: SecretValue,
        interval_ms: i64,
    },
}

impl Session {
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
            How::Code {
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
            How::Device {
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
            Some(device_code) => How::Device {
                device_code,
                interval_ms: fields.text("intervalMs")?.parse().ok()?,
            },
            None => How::Code {
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
            binding: Binding::read(fields)?,
            how,
            expires_at_ms: fields.time("expiresAt")?,
            scope: fields.owned("scope"),
            is_used: fields.text("status") != Some("open"),
        })
    }
}
