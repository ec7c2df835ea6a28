//! Requests of agents about tasks: create a task, return its status, and wait for it (`TASK-8`).
//!
//! An agent can only access tasks of its own conversation. It cannot answer questions or approve
//! phases, which is for people; it can apply the proposal of the last phase where the project's
//! policy allows it (`PROP-8`). A task's id is derived from the tool call that creates it, so that a
//! repeated call, after a crash of either side, refers to the same task.

use goondan_protocol::agents::{
    AGENT_TASKS_MAX, AgentAnswer, AgentAsk, AgentQuestion, ProposalOwner,
};
use goondan_protocol::control::{
    ControlError, CreateTask, DiffProposal, ErrorCode, ListTasks, SandboxRef, TaskInfo,
};
use goondan_protocol::decision::DecisionVerdict;
use goondan_protocol::ids::{EventId, InvalidId};
use goondan_protocol::limits::MAX_REQUEST_TIMEOUT_MS;
use goondan_protocol::task::{TaskBudget, TaskId, is_of_task};
use goondan_protocol::trace::SpanId;

use super::entry::{TaskEntry, TaskRequester};
use super::requests::id_of_day;
use super::views::{needs_person, too_many};
use super::{Tasks, not_found};
use crate::bus::queue::Message;
use crate::exchange::{ProposalWork, ReviewByAgent, ReviewingAgent, TaskRef};
use crate::fleet::Fleet;
use crate::fleet::agent_replies::pending_replies::Requester;
use crate::fleet::workspaces::being_stopped;
use crate::limits::{TASK_REQUESTS_MAX, TASKS_PER_CONVERSATION_MAX};
use crate::refusals::{AgentRequestError, no_workspace};

/// The type of a task that an agent created.
const KIND: &str = "delegated";

#[derive(Debug)]
pub(super) struct TaskWaiter {
    at: TaskRef,
    requester: Requester,
    /// Deadline, on the clock of `Now::mono_ms`.
    until_ms: u64,
}

impl Tasks {
    /// A tool call of a running turn, which its agent was granted, asks for something about tasks.
    pub(crate) fn on_agent_ask(&mut self, fleet: &mut Fleet, requester: Requester, ask: AgentAsk) {
        let id = requester.at.workspace_id.clone();
        let Some(space) = self.spaces.get_mut(&id) else {
            let refused = AgentRequestError::new("E_UNAVAILABLE", "the workspace no longer exists");
            return fleet.answer_agent(&requester, refused.into());
        };
        if !space.is_loaded {
            if space.held_asks.len() >= TASK_REQUESTS_MAX {
                let error = too_many(&id, TASK_REQUESTS_MAX);
                return fleet.answer_agent(&requester, told_refusal(error));
            }
            space.held_asks.push((requester, ask));
            return;
        }
        let done = self.answer_ask(fleet, &requester, ask);
        if let Err(refused) = done {
            fleet.answer_agent(&requester, refused);
        }
    }

    fn answer_ask(
        &mut self,
        fleet: &mut Fleet,
        requester: &Requester,
        ask: AgentAsk,
    ) -> Result<(), AgentAnswer> {
        let call = ask.event_id();
        match ask.question {
            // It might give one to itself, and that again.
            AgentQuestion::CreateTask { .. } if is_of_task(&requester.at.instance_key) => {
                let why = "an agent that works on a task cannot create tasks";
                Err(AgentRequestError::new("E_TASK_REFUSED", why).into())
            }
            AgentQuestion::CreateTask {
                title,
                description,
                agent,
                phases,
                max_tokens,
            } => {
                let unusable = |error: InvalidId| {
                    AgentAnswer::from(AgentRequestError::new(
                        "E_INVALID_REQUEST",
                        error.to_string(),
                    ))
                };
                let create = CreateTask {
                    workspace_id: requester.at.workspace_id.clone(),
                    task_id: Some(self.id_of_call(fleet, requester, &call.map_err(unusable)?)?),
                    agent,
                    title,
                    kind: KIND.to_owned(),
                    description,
                    total_phases: phases,
                    budget: TaskBudget {
                        tokens: max_tokens,
                        ..TaskBudget::default()
                    },
                    source: None,
                    fallbacks: None,
                    start: true,
                };
                self.create_for_agent(fleet, requester, create)
                    .map_err(told_refusal)
            }
            AgentQuestion::ShowTask { task_id: None } => {
                let answer = self.tasks_of(fleet, requester);
                fleet.answer_agent(requester, answer);
                Ok(())
            }
            AgentQuestion::ShowTask {
                task_id: Some(task),
            } => {
                let at = self.own_task(requester, &task).map_err(told_refusal)?;
                self.tell_agent(fleet, requester, &at);
                Ok(())
            }
            AgentQuestion::AwaitTask {
                task_id,
                timeout_ms,
            } => {
                let at = self.own_task(requester, &task_id).map_err(told_refusal)?;
                let timeout_ms = timeout_ms.min(MAX_REQUEST_TIMEOUT_MS);
                self.waiters.push(TaskWaiter {
                    at,
                    requester: requester.clone(),
                    until_ms: fleet.now().mono_ms.saturating_add(timeout_ms),
                });
                self.answer_waiters(fleet);
                Ok(())
            }
            AgentQuestion::DiffProposal {
                of: ProposalOwner::Task(task),
                offset,
            } => {
                let (_, of) = self.own_proposal(requester, &task)?;
                let workspace_id = requester.at.workspace_id.clone();
                let work = ProposalWork::Diff(DiffProposal {
                    workspace_id,
                    at: of,
                    offset,
                });
                fleet.post(Message::Proposal(requester.clone(), Box::new(work)));
                Ok(())
            }
            AgentQuestion::CheckProposal {
                of: ProposalOwner::Task(task),
            } => {
                let (_, of) = self.own_proposal(requester, &task)?;
                let by = reviewing_agent(fleet, requester)?;
                let work = ProposalWork::ReviewByAgent(ReviewByAgent {
                    workspace_id: requester.at.workspace_id.clone(),
                    at: of,
                    by,
                });
                fleet.post(Message::Proposal(requester.clone(), Box::new(work)));
                Ok(())
            }
            AgentQuestion::ApplyProposal {
                of: ProposalOwner::Task(task),
                digest,
            } => {
                let (at, _) = self.own_proposal(requester, &task)?;
                let is_closing = fleet.workspace(&at.workspace_id);
                let is_closing = is_closing.map_err(told_refusal)?.closing.is_some();
                if is_closing || fleet.is_stopping() {
                    return Err(told_refusal(being_stopped(&at.workspace_id)));
                }
                let by = reviewing_agent(fleet, requester)?;
                self.apply_for_agent(fleet, requester, &at, digest, by)
                    .map_err(told_refusal)
            }
            // Everything else is the fleet's to answer.
            _ => Ok(()),
        }
    }

