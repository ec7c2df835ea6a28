//! Records a model's reply in the turn's journal, once for each step, before the agent receives it.
//! The usage is written to the workspace's ledger before the reply.

use goondan_protocol::call::{
    CallError, CallErrorCode, CallId, CallOutcome, CallTarget, ModelAnswer, OutgoingCall,
    RecordedResult,
};
use goondan_protocol::ids::{InstanceRef, MessageId, StepId, TurnId};
use goondan_protocol::limits::MAX_MESSAGE_BYTES;
use goondan_protocol::message::MessageRole;
use goondan_protocol::trace::SpanId;
use goondan_protocol::usage::{COST, Charge, MicroUsd, ReplyCost, Usage};
use goondan_protocol::{JsonObject, time::Timestamp};
use goondan_store::StoreError;
use goondan_store::ledger::{LedgerEntry, ReplyPurpose};
use goondan_store::writer::operation::{AppendEvent, AppendResult, RecordUsage};
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::accounts::agents_of;
use super::budgets::task_of;
use super::last_reply::LastReply;
use super::messages::answer_call;
use super::{CallState, Calls, OpenCall};
use crate::fleet::Fleet;
use crate::fleet::conversation::Conversation;
use crate::fleet::task_conversations::TaskConversation;
use crate::jobs::continuation;
use crate::{LogEvent, ProcessId};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AssistantMessage<'a> {
    id: &'a MessageId,
    data: AssistantData<'a>,
    metadata: &'a JsonObject,
    created_at: Timestamp,
    source: AssistantSource<'a>,
}

#[derive(Serialize)]
struct AssistantData<'a> {
    role: MessageRole,
    content: &'a RawValue,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "assistant", rename_all = "camelCase")]
struct AssistantSource<'a> {
    step_id: &'a StepId,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "append")]
struct Append<'a> {
    message: &'a RawValue,
}

/// The outcome for an agent whose model has replied.
fn recorded(message: Box<RawValue>) -> CallOutcome {
    match to_raw_value(&RecordedResult { message }) {
        Ok(raw) => CallOutcome::Ok(raw),
        Err(error) => {
            CallOutcome::Error(CallError::new(CallErrorCode::Internal, error.to_string()))
        }
    }
}

continuation! {
    /// Writes the usage of a reply to the ledger, before the reply is recorded.
    CountingReply { turn_id: TurnId, call_id: CallId } after RecordUsage => &core.calls.on_reply_counted in fleet
}

continuation! {
    /// Records a model's reply, before the agent receives it.
    RecordingReply { turn_id: TurnId, call_id: CallId } after AppendEvent => &core.calls.on_reply_recorded in fleet
}

/// The step whose reply must be recorded; `None` if the call has none.
pub(super) fn step_to_record(
    fleet: &Fleet,
    at: &InstanceRef,
    asked: &OutgoingCall,
) -> Result<Option<StepId>, &'static str> {
    if asked.record.is_none() {
        return Ok(None);
    }
    let is_model = matches!(asked.target, CallTarget::Model { .. });
    let place = asked.place.as_ref();
    let step_id = place.and_then(|place| place.step_id.clone());
    let turn_id = place.map(|place| &place.turn_id);
    match step_id {
        Some(step_id)
            if is_model
                && fleet
                    .conversation(at)
                    .and_then(Conversation::turn)
                    .map(|turn| &turn.turn_id)
                    == turn_id =>
        {
            Ok(Some(step_id))
        }
        _ => Err("it asked to record a reply, but the reply belongs to no step in progress"),
    }
}

/// Current cost of a call's tokens; `None` if the model has no price.
pub(super) fn cost_of(fleet: &Fleet, call: &OpenCall, usage: &Usage) -> Option<MicroUsd> {
    let CallTarget::Model { name } = &call.target else {
        return None;
    };
    let bundle = fleet.bundle(&call.at.workspace_id)?;
    let price = bundle.prices.get(name)?.at(fleet.now().wall)?;
    Some(price.of(usage))
}

impl Calls {
    /// Answers with the recorded reply of a step, or attaches the agent to the call in progress.
    /// False if neither exists.
    pub(super) fn answer_from_record(
        &mut self,
        fleet: &mut Fleet,
        at: &InstanceRef,
        step_id: &StepId,
        waiter: (ProcessId, CallId),
        target: &CallTarget,
    ) -> bool {
        let replied = self.replied.get(at).cloned();
        if let Some(replied) = replied.filter(|replied| replied.step_id == *step_id) {
            answer_call(fleet, at, waiter, recorded(replied.message));
            return true;
        }
        let Some(id) = self.ids(|call| call.is_for(at, step_id)).pop() else {
            return false;
        };
        let Some(call) = self.open.get_mut(&id) else {
            return false;
        };
        match &call.state {
            // The configuration now names another model.
            CallState::Waiting | CallState::Running { .. } if call.target != *target => {
                self.give_up(fleet, id);
                return false;
            }
            CallState::Waiting | CallState::Running { .. } | CallState::Recording { .. } => {
                call.waiter = Some(waiter);
            }
            CallState::Unrecorded { message } => {
                let message = message.clone();
                call.waiter = Some(waiter);
                self.write_reply(fleet, id, message);
            }
        }
        true
    }

