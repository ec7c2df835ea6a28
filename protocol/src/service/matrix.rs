//! Matrix: messages of an account in rooms.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::action::{
    ActionCall, ActionPlan, ActionSpec, DOWNLOAD, PATH_ARGUMENT, PlanError, SEND_FILE, ServiceSpec,
    name_of,
};
use super::formatted_text::FormattedText;
use super::html::html;
use super::recovery::Recovery;
use super::split::Measure;
use super::text::{check_count, check_length, parts};
use super::{DOWNLOAD_BYTES_MAX, path_schema};
use crate::JsonObject;
use crate::limits::MAX_INPUT_BYTES;

/// Longest text of one message, in UTF-16 units. With its HTML, it fits in an event of 65536 bytes.
const TEXT_UNITS_MAX: usize = 8_000;

/// Longest HTML of one message, in bytes; a message with more is sent without formatting.
const HTML_BYTES_MAX: usize = 30_000;

/// Most messages that `read` returns.
pub const MATRIX_MESSAGES_MAX: usize = 100;

/// Messages that `read` returns if the call does not say.
const MESSAGES_DEFAULT: usize = 20;

/// Value of `format` for a text without markup.
const PLAIN: &str = "plain";

/// Time for which a homeserver certainly remembers a transaction id, in milliseconds; Synapse keeps
/// it for half an hour.
const MATRIX_TRANSACTION_VALID_MS: u64 = 20 * 60 * 1_000;

/// The `matrix` tool.
pub const MATRIX: ServiceSpec = ServiceSpec {
    tool: "matrix",
    connector: "matrix",
    secret: Some("accessToken"),
    actions: &[
        ActionSpec {
            name: "send",
            description: "Writes a message to a Matrix room and returns its id. A text that is too long for one message becomes several.",
            arguments: || {
                json!({
                    "text": text_schema(), "room": room_schema(), "format": format_schema(),
                    "replyTo": {"type": "string", "minLength": 1, "description": "The id of the message it is shown as an answer to"},
                    "quote": quote_schema(), "thread": thread_schema(),
                })
            },
            required: &["text"],
            recovery: Recovery::Key {
                name: "transaction id",
                valid_ms: MATRIX_TRANSACTION_VALID_MS,
            },
            plan: send,
        },
        ActionSpec {
            name: SEND_FILE,
            description: "Sends a file of the work directory to a Matrix room and returns the message's id. Images are shown as images.",
            arguments: || {
                json!({
                    PATH_ARGUMENT: path_schema("send"),
                    "text": {"type": "string", "description": format!("A text with the file, in Markdown, at most {TEXT_UNITS_MAX} characters")},
                    "room": room_schema(), "quote": quote_schema(), "thread": thread_schema(),
                })
            },
            required: &[PATH_ARGUMENT],
            recovery: Recovery::Key {
                name: "transaction id",
                valid_ms: MATRIX_TRANSACTION_VALID_MS,
            },
            plan: send_file,
        },
        ActionSpec {
            name: DOWNLOAD,
            description: "Saves a file of a message in the work directory.",
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
                    "message": own_schema(), "text": text_schema(), "room": room_schema(),
                    "format": format_schema(),
                })
            },
            required: &["message", "text"],
            recovery: Recovery::Repeatable,
            plan: edit,
        },
        ActionSpec {
            name: "delete",
            description: "Takes a message or a reaction back.",
            arguments: || json!({"message": own_schema(), "room": room_schema()}),
            required: &["message"],
            recovery: Recovery::Key {
                name: "transaction id",
                valid_ms: MATRIX_TRANSACTION_VALID_MS,
            },
            plan: delete,
        },
        ActionSpec {
            name: "react",
            description: "Puts an emoji under a message and returns the reaction's id.",
            arguments: || {
                json!({
                    "emoji": {"type": "string", "minLength": 1, "description": "The emoji, such as 👍"},
                    "message": any_schema(), "room": room_schema(),
                })
            },
            required: &["emoji"],
            recovery: Recovery::Repeatable,
            plan: react,
        },
        ActionSpec {
            name: "typing",
            description: "Shows for ten seconds that the account is writing.",
            arguments: || json!({"room": room_schema()}),
            required: &[],
            recovery: Recovery::Repeatable,
            plan: typing,
        },
        ActionSpec {
            name: "read",
            description: "Reads the last messages of a room or a thread in Matrix, oldest first: id, author, time and text of each.",
            arguments: || {
                json!({
                    "room": room_schema(),
                    "thread": {"type": "string", "description": "The id of the thread's first message; empty: the whole room. If not given, the thread this turn's message belongs to"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": MATRIX_MESSAGES_MAX, "description": format!("Number of messages. Default: {MESSAGES_DEFAULT}")},
                })
            },
            required: &[],
            recovery: Recovery::Repeatable,
            plan: read,
        },
    ],
};

