//! Deletes instances: one named by a client (`INST-5`), those of a fresh restart, and unused ones.

use std::collections::btree_map::Entry;

use goondan_protocol::control::{
    ControlError, InstanceDeleteResult, InstancePruneResult, Prunable, RestartResult,
};
use goondan_protocol::ids::{AgentName, InstanceKey, InstanceRef};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_store::StoreError;
use goondan_store::writer::operation::{Delete, RemoveResult};

use crate::fleet::conversation::DeleteReply;
use crate::jobs::continuation;
use crate::{Core, LogEvent, RequestToken, control_error};

#[derive(Debug)]
pub(super) struct PendingDeletions {
    outstanding: usize,
    removed: Vec<InstanceKey>,
    failure: Option<ControlError>,
    then: DeletionReply,
}

/// Response to send after a sweep.
#[derive(Debug)]
enum DeletionReply {
    FreshRestart { processes: usize },
    Prune { instances: Vec<Prunable> },
}

continuation! {
    Deleting {} after Delete => &core.on_deleted
}

impl Core {
    /// Stops an instance's process and removes the instance. `agent` is the owner, if known.
    pub(crate) fn delete_instance(
        &mut self,
        at: &InstanceRef,
        agent: Option<&AgentName>,
        reply: DeleteReply,
    ) {
        let workspace = self.fleet.workspace_and_cx(&at.workspace_id);
        if workspace.is_some_and(|(it, cx)| it.begin_deletion(cx, at, agent, reply)) {
            self.remove_from_store(at);
        }
    }

    /// Removes an instance that has no process.
    pub(crate) fn remove_from_store(&mut self, at: &InstanceRef) {
        let instance = at.clone();
        let delete = Delete {
            instance: at.clone(),
        };
        self.fleet.cx().store(delete, Deleting { instance });
    }

    fn on_deleted(&mut self, deleting: &Deleting, result: Result<RemoveResult, StoreError>) {
        let at = &deleting.instance;
        let outcome = match result {
            Ok(RemoveResult { existed }) => Ok(InstanceDeleteResult { existed }),
            Err(error) => Err(control_error(&error)),
        };
        let workspace = self.fleet.workspace_and_cx(&at.workspace_id);
        let replies = workspace.and_then(|(it, cx)| it.end_deletion(cx, at, outcome.is_ok()));
        let Some(replies) = replies else {
            return;
        };
        if outcome.is_ok() {
            self.schedules.forget(&mut self.fleet, at);
        }
        if let Ok(InstanceDeleteResult { existed: true }) = outcome {
            let deleted = LifecycleEvent::InstanceDeleted {
                instance_key: at.instance_key.clone(),
            };
            self.fleet.announce(&at.workspace_id, deleted, None);
            if let Some(workspace) = self.fleet.workspace_mut(&at.workspace_id) {
                workspace.forget_unknown_calls(&at.instance_key);
            }
        }
        for reply in replies {
            match (reply, &outcome) {
                (DeleteReply::Client(token), Ok(deleted)) => self.fleet.respond(token, deleted),
                (DeleteReply::Client(token), Err(error)) => {
                    self.fleet.respond_error(token, error.clone());
                }
                (DeleteReply::Sweep(token), outcome) => {
                    self.on_swept(token, &at.instance_key, outcome);
                }
                (DeleteReply::Policy, Ok(_)) => {}
                (DeleteReply::Policy, Err(error)) => {
                    let event = LogEvent::warn("failed to delete expired conversation");
                    self.fleet
                        .log(event.of(at).with("error", error.message.clone()));
                }
            }
        }
    }

    /// Deletes instances, and responds to the restart when all are gone. `processes` is the number
    /// of processes being stopped.
    pub(super) fn begin_anew(
        &mut self,
        token: RequestToken,
        instances: Vec<(InstanceRef, AgentName)>,
        processes: usize,
    ) {
        self.sweep(token, instances, DeletionReply::FreshRestart { processes });
    }

    /// Deletes the due instances, and responds when all are gone.
    pub(super) fn prune_all(
        &mut self,
        token: RequestToken,
        due: Vec<(InstanceRef, AgentName)>,
        instances: Vec<Prunable>,
    ) {
        self.sweep(token, due, DeletionReply::Prune { instances });
    }

    fn sweep(
        &mut self,
        token: RequestToken,
        instances: Vec<(InstanceRef, AgentName)>,
        then: DeletionReply,
    ) {
        let sweep = PendingDeletions {
            outstanding: instances.len(),
            removed: Vec::new(),
            failure: None,
            then,
        };
        self.requests.sweeps.insert(token, sweep);
        for (at, agent) in instances {
            self.delete_instance(&at, Some(&agent), DeleteReply::Sweep(token));
        }
        self.finish_sweep(token);
    }

    fn on_swept(
        &mut self,
        token: RequestToken,
        key: &InstanceKey,
        outcome: &Result<InstanceDeleteResult, ControlError>,
    ) {
        if let Some(sweep) = self.requests.sweeps.get_mut(&token) {
            sweep.outstanding = sweep.outstanding.saturating_sub(1);
            match outcome {
                Ok(deleted) => sweep.removed.extend(deleted.existed.then(|| key.clone())),
                Err(error) => sweep.failure = Some(error.clone()),
            }
        }
        self.finish_sweep(token);
    }

    /// Responds to a sweep once all its deletions have finished.
    fn finish_sweep(&mut self, token: RequestToken) {
        let Entry::Occupied(entry) = self.requests.sweeps.entry(token) else {
            return;
        };
        if entry.get().outstanding > 0 {
            return;
        }
        let mut sweep = entry.remove();
        if let Some(error) = sweep.failure {
            return self.fleet.respond_error(token, error);
        }
        match sweep.then {
            DeletionReply::FreshRestart { processes } => {
                sweep.removed.sort();
                let removed = sweep.removed;
                self.fleet
                    .respond(token, &RestartResult { processes, removed });
            }
            DeletionReply::Prune { mut instances } => {
                instances.retain(|prunable| sweep.removed.contains(&prunable.instance_key));
                let deleted = true;
                self.fleet
                    .respond(token, &InstancePruneResult { instances, deleted });
            }
        }
    }
}
