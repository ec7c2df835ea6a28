//! Runs of tasks whose agent is of `runtime.kind: llm`: each is the turn of one event in a
//! conversation (`TASK-8`).
//!
//! The agent's reply is read like the plain text output of a program: protocol blocks in it count.
//! A pause ends the turn, and the task resumes in the same conversation; a run that a crash
//! interrupted resumes automatically.

use std::collections::{BTreeMap, BTreeSet};

use goondan_cli_agents::usage::{Counter, UsageReport};
use goondan_cli_agents::{CliEvent, Format, Parser, RunResult, Setup};
use goondan_protocol::control::ControlError;
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{AgentName, ApprovalId, InstanceKey, InstanceRef, WorkspaceId};
use goondan_protocol::task::{OutputStream, TASK_OUTPUT_BYTES_MAX, conversation_of, event_of};
use goondan_store::instance::EventState;
use goondan_store::ledger::LedgerTask;
use goondan_tasks::fact::Runtime;
use goondan_tasks::machine::TaskInput;
use goondan_tasks::state::{State, TokenSpend};

use super::Tasks;
use super::conversation_runs::{ConversationTurnRun, TurnRunEnd, TurnRunStage, converses};
use super::entry::{StartOrder, TaskEntry};
use super::runs::is_ending;
use crate::LogEvent;
use crate::bus::queue::{Message, Notice};
use crate::exchange::tasks::{Clear, LogText, SecretsRead};
use crate::exchange::{TaskRef, TaskWork};
use crate::fleet::Fleet;
use crate::fleet::cancellation::CancelCause;
use crate::fleet::conversation_run::{ConversationRun, RunUpdate};
use crate::fleet::task_conversations::{TaskConversation, look_up_run};
use crate::fleet::turn::CANCELLED;

/// Reason for ending a turn when its task is paused.
const PAUSED: &str = "the task is paused";

/// Reason for ending a turn when its run is over.
const ENDED: &str = "the run has ended";

/// The code of a turn that failed since a call might have passed a budget.
const OVER_BUDGET: &str = "E_BUDGET";

/// Counter under which the ledger's figures for a task are reported.
const COUNTER: &str = "ledger";

/// Error for agents whose conversation is gone.
const GONE: &str = "the conversation no longer exists";

fn instance_of(id: &WorkspaceId, instance_key: InstanceKey) -> InstanceRef {
    InstanceRef {
        workspace_id: id.clone(),
        instance_key,
    }
}

/// An agent of `runtime.kind: llm`.
fn llm_agent<'f>(fleet: &'f Fleet, at: &TaskRef, name: &AgentName) -> Option<&'f AgentDefinition> {
    fleet.bundle(&at.workspace_id)?.agents.get(name)
}

/// The run as an event: of the session's conversation, or of one that it begins.
fn run_of(at: &TaskRef, run: u64, session: Option<&str>) -> Result<ConversationRun, String> {
    let key = match session {
        Some(session) => InstanceKey::new(session),
        None => conversation_of(&at.task_id, run),
    };
    let key = key.map_err(|error| error.to_string())?;
    let event_id = event_of(&at.task_id, run).map_err(|error| error.to_string())?;
    Ok(ConversationRun {
        at: at.clone(),
        run,
        instance: instance_of(&at.workspace_id, key),
        event_id,
    })
}

/// Calls of the run of an agent with a model that wait for a person's approval.
pub(super) fn approvals_of<'f>(
    fleet: &'f Fleet,
    at: &TaskRef,
    state: &State,
) -> impl Iterator<Item = &'f ApprovalId> + use<'f> {
    let is_run = state.task.runtime == Runtime::Llm;
    let run = state.run.as_ref().filter(|_| is_run);
    let run = run.and_then(|run| run_of(at, run.number, run.session.as_deref()).ok());
    let waiting = run.and_then(|run| {
        let workspace = fleet.workspaces().get(&run.instance.workspace_id)?;
        Some(workspace.approvals_waiting(&run.instance.instance_key))
    });
    waiting.into_iter().flatten()
}

fn ledger_task(at: &TaskRef, state: &State) -> LedgerTask {
    LedgerTask {
        id: at.task_id.clone(),
        created_at: state.created_at(),
    }
}

/// Submits the event of a run; [`RunUpdate`] reports its progress.
fn ask_for_run(fleet: &mut Fleet, of: ConversationRun, agent: &AgentName, input: String) {
    if let Some((workspace, cx)) = fleet.workspace_and_cx(&of.instance.workspace_id) {
        workspace.ask_for_run(cx, of, agent, input);
    }
}

