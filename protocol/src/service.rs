//! What agents have connections do: the methods of outgoing calls to a connection, with their
//! parameters.
//!
//! The agent's tools write these types, the connectors read them. A call's method is the name of the
//! variant, its parameters are the variant's fields.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::ser::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Error, Value};

use crate::JsonObject;
use crate::images::Image;

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

/// What a connection of the connector `mcp` does: it speaks to one server of the Model Context Protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Mcp {
    /// Tells what tools the server has: [`McpTools`].
    Tools {
        /// The digest of the list that is known already; it is not told again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known: Option<String>,
    },
    /// Calls a tool: [`McpResult`].
    Call {
        /// The tool, by the server's name.
        name: String,
        /// Its arguments.
        arguments: JsonObject,
    },
}

/// The tools of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpTools {
    /// Tells this list from any other of the server.
    pub digest: String,
    /// The tools in the server's order; none if the list is the one that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<McpTool>>,
}

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpTool {
    /// The server's name of it, which may be none that models can call.
    pub name: String,
    /// What it does, in the server's words.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

/// What a tool of a server returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpResult {
    /// For the model.
    pub text: String,
    /// Images for the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Whether the tool itself says that it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
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

/// What a connection of the connector `slack` does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Slack {
    /// Writes a message.
    Send {
        /// A channel's id.
        channel: String,
        /// The text.
        text: String,
        /// How the text is marked up.
        #[serde(default)]
        format: SlackFormat,
        /// The thread, by the `ts` of its first message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
    },
    /// Gives a message of the app another text.
    Edit {
        /// The channel.
        channel: String,
        /// The message, by its `ts`.
        message: String,
        /// Its new text.
        text: String,
        /// As for `Send`.
        #[serde(default)]
        format: SlackFormat,
    },
    /// Takes a message of the app back.
    Delete {
        /// The channel.
        channel: String,
        /// The message.
        message: String,
    },
    /// Puts an emoji under a message.
    React {
        /// The channel.
        channel: String,
        /// The message.
        message: String,
        /// The emoji's name, without colons.
        emoji: String,
        /// Takes it away instead.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        remove: bool,
    },
}

/// How a text for Slack is marked up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SlackFormat {
    /// In Slack's own way.
    #[default]
    Mrkdwn,
    /// In that of Markdown.
    Markdown,
    /// Not at all.
    Plain,
}

impl SlackFormat {
    /// Longest text of a message, in characters.
    #[must_use]
    pub fn chars_max(self) -> usize {
        match self {
            Self::Mrkdwn | Self::Plain => 4_000,
            Self::Markdown => 12_000,
        }
    }
}

impl Slack {
    /// Whether doing it twice is the same as doing it once.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        matches!(self, Self::Edit { .. } | Self::React { .. })
    }
}

/// What a connection of the connector `discord` does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Discord {
    /// Writes a message of at most [`DISCORD_TEXT_UNITS_MAX`].
    Send {
        /// A channel's id.
        channel: String,
        /// The text.
        text: String,
        /// The message it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<String>,
        /// The command or button it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interaction: Option<String>,
        /// The same text sent again: Discord knows it by this for some minutes.
        mark: String,
    },
    /// Gives a message of the bot another text.
    Edit {
        /// The channel.
        channel: String,
        /// The message.
        message: String,
        /// Its new text.
        text: String,
    },
    /// Takes a message back.
    Delete {
        /// The channel.
        channel: String,
        /// The message.
        message: String,
    },
    /// Puts an emoji under a message.
    React {
        /// The channel.
        channel: String,
        /// The message.
        message: String,
        /// The emoji, or `name:id` of one of the server's own.
        emoji: String,
    },
}

/// Longest text of a message on Discord, in UTF-16 units.
pub const DISCORD_TEXT_UNITS_MAX: usize = 2_000;

impl Discord {
    /// Whether doing it twice within minutes is the same as doing it once.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        match self {
            // An answer to a command bears no mark.
            Self::Send { interaction, .. } => interaction.is_none(),
            Self::Edit { .. } | Self::React { .. } => true,
            Self::Delete { .. } => false,
        }
    }
}

/// What a connection of the connector `github` does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum GitHub {
    /// Comments on an issue or a pull request.
    Comment {
        /// `owner/name`.
        repository: String,
        /// Its number.
        number: u64,
        /// The comment, in Markdown.
        body: String,
    },
    /// Gives a comment another text.
    Edit {
        /// `owner/name`.
        repository: String,
        /// The comment's id.
        comment: u64,
        /// Its new text.
        body: String,
    },
    /// Puts a reaction under a comment, or else under an issue or a pull request.
    React {
        /// `owner/name`.
        repository: String,
        /// The comment's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<u64>,
        /// The number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
        /// One of GitHub's reactions.
        content: String,
    },
}

/// Longest comment on GitHub, in characters, less the mark that goondan puts behind it.
pub const GITHUB_BODY_CHARS_MAX: usize = 65_000;

impl GitHub {
    /// Whether doing it twice is the same as doing it once.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        !matches!(self, Self::Comment { .. })
    }
}

/// What a connection of the connector `http` does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Http {
    /// Makes a request and follows redirects.
    Fetch {
        /// The method.
        method: String,
        /// The URL.
        url: String,
        /// Headers by name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
        /// The body.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
        /// HTML is given as it is, not as the text it shows.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        raw: bool,
        /// How long it may take, in milliseconds.
        timeout_ms: u64,
    },
}

/// What came back from [`Http::Fetch`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fetched {
    /// The status code.
    pub status: u16,
    /// Where it was, after redirects.
    pub url: String,
    /// The headers that tell something, by name.
    pub headers: BTreeMap<String, String>,
    /// The body as text; empty if it is none.
    pub text: String,
    /// Bytes of the body as it came.
    pub bytes: u64,
    /// What was done to the body, or why it is not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
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
