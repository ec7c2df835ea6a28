//! Deleting instances: one that a client names (`INST-5`), or those that a fresh restart begins anew.

use std::collections::btree_map::Entry;

use goondan_protocol::control::{ControlError, Deleted, ErrorCode, Restarted};
use goondan_protocol::ids::{AgentName, InstanceKey, InstanceRef};
use goondan_store::StoreError;
use goondan_store::writer::{Op, Report};
use serde_json::json;

use super::agents::Inbox;
use super::jobs::Purpose;
use super::mailbox::deleted_error;
use super::{Core, RequestToken, control_error};

/// Who is told that an instance is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeleteReply {
    /// A client that asked for just that.
    Client(RequestToken),
    /// A restart that begins conversations anew.
    FreshRestart(RequestToken),
}

/// A fresh restart whose deletions are not all done.
#[derive(Debug)]
pub(super) struct FreshRestart {
    processes: usize,
    outstanding: usize,
    removed: Vec<InstanceKey>,
    failure: Option<ControlError>,
}

impl Core {
    /// Stops an instance's process and removes the instance. `agent` is the owner as far as known.
    pub(super) fn delete_instance(
        &mut self,
        at: &InstanceRef,
        agent: Option<&AgentName>,
        reply: DeleteReply,
    ) {
        self.cancel_waiters(at, &deleted_error(&at.instance_key));
        // The entry keeps others away until the instance is gone.
        let Some(entry) = self.instance_entry(at, agent) else {
            return;
        };
        if let Some(replies) = &mut entry.deleting {
            return replies.push(reply);
        }
        entry.deleting = Some(vec![reply]);
        entry.waiting.clear();
        match entry.slot.up().map(|up| up.process) {
            Some(process) => self.kill(process, true),
            None => self.remove_from_store(at),
        }
    }

    /// Removes an instance that has no process.
    pub(super) fn remove_from_store(&mut self, at: &InstanceRef) {
        let instance = at.clone();
        self.store(Op::Delete(at.clone()), Purpose::Delete { instance });
    }

    pub(super) fn on_deleted(&mut self, at: &InstanceRef, result: Result<Report, StoreError>) {
        let outcome = match result {
            Ok(Report::Deleted { existed }) => Ok(Deleted { existed }),
            Ok(other) => {
                self.log_confusion(at, &other);
                let message = "the instance was not deleted";
                Err(ControlError::new(ErrorCode::Internal, message))
            }
            Err(error) => Err(control_error(&error)),
        };
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        let replies = entry.deleting.take().unwrap_or_default();
        match &outcome {
            Ok(deleted) => {
                if let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) {
                    workspace.instances.remove(&at.instance_key);
                }
                if deleted.existed {
                    self.audit(at, "deleted", json!({}));
                }
            }
            Err(_) => {
                // What is still there is found out, and goes on.
                entry.inbox = Inbox::Unread;
                self.pump(at);
            }
        }
        for reply in replies {
            match (reply, &outcome) {
                (DeleteReply::Client(token), Ok(deleted)) => self.respond(token, deleted),
                (DeleteReply::Client(token), Err(error)) => {
                    self.respond_error(token, error.clone());
                }
                (DeleteReply::FreshRestart(token), outcome) => {
                    self.on_deleted_for_restart(token, &at.instance_key, outcome);
                }
            }
        }
    }

    /// Deletes instances, each with its owner, and answers the restart when all are gone.
    /// `processes` is how many are being ended.
    pub(super) fn begin_anew(
        &mut self,
        token: RequestToken,
        instances: Vec<(InstanceRef, AgentName)>,
        processes: usize,
    ) {
        let restart = FreshRestart {
            processes,
            outstanding: instances.len(),
            removed: Vec::new(),
            failure: None,
        };
        self.fresh_restarts.insert(token, restart);
        for (at, agent) in instances {
            self.delete_instance(&at, Some(&agent), DeleteReply::FreshRestart(token));
        }
        self.finish_fresh_restart(token);
    }

    fn on_deleted_for_restart(
        &mut self,
        token: RequestToken,
        key: &InstanceKey,
        outcome: &Result<Deleted, ControlError>,
    ) {
        if let Some(restart) = self.fresh_restarts.get_mut(&token) {
            restart.outstanding = restart.outstanding.saturating_sub(1);
            match outcome {
                Ok(deleted) => restart.removed.extend(deleted.existed.then(|| key.clone())),
                Err(error) => restart.failure = Some(error.clone()),
            }
        }
        self.finish_fresh_restart(token);
    }

    /// Answers a fresh restart once everything it deletes is gone.
    fn finish_fresh_restart(&mut self, token: RequestToken) {
        let Entry::Occupied(entry) = self.fresh_restarts.entry(token) else {
            return;
        };
        if entry.get().outstanding > 0 {
            return;
        }
        let mut restart = entry.remove();
        match restart.failure {
            Some(error) => self.respond_error(token, error),
            None => {
                restart.removed.sort();
                let (processes, removed) = (restart.processes, restart.removed);
                self.respond(token, &Restarted { processes, removed });
            }
        }
    }
}
