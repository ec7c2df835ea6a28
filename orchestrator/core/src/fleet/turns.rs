//! Turns: starting them, recording their messages, and committing them.

use std::collections::BTreeSet;

use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, ExtensionStates, InstanceRef, StepId, TurnId};
use goondan_protocol::ipc::{
    ConversationPage, ToAgent, TurnAppend, TurnAppended, TurnCommitted, TurnComplete, TurnStart,
};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};
use goondan_store::StoreError;
use goondan_store::instance::{ConversationSlice, LlmMessage, OpenTurn};
use goondan_store::writer::operation::{
    AppendEvent, AppendResult, BeginTurn, CompleteTurn, LogLlm, ReadPage,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::conversation::Conversation;
use super::quotas::TurnUse;
use super::turn::{ActiveTurn, CANCELLED, TurnContext};
use super::{Fleet, authority};
use crate::jobs::{LogFailure, continuation};
use crate::limits::TURN_BYTES_MAX;
use crate::{CoreEffect, LogEvent, ProcessId};

/// The part of a message event that identifies traffic with a model.
#[derive(Deserialize)]
struct ModelTraffic<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    message: Option<ExchangedMessage<'a>>,
}

#[derive(Deserialize)]
struct ExchangedMessage<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
    source: ExchangedSource,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExchangedSource {
    step_id: Option<StepId>,
}

continuation! {
    /// Reads a page of the conversation for its agent.
    Loading { process: ProcessId, request_id: Option<u64> } after ReadPage => core.fleet.on_page_for_agent
}

continuation! {
    Beginning { process: ProcessId, context: TurnContext } after BeginTurn => core.on_began
}

continuation! {
    /// Appends a message of an agent.
    Appending { process: ProcessId } after AppendEvent => &core.fleet.on_appended
}

continuation! {
    Completing {
        // The process that waits for the commit; `None` if it was stopped with the turn.
        process: Option<ProcessId>,
        turn_id: TurnId,
        event_id: EventId,
        also: Vec<EventId>,
        outcome: TurnOutcome,
    } after CompleteTurn => &core.on_committed
}

fn word_of(outcome: &TurnOutcome) -> &'static str {
    match outcome {
        TurnOutcome::Completed { .. } => "completed",
        TurnOutcome::Failed { code, .. } if code == CANCELLED => "cancelled",
        TurnOutcome::Failed { .. } => "failed",
    }
}

impl Fleet {
    /// Handles the result of a commit. Returns the digest of the turn's configuration if it
    /// succeeded.
    pub(crate) fn on_committed(
        &mut self,
        completing: &Completing,
        result: Result<(), StoreError>,
    ) -> Option<Option<String>> {
        let Completing {
            instance,
            process,
            turn_id,
            event_id,
            also,
            outcome,
        } = &completing;
        let (at, process) = (instance, *process);
        if let Err(error) = result {
            self.on_store_failure(at, process, &error);
            return None;
        }
        let now_ms = self.now.mono_ms;
        let entry = self.conversation_mut(at)?;
        let is_of_turn = |id: &EventId| id == event_id || also.contains(id);
        let is_work_done = word_of(outcome) != "cancelled";
        let turn = entry.on_turn_ended(now_ms, turn_id, is_of_turn, is_work_done);
        let began_ms = turn.as_ref().map(|turn| turn.handed_over_ms);
        let dropped = turn.as_ref().map_or(0, |turn| turn.used.dropped());
        let trace = turn.as_ref().map(|turn| turn.context.trace);
        let began_under = turn.as_ref().and_then(|t| t.context.config_digest.clone());
        let restart = turn.and_then(|turn| turn.restart);
        let status = word_of(outcome);
        let committed = LifecycleEvent::TurnCommitted {
            instance_key: at.instance_key.clone(),
            turn_id: turn_id.clone(),
            event_id: event_id.clone(),
            outcome: status.to_owned(),
        };
        self.announce(&at.workspace_id, committed, trace);
        self.count_turn(at, status, began_ms);
        if dropped > 0 {
            let event = LogEvent::warn("too many reports of a turn; some dropped").of(at);
            let event = event.with("turnId", turn_id.as_str());
            self.log(event.with("dropped", dropped).in_trace(trace));
        }
        if let Some(process) = process {
            let committed = TurnCommitted {
                turn_id: turn_id.clone(),
            };
            self.send_agent(at, process, None, trace, ToAgent::TurnCommitted(committed));
            self.push(CoreEffect::SetTrace {
                process,
                trace: None,
            });
        }
        self.end_approvals(at, &format!("the turn is {status}"));
        self.answer_waiters(at, event_id, outcome);
        self.end_questions(at);
        self.note_turn(at, outcome);
        if let Some(reason) = restart {
            self.restart_as_wished(at, &reason);
        }
        Some(began_under)
    }

