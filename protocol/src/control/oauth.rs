//! `oauth.*`: tokens of authorization servers (`SYS-4`). No answer ever holds one.

use serde::{Deserialize, Serialize};

use crate::ids::{ConnectionName, LoginId, OAuthSubject, ResourceName, WorkspaceId};
use crate::secret::SecretValue;
use crate::time::Timestamp;

/// How a grant stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GrantState {
    /// Nobody has logged in yet.
    None,
    /// There is a token.
    Active,
    /// There is one, and the next is being asked for.
    Refreshing,
    /// A person has to log in again. What there was is kept.
    NeedsAuth,
}

impl GrantState {
    /// The state as it is written.
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

/// What is known of the tokens of an application for somebody, without any of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantInfo {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The `OAuthApp`.
    pub app: ResourceName,
    /// For whom.
    pub subject: OAuthSubject,
    /// How it stands.
    pub state: GrantState,
    /// What it allows, as the server said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// What it would have to allow besides, as a server said that was called with it. The next login asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wider_scope: Option<String>,
    /// When the token was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obtained_at: Option<Timestamp>,
    /// When it ends; `None` if the server does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When the next one is asked for, if something needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_at: Option<Timestamp>,
    /// Whether it can be renewed without a person.
    pub renewable: bool,
    /// Whether anything in the project asks for it.
    pub needed: bool,
    /// Why it needs a person, or what keeps it from being renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// `oauth.list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListGrants {
    /// Only those of this workspace.
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
    /// For whom; everybody if it is not said.
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
    /// For whom; everybody if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<OAuthSubject>,
    /// The port of this machine that the client listens on: where people are sent back to, unless the
    /// application says where itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Whether the person logs in on another device, by a code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub device: bool,
}

/// Result of `oauth.login`: what a person does next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginBegun {
    /// Names the login.
    pub login_id: LoginId,
    /// The address to open in a browser.
    pub url: String,
    /// The authorization server that a person logs in at, if it says who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// What a person is asked to consent to, if anything is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Where the server sends people back to from there; `None` of a login on another device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    /// The connection that hears who is sent back there, if one does: then nothing is to be handed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_by: Option<ConnectionName>,
    /// What is to be typed at the address, if it is a login on another device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_code: Option<String>,
    /// Until when.
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
    /// The whole address that the person was sent back to. Without it the answer comes when a login has ended that
    /// is made on another device, or whose address a connection hears.
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
    /// For whom; everybody if it is not said.
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
    /// For whom; everybody if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<OAuthSubject>,
    /// Whether the tokens are forgotten here even if the server cannot be told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forget: bool,
}

/// Result of `oauth.revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantRevoked {
    /// The `OAuthApp`.
    pub app: ResourceName,
    /// For whom.
    pub subject: OAuthSubject,
    /// Whether the server has taken the tokens back. If not, they are good until they end.
    pub at_server: bool,
    /// Why not, if not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
