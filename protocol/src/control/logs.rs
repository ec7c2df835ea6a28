//! `logs.*`: the log stream.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ids::{AgentName, EventId, InstanceKey, WorkspaceId};
use crate::time::Timestamp;
use crate::trace::TraceId;

/// File that a background daemon logs to, in its log directory. Rotated files have the suffixes
/// `.1`, `.2` and so on (`LOG-4`).
pub const LOG_FILE_NAME: &str = "orchestrator.log";

/// `logs.follow`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FollowLogs {
    /// Number of latest lines to start with.
    pub tail: usize,
    /// True to continue with new lines. If false, the request ends after the tail.
    pub follow: bool,
    /// Return only lines of this workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// Return only lines of this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Return only lines of this conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_key: Option<InstanceKey>,
    /// Return only lines about this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    /// Return only lines of this trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// Return only lines of processes of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<LogProcess>,
    /// Minimum log level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LogLevel>,
    /// Return only lines from this time on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Return only lines before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Kind of process that writes a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogProcess {
    /// The daemon.
    Orchestrator,
    /// An agent.
    Agent,
    /// A connection or a model.
    Connector,
    /// The client of the server that stores workspace logs.
    Replica,
}

/// Log level, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogLevel {
    /// Every step.
    Trace,
    /// Details for debugging.
    Debug,
    /// Normal operation.
    Info,
    /// Unexpected conditions.
    Warn,
    /// Failures.
    Error,
}

/// Fields of a log line that filters apply to.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FilterFields<'a> {
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
    /// True if a line of the log passes all filters. A line that is not a JSON object only passes
    /// if no filter is set.
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
        serde_json::from_slice::<FilterFields<'_>>(line)
            .is_ok_and(|found| self.takes_fields(&found))
    }

    fn takes_fields(&self, found: &FilterFields<'_>) -> bool {
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
    /// The `logs.follow` request it belongs to.
    pub request_id: u64,
    /// The line: a JSON object.
    pub line: Box<RawValue>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn obs_2_log_line_is_selected_only_if_all_filters_match() {
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