    /// Makes a model's reply durable.
    pub(super) fn record_reply(&mut self, fleet: &mut Fleet, id: CallId, answer: &RawValue) {
        match self.message_of(fleet, id, answer) {
            Ok((message, spent)) => {
                let bill = self.bill_of(fleet, id, spent).map(Box::new);
                if let Some(call) = self.open.get_mut(&id) {
                    call.bill = bill;
                    if let Some(lane) = self.lanes.get_mut(&call.lane) {
                        lane.ended();
                    }
                }
                self.write_reply(fleet, id, message);
            }
            Err(error) => {
                self.count_failure(fleet, id, error.usage.as_deref().copied());
                self.end_call(fleet, id, CallOutcome::Error(error));
            }
        }
    }

    /// Ledger entry of a reply.
    pub(super) fn bill_of(
        &mut self,
        fleet: &mut Fleet,
        id: CallId,
        spent: ReplyCost,
    ) -> Option<LedgerEntry> {
        let entry_id = fleet.cx().uuid();
        let call = self.open.get(&id)?;
        let CallTarget::Model { name: model } = call.target.clone() else {
            return None;
        };
        let (at, turn_id) = (call.at.clone(), call.place.as_ref()?.turn_id.clone());
        let (step_id, _) = call.record.clone()?;
        let received_at = fleet.now().wall;
        // Unreported usage counts as the reserved amount.
        let reserved = call.reserved.unwrap_or_default();
        let assumed = Charge {
            tokens: spent.usage.map_or(reserved.tokens, |_| 0),
            micro_usd: spent.cost.map_or(reserved.micro_usd, |_| MicroUsd(0)),
        };
        let mut asked_by_agents = agents_of(&call.payers);
        let entry = fleet.conversation(&at)?;
        let agent_name = entry.agent().clone();
        asked_by_agents.retain(|agent| *agent != agent_name);
        let task = task_of(fleet, &at).map(TaskConversation::ledger_task);
        let bundle_revision = entry.bundle_revision().cloned();
        let asked_by = entry.asked_by(&at.instance_key);
        Some(LedgerEntry {
            id: entry_id,
            at: received_at,
            asked_by,
            agent_name,
            asked_by_agents,
            instance_key: at.instance_key,
            purpose: ReplyPurpose::Step {
                turn_id,
                step_id,
                task,
                bundle_revision,
            },
            model,
            usage: spent.usage,
            cost_micro_usd: spent.cost,
            assumed,
        })
    }

    /// The message to record, and its usage.
    fn message_of(
        &self,
        fleet: &Fleet,
        id: CallId,
        answer: &RawValue,
    ) -> Result<(Box<RawValue>, ReplyCost), CallError> {
        let internal = |message: String| CallError::new(CallErrorCode::Internal, message);
        let call = self.open.get(&id);
        let Some((call, (step_id, record))) = call.and_then(|c| Some((c, c.record.as_ref()?)))
        else {
            return Err(internal("the reply belongs to no step".to_owned()));
        };
        let mut answer: ModelAnswer = serde_json::from_str(answer.get())
            .map_err(|error| internal(format!("the model's connector sent no reply: {error}")))?;
        // The cost uses the current price.
        answer.metadata.remove(COST);
        let usage = ReplyCost::of_metadata(&answer.metadata).usage;
        if let Some(cost) = usage.and_then(|usage| cost_of(fleet, call, &usage)) {
            answer.metadata.insert(COST.to_owned(), json!(cost));
        }
        let spent = ReplyCost::of_metadata(&answer.metadata);
        let message = AssistantMessage {
            id: &record.message_id,
            data: AssistantData {
                role: MessageRole::Assistant,
                content: &answer.content,
            },
            metadata: &answer.metadata,
            created_at: fleet.now().wall,
            source: AssistantSource { step_id },
        };
        let message = to_raw_value(&message).map_err(|error| internal(error.to_string()))?;
        let bytes = message.get().len();
        if bytes > MAX_MESSAGE_BYTES {
            let problem =
                format!("the model's reply has {bytes} bytes, which is too large for a message");
            let error = CallError::new(CallErrorCode::TooLarge, problem);
            return Err(error.having_taken(spent.usage));
        }
        Ok((message, spent))
    }

