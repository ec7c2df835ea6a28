//! Messages between a conversation and its process.

use goondan_protocol::agents::AgentAnswer;
use goondan_protocol::envelope::Address;
use goondan_protocol::ids::{InstanceRef, StepId, TurnId};
use goondan_protocol::ipc::{ConversationPage, EnvelopeHeader, ToAgent, TurnAppend, TurnAppended};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::process_limits::ProcessLimits;
use goondan_protocol::trace::TraceContext;
use goondan_store::StoreError;
use goondan_store::instance::{ConversationSlice, LlmMessage};
use goondan_store::writer::operation::{AppendEvent, AppendResult, LogLlm, ReadPage};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::ProcessOwner;
use super::super::agent_replies::pending_replies::Requester;
use super::{Conversation, WrongStage};
use crate::bus::context::Cx;
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
    Loading { process: ProcessId, request_id: Option<u64> } after ReadPage => &workspace.on_page_for_agent
}

continuation! {
    /// Appends a message of an agent.
    Appending { process: ProcessId } after AppendEvent => &workspace.on_appended
}

/// Reason the process of a conversation must end.
#[derive(Debug)]
pub(in crate::fleet) enum Fault {
    /// It violated the protocol.
    Broken(&'static str),
    /// The store failed.
    Store(StoreError),
    /// Its turn appended too much; the messages until this one are kept.
    TurnTooLarge { last_seq: u64 },
}

impl Conversation {
    /// The header of messages to its agent.
    pub(in crate::fleet) fn head(&self, at: &InstanceRef) -> EnvelopeHeader {
        let to = Address::Agent {
            name: self.agent.clone(),
            instance_key: at.instance_key.clone(),
        };
        EnvelopeHeader::new(Address::Orchestrator, to)
    }

    /// Sends a message to this process, if it is the conversation's.
    pub(crate) fn send(
        &self,
        cx: &mut Cx,
        at: &InstanceRef,
        (process, reply_to): (ProcessId, Option<u64>),
        trace: Option<TraceContext>,
        message: ToAgent,
    ) {
        if self.process() != Some(process) {
            return;
        }
        let head = EnvelopeHeader {
            trace,
            ..self.head(at).answering(reply_to)
        };
        cx.emit(CoreEffect::Send {
            process,
            head,
            message: Box::new(message.into()),
        });
    }

    /// Writes a line about it to the log.
    pub(in crate::fleet) fn log(&self, cx: &mut Cx, at: &InstanceRef, event: LogEvent) {
        cx.log(event.about(at, Some(&self.agent)));
    }

    /// Sends an event about it to the log, the audit log and the watchers.
    pub(in crate::fleet) fn announce(
        &self,
        cx: &mut Cx,
        at: &InstanceRef,
        event: LifecycleEvent,
        trace: Option<TraceContext>,
    ) {
        cx.announce(&at.workspace_id, event, Some(&self.agent), trace);
    }

    /// Answers a request of its agent, unless the process that asked has exited.
    pub(in crate::fleet) fn answer(&self, cx: &mut Cx, requester: &Requester, answer: AgentAnswer) {
        let to = (requester.process, requester.request_id);
        let answer = ToAgent::AgentAnswer(Box::new(answer));
        self.send(cx, &requester.at, to, None, answer);
    }

    /// Starts its process.
    pub(in crate::fleet) fn spawn(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        limits: ProcessLimits,
    ) -> ProcessId {
        let owner = ProcessOwner::Agent(at.clone());
        cx.spawn(&mut self.slot, &owner, Some(&self.agent), limits)
    }

    /// Asks its process to finish and end.
    pub(in crate::fleet) fn drain(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        grace_period_ms: u64,
        reason: &str,
    ) {
        let owner = ProcessOwner::Agent(at.clone());
        let agent = Some(&self.agent);
        cx.drain(&mut self.slot, &owner, agent, grace_period_ms, reason);
    }

    /// Kills its process, which is not in a turn: it has the old conversation loaded.
    pub(crate) fn end_idle_process(&mut self, cx: &mut Cx) {
        cx.kill(&mut self.slot, true);
    }

    /// Kills a process, if it is the conversation's. With `is_wanted`, its exit is not a crash.
    pub(in crate::fleet) fn kill(&mut self, cx: &mut Cx, process: ProcessId, is_wanted: bool) {
        if self.process() == Some(process) {
            cx.kill(&mut self.slot, is_wanted);
        }
    }

    /// Handles a failure of the store. The process ends; the next process resumes from durable data,
    /// with a back-off between attempts. The failure does not count against an event.
    pub(in crate::fleet) fn on_store_failure(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        process: Option<ProcessId>,
        error: &StoreError,
    ) {
        self.log(cx, at, store_failure(error));
        let process = process.or(self.process());
        self.on_store_failed(process);
        if let Some(process) = process {
            self.kill(cx, process, false);
        }
    }

    /// Logs an event in the wrong stage, once for each kind.
    pub(in crate::fleet) fn log_mistake(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        wrong: WrongStage,
    ) {
        if self.is_new_mistake(wrong) {
            let event = LogEvent::error("event in the wrong stage of a conversation");
            let event = event.with("event", wrong.event).with("stage", wrong.stage);
            self.log(cx, at, event);
        }
    }

