//! Newtypes for identifiers.
//!
//! Every id value is valid because its only constructors, `new` and deserialization, validate it.
//! Cloning only increments a reference count, so that the orchestrator's tables can share ids
//! freely.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::{
    MAX_ID_BYTES, MAX_INSTANCE_KEY_BYTES, MAX_NAME_BYTES, MAX_SECRET_KEY_BYTES,
    MAX_WORKSPACE_ID_BYTES,
};

/// Reason why a text is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// The text is empty.
    #[error("{kind} must not be empty")]
    Empty {
        /// The kind of id.
        kind: &'static str,
    },
    /// The text is longer than its limit.
    #[error("{kind} is {len} bytes long; at most {max} are allowed")]
    TooLong {
        /// The kind of id.
        kind: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The text contains a character that this kind of id does not allow.
    #[error("{kind} `{text}` holds {found:?}; allowed are {allowed}")]
    BadCharacter {
        /// The kind of id.
        kind: &'static str,
        /// The text, shortened for display.
        text: String,
        /// The first offending character.
        found: char,
        /// The allowed characters, as text.
        allowed: &'static str,
    },
}

/// The characters one kind of id allows.
struct Charset {
    allowed: fn(char) -> bool,
    words: &'static str,
}

const NAME: Charset = Charset {
    allowed: |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'),
    words: "letters, digits, `-`, `_` and `.`",
};
const SUBJECT: Charset = Charset {
    allowed: |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '+'),
    words: "letters, digits, `-`, `_`, `.`, `@` and `+`",
};
const TOOL_NAME: Charset = Charset {
    allowed: |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'),
    words: "letters, digits, `-` and `_`",
};
const VISIBLE: Charset = Charset {
    allowed: |c| !c.is_control(),
    words: "all characters but control characters",
};
const ANY: Charset = Charset {
    allowed: |_| true,
    words: "all characters",
};

fn check(kind: &'static str, text: &str, max: usize, charset: &Charset) -> Result<(), InvalidId> {
    if text.is_empty() {
        return Err(InvalidId::Empty { kind });
    }
    if text.len() > max {
        return Err(InvalidId::TooLong {
            kind,
            len: text.len(),
            max,
        });
    }
    match text.chars().find(|c| !(charset.allowed)(*c)) {
        None => Ok(()),
        Some(found) => Err(InvalidId::BadCharacter {
            kind,
            text: text.chars().take(60).collect(),
            found,
            allowed: charset.words,
        }),
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $max:expr, $charset:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            #[doc = concat!("Checks `text` and makes it a valid ", $kind, ".")]
            ///
            /// # Errors
            ///
            /// [`InvalidId`] if the text is empty, too long or holds a forbidden character.
            pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidId> {
                let text = text.as_ref();
                check($kind, text, $max, &$charset)?;
                Ok(Self(Arc::from(text)))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::text::parse(deserializer)
            }
        }
    };
}

macro_rules! generated_id {
    ($name:ident) => {
        impl From<uuid::Uuid> for $name {
            fn from(uuid: uuid::Uuid) -> Self {
                let mut text = uuid::Uuid::encode_buffer();
                Self(Arc::from(&*uuid.as_hyphenated().encode_lower(&mut text)))
            }
        }
    };
}

text_id!(
    /// The folder name of one (Project Root, package) pair (`ROOT-9`).
    WorkspaceId, "workspace id", MAX_WORKSPACE_ID_BYTES, NAME
);
text_id!(
    /// The name of an Agent resource.
    AgentName, "agent name", MAX_NAME_BYTES, NAME
);
text_id!(
    /// The name of a Connection resource: one connector process runs for each.
    ConnectionName, "connection name", MAX_NAME_BYTES, NAME
);
text_id!(
    /// The name of any other resource (Model, Swarm, Tool, Connector …).
    ResourceName, "resource name", MAX_NAME_BYTES, NAME
);
text_id!(
    /// The name of an extension, which also names its state (`EXT-1`).
    ExtensionName, "extension name", MAX_NAME_BYTES, VISIBLE
);
text_id!(
    /// The name of a secret; also used as a file name.
    SecretName, "secret name", MAX_NAME_BYTES, NAME
);
text_id!(
    /// The key of one entry of a secret.
    SecretKey, "secret key", MAX_SECRET_KEY_BYTES, NAME
);
text_id!(
    /// The subject of an `OAuthApp` token.
    OAuthSubject, "OAuth subject", MAX_NAME_BYTES, SUBJECT
);
text_id!(
    /// Identifies a login at an authorization server; also used as a file name.
    LoginId, "login id", MAX_NAME_BYTES, NAME
);
generated_id!(LoginId);

