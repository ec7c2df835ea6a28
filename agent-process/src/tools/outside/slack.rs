//! The tool `slack`: messages of an app.

use std::sync::Arc;

use goondan_protocol::ids::ConnectionName;
use goondan_protocol::limits::MAX_INPUT_BYTES;
use goondan_protocol::service::{Slack, SlackFormat};
use serde::Deserialize;
use serde_json::{Value, json};

use super::split::{Measure, split};
use super::{ConnectionRoute, Connections, Offer, export, name_of, not_too_many};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;

/// The exports of the tool.
pub(crate) fn exports(connections: &[ConnectionName]) -> Vec<Export> {
    let connections: Connections = Arc::from(connections);
    vec![
        export(
            Offer {
                name: "send",
                description: "Writes a message in Slack and returns its ts. A text that is too long for one message becomes several.",
                properties: json!({
                    "text": text_schema(), "channel": channel_schema(), "format": format_schema(),
                    "thread": {"type": "string", "description": "The ts of the thread's first message; empty: in no thread. If not given, the thread this turn's message belongs to"},
                }),
                required: &["text"],
                is_idempotent: false,
            },
            &connections,
            send,
        ),
        export(
            Offer {
                name: "edit",
                description: "Gives a message that `send` wrote another text.",
                properties: json!({
                    "message": own_schema(), "text": text_schema(),
                    "channel": channel_schema(), "format": format_schema(),
                }),
                required: &["message", "text"],
                is_idempotent: true,
            },
            &connections,
            edit,
        ),
        export(
            Offer {
                name: "delete",
                description: "Takes a message back that `send` wrote.",
                properties: json!({"message": own_schema(), "channel": channel_schema()}),
                required: &["message"],
                is_idempotent: false,
            },
            &connections,
            delete,
        ),
        export(
            Offer {
                name: "react",
                description: "Puts an emoji under a message.",
                properties: json!({
                    "emoji": {"type": "string", "minLength": 1, "description": "Its name, such as thumbsup"},
                    "message": any_schema(), "channel": channel_schema(),
                    "remove": {"type": "boolean", "description": "Whether it is taken away; false if not given"},
                }),
                required: &["emoji"],
                is_idempotent: true,
            },
            &connections,
            react,
        ),
    ]
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
        "description": "What is written. `<@U0123>` mentions somebody",
    })
}

fn format_schema() -> Value {
    json!({
        "enum": ["mrkdwn", "markdown", "plain"],
        "description": "How the text is marked up: in Slack's way (the default), as Markdown, or not",
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
}

async fn send(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let (channel, is_home) = route.place("channel", args.channel.as_ref(), "channel")?;
    let home_thread = || route.fact("threadTs").filter(|_| is_home).and_then(name_of);
    let thread = args.thread.clone().or_else(home_thread);
    let thread = thread.filter(|thread| !thread.is_empty());
    let limit = args.format.chars_max();
    let keeps_fences = args.format != SlackFormat::Plain;
    let parts = not_too_many(split(&args.text, limit, Measure::Chars, keeps_fences))?;
    let sent = route
        .run_parts(&parts, false, |_, part| Slack::Send {
            channel: channel.clone(),
            text: part.to_owned(),
            format: args.format,
            thread: thread.clone(),
        })
        .await?;
    Ok(json!({"channel": channel, "thread": thread, "messages": sent}).to_string())
}

async fn edit(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let (channel, _) = route.place("channel", args.channel.as_ref(), "channel")?;
    let (chars, limit) = (Measure::Chars.of(&args.text), args.format.chars_max());
    if chars > limit {
        let message = format!("the text has {chars} characters, a message at most {limit}");
        return Err(ToolFault::new("E_TOO_LARGE", message));
    }
    let errand = Slack::Edit {
        channel,
        message: args.message.unwrap_or_default(),
        text: args.text,
        format: args.format,
    };
    run(&route, errand, "edited").await
}

async fn delete(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let (channel, _) = route.place("channel", args.channel.as_ref(), "channel")?;
    let errand = Slack::Delete {
        channel,
        message: args.message.unwrap_or_default(),
    };
    run(&route, errand, "deleted").await
}

async fn react(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let (channel, is_home) = route.place("channel", args.channel.as_ref(), "channel")?;
    let answered = || route.fact("ts").filter(|_| is_home).and_then(name_of);
    let none = || ToolFault::new("E_INVALID_REQUEST", "say which `message`");
    let errand = Slack::React {
        channel,
        message: args.message.or_else(answered).ok_or_else(none)?,
        emoji: args.emoji.trim_matches(':').to_owned(),
        remove: args.remove,
    };
    run(&route, errand, "done").await
}

async fn run(route: &ConnectionRoute, errand: Slack, done: &str) -> Result<String, ToolFault> {
    let is_repeatable = errand.is_repeatable();
    route.run(&errand, is_repeatable).await?;
    Ok(done.to_owned())
}