    /// Handles the result of beginning a turn. Returns the turn if it was passed to its process.
    pub(crate) fn on_began(
        &mut self,
        beginning: Beginning,
        result: Result<OpenTurn, StoreError>,
    ) -> Option<TurnId> {
        let (at, process) = (&beginning.instance, beginning.process);
        let mut context = beginning.context;
        let open = match result {
            Ok(open) => open,
            Err(error) => {
                if let Some(entry) = self.conversation_mut(at) {
                    entry.on_turn_not_begun();
                }
                // A user canceled the event in the meantime, so the queue must be read again.
                if let StoreError::WrongEvent { .. } = error {
                    self.invalidate_queue(at);
                } else {
                    self.on_store_failure(at, Some(process), &error);
                }
                return None;
            }
        };
        context.trace.span_id = SpanId::of_turn(&open.turn_id);
        let trace = context.trace;
        let handed_over_ms = self.now.mono_ms;
        let entry = self.conversation_mut(at)?;
        let event = entry.queue().get(&context.event_id).cloned();
        let is_current = entry.slot().ready() == Some(process);
        let Some(event) = event.filter(|_| is_current) else {
            entry.on_turn_not_begun();
            return None;
        };
        let start = TurnStart {
            turn_id: open.turn_id.clone(),
            attempt: open.attempt,
            event,
        };
        let event_id = context.event_id.clone();
        let turn_id = open.turn_id.clone();
        let turn = ActiveTurn {
            turn_id: open.turn_id.clone(),
            context,
            used: TurnUse::new(handed_over_ms),
            handed_over_ms,
            inputs: BTreeSet::new(),
            restart: None,
        };
        if let Err(wrong) = entry.on_turn_begun(turn) {
            // The next process continues from the store's state.
            self.log_mistake(at, wrong);
            self.kill(process, false);
            return None;
        }
        self.push(CoreEffect::SetTrace {
            process,
            trace: Some(trace),
        });
        let started = LifecycleEvent::TurnStarted {
            instance_key: at.instance_key.clone(),
            turn_id: open.turn_id,
            event_id,
            attempt: open.attempt,
        };
        self.announce(&at.workspace_id, started, Some(trace));
        let start = ToAgent::Event(Box::new(start));
        self.send_agent(at, process, None, Some(trace), start);
        self.hand_over_answers(at);
        Some(turn_id)
    }

    /// Handles an agent's request for its conversation.
    pub(crate) fn on_conversation_load(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        request_id: Option<u64>,
        offset: u64,
    ) {
        let instance = at.clone();
        let agent = self.conversation(at).and_then(Conversation::definition);
        let extensions = agent.map_or(&[][..], |agent| &agent.extensions);
        let states_of = match offset {
            0 => extensions.iter().map(|held| held.name.clone()).collect(),
            _ => Vec::new(),
        };
        let read = ReadPage {
            instance: instance.clone(),
            offset,
            states_of,
        };
        self.store(
            read,
            Loading {
                instance,
                process,
                request_id,
            },
        );
    }

