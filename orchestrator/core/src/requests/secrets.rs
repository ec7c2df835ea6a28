//! Secret changes: authorization, and the workspaces they affect.

use std::collections::BTreeSet;

use goondan_protocol::control::{
    ControlError, PermissionDecided, SecretChanged, SecretConsentChanged,
};
use goondan_protocol::ids::{SecretName, WorkspaceId};

use super::reload::Reason;
use crate::exchange::{SecretWork, SecretsResult};
use crate::{Core, CoreEffect, LogEvent, RequestToken};

/// Reason sent to processes that are stopped because their workspace lost access to a secret.
const SECRET_DENIED: &str = "workspace may no longer use a secret";

impl Core {
    pub(super) fn use_secrets(&mut self, token: RequestToken, work: SecretWork) {
        let at = self.fleet.now().wall;
        self.fleet
            .cx()
            .emit(CoreEffect::Secrets { token, at, work });
    }

    fn note_allowed(&mut self, id: &WorkspaceId, secret: &SecretName) {
        if let Some(workspace) = self.fleet.workspace_mut(id) {
            workspace.denied.remove(secret.as_str());
        }
    }

    /// Records the secrets named by a workspace's configuration. If that configuration cannot run,
    /// they are added to those of the fallback that runs instead.
    pub(super) fn note_secrets(&mut self, id: &WorkspaceId, names: &BTreeSet<String>) {
        let Some(workspace) = self.fleet.workspace_mut(id) else {
            return;
        };
        if workspace.problem.is_none() {
            workspace.secrets.clear();
        }
        workspace.secrets.extend(names.iter().cloned());
    }

    pub(crate) fn on_secrets(
        &mut self,
        token: RequestToken,
        result: Result<SecretsResult, ControlError>,
    ) {
        match result {
            Ok(SecretsResult::Listed(list)) => self.fleet.respond(token, &list),
            Ok(SecretsResult::Changed(changed)) => self.on_secret_changed(token, changed),
            Ok(SecretsResult::Allowed(changed)) => self.on_secret_allowed(token, changed),
            Ok(SecretsResult::Denied(changed)) => self.on_secret_denied(token, changed),
            Ok(SecretsResult::Permissions(list)) => self.fleet.respond(token, &list),
            Ok(SecretsResult::Decided(decided)) => self.on_permission_decided(token, decided),
            Ok(SecretsResult::Rotated(rotated)) => self.fleet.respond(token, &rotated),
            Ok(SecretsResult::Verified(found)) => self.on_documents_verified(token, *found),
            Err(error) => self.fleet.respond_error(token, error),
        }
    }

    /// Reloads and starts the workspaces that wait for the secret.
    fn on_secret_allowed(&mut self, token: RequestToken, changed: SecretConsentChanged) {
        for consent in &changed.changed {
            self.note_allowed(&consent.workspace_id, &consent.secret);
        }
        self.reload_for_consent(token, changed, "workspace allowed to use a secret");
    }

    /// Immediately stops the processes that use the secret, independent of the current files.
    fn on_secret_denied(&mut self, token: RequestToken, changed: SecretConsentChanged) {
        for consent in &changed.changed {
            let workspace = self.fleet.workspace_and_cx(&consent.workspace_id);
            let Some((workspace, cx)) = workspace else {
                continue;
            };
            workspace.denied.insert(consent.secret.as_str().to_owned());
            if workspace.secrets.contains(consent.secret.as_str()) {
                workspace.withdraw(cx, SECRET_DENIED);
            }
        }
        self.reload_for_consent(token, changed, "workspace denied a secret");
    }

    fn reload_for_consent(
        &mut self,
        token: RequestToken,
        changed: SecretConsentChanged,
        told: &'static str,
    ) {
        let mut ids = BTreeSet::new();
        for consent in &changed.changed {
            let event = LogEvent::info(told).with("secret", consent.secret.as_str());
            self.fleet
                .log(event.with("workspaceId", consent.workspace_id.as_str()));
            let workspace = self.fleet.workspaces().get(&consent.workspace_id);
            if workspace.is_some_and(|workspace| workspace.closing.is_none()) {
                ids.insert(consent.workspace_id.clone());
            }
        }
        if self.fleet.is_stopping() {
            ids.clear();
        }
        let ids = ids.into_iter().collect();
        self.reload_and_answer(token, ids, Reason::Consent(changed));
    }

    /// Reloads the workspace, whose processes get or lose the permission after their turns.
    fn on_permission_decided(&mut self, token: RequestToken, decided: PermissionDecided) {
        let decision = &decided.decision;
        let id = decision.workspace_id.clone();
        let event = LogEvent::info("permission of a workspace decided")
            .with("permission", decision.permission.as_str())
            .with("allowed", decision.allowed)
            .with("workspaceId", id.as_str());
        self.fleet.log(event);
        let workspace = self.fleet.workspaces().get(&id);
        let runs = workspace.is_some_and(|workspace| workspace.closing.is_none());
        let ids = if runs && !self.fleet.is_stopping() {
            vec![id]
        } else {
            Vec::new()
        };
        self.reload_and_answer(token, ids, Reason::Permission(decided));
    }

    /// Reloads every project that names the secret, running or waiting for it, as if its files had
    /// changed (`SUP-8`).
    fn on_secret_changed(&mut self, token: RequestToken, changed: SecretChanged) {
        let event = LogEvent::info("secret changed").with("secret", changed.name.as_str());
        let event = event.with("change", changed.change.as_str());
        self.fleet.log(match &changed.key {
            Some(key) => event.with("key", key.as_str()),
            None => event,
        });
        let concerned = self.fleet.workspaces().iter().filter(|(_, workspace)| {
            workspace.closing.is_none() && workspace.secrets.contains(changed.name.as_str())
        });
        let mut ids: Vec<WorkspaceId> = concerned.map(|(id, _)| id.clone()).collect();
        if self.fleet.is_stopping() {
            ids.clear();
        }
        if let Some(allowed) = &changed.allowed {
            self.note_allowed(&allowed.workspace_id, &allowed.secret);
        }
        self.reload_and_answer(token, ids, Reason::Secret(changed));
    }
}