/// Cancels the event of a run, queued or in progress.
fn cancel_run(fleet: &mut Fleet, of: &ConversationRun, reason: &'static str) {
    if let Some((workspace, cx)) = fleet.workspace_and_cx(&of.instance.workspace_id) {
        let event_id = Some(of.event_id.clone());
        workspace.cancel_for(cx, None, &of.instance, event_id, CancelCause::new(reason));
    }
}

impl Tasks {
    /// The run of a task that is under way, be it a process or a turn.
    pub(super) fn run_of(&self, fleet: &Fleet, at: &TaskRef) -> Option<u64> {
        let conversing = self.entry(at).and_then(|entry| entry.conversing.as_ref());
        let in_conversation = conversing.map(|conversing| conversing.of.run);
        in_conversation.or_else(|| fleet.run_of(&at.workspace_id, &at.task_id))
    }

    /// Number of runs that are turns.
    pub(super) fn conversing(&self) -> usize {
        let entries = self.spaces.values().flat_map(|s| s.entries.values());
        entries.filter(|entry| entry.conversing.is_some()).count()
    }

    /// Begins a run in a conversation.
    pub(super) fn begin_conversing(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        order: StartOrder,
        secrets: BTreeMap<String, Clear>,
    ) {
        let run = order.run;
        let Some(state) = self.entry(at).and_then(TaskEntry::state) else {
            return;
        };
        let agent = state.task.agent.clone();
        let of = run_of(at, run, order.session.as_deref()).and_then(|of| {
            if llm_agent(fleet, at, &agent).is_some() {
                Ok(of)
            } else {
                Err(format!(
                    "`goondan.yaml` no longer has an agent `{agent}` with `runtime.kind: llm`"
                ))
            }
        });
        let of = match of {
            Ok(of) => of,
            Err(error) => {
                return self.input(fleet, at, TaskInput::NotSpawned { run, error }, None);
            }
        };
        self.let_know(fleet, &of, secrets);
        let stage = if order.session.is_some() {
            TurnRunStage::LookingUp(Some(order.prompt.clone()))
        } else {
            TurnRunStage::HandingIn { is_new: true }
        };
        let is_sought = order.session.is_some();
        self.set_conversing(fleet, &of, stage);
        if is_sought {
            look_up_run(fleet.cx(), of);
        } else {
            ask_for_run(fleet, of, &agent, order.prompt);
        }
    }

    fn set_conversing(&mut self, fleet: &Fleet, of: &ConversationRun, stage: TurnRunStage) {
        let next = Self::next_checkpoint(fleet, &of.at.workspace_id);
        if let Some(entry) = self.entry_mut(&of.at) {
            entry.checkpoint_at_ms = next;
            entry.conversing = Some(ConversationTurnRun {
                of: of.clone(),
                stage,
                ending: None,
            });
        }
    }

    /// Records the task of a conversation.
    fn let_know(
        &mut self,
        fleet: &mut Fleet,
        of: &ConversationRun,
        secrets: BTreeMap<String, Clear>,
    ) {
        let Some(state) = self.entry(&of.at).and_then(TaskEntry::state) else {
            return;
        };
        let conversation = TaskConversation {
            at: of.at.clone(),
            created_at: state.created_at(),
            created_by: state.task.created_by.clone(),
            budget: state.task.budget,
            secrets,
        };
        if let Some((workspace, cx)) = fleet.workspace_and_cx(&of.instance.workspace_id) {
            workspace.know_task(cx, &of.instance, conversation);
        }
        fleet.post(Message::Notice(Notice::Reckon(of.at.clone())));
    }

    /// Resumes a run that was in progress when the daemon ended.
    pub(super) fn take_up_conversing(&mut self, fleet: &mut Fleet, at: &TaskRef) {
        let Some(state) = self.entry(at).and_then(TaskEntry::state) else {
            return;
        };
        let Some(run) = &state.run else { return };
        let references: Vec<_> = state.environment().into_iter().collect();
        let (number, session) = (run.number, run.session.clone().or(state.session.clone()));
        let of = match run_of(at, number, session.as_deref()) {
            Ok(of) => of,
            Err(error) => {
                let input = TaskInput::NotSpawned { run: number, error };
                return self.input(fleet, at, input, None);
            }
        };
        if references.is_empty() {
            return self.attach(fleet, of, BTreeMap::new());
        }
        self.set_conversing(fleet, &of, TurnRunStage::ReadingSecrets);
        self.reading.insert(at.clone());
        let work = TaskWork::ReadSecrets {
            at: at.clone(),
            run: number,
            references,
        };
        Self::work(fleet, work);
    }

