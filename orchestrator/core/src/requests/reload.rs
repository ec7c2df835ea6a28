//! Reloads configurations on a client's request, a signal, or a change of a watched file (`SUP-8`).

use std::collections::BTreeSet;

use goondan_protocol::control::{
    FileWatchMode, PermissionDecided, Reload, ReloadResult, SecretChanged, SecretConsentChanged,
    WorkspaceProblem, WorkspaceReload,
};
use goondan_protocol::ids::WorkspaceId;

use crate::fleet::changes::AppliedConfiguration;
use crate::refusals::stopping_error;
use crate::{Core, CoreEffect, LoadPurpose, LogEvent, RequestToken};

/// A client's request that waits for workspaces to be reloaded.
#[derive(Debug, Default)]
pub(super) struct PendingReload {
    waiting: BTreeSet<WorkspaceId>,
    done: Vec<WorkspaceReload>,
    reason: Reason,
}

/// Cause of a client's reload, which determines the response.
#[derive(Debug, Default)]
pub(super) enum Reason {
    #[default]
    Asked,
    Secret(SecretChanged),
    /// A changed consent to use a secret.
    Consent(SecretConsentChanged),
    Permission(PermissionDecided),
}

impl Core {
    /// Reloads the configuration of every workspace.
    pub(crate) fn reload_all(&mut self) {
        let ids: Vec<WorkspaceId> = self.fleet.workspaces().keys().cloned().collect();
        for id in ids {
            self.read_again(&id, LoadPurpose::Reload(None));
        }
    }

    pub(crate) fn on_files_changed(&mut self, id: &WorkspaceId) {
        if let Some(workspace) = self.fleet.workspaces().get(id)
            && workspace.closing.is_none()
        {
            let event = LogEvent::info("project files changed; reloading");
            self.fleet.log(event.with("workspaceId", id.as_str()));
            self.read_again(id, LoadPurpose::Watch);
        }
    }

    pub(crate) fn on_watching(&mut self, id: &WorkspaceId, how: FileWatchMode) {
        if let Some(workspace) = self.fleet.workspace_mut(id)
            && workspace.record.watch
        {
            workspace.watching = how;
        }
    }

    pub(super) fn read_again(&mut self, id: &WorkspaceId, purpose: LoadPurpose) {
        let Some(workspace) = self.fleet.workspaces().get(id) else {
            return;
        };
        let project_root = workspace.record.project_root.clone();
        let workspace_id = Some(id.clone());
        self.fleet.cx().emit(CoreEffect::LoadWorkspace {
            purpose,
            workspace_id,
            project_root,
        });
    }

    /// Starts or stops watching the files of a workspace's configuration.
    pub(super) fn watch(
        &mut self,
        id: &WorkspaceId,
        sources: std::sync::Arc<goondan_config::Sources>,
    ) {
        let Some(workspace) = self.fleet.workspace_mut(id) else {
            return;
        };
        let workspace_id = id.clone();
        if workspace.record.watch && workspace.closing.is_none() {
            let sources = Some(sources);
            self.fleet.cx().emit(CoreEffect::Watch {
                workspace_id,
                sources,
            });
        } else if workspace.watching != FileWatchMode::Off {
            workspace.watching = FileWatchMode::Off;
            let sources = None;
            self.fleet.cx().emit(CoreEffect::Watch {
                workspace_id,
                sources,
            });
        }
    }

    /// Reloads configurations for a client.
    pub(super) fn reload(&mut self, token: RequestToken, reload: Reload) {
        match self.workspace_ids(reload.workspace_id) {
            Ok(ids) => self.reload_and_answer(token, ids, Reason::Asked),
            Err(error) => self.fleet.respond_error(token, error),
        }
    }

    /// Reloads these configurations and responds with all results.
    pub(super) fn reload_and_answer(
        &mut self,
        token: RequestToken,
        ids: Vec<WorkspaceId>,
        reason: Reason,
    ) {
        let reloading = PendingReload {
            waiting: ids.iter().cloned().collect(),
            done: Vec::new(),
            reason,
        };
        self.requests.reloads.insert(token, reloading);
        for id in ids {
            self.read_again(&id, LoadPurpose::Reload(Some(token)));
        }
        self.answer_reload(token);
    }

    /// Records the result of one workspace for a client's reload, and responds after the last one.
    pub(super) fn on_reloaded(
        &mut self,
        token: RequestToken,
        id: &WorkspaceId,
        result: Result<AppliedConfiguration, WorkspaceProblem>,
    ) {
        let running = self.fleet.workspaces().get(id);
        let digest = running.and_then(|it| Some(it.bundle.as_ref()?.digest.clone()));
        let since = running.and_then(|workspace| workspace.since);
        let last_known_good = running.is_some_and(|workspace| workspace.is_last_known_good);
        let Some(reloading) = self.requests.reloads.get_mut(&token) else {
            return;
        };
        if reloading.waiting.remove(id) {
            let (applied, problem) = match result {
                Ok(applied) => (applied, None),
                Err(problem) => (AppliedConfiguration::default(), Some(problem)),
            };
            reloading.done.push(WorkspaceReload {
                workspace_id: id.clone(),
                changes: applied.changes,
                processes: applied.processes,
                problem,
                config_digest: digest,
                config_since: since,
                last_known_good,
            });
        }
        self.answer_reload(token);
    }

    fn answer_reload(&mut self, token: RequestToken) {
        if self
            .requests
            .reloads
            .get(&token)
            .is_some_and(|r| r.waiting.is_empty())
            && let Some(mut reloading) = self.requests.reloads.remove(&token)
        {
            let workspaces = &mut reloading.done;
            workspaces.sort_by(|a, b| a.workspace_id.cmp(&b.workspace_id));
            let workspaces = std::mem::take(workspaces);
            match reloading.reason {
                Reason::Asked => self.fleet.respond(token, &ReloadResult { workspaces }),
                Reason::Consent(changed) => {
                    let changed = SecretConsentChanged {
                        workspaces,
                        ..changed
                    };
                    self.fleet.respond(token, &changed);
                }
                Reason::Permission(decided) => {
                    let decided = PermissionDecided {
                        workspaces,
                        ..decided
                    };
                    self.fleet.respond(token, &decided);
                }
                Reason::Secret(changed) => {
                    let changed = SecretChanged {
                        workspaces,
                        ..changed
                    };
                    self.fleet.respond(token, &changed);
                }
            }
        }
    }

    /// Ends a reload because the daemon is stopping.
    pub(super) fn give_up_reload(&mut self, token: RequestToken) {
        match self
            .requests
            .reloads
            .remove(&token)
            .map(|reloading| reloading.reason)
        {
            None => {}
            Some(Reason::Asked) => self.fleet.respond_error(token, stopping_error()),
            // The change was stored anyway and applies at the next start.
            Some(Reason::Secret(changed)) => self.fleet.respond(token, &changed),
            Some(Reason::Consent(changed)) => self.fleet.respond(token, &changed),
            Some(Reason::Permission(decided)) => self.fleet.respond(token, &decided),
        }
    }
}
