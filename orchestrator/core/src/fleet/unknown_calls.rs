//! Tool calls that were cut short, and of which nobody knows if they had their effect: a person looks (`OBS-5`).
//!
//! The audit log keeps them: one record when an agent reports such a call, one when a person has looked after it.
//! What is open is gathered from it when a workspace is opened, and kept from then on.
//!
//! # Invariants
//!
//! * That a call was cut short is in the audit log before the conversation has it as a result: whoever is killed,
//!   there is none in a conversation that no person is told of. What an agent records meanwhile waits.

use std::collections::BTreeMap;

use goondan_protocol::JsonObject;
use goondan_protocol::control::{
    CallSettled, ControlError, ErrorCode, ListUnknownCalls, SettleCall, UnknownCallInfo,
    UnknownCallPlace,
};
use goondan_protocol::ids::{AgentName, InstanceKey, InstanceRef, ToolCallId, TurnId, WorkspaceId};
use goondan_protocol::ipc::{TurnAppend, TurnComplete};
use goondan_protocol::lifecycle::LifecycleEvent;
use goondan_protocol::limits::MAX_APPROVAL_REASON_BYTES;
use goondan_protocol::observe::RuntimeEvent;
use goondan_protocol::time::Timestamp;
use goondan_store::StoreError;
use goondan_store::writer::operation::Audit;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Fleet;
use crate::jobs::continuation;
use crate::limits::UNKNOWN_CALLS_MAX;
use crate::refusals::control_error;
use crate::{LogEvent, Peer, ProcessId, RequestToken};

/// What the audit log calls one, behind `instance.`.
const CALL_UNKNOWN: &str = "callUnknown";
/// What it calls one that a person has looked after.
const CALL_SETTLED: &str = "callSettled";

/// The calls of a workspace that no person has looked after yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownCalls(BTreeMap<(InstanceKey, ToolCallId), UnknownCall>);

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UnknownCall {
    at: Timestamp,
    agent_name: AgentName,
    turn_id: TurnId,
    tool_name: String,
    detail: String,
}

continuation! {
    /// That a person has looked after a call is about to stand in the audit log.
    SettlingCall { token: RequestToken, call: UnknownCallInfo, note: Option<String> }
        after Audit => core.fleet.on_call_settled
}

continuation! {
    /// That a call was cut short is about to stand in the audit log.
    NotingUnknown { process: ProcessId } after Audit => &core.fleet.on_unknown_noted
}

/// What a process says of its turn while that a call was cut short is not in the audit log yet.
#[derive(Debug)]
pub(super) struct HeldBack {
    process: ProcessId,
    /// Records that are on their way.
    notes: usize,
    said: Vec<Said>,
}

#[derive(Debug)]
enum Said {
    Append(TurnAppend),
    Complete(TurnComplete),
}

/// A record of the audit log that is about one of them, or about all of a conversation.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    event: String,
    instance_key: InstanceKey,
    #[serde(default)]
    tool_call_id: Option<ToolCallId>,
}

impl UnknownCalls {
    /// What the lines of an audit log hold of which one is about them.
    pub const RECORDS: [&str; 3] = [CALL_UNKNOWN, CALL_SETTLED, "instance.deleted"];

    /// Takes note of a record of a workspace's audit log; they come in their order.
    pub fn follow(&mut self, fields: JsonObject) {
        let fields = Value::Object(fields);
        let Ok(record) = Record::deserialize(&fields) else {
            return;
        };
        let what = record.event.strip_prefix("instance.").unwrap_or_default();
        match (what, record.tool_call_id) {
            (CALL_UNKNOWN, Some(call)) => {
                if let Ok(unknown) = UnknownCall::deserialize(&fields) {
                    self.add(record.instance_key, call, unknown);
                }
            }
            (CALL_SETTLED, Some(call)) => {
                self.0.remove(&(record.instance_key, call));
            }
            ("deleted", _) => self.forget(&record.instance_key),
            _ => {}
        }
    }

    /// Of more than [`UNKNOWN_CALLS_MAX`] the oldest is left to the audit log alone.
    fn add(&mut self, key: InstanceKey, call: ToolCallId, unknown: UnknownCall) {
        self.0.insert((key, call), unknown);
        if self.0.len() > UNKNOWN_CALLS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, unknown)| unknown.at);
            if let Some(place) = oldest.map(|(place, _)| place.clone()) {
                self.0.remove(&place);
            }
        }
    }

    /// A conversation is deleted: there is nothing to look at any more.
    fn forget(&mut self, key: &InstanceKey) {
        self.0.retain(|(of, _), _| of != key);
    }

    fn info(
        &self,
        id: &WorkspaceId,
        key: &InstanceKey,
        call: &ToolCallId,
    ) -> Option<UnknownCallInfo> {
        let unknown = self.0.get(&(key.clone(), call.clone()))?;
        Some(unknown.info(id, key, call))
    }
}

