//! Deletes expired conversations (`INST-7`), by policy or at a user's request.
//!
//! A conversation expires when the time since its last change exceeds its time to live plus the
//! grace period. The policy deletes it only if it was expired in two consecutive checks, so a
//! temporary clock jump between them deletes nothing.

use std::collections::BTreeSet;

use goondan_config::Lifecycle;
use goondan_protocol::control::{
    ControlError, ErrorCode, InstancePruneResult, Prunable, PruneInstances,
};
use goondan_protocol::ids::{AgentName, InstanceKey, InstanceRef, WorkspaceId};
use goondan_protocol::time::Timestamp;
use goondan_store::instance::Metadata;

use crate::fleet::Workspace;
use crate::fleet::conversation::DeleteReply;
use crate::instance_list::{InstanceListing, ListPurpose};
use crate::limits::RETENTION_INTERVAL_MS;
use crate::refusals::AgentRequestError;
use crate::{Core, CoreEffect, LogEvent, RequestToken};

/// Retention state of a workspace.
#[derive(Debug, Default)]
pub(super) struct Retention {
    next_look_ms: u64,
    /// Expired at the last check.
    due: BTreeSet<InstanceKey>,
}

/// Expiration time; `None` if the conversation is kept permanently.
fn due_at(metadata: &Metadata, keep_ms: Option<u64>) -> Option<Timestamp> {
    let keep_ms = i64::try_from(keep_ms?).ok()?;
    let due_ms = metadata.updated_at.as_unix_millis().checked_add(keep_ms)?;
    Some(Timestamp::from_unix_millis(due_ms))
}

/// Time that a conversation is kept after its last change, in milliseconds.
fn keep_ms(lifecycle: Lifecycle) -> Option<u64> {
    lifecycle.ttl_ms?.checked_add(lifecycle.gc_grace_ms)
}

impl Core {
    /// Periodically checks the conversations of workspaces with a retention policy.
    pub(crate) fn look_for_expired(&mut self) {
        let now_ms = self.fleet.now().mono_ms;
        let mut listed: Vec<WorkspaceId> = Vec::new();
        let workspaces = self.fleet.workspaces();
        let seen = &mut self.requests.retention;
        seen.retain(|id, _| workspaces.contains_key(id));
        for (id, workspace) in workspaces {
            if workspace.closing.is_some() || keep_ms(workspace.lifecycle()).is_none() {
                continue;
            }
            let seen = seen.entry(id.clone()).or_default();
            if seen.next_look_ms <= now_ms {
                seen.next_look_ms = now_ms.saturating_add(RETENTION_INTERVAL_MS);
                listed.push(id.clone());
            }
        }
        for workspace_id in listed {
            let purpose = ListPurpose::Policy;
            self.fleet.cx().emit(CoreEffect::ListMetadata {
                purpose,
                workspace_id,
            });
        }
    }

    /// Lists or deletes expired conversations at a user's request.
    pub(super) fn prune(&mut self, token: RequestToken, request: PruneInstances) {
        let workspace = match self.fleet.workspace(&request.workspace_id) {
            Ok(workspace) => workspace,
            Err(error) => return self.fleet.respond_error(token, error),
        };
        if request.older_than_ms.is_none() && keep_ms(workspace.lifecycle()).is_none() {
            let message = "no policy lets conversations of this workspace expire";
            let error = ControlError::new(ErrorCode::InvalidRequest, message).suggest(
                "pass an age with `--older-than`, or set `policy.lifecycle.ttlSeconds` of the Swarm",
            );
            return self.fleet.respond_error(token, error);
        }
        let workspace_id = request.workspace_id.clone();
        let purpose = ListPurpose::Prune { token, request };
        self.fleet.cx().emit(CoreEffect::ListMetadata {
            purpose,
            workspace_id,
        });
    }

    /// Expired conversations of a workspace, oldest first.
    fn due_of(
        &self,
        id: &WorkspaceId,
        found: Vec<Metadata>,
        keep_ms: Option<u64>,
    ) -> Vec<Prunable> {
        let Some(workspace) = self.fleet.workspaces().get(id) else {
            return Vec::new();
        };
        let now = self.fleet.now().wall;
        let mut due: Vec<Prunable> = found
            .into_iter()
            .filter(|metadata| !workspace.is_in_use(&metadata.instance_key))
            .filter(|metadata| {
                let at = InstanceRef {
                    workspace_id: id.clone(),
                    instance_key: metadata.instance_key.clone(),
                };
                // A conversation that waits for a scheduled input is in use.
                self.schedules.count(&at) == 0
            })
            .filter_map(|metadata| {
                let due_at = due_at(&metadata, keep_ms).filter(|due_at| *due_at <= now)?;
                Some(Prunable {
                    instance_key: metadata.instance_key,
                    agent_name: metadata.agent_name,
                    updated_at: metadata.updated_at,
                    due_at,
                })
            })
            .collect();
        due.sort_by_key(|prunable| prunable.updated_at);
        due
    }