/// Methods of a connection of the connector `matrix`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Matrix {
    /// Sends a message. Returns its id.
    Send {
        /// The room's id.
        room: String,
        /// The text.
        text: MatrixText,
        /// The thread, by its first message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
        /// The message that it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<String>,
        /// The user who is notified: the author of the answered message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mention: Option<String>,
        /// Determines the transaction, by which the homeserver recognizes a repeated message.
        mark: String,
    },
    /// Sends a file. Returns the message's id.
    SendFile {
        /// The room's id.
        room: String,
        /// The file's name.
        name: String,
        /// Its content, in Base64; at most [`super::DOWNLOAD_BYTES_MAX`] bytes.
        base64: String,
        /// The text with it, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<MatrixText>,
        /// As for `Send`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
        /// As for `Send`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<String>,
        /// As for `Send`.
        mark: String,
    },
    /// Downloads a file. Returns `{contentType, contentLength, etag, contentDisposition, base64}`.
    Download {
        /// The file, by its `mxc` URI.
        file: String,
        /// Size limit in bytes, at most [`super::DOWNLOAD_BYTES_MAX`].
        max_bytes: u64,
    },
    /// Edits a message of the account.
    Edit {
        /// The room's id.
        room: String,
        /// The message.
        message: String,
        /// Its new text.
        text: MatrixText,
        /// As for `Send`.
        mark: String,
    },
    /// Removes a message or a reaction.
    Delete {
        /// The room's id.
        room: String,
        /// The message or the reaction.
        message: String,
        /// As for `Send`.
        mark: String,
    },
    /// Adds a reaction to a message. Returns its id.
    React {
        /// The room's id.
        room: String,
        /// The message.
        message: String,
        /// The emoji.
        emoji: String,
        /// As for `Send`.
        mark: String,
    },
    /// Shows a typing indicator for a few seconds.
    Typing {
        /// The room's id.
        room: String,
    },
    /// Reads the last messages. Returns a list of `{id, author, time, text}`, oldest first.
    Read {
        /// The room's id.
        room: String,
        /// The thread, by its first message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
        /// Number of messages, at most [`MATRIX_MESSAGES_MAX`].
        limit: usize,
    },
}

/// A text of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatrixText {
    /// The text without formatting.
    pub plain: String,
    /// The formatted text, if anything is formatted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
}

fn text_schema() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": MAX_INPUT_BYTES,
        "description": "The text, in Markdown",
    })
}

fn format_schema() -> Value {
    json!({
        "enum": ["markdown", PLAIN],
        "description": "`plain` shows the text literally. Default: Markdown",
    })
}

fn room_schema() -> Value {
    json!({
        "type": "string", "minLength": 1,
        "description": "The room's id, such as `!abc:example.org`. If not given, the room this turn's message came from",
    })
}

fn thread_schema() -> Value {
    json!({
        "type": "string",
        "description": "The id of the thread's first message; empty: in no thread. If not given, the thread this turn's message belongs to",
    })
}

fn quote_schema() -> Value {
    json!({"type": "boolean", "description": "True to reply to the message that this turn answers. Default: false"})
}

fn own_schema() -> Value {
    json!({"type": "string", "minLength": 1, "description": "The id, as `send`, `sendFile` or `react` returned it"})
}

