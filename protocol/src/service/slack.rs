//! Slack: messages of an app.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::action::{ActionCall, ActionPlan, ActionSpec, PlanError, ServiceSpec, name_of};
use super::split::Measure;
use super::text::{check_length, parts};
use crate::limits::MAX_INPUT_BYTES;

/// Largest number of messages per read.
pub const SLACK_MESSAGES_MAX: usize = 100;

/// Default number of messages per read.
const MESSAGES_DEFAULT: usize = 20;

/// The `slack` tool.
pub const SLACK: ServiceSpec = ServiceSpec {
    tool: "slack",
    connector: "slack",
    secret: Some("botToken"),
    actions: &[
        ActionSpec {
            name: "send",
            description: "Writes a message in Slack and returns its ts. A text that is too long for one message becomes several.",
            arguments: || {
                json!({
                    "text": text_schema(), "channel": channel_schema(), "format": format_schema(),
                    "thread": {"type": "string", "description": "The ts of the thread's first message; empty: in no thread. If not given, the thread this turn's message belongs to"},
                })
            },
            required: &["text"],
            is_idempotent: false,
            plan: send,
        },
        ActionSpec {
            name: "edit",
            description: "Gives a message that `send` wrote another text.",
            arguments: || {
                json!({
                    "message": own_schema(), "text": text_schema(),
                    "channel": channel_schema(), "format": format_schema(),
                })
            },
            required: &["message", "text"],
            is_idempotent: true,
            plan: edit,
        },
        ActionSpec {
            name: "delete",
            description: "Takes a message back that `send` wrote.",
            arguments: || json!({"message": own_schema(), "channel": channel_schema()}),
            required: &["message"],
            is_idempotent: false,
            plan: delete,
        },
        ActionSpec {
            name: "react",
            description: "Puts an emoji under a message.",
            arguments: || {
                json!({
                    "emoji": {"type": "string", "minLength": 1, "description": "Its name, such as thumbsup"},
                    "message": any_schema(), "channel": channel_schema(),
                    "remove": {"type": "boolean", "description": "True to remove the emoji. Default: false"},
                })
            },
            required: &["emoji"],
            is_idempotent: true,
            plan: react,
        },
        ActionSpec {
            name: "read",
            description: "Reads the last messages of a thread or a channel in Slack, oldest first: author, time and text of each.",
            arguments: || {
                json!({
                    "channel": channel_schema(),
                    "thread": {"type": "string", "description": "The ts of the thread's first message; empty: the channel itself. If not given, the thread this turn's message belongs to"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": SLACK_MESSAGES_MAX, "description": format!("Number of messages. Default: {MESSAGES_DEFAULT}")},
                })
            },
            required: &[],
            is_idempotent: true,
            plan: read,
        },
    ],
};

/// Methods of a connection of the connector `slack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Slack {
    /// Posts a message.
    Send {
        /// A channel's id.
        channel: String,
        /// The text.
        text: String,
        /// Markup of the text.
        #[serde(default)]
        format: SlackFormat,
        /// The thread, by the `ts` of its first message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
    },
    /// Edits a message of the app.
    Edit {
        /// The channel.
        channel: String,
        /// The message, by its `ts`.
        message: String,
        /// Its new text.
        text: String,
        /// Markup of the text.
        #[serde(default)]
        format: SlackFormat,
    },
    /// Deletes a message of the app.
    Delete {
        /// The channel.
        channel: String,
        /// The message.
        message: String,
    },
    /// Adds an emoji reaction to a message.
    React {
        /// The channel.
        channel: String,
        /// The message.
        message: String,
        /// The emoji's name, without colons.
        emoji: String,
        /// True to remove the reaction.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        remove: bool,
    },
    /// Downloads a file. Returns `{contentType, contentLength, etag, contentDisposition, base64}`.
    Download {
        /// The file's URL at Slack, which receives the token.
        url: String,
        /// Size limit in bytes, at most [`super::DOWNLOAD_BYTES_MAX`].
        max_bytes: u64,
    },
    /// Reads the latest messages of a thread or a channel.
    Read {
        /// The channel.
        channel: String,
        /// The thread, by the `ts` of its first message; absent for the channel itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
        /// Number of messages, at most [`SLACK_MESSAGES_MAX`].
        limit: usize,
    },
}