    /// Returns the id of the task that a tool call asks for: the day and the call. The call that was made the day
    /// before and is made again names the same task.
    fn id_of_call(
        &self,
        fleet: &Fleet,
        requester: &Requester,
        call: &EventId,
    ) -> Result<TaskId, AgentAnswer> {
        let (at, call) = (&requester.at, SpanId::of_id(call.as_str()).to_string());
        let space = self.spaces.get(&at.workspace_id).into_iter();
        let mut own = space
            .flat_map(|space| &space.entries)
            .filter(|(_, entry)| entry.created_by() == Some(&at.instance_key));
        if let Some((made, _)) = own.find(|(id, _)| id.as_str().ends_with(&call)) {
            return Ok(made.clone());
        }
        let id = format!("{}{call}", id_of_day(fleet.now().wall));
        TaskId::try_from(id)
            .map_err(|error| AgentRequestError::new("E_INVALID_REQUEST", error.to_string()).into())
    }

    fn create_for_agent(
        &mut self,
        fleet: &mut Fleet,
        requester: &Requester,
        create: CreateTask,
    ) -> Result<(), ControlError> {
        let id = create.workspace_id.clone();
        let key = &requester.at.instance_key;
        let is_closing = fleet.workspace(&id)?.closing.is_some();
        if is_closing || fleet.is_stopping() {
            return Err(being_stopped(&id));
        }
        if let Some(task) = &create.task_id
            && let Some(space) = self.spaces.get_mut(&id)
            && let Some(entry) = space.entries.get_mut(task)
            && entry.created_by() == Some(key)
        {
            let at = TaskRef::new(&id, task);
            if let Some((decision, _)) = &mut entry.made_for {
                // Its process died while the task was being made, and another one asks.
                decision.asker = TaskRequester::Agent(requester.clone());
            } else {
                self.tell_agent(fleet, requester, &at);
            }
            return Ok(());
        }
        let of_it = self.spaces.get(&id).into_iter();
        let of_it = of_it.flat_map(|space| space.entries.values());
        let open = of_it.filter(|entry| entry.created_by() == Some(key) && !entry.has_ended());
        if open.count() >= TASKS_PER_CONVERSATION_MAX {
            let text = format!(
                "{TASKS_PER_CONVERSATION_MAX} tasks of this conversation have not ended; wait \
                 until some end"
            );
            return Err(ControlError::new(ErrorCode::TaskRefused, text));
        }
        let asker = TaskRequester::Agent(requester.clone());
        let work = self.try_create(fleet, asker, create, Some(key))?;
        Self::work(fleet, work);
        Ok(())
    }

    /// A task of the requester's conversation. Those of others are not there for it.
    fn own_task(&self, requester: &Requester, task: &TaskId) -> Result<TaskRef, ControlError> {
        let at = TaskRef::new(&requester.at.workspace_id, task);
        match self.entry(&at) {
            Some(entry) if entry.created_by() == Some(&requester.at.instance_key) => Ok(at),
            _ => Err(not_found(&at)),
        }
    }