    /// Its process requests a page of the conversation.
    pub(crate) fn load_page(
        &self,
        cx: &mut Cx,
        at: &InstanceRef,
        (process, request_id): (ProcessId, Option<u64>),
        offset: u64,
    ) {
        let extensions = self.definition().map(|agent| &agent.extensions);
        let extensions = extensions.into_iter().flatten();
        let states_of = match offset {
            0 => extensions.map(|held| held.name.clone()).collect(),
            _ => Vec::new(),
        };
        let read = ReadPage {
            instance: at.clone(),
            offset,
            states_of,
        };
        let instance = at.clone();
        cx.store(
            read,
            Loading {
                instance,
                process,
                request_id,
            },
        );
    }

    /// Sends a page to its process. True if the next step of the conversation may depend on it.
    pub(in crate::fleet) fn on_page_read(
        &mut self,
        cx: &mut Cx,
        loading: &Loading,
        page: ConversationSlice,
    ) -> bool {
        let at = &loading.instance;
        for finding in &page.damage {
            let event = LogEvent::error("skipped damaged record of a conversation");
            let event = event.with("path", finding.path.display().to_string());
            self.log(cx, at, event.with("problem", finding.problem.clone()));
        }
        let is_last = page.next.is_none();
        let page = ConversationPage {
            messages: page.messages,
            events: page.events,
            states: page.states,
            next: page.next,
        };
        let to = (loading.process, loading.request_id);
        self.send(cx, at, to, None, ToAgent::ConversationPage(page));
        self.on_page_sent(loading.process, is_last)
    }

    /// Its process appends to the conversation.
    pub(in crate::fleet) fn on_turn_append(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        process: ProcessId,
        append: TurnAppend,
    ) -> Result<(), Fault> {
        let seq = append.seq;
        let is_open = self
            .open_turn()
            .is_some_and(|turn| turn.turn_id == append.turn_id);
        let turn = self.turn_mut().filter(|_| is_open);
        let Some(turn) = turn else {
            return self.turn_is_over("it appended to a turn that is not in progress");
        };
        if turn.used.append(append.event.get().len()) > TURN_BYTES_MAX {
            let last_seq = seq.saturating_sub(1);
            return Err(Fault::TurnTooLarge { last_seq });
        }
        match self.held_back(process) {
            Some(held) => held.append(append),
            None => self.append(cx, at, process, append),
        }
        Ok(())
    }

    /// Handles a message about a turn that is over for its process. A process that is being killed
    /// may not have noticed.
    pub(in crate::fleet) fn turn_is_over(&self, problem: &'static str) -> Result<(), Fault> {
        match self.slot.is_dying() {
            true => Ok(()),
            false => Err(Fault::Broken(problem)),
        }
    }

    /// Has the store append to the conversation.
    pub(in crate::fleet) fn append(
        &self,
        cx: &mut Cx,
        at: &InstanceRef,
        process: ProcessId,
        append: TurnAppend,
    ) {
        let TurnAppend {
            turn_id,
            seq,
            event,
        } = append;
        log_llm(cx, at, &turn_id, &event);
        let append = AppendEvent {
            instance: at.clone(),
            turn_id,
            seq,
            event,
        };
        let instance = at.clone();
        cx.store(append, Appending { instance, process });
    }

    /// The store has appended, or failed.
    pub(in crate::fleet) fn on_appended(
        &self,
        cx: &mut Cx,
        appending: &Appending,
        result: Result<AppendResult, StoreError>,
    ) -> Result<(), Fault> {
        let AppendResult { turn_id, seq } = result.map_err(Fault::Store)?;
        let turn = self.turn().filter(|turn| turn.turn_id == turn_id);
        let is_ending = turn.is_some() && self.open_turn().is_none();
        if !is_ending {
            let appended = ToAgent::TurnAppended(TurnAppended { turn_id, seq });
            let to = (appending.process, None);
            self.send(cx, &appending.instance, to, None, appended);
        }
        Ok(())
    }

    /// Passes the waiting answers to the turn in progress.
    pub(in crate::fleet) fn hand_over_answers(&mut self, cx: &mut Cx, at: &InstanceRef) {
        let Some((process, inputs)) = self.take_new_answers() else {
            return;
        };
        for input in inputs {
            let message = ToAgent::TurnInput(Box::new(input));
            self.send(cx, at, (process, None), None, message);
        }
    }
}

/// A line of the log about a store that failed to serve an agent.
pub(in crate::fleet) fn store_failure(error: &StoreError) -> LogEvent {
    let event = LogEvent::error("store failed to serve agent; ending its process");
    event.with("error", goondan_log::error_chain(error))
}

/// Records a message to or from the model in the message log (`LLM-1`).
pub(in crate::fleet) fn log_llm(cx: &mut Cx, at: &InstanceRef, turn_id: &TurnId, event: &RawValue) {
    // The store rejects other events.
    let Ok(exchanged) = serde_json::from_str::<ModelTraffic<'_>>(event.get()) else {
        return;
    };
    let Some(message) = exchanged.message.filter(|_| exchanged.kind == "append") else {
        return;
    };
    let message = LlmMessage {
        at: cx.now().wall,
        turn_id: turn_id.clone(),
        step_id: message.source.step_id,
        message: message.data.to_owned(),
    };
    let op = LogLlm {
        instance: at.clone(),
        message: Box::new(message),
    };
    cx.store(op, LogFailure(at.clone()));
}
