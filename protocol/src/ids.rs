//! Newtypes for everything that identifies something.
//!
//! An id that exists is valid: the only ways in are `new` and deserialization, and both check.
//! Cloning is a reference count, so that the orchestrator's tables can share ids freely.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::{
    MAX_ID_BYTES, MAX_INSTANCE_KEY_BYTES, MAX_NAME_BYTES, MAX_SECRET_KEY_BYTES,
    MAX_WORKSPACE_ID_BYTES,
};

/// Why a text is no valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// The text is empty.
    #[error("{kind} must not be empty")]
    Empty {
        /// What the text was to name.
        kind: &'static str,
    },
    /// The text is longer than its limit.
    #[error("{kind} is {len} bytes long; at most {max} are allowed")]
    TooLong {
        /// What the text was to name.
        kind: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The text holds a character its kind does not allow.
    #[error("{kind} `{text}` holds {found:?}; allowed are {allowed}")]
    BadCharacter {
        /// What the text was to name.
        kind: &'static str,
        /// The text, shortened for display.
        text: String,
        /// The first offending character.
        found: char,
        /// What is allowed, in words.
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
    /// The folder name that stands for one (Project Root, package) pair (`ROOT-9`).
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
    /// The name of a secret; a file is named after it.
    SecretName, "secret name", MAX_NAME_BYTES, NAME
);
text_id!(
    /// The key of one entry of a secret.
    SecretKey, "secret key", MAX_SECRET_KEY_BYTES, NAME
);
text_id!(
    /// For whom a token of an `OAuthApp` is.
    OAuthSubject, "OAuth subject", MAX_NAME_BYTES, SUBJECT
);
text_id!(
    /// Names one login at an authorization server; a file is named after it.
    LoginId, "login id", MAX_NAME_BYTES, NAME
);
generated_id!(LoginId);

/// The subject of applications that do not tell people apart.
const GLOBAL_SUBJECT: &str = "global";

impl OAuthSubject {
    /// Everybody: the application has one token for all.
    #[must_use]
    pub fn global() -> Self {
        Self(Arc::from(GLOBAL_SUBJECT))
    }

    /// Whether it is everybody.
    #[must_use]
    pub fn is_global(&self) -> bool {
        self.as_str() == GLOBAL_SUBJECT
    }
}

/// What extensions of one instance remember, by their names (`EXT-2`). Each is any JSON value
/// (`EXT-4`).
pub type ExtensionStates = std::collections::BTreeMap<ExtensionName, serde_json::Value>;

text_id!(
    /// The full name a model calls a tool by: `tool__export`.
    ToolName, "tool name", MAX_NAME_BYTES, TOOL_NAME
);
text_id!(
    /// The key of one conversation. Any text is allowed (`telegram:123`, `../../x`, `.`); the store
    /// turns it into a safe directory name (`INST-1`).
    InstanceKey, "instance key", MAX_INSTANCE_KEY_BYTES, ANY
);

impl InstanceKey {
    /// The conversation that is meant when neither a person nor the project names one: `main`.
    #[must_use]
    pub fn main() -> Self {
        Self(Arc::from("main"))
    }
}
text_id!(
    /// Identifies one input event; the same id twice is one turn (`MSG-13`).
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
    /// Names one changeset of a conversation's configuration (`BUNDLE-3`). A folder is named after it.
    ChangesetId, "changeset id", MAX_NAME_BYTES, NAME
);
text_id!(
    /// Names one revision of a conversation's configuration: the digest of its files (`BUNDLE-1`).
    RevisionId, "revision id", MAX_NAME_BYTES, NAME
);

text_id!(
    /// Names what is rehearsed: a changeset, or else a revision (`BUNDLE-7`).
    RehearsalSubject, "changeset or revision id", MAX_NAME_BYTES, NAME
);

text_id!(
    /// Identifies one question to a person.
    QuestionId, "question id", MAX_NAME_BYTES, NAME
);

impl QuestionId {
    /// The id of a question that is asked now: short enough to be typed, and so much at random that an id
    /// from before never means another question.
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
    /// Identifies one tool call that waits for a person to approve it.
    ApprovalId, "approval id", MAX_NAME_BYTES, NAME
);

impl ApprovalId {
    /// The id of a call that is asked about now; like that of a question.
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
    /// Names one run: work that several agents do together, each in a sandbox of its own (`BOX-1`). A folder
    /// is named after it.
    RunId, "run id", MAX_NAME_BYTES, NAME
);
text_id!(
    /// Whose a sandbox is within its run: a worker, such as `coder-1` or `custom:coder-1` (`BOX-1`). A folder
    /// is named after it.
    WorkerId, "agent id", MAX_NAME_BYTES, VISIBLE
);

generated_id!(EventId);
generated_id!(TurnId);
generated_id!(MessageId);

impl StepId {
    /// The id of the `number`-th step (from 1) of `turn`. Deterministic, so that a resumed turn asks
    /// for the same step again and finds what was recorded for it.
    #[must_use]
    pub fn of_turn(turn: &TurnId, number: u32) -> Self {
        Self(Arc::from(format!("{turn}.{number}")))
    }

    /// The id under which a summary of the `count` oldest messages is asked for before a step of `turn`.
    /// It is recorded and counted like a step's reply, and is none.
    #[must_use]
    pub fn of_summary(turn: &TurnId, count: usize) -> Self {
        Self(Arc::from(format!("{turn}.s{count}")))
    }

    /// How many messages it is a summary of, if it is one of `turn`.
    #[must_use]
    pub fn summarized(&self, turn: &TurnId) -> Option<usize> {
        let count = self.0.strip_prefix(turn.as_str())?.strip_prefix(".s")?;
        let count = count.parse().ok()?;
        (Self::of_summary(turn, count) == *self).then_some(count)
    }

    /// Whether it is no step, but a summary.
    #[must_use]
    pub fn is_summary(&self) -> bool {
        let count = self.0.rsplit_once(".s").map(|(_, count)| count);
        count.is_some_and(|count| !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit()))
    }
}

/// Names one instance: a conversation of one agent in one workspace (`INST-3`).
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
    fn names_refuse_what_could_leave_a_directory_or_confuse_an_address() {
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