fn any_schema() -> Value {
    json!({
        "type": "string", "minLength": 1,
        "description": "The message's id. If not given, the message this turn answers",
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    #[serde(default)]
    room: Option<Value>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    format: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    reply_to: Option<String>,
    #[serde(default)]
    quote: bool,
    #[serde(default)]
    thread: Option<String>,
    #[serde(default)]
    emoji: String,
    #[serde(default)]
    file: String,
    #[serde(default)]
    limit: Option<usize>,
}

/// The room, its thread, and the message that the turn answers if it came from that room.
struct Target {
    room: String,
    thread: Option<String>,
    answered: Option<String>,
    /// The author of the answered message.
    author: Option<String>,
}

fn args_of(call: &ActionCall<'_>) -> Result<(Args, Target), PlanError> {
    let args: Args = call.args()?;
    let (room, is_home) = call.place("room", args.room.as_ref(), "roomId")?;
    let fact = |name| call.fact(name).filter(|_| is_home).and_then(name_of);
    let thread = args.thread.clone().or_else(|| fact("threadId"));
    let target = Target {
        room,
        thread: thread.filter(|thread| !thread.is_empty()),
        answered: fact("eventId"),
        author: fact("from"),
    };
    Ok((args, target))
}

/// A part of a text as a message.
fn message_text(part: &FormattedText) -> MatrixText {
    MatrixText {
        plain: part.text.clone(),
        html: html(part).filter(|html| html.len() <= HTML_BYTES_MAX),
    }
}

/// A text without control characters, which would need six bytes each in an event.
fn printable(text: &str) -> String {
    let is_shown = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars().filter(is_shown).collect()
}

fn is_plain(args: &Args) -> bool {
    args.format.as_deref() == Some(PLAIN)
}

/// The messages that a text becomes.
fn texts(args: &Args) -> Result<Vec<MatrixText>, PlanError> {
    let text = printable(&args.text);
    if is_plain(args) {
        let parts = parts(&text, TEXT_UNITS_MAX, Measure::Utf16, false)?;
        let texts = parts
            .into_iter()
            .map(|plain| MatrixText { plain, html: None });
        return Ok(texts.collect());
    }
    let parts = FormattedText::from_markdown(&text).split(TEXT_UNITS_MAX);
    check_count(parts.len())?;
    Ok(parts.iter().map(message_text).collect())
}

/// The only message that a text becomes.
fn whole(args: &Args) -> Result<MatrixText, PlanError> {
    let text = printable(&args.text);
    let formatted = if is_plain(args) {
        FormattedText {
            text,
            ranges: Vec::new(),
        }
    } else {
        FormattedText::from_markdown(&text)
    };
    check_length(&formatted.text, TEXT_UNITS_MAX, Measure::Utf16)?;
    Ok(message_text(&formatted))
}

fn send(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, target) = args_of(call)?;
    let texts = texts(&args)?;
    let is_quoted = args.quote && args.reply_to.is_none();
    let quoted = target.answered.clone().filter(|_| is_quoted);
    let reply_to = args.reply_to.or(quoted);
    let place = json!({"room": target.room, "thread": target.thread});
    let plan = ActionPlan::messages_of(&texts, place, |number, text: &MatrixText| Matrix::Send {
        room: target.room.clone(),
        text: text.clone(),
        thread: target.thread.clone(),
        reply_to: reply_to.clone().filter(|_| number == 0),
        mention: target.author.clone().filter(|_| is_quoted && number == 0),
        mark: format!("{}/{number}", call.call_id),
    })?;
    Ok(plan.repeatable(true))
}

fn send_file(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, target) = args_of(call)?;
    let text = match args.text.trim() {
        "" => None,
        _ => Some(whole(&args)?),
    };
    let file = call.file()?;
    let action = Matrix::SendFile {
        room: target.room.clone(),
        name: file.name.clone(),
        base64: file.base64.clone(),
        text,
        reply_to: target.answered.filter(|_| args.quote),
        thread: target.thread.clone(),
        mark: format!("{}/0", call.call_id),
    };
    let place = JsonObject::from_iter([
        ("room".to_owned(), json!(target.room)),
        ("thread".to_owned(), json!(target.thread)),
    ]);
    Ok(ActionPlan::message(&action, place)?.repeatable(true))
}

fn download(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let args: Args = call.args()?;
    ActionPlan::result(&Matrix::Download {
        file: args.file,
        max_bytes: DOWNLOAD_BYTES_MAX,
    })
}

fn edit(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, target) = args_of(call)?;
    let text = whole(&args)?;
    let action = Matrix::Edit {
        room: target.room,
        message: args.message.unwrap_or_default(),
        text,
        mark: format!("{}/0", call.call_id),
    };
    Ok(ActionPlan::done(&action, "edited")?.repeatable(true))
}

fn delete(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, target) = args_of(call)?;
    let action = Matrix::Delete {
        room: target.room,
        message: args.message.unwrap_or_default(),
        mark: format!("{}/0", call.call_id),
    };
    Ok(ActionPlan::done(&action, "deleted")?.repeatable(true))
}

