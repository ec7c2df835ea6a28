//! `logs.*`: the log stream.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ids::{AgentName, EventId, InstanceKey, WorkspaceId};
use crate::time::Timestamp;
use crate::trace::TraceId;

/// The file a daemon in the background writes its log to, in the directory of its log. Older ones have
/// `.1`, `.2` … behind it (`LOG-4`).
pub const LOG_FILE_NAME: &str = "orchestrator.log";

/// `logs.follow`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FollowLogs {
    /// How many of the latest lines to begin with.
    pub tail: usize,
    /// Whether to go on with new lines. If not, the request ends after the tail.
    pub follow: bool,
    /// Only lines of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Only lines of this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Only lines of this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Only lines about this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    /// Only lines of this trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// Only lines of processes of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<LogProcess>,
    /// Only lines that weigh as much or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LogLevel>,
    /// Only lines of this moment or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Only lines of before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Which kind of process writes a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogProcess {
    /// The daemon.
    Orchestrator,
    /// An agent.
    Agent,
    /// A connection or a model.
    Connector,
    /// What speaks to the server that workspaces' logs stand in.
    Replica,
}

/// How much a line weighs, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogLevel {
    /// Every step.
    Trace,
    /// For whoever looks for a fault.
    Debug,
    /// What goes on.
    Info,
    /// What is not as it should be.
    Warn,
    /// What failed.
    Error,
}

/// The fields of a log line that can be chosen by.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Choice<'a> {
    #[serde(borrow, default)]
    workspace_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    agent_name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    instance_key: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    event_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    trace_id: Option<Cow<'a, str>>,
    #[serde(default)]
    process: Option<LogProcess>,
    #[serde(default)]
    level: Option<LogLevel>,
    #[serde(default)]
    timestamp: Option<Timestamp>,
}

impl FollowLogs {
    /// Whether a line of the log is one of those that are asked for. One that is no such object of JSON is
    /// not, if anything is asked for.
    #[must_use]
    pub fn takes(&self, line: &[u8]) -> bool {
        let any = Self {
            tail: self.tail,
            follow: self.follow,
            ..Self::default()
        };
        if *self == any {
            return true;
        }
        serde_json::from_slice::<Choice<'_>>(line).is_ok_and(|found| self.takes_fields(&found))
    }

    fn takes_fields(&self, found: &Choice<'_>) -> bool {
        let is = |wanted: Option<&str>, found: &Option<Cow<'_, str>>| {
            wanted.is_none_or(|wanted| Some(wanted) == found.as_deref())
        };
        let at = |is: fn(&Timestamp, &Timestamp) -> bool, wanted: Option<Timestamp>| {
            wanted.is_none_or(|wanted| found.timestamp.is_some_and(|at| is(&at, &wanted)))
        };
        let trace_id = self.trace_id.map(|id| id.to_string());
        is(
            self.workspace_id.as_ref().map(WorkspaceId::as_str),
            &found.workspace_id,
        ) && is(
            self.agent.as_ref().map(AgentName::as_str),
            &found.agent_name,
        ) && is(
            self.instance_key.as_ref().map(InstanceKey::as_str),
            &found.instance_key,
        ) && is(self.event_id.as_ref().map(EventId::as_str), &found.event_id)
            && is(trace_id.as_deref(), &found.trace_id)
            && self.process.is_none_or(|it| found.process == Some(it))
            && self.level.is_none_or(|it| found.level >= Some(it))
            && at(Timestamp::ge, self.since)
            && at(Timestamp::lt, self.until)
    }
}

/// One line of the log stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// The `logs.follow` request it answers.
    pub request_id: u64,
    /// The line: a JSON object.
    pub line: Box<RawValue>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn obs_2_a_line_is_chosen_if_it_says_all_that_is_asked_for() {
        let line = json!({
            "timestamp": "2026-01-01T00:00:01.500Z", "level": "warn", "message": "m",
            "process": "agent", "workspaceId": "w", "agentName": "clerk", "instanceKey": "ann",
            "eventId": "e-1", "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
        });
        let line = line.to_string();
        let takes = |asked: serde_json::Value, line: &str| {
            let mut call = json!({"tail": 1, "follow": false});
            let fields = call.as_object_mut().unwrap();
            fields.extend(asked.as_object().unwrap().clone());
            let follow: FollowLogs = serde_json::from_value(call).unwrap();
            follow.takes(line.as_bytes())
        };
        assert!(takes(json!({}), "whatever"));
        for (field, same, other) in [
            ("workspaceId", "w", "v"),
            ("agent", "clerk", "buyer"),
            ("instanceKey", "ann", "bob"),
            ("eventId", "e-1", "e-2"),
            (
                "traceId",
                "4bf92f3577b34da6a3ce929d0e0e4736",
                "5bf92f3577b34da6a3ce929d0e0e4736",
            ),
            ("process", "agent", "connector"),
            ("level", "warn", "error"),
            ("level", "info", "error"),
            (
                "since",
                "2026-01-01T00:00:01.500Z",
                "2026-01-01T00:00:01.501Z",
            ),
            (
                "until",
                "2026-01-01T00:00:01.501Z",
                "2026-01-01T00:00:01.500Z",
            ),
        ] {
            assert!(takes(json!({field: same}), &line), "{field} {same}");
            assert!(!takes(json!({field: other}), &line), "{field} {other}");
            for bad in ["torn {", "[]", "{}"] {
                assert!(!takes(json!({field: same}), bad), "{field} {bad}");
            }
        }
        assert!(!takes(json!({"agent": "clerk", "level": "error"}), &line));
    }
}
