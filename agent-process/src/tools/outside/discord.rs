//! The tool `discord`: messages of a bot, and answers to commands.

use std::sync::Arc;

use goondan_protocol::ids::ConnectionName;
use goondan_protocol::limits::MAX_INPUT_BYTES;
use goondan_protocol::service::{DISCORD_TEXT_UNITS_MAX, Discord};
use serde::Deserialize;
use serde_json::{Value, json};

use super::split::{Measure, split};
use super::{ConnectionRoute, Connections, Offer, export, name_of, not_too_many};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;

/// The exports of the tool.
pub(crate) fn exports(connections: &[ConnectionName]) -> Vec<Export> {
    let connections: Connections = Arc::from(connections);
    let channel = json!({
        "type": "string", "minLength": 1,
        "description": "The channel's id. If not given, the one this turn's command came from",
    });
    let text = json!({
        "type": "string", "minLength": 1, "maxLength": MAX_INPUT_BYTES,
        "description": "What is written, in Markdown. `<@123>` mentions somebody",
    });
    let own = json!({"type": "string", "minLength": 1, "description": "The message's id, as `send` returned it"});
    let any = json!({"type": "string", "minLength": 1, "description": "The message's id"});
    vec![
        export(
            Offer {
                name: "send",
                description: "Writes a message in Discord and returns its id; the first one of a turn answers the command it is about. A text that is too long for one message becomes several.",
                properties: json!({
                    "text": text, "channel": channel,
                    "replyTo": {"type": "string", "minLength": 1, "description": "The id of the message it is shown as an answer to"},
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
                properties: json!({"message": own, "text": text, "channel": channel}),
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
                properties: json!({"message": own, "channel": channel}),
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
                    "emoji": {"type": "string", "minLength": 1, "description": "The emoji, or `name:id` of one of the server's own"},
                    "message": any, "channel": channel,
                }),
                required: &["emoji", "message"],
                is_idempotent: true,
            },
            &connections,
            react,
        ),
    ]
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
}

async fn send(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let (channel, is_home) = route.place("channel", args.channel.as_ref(), "channel")?;
    let interaction = route.fact("interactionId").filter(|_| is_home);
    let interaction = interaction.and_then(name_of);
    let parts = split(&args.text, DISCORD_TEXT_UNITS_MAX, Measure::Utf16, true);
    let parts = not_too_many(parts)?;
    let is_repeatable = interaction.is_none();
    let sent = route
        .run_parts(&parts, is_repeatable, |number, part| Discord::Send {
            channel: channel.clone(),
            text: part.to_owned(),
            reply_to: args.reply_to.clone().filter(|_| number == 0),
            interaction: interaction.clone(),
            mark: format!("{}/{number}", route.call_id()),
        })
        .await?;
    Ok(json!({"channel": channel, "messages": sent}).to_string())
}

async fn edit(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let (channel, _) = route.place("channel", args.channel.as_ref(), "channel")?;
    let units = Measure::Utf16.of(&args.text);
    if units > DISCORD_TEXT_UNITS_MAX {
        let message =
            format!("the text has {units} characters, a message at most {DISCORD_TEXT_UNITS_MAX}");
        return Err(ToolFault::new("E_TOO_LARGE", message));
    }
    let errand = Discord::Edit {
        channel,
        message: args.message.unwrap_or_default(),
        text: args.text,
    };
    run(&route, errand, "edited").await
}

async fn delete(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let (channel, _) = route.place("channel", args.channel.as_ref(), "channel")?;
    let errand = Discord::Delete {
        channel,
        message: args.message.unwrap_or_default(),
    };
    run(&route, errand, "deleted").await
}

async fn react(route: ConnectionRoute, args: Args) -> Result<String, ToolFault> {
    let (channel, _) = route.place("channel", args.channel.as_ref(), "channel")?;
    let errand = Discord::React {
        channel,
        message: args.message.unwrap_or_default(),
        emoji: args.emoji,
    };
    run(&route, errand, "done").await
}

async fn run(route: &ConnectionRoute, errand: Discord, done: &str) -> Result<String, ToolFault> {
    let is_repeatable = errand.is_repeatable();
    route.run(&errand, is_repeatable).await?;
    Ok(done.to_owned())
}
