//! Slack: messages of an app.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::action::{
    ActionCall, ActionPlan, ActionSpec, DOWNLOAD, PATH_ARGUMENT, PlanError, SEND_FILE, ServiceSpec,
    name_of,
};
use super::formatted_text::{FormattedRange, FormattedText};
use super::recovery::Recovery;
use super::split::Measure;
use super::text::{check_count, check_length, parts};
use super::{DOWNLOAD_BYTES_MAX, path_schema};
use crate::limits::MAX_INPUT_BYTES;

/// Largest number of messages per read.
pub const SLACK_MESSAGES_MAX: usize = 100;

/// Largest number of messages per page, as in Slack's API.
pub const SLACK_PAGE_MAX: usize = 1_000;

/// Default number of messages per read.
const MESSAGES_DEFAULT: usize = 20;

/// Longest text of a message, in characters. Slack accepts more, and then shows the rest apart.
const TEXT_CHARS_MAX: usize = 4_000;

/// Longest text that Slack accepts, with all marks and addresses, in bytes.
const MARKED_BYTES_MAX: usize = 40_000;

/// Bytes that one character can become: `&` is written as `&amp;`.
const ESCAPED_BYTES_MAX: usize = 5;

/// Bytes of the marks of a formatted range, without its address.
const MARKS_BYTES_MAX: usize = 16;

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
                    "thread": thread_schema(),
                })
            },
            required: &["text"],
            recovery: Recovery::LookBack(
                "the channel's or thread's latest messages, by their metadata",
            ),
            plan: send,
        },
        ActionSpec {
            name: SEND_FILE,
            description: "Sends a file of the work directory in Slack and returns its id.",
            arguments: || {
                json!({
                    PATH_ARGUMENT: path_schema("send"),
                    "text": {"type": "string", "description": format!("A text with the file, in Markdown, at most {TEXT_CHARS_MAX} characters")},
                    "channel": channel_schema(), "thread": thread_schema(),
                })
            },
            required: &[PATH_ARGUMENT],
            recovery: Recovery::Unknown(
                "Slack takes no key for a file, and keeps no metadata with it",
            ),
            plan: send_file,
        },
        ActionSpec {
            name: DOWNLOAD,
            description: "Saves a file of a message in the work directory.",
            arguments: || {
                json!({
                    "url": {"type": "string", "minLength": 1, "description": "The file's address, as the message names it"},
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
            arguments: || {
                json!({
                    "message": own_schema(), "text": text_schema(),
                    "channel": channel_schema(), "format": format_schema(),
                })
            },
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
                    "emoji": {"type": "string", "minLength": 1, "description": "Its name, such as thumbsup"},
                    "message": any_schema(), "channel": channel_schema(),
                    "remove": {"type": "boolean", "description": "True to remove the emoji. Default: false"},
                })
            },
            required: &["emoji"],
            recovery: Recovery::Repeatable,
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
            recovery: Recovery::Repeatable,
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
        /// Formatted ranges of a text that was Markdown.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ranges: Vec<FormattedRange>,
        /// The thread, by the `ts` of its first message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
        /// Parameters as in goondan 0.0.3. With them, the text is not escaped and the result is
        /// `{channel, ts, text}` as Slack has them, not the `ts`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        older: Option<OlderSlackParameters>,
        /// Identifies the message if the action is repeated; empty for none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        mark: String,
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
        /// As for `Send`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ranges: Vec<FormattedRange>,
        /// As for `Send`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        older: Option<OlderSlackParameters>,
    },
    /// Sends a file. Returns its id.
    SendFile {
        /// The channel.
        channel: String,
        /// The file's name.
        name: String,
        /// Its content, in Base64; at most [`super::DOWNLOAD_BYTES_MAX`] bytes.
        base64: String,
        /// A text with it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// Formatted ranges of the text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ranges: Vec<FormattedRange>,
        /// As for `Send`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
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
    /// Reads one page of a thread or a channel. Returns `{messages, hasMore, nextCursor}` with the
    /// messages as Slack has them, in its order.
    ReadPage {
        /// The channel.
        channel: String,
        /// As for `Read`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
        /// `ts` of the latest message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        latest: Option<String>,
        /// `ts` of the oldest message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        oldest: Option<String>,
        /// True to include messages with exactly these times.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inclusive: Option<bool>,
        /// Number of messages, at most [`SLACK_PAGE_MAX`].
        limit: usize,
        /// `nextCursor` of the previous page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
    },
}

/// Parameters of a message that tools of goondan 0.0.3 set, by their names in Slack's API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OlderSlackParameters {
    /// True if the text has Slack's markup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mrkdwn: Option<bool>,
    /// True to show previews of links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfurl_links: Option<bool>,
    /// True to show previews of media.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfurl_media: Option<bool>,
    /// True to show a reply of a thread in the channel too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_broadcast: Option<bool>,
}

