//! Telegram: messages of a bot.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::action::{
    ActionCall, ActionPlan, ActionSpec, DOWNLOAD, PATH_ARGUMENT, PlanError, SEND_FILE, ServiceSpec,
};
use super::formatted_text::{FormattedRange, FormattedText};
use super::recovery::Recovery;
use super::split::Measure;
use super::text::{check_count, check_length, parts};
use super::{DOWNLOAD_BYTES_MAX, path_schema};
use crate::JsonObject;
use crate::limits::MAX_INPUT_BYTES;

/// Longest text of a message on Telegram, in UTF-16 units.
const TEXT_UNITS_MAX: usize = 4_096;

/// Longest text below a file on Telegram, in UTF-16 units.
const CAPTION_UNITS_MAX: usize = 1_024;

/// Largest number of formatted ranges that Telegram shows in one message; it ignores further ones.
const RANGES_MAX: usize = 100;

/// Value of `parseMode` for a text without markup.
const PLAIN: &str = "plain";

/// The `telegram` tool.
pub const TELEGRAM: ServiceSpec = ServiceSpec {
    tool: "telegram",
    connector: "telegram",
    secret: Some("botToken"),
    actions: &[
        ActionSpec {
            name: "send",
            description: "Writes a message to a Telegram chat and returns its id. A text that is too long for one message becomes several, unless it has Telegram's own markup.",
            arguments: || {
                json!({
                    "text": text_schema(), "chat": chat_schema(), "parseMode": parse_mode_schema(),
                    "replyTo": {"type": "integer", "description": "The id of the message it is shown as an answer to"},
                    "quote": {"type": "boolean", "description": "True to reply to the message that this turn answers. Default: false"},
                    "thread": thread_schema(),
                    "silent": {"type": "boolean", "description": "True to send without a notification. Default: false"},
                })
            },
            required: &["text"],
            recovery: Recovery::Unknown("the Bot API takes no key and cannot list what a bot sent"),
            plan: send,
        },
        ActionSpec {
            name: SEND_FILE,
            description: "Sends a file of the work directory to a Telegram chat and returns the message's id. Images are shown as photos.",
            arguments: || {
                json!({
                    PATH_ARGUMENT: path_schema("send"),
                    "text": {"type": "string", "description": format!("A text below the file, in Markdown, at most {CAPTION_UNITS_MAX} characters")},
                    "chat": chat_schema(), "thread": thread_schema(),
                    "quote": {"type": "boolean", "description": "True to reply to the message that this turn answers. Default: false"},
                })
            },
            required: &[PATH_ARGUMENT],
            recovery: Recovery::Unknown("the Bot API takes no key and cannot list what a bot sent"),
            plan: send_file,
        },
        ActionSpec {
            name: DOWNLOAD,
            description: "Saves a file that was sent to the bot in the work directory.",
            arguments: || {
                json!({
                    "file": {"type": "string", "minLength": 1, "description": "The file's ID, as the message names it"},
                    PATH_ARGUMENT: path_schema("write"),
                })
            },
            required: &["file", PATH_ARGUMENT],
            recovery: Recovery::Repeatable,
            plan: download,
        },
        ActionSpec {
            name: "edit",
            description: "Gives a message that `send` wrote another text.",
            arguments: || {
                json!({
                    "message": own_schema(), "text": text_schema(),
                    "chat": chat_schema(), "parseMode": parse_mode_schema(),
                })
            },
            required: &["message", "text"],
            recovery: Recovery::Repeatable,
            plan: edit,
        },
        ActionSpec {
            name: "delete",
            description: "Takes a message back that `send` wrote.",
            arguments: || json!({"message": own_schema(), "chat": chat_schema()}),
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
                    "emoji": {"type": "string", "description": "One of Telegram's reactions, such as 👍; empty to take it away"},
                    "message": any_schema(), "chat": chat_schema(),
                })
            },
            required: &["emoji"],
            recovery: Recovery::Repeatable,
            plan: react,
        },
        ActionSpec {
            name: "typing",
            description: "Shows for five seconds that the bot is writing.",
            arguments: || json!({"chat": chat_schema(), "thread": thread_schema()}),
            required: &[],
            recovery: Recovery::Repeatable,
            plan: typing,
        },
    ],
};