    fn on_look(&mut self, id: &WorkspaceId, found: Vec<Metadata>) {
        let Some(workspace) = self.fleet.workspaces().get(id) else {
            return;
        };
        if self.fleet.is_stopping() || workspace.closing.is_some() {
            return;
        }
        let due = self.due_of(id, found, keep_ms(workspace.lifecycle()));
        let seen = due.iter().map(|prunable| prunable.instance_key.clone());
        let retention = self.requests.retention.entry(id.clone()).or_default();
        let before = std::mem::replace(&mut retention.due, seen.collect());
        for prunable in due {
            let at = InstanceRef {
                workspace_id: id.clone(),
                instance_key: prunable.instance_key,
            };
            if before.contains(&at.instance_key) {
                let event = LogEvent::info("deleting expired conversation").of(&at);
                self.fleet
                    .log(event.with("updatedAt", prunable.updated_at.to_string()));
                self.delete_instance(&at, Some(&prunable.agent_name), DeleteReply::Policy);
            } else {
                let event = LogEvent::info("conversation expired; it will be deleted soon");
                self.fleet.log(
                    event
                        .of(&at)
                        .with("agentName", prunable.agent_name.as_str())
                        .with("updatedAt", prunable.updated_at.to_string())
                        .with("inMs", RETENTION_INTERVAL_MS),
                );
            }
        }
    }

    pub(crate) fn on_listed(
        &mut self,
        id: &WorkspaceId,
        purpose: ListPurpose,
        result: Result<InstanceListing, ControlError>,
    ) {
        match (purpose, result) {
            (ListPurpose::Policy, Ok(listed)) => self.on_look(id, listed.found),
            (ListPurpose::Policy, Err(error)) => {
                let event = LogEvent::warn("failed to find expired conversations");
                let event = event.with("workspaceId", id.as_str());
                self.fleet.log(event.with("error", error.message));
            }
            (ListPurpose::Agents { requester, scope }, Ok(listed)) => {
                if let Some((workspace, cx)) = self.fleet.workspace_and_cx(id) {
                    workspace.on_instances_listed(cx, &requester, scope, listed.found);
                }
            }
            (ListPurpose::Agents { requester, .. }, Err(error)) => {
                let refused = AgentRequestError::new("E_UNAVAILABLE", error.message);
                self.fleet.answer_agent(&requester, refused.into());
            }
            (ListPurpose::Prune { token, request }, Ok(listed)) => {
                self.on_prune_listed(token, &request, listed.found);
            }
            (ListPurpose::Verify { token, request }, Ok(listed)) => {
                let found = listed.found.into_iter();
                let keys = found.map(|metadata| metadata.instance_key);
                let keys = keys.chain(listed.unreadable).collect();
                self.verify_all(token, &request, keys);
            }
            (ListPurpose::Events { token, request }, Ok(listed)) => {
                self.on_events_listed(token, request, listed.found);
            }
            (
                ListPurpose::Prune { token, .. }
                | ListPurpose::Events { token, .. }
                | ListPurpose::Verify { token, .. },
                Err(error),
            ) => {
                self.fleet.respond_error(token, error);
            }
        }
    }

    fn on_prune_listed(
        &mut self,
        token: RequestToken,
        request: &PruneInstances,
        found: Vec<Metadata>,
    ) {
        let id = &request.workspace_id;
        let policy = self.fleet.workspaces().get(id).map(Workspace::lifecycle);
        let keep = request.older_than_ms.or_else(|| keep_ms(policy?));
        let instances = self.due_of(id, found, keep);
        if request.dry_run || instances.is_empty() {
            let deleted = !request.dry_run;
            return self
                .fleet
                .respond(token, &InstancePruneResult { instances, deleted });
        }
        let due: Vec<(InstanceRef, AgentName)> = instances
            .iter()
            .map(|prunable| {
                let at = InstanceRef {
                    workspace_id: id.clone(),
                    instance_key: prunable.instance_key.clone(),
                };
                (at, prunable.agent_name.clone())
            })
            .collect();
        self.prune_all(token, due, instances);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(updated_ms: i64) -> Metadata {
        let at = Timestamp::from_unix_millis(updated_ms);
        serde_json::from_value(serde_json::json!({
            "status": "idle",
            "agentName": "clerk",
            "instanceKey": "ann",
            "createdAt": at,
            "updatedAt": at,
        }))
        .unwrap()
    }

    #[test]
    fn inst_7_conversation_expires_after_time_to_live_and_grace() {
        let lifecycle = Lifecycle {
            ttl_ms: Some(1_000),
            gc_grace_ms: 500,
            ..Lifecycle::default()
        };
        let due = due_at(&metadata(10), keep_ms(lifecycle));
        assert_eq!(due, Some(Timestamp::from_unix_millis(1_510)));
    }

    #[test]
    fn inst_7_without_time_to_live_a_conversation_is_kept() {
        assert_eq!(keep_ms(Lifecycle::default()), None);
        assert_eq!(due_at(&metadata(10), None), None);
        let never = Lifecycle {
            ttl_ms: Some(u64::MAX),
            ..Lifecycle::default()
        };
        assert_eq!(due_at(&metadata(10), keep_ms(never)), None);
    }
}