fn react(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, target) = args_of(call)?;
    let none = || PlanError::Invalid("say which `message`".to_owned());
    let place = JsonObject::from_iter([("room".to_owned(), json!(target.room))]);
    let action = Matrix::React {
        room: target.room,
        message: args.message.or(target.answered).ok_or_else(none)?,
        emoji: args.emoji,
        mark: format!("{}/0", call.call_id),
    };
    ActionPlan::message(&action, place)
}

fn typing(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (_, target) = args_of(call)?;
    ActionPlan::done(&Matrix::Typing { room: target.room }, "shown")
}

fn read(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, target) = args_of(call)?;
    ActionPlan::result(&Matrix::Read {
        room: target.room,
        thread: target.thread,
        limit: args.limit.unwrap_or(MESSAGES_DEFAULT),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Plan = fn(&ActionCall<'_>) -> Result<ActionPlan, PlanError>;

    fn planned(plan: Plan, args: &Value, facts: &Value) -> Result<Vec<String>, PlanError> {
        let facts = facts.as_object().cloned();
        let plan = plan(&ActionCall {
            connection: &"matrix".parse().unwrap(),
            call_id: "t.1:c0",
            args,
            facts: facts.as_ref(),
            file: None,
        })?;
        let requests = plan.requests().iter();
        Ok(requests
            .map(|it| format!("{} {}", it.method, it.params))
            .collect())
    }

    #[test]
    fn conn_2_a_matrix_message_goes_to_the_room_and_thread_of_the_turn() {
        let home = json!({"roomId": "!r:x", "eventId": "$e", "threadId": "$t", "from": "@a:x"});
        let cases: [(Plan, Value, &str); 7] = [
            (
                send,
                json!({"text": "**hi**"}),
                r#"send {"room":"!r:x","text":{"plain":"hi","html":"<strong>hi</strong>"},"thread":"$t","mark":"t.1:c0/0"}"#,
            ),
            (
                send,
                json!({"text": "a\u{7}b", "quote": true, "thread": ""}),
                r#"send {"room":"!r:x","text":{"plain":"ab"},"replyTo":"$e","mention":"@a:x","mark":"t.1:c0/0"}"#,
            ),
            (
                send,
                json!({"text": "*x*", "room": "!s:x", "quote": true, "format": "plain"}),
                r#"send {"room":"!s:x","text":{"plain":"*x*"},"mark":"t.1:c0/0"}"#,
            ),
            (
                react,
                json!({"emoji": "👍"}),
                r#"react {"room":"!r:x","message":"$e","emoji":"👍","mark":"t.1:c0/0"}"#,
            ),
            (
                edit,
                json!({"message": "$m", "text": "new"}),
                r#"edit {"room":"!r:x","message":"$m","text":{"plain":"new"},"mark":"t.1:c0/0"}"#,
            ),
            (
                read,
                json!({}),
                r#"read {"room":"!r:x","thread":"$t","limit":20}"#,
            ),
            (typing, json!({}), r#"typing {"room":"!r:x"}"#),
        ];
        for (plan, args, expected) in cases {
            assert_eq!(planned(plan, &args, &home).unwrap(), [expected]);
        }
        let lost = planned(react, &json!({"emoji": "👍", "room": "!s:x"}), &home);
        let which = PlanError::Invalid("say which `message`".to_owned());
        assert_eq!(lost.unwrap_err(), which);
        let nowhere = planned(send, &json!({"text": "hi"}), &Value::Null).unwrap_err();
        assert!(nowhere.to_string().contains("pass `room`"), "{nowhere}");
    }

    #[test]
    fn conn_2_a_long_matrix_text_is_several_events_that_fit() {
        // The second has too long HTML, and is sent without.
        for (text, has_html) in [("가가", true), ("가&", false)] {
            let text = format!("**{}**", text.repeat(12_000));
            let args = json!({"text": text, "room": "!r:x"});
            let requests = planned(send, &args, &Value::Null).unwrap();
            assert_eq!(requests.len(), 3);
            for request in &requests {
                assert!(request.len() < 60_000, "{}", request.len());
                assert_eq!(request.contains("<strong>"), has_html);
            }
            assert!(requests[1].contains(r#""mark":"t.1:c0/1""#));
        }
        let long = json!({"text": "x".repeat(8_001), "message": "$m", "room": "!r:x"});
        let error = planned(edit, &long, &Value::Null).unwrap_err();
        assert!(matches!(error, PlanError::TooLarge(_)), "{error}");
    }
}
