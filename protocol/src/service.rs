//! What agents have connections do: the methods of outgoing calls to a connection, with their
//! parameters.
//!
//! The agent's tools write these types, the connectors read them. A call's method is the name of the
//! variant, its parameters are the variant's fields.

use serde::de::DeserializeOwned;
use serde::ser::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Error, Value};

/// The method and the parameters of a call that does this.
///
/// # Errors
///
/// If it is no variant with fields.
pub fn to_call(errand: &impl Serialize) -> Result<(String, Box<RawValue>), Error> {
    match serde_json::to_value(errand)? {
        Value::Object(fields) if fields.len() == 1 => {
            let only = fields.into_iter().next();
            let (method, params) = only.ok_or_else(|| Error::custom("nothing to do"))?;
            Ok((method, to_raw_value(&params)?))
        }
        _ => Err(Error::custom("it is no errand")),
    }
}

/// What a call with this method and these parameters does.
///
/// # Errors
///
/// If there is no such method, or the parameters are not its own.
pub fn of_call<T: DeserializeOwned>(method: &str, params: &RawValue) -> Result<T, Error> {
    let method = serde_json::to_string(method)?;
    serde_json::from_str(&format!("{{{method}:{}}}", params.get()))
}

/// What a connection of the connector `telegram` does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Telegram {
    /// Writes a message of at most [`TELEGRAM_TEXT_UNITS_MAX`].
    Send {
        /// A chat's id, or `@name` of a public one.
        chat: String,
        /// The text.
        text: String,
        /// `MarkdownV2`, `HTML` or `Markdown`; plain text if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parse_mode: Option<String>,
        /// The message it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<i64>,
        /// The topic of a forum.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<i64>,
        /// Nobody's telephone rings.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        silent: bool,
    },
    /// Gives a message of the bot another text.
    Edit {
        /// The chat.
        chat: String,
        /// The message.
        message: i64,
        /// Its new text.
        text: String,
        /// As for `Send`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parse_mode: Option<String>,
    },
    /// Takes a message back.
    Delete {
        /// The chat.
        chat: String,
        /// The message.
        message: i64,
    },
    /// Puts an emoji under a message.
    React {
        /// The chat.
        chat: String,
        /// The message.
        message: i64,
        /// The emoji; none takes the bot's away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        emoji: Option<String>,
    },
    /// Shows for a few seconds that the bot writes.
    Typing {
        /// The chat.
        chat: String,
        /// The topic of a forum.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<i64>,
    },
}

/// Longest text of a message on Telegram, in UTF-16 units.
pub const TELEGRAM_TEXT_UNITS_MAX: usize = 4_096;

impl Telegram {
    /// Whether doing it twice is the same as doing it once.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        matches!(
            self,
            Self::Edit { .. } | Self::React { .. } | Self::Typing { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let errand = Telegram::Delete {
            chat: "-5".to_owned(),
            message: 7,
        };
        let (method, params) = to_call(&errand).unwrap();
        assert_eq!(
            (method.as_str(), params.get()),
            ("delete", r#"{"chat":"-5","message":7}"#)
        );
        assert_eq!(of_call::<Telegram>(&method, &params).unwrap(), errand);
        let unknown = of_call::<Telegram>("dance", &params).unwrap_err();
        assert!(unknown.to_string().contains("dance"), "{unknown}");
        let strange =
            to_raw_value(&serde_json::json!({"chat": "1", "message": 1, "x": 1})).unwrap();
        assert!(of_call::<Telegram>("delete", &strange).is_err());
    }
}