    fn attach(&mut self, fleet: &mut Fleet, of: ConversationRun, secrets: BTreeMap<String, Clear>) {
        self.let_know(fleet, &of, secrets);
        self.set_conversing(fleet, &of, TurnRunStage::LookingUp(None));
        look_up_run(fleet.cx(), of);
    }

    /// Handles the secrets for a resumed run. True if a run waited for them.
    pub(super) fn on_secrets_of_conversing(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        run: u64,
        result: SecretsRead,
    ) -> Option<SecretsRead> {
        let conversing = self.entry(at).and_then(|entry| entry.conversing.as_ref());
        let waits = conversing
            .filter(|it| it.of.run == run && it.stage == TurnRunStage::ReadingSecrets)
            .map(|it| it.of.clone());
        let Some(of) = waits else {
            return Some(result);
        };
        let secrets = result.unwrap_or_else(|lost| {
            let event = LogEvent::error("failed to read provided values of a task");
            let event = event.with("workspaceId", at.workspace_id.as_str());
            let event = event.with("taskId", at.task_id.as_str());
            fleet.log(event.with("error", lost.error));
            BTreeMap::new()
        });
        self.attach(fleet, of, secrets);
        None
    }

    /// Ends the turn of a run that is over or paused. True if there is a turn.
    pub(super) fn end_conversing(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        run: u64,
        is_pause: bool,
    ) -> bool {
        let entry = self.entry_mut(at);
        let conversing = entry.and_then(|entry| entry.conversing.as_mut());
        let Some(conversing) = conversing.filter(|it| it.of.run == run) else {
            return false;
        };
        let is_first = conversing.ending.is_none();
        // A run that is being paused can still be ended.
        if !is_pause || is_first {
            conversing.ending = Some(if is_pause {
                TurnRunEnd::Paused
            } else {
                TurnRunEnd::Over
            });
        }
        if is_first && conversing.stage == TurnRunStage::UnderWay {
            let of = conversing.of.clone();
            cancel_run(fleet, &of, if is_pause { PAUSED } else { ENDED });
        }
        true
    }

    /// Something became of the event of a run.
    pub(crate) fn on_run_news(&mut self, fleet: &mut Fleet, of: &ConversationRun, news: RunUpdate) {
        let entry = self.entry_mut(&of.at);
        let conversing = entry.and_then(|entry| entry.conversing.as_mut());
        let Some(conversing) = conversing.filter(|it| it.of == *of) else {
            return;
        };
        match news {
            RunUpdate::Begun => {
                let is_new = conversing.stage == TurnRunStage::HandingIn { is_new: true };
                conversing.stage = TurnRunStage::UnderWay;
                let ending = conversing.ending;
                if is_new {
                    self.tell_begun(fleet, of);
                }
                if let Some(ending) = ending {
                    let reason = match ending {
                        TurnRunEnd::Over => ENDED,
                        TurnRunEnd::Paused => PAUSED,
                    };
                    cancel_run(fleet, of, reason);
                }
            }
            RunUpdate::Found(found) => {
                let told = match &mut conversing.stage {
                    TurnRunStage::LookingUp(told) => told.take(),
                    _ => return,
                };
                let ending = conversing.ending;
                self.on_found(fleet, of, found, told, ending);
            }
            RunUpdate::Refused(error) => {
                // The failed write may have survived, so the next run uses a different event.
                cancel_run(fleet, of, ENDED);
                let error = format!("the conversation did not accept its event: {error}");
                let input = TaskInput::NotSpawned { run: of.run, error };
                self.conversing_over(fleet, of, vec![input]);
            }
            RunUpdate::Ended(result) => self.on_turn_over(fleet, of, result),
        }
    }

    fn tell_begun(&mut self, fleet: &mut Fleet, of: &ConversationRun) {
        let (at, run) = (&of.at, of.run);
        let agent = self.entry(at).and_then(TaskEntry::state);
        let agent = agent.and_then(|state| llm_agent(fleet, at, &state.task.agent));
        let model = agent.map(|agent| agent.model.model.clone());
        let session = CliEvent::Session {
            id: of.instance.instance_key.as_str().to_owned(),
            model,
        };
        self.take_input(fleet, at, TaskInput::Begun { run }, None);
        let event = session;
        self.input(fleet, at, TaskInput::Told { run, event }, None);
    }