/// Markup of a Slack text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SlackFormat {
    /// Slack's own markup.
    #[default]
    Mrkdwn,
    /// Markdown.
    Markdown,
    /// No markup.
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

fn channel_schema() -> Value {
    json!({
        "type": "string", "minLength": 1,
        "description": "The channel's id, such as C0123. If not given, the one this turn's message came from",
    })
}

fn text_schema() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": MAX_INPUT_BYTES,
        "description": "The text. `<@U0123>` mentions a user",
    })
}

fn format_schema() -> Value {
    json!({
        "enum": ["mrkdwn", "markdown", "plain"],
        "description": "Markup of the text: Slack's (the default), Markdown, or none",
    })
}

fn own_schema() -> Value {
    json!({"type": "string", "minLength": 1, "description": "The message's ts, as `send` returned it"})
}

fn any_schema() -> Value {
    json!({
        "type": "string", "minLength": 1,
        "description": "The message's ts. If not given, the message this turn answers",
    })
}

#[derive(Deserialize)]
struct Args {
    #[serde(default)]
    channel: Option<Value>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    format: SlackFormat,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    thread: Option<String>,
    #[serde(default)]
    emoji: String,
    #[serde(default)]
    remove: bool,
    #[serde(default)]
    limit: Option<usize>,
}

/// The arguments, the channel, and true if the turn's message came from it.
fn args_of(call: &ActionCall<'_>) -> Result<(Args, String, bool), PlanError> {
    let args: Args = call.args()?;
    let (channel, is_home) = call.place("channel", args.channel.as_ref(), "channel")?;
    Ok((args, channel, is_home))
}

/// The named thread, or the thread of the turn's message if it came from the channel.
fn thread_of(call: &ActionCall<'_>, named: Option<String>, is_home: bool) -> Option<String> {
    let home_thread = || call.fact("threadTs").filter(|_| is_home).and_then(name_of);
    let thread = named.or_else(home_thread);
    thread.filter(|thread| !thread.is_empty())
}

fn read(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, channel, is_home) = args_of(call)?;
    ActionPlan::result(&Slack::Read {
        channel,
        thread: thread_of(call, args.thread, is_home),
        limit: args.limit.unwrap_or(MESSAGES_DEFAULT),
    })
}

fn send(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, channel, is_home) = args_of(call)?;
    let thread = thread_of(call, args.thread, is_home);
    let keeps_fences = args.format != SlackFormat::Plain;
    let limit = args.format.chars_max();
    let parts = parts(&args.text, limit, Measure::Chars, keeps_fences)?;
    let place = json!({"channel": channel, "thread": thread});
    ActionPlan::messages(&parts, place, |_, part| Slack::Send {
        channel: channel.clone(),
        text: part.to_owned(),
        format: args.format,
        thread: thread.clone(),
    })
}

fn edit(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, channel, _) = args_of(call)?;
    check_length(&args.text, args.format.chars_max(), Measure::Chars)?;
    let action = Slack::Edit {
        channel,
        message: args.message.unwrap_or_default(),
        text: args.text,
        format: args.format,
    };
    ActionPlan::done(&action, "edited")
}

fn delete(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, channel, _) = args_of(call)?;
    let action = Slack::Delete {
        channel,
        message: args.message.unwrap_or_default(),
    };
    ActionPlan::done(&action, "deleted")
}

fn react(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, channel, is_home) = args_of(call)?;
    let answered = || call.fact("ts").filter(|_| is_home).and_then(name_of);
    let none = || PlanError::Invalid("say which `message`".to_owned());
    let action = Slack::React {
        channel,
        message: args.message.or_else(answered).ok_or_else(none)?,
        emoji: args.emoji.trim_matches(':').to_owned(),
        remove: args.remove,
    };
    ActionPlan::done(&action, "done")
}
