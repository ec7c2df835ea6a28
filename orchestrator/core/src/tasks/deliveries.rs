//! Deliveries of approved proposals, and the pull requests among them (`REPO-3`).
//!
//! A delivery is requested by a person, and each of its steps may be repeated: the same commit is
//! pushed, and the connector returns an existing pull request of that commit. After a crash, the
//! person approves again.

use goondan_protocol::call::{CallError, CallOutcome};
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::git::RepositoryUrl;
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::service::{ConnectorRequest, GitHub, PullRequest};
use goondan_protocol::task::{
    CliAgentDefinition, DeliveredBranch, RepositoryAccess, RepositorySource, TaskDelivery,
    TaskSource, title_and_text,
};
use goondan_tasks::machine::{Delivery, TaskInput};
use serde_json::Value;

use super::Tasks;
use super::entry::TaskEntry;
use super::proposals::{not_delivered, sandbox_of, sandbox_work};
use crate::bus::queue::Message;
use crate::exchange::task_calls::{TaskCall, TaskCallRef};
use crate::exchange::tasks::SandboxOperation;
use crate::exchange::{NoteDelivery, ProposalWork, TaskRef};
use crate::fleet::{Fleet, bundle_of};
use crate::limits::TASK_PULL_REQUEST_WAIT_MS;

/// Longest description of a pull request, in characters.
pub(super) const BODY_CHARS_MAX: usize = 60_000;

/// Connection and repository of pull requests.
#[derive(Debug)]
pub(super) struct RequestPlace {
    pub(super) connection: ConnectionName,
    /// `owner/name`.
    pub(super) repository: String,
}

