//! Secrets, as far as the core has a say: who asks for a change, and whose configuration it concerns.

use std::collections::BTreeSet;

use goondan_protocol::control::{ControlError, RemoveSecret, SecretChanged, SecretList, SetSecret};
use goondan_protocol::ids::WorkspaceId;

use super::{Core, Effect, LogEvent, RequestToken};

/// What is to be done with the secret store.
#[derive(Debug)]
pub(crate) enum SecretWork {
    /// Tell what there is.
    List,
    /// Keep a value.
    Set(SetSecret),
    /// Forget a secret, or an entry of it.
    Remove(RemoveSecret),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum SecretsDone {
    /// What there is.
    Listed(SecretList),
    /// What changed, durably.
    Changed(SecretChanged),
}

impl Core {
    pub(super) fn use_secrets(&mut self, token: RequestToken, work: SecretWork) {
        let at = self.now.wall;
        self.push(Effect::Secrets { token, at, work });
    }

    pub(super) fn on_secrets(
        &mut self,
        token: RequestToken,
        result: Result<SecretsDone, ControlError>,
    ) {
        match result {
            Ok(SecretsDone::Listed(list)) => self.respond(token, &list),
            Ok(SecretsDone::Changed(changed)) => self.on_secret_changed(token, changed),
            Err(error) => self.respond_error(token, error),
        }
    }

    /// As if the files had changed of every project that names the secret, whether it runs or waits for
    /// that very secret (`SUP-8`).
    fn on_secret_changed(&mut self, token: RequestToken, changed: SecretChanged) {
        let event = LogEvent::info("a secret was changed").with("secret", changed.name.as_str());
        let event = event.with("change", changed.change.as_str());
        self.log(match &changed.key {
            Some(key) => event.with("key", key.as_str()),
            None => event,
        });
        let concerned = self.workspaces.iter().filter(|(_, workspace)| {
            workspace.closing.is_none() && workspace.secrets.contains(changed.name.as_str())
        });
        let mut ids: Vec<WorkspaceId> = concerned.map(|(id, _)| id.clone()).collect();
        if self.is_stopping() {
            ids.clear();
        }
        self.reload_and_answer(token, ids, Some(changed));
    }

    /// Notes which secrets a workspace's configuration names. One that cannot run adds to those that
    /// what runs in its place names.
    pub(super) fn note_secrets(&mut self, id: &WorkspaceId, names: &BTreeSet<String>) {
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return;
        };
        if workspace.problem.is_none() {
            workspace.secrets.clear();
        }
        workspace.secrets.extend(names.iter().cloned());
    }
}