/// The subject of applications that share one token.
const GLOBAL_SUBJECT: &str = "global";

impl OAuthSubject {
    /// The shared subject: the application has one token for all people.
    #[must_use]
    pub fn global() -> Self {
        Self(Arc::from(GLOBAL_SUBJECT))
    }

    /// True for the shared subject.
    #[must_use]
    pub fn is_global(&self) -> bool {
        self.as_str() == GLOBAL_SUBJECT
    }
}

/// State of an instance's extensions, by extension name (`EXT-2`). Each is any JSON value
/// (`EXT-4`).
pub type ExtensionStates = std::collections::BTreeMap<ExtensionName, serde_json::Value>;

text_id!(
    /// The full name by which a model calls a tool: `tool__export`.
    ToolName, "tool name", MAX_NAME_BYTES, TOOL_NAME
);
text_id!(
    /// The key of one conversation. Any text is allowed (`telegram:123`, `../../x`, `.`); the store
    /// converts it into a safe directory name (`INST-1`).
    InstanceKey, "instance key", MAX_INSTANCE_KEY_BYTES, ANY
);

impl InstanceKey {
    /// The default conversation: `main`.
    #[must_use]
    pub fn main() -> Self {
        Self(Arc::from("main"))
    }
}
text_id!(
    /// Identifies one input event; submitting the same id twice results in one turn (`MSG-13`).
    EventId, "event id", MAX_ID_BYTES, VISIBLE
);
text_id!(
    /// Identifies one turn.
    TurnId, "turn id", MAX_ID_BYTES, VISIBLE
);
text_id!(
    /// Identifies one step (one model call) of a turn.
    StepId, "step id", MAX_ID_BYTES, VISIBLE
);
text_id!(
    /// Identifies one message of a conversation.
    MessageId, "message id", MAX_ID_BYTES, VISIBLE
);
text_id!(
    /// Identifies one tool call of a step.
    ToolCallId, "tool call id", MAX_ID_BYTES, VISIBLE
);

text_id!(
    /// Identifies a changeset of a conversation's configuration (`BUNDLE-3`). Also used as a folder
    /// name.
    ChangesetId, "changeset id", MAX_NAME_BYTES, NAME
);
text_id!(
    /// Identifies a revision of a conversation's configuration: the digest of its files
    /// (`BUNDLE-1`).
    RevisionId, "revision id", MAX_NAME_BYTES, NAME
);

text_id!(
    /// Identifies the subject of a rehearsal: a changeset or a revision (`BUNDLE-7`).
    RehearsalSubject, "changeset or revision id", MAX_NAME_BYTES, NAME
);

text_id!(
    /// Identifies one question to a person.
    QuestionId, "question id", MAX_NAME_BYTES, NAME
);

impl QuestionId {
    /// Creates the id of a new question: short enough to type, and random enough that a stale id
    /// never matches another question.
    #[must_use]
    pub fn of_uuid(uuid: uuid::Uuid) -> Self {
        let [.., a, b, c, d] = uuid.into_bytes();
        Self(Arc::from(format!(
            "q-{:08x}",
            u32::from_be_bytes([a, b, c, d])
        )))
    }
}

text_id!(
    /// Identifies one schedule of a conversation.
    ScheduleId, "schedule id", MAX_NAME_BYTES, NAME
);

text_id!(
    /// Identifies one tool call that waits for approval.
    ApprovalId, "approval id", MAX_NAME_BYTES, NAME
);

impl ApprovalId {
    /// Creates the id of a new approval, with the same properties as a question's id.
    #[must_use]
    pub fn of_uuid(uuid: uuid::Uuid) -> Self {
        let [.., a, b, c, d] = uuid.into_bytes();
        Self(Arc::from(format!(
            "a-{:08x}",
            u32::from_be_bytes([a, b, c, d])
        )))
    }
}

text_id!(
    /// Identifies one decision that a person may make in a chat: an approval, a question of a tool
    /// server, or an open point of a task.
    DecisionId, "decision id", MAX_NAME_BYTES, NAME
);