impl Tasks {
    fn agent_of<'f>(&self, fleet: &'f Fleet, at: &TaskRef) -> Option<&'f CliAgentDefinition> {
        let state = self.entry(at).and_then(TaskEntry::state)?;
        let workspace = fleet.workspace(&at.workspace_id).ok()?;
        bundle_of(workspace).ok()?.cli_agent(&state.task.agent)
    }

    /// Current delivery setting for the task's proposal.
    pub(super) fn delivery_of(&self, fleet: &Fleet, at: &TaskRef) -> TaskDelivery {
        let delivery = self.agent_of(fleet, at).map(|agent| agent.deliver);
        let delivery = delivery.unwrap_or_default();
        let state = self.entry(at).and_then(TaskEntry::state);
        match (state.map(|state| &state.task.source), delivery) {
            // The source of the task is another one than that of its agent.
            (Some(TaskSource::Repository(_)), TaskDelivery::Apply)
            | (Some(TaskSource::Project), TaskDelivery::PullRequest) => TaskDelivery::Branch,
            // A path has no pull requests.
            (Some(TaskSource::Repository(source)), TaskDelivery::PullRequest)
                if source.url().is_none() =>
            {
                TaskDelivery::Branch
            }
            (_, delivery) => delivery,
        }
    }

    /// Rights at the repository of a task: those of its agent, for repositories of the same origin.
    pub(super) fn repository_access(&self, fleet: &Fleet, at: &TaskRef) -> RepositoryAccess {
        let state = self.entry(at).and_then(TaskEntry::state);
        let access = state.and_then(|state| {
            let agent = self.agent_of(fleet, at)?;
            let url = state.task.source.repository()?.url()?;
            let configured = agent.source.repository()?.url()?;
            (url.origin() == configured.origin()).then(|| agent.repository.clone())
        });
        access.unwrap_or_default()
    }

    /// Handles the result of the first step of a delivery.
    pub(super) fn on_delivered(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        result: Result<Value, ControlError>,
    ) {
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => return self.end_delivery(fleet, at, Err(not_delivered(at, &error))),
        };
        let Some(pending) = self.entry_mut(at).and_then(|it| it.delivering.as_mut()) else {
            return self.end_delivery(fleet, at, Ok(()));
        };
        if pending.delivery != TaskDelivery::Apply {
            // A value of another form is that of an applied proposal.
            pending.branch = serde_json::from_value(answer).ok();
        }
        let is_request = pending.delivery == TaskDelivery::PullRequest;
        match (is_request, pending.branch.clone()) {
            (true, Some(branch)) => {
                if let Err(error) = self.open_pull_request(fleet, at, &branch) {
                    self.end_delivery(fleet, at, Err(not_opened(at, &branch.branch, &error)));
                }
            }
            _ => self.end_delivery(fleet, at, Ok(())),
        }
    }

    /// Returns the connection and repository of a task's pull requests.
    pub(super) fn request_place(
        &self,
        fleet: &Fleet,
        at: &TaskRef,
    ) -> Result<RequestPlace, String> {
        let connection = self.repository_access(fleet, at).connection;
        let connection = connection.ok_or("its agent's `source` names no `connection` for it")?;
        let state = self.entry(at).and_then(TaskEntry::state);
        let url = state.ok_or("the task cannot be read")?;
        let url = url.task.source.repository();
        let url = url.and_then(RepositorySource::url);
        let repository = url.as_ref().and_then(RepositoryUrl::owner_and_name);
        let repository = repository.ok_or("its repository has no name of the form `OWNER/NAME`")?;
        Ok(RequestPlace {
            connection,
            repository: repository.to_owned(),
        })
    }

    fn open_pull_request(
        &self,
        fleet: &mut Fleet,
        at: &TaskRef,
        branch: &DeliveredBranch,
    ) -> Result<(), String> {
        let RequestPlace {
            connection,
            repository,
        } = self.request_place(fleet, at)?;
        let state = self.entry(at).and_then(TaskEntry::state);
        let state = state.ok_or("the task cannot be read")?;
        let base = branch.into.clone();
        let base = base.ok_or("the repository has no default branch to merge into")?;
        let (title, body) = title_and_text(&branch.summary, &state.task.title);
        let request = ConnectorRequest::of(&GitHub::OpenPullRequest {
            repository,
            head: branch.branch.clone(),
            commit: branch.commit.clone(),
            base,
            title,
            body: body.chars().take(BODY_CHARS_MAX).collect(),
        });
        let call = TaskCall {
            of: TaskCallRef::PullRequest(at.clone()),
            agent: state.task.agent.clone(),
            connection,
            request: request.map_err(|error| error.to_string())?,
            deadline_ms: TASK_PULL_REQUEST_WAIT_MS,
            is_idempotent: true,
        };
        fleet.post(Message::TaskCall(Box::new(call)));
        Ok(())
    }

    /// Handles the connector's answer about a pull request: it is recorded with the proposal.
    pub(super) fn on_pull_request(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        outcome: CallOutcome,
    ) {
        let opened = match outcome {
            CallOutcome::Ok(value) => serde_json::from_str::<PullRequest>(value.get())
                .map_err(|error| format!("failed to read the connector's answer: {error}")),
            CallOutcome::Error(error) => Err(error_text(&error)),
        };
        let entry = self.entry_mut(at);
        let Some(pending) = entry.and_then(|entry| entry.delivering.as_mut()) else {
            return self.end_delivery(fleet, at, Ok(()));
        };
        match opened {
            Ok(opened) => {
                pending.pull_request = Some(opened.url.clone());
                let digest = pending.digest.clone();
                let state = self.entry(at).and_then(TaskEntry::state);
                let Some(of) = state.and_then(sandbox_of) else {
                    return self.end_delivery(fleet, at, Ok(()));
                };
                let note = ProposalWork::NoteDelivery(NoteDelivery {
                    workspace_id: at.workspace_id.clone(),
                    at: of,
                    digest,
                    delivered_as: opened.url,
                });
                sandbox_work(fleet, at, SandboxOperation::NoteDelivery, note);
            }
            Err(error) => {
                let branch = pending.branch.as_ref().map(|it| it.branch.clone());
                let error = not_opened(at, &branch.unwrap_or_default(), &error);
                self.end_delivery(fleet, at, Err(error));
            }
        }
    }

    /// Handles the result of the last step of a delivery as a pull request.
    pub(super) fn on_delivery_noted(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        result: Result<Value, ControlError>,
    ) {
        let result = result.map(|_| ());
        self.end_delivery(fleet, at, result.map_err(|error| not_delivered(at, &error)));
    }

    fn end_delivery(&mut self, fleet: &mut Fleet, at: &TaskRef, result: Result<(), ControlError>) {
        self.work_done(&at.workspace_id);
        let pending = self.entry_mut(at).and_then(|entry| entry.delivering.take());
        let Some(pending) = pending else {
            return;
        };
        match result {
            Ok(()) => {
                let delivery = Delivery::Delivered {
                    digest: pending.digest,
                    branch: pending.branch.map(|branch| branch.branch),
                    pull_request: pending.pull_request,
                };
                let input = TaskInput::Approve {
                    phase: pending.phase,
                    delivery,
                };
                self.input(fleet, at, input, Some(pending.request));
            }
            Err(error) => Self::tell_error(fleet, &pending.request.asker, error),
        }
    }
}

pub(super) fn error_text(error: &CallError) -> String {
    match &error.suggestion {
        Some(suggestion) => format!("{}; {suggestion}", error.message),
        None => error.message.clone(),
    }
}

/// Why a phase is not approved: its branch has no pull request.
fn not_opened(at: &TaskRef, branch: &str, error: &str) -> ControlError {
    let task = &at.task_id;
    let text = format!(
        "task `{task}` was not approved because no pull request could be opened for branch \
         `{branch}`, which was pushed: {error}"
    );
    ControlError::new(ErrorCode::TaskRefused, text).suggest(format!(
        "try again: `gdn task approve {task}`; approve it without a pull request: \
         `--without-delivery`"
    ))
}