impl UnknownCall {
    fn info(&self, id: &WorkspaceId, key: &InstanceKey, call: &ToolCallId) -> UnknownCallInfo {
        UnknownCallInfo {
            workspace_id: id.clone(),
            instance_key: key.clone(),
            agent_name: self.agent_name.clone(),
            turn_id: self.turn_id.clone(),
            tool_call_id: call.clone(),
            tool_name: self.tool_name.clone(),
            at: self.at,
            detail: self.detail.clone(),
        }
    }
}

fn no_call(settle: &SettleCall) -> ControlError {
    let (call, key) = (&settle.tool_call_id, &settle.instance_key);
    let text = format!(
        "no tool call `{call}` of conversation `{key}` is waiting for a person: its outcome is known, or somebody has \
         looked after it"
    );
    ControlError::new(ErrorCode::CallNotFound, text).suggest("`gdn calls` shows those that are")
}

impl Fleet {
    /// A workspace is opened: these are open in it.
    pub(crate) fn take_up_unknown_calls(&mut self, id: &WorkspaceId, calls: UnknownCalls) {
        if let Some(workspace) = self.workspaces.get_mut(id) {
            workspace.unknown_calls = calls;
        }
    }

    /// A conversation is deleted.
    pub(crate) fn forget_unknown_calls(&mut self, at: &InstanceRef) {
        if let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) {
            workspace.unknown_calls.forget(&at.instance_key);
        }
    }

    /// An agent reports a call that was cut short.
    pub(super) fn on_unknown_call(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        event: RuntimeEvent,
    ) {
        let (Some(call), Some(tool_name)) = (event.tool_call_id, event.tool_name) else {
            return;
        };
        let unknown = UnknownCall {
            at: self.now.wall,
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
        if let Some(workspace) = self.workspaces.get_mut(&at.workspace_id) {
            let key = at.instance_key.clone();
            workspace.unknown_calls.add(key, call, unknown);
        }
        let record = self.audit_record(at, CALL_UNKNOWN, Value::Object(details));
        let instance = at.clone();
        self.store(record, NotingUnknown { instance, process });
        self.hold_back(at, process);
        self.announce(&at.workspace_id, told, None);
    }

    fn hold_back(&mut self, at: &InstanceRef, process: ProcessId) {
        let Some(entry) = self.instance_mut(at) else {
            return;
        };
        match &mut entry.held_back {
            Some(held) if held.process == process => held.notes += 1,
            // What a former process said counts no more.
            held => {
                *held = Some(HeldBack {
                    process,
                    notes: 1,
                    said: Vec::new(),
                });
            }
        }
    }

    fn held_back(&mut self, at: &InstanceRef, process: ProcessId) -> Option<&mut HeldBack> {
        let held = self.instance_mut(at)?.held_back.as_mut()?;
        (held.process == process).then_some(held)
    }

    /// An agent's process has something appended to its conversation.
    pub(crate) fn on_append(&mut self, at: &InstanceRef, process: ProcessId, append: TurnAppend) {
        match self.held_back(at, process) {
            Some(held) => held.said.push(Said::Append(append)),
            None => self.on_turn_append(at, process, append),
        }
    }

    /// An agent's process has answered.
    pub(crate) fn on_complete(
        &mut self,
        at: &InstanceRef,
        process: ProcessId,
        complete: TurnComplete,
    ) {
        match self.held_back(at, process) {
            Some(held) => held.said.push(Said::Complete(complete)),
            None => self.on_turn_complete(at, process, complete),
        }
    }

    fn on_unknown_noted(&mut self, noting: &NotingUnknown, result: Result<(), StoreError>) {
        let (at, process) = (&noting.instance, noting.process);
        if let Err(error) = result {
            let event = LogEvent::error("what happened could not be put into the audit log");
            self.log(event.of(at).with("error", error.to_string()));
        }
        let Some(held) = self.held_back(at, process) else {
            return;
        };
        held.notes -= 1;
        if held.notes > 0 {
            return;
        }
        let held = self.instance_mut(at).and_then(|it| it.held_back.take());
        for said in held.into_iter().flat_map(|held| held.said) {
            if !self.owners.contains_key(&process) {
                return;
            }
            match said {
                Said::Append(append) => self.on_turn_append(at, process, append),
                Said::Complete(complete) => self.on_turn_complete(at, process, complete),
            }
        }
    }

    /// A client wants to know which calls nobody has looked after.
    pub(crate) fn list_unknown_calls(&mut self, token: RequestToken, list: &ListUnknownCalls) {
        let only = list.workspace_id.as_ref();
        if let Some(id) = only
            && let Err(error) = self.workspace(id)
        {
            return self.respond_error(token, error);
        }
        let workspaces = self.workspaces.iter();
        let workspaces = workspaces.filter(|(id, _)| only.is_none_or(|only| only == *id));
        let calls = workspaces.flat_map(|(id, workspace)| {
            let calls = workspace.unknown_calls.0.iter();
            calls.map(|((key, call), unknown)| unknown.info(id, key, call))
        });
        let is_behind = |place: &UnknownCallPlace| list.after.as_ref().is_none_or(|it| it < place);
        let page = list.page_of(calls.filter(|call| is_behind(&call.place())));
        self.respond(token, &page);
    }

    /// A person has looked after a call.
    pub(crate) fn settle_call(&mut self, token: RequestToken, peer: Peer, settle: SettleCall) {
        if let Err(error) = self.begin_to_settle(token, peer, settle) {
            self.respond_error(token, error);
        }
    }

    fn begin_to_settle(
        &mut self,
        token: RequestToken,
        peer: Peer,
        settle: SettleCall,
    ) -> Result<(), ControlError> {
        let what = format!("tool call `{}`", settle.tool_call_id);
        peer.must_be_person(&what, "gdn calls")?;
        let note_bytes = settle.note.as_ref().map_or(0, String::len);
        if note_bytes > MAX_APPROVAL_REASON_BYTES {
            let text = format!("a note has at most {MAX_APPROVAL_REASON_BYTES} bytes");
            return Err(ControlError::new(ErrorCode::InvalidRequest, text));
        }
        let workspace = self.workspace(&settle.workspace_id)?;
        let (key, call) = (&settle.instance_key, &settle.tool_call_id);
        let found = workspace
            .unknown_calls
            .info(&settle.workspace_id, key, call);
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
        let record = self.audit_record(&at, CALL_SETTLED, details);
        let note = settle.note;
        let settling = SettlingCall {
            instance: at,
            token,
            call,
            note,
        };
        self.store(record, settling);
        Ok(())
    }

    fn on_call_settled(&mut self, settling: SettlingCall, result: Result<(), StoreError>) {
        let SettlingCall {
            instance,
            token,
            call,
            note,
        } = settling;
        if let Err(error) = result {
            return self.respond_error(token, control_error(&error));
        }
        let key = (call.instance_key.clone(), call.tool_call_id.clone());
        let workspace = self.workspaces.get_mut(&instance.workspace_id);
        let was_open = workspace.is_some_and(|it| it.unknown_calls.0.remove(&key).is_some());
        // Of two people at once, the second is told the same.
        if was_open {
            let told = LifecycleEvent::CallSettled {
                instance_key: key.0,
                tool_call_id: key.1,
                note,
            };
            self.announce(&instance.workspace_id, told, None);
        }
        self.respond(token, &CallSettled { call });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(event: &str, key: &str, call: &str) -> JsonObject {
        let record = json!({
            "at": "2026-01-01T00:00:00.000Z",
            "event": format!("instance.{event}"),
            "instanceKey": key,
            "agentName": "clerk",
            "turnId": "t",
            "toolCallId": call,
            "toolName": "bash__exec",
            "detail": "E_TOOL_INTERRUPTED: …",
        });
        record.as_object().unwrap().clone()
    }

    fn open(records: &[JsonObject]) -> Vec<String> {
        let mut calls = UnknownCalls::default();
        for record in records {
            calls.follow(record.clone());
        }
        let places = calls.0.keys();
        places.map(|(key, call)| format!("{key}/{call}")).collect()
    }

    #[test]
    fn obs_5_what_was_cut_short_is_open_until_a_person_looks_or_its_conversation_goes() {
        let cut_short = |key, call| record(CALL_UNKNOWN, key, call);
        let all = [
            cut_short("a", "1"),
            cut_short("a", "2"),
            cut_short("b", "1"),
        ];
        assert_eq!(open(&all), ["a/1", "a/2", "b/1"]);
        // Told again by a second process: it is one.
        let again = [&all[..], &all[..1]].concat();
        assert_eq!(open(&again), ["a/1", "a/2", "b/1"]);
        let settled = [&all[..], &[record(CALL_SETTLED, "a", "1")]].concat();
        assert_eq!(open(&settled), ["a/2", "b/1"]);
        let deleted = [&all[..], &[record("deleted", "a", "")]].concat();
        assert_eq!(open(&deleted), ["b/1"]);
        // What is no such record says nothing.
        let mut damaged = cut_short("c", "1");
        damaged.remove("toolName");
        let others = [record("created", "a", "1"), damaged, JsonObject::new()];
        assert!(open(&others).is_empty());
    }

    #[test]
    fn obs_5_of_too_many_the_latest_are_kept() {
        let mut calls = UnknownCalls::default();
        for n in 0..=UNKNOWN_CALLS_MAX {
            let mut record = record(CALL_UNKNOWN, "a", &format!("{n}"));
            let at = Timestamp::from_unix_millis(i64::try_from(n).unwrap());
            record.insert("at".to_owned(), json!(at));
            calls.follow(record);
        }
        assert_eq!(calls.0.len(), UNKNOWN_CALLS_MAX);
        let first = ("a".parse().unwrap(), "0".parse().unwrap());
        assert!(!calls.0.contains_key(&first));
    }
}