    /// A task of the requester's conversation that works on a copy of the project, and its sandbox.
    fn own_proposal(
        &self,
        requester: &Requester,
        task: &TaskId,
    ) -> Result<(TaskRef, SandboxRef), AgentAnswer> {
        let at = self.own_task(requester, task).map_err(told_refusal)?;
        match self.sandbox_of_task(&at) {
            Some(of) => Ok((at, of)),
            None => {
                let why = format!("task `{task}` does not work on a copy of the project");
                Err(AgentRequestError::new("E_NO_PROPOSAL", why).into())
            }
        }
    }

    fn tasks_of(&self, fleet: &Fleet, requester: &Requester) -> AgentAnswer {
        let (id, key) = (&requester.at.workspace_id, &requester.at.instance_key);
        let list = ListTasks {
            workspace_id: Some(id.clone()),
            all: true,
            ..ListTasks::default()
        };
        let mut tasks: Vec<TaskInfo> = self.by_urgency(fleet, &list);
        tasks.retain(|task| task.created_by.as_ref() == Some(key));
        let more = tasks.len().saturating_sub(AGENT_TASKS_MAX);
        tasks.truncate(AGENT_TASKS_MAX);
        AgentAnswer::Tasks { tasks, more }
    }

    /// Sends the status of a task to an agent.
    pub(super) fn tell_agent(&self, fleet: &mut Fleet, requester: &Requester, at: &TaskRef) {
        let answer = match self.detail_of(fleet, at) {
            Ok(detail) => AgentAnswer::Task {
                task: Box::new(detail),
            },
            Err(error) => told_refusal(error),
        };
        fleet.answer_agent(requester, answer);
    }

    /// Answers the agents that have nothing more to wait for, or have waited for long enough.
    pub(super) fn answer_waiters(&mut self, fleet: &mut Fleet) {
        let now_ms = fleet.now().mono_ms;
        let is_over = |waiter: &TaskWaiter| {
            let entry = self.entry(&waiter.at);
            now_ms >= waiter.until_ms
                || entry
                    .is_none_or(|entry| entry.has_ended() || needs_person(fleet, &waiter.at, entry))
        };
        let are_over: Vec<bool> = self.waiters.iter().map(is_over).collect();
        let waiters = std::mem::take(&mut self.waiters);
        let (over, waiting): (Vec<_>, Vec<_>) = waiters
            .into_iter()
            .zip(are_over)
            .partition(|(_, is_over)| *is_over);
        self.waiters = waiting.into_iter().map(|(waiter, _)| waiter).collect();
        for (waiter, _) in over {
            self.tell_agent(fleet, &waiter.requester, &waiter.at);
        }
    }

    pub(super) fn tell_error(fleet: &mut Fleet, asker: &TaskRequester, error: ControlError) {
        match asker {
            TaskRequester::Client(token) => fleet.respond_error(*token, error),
            TaskRequester::Agent(requester) => fleet.answer_agent(requester, told_refusal(error)),
            TaskRequester::Chat(chat) => {
                let mut message = error.message;
                if let Some(hint) = chat.hint {
                    message.push_str("; ");
                    message.push_str(hint);
                }
                let verdict = match error.code {
                    ErrorCode::TaskRefused | ErrorCode::TaskNotFound => {
                        DecisionVerdict::NotAllowed { message }
                    }
                    _ => DecisionVerdict::NotNow { message },
                };
                fleet.cx().answer_press(chat.press, verdict);
            }
        }
    }
}

impl TaskEntry {
    /// True if the task is durably completed, failed or canceled.
    fn has_ended(&self) -> bool {
        let state = self.durable();
        state.is_some_and(|state| state.status().is_final())
    }
}

/// The requester's agent, as a reviewer.
fn reviewing_agent(fleet: &Fleet, requester: &Requester) -> Result<ReviewingAgent, AgentAnswer> {
    let id = &requester.at.workspace_id;
    let workspace = fleet
        .workspaces()
        .get(id)
        .ok_or_else(|| told_refusal(no_workspace(id)))?;
    let files = workspace.files_of(fleet.facts(), &requester.at);
    Ok(files.reviewing_agent()?)
}

/// The suggestion does not apply to agents, only to people.
fn told_refusal(error: ControlError) -> AgentAnswer {
    let code = match error.code {
        ErrorCode::TaskNotFound => "E_NO_TASK",
        ErrorCode::TaskRefused | ErrorCode::TaskTaken => "E_TASK_REFUSED",
        ErrorCode::AgentNotFound => "E_AGENT_NOT_FOUND",
        ErrorCode::InvalidRequest => "E_INVALID_REQUEST",
        ErrorCode::Overloaded => "E_OVERLOADED",
        ErrorCode::ProposalRefused => "E_PROPOSAL_REFUSED",
        _ => "E_FAILED",
    };
    let mut message = error.message;
    if let (ErrorCode::AgentNotFound, Some(hint)) = (error.code, error.suggestion) {
        // The hint names the available agents.
        message = format!("{message}; {hint}");
    }
    AgentRequestError::new(code, message).into()
}
