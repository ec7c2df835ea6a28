//! Turns: starting them, recording their messages, and committing them.

use std::collections::BTreeSet;

use goondan_config::ProjectConfig;
use goondan_protocol::JsonObject;
use goondan_protocol::event::TurnOutcome;
use goondan_protocol::ids::{EventId, ExtensionStates, InstanceRef, TurnId};
use goondan_protocol::ipc::{ToAgent, TurnAppend, TurnCommitted, TurnComplete, TurnStart};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::trace::{SpanId, TraceContext, TraceId};
use goondan_store::StoreError;
use goondan_store::instance::{ConversationSlice, OpenTurn};
use goondan_store::writer::operation::{AppendResult, BeginTurn, CompleteTurn};
use serde_json::json;
use serde_json::value::RawValue;

use super::conversation::Conversation;
use super::conversation::process_messages::{Appending, Fault, Loading, log_llm};
use super::quotas::TurnUse;
use super::turn::{ActiveTurn, CANCELLED, TurnContext};
use super::{Workspace, authority};
use crate::bus::context::Cx;
use crate::jobs::continuation;
use crate::limits::TURN_BYTES_MAX;
use crate::{CoreEffect, LogEvent, ProcessId};

continuation! {
    Beginning { process: ProcessId, context: TurnContext } after BeginTurn => core.on_began
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

impl Conversation {
    /// Begins the turn of the next event: after the turn in progress, if that is being committed.
    pub(super) fn begin_next_turn(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        process: ProcessId,
        bundle: Option<&ProjectConfig>,
    ) {
        let turn_id = TurnId::from(cx.uuid());
        let new_trace = TraceId::from_uuid(cx.uuid());
        let config_digest = bundle.map(|bundle| bundle.digest.clone());
        let observation = bundle.map(|bundle| bundle.observation).unwrap_or_default();
        let Some(event) = self.next_event() else {
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
        if let Err(wrong) = self.begin_turn(context.clone()) {
            return self.log_mistake(cx, at, wrong);
        }
        let begin = BeginTurn {
            instance: at.clone(),
            turn_id,
            event_id,
            config_digest,
            observation,
            at: cx.now().wall,
        };
        let beginning = Beginning {
            instance: at.clone(),
            process,
            context,
        };
        cx.store(begin, beginning);
    }

    /// Counts a reply of the turn in progress toward the turn's append limit.
    pub(crate) fn note_reply(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        turn_id: &TurnId,
        event: &RawValue,
    ) {
        let turn = self.turn_mut();
        if let Some(turn) = turn.filter(|turn| turn.turn_id == *turn_id) {
            turn.used.append(event.get().len());
        }
        log_llm(cx, at, turn_id, event);
    }
}

impl Workspace {
    /// Handles the result of a commit. Returns the digest of the turn's configuration if it
    /// succeeded.
    pub(crate) fn on_committed(
        &mut self,
        cx: &mut Cx,
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
            self.on_store_failure(cx, at, process, &error);
            return None;
        }
        let now_ms = cx.now().mono_ms;
        let entry = self.conversations.get_mut(&at.instance_key)?;
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
        let mut logged = JsonObject::new();
        if let Some(began_ms) = began_ms {
            logged.insert(
                "durationMs".to_owned(),
                json!(now_ms.saturating_sub(began_ms)),
            );
        }
        self.announce_with(cx, committed, trace, logged);
        self.count_turn(cx, at, status, began_ms);
        if dropped > 0 {
            let event = LogEvent::warn("too many reports of a turn; some dropped").of(at);
            let event = event.with("turnId", turn_id.as_str());
            self.log(cx, event.with("dropped", dropped).in_trace(trace));
        }
        if let Some(process) = process {
            let committed = TurnCommitted {
                turn_id: turn_id.clone(),
            };
            if let Some(entry) = self.conversations.get(&at.instance_key) {
                let committed = ToAgent::TurnCommitted(committed);
                entry.send(cx, at, (process, None), trace, committed);
            }
            cx.emit(CoreEffect::SetTrace {
                process,
                trace: None,
            });
        }
        self.end_approvals(cx, at, &format!("the turn is {status}"));
        self.answer_waiters(cx, at, event_id, outcome);
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.end_questions(cx, at);
            entry.note_turn(cx, at, outcome);
            if let Some(reason) = restart {
                entry.restart_as_wished(cx, at, &reason);
            }
        }
        Some(began_under)
    }

    /// Handles the result of beginning a turn. Returns the turn if it was passed to its process.
    pub(crate) fn on_began(
        &mut self,
        cx: &mut Cx,
        beginning: Beginning,
        result: Result<OpenTurn, StoreError>,
    ) -> Option<TurnId> {
        let (at, process) = (&beginning.instance, beginning.process);
        let mut context = beginning.context;
        let open = match result {
            Ok(open) => open,
            Err(error) => {
                if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
                    entry.on_turn_not_begun();
                }
                // A user canceled the event in the meantime, so the queue must be read again.
                if let StoreError::WrongEvent { .. } = error {
                    self.invalidate_queue(cx, at);
                } else {
                    self.on_store_failure(cx, at, Some(process), &error);
                }
                return None;
            }
        };
        context.trace.span_id = SpanId::of_turn(&open.turn_id);
        let trace = context.trace;
        let handed_over_ms = cx.now().mono_ms;
        let entry = self.conversations.get_mut(&at.instance_key)?;
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
            entry.log_mistake(cx, at, wrong);
            entry.kill(cx, process, false);
            return None;
        }
        cx.emit(CoreEffect::SetTrace {
            process,
            trace: Some(trace),
        });
        let started = LifecycleEvent::TurnStarted {
            instance_key: at.instance_key.clone(),
            turn_id: open.turn_id,
            event_id,
            attempt: open.attempt,
        };
        self.announce(cx, started, Some(trace));
        let start = ToAgent::Event(Box::new(start));
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.send(cx, at, (process, None), Some(trace), start);
            entry.hand_over_answers(cx, at);
        }
        Some(turn_id)
    }

    pub(super) fn on_page_for_agent(
        &mut self,
        cx: &mut Cx,
        loading: &Loading,
        result: Result<Box<ConversationSlice>, StoreError>,
    ) {
        let at = &loading.instance;
        match result {
            Ok(page) => {
                if let Some(entry) = self.conversations.get_mut(&at.instance_key)
                    && entry.on_page_read(cx, loading, *page)
                {
                    self.advance(cx, at);
                }
            }
            Err(error) => self.on_store_failure(cx, at, Some(loading.process), &error),
        }
    }

    /// Ends a process for a fault in its conversation.
    fn on_fault(&mut self, cx: &mut Cx, at: &InstanceRef, process: ProcessId, fault: Fault) {
        match fault {
            Fault::Broken(problem) => self.on_broken(cx, process, problem),
            Fault::Store(error) => self.on_store_failure(cx, at, Some(process), &error),
            Fault::TurnTooLarge { last_seq } => self.fail_turn(cx, at, process, last_seq),
        }
    }

    /// Handles an append to the conversation by an agent's process.
    pub(crate) fn on_turn_append(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        process: ProcessId,
        append: TurnAppend,
    ) {
        if let Some(entry) = self.conversations.get_mut(&at.instance_key)
            && let Err(fault) = entry.on_turn_append(cx, at, process, append)
        {
            self.on_fault(cx, at, process, fault);
        }
    }

    /// Fails a turn that exceeded the append limit, and kills its process.
    fn fail_turn(&mut self, cx: &mut Cx, at: &InstanceRef, process: ProcessId, last_seq: u64) {
        let Some(turn) = self.turn_of(&at.instance_key).cloned() else {
            return;
        };
        let message = format!(
            "the turn appended more than {TURN_BYTES_MAX} bytes to its conversation; earlier \
             messages are kept. Give the agent smaller tasks, or let it write to files"
        );
        let event = LogEvent::error("turn grew too large; ending it").of(at);
        let event = event.with("turnId", turn.turn_id.as_str());
        self.log(
            cx,
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
        self.kill(cx, process, true);
        self.on_turn_complete(cx, at, process, complete);
    }

    pub(super) fn on_appended(
        &mut self,
        cx: &mut Cx,
        appending: &Appending,
        result: Result<AppendResult, StoreError>,
    ) {
        let (at, process) = (&appending.instance, appending.process);
        if let Some(entry) = self.conversations.get_mut(&at.instance_key)
            && let Err(fault) = entry.on_appended(cx, appending, result)
        {
            self.on_fault(cx, at, process, fault);
        }
    }

    pub(super) fn on_turn_complete(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        process: ProcessId,
        complete: TurnComplete,
    ) {
        let Some(entry) = self.conversations.get(&at.instance_key) else {
            return;
        };
        let turn = entry.open_turn();
        let Some(turn) = turn.filter(|turn| turn.turn_id == complete.turn_id) else {
            let over = entry.turn_is_over("it completed a turn that is not in progress");
            if let Err(fault) = over {
                self.on_fault(cx, at, process, fault);
            }
            return;
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
            return self.on_broken(cx, process, "it used an event that it was not given");
        }
        let agent = self
            .conversations
            .get(&at.instance_key)
            .and_then(Conversation::definition);
        if !agent.is_some_and(|agent| authority::may_remember(agent, &states)) {
            return self.on_broken(
                cx,
                process,
                "it stored state for an extension that it does not have",
            );
        }
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        if let Err(wrong) = entry.complete_turn(answered.clone()) {
            return entry.log_mistake(cx, at, wrong);
        }
        let complete = CompleteTurn {
            instance: at.clone(),
            turn_id: turn_id.clone(),
            last_seq,
            also: answered.clone(),
            states,
            outcome: outcome.clone(),
            at: cx.now().wall,
        };
        let completing = Completing {
            instance: at.clone(),
            process: Some(process),
            turn_id,
            event_id,
            also: answered,
            outcome,
        };
        cx.store(complete, completing);
        self.begin_behind(cx, at, process);
    }
}
