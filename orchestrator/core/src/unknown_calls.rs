//! Interrupted tool calls with an unknown outcome, read from a workspace's audit log (`OBS-5`).

use std::collections::BTreeMap;

use goondan_protocol::JsonObject;
use goondan_protocol::control::UnknownCallInfo;
use goondan_protocol::ids::{AgentName, InstanceKey, ToolCallId, TurnId, WorkspaceId};
use goondan_protocol::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::limits::UNKNOWN_CALLS_MAX;

/// Audit event of an interrupted call, after the prefix `instance.`.
pub(crate) const CALL_UNKNOWN: &str = "callUnknown";
/// Audit event of a call that a user has resolved.
pub(crate) const CALL_SETTLED: &str = "callSettled";

/// The calls of a workspace that no user has resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownCalls(BTreeMap<(InstanceKey, ToolCallId), UnknownCall>);

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UnknownCall {
    pub(crate) at: Timestamp,
    pub(crate) agent_name: AgentName,
    pub(crate) turn_id: TurnId,
    pub(crate) tool_name: String,
    pub(crate) detail: String,
}

/// An audit record about one call, or about a whole conversation.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UnknownCallRecord {
    event: String,
    instance_key: InstanceKey,
    #[serde(default)]
    tool_call_id: Option<ToolCallId>,
}

impl UnknownCalls {
    /// Substrings that identify the relevant lines of an audit log.
    pub const RECORDS: [&str; 3] = [CALL_UNKNOWN, CALL_SETTLED, "instance.deleted"];

    /// Applies a record of the workspace's audit log. Records must be applied in order.
    pub fn follow(&mut self, fields: JsonObject) {
        let fields = Value::Object(fields);
        let Ok(record) = UnknownCallRecord::deserialize(&fields) else {
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

    /// Adds a call. Beyond [`UNKNOWN_CALLS_MAX`], the oldest call is kept only in the audit log.
    pub(crate) fn add(&mut self, key: InstanceKey, call: ToolCallId, unknown: UnknownCall) {
        self.0.insert((key, call), unknown);
        if self.0.len() > UNKNOWN_CALLS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, unknown)| unknown.at);
            if let Some(place) = oldest.map(|(place, _)| place.clone()) {
                self.0.remove(&place);
            }
        }
    }

    /// Drops the calls of a deleted conversation.
    pub(crate) fn forget(&mut self, key: &InstanceKey) {
        self.0.retain(|(of, _), _| of != key);
    }

    pub(crate) fn get(
        &self,
        id: &WorkspaceId,
        key: &InstanceKey,
        call: &ToolCallId,
    ) -> Option<UnknownCallInfo> {
        let unknown = self.0.get(&(key.clone(), call.clone()))?;
        Some(unknown.info(id, key, call))
    }

    /// Marks a call as resolved. True if it was unresolved.
    pub(crate) fn settle(&mut self, key: &InstanceKey, call: &ToolCallId) -> bool {
        self.0.remove(&(key.clone(), call.clone())).is_some()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// All calls, ordered by key.
    pub(crate) fn all(&self, id: &WorkspaceId) -> impl Iterator<Item = UnknownCallInfo> {
        let calls = self.0.iter();
        calls.map(move |((key, call), unknown)| unknown.info(id, key, call))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn obs_5_interrupted_call_is_open_until_reviewed_or_deleted() {
        let cut_short = |key, call| record(CALL_UNKNOWN, key, call);
        let all = [
            cut_short("a", "1"),
            cut_short("a", "2"),
            cut_short("b", "1"),
        ];
        assert_eq!(open(&all), ["a/1", "a/2", "b/1"]);
        // A duplicate report from a second process counts once.
        let again = [&all[..], &all[..1]].concat();
        assert_eq!(open(&again), ["a/1", "a/2", "b/1"]);
        let settled = [&all[..], &[record(CALL_SETTLED, "a", "1")]].concat();
        assert_eq!(open(&settled), ["a/2", "b/1"]);
        let mut gone = record("deleted", "a", "1");
        gone.remove("toolCallId");
        let deleted = [&all[..], &[gone]].concat();
        assert_eq!(open(&deleted), ["b/1"]);
        // Other and damaged records are ignored.
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