impl DecisionId {
    /// Creates the id of an open point of a task, a proposal or a login from a digest, short enough
    /// for the data of a button.
    #[must_use]
    pub fn of_digest(digest: [u8; 8]) -> Self {
        Self(Arc::from(format!("t-{:016x}", u64::from_be_bytes(digest))))
    }

    /// The approval with this id.
    #[must_use]
    pub fn to_approval(&self) -> ApprovalId {
        ApprovalId(Arc::clone(&self.0))
    }

    /// The question of a tool server with this id.
    #[must_use]
    pub fn to_question(&self) -> QuestionId {
        QuestionId(Arc::clone(&self.0))
    }
}

impl From<&ApprovalId> for DecisionId {
    fn from(id: &ApprovalId) -> Self {
        Self(Arc::clone(&id.0))
    }
}

impl From<&QuestionId> for DecisionId {
    fn from(id: &QuestionId) -> Self {
        Self(Arc::clone(&id.0))
    }
}

text_id!(
    /// Identifies a run: joint work of several agents, each in its own sandbox (`BOX-1`). Also used
    /// as a folder name.
    RunId, "run id", MAX_NAME_BYTES, NAME
);
text_id!(
    /// Identifies the worker that owns a sandbox within its run, such as `coder-1` or
    /// `custom:coder-1` (`BOX-1`). Also used as a folder name.
    WorkerId, "agent id", MAX_NAME_BYTES, VISIBLE
);

generated_id!(EventId);
generated_id!(TurnId);
generated_id!(MessageId);

impl StepId {
    /// The id of the `number`-th step (from 1) of `turn`. It is deterministic, so that a resumed
    /// turn requests the same step again and finds its recorded reply.
    #[must_use]
    pub fn of_turn(turn: &TurnId, number: u32) -> Self {
        Self(Arc::from(format!("{turn}.{number}")))
    }

    /// The pseudo step id under which a summary of the `count` oldest messages is requested before
    /// a step of `turn`. It is recorded and counted like a step's reply.
    #[must_use]
    pub fn of_summary(turn: &TurnId, count: usize) -> Self {
        Self(Arc::from(format!("{turn}.s{count}")))
    }

    /// The number of summarized messages, if this is a summary's id in `turn`.
    #[must_use]
    pub fn summarized(&self, turn: &TurnId) -> Option<usize> {
        let count = self.0.strip_prefix(turn.as_str())?.strip_prefix(".s")?;
        let count = count.parse().ok()?;
        (Self::of_summary(turn, count) == *self).then_some(count)
    }

    /// True if this is the id of a summary rather than a step.
    #[must_use]
    pub fn is_summary(&self) -> bool {
        let count = self.0.rsplit_once(".s").map(|(_, count)| count);
        count.is_some_and(|count| !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit()))
    }
}

/// Identifies an instance: a conversation of one agent in one workspace (`INST-3`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstanceRef {
    /// The workspace it lives in.
    pub workspace_id: WorkspaceId,
    /// The key of the conversation.
    pub instance_key: InstanceKey,
}

impl fmt::Display for InstanceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.workspace_id, self.instance_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_reject_path_separators_and_address_characters() {
        for bad in ["", "a/b", "a:b", "a b", "a\0", "ä"] {
            assert!(AgentName::new(bad).is_err(), "{bad:?} was accepted");
        }
        assert!(AgentName::new("a.b-c_D9").is_ok());
        assert!(ToolName::new("bash__exec").is_ok());
    }

    #[test]
    fn an_instance_key_may_be_any_text_but_empty_or_too_long() {
        for good in [".", "..", "../../x", "가나다", "a\0b", &"k".repeat(300)] {
            assert!(InstanceKey::new(good).is_ok(), "{good:?} was refused");
        }
        assert_eq!(
            InstanceKey::new(""),
            Err(InvalidId::Empty {
                kind: "instance key"
            })
        );
        assert!(InstanceKey::new("k".repeat(MAX_INSTANCE_KEY_BYTES + 1)).is_err());
    }

    #[test]
    fn deserializing_checks_like_new() {
        assert!(serde_json::from_str::<AgentName>("\"a/b\"").is_err());
        assert!(serde_json::from_str::<AgentName>("\"a\\u002db\"").is_ok());
    }

    #[test]
    fn step_ids_are_deterministic() {
        let turn = TurnId::new("t1").unwrap();
        assert_eq!(StepId::of_turn(&turn, 3).as_str(), "t1.3");
    }
}
