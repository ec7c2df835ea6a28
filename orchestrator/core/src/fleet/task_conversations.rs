//! Conversations in which agents of `runtime.kind: llm` work on tasks (`TASK-8`).
//!
//! A run of such a task is an event of its conversation, whose id is derived from the run's number.
//! Submitting it again after a crash is idempotent and returns the existing outcome. The module
//! `tasks` decides the task's next step.
//!
//! # Invariants
//!
//! * No turn of such a conversation begins before its task is known here, because a step without a
//!   known task would not count toward the task's budget.
//! * Only the task submits events.

use std::collections::BTreeMap;
use std::path::PathBuf;

use goondan_protocol::event::{AgentEvent, Chain, EventSource};
use goondan_protocol::ids::{AgentName, ConnectionName, InstanceKey, InstanceRef};
use goondan_protocol::task::{AssignedTask, TaskBudget, is_of_task};
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::{SpanId, TraceId};
use goondan_store::StoreError;
use goondan_store::instance::EventState;
use goondan_store::ledger::LedgerTask;
use goondan_store::writer::operation::LookUpEvent;

use super::Workspace;
use super::conversation_run::{ConversationRun, RunUpdate};
use super::waiters::TurnWaiter;
use crate::Facts;
use crate::bus::context::Cx;
use crate::exchange::TaskRef;
use crate::exchange::tasks::Clear;
use crate::fleet::event_queue::EventOrigin;
use crate::jobs::continuation;
use crate::refusals::parked_error;

/// The connector name of task events.
const SOURCE: &str = "tasks";

const KIND: &str = "task";

#[derive(Debug, Clone)]
pub(crate) struct TaskConversation {
    pub(crate) at: TaskRef,
    pub(crate) created_at: Timestamp,
    /// The conversation whose agent created the task.
    pub(crate) created_by: Option<InstanceKey>,
    pub(crate) budget: TaskBudget,
    /// Environment variables of the processes that its tools start.
    pub(crate) secrets: BTreeMap<String, Clear>,
}

impl TaskConversation {
    /// The task's identity in the ledger.
    pub(crate) fn ledger_task(&self) -> LedgerTask {
        LedgerTask {
            id: self.at.task_id.clone(),
            created_at: self.created_at,
        }
    }

    fn assigned(&self) -> AssignedTask {
        let secrets = self.secrets.iter();
        AssignedTask {
            task_id: self.at.task_id.clone(),
            secrets: secrets
                .map(|(name, Clear(value))| (name.clone(), value.clone()))
                .collect(),
        }
    }
}

continuation! {
    /// Looks up the state of a run's event.
    LookingUpRun { of: Box<ConversationRun> } after LookUpEvent => &workspace.on_run_looked_up
}

/// The conversations of a workspace that work for tasks, by their keys.
#[derive(Debug, Default)]
pub(crate) struct TaskConversations(BTreeMap<InstanceKey, TaskConversation>);

impl TaskConversations {
    pub(super) fn get(&self, key: &InstanceKey) -> Option<&TaskConversation> {
        self.0.get(key)
    }

    /// True if a conversation belongs to a task that is not known yet.
    pub(super) fn lacks(&self, key: &InstanceKey) -> bool {
        is_of_task(key) && !self.0.contains_key(key)
    }

    /// The own budget of a task with a conversation; `None` for other tasks.
    pub(crate) fn budget_of(&self, task: &LedgerTask) -> Option<TaskBudget> {
        let found = self.0.values().find(|it| it.ledger_task() == *task)?;
        Some(found.budget)
    }

    /// Updates the own budget of a task.
    pub(crate) fn set_budget(&mut self, of: &TaskRef, budget: TaskBudget) {
        for conversation in self.0.values_mut().filter(|it| it.at == *of) {
            conversation.budget = budget;
        }
    }

    /// Sets the task of a conversation. True if the assignment changed, so that a process with the
    /// earlier one must be replaced.
    fn set(&mut self, key: &InstanceKey, conversation: TaskConversation) -> bool {
        let assigned = conversation.assigned();
        let before = self.0.insert(key.clone(), conversation);
        before.is_some_and(|before| before.assigned() != assigned)
    }

    /// Drops a removed task and returns its conversations.
    pub(crate) fn forget(&mut self, of: &TaskRef) -> Vec<InstanceRef> {
        let gone = self
            .0
            .extract_if(.., |_, conversation| conversation.at == *of);
        let refs = gone.map(|(instance_key, _)| InstanceRef {
            workspace_id: of.workspace_id.clone(),
            instance_key,
        });
        refs.collect()
    }
}

