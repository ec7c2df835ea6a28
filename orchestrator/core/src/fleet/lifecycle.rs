//! Lifecycle events of workspaces, conversations and processes. Each is emitted once and sent to
//! the log, the audit log and the watchers (`OBS-1`, `INST-6`).

use goondan_protocol::JsonObject;
use goondan_protocol::control::{FollowTurns, WatchCursor, WatchUpdate};
use goondan_protocol::ids::{AgentName, InstanceRef, WorkspaceId};
use goondan_protocol::lifecycle::{LifecycleEvent as Event, Worker};
use goondan_protocol::trace::TraceContext;
use goondan_store::writer::operation::Audit;
use serde_json::{Value, json};

use super::ProcessOwner;
use super::watchers::WatchNotification;
use crate::bus::context::Cx;
use crate::effect::Severity;
use crate::jobs::LogAuditFailure;
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
    use Severity::{Debug, Error, Info, Warn};
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
        // The end of the turn is logged, and `gdn ps` and `gdn top` show what is running.
        Event::TurnStarted { attempt: 1, .. } => (Debug, "turn started"),
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

impl Cx {
    /// Sends an event of a workspace to the log, the audit log and the watchers. The log line is
    /// part of `trace`. `agent` is the agent of the event's conversation, if it has one.
    pub(crate) fn announce(
        &mut self,
        id: &WorkspaceId,
        event: Event,
        agent: Option<&AgentName>,
        trace: Option<TraceContext>,
    ) {
        self.announce_with(id, event, agent, trace, JsonObject::new());
    }

    /// As [`Self::announce`], with fields that only the log line has.
    pub(crate) fn announce_with(
        &mut self,
        id: &WorkspaceId,
        event: Event,
        agent: Option<&AgentName>,
        trace: Option<TraceContext>,
        logged: JsonObject,
    ) {
        let at = event.instance_key().map(|key| InstanceRef {
            workspace_id: id.clone(),
            instance_key: key.clone(),
        });
        let mut fields = event.fields();
        if let Some((severity, message)) = line_of(&event) {
            let line = LogEvent::new(severity, message).all(fields.clone());
            let line = line.all(logged);
            let line = match &at {
                Some(at) => line.about(at, agent),
                None => line.with("workspaceId", id.as_str()),
            };
            self.log(line.in_trace(trace));
        }
        match (audited(&event), &at) {
            (Some(AuditTarget::Instance(what)), Some(at)) => {
                fields.remove("instanceKey");
                self.audit(at, agent, what, Value::Object(fields));
            }
            (Some(AuditTarget::Workspace(what)), _) => {
                self.audit_workspace(id, what, Value::Object(fields));
            }
            (Some(AuditTarget::Instance(_)) | None, _) => {}
        }
        let wall = self.now().wall;
        for (token, told) in self.audience_mut().happened(id, wall, event) {
            self.tell(token, id, told);
        }
    }

    fn tell(&mut self, token: RequestToken, id: &WorkspaceId, told: WatchNotification) {
        self.emit(CoreEffect::Tell {
            token,
            workspace_id: id.clone(),
            told: Box::new(told),
        });
    }

    /// Adds a watcher and sends it the events after a cursor. False if they are no longer
    /// available; the watcher then needs a [snapshot](Self::tell_snapshot).
    pub(crate) fn watch(
        &mut self,
        id: &WorkspaceId,
        token: RequestToken,
        after: Option<WatchCursor>,
    ) -> bool {
        let missed = self.audience_mut().watch(id, token, after);
        let is_known = missed.is_some();
        for told in missed.into_iter().flatten() {
            self.tell(token, id, told);
        }
        is_known
    }

    /// Adds a follower of a conversation's turns. The response is sent when the workspace is
    /// stopped.
    pub(crate) fn follow_turns(&mut self, token: RequestToken, follow: FollowTurns) {
        let at = InstanceRef {
            workspace_id: follow.workspace_id,
            instance_key: follow.instance_key,
        };
        let error = no_workspace(&at.workspace_id);
        if !self.audience_mut().follow(at, token) {
            self.respond_error(token, error);
        }
    }

    /// Sends a watcher the current state.
    pub(crate) fn tell_snapshot(
        &mut self,
        id: &WorkspaceId,
        token: RequestToken,
        update: WatchUpdate,
    ) {
        let wall = self.now().wall;
        if let Some(told) = self.audience_mut().snapshot(id, wall, update) {
            self.tell(token, id, told);
        }
    }

    /// Records a change of a conversation in the audit log.
    pub(crate) fn audit(
        &mut self,
        at: &InstanceRef,
        agent: Option<&AgentName>,
        what: &str,
        details: Value,
    ) {
        let audit = self.audit_record(at, agent, what, details);
        self.store(audit, LogAuditFailure);
    }

    /// Audit record of a change to a conversation; the change is already logged.
    pub(crate) fn audit_record(
        &mut self,
        at: &InstanceRef,
        agent: Option<&AgentName>,
        what: &str,
        details: Value,
    ) -> Audit {
        let mut record = JsonObject::from_iter([
            ("at".to_owned(), json!(self.now().wall)),
            ("event".to_owned(), json!(format!("instance.{what}"))),
            ("instanceKey".to_owned(), json!(at.instance_key)),
        ]);
        if let Value::Object(details) = details {
            record.extend(details);
        }
        let fields = record.clone();
        self.log(LogEvent::info("audit").all(fields).about(at, agent));
        Audit {
            workspace_id: at.workspace_id.clone(),
            record,
        }
    }

    /// Records a change of a workspace in the audit log.
    pub(crate) fn audit_workspace(&mut self, id: &WorkspaceId, what: &str, details: Value) {
        let mut record = JsonObject::from_iter([
            ("at".to_owned(), json!(self.now().wall)),
            ("event".to_owned(), json!(format!("workspace.{what}"))),
        ]);
        if let Value::Object(details) = details {
            record.extend(details);
        }
        let fields = record.clone();
        let event = LogEvent::info("audit").with("workspaceId", id.as_str());
        self.log(event.all(fields));
        let audit = Audit {
            workspace_id: id.clone(),
            record,
        };
        self.store(audit, LogAuditFailure);
    }
}