    fn on_page_for_agent(
        &mut self,
        loading: Loading,
        result: Result<Box<ConversationSlice>, StoreError>,
    ) {
        let Loading {
            instance,
            process,
            request_id,
        } = loading;
        let at = &instance;
        let page = match result {
            Ok(page) => *page,
            Err(error) => return self.on_store_failure(at, Some(process), &error),
        };
        for finding in &page.damage {
            let event = LogEvent::error("skipped damaged record of a conversation");
            let path = finding.path.display().to_string();
            self.log(
                event
                    .of(at)
                    .with("path", path)
                    .with("problem", finding.problem.clone()),
            );
        }
        let is_last = page.next.is_none();
        let page = ConversationPage {
            messages: page.messages,
            events: page.events,
            states: page.states,
            next: page.next,
        };
        self.send_agent(
            at,
            process,
            request_id,
            None,
            ToAgent::ConversationPage(page),
        );
        let entry = self.conversation_mut(at);
        if entry.is_some_and(|entry| entry.on_page_sent(process, is_last)) {
            self.advance(at);
        }
    }

    /// Begins the turn of the next event: after the turn in progress, if that is being committed.
    pub(super) fn begin_turn(&mut self, at: &InstanceRef, process: ProcessId) {
        let turn_id = TurnId::from(self.uuid());
        let new_trace = TraceId::from_uuid(self.uuid());
        let wall = self.now.wall;
        let workspace = self.workspaces.get(&at.workspace_id);
        let bundle = workspace.and_then(|workspace| workspace.bundle.as_ref());
        let config_digest = bundle.map(|bundle| bundle.digest.clone());
        let observation = bundle.map(|bundle| bundle.observation).unwrap_or_default();
        let Some(entry) = self.conversation_mut(at) else {
            return;
        };
        let Some(event) = entry.next_event() else {
            return;
        };
        let trace = TraceContext {
            trace_id: event.trace_id.unwrap_or(new_trace),
            // Another attempt continues the open turn and its span.
            span_id: SpanId::of_turn(&turn_id),
            parent_span_id: event.parent_span_id,
        };
        let event_id = event.id.clone();
        let context = TurnContext {
            event_id: event_id.clone(),
            trace,
            config_digest: config_digest.clone(),
        };
        if let Err(wrong) = entry.begin_turn(context.clone()) {
            return self.log_mistake(at, wrong);
        }
        let instance = at.clone();
        let begin = BeginTurn {
            instance: instance.clone(),
            turn_id,
            event_id,
            config_digest,
            observation,
            at: wall,
        };
        self.store(
            begin,
            Beginning {
                instance,
                process,
                context,
            },
        );
    }

    /// The turn that a process works on, if its id is `turn_id`.
    fn open_turn(&self, at: &InstanceRef, turn_id: &TurnId) -> Option<&ActiveTurn> {
        let turn = self.conversation(at)?.open_turn()?;
        (turn.turn_id == *turn_id).then_some(turn)
    }

    /// Mutable access to the turn in progress, if its id is `turn_id`.
    pub(super) fn current_turn_mut(
        &mut self,
        at: &InstanceRef,
        turn_id: &TurnId,
    ) -> Option<&mut ActiveTurn> {
        let turn = self.conversation_mut(at)?.turn_mut()?;
        (turn.turn_id == *turn_id).then_some(turn)
    }

    /// Handles an append to the conversation by an agent's process.
    pub(crate) fn on_turn_append(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        append: TurnAppend,
    ) {
        let seq = append.seq;
        let is_open = self.open_turn(at, &append.turn_id).is_some();
        let turn = self.current_turn_mut(at, &append.turn_id);
        let Some(turn) = turn.filter(|_| is_open) else {
            return self.on_turn_over(at, process, "it appended to a turn that is not in progress");
        };
        if turn.used.append(append.event.get().len()) > TURN_BYTES_MAX {
            return self.fail_turn(at, process, seq.saturating_sub(1));
        }
        if let Some(append) = self.unless_held_back(at, process, append) {
            self.append(at, process, append);
        }
    }

    pub(super) fn append(&mut self, at: &InstanceRef, process: ProcessId, append: TurnAppend) {
        let TurnAppend {
            turn_id,
            seq,
            event,
        } = append;
        self.log_llm(at, &turn_id, &event);
        let append = AppendEvent {
            instance: at.clone(),
            turn_id,
            seq,
            event,
        };
        let instance = at.clone();
        self.store(append, Appending { instance, process });
    }

    /// Handles a message about a turn that is over for its process. A process that is being killed
    /// may not have noticed.
    fn on_turn_over(&mut self, at: &InstanceRef, process: ProcessId, problem: &str) {
        let entry = self.conversation(at);
        if !entry.is_some_and(|entry| entry.slot().is_dying()) {
            self.on_broken(process, problem);
        }
    }

