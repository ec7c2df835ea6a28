//! The protocol of tool hosts: one JSON object per line, calls in, results out.

use std::borrow::Cow;
use std::path::Path;

use goondan_log::whole_characters;
use goondan_protocol::JsonObject;
use goondan_protocol::agents::AgentAnswer;
use goondan_protocol::definition::SwarmView;
use goondan_protocol::ids::{StepId, TurnId};
use goondan_protocol::lone_surrogates;
use goondan_protocol::trace::TraceId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A message from the agent to a host.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum ModuleHostRequest<'a> {
    Call {
        /// Identifies the call while the host lives.
        id: u64,
        tool: &'a str,
        export: &'a str,
        module: &'a Path,
        /// The arguments, which match the export's schema.
        input: &'a Value,
        config: &'a JsonObject,
        context: Context<'a>,
    },
    /// Loads a module and checks that it has these handlers, without calling them.
    Load {
        /// Identifies the request while the host lives.
        id: u64,
        module: &'a Path,
        /// The exports of its tool.
        exports: Vec<&'a str>,
    },
    /// The answer to a question to other agents.
    Answer {
        ask: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<&'a AgentAnswer>,
    },
    /// Cancels a call that has no caller any longer. The host must stop the handler and still
    /// answer the call.
    Cancel { id: u64, reason: &'a str },
}

/// Context that a handler receives with its call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Context<'a> {
    /// The work directory, in which the host was also started.
    pub(super) work_dir: &'a Path,
    pub(super) project_root: &'a Path,
    pub(super) instance_key: &'a str,
    pub(super) agent_name: &'a str,
    /// The call's id in the conversation.
    pub(super) tool_call_id: &'a str,
    /// The turn; `None` outside of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) turn_id: Option<&'a TurnId>,
    /// The step of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step_id: Option<StepId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trace_id: Option<TraceId>,
    /// The swarm, under the older contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) swarm: Option<&'a SwarmView>,
}

/// A message from a host to the agent.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum ModuleHostMessage {
    Result {
        id: u64,
        /// The return value. The model gets a string unchanged and any other value as JSON.
        #[serde(default)]
        output: Value,
    },
    Error {
        id: u64,
        #[serde(flatten)]
        thrown: HandlerError,
    },
    /// A handler asks other agents.
    Ask {
        id: u64,
        /// Identifies the question while the host lives.
        ask: u64,
        question: Value,
    },
    Log {
        #[serde(default)]
        level: LogLevel,
        message: String,
        /// The call it belongs to.
        #[serde(default)]
        id: Option<u64>,
    },
}

/// Parses a line of a host. Half of a surrogate pair becomes U+FFFD, because the message would
/// otherwise be lost.
///
/// # Errors
///
/// If the line is not a message of this type.
pub(crate) fn read_message<T: DeserializeOwned>(line: &[u8]) -> serde_json::Result<T> {
    lone_surrogates::from_json(line)
}

/// An error that a handler threw.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HandlerError {
    /// A stable code that begins with `E_`.
    #[serde(default)]
    pub(crate) code: Option<String>,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) suggestion: Option<String>,
    #[serde(default)]
    pub(crate) help_url: Option<String>,
}

/// Level of a module's log line.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    Debug,
    #[default]
    Info,
    Warn,
    Error,
}

/// Splits the output of a pipe into lines of bounded length.
#[derive(Debug, Default)]
pub(crate) struct PipeLineSplitter {
    begun: Vec<u8>,
    /// Number of parts already taken from the current line.
    parts: u32,
}

/// A line without its newline, or a part of a line that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostLine {
    pub(crate) bytes: Vec<u8>,
    /// Number of the part, from 1; `None` for a complete line.
    pub(crate) part: Option<u32>,
}

impl HostLine {
    /// The line as text, without trailing whitespace.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match String::from_utf8_lossy(&self.bytes) {
            Cow::Borrowed(text) => Cow::Borrowed(text.trim_end()),
            Cow::Owned(text) => Cow::Owned(text.trim_end().to_owned()),
        }
    }
}

impl PipeLineSplitter {
    /// Adds a chunk and returns the complete lines. A line longer than `bytes_max` is returned in
    /// parts.
    pub(crate) fn take(&mut self, chunk: &[u8], bytes_max: usize) -> Vec<HostLine> {
        let mut complete = Vec::new();
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if self.begun.ends_with(b"\n") {
                self.begun.pop();
                complete.push(self.end_of_line());
            } else if self.begun.len() >= bytes_max {
                let whole = whole_characters(&self.begun);
                let behind = self.begun.split_off(whole);
                self.parts = self.parts.saturating_add(1);
                complete.push(HostLine {
                    bytes: std::mem::replace(&mut self.begun, behind),
                    part: Some(self.parts),
                });
            }
        }
        complete
    }

    fn end_of_line(&mut self) -> HostLine {
        let before = std::mem::take(&mut self.parts);
        HostLine {
            bytes: std::mem::take(&mut self.begun),
            part: (before > 0).then(|| before.saturating_add(1)),
        }
    }

    /// Returns the incomplete line at the end, if any.
    pub(crate) fn rest(&mut self) -> Option<HostLine> {
        let rest = self.end_of_line();
        (!rest.bytes.is_empty()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, part: Option<u32>) -> HostLine {
        HostLine {
            bytes: text.into(),
            part,
        }
    }

    #[test]
    fn prov_1_half_of_a_surrogate_pair_does_not_lose_a_result() {
        for (text, expected) in [
            (r"a\ud83e\udd86b", "a\u{1f986}b"),
            (r"a\ud83eb", "a\u{fffd}b"),
        ] {
            let line = format!(r#"{{"type":"result","id":7,"output":"{text}"}}"#);
            let found = read_message(line.as_bytes());
            let Ok(ModuleHostMessage::Result { output, .. }) = found else {
                panic!("{line}");
            };
            assert_eq!(output, expected, "{line}");
        }
        assert!(read_message::<ModuleHostMessage>(b"plain \\ud83e text").is_err());
    }

    #[test]
    fn lines_are_reassembled_across_any_chunk_boundaries() {
        let mut lines = PipeLineSplitter::default();
        assert!(lines.take(b"on", 100).is_empty());
        let taken = lines.take(b"e\n\ntwo\nth", 100);
        assert_eq!(taken, ["one", "", "two"].map(|text| line(text, None)));
        assert_eq!(lines.take(b"ree", 5), [line("three", Some(1))]);
        assert_eq!(lines.take(b"!\n", 5), [line("!", Some(2))]);
        assert_eq!(lines.rest(), None);
        assert!(lines.take(b"end", 100).is_empty());
        assert_eq!(lines.rest(), Some(line("end", None)));
    }

    #[test]
    fn log_3_a_part_of_a_line_ends_with_a_whole_character() {
        let mut lines = PipeLineSplitter::default();
        let taken = lines.take(&"abc\u{20ac}".as_bytes()[..4], 4);
        assert_eq!(taken, [line("abc", Some(1))]);
        assert_eq!(
            lines.take(&"abc\u{20ac}\n".as_bytes()[4..], 4),
            [line("\u{20ac}", Some(2))]
        );
    }
}
