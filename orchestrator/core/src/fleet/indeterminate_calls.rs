//! Interrupted tool calls with an unknown outcome, for manual review (`OBS-5`).
//!
//! The audit log holds one record when an agent reports such a call, and one when a user has
//! resolved it. The calls without a resolution are read from the audit log when a workspace is
//! opened, and tracked from then on.
//!
//! # Invariants
//!
//! * The audit log records an interrupted call before the conversation records its result, so a
//!   crash cannot hide a call from users. Other records of the agent wait until then.

use goondan_protocol::JsonObject;
use goondan_protocol::control::{
    CallSettled, ControlError, ErrorCode, SettleCall, UnknownCallInfo,
};
use goondan_protocol::ids::{InstanceKey, InstanceRef};
use goondan_protocol::ipc::{TurnAppend, TurnComplete};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::limits::MAX_APPROVAL_REASON_BYTES;
use goondan_protocol::observe::RuntimeEvent;
use goondan_store::StoreError;
use goondan_store::writer::operation::Audit;
use serde_json::{Value, json};

use super::Workspace;
use crate::bus::context::Cx;
use crate::jobs::continuation;
use crate::refusals::control_error;
use crate::unknown_calls::{CALL_SETTLED, CALL_UNKNOWN, UnknownCall, UnknownCalls};
use crate::{LogEvent, Peer, ProcessId, RequestToken};

continuation! {
    /// Records in the audit log that a user has resolved a call.
    SettlingCall { token: RequestToken, call: UnknownCallInfo, note: Option<String> }
        after Audit => workspace.on_call_settled
}

continuation! {
    /// Records an interrupted call in the audit log.
    NotingUnknown { process: ProcessId } after Audit => &workspace.on_unknown_noted
}

/// Messages of a process that wait until an interrupted call is in the audit log.
#[derive(Debug)]
pub(super) struct BufferedReports {
    process: ProcessId,
    /// Number of audit records being written.
    notes: usize,
    /// Appends that are already counted for their turn.
    appends: Vec<TurnAppend>,
    complete: Option<TurnComplete>,
}

impl BufferedReports {
    pub(super) fn new(process: ProcessId) -> Self {
        Self {
            process,
            notes: 1,
            appends: Vec::new(),
            complete: None,
        }
    }

    pub(super) fn is_of(&self, process: ProcessId) -> bool {
        self.process == process
    }

    pub(super) fn wait_for_note(&mut self) {
        self.notes += 1;
    }

    /// A record is written. True if none is left.
    pub(super) fn on_noted(&mut self) -> bool {
        self.notes -= 1;
        self.notes == 0
    }

    pub(super) fn append(&mut self, append: TurnAppend) {
        self.appends.push(append);
    }
}

fn no_call(settle: &SettleCall) -> ControlError {
    let (call, key) = (&settle.tool_call_id, &settle.instance_key);
    let text = format!(
        "tool call `{call}` of conversation `{key}` does not wait for a person: its outcome is \
         known, or a person resolved it"
    );
    ControlError::new(ErrorCode::CallNotFound, text)
        .suggest("list waiting tool calls: `gdn inbox calls`")
}

impl Workspace {
    /// Sets the open calls when it was opened.
    pub(crate) fn take_up_unknown_calls(&mut self, calls: UnknownCalls) {
        self.unknown_calls = calls;
    }

    /// Drops the calls of a deleted conversation.
    pub(crate) fn forget_unknown_calls(&mut self, key: &InstanceKey) {
        self.unknown_calls.forget(key);
    }

    /// Handles an agent's report of an interrupted call.
    pub(super) fn on_unknown_call(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        process: ProcessId,
        event: RuntimeEvent,
    ) {
        let (Some(call), Some(tool_name)) = (event.tool_call_id, event.tool_name) else {
            return;
        };
        let unknown = UnknownCall {
            at: cx.now().wall,
            agent_name: event.agent_name,
            turn_id: event.turn_id,
            tool_name,
            detail: event.detail.unwrap_or_default(),
        };
        let told = LifecycleEvent::CallUnknown {
            instance_key: at.instance_key.clone(),
            agent_name: unknown.agent_name.clone(),
            turn_id: unknown.turn_id.clone(),
            tool_call_id: call.clone(),
            tool_name: unknown.tool_name.clone(),
            detail: unknown.detail.clone(),
        };
        let mut details = told.fields();
        details.remove("instanceKey");
        self.unknown_calls
            .add(at.instance_key.clone(), call, unknown);
        let agent = self.agent_name(&at.instance_key).cloned();
        let details = Value::Object(details);
        let record = cx.audit_record(at, agent.as_ref(), CALL_UNKNOWN, details);
        let instance = at.clone();
        cx.store(record, NotingUnknown { instance, process });
        if let Some(entry) = self.conversations.get_mut(&at.instance_key) {
            entry.hold_back(process);
        }
        self.announce(cx, told, None);
    }

