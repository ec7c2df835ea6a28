//! Discord: messages of a bot, and answers to commands.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::action::{
    ActionCall, ActionPlan, ActionSpec, DOWNLOAD, PATH_ARGUMENT, PlanError, SEND_FILE, ServiceSpec,
    name_of,
};
use super::recovery::Recovery;
use super::split::Measure;
use super::text::{check_length, parts};
use super::{DOWNLOAD_BYTES_MAX, path_schema};
use crate::JsonObject;
use crate::limits::MAX_INPUT_BYTES;

/// Longest text of a message on Discord, in UTF-16 units.
const TEXT_UNITS_MAX: usize = 2_000;

/// Time for which Discord certainly remembers a nonce, in milliseconds; it says "a few minutes".
const DISCORD_NONCE_VALID_MS: u64 = 2 * 60 * 1_000;

/// The `discord` tool.
pub const DISCORD: ServiceSpec = ServiceSpec {
    tool: "discord",
    connector: "discord",
    secret: None,
    actions: &[
        ActionSpec {
            name: "send",
            description: "Writes a message in Discord and returns its id; the first one of a turn answers the command it is about. A text that is too long for one message becomes several.",
            arguments: || {
                json!({
                    "text": text_schema(), "channel": channel_schema(),
                    "replyTo": {"type": "string", "minLength": 1, "description": "The id of the message it is shown as an answer to"},
                })
            },
            required: &["text"],
            recovery: Recovery::Key {
                name: "nonce",
                valid_ms: DISCORD_NONCE_VALID_MS,
            },
            plan: send,
        },
        ActionSpec {
            name: SEND_FILE,
            description: "Sends a file of the work directory in Discord and returns the message's id.",
            arguments: || {
                json!({
                    PATH_ARGUMENT: path_schema("send"),
                    "text": {"type": "string", "description": format!("A text with the file, in Markdown, at most {TEXT_UNITS_MAX} characters")},
                    "channel": channel_schema(),
                })
            },
            required: &[PATH_ARGUMENT],
            recovery: Recovery::Key {
                name: "nonce",
                valid_ms: DISCORD_NONCE_VALID_MS,
            },
            plan: send_file,
        },
        ActionSpec {
            name: DOWNLOAD,
            description: "Saves an attachment of a command or message in the work directory.",
            arguments: || {
                json!({
                    "url": {"type": "string", "minLength": 1, "description": "The attachment's URL, as the message names it"},
                    PATH_ARGUMENT: path_schema("write"),
                })
            },
            required: &["url", PATH_ARGUMENT],
            recovery: Recovery::Repeatable,
            plan: download,
        },
        ActionSpec {
            name: "edit",
            description: "Gives a message that `send` wrote another text.",
            arguments: || json!({"message": own_schema(), "text": text_schema(), "channel": channel_schema()}),
            required: &["message", "text"],
            recovery: Recovery::Repeatable,
            plan: edit,
        },
        ActionSpec {
            name: "delete",
            description: "Takes a message back that `send` wrote.",
            arguments: || json!({"message": own_schema(), "channel": channel_schema()}),
            required: &["message"],
            recovery: Recovery::Unknown(
                "the service reports the same for a message that another client deleted",
            ),
            plan: delete,
        },
        ActionSpec {
            name: "react",
            description: "Puts an emoji under a message.",
            arguments: || {
                json!({
                    "emoji": {"type": "string", "minLength": 1, "description": "The emoji, or `name:id` of one of the server's own"},
                    "message": {"type": "string", "minLength": 1, "description": "The message's id"},
                    "channel": channel_schema(),
                })
            },
            required: &["emoji", "message"],
            recovery: Recovery::Repeatable,
            plan: react,
        },
    ],
};