/// Markup of a Slack text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SlackFormat {
    /// Markdown. The connector receives the text without its marks, and the formatted ranges.
    #[default]
    Markdown,
    /// Slack's own markup.
    Mrkdwn,
    /// No markup.
    Plain,
}

impl SlackFormat {
    /// The messages that a text becomes.
    fn parts(self, text: &str) -> Result<Vec<FormattedText>, PlanError> {
        let keeps_fences = match self {
            Self::Markdown => {
                let parts = markdown_parts(text);
                check_count(parts.len())?;
                return Ok(parts);
            }
            Self::Mrkdwn => true,
            Self::Plain => false,
        };
        let parts = parts(text, TEXT_CHARS_MAX, Measure::Chars, keeps_fences)?;
        Ok(parts.into_iter().map(unformatted).collect())
    }

    /// The only message that a text becomes.
    fn whole(self, text: &str) -> Result<FormattedText, PlanError> {
        let formatted = match self {
            Self::Markdown => FormattedText::from_markdown(text),
            Self::Mrkdwn | Self::Plain => unformatted(text.to_owned()),
        };
        check_length(&formatted.text, TEXT_CHARS_MAX, Measure::Chars)?;
        Ok(formatted)
    }
}

fn unformatted(text: String) -> FormattedText {
    FormattedText {
        text,
        ranges: Vec::new(),
    }
}

/// Parts of a Markdown text, so short that Slack also accepts them with all marks and addresses.
fn markdown_parts(text: &str) -> Vec<FormattedText> {
    let mut limit = TEXT_CHARS_MAX;
    loop {
        let parts = FormattedText::from_markdown(text).split(limit);
        let fits = |part: &FormattedText| marked_bytes_max(part) <= MARKED_BYTES_MAX;
        if limit <= 1 || parts.iter().all(fits) {
            return parts;
        }
        limit /= 2;
    }
}

/// Upper bound for the length of a text with all marks and addresses.
fn marked_bytes_max(part: &FormattedText) -> usize {
    let escapable = part.text.chars().filter(|c| "&<>".contains(*c)).count();
    // Marks are repeated in each line.
    let lines = part.text.matches('\n').count() + 1;
    let marks = part.ranges.iter().map(|range| {
        let url = range.url.as_ref().map_or(0, String::len);
        url * ESCAPED_BYTES_MAX + MARKS_BYTES_MAX
    });
    let quoted = lines * MARKS_BYTES_MAX;
    part.text.len() + escapable * ESCAPED_BYTES_MAX + marks.sum::<usize>() + quoted
}

fn thread_schema() -> Value {
    json!({
        "type": "string",
        "description": "The ts of the thread's first message; empty: in no thread. If not given, the thread this turn's message belongs to",
    })
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
        "enum": ["markdown", "mrkdwn", "plain"],
        "description": "Markup of the text: Markdown (the default), Slack's own, or none",
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
    #[serde(default)]
    url: String,
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
    let parts = args.format.parts(&args.text)?;
    let place = json!({"channel": channel, "thread": thread});
    ActionPlan::messages_of(&parts, place, |number, part| Slack::Send {
        channel: channel.clone(),
        text: part.text.clone(),
        format: args.format,
        ranges: part.ranges.clone(),
        thread: thread.clone(),
        older: None,
        mark: format!("{}/{number}", call.call_id),
    })
}

fn send_file(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, channel, is_home) = args_of(call)?;
    let thread = thread_of(call, args.thread, is_home);
    let text = match args.text.trim() {
        "" => unformatted(String::new()),
        text => SlackFormat::Markdown.whole(text)?,
    };
    let file = call.file()?;
    ActionPlan::result(&Slack::SendFile {
        channel,
        name: file.name.clone(),
        base64: file.base64.clone(),
        text: text.text,
        ranges: text.ranges,
        thread,
    })
}

fn download(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let args: Args = call.args()?;
    ActionPlan::result(&Slack::Download {
        url: args.url,
        max_bytes: DOWNLOAD_BYTES_MAX,
    })
}

fn edit(call: &ActionCall<'_>) -> Result<ActionPlan, PlanError> {
    let (args, channel, _) = args_of(call)?;
    let formatted = args.format.whole(&args.text)?;
    let action = Slack::Edit {
        channel,
        message: args.message.unwrap_or_default(),
        text: formatted.text,
        format: args.format,
        ranges: formatted.ranges,
        older: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_2_markdown_with_many_addresses_stays_within_slacks_limit() {
        let link = format!("[a & b](https://x.example/{})\n\n", "y".repeat(1_000));
        let parts = markdown_parts(&link.repeat(80));
        assert!(parts.len() > 2);
        assert!(
            parts
                .iter()
                .all(|part| marked_bytes_max(part) <= MARKED_BYTES_MAX)
        );
        let shown: usize = parts
            .iter()
            .map(|part| part.text.matches("a & b").count())
            .sum();
        assert_eq!(shown, 80);
        let one = markdown_parts(&"word ".repeat(700));
        assert_eq!(one.len(), 1);
    }
}