    /// Handles the completion message of an agent's process.
    pub(crate) fn on_complete(
        &mut self,
        cx: &mut Cx,
        at: &InstanceRef,
        process: ProcessId,
        complete: TurnComplete,
    ) {
        let entry = self.conversations.get_mut(&at.instance_key);
        let Some(held) = entry.and_then(|entry| entry.held_back(process)) else {
            return self.on_turn_complete(cx, at, process, complete);
        };
        if held.complete.replace(complete).is_some() {
            self.on_broken(cx, process, "it completed a turn twice");
        }
    }

    fn on_unknown_noted(
        &mut self,
        cx: &mut Cx,
        noting: &NotingUnknown,
        result: Result<(), StoreError>,
    ) {
        let (at, process) = (&noting.instance, noting.process);
        if let Err(error) = result {
            let event = LogEvent::error("failed to write the audit log").of(at);
            self.log(cx, event.with("error", goondan_log::error_chain(&error)));
        }
        let is_up = cx.processes().is_up(process);
        let Some(entry) = self.conversations.get_mut(&at.instance_key) else {
            return;
        };
        // Messages of an exited process are ignored.
        let Some(held) = entry.on_noted(process).filter(|_| is_up) else {
            return;
        };
        for append in held.appends {
            entry.append(cx, at, process, append);
        }
        if let Some(complete) = held.complete {
            self.on_turn_complete(cx, at, process, complete);
        }
    }

    /// Marks a call as resolved by a user.
    pub(crate) fn settle_call(
        &self,
        cx: &mut Cx,
        token: RequestToken,
        peer: Peer,
        settle: SettleCall,
    ) -> Result<(), ControlError> {
        let note_bytes = settle.note.as_ref().map_or(0, String::len);
        if note_bytes > MAX_APPROVAL_REASON_BYTES {
            let text = format!("a note can have at most {MAX_APPROVAL_REASON_BYTES} bytes");
            return Err(ControlError::new(ErrorCode::InvalidRequest, text));
        }
        let (key, call) = (&settle.instance_key, &settle.tool_call_id);
        let found = self.unknown_calls.get(&settle.workspace_id, key, call);
        let call = found.ok_or_else(|| no_call(&settle))?;
        let at = InstanceRef {
            workspace_id: settle.workspace_id,
            instance_key: settle.instance_key,
        };
        let mut details = JsonObject::from_iter([
            ("toolCallId".to_owned(), json!(call.tool_call_id)),
            ("clientPid".to_owned(), json!(peer.pid)),
        ]);
        if let Some(note) = &settle.note {
            details.insert("note".to_owned(), json!(note));
        }
        let details = Value::Object(details);
        let agent = self.agent_name(&at.instance_key).cloned();
        let record = cx.audit_record(&at, agent.as_ref(), CALL_SETTLED, details);
        let note = settle.note;
        let settling = SettlingCall {
            instance: at,
            token,
            call,
            note,
        };
        cx.store(record, settling);
        Ok(())
    }

    fn on_call_settled(
        &mut self,
        cx: &mut Cx,
        settling: SettlingCall,
        result: Result<(), StoreError>,
    ) {
        let SettlingCall {
            instance: _,
            token,
            call,
            note,
        } = settling;
        if let Err(error) = result {
            return cx.respond_error(token, control_error(&error));
        }
        let key = (call.instance_key.clone(), call.tool_call_id.clone());
        let was_open = self.unknown_calls.settle(&key.0, &key.1);
        // If two users resolve a call at once, the second gets the same response.
        if was_open {
            let told = LifecycleEvent::CallSettled {
                instance_key: key.0,
                tool_call_id: key.1,
                note,
            };
            self.announce(cx, told, None);
        }
        cx.respond(token, &CallSettled { call });
    }
}