    /// Passes the usage, then the reply, to the store.
    fn write_reply(&mut self, fleet: &mut Fleet, id: CallId, message: Box<RawValue>) {
        let Some(call) = self.open.get_mut(&id) else {
            return;
        };
        let turn_id = call.place.as_ref().map(|place| place.turn_id.clone());
        let (Some(turn_id), Some((_, record))) = (turn_id, &call.record) else {
            return;
        };
        let (instance, seq) = (call.at.clone(), record.seq);
        if let Some(entry) = call.bill.clone() {
            call.state = CallState::Recording { message };
            let workspace_id = instance.workspace_id.clone();
            let record = RecordUsage {
                workspace_id,
                entry,
            };
            let counting = CountingReply {
                instance,
                turn_id,
                call_id: id,
            };
            return fleet.cx().store(record, counting);
        }
        let event = match to_raw_value(&Append { message: &message }) {
            Ok(event) => event,
            Err(error) => {
                let error = CallError::new(CallErrorCode::Internal, error.to_string());
                return self.end_call(fleet, id, CallOutcome::Error(error));
            }
        };
        call.state = CallState::Recording { message };
        if let Some((entry, cx)) = fleet.conversation_and_cx(&instance) {
            entry.note_reply(cx, &instance, &turn_id, &event);
        }
        let append = AppendEvent {
            instance: instance.clone(),
            turn_id: turn_id.clone(),
            seq,
            event,
        };
        let recording = RecordingReply {
            instance,
            turn_id,
            call_id: id,
        };
        fleet.cx().store(append, recording);
    }

    /// Handles the result of recording a reply's usage.
    fn on_reply_counted(
        &mut self,
        fleet: &mut Fleet,
        counting: &CountingReply,
        result: Result<(), StoreError>,
    ) {
        let (at, turn_id, id) = (&counting.instance, &counting.turn_id, counting.call_id);
        let Some(call) = self.open.get_mut(&id) else {
            return;
        };
        let CallState::Recording { message } = &call.state else {
            return;
        };
        let message = message.clone();
        match result {
            Ok(()) => {
                call.reserved = None;
                let step = call.record.as_ref().map(|(id, _)| SpanId::of_step(id));
                if let Some(entry) = call.bill.take() {
                    self.charge(fleet, at, &entry.into_line(), step);
                }
                self.write_reply(fleet, id, message);
            }
            Err(error) => self.on_reply_unwritten(fleet, at, turn_id, id, message, &error),
        }
    }

    /// Handles the result of recording a reply.
    fn on_reply_recorded(
        &mut self,
        fleet: &mut Fleet,
        recording: &RecordingReply,
        result: Result<AppendResult, StoreError>,
    ) {
        let (at, turn_id, id) = (&recording.instance, &recording.turn_id, recording.call_id);
        let Some(call) = self.open.get_mut(&id) else {
            return;
        };
        let CallState::Recording { message } = &call.state else {
            return;
        };
        let message = message.clone();
        match result {
            Ok(_) => {
                let step_id = call.record.as_ref().map(|(step_id, _)| step_id.clone());
                if let Some(step_id) = step_id {
                    let message = message.clone();
                    self.replied
                        .insert(at.clone(), LastReply { step_id, message });
                }
                self.end_call(fleet, id, recorded(message));
            }
            Err(error) => self.on_reply_unwritten(fleet, at, turn_id, id, message, &error),
        }
    }

    /// Keeps a reply that could not be recorded until the step is requested again.
    fn on_reply_unwritten(
        &mut self,
        fleet: &mut Fleet,
        at: &InstanceRef,
        turn_id: &TurnId,
        id: CallId,
        message: Box<RawValue>,
        error: &StoreError,
    ) {
        let Some(call) = self.open.get_mut(&id) else {
            return;
        };
        let Some((process, _)) = call.waiter.take() else {
            // The turn ended, or no process has requested the reply again.
            call.state = CallState::Unrecorded { message };
            if matches!(error, StoreError::WrongTurn { .. }) {
                self.remove(id);
            }
            let event = LogEvent::warn("failed to record model reply").of(at);
            let event = event.with("turnId", turn_id.as_str());
            return fleet.log(event.with("error", goondan_log::error_chain(error)));
        };
        // The restarted agent requests the step again and receives the reply kept here.
        call.state = CallState::Unrecorded { message };
        if let Some((workspace, cx)) = fleet.workspace_and_cx(&at.workspace_id) {
            workspace.on_store_failure(cx, at, Some(process), error);
        }
    }
}