    /// Fails a turn that exceeded the append limit, and kills its process.
    fn fail_turn(&mut self, at: &InstanceRef, process: ProcessId, last_seq: u64) {
        let Some(turn) = self.turn_of(at).cloned() else {
            return;
        };
        let message = format!(
            "the turn appended more than {TURN_BYTES_MAX} bytes to its conversation; earlier \
             messages are kept. Give the agent smaller tasks, or let it write to files"
        );
        let event = LogEvent::error("turn grew too large; ending it").of(at);
        let event = event.with("turnId", turn.turn_id.as_str());
        self.log(
            event
                .with("problem", message.clone())
                .in_trace(Some(turn.context.trace)),
        );
        let complete = TurnComplete {
            turn_id: turn.turn_id,
            last_seq,
            outcome: TurnOutcome::Failed {
                code: "E_TURN_TOO_LARGE".to_owned(),
                message,
            },
            answered: Vec::new(),
            states: ExtensionStates::new(),
        };
        // The next process continues with the next event.
        self.kill(process, true);
        self.on_turn_complete(at, process, complete);
    }

    /// Records a message to or from the model in the message log (`LLM-1`).
    pub(super) fn log_llm(&mut self, at: &InstanceRef, turn_id: &TurnId, event: &RawValue) {
        // The store rejects other events.
        let Ok(exchanged) = serde_json::from_str::<ModelTraffic<'_>>(event.get()) else {
            return;
        };
        let Some(message) = exchanged.message.filter(|_| exchanged.kind == "append") else {
            return;
        };
        let message = LlmMessage {
            at: self.now.wall,
            turn_id: turn_id.clone(),
            step_id: message.source.step_id,
            message: message.data.to_owned(),
        };
        let op = LogLlm {
            instance: at.clone(),
            message: Box::new(message),
        };
        self.store(op, LogFailure(at.clone()));
    }

    fn on_appended(&mut self, appending: &Appending, result: Result<AppendResult, StoreError>) {
        let (at, process) = (&appending.instance, appending.process);
        match result {
            Ok(AppendResult { turn_id, seq }) => {
                let is_of_turn = |turn: &ActiveTurn| turn.turn_id == turn_id;
                let is_ending = self.open_turn(at, &turn_id).is_none();
                if is_ending && self.turn_of(at).is_some_and(is_of_turn) {
                    return;
                }
                let appended = TurnAppended { turn_id, seq };
                self.send_agent(at, process, None, None, ToAgent::TurnAppended(appended));
            }
            Err(error) => self.on_store_failure(at, Some(process), &error),
        }
    }

    pub(super) fn on_turn_complete(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        complete: TurnComplete,
    ) {
        let Some(turn) = self.open_turn(at, &complete.turn_id) else {
            return self.on_turn_over(at, process, "it completed a turn that is not in progress");
        };
        let event_id = turn.context.event_id.clone();
        let TurnComplete {
            turn_id,
            last_seq,
            outcome,
            answered,
            states,
        } = complete;
        if !answered.iter().all(|id| turn.inputs.contains(id)) {
            return self.on_broken(process, "it used an event that it was not given");
        }
        let agent = self.conversation(at).and_then(Conversation::definition);
        if !agent.is_some_and(|agent| authority::may_remember(agent, &states)) {
            return self.on_broken(
                process,
                "it stored state for an extension that it does not have",
            );
        }
        let Some(entry) = self.conversation_mut(at) else {
            return;
        };
        if let Err(wrong) = entry.complete_turn(answered.clone()) {
            return self.log_mistake(at, wrong);
        }
        let complete = CompleteTurn {
            instance: at.clone(),
            turn_id: turn_id.clone(),
            last_seq,
            also: answered.clone(),
            states,
            outcome: outcome.clone(),
            at: self.now.wall,
        };
        let completing = Completing {
            instance: at.clone(),
            process: Some(process),
            turn_id,
            event_id,
            also: answered,
            outcome,
        };
        self.store(complete, completing);
        self.begin_behind(at, process);
    }
}
