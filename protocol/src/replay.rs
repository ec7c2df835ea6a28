//! Replays of recorded turns, for incidents (`gdn incident`).
//!
//! `gdn` starts the agent binary with a [`ReplayScript`] on standard input and reads a
//! [`ReplayOutput`] from standard output. The turn engine plays each turn with the recorded replies
//! and results; it starts nothing and calls no model. The result contains digests of the engine's
//! requests, so that two results can be compared without the texts themselves.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::definition::AgentAssignment;
use crate::ids::{MessageId, ToolCallId, ToolName, TurnId};
use crate::message::Message;

/// Number of bytes of a SHA-256 that a [`ShortDigest`] keeps.
const SHORT_DIGEST_BYTES: usize = 12;

/// A short digest of texts, to find changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShortDigest(String);

impl ShortDigest {
    /// The fingerprint of several texts, with unambiguous boundaries.
    #[must_use]
    pub fn of(parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part.as_bytes());
        }
        let digest = hash.finalize();
        let kept = digest.get(..SHORT_DIGEST_BYTES).unwrap_or_default();
        Self(hex::encode(kept))
    }
}

impl fmt::Display for ShortDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Input of a replay, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplayScript {
    /// The agents, with the configuration to replay with. They have the same directories.
    pub assignments: Vec<AgentAssignment>,
    /// Conversations, each with all messages that its turns need, oldest first.
    pub conversations: Vec<Vec<Message>>,
    /// The turns.
    pub turns: Vec<ReplayTurn>,
}

/// A recorded turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplayTurn {
    /// Index of its agent in [`ReplayScript::assignments`].
    pub assignment: usize,
    /// Index of its conversation in [`ReplayScript::conversations`].
    pub conversation: usize,
    /// The turn.
    pub turn_id: TurnId,
    /// Index of its first message in the conversation. The messages before it are its history.
    pub first: usize,
    /// Number of its messages.
    pub count: usize,
    /// Errors of the model, by the step that failed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<u32, String>,
}

/// Result of a replay, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplayOutput {
    /// The turns, in the order of the script.
    pub turns: Vec<PlayedTurn>,
}

/// Actions of the turn engine in a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlayedTurn {
    /// The system prompt.
    pub prompt: ShortDigest,
    /// The model and its parameters. The script of a scripted model is elsewhere: the model
    /// plays it, and its replies are compared.
    pub model: ShortDigest,
    /// The steps, in order.
    pub steps: Vec<PlayedStep>,
    /// End of the turn.
    pub end: PlayedEnd,
    /// Messages in which the replay differs from the recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlike: Vec<String>,
    /// Parts that could not be replayed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A step: a request to the model, its reply, and the calls of the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlayedStep {
    /// The step, from 1.
    pub step: u32,
    /// The offered tools; absent if they are those of the step before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeMap<ToolName, ShortDigest>>,
    /// Number of messages at the beginning of the request that are those of the request before.
    pub kept: usize,
    /// The messages after them.
    pub messages: Vec<PlayedMessage>,
    /// The reply; absent if none is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<PlayedReply>,
    /// The calls, in the order of the reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<PlayedCall>,
}

/// A message of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlayedMessage {
    /// The message.
    pub id: MessageId,
    /// Its role and content.
    pub fingerprint: ShortDigest,
    /// The beginning of its text.
    pub detail: String,
}

/// A reply of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlayedReply {
    /// Its text and its calls, or its error.
    pub fingerprint: ShortDigest,
    /// The beginning of the text, and the calls.
    pub detail: String,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlayedCall {
    /// Its id.
    pub tool_call_id: ToolCallId,
    /// The tool.
    pub tool_name: String,
    /// The arguments.
    pub arguments: ShortDigest,
    /// The beginning of the arguments.
    pub detail: String,
    /// The fate of the call.
    pub fate: CallFate,
}

/// The fate of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", deny_unknown_fields)]
pub enum CallFate {
    /// It runs; the recorded result answers it.
    Runs,
    /// It waits for a person's approval.
    Asks,
    /// It gets this error and does not run.
    Refused {
        /// The error.
        why: String,
    },
}

impl fmt::Display for CallFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs => f.write_str("it runs"),
            Self::Asks => f.write_str("a person is asked first"),
            Self::Refused { why } => write!(f, "it is refused: {why}"),
        }
    }
}

/// End of a played turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", deny_unknown_fields)]
pub enum PlayedEnd {
    /// The turn ends with a reply.
    Replied,
    /// The turn fails.
    Failed {
        /// The error.
        why: String,
    },
    /// The model would be asked again, after the recorded end of the turn.
    GoesOn,
    /// A part of the recording is missing.
    Incomplete {
        /// The part.
        why: String,
    },
    /// The turn cannot be replayed.
    Unplayable {
        /// The reason.
        why: String,
    },
}

impl fmt::Display for PlayedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replied => f.write_str("the turn ends with a reply"),
            Self::Failed { why } => write!(f, "the turn fails: {why}"),
            Self::GoesOn => f.write_str("the model is asked again"),
            Self::Incomplete { why } => write!(f, "the recording ends: {why}"),
            Self::Unplayable { why } => write!(f, "the turn cannot be replayed: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_depend_on_every_part_and_on_the_boundaries() {
        let prints = [
            ShortDigest::of(&["ab", "c"]),
            ShortDigest::of(&["a", "bc"]),
            ShortDigest::of(&["abc"]),
            ShortDigest::of(&["abc", ""]),
        ];
        for (at, print) in prints.iter().enumerate() {
            assert_eq!(print.to_string().len(), 2 * SHORT_DIGEST_BYTES);
            assert!(prints.iter().skip(at + 1).all(|other| other != print));
        }
        assert_eq!(ShortDigest::of(&["ab", "c"]), prints[0]);
    }

    #[test]
    fn ends_and_fates_are_read_back() {
        let ends = [
            PlayedEnd::Replied,
            PlayedEnd::GoesOn,
            PlayedEnd::Failed {
                why: "E_MODEL: no".to_owned(),
            },
        ];
        let text = serde_json::to_string(&ends).unwrap();
        assert_eq!(serde_json::from_str::<[PlayedEnd; 3]>(&text).unwrap(), ends);
        let fate = CallFate::Refused {
            why: "no".to_owned(),
        };
        let text = serde_json::to_string(&fate).unwrap();
        assert_eq!(text, r#"{"kind":"refused","why":"no"}"#);
        assert_eq!(serde_json::from_str::<CallFate>(&text).unwrap(), fate);
    }
}
