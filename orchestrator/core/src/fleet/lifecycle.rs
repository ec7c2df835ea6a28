//! Lifecycle events of workspaces, conversations and processes. Each is emitted once and sent to
//! the log, the audit log and the watchers (`OBS-1`, `INST-6`).

use std::collections::HashSet;

use goondan_protocol::control::{FollowTurns, WatchCursor, WatchUpdate};
use goondan_protocol::ids::{InstanceRef, WorkspaceId};
use goondan_protocol::lifecycle::{LifecycleEvent as Event, Worker};
use goondan_protocol::trace::TraceContext;
use serde_json::Value;

use super::watchers::WatchNotification;
use super::{Fleet, ProcessOwner};
use crate::effect::Severity;
use crate::refusals::no_workspace;
use crate::{CoreEffect, LogEvent, RequestToken};

/// The audit log of an event, and the event's name there.
enum AuditTarget {
    Instance(&'static str),
    Workspace(&'static str),
}

const RESTORED: &str = "configuration valid again and unchanged";
const RESTARTED: &str = "process restart requested by its agent";

/// Log line of an event; `None` if the audit log's line is sufficient.
fn line_of(event: &Event) -> Option<(Severity, &'static str)> {
    use Severity::{Error, Info, Warn};
    Some(match event {
        Event::WorkspaceOpened { .. } => (Info, "workspace opened"),
        Event::WorkspaceStopped { error: None } => (Info, "workspace stopped"),
        Event::WorkspaceStopped { error: Some(_) } => {
            (Error, "workspace stopped, but its record was not written")
        }
        Event::ConfigurationChanged { .. } => (Info, "configuration changed"),
        Event::ConfigurationRestored { .. } => (Info, RESTORED),
        Event::ConfigurationFellBack { .. } => (Error, "running last known good configuration"),
        Event::ProcessStarted { .. } => (Info, "process started"),
        Event::ProcessEnded { .. } => (Info, "process ended"),
        Event::ProcessCrashed { .. } => (Warn, "process crashed"),
        Event::ProcessKilled { .. } => (Warn, "process killed"),
        Event::ProcessBroke { .. } => (Error, "process violated the protocol; killed"),
        Event::ReadinessChanged { worker, ready, .. } => match (worker, ready) {
            (Worker::Model { .. }, true) => (Info, "model ready"),
            (Worker::Model { .. }, false) => (Warn, "model not ready"),
            (_, true) => (Info, "connector ready"),
            (_, false) => (Warn, "connector not ready"),
        },
        Event::InstanceRestarted { .. } => (Info, RESTARTED),
        Event::EventAccepted { again: false, .. } => (Info, "event accepted"),
        Event::EventAccepted { again: true, .. } => (Info, "event accepted again"),
        Event::EventRefused { .. } => (Warn, "event refused"),
        Event::EventParked { .. } => (
            Error,
            "event parked because its turn keeps crashing the agent's process",
        ),
        Event::CallUnknown { .. } => (Warn, "tool call interrupted, outcome unknown"),
        Event::CallClosed { .. } => (Info, "interrupted tool call closed by look-back"),
        Event::CallSettled { .. } => (Info, "tool call resolved by a person"),
        Event::TurnStarted { attempt: 1, .. } => (Info, "turn started"),
        Event::TurnStarted { .. } => (Info, "turn started again"),
        Event::TurnCommitted { .. } => (Info, "turn committed and answered"),
        Event::QuestionAsked { .. } => (Info, "tool call waits for a person's answer"),
        Event::QuestionClosed { .. } => (Info, "question to a person closed"),
        Event::ApprovalAsked { .. } => (Info, "tool call waits for approval"),
        Event::ApprovalClosed { .. } => (Info, "tool call no longer waits for approval"),
        Event::BudgetWarning { .. } => (Warn, "budget nearly spent"),
        Event::BundleChanged { what, .. } if what == "reverted" => {
            (Warn, "configuration changes of an agent rolled back")
        }
        Event::BundleChanged { .. } => (Info, "configuration of a conversation changed"),
        Event::TaskChanged { .. } => (Info, "task status changed"),
        Event::ProposalCreated { .. }
        | Event::ProposalReviewed { .. }
        | Event::ProposalApplied { .. }
        | Event::ProposalRejected { .. }
        | Event::ProposalReverted { .. }
        | Event::ProposalCommented { .. }
        | Event::InstanceCreated { .. }
        | Event::InstanceImported { .. }
        | Event::InstanceDeleted { .. }
        | Event::InstanceCheckpointed { .. }
        | Event::InstanceRewound { .. }
        | Event::EventRetried { .. }
        | Event::EventDropped { .. }
        | Event::EventCancelled { .. }
        | Event::EventPaused { .. }
        | Event::EventResumed { .. }
        | Event::EventMoved { .. }
        | Event::ScheduleChanged { .. }
        | Event::TaskDecided { .. } => return None,
    })
}

/// Audit record of an event; `None` for events that need no accountability.
fn audited(event: &Event) -> Option<AuditTarget> {
    Some(match event {
        Event::WorkspaceStopped { error: None } => AuditTarget::Workspace("stopped"),
        Event::ProposalCreated { .. } => AuditTarget::Workspace("proposalCreated"),
        Event::ProposalReviewed { .. } => AuditTarget::Workspace("proposalReviewed"),
        Event::ProposalApplied { .. } => AuditTarget::Workspace("proposalApplied"),
        Event::ProposalRejected { .. } => AuditTarget::Workspace("proposalRejected"),
        Event::ProposalReverted { .. } => AuditTarget::Workspace("proposalReverted"),
        Event::ProposalCommented { .. } => AuditTarget::Workspace("proposalCommented"),
        Event::TaskDecided { .. } => AuditTarget::Workspace("taskDecided"),
        Event::InstanceCreated { .. } => AuditTarget::Instance("created"),
        Event::InstanceImported { .. } => AuditTarget::Instance("imported"),
        Event::InstanceRestarted { .. } => AuditTarget::Instance("restarted"),
        Event::InstanceDeleted { .. } => AuditTarget::Instance("deleted"),
        Event::InstanceCheckpointed { .. } => AuditTarget::Instance("checkpointed"),
        Event::InstanceRewound { .. } => AuditTarget::Instance("rewound"),
        Event::EventParked { .. } => AuditTarget::Instance("eventParked"),
        Event::EventRetried { .. } => AuditTarget::Instance("eventRetried"),
        Event::EventDropped { .. } => AuditTarget::Instance("eventDropped"),
        Event::EventCancelled { .. } => AuditTarget::Instance("eventCancelled"),
        Event::EventPaused { .. } => AuditTarget::Instance("eventPaused"),
        Event::EventResumed { .. } => AuditTarget::Instance("eventResumed"),
        Event::EventMoved { .. } => AuditTarget::Instance("eventMoved"),
        Event::CallClosed { .. } => AuditTarget::Instance("callClosed"),
        Event::BundleChanged { .. } => AuditTarget::Instance("bundleChanged"),
        _ => return None,
    })
}

impl ProcessOwner {
    /// The process's identity within its workspace.
    pub(super) fn worker(&self) -> Worker {
        match self {
            Self::Agent(at) => Worker::Agent {
                instance_key: at.instance_key.clone(),
            },
            Self::Connector(_, connection) => Worker::Connector {
                connection: connection.clone(),
            },
            Self::Model(_, model) => Worker::Model {
                model: model.clone(),
            },
            Self::Task(_, task) => Worker::Task {
                task_id: task.clone(),
            },
        }
    }
}

impl Fleet {
    /// Sends an event of a workspace to the log, the audit log and the watchers. The log line is
    /// part of `trace`.
    pub(crate) fn announce(&mut self, id: &WorkspaceId, event: Event, trace: Option<TraceContext>) {
        let at = event.instance_key().map(|key| InstanceRef {
            workspace_id: id.clone(),
            instance_key: key.clone(),
        });
        let mut fields = event.fields();
        if let Some((severity, message)) = line_of(&event) {
            let line = LogEvent::new(severity, message).all(fields.clone());
            let line = match &at {
                Some(at) => line.of(at),
                None => line.with("workspaceId", id.as_str()),
            };
            self.log(line.in_trace(trace));
        }
        match (audited(&event), &at) {
            (Some(AuditTarget::Instance(what)), Some(at)) => {
                fields.remove("instanceKey");
                self.audit(at, what, Value::Object(fields));
            }
            (Some(AuditTarget::Workspace(what)), _) => {
                self.audit_workspace(id, what, Value::Object(fields));
            }
            (Some(AuditTarget::Instance(_)) | None, _) => {}
        }
        let wall = self.cx.now().wall;
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return;
        };
        let of_all = (!self.all_watchers.is_empty()).then(|| event.clone());
        let tell = |token: &RequestToken, told: &WatchNotification| CoreEffect::Tell {
            token: *token,
            workspace_id: id.clone(),
            told: Box::new(told.clone()),
        };
        let mut effects = Vec::new();
        if let Some((tokens, told)) = workspace.watchers.happened(wall, event) {
            effects.extend(tokens.iter().map(|token| tell(token, &told)));
        }
        if let Some(event) = of_all {
            let told = WatchNotification {
                cursor: workspace.watchers.cursor(),
                at: wall,
                update: WatchUpdate::Event(event),
            };
            effects.extend(self.all_watchers.iter().map(|token| tell(token, &told)));
        }
        for effect in effects {
            self.cx.emit(effect);
        }
    }

    /// Adds a watcher of all workspaces, including later ones.
    pub(crate) fn watch_all(&mut self, token: RequestToken) {
        self.all_watchers.push(token);
    }

    /// Adds a watcher and sends it the events after a cursor. False if they are no longer
    /// available; the watcher then needs a [snapshot](Self::tell_snapshot).
    pub(crate) fn watch(
        &mut self,
        id: &WorkspaceId,
        token: RequestToken,
        after: Option<WatchCursor>,
    ) -> bool {
        let Some(workspace) = self.workspaces.get_mut(id) else {
            return false;
        };
        let missed = after.and_then(|cursor| workspace.watchers.since(cursor));
        workspace.watchers.add(token);
        let is_known = missed.is_some();
        for told in missed.into_iter().flatten() {
            self.cx.emit(CoreEffect::Tell {
                token,
                workspace_id: id.clone(),
                told: Box::new(told),
            });
        }
        is_known
    }

    /// Adds a follower of a conversation's turns. The response is sent when the workspace is
    /// stopped.
    pub(crate) fn follow_turns(&mut self, token: RequestToken, follow: FollowTurns) {
        match self.workspaces.get_mut(&follow.workspace_id) {
            Some(workspace) => workspace.watchers.follow(follow.instance_key, token),
            None => {
                let error = no_workspace(&follow.workspace_id);
                self.respond_error(token, error);
            }
        }
    }

    /// Sends a watcher the current state.
    pub(crate) fn tell_snapshot(
        &mut self,
        id: &WorkspaceId,
        token: RequestToken,
        update: WatchUpdate,
    ) {
        if let Some(workspace) = self.workspaces.get(id) {
            let told = Box::new(WatchNotification {
                cursor: workspace.watchers.cursor(),
                at: self.cx.now().wall,
                update,
            });
            self.cx.emit(CoreEffect::Tell {
                token,
                workspace_id: id.clone(),
                told,
            });
        }
    }

    /// Removes disconnected watchers.
    pub(crate) fn forget_watchers(&mut self, gone: &HashSet<RequestToken>) {
        self.all_watchers.retain(|token| !gone.contains(token));
        for workspace in self.workspaces.values_mut() {
            workspace.watchers.forget(gone);
        }
    }
}