    fn on_found(
        &mut self,
        fleet: &mut Fleet,
        of: &ConversationRun,
        found: Result<Option<EventState>, String>,
        told: Option<String>,
        ending: Option<TurnRunEnd>,
    ) {
        let run = of.run;
        let stopped = || vec![TaskInput::Stopped { run, code: None }, TaskInput::Tick];
        match (found, told) {
            (Err(error), _) => {
                let error = format!("failed to read its conversation: {error}");
                self.conversing_over(fleet, of, vec![TaskInput::NotSpawned { run, error }]);
            }
            // The event was not submitted yet.
            (Ok(_), Some(_)) if ending.is_some() => self.conversing_over(fleet, of, stopped()),
            (Ok(Some(_)), Some(prompt)) => self.hand_in(fleet, of, prompt, true),
            (Ok(None), Some(_)) => {
                let event = CliEvent::SessionRefused(GONE.to_owned());
                let told = TaskInput::Told { run, event };
                let exited = TaskInput::Exited { run, code: None };
                self.conversing_over(fleet, of, vec![told, exited]);
            }
            // The daemon ended before the event was durable.
            (Ok(Some(EventState::Unknown) | None), None) => {
                self.conversing_over(fleet, of, stopped());
            }
            // It is the same event, so its text does not matter.
            (Ok(Some(_)), None) => self.hand_in(fleet, of, String::new(), false),
        }
    }

    fn hand_in(&mut self, fleet: &mut Fleet, of: &ConversationRun, prompt: String, is_new: bool) {
        let Some(entry) = self.entry_mut(&of.at) else {
            return;
        };
        let agent = entry.state().map(|state| state.task.agent.clone());
        if let (Some(conversing), Some(agent)) = (&mut entry.conversing, agent) {
            conversing.stage = TurnRunStage::HandingIn { is_new };
            ask_for_run(fleet, of.clone(), &agent, prompt);
        }
    }

    /// The turn of a run is over, or will never be.
    fn on_turn_over(
        &mut self,
        fleet: &mut Fleet,
        of: &ConversationRun,
        result: Result<TurnOutcome, ControlError>,
    ) {
        let (at, run) = (&of.at, of.run);
        let conversing = self.entry(at).and_then(|entry| entry.conversing.as_ref());
        let ending = conversing.and_then(|conversing| conversing.ending);
        let exited = |code| TaskInput::Exited { run, code };
        let stopped = TaskInput::Stopped { run, code: None };
        let told = |event| TaskInput::Told { run, event };
        let failed = |text: String| told(result_of(false, text));
        let inputs = match (result, ending) {
            (Ok(TurnOutcome::Completed { reply }), _) => {
                for text in pieces(&reply) {
                    Self::log(fleet, at, LogText::Output(OutputStream::Stdout, text));
                }
                let mut inputs = Vec::new();
                for event in events_of(&reply) {
                    self.stream_event(fleet, at, run, &event);
                    if let CliEvent::Block(block) = &event {
                        let text = LogText::Block(fleet.now().wall, block.clone());
                        Self::log(fleet, at, text);
                    }
                    inputs.push(told(event));
                }
                self.end_stream(fleet, at, run);
                inputs.push(told(result_of(true, String::new())));
                inputs.push(exited(Some(0)));
                inputs
            }
            // The turn stays on disk, and resumes when the task is opened again.
            (Err(_), _) if is_ending(fleet, at) => Vec::new(),
            (_, Some(TurnRunEnd::Paused)) => vec![stopped, TaskInput::Tick],
            (_, Some(TurnRunEnd::Over)) => vec![exited(None)],
            (Ok(TurnOutcome::Failed { code, .. }), None) if code == CANCELLED => {
                // The user who ended the turn does not want the task to repeat it.
                vec![TaskInput::Pause, stopped]
            }
            (Ok(TurnOutcome::Failed { code, .. }), None) if code == OVER_BUDGET => {
                vec![TaskInput::CallRefused { run }, exited(None)]
            }
            (Ok(TurnOutcome::Failed { message, .. }), None) => vec![failed(message), exited(None)],
            (Err(error), None) => vec![failed(error.message), exited(None)],
        };
        self.conversing_over(fleet, of, inputs);
    }