/// Methods of a connection of the connector `discord`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Discord {
    /// Sends a message of at most 2000 UTF-16 units.
    Send {
        /// A channel's id.
        channel: String,
        /// The text.
        text: String,
        /// The message to reply to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<String>,
        /// The command or button to respond to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interaction: Option<String>,
        /// Nonce by which Discord recognizes a repeated message for some minutes.
        mark: String,
    },
    /// Sends a file.
    SendFile {
        /// A channel's id.
        channel: String,
        /// The file's name.
        name: String,
        /// Its content, in Base64; at most [`super::DOWNLOAD_BYTES_MAX`] bytes.
        base64: String,
        /// A text with it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// The command or button to respond to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interaction: Option<String>,
        /// As for `Send`.
        mark: String,
    },
    /// Downloads an attachment. Returns `{contentType, contentLength, etag, contentDisposition,
    /// base64}`.
    Download {
        /// The attachment's URL at Discord.
        url: String,
        /// Size limit in bytes, at most [`super::DOWNLOAD_BYTES_MAX`].
        max_bytes: u64,
    },
    /// Edits a message of the bot.
    Edit {
        /// The channel.
        channel: String,
        /// The message.
        message: String,
        /// Its new text.
        text: String,
    },
    /// Deletes a message.
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
        /// The emoji, or `name:id` of a custom emoji of the server.
        emoji: String,
    },
}

impl Discord {
    /// True if Discord itself deduplicates the call for some minutes: a message that the bot sends
    /// again has the same nonce. A response to a command has no nonce.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        matches!(
            self,
            Self::Send {
                interaction: None,
                ..
            } | Self::SendFile {
                interaction: None,
                ..
            }
        )
    }
}

fn channel_schema() -> Value {
    json!({
        "type": "string", "minLength": 1,
        "description": "The channel's id. If not given, the one this turn's command came from",
    })
}

fn text_schema() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": MAX_INPUT_BYTES,
        "description": "The text, in Markdown. `<@123>` mentions a user",
    })
}

fn own_schema() -> Value {
    json!({"type": "string", "minLength": 1, "description": "The message's id, as `send` returned it"})
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    #[serde(default)]
    channel: Option<Value>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    reply_to: Option<String>,
    #[serde(default)]
    emoji: String,
    #[serde(default)]
    url: String,
}

/// The arguments, the channel, and true if the turn's command came from it.
fn read(call: &ActionCall<'_>) -> Result<(Args, String, bool), PlanError> {
    let args: Args = call.args()?;
    let (channel, is_home) = call.place("channel", args.channel.as_ref(), "channel")?;
    Ok((args, channel, is_home))
}

fn send(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, channel, is_home) = read(call)?;
    let interaction = call.fact("interactionId").filter(|_| is_home);
    let interaction = interaction.and_then(name_of);
    let parts = parts(&args.text, TEXT_UNITS_MAX, Measure::Utf16, true)?;
    let message = |number: usize, part: &str| Discord::Send {
        channel: channel.clone(),
        text: part.to_owned(),
        reply_to: args.reply_to.clone().filter(|_| number == 0),
        interaction: interaction.clone(),
        mark: format!("{}/{number}", call.call_id),
    };
    let plan = ActionPlan::messages(&parts, json!({"channel": channel}), message)?;
    Ok(plan.repeatable(interaction.is_none()))
}

fn send_file(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, channel, is_home) = read(call)?;
    let interaction = call.fact("interactionId").filter(|_| is_home);
    let interaction = interaction.and_then(name_of);
    check_length(&args.text, TEXT_UNITS_MAX, Measure::Utf16)?;
    let is_repeatable = interaction.is_none();
    let file = call.file()?;
    let action = Discord::SendFile {
        channel: channel.clone(),
        name: file.name.clone(),
        base64: file.base64.clone(),
        text: args.text,
        interaction,
        mark: format!("{}/0", call.call_id),
    };
    let place = JsonObject::from_iter([("channel".to_owned(), json!(channel))]);
    Ok(ActionPlan::message(&action, place)?.repeatable(is_repeatable))
}

fn download(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let args: Args = call.args()?;
    ActionPlan::result(&Discord::Download {
        url: args.url,
        max_bytes: DOWNLOAD_BYTES_MAX,
    })
}

fn edit(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, channel, _) = read(call)?;
    check_length(&args.text, TEXT_UNITS_MAX, Measure::Utf16)?;
    let action = Discord::Edit {
        channel,
        message: args.message.unwrap_or_default(),
        text: args.text,
    };
    ActionPlan::done(&action, "edited")
}

fn delete(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, channel, _) = read(call)?;
    let action = Discord::Delete {
        channel,
        message: args.message.unwrap_or_default(),
    };
    ActionPlan::done(&action, "deleted")
}

fn react(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, channel, _) = read(call)?;
    let action = Discord::React {
        channel,
        message: args.message.unwrap_or_default(),
        emoji: args.emoji,
    };
    ActionPlan::done(&action, "done")
}