/// Methods of a connection of the connector `telegram`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Telegram {
    /// Sends a message of at most 4096 UTF-16 units.
    Send {
        /// A chat's id, or `@name` of a public chat.
        chat: String,
        /// The text.
        text: String,
        /// `MarkdownV2`, `HTML` or `Markdown`; plain text if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parse_mode: Option<String>,
        /// Formatted ranges of a plain text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ranges: Vec<FormattedRange>,
        /// The message it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<i64>,
        /// The topic of a forum.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<i64>,
        /// True to send without a notification.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        silent: bool,
        /// Parameters as in goondan 0.0.3. With them, the result is the sent message, not its id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        older: Option<OlderTelegramParameters>,
    },
    /// Edits a message of the bot.
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
        /// As for `Send`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ranges: Vec<FormattedRange>,
        /// As for `Send`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        older: Option<OlderTelegramParameters>,
    },
    /// Sends a file, as a photo if it is an image.
    SendFile {
        /// The chat.
        chat: String,
        /// The file's name.
        name: String,
        /// Its content, in Base64; at most [`super::DOWNLOAD_BYTES_MAX`] bytes.
        base64: String,
        /// The text below it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// Formatted ranges of the text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ranges: Vec<FormattedRange>,
        /// The message it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<i64>,
        /// The topic of a forum.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<i64>,
    },
    /// Downloads a file that was sent to the bot. Returns `{fileId, fileUniqueId, filePath, fileSize,
    /// contentType, base64}`.
    Download {
        /// The file, by its `file_id`.
        file: String,
        /// Size limit in bytes, at most [`super::DOWNLOAD_BYTES_MAX`].
        max_bytes: u64,
    },
    /// Deletes a message.
    Delete {
        /// The chat.
        chat: String,
        /// The message.
        message: i64,
    },
    /// Sets an emoji reaction on a message.
    React {
        /// The chat.
        chat: String,
        /// The message.
        message: i64,
        /// The emoji; absent to remove the bot's reaction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        emoji: Option<String>,
        /// Further emoji. Telegram accepts them only from some accounts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        more: Vec<String>,
        /// True to show the reaction with a big animation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is_big: Option<bool>,
    },
    /// Shows a typing indicator for a few seconds.
    Typing {
        /// The chat.
        chat: String,
        /// The topic of a forum.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<i64>,
        /// A different indicator, such as `upload_photo`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        action: Option<String>,
    },
}

/// Parameters of a message that tools of goondan 0.0.3 set, under the former names of the Bot API,
/// which it still accepts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OlderTelegramParameters {
    /// True to send without a notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_notification: Option<bool>,
    /// True to show no preview of links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_web_page_preview: Option<bool>,
    /// The message it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to_message_id: Option<i64>,
    /// True to send the message even if the answered one is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_sending_without_reply: Option<bool>,
}

fn chat_schema() -> Value {
    json!({
        "type": ["string", "integer"],
        "description": "The chat's id, or `@name` of a public one. If not given, the chat this turn's message came from",
    })
}

fn text_schema() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": MAX_INPUT_BYTES,
        "description": "The text, in Markdown",
    })
}

fn parse_mode_schema() -> Value {
    json!({
        "enum": [PLAIN, "MarkdownV2", "HTML", "Markdown"],
        "description": "Telegram's own markup of the text, or `plain` for none. Default: usual Markdown, shown as Telegram formats text",
    })
}

fn own_schema() -> Value {
    json!({"type": "integer", "description": "The message's id, as `send` returned it"})
}

fn any_schema() -> Value {
    json!({
        "type": "integer",
        "description": "The message's id. If not given, the message this turn answers",
    })
}