impl Workspace {
    /// The task of a conversation, if known.
    pub(crate) fn task_of(&self, key: &InstanceKey) -> Option<&TaskConversation> {
        self.task_conversations.get(key)
    }

    /// The assignment of an agent that works on a task, and its work area.
    pub(super) fn assigned_task(
        &self,
        facts: &Facts,
        key: &InstanceKey,
    ) -> Option<(AssignedTask, PathBuf)> {
        let conversation = self.task_of(key)?;
        Some((conversation.assigned(), facts.work_area(&conversation.at)))
    }
}

/// Looks up the state of a run's event; [`RunUpdate`] reports it.
pub(crate) fn look_up_run(cx: &mut Cx, of: ConversationRun) {
    let instance = of.instance.clone();
    let look_up = LookUpEvent {
        instance: instance.clone(),
        event_id: of.event_id.clone(),
    };
    let of = Box::new(of);
    cx.store(look_up, LookingUpRun { instance, of });
}

impl Workspace {
    /// Sets the task of a conversation. A process that was started without this information is
    /// replaced.
    pub(crate) fn know_task(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        conversation: TaskConversation,
    ) {
        let tasks = &mut self.task_conversations;
        if tasks.set(&at.instance_key, conversation)
            && let Some(entry) = self.conversations.get_mut(&at.instance_key)
            && !entry.is_in_turn()
        {
            entry.end_idle_process(cx);
        }
        self.advance(cx, at);
    }

    /// Submits the event of a run; [`RunUpdate`] reports its progress.
    pub(crate) fn ask_for_run(
        &mut self,
        cx: &mut Cx,
        of: ConversationRun,
        agent: &AgentName,
        input: String,
    ) {
        let conversation = self.task_of(&of.instance.instance_key);
        let created_by = conversation.and_then(|it| it.created_by.clone());
        let chain = created_by.map(|root_instance| Chain {
            root_instance,
            root_event: of.event_id.clone(),
            depth: 1,
            through: Vec::new(),
        });
        let Ok(name) = ConnectionName::new(SOURCE) else {
            return;
        };
        let event = AgentEvent {
            id: of.event_id.clone(),
            kind: KIND.to_owned(),
            created_at: cx.now().wall,
            trace_id: Some(TraceId::from_uuid(cx.uuid())),
            parent_span_id: Some(SpanId::from_uuid(cx.uuid())),
            input: Some(input),
            header: None,
            properties: goondan_protocol::JsonObject::new(),
            instance_key: Some(of.instance.instance_key.clone()),
            source: EventSource::Connector { name },
            auth: None,
            reply_to: None,
            chain,
            join: None,
            metadata: goondan_protocol::JsonObject::new(),
        };
        let instance = of.instance.clone();
        self.accept(cx, instance, agent, event, EventOrigin::Run(Box::new(of)));
    }

    fn on_run_looked_up(
        &mut self,
        cx: &mut Cx,
        sought: &LookingUpRun,
        result: Result<EventState, StoreError>,
    ) {
        let found = match result {
            Ok(state) => Ok(Some(state)),
            Err(StoreError::NoInstance { .. }) => Ok(None),
            Err(error) => Err(goondan_log::error_chain(&error)),
        };
        cx.tell_task(&sought.of, RunUpdate::Found(found));
        self.forget_if_done(cx, &sought.instance.instance_key);
    }

    /// Handles a run's event that is durable, now or from an earlier attempt.
    pub(super) fn on_run_accepted(
        &mut self,
        cx: &mut Cx,
        of: Box<ConversationRun>,
        before: EventState,
    ) {
        match before {
            EventState::Done(outcome) => cx.tell_task(&of, RunUpdate::Ended(Ok(outcome))),
            EventState::Parked(parked) => {
                let error = parked_error(&of.event_id, &parked.reason);
                cx.tell_task(&of, RunUpdate::Ended(Err(error)));
            }
            EventState::Unknown | EventState::Waiting => {
                if let Some(error) = self.why_nothing_begins(cx, &of.instance.instance_key) {
                    return cx.tell_task(&of, RunUpdate::Ended(Err(error)));
                }
                cx.tell_task(&of, RunUpdate::Begun);
                if let Some(entry) = self.conversations.get_mut(&of.instance.instance_key) {
                    let event_id = of.event_id.clone();
                    entry.waiters_mut().add(event_id, TurnWaiter::Run(of));
                }
            }
        }
    }
}
