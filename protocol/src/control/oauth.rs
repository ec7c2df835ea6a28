//! `oauth.*`: tokens of authorization servers (`SYS-4`). Responses never contain a token.

use serde::{Deserialize, Serialize};

use crate::ids::{ConnectionName, LoginId, OAuthSubject, ResourceName, WorkspaceId};
use crate::secret::SecretValue;
use crate::time::Timestamp;

/// State of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GrantState {
    /// No login has happened yet.
    None,
    /// A valid token is stored.
    Active,
    /// A token is stored and is being refreshed.
    Refreshing,
    /// A person must log in again. The old grant is kept.
    NeedsAuth,
}

impl GrantState {
    /// The serialized form of the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Active => "active",
            Self::Refreshing => "refreshing",
            Self::NeedsAuth => "needsAuth",
        }
    }
}

/// Information about an application's tokens for a subject, without the tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The `OAuthApp`.
    pub app: ResourceName,
    /// The subject.
    pub subject: OAuthSubject,
    /// Its state.
    pub state: GrantState,
    /// Granted scopes, as last reported by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Further scopes that a server required when it was called with the token. The next login
    /// requests them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wider_scope: Option<String>,
    /// Time at which the token was issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obtained_at: Option<Timestamp>,
    /// Time at which the token expires; `None` if the server does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Time at which the token is refreshed, if a resource needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_at: Option<Timestamp>,
    /// True if it can be refreshed without a person.
    pub renewable: bool,
    /// True if a resource of the project needs it.
    pub needed: bool,
    /// Reason why a person is needed or the refresh fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// `oauth.list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListGrants {
    /// Return only grants of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
}

/// `oauth.show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowGrant {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The `OAuthApp`.
    pub app: ResourceName,
    /// The subject; defaults to the shared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<OAuthSubject>,
}

/// `oauth.login`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BeginLogin {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The `OAuthApp`.
    pub app: ResourceName,
    /// The subject; defaults to the shared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<OAuthSubject>,
    /// Loopback port on which the client listens for the redirect, unless the application
    /// configures a redirect URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// True if the person logs in on another device, with a code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub device: bool,
}

/// Result of `oauth.login`: the next step for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginBegun {
    /// Identifies the login.
    pub login_id: LoginId,
    /// The URL to open in a browser.
    pub url: String,
    /// The authorization server, if it names itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The requested scopes, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The redirect URI; `None` for a login on another device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    /// The connection that receives the redirect, if one does. The client then does not submit the
    /// callback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_by: Option<ConnectionName>,
    /// The code to type at the URL, for a login on another device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_code: Option<String>,
    /// Time at which the login expires.
    pub expires_at: Timestamp,
}

/// `oauth.finish`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FinishLogin {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The login.
    pub login_id: LoginId,
    /// The full callback URL. If absent, the request waits for a login that completes on another
    /// device or through a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<SecretValue>,
}

/// `oauth.refresh`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefreshGrant {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The `OAuthApp`.
    pub app: ResourceName,
    /// The subject; defaults to the shared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<OAuthSubject>,
}

/// `oauth.revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevokeGrant {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The `OAuthApp`.
    pub app: ResourceName,
    /// The subject; defaults to the shared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<OAuthSubject>,
    /// True to delete the stored tokens even if the server cannot be notified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forget: bool,
}

/// Result of `oauth.revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantRevoked {
    /// The `OAuthApp`.
    pub app: ResourceName,
    /// The subject.
    pub subject: OAuthSubject,
    /// True if the server revoked the tokens. If false, they remain valid until they expire.
    pub at_server: bool,
    /// Reason why the server did not revoke them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