    /// Ends a run, with these inputs for the task.
    fn conversing_over(&mut self, fleet: &mut Fleet, of: &ConversationRun, inputs: Vec<TaskInput>) {
        let at = &of.at;
        let now_ms = fleet.now().mono_ms;
        let Some(entry) = self.entry_mut(at) else {
            return;
        };
        entry.conversing = None;
        if entry.damage().is_some() {
            // The last write may be lost: the task is read again, and the run is searched.
            entry.reload_at(now_ms);
        } else {
            let is_restoring = entry.is_restoring;
            for input in inputs {
                let input = match input {
                    // The files must be restored before anything else runs.
                    TaskInput::Exited { run, code } if is_restoring => {
                        TaskInput::Stopped { run, code }
                    }
                    TaskInput::Tick if is_restoring => continue,
                    input => input,
                };
                self.take_input(fleet, at, input, None);
            }
            self.flush(fleet, at);
            self.begin_restore(fleet, at);
        }
        self.end_logs(fleet, at);
        self.start_waiting(fleet);
    }

    /// The tasks whose agents converse.
    pub(crate) fn conversing_in(&self, id: &WorkspaceId) -> Vec<TaskRef> {
        let entries = self.spaces.get(id).into_iter().flat_map(|s| &s.entries);
        let conversing = entries.filter(|(_, entry)| entry.conversing.is_some());
        conversing.map(|(task, _)| TaskRef::new(id, task)).collect()
    }

    /// A task as the ledger names it.
    pub(crate) fn ledger_task_of(&self, at: &TaskRef) -> Option<LedgerTask> {
        Some(ledger_task(at, self.entry(at)?.state()?))
    }

    /// Handles the ledger's figures for a task whose agent is of `runtime.kind: llm`.
    pub(crate) fn on_reckoned(&mut self, fleet: &mut Fleet, at: &TaskRef, taken: TokenSpend) {
        let state = self.entry(at).and_then(TaskEntry::state);
        let Some(run) = state.and_then(|state| state.run.as_ref()) else {
            return;
        };
        let run = run.number;
        let event = CliEvent::Usage(UsageReport {
            counter: Counter::Session(COUNTER.to_owned()),
            usage: taken.usage,
            cost: (taken.cost.0 > 0).then_some(taken.cost),
            session: None,
        });
        self.input(fleet, at, TaskInput::Told { run, event }, None);
    }

    /// The conversations in which an agent worked for a task.
    pub(super) fn conversations_of(&self, at: &TaskRef) -> Vec<InstanceRef> {
        let state = self.entry(at).and_then(TaskEntry::durable);
        let sessions = state.filter(|state| converses(state)).map(State::sessions);
        let keys = sessions.into_iter().flatten().map(InstanceKey::new);
        keys.filter_map(Result::ok)
            .map(|key| instance_of(&at.workspace_id, key))
            .collect()
    }

    /// The conversations of a task that is removed go with it.
    pub(super) fn forget_conversations(
        &mut self,
        fleet: &mut Fleet,
        at: &TaskRef,
        known: Vec<InstanceRef>,
    ) {
        let mut gone: BTreeSet<InstanceRef> = known.into_iter().collect();
        // A conversation that was created but got no event yet.
        if let Some(workspace) = fleet.workspace_mut(&at.workspace_id) {
            gone.extend(workspace.task_conversations.forget(at));
        }
        for conversation in gone {
            fleet.post(Message::DeleteConversation(conversation));
        }
    }
}

fn result_of(is_ok: bool, text: String) -> CliEvent {
    CliEvent::Result(RunResult {
        is_ok,
        text,
        denied: Vec::new(),
    })
}

/// Parses a reply like the output of a program.
fn events_of(reply: &str) -> Vec<CliEvent> {
    let mut parser = Parser::new(Format::Plain, &Setup::default());
    let mut events = parser.push(reply.as_bytes());
    events.extend(parser.end());
    events
}

/// An answer as output, a line at its end.
fn pieces(reply: &str) -> Vec<String> {
    let mut rest = format!("{}\n", reply.trim_end());
    let mut pieces = Vec::new();
    while rest.len() > TASK_OUTPUT_BYTES_MAX {
        let after = rest.split_off(rest.floor_char_boundary(TASK_OUTPUT_BYTES_MAX));
        pieces.push(std::mem::replace(&mut rest, after));
    }
    pieces.push(rest);
    pieces
}
