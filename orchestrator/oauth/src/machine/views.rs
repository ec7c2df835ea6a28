//! State of grants for display, without tokens.

use goondan_protocol::control::{GrantInfo, GrantState};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::oauth::OAuthNeed;
use goondan_protocol::time::Timestamp;

use super::OAuthMachine;
use crate::documents::Grant;
use crate::key::GrantKey;

impl OAuthMachine {
    /// Returns the grants of one or all workspaces: required ones and existing ones.
    #[must_use]
    pub fn list(&self, only: Option<&WorkspaceId>) -> Vec<GrantInfo> {
        let mut keys: Vec<GrantKey> = Vec::new();
        for ((workspace_id, name), app) in &self.apps {
            let is_asked = only.is_none_or(|only| only == workspace_id);
            if !is_asked || !app.is_there {
                continue;
            }
            let found = self.grants.iter().filter(|(key, entry)| {
                key.workspace_id == *workspace_id
                    && key.need.app == *name
                    && (entry.is_needed || entry.grant.is_some())
            });
            let before = keys.len();
            keys.extend(found.map(|(key, _)| key.clone()));
            // An application without required tokens is listed too.
            if keys.len() == before && !app.definition.per_user {
                keys.push(GrantKey {
                    workspace_id: workspace_id.clone(),
                    need: OAuthNeed {
                        app: name.clone(),
                        subject: goondan_protocol::ids::OAuthSubject::global(),
                    },
                });
            }
        }
        keys.iter().map(|key| self.info(key)).collect()
    }

    /// Returns the state of one grant; `None` if the application does not exist.
    #[must_use]
    pub fn show(&self, key: &GrantKey) -> Option<GrantInfo> {
        let app = self.app_of(key).filter(|app| app.is_there);
        app.map(|_| self.info(key))
    }

    pub(super) fn info(&self, key: &GrantKey) -> GrantInfo {
        let at = Timestamp::from_unix_millis;
        let entry = self.grants.get(key);
        let grant = entry.and_then(|entry| entry.grant.as_ref());
        let is_other = grant.is_some_and(|grant| !self.is_of_app(key, grant));
        let state = match (entry, grant) {
            (Some(entry), Some(_)) if !entry.phase.is_idle() => GrantState::Refreshing,
            (_, Some(grant)) if grant.needs_auth.is_some() || is_other => GrantState::NeedsAuth,
            (_, Some(_)) => GrantState::Active,
            (_, None) => GrantState::None,
        };
        let problem = match grant.and_then(|grant| grant.needs_auth.clone()) {
            _ if is_other => Some("the OAuthApp was changed after the login".to_owned()),
            Some(why) => Some(why),
            None => entry.and_then(|entry| entry.problem.clone()),
        };
        GrantInfo {
            workspace_id: key.workspace_id.clone(),
            app: key.need.app.clone(),
            subject: key.need.subject.clone(),
            state,
            scope: grant.and_then(|grant| grant.scope.clone()),
            wider_scope: grant.and_then(|grant| grant.wider.clone()),
            obtained_at: grant.map(|grant| at(grant.obtained_at_ms)),
            expires_at: grant.and_then(|grant| grant.expires_at_ms).map(at),
            refresh_at: grant.and_then(Grant::refresh_at_ms).map(at),
            renewable: grant.is_some_and(|grant| grant.refresh_token.is_some()) && !is_other,
            needed: entry.is_some_and(|entry| entry.is_needed),
            problem,
        }
    }
}
