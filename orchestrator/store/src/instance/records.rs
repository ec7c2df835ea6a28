//! Message events with unparsed messages, as sent by agents and stored in the journal.

use goondan_protocol::ids::{MessageId, TurnId};
use goondan_protocol::limits::MAX_MESSAGE_BYTES;
use goondan_protocol::message::Message;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::StoreError;

/// Any line of the file; the set of fields depends on the type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawTurnLine<'a> {
    #[serde(rename = "type")]
    pub kind: &'a str,
    pub turn_id: Option<TurnId>,
    pub seq: Option<u64>,
    pub attempt: Option<u32>,
    #[serde(borrow)]
    pub event: Option<&'a RawValue>,
    target_id: Option<MessageId>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

/// A message event with an unparsed message.
#[derive(Debug, Clone)]
pub(super) enum RawEvent {
    Append {
        message: Box<RawValue>,
    },
    Replace {
        target_id: MessageId,
        message: Box<RawValue>,
    },
    Remove {
        target_id: MessageId,
    },
    Truncate,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventLine<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_id: Option<&'a TurnId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_id: Option<&'a MessageId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a RawValue>,
}

impl RawEvent {
    pub(super) fn of_line(line: &RawTurnLine<'_>) -> Result<Self, String> {
        let message = || match line.message {
            Some(message) => one_line(message),
            None => Err(format!("`{}` has no `message`", line.kind)),
        };
        let target_id = || {
            line.target_id
                .clone()
                .ok_or_else(|| format!("`{}` has no `targetId`", line.kind))
        };
        match line.kind {
            "append" => Ok(Self::Append {
                message: message()?,
            }),
            "replace" => Ok(Self::Replace {
                target_id: target_id()?,
                message: message()?,
            }),
            "remove" => Ok(Self::Remove {
                target_id: target_id()?,
            }),
            "truncate" => Ok(Self::Truncate),
            other => Err(format!("unknown record `{other}`")),
        }
    }

    pub(super) fn line<'a>(
        &'a self,
        turn_id: Option<&'a TurnId>,
        seq: Option<u64>,
    ) -> EventLine<'a> {
        let (kind, target_id, message) = match self {
            Self::Append { message } => ("append", None, Some(&**message)),
            Self::Replace { target_id, message } => ("replace", Some(target_id), Some(&**message)),
            Self::Remove { target_id } => ("remove", Some(target_id), None),
            Self::Truncate => ("truncate", None, None),
        };
        EventLine {
            kind,
            turn_id,
            seq,
            target_id,
            message,
        }
    }

    /// Returns the event as JSON, without the journal's own fields.
    pub(super) fn to_raw(&self) -> serde_json::Result<Box<RawValue>> {
        serde_json::value::to_raw_value(&self.line(None, None))
    }

    /// Parses an event sent by an agent and validates its message.
    pub(super) fn from_agent(raw: &RawValue) -> Result<Self, StoreError> {
        let invalid = |problem: String| StoreError::InvalidEvent { problem };
        if raw.get().len() > MAX_MESSAGE_BYTES {
            return Err(StoreError::TooLarge {
                bytes: raw.get().len(),
                max: MAX_MESSAGE_BYTES,
            });
        }
        let line: RawTurnLine<'_> =
            serde_json::from_str(raw.get()).map_err(|error| invalid(error.to_string()))?;
        let event = Self::of_line(&line).map_err(invalid)?;
        if let Self::Append { message } | Self::Replace { message, .. } = &event {
            serde_json::from_str::<Message>(message.get())
                .map_err(|error| invalid(error.to_string()))?;
        }
        Ok(event)
    }
}

/// Removes line breaks between tokens, because a record must fit one line.
pub(super) fn one_line(raw: &RawValue) -> Result<Box<RawValue>, String> {
    if !raw.get().contains(['\n', '\r']) {
        return Ok(raw.to_owned());
    }
    let value: serde_json::Value =
        serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
    serde_json::value::to_raw_value(&value).map_err(|error| error.to_string())
}