fn thread_schema() -> Value {
    json!({
        "type": "integer",
        "description": "The topic of a forum. If not given, the one this turn's message came from",
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    #[serde(default)]
    chat: Option<Value>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    parse_mode: Option<String>,
    #[serde(default)]
    message: Option<i64>,
    #[serde(default)]
    reply_to: Option<i64>,
    #[serde(default)]
    quote: bool,
    #[serde(default)]
    thread: Option<i64>,
    #[serde(default)]
    silent: bool,
    #[serde(default)]
    emoji: String,
    #[serde(default)]
    file: String,
}

/// The chat, its topic, and the message that the turn answers if it came from that chat.
struct Target {
    chat: String,
    thread: Option<i64>,
    answered: Option<i64>,
}

fn read(call: &ActionCall<'_>) -> Result<(Args, Target), PlanError> {
    let args: Args = call.args()?;
    let (chat, is_home) = call.place("chat", args.chat.as_ref(), "chatId")?;
    let fact = |name| call.fact(name).filter(|_| is_home)?.as_i64();
    let target = Target {
        thread: args.thread.or_else(|| fact("threadId")),
        answered: fact("messageId"),
        chat,
    };
    Ok((args, target))
}

/// Formats of a text by its `parseMode`.
enum Markup {
    /// Markdown that becomes formatted ranges.
    Markdown,
    Plain,
    /// Markup that Telegram parses.
    Own(String),
}

impl Markup {
    fn of(parse_mode: Option<String>) -> Self {
        match parse_mode {
            None => Self::Markdown,
            Some(mode) if mode == PLAIN => Self::Plain,
            Some(mode) => Self::Own(mode),
        }
    }

    fn parse_mode(&self) -> Option<String> {
        match self {
            Self::Markdown | Self::Plain => None,
            Self::Own(mode) => Some(mode.clone()),
        }
    }

    /// The messages that a text becomes.
    fn parts(&self, text: &str) -> Result<Vec<FormattedText>, PlanError> {
        match self {
            Self::Markdown => {
                let parts = FormattedText::from_markdown(text).split(TEXT_UNITS_MAX);
                check_count(parts.len())?;
                Ok(parts)
            }
            Self::Plain => {
                let parts = parts(text, TEXT_UNITS_MAX, Measure::Utf16, false)?;
                Ok(parts.into_iter().map(plain).collect())
            }
            Self::Own(_) => {
                check_own_markup(text)?;
                Ok(vec![plain(text.to_owned())])
            }
        }
    }

    /// The only message that a text becomes.
    fn whole(&self, text: &str, units_max: usize) -> Result<FormattedText, PlanError> {
        let formatted = match self {
            Self::Markdown => FormattedText::from_markdown(text),
            Self::Plain | Self::Own(_) => plain(text.to_owned()),
        };
        check_length(&formatted.text, units_max, Measure::Utf16)?;
        Ok(formatted)
    }
}

fn plain(text: String) -> FormattedText {
    FormattedText {
        text,
        ranges: Vec::new(),
    }
}

fn ranges(formatted: &FormattedText) -> Vec<FormattedRange> {
    formatted.ranges.iter().take(RANGES_MAX).cloned().collect()
}

fn send(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, target) = read(call)?;
    let markup = Markup::of(args.parse_mode);
    let parts = markup.parts(&args.text)?;
    let quoted = target.answered.filter(|_| args.quote);
    let place = json!({"chat": target.chat});
    ActionPlan::messages_of(&parts, place, |number, part| Telegram::Send {
        chat: target.chat.clone(),
        text: part.text.clone(),
        parse_mode: markup.parse_mode(),
        ranges: ranges(part),
        reply_to: args.reply_to.or(quoted).filter(|_| number == 0),
        thread: target.thread,
        silent: args.silent,
        older: None,
    })
}

/// Text with Telegram's own markup cannot be split safely.
fn check_own_markup(text: &str) -> Result<(), PlanError> {
    let units = Measure::Utf16.of(text);
    if units <= TEXT_UNITS_MAX {
        return Ok(());
    }
    Err(PlanError::TooLarge(format!(
        "the text has {units} characters, a message of Telegram at most {TEXT_UNITS_MAX}; send it in \
         parts, each whole in itself"
    )))
}

fn send_file(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, target) = read(call)?;
    let caption = match args.text.trim() {
        "" => plain(String::new()),
        text => Markup::Markdown.whole(text, CAPTION_UNITS_MAX)?,
    };
    let file = call.file()?;
    let action = Telegram::SendFile {
        chat: target.chat.clone(),
        name: file.name.clone(),
        base64: file.base64.clone(),
        ranges: ranges(&caption),
        text: caption.text,
        reply_to: target.answered.filter(|_| args.quote),
        thread: target.thread,
    };
    let place = JsonObject::from_iter([("chat".to_owned(), json!(target.chat))]);
    ActionPlan::message(&action, place)
}

fn download(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let args: Args = call.args()?;
    ActionPlan::result(&Telegram::Download {
        file: args.file,
        max_bytes: DOWNLOAD_BYTES_MAX,
    })
}

fn edit(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, target) = read(call)?;
    let markup = Markup::of(args.parse_mode);
    let formatted = markup.whole(&args.text, TEXT_UNITS_MAX)?;
    let action = Telegram::Edit {
        chat: target.chat,
        message: args.message.unwrap_or_default(),
        parse_mode: markup.parse_mode(),
        ranges: ranges(&formatted),
        text: formatted.text,
        older: None,
    };
    ActionPlan::done(&action, "edited")
}

fn delete(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, target) = read(call)?;
    let action = Telegram::Delete {
        chat: target.chat,
        message: args.message.unwrap_or_default(),
    };
    ActionPlan::done(&action, "deleted")
}

fn react(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, target) = read(call)?;
    let none = || PlanError::Invalid("say which `message`".to_owned());
    let action = Telegram::React {
        chat: target.chat,
        message: args.message.or(target.answered).ok_or_else(none)?,
        emoji: Some(args.emoji).filter(|emoji| !emoji.is_empty()),
        more: Vec::new(),
        is_big: None,
    };
    ActionPlan::done(&action, "done")
}

fn typing(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (_, target) = read(call)?;
    let action = Telegram::Typing {
        chat: target.chat,
        thread: target.thread,
        action: None,
    };
    ActionPlan::done(&action, "shown")
}
