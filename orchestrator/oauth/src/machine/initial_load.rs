//! Initial load of an application's documents.

use goondan_protocol::ids::{ResourceName, WorkspaceId};

use super::logins::Login;
use super::{OAuthEvent, OAuthMachine, TicketPurpose};
use crate::documents::{Documents, Lock, ParsedDocument};
use crate::key::{DocumentKey, GrantKey};

impl OAuthMachine {
    /// Handles the loaded documents of an application.
    pub fn on_read(&mut self, workspace_id: &WorkspaceId, app: &ResourceName, read: Documents) {
        let is_own = |key: &GrantKey| key.workspace_id == *workspace_id && key.need.app == *app;
        let mut locks: Vec<(GrantKey, Lock)> = Vec::new();
        for fields in &read.found {
            match ParsedDocument::read(fields) {
                Some(ParsedDocument::Grant(key, grant)) if is_own(&key) => {
                    let entry = self.entry(&key);
                    entry.issued = entry.issued.max(grant.generation);
                    entry.grant = Some(grant);
                }
                Some(ParsedDocument::Lock(key, lock)) if is_own(&key) => locks.push((key, lock)),
                Some(ParsedDocument::Session(key, session)) if is_own(&key) => {
                    if session.is_used || session.expires_at_ms <= self.now_ms {
                        self.remove(
                            DocumentKey::Session(key, session.id),
                            TicketPurpose::Nothing,
                        );
                    } else {
                        let login = Login::of_session(key, session, self.now_ms);
                        self.logins.insert(login.session.id.clone(), login);
                    }
                }
                Some(_) | None => {}
            }
        }
        let app_key = (workspace_id.clone(), app.clone());
        let unread = self.apps.get_mut(&app_key).map(|app| {
            app.is_read = true;
            std::mem::take(&mut app.unread)
        });
        for (key, lock) in locks {
            self.on_lock_found(&key, &lock);
        }
        for problem in read.problems {
            let need = goondan_protocol::oauth::OAuthNeed {
                app: app.clone(),
                subject: goondan_protocol::ids::OAuthSubject::global(),
            };
            let key = GrantKey {
                workspace_id: workspace_id.clone(),
                need,
            };
            self.entry(&key).problem = Some(problem.clone());
            self.happened(&key, OAuthEvent::Unreadable(problem));
        }
        self.hand_all(workspace_id);
        for call in unread.unwrap_or_default() {
            self.make(call);
        }
    }

    /// Handles a refresh that was in progress when the daemon ended. If its grant is unchanged, the
    /// outcome is unknown, and the request is sent once more.
    fn on_lock_found(&mut self, key: &GrantKey, lock: &Lock) {
        let grant = self.grants.get(key).and_then(|entry| entry.grant.as_ref());
        let is_unknown = grant.is_some_and(|grant| {
            grant.generation == lock.generation
                && grant.needs_auth.is_none()
                && grant.refresh_token.is_some()
                && self.is_of_app(key, grant)
        });
        if is_unknown {
            self.ask_for_next(key);
        } else {
            self.remove(DocumentKey::Lock(key.clone()), TicketPurpose::Nothing);
        }
    }
}
