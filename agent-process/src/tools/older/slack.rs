//! `slack`, by a connection.

use goondan_protocol::ids::ConnectionName;
use serde_json::{Value, json};

use super::download::{Download, FIELDS};
use super::invalid;
use super::services::{RoutedCall, of, of_chat};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;

/// Maximum number of messages per read.
const MESSAGES_MAX: u64 = 100;

pub(super) fn exports(connections: &[ConnectionName]) -> Vec<Export> {
    let channel = [("channelId", "string"), ("channel", "string")];
    let message = [
        ("messageTs", "string"),
        ("ts", "string"),
        ("timestamp", "string"),
    ];
    let with = |more: &[(&str, &str)]| of_chat(&[&channel[..], more].concat());
    let of_message = |more: &[(&str, &str)]| of_chat(&[&channel[..], &message[..], more].concat());
    vec![
        of(
            connections,
            "send",
            "Sends a message to a Slack channel.",
            with(&[
                ("text", "string"),
                ("threadTs", "string"),
                ("mrkdwn", "boolean"),
                ("unfurlLinks", "boolean"),
                ("unfurlMedia", "boolean"),
                ("replyBroadcast", "boolean"),
            ]),
            &["text"],
            false,
            |site| Box::pin(send(site)),
        ),
        of(
            connections,
            "read",
            "Reads messages of a channel or a thread.",
            of_message(&[
                ("threadTs", "string"),
                ("latest", "string"),
                ("oldest", "string"),
                ("inclusive", "boolean"),
                ("limit", "number"),
                ("cursor", "string"),
            ]),
            &[],
            true,
            |site| Box::pin(read(site)),
        ),
        of(
            connections,
            "edit",
            "Replaces the text of a message.",
            of_message(&[("text", "string"), ("mrkdwn", "boolean")]),
            &["text"],
            true,
            |site| Box::pin(edit(site)),
        ),
        of(
            connections,
            "delete",
            "Deletes a message.",
            of_message(&[]),
            &[],
            false,
            |site| Box::pin(delete(site)),
        ),
        of(
            connections,
            "react",
            "Adds reactions to a message.",
            of_message(&[("emoji", "string"), ("emojis", "texts")]),
            &[],
            true,
            |site| Box::pin(react(site)),
        ),
        of(
            connections,
            "downloadFile",
            "Fetches a file of Slack.",
            of_chat(
                &[
                    &[
                        ("url", "string"),
                        ("fileUrl", "string"),
                        ("downloadUrl", "string"),
                    ],
                    FIELDS,
                ]
                .concat(),
            ),
            &[],
            true,
            |site| Box::pin(download(site)),
        ),
    ]
}

fn channel_of(site: &RoutedCall) -> Result<String, ToolFault> {
    site.needed(&["channelId", "channel"])
}

fn message_of(site: &RoutedCall) -> Result<String, ToolFault> {
    site.needed(&["messageTs", "ts", "timestamp"])
}

fn format_of(site: &RoutedCall) -> &'static str {
    match site.truth("mrkdwn") {
        Some(false) => "plain",
        _ => "mrkdwn",
    }
}

async fn send(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (channel, text) = (channel_of(site)?, site.needed(&["text"])?);
    let params = json!({
        "channel": channel, "text": text, "format": format_of(site),
        "thread": site.text("threadTs"),
    });
    let message = site.ask("send", params, false).await?;
    Ok(json!({"ok": true, "channelId": channel, "messageTs": message, "text": text}))
}

async fn read(site: &RoutedCall) -> Result<Value, ToolFault> {
    let channel = channel_of(site)?;
    let (message, thread) = (message_of(site).ok(), site.text("threadTs"));
    let default = if message.is_some() { MESSAGES_MAX } else { 20 };
    let limit = site
        .args
        .get("limit")
        .and_then(Value::as_u64)
        .unwrap_or(default);
    let limit = limit.clamp(1, MESSAGES_MAX);
    let params = json!({"channel": channel, "thread": thread, "limit": limit});
    let read = site.ask("read", params, true).await?;
    let (oldest, latest) = (site.text("oldest"), site.text("latest"));
    let all = read
        .get("messages")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let messages: Vec<Value> = all
        .filter(|it| {
            let ts = it.get("ts").and_then(Value::as_str).unwrap_or_default();
            message.as_deref().is_none_or(|wanted| wanted == ts)
                && oldest.as_deref().is_none_or(|oldest| ts >= oldest)
                && latest.as_deref().is_none_or(|latest| ts <= latest)
        })
        .map(|it| {
            json!({
                "type": "message", "ts": it.get("ts"), "user": it.get("author"), "text": it.get("text"),
            })
        })
        .collect();
    let method = match thread {
        Some(_) => "conversations.replies",
        None => "conversations.history",
    };
    Ok(json!({
        "ok": true, "channelId": channel, "method": method, "messageTs": message, "threadTs": thread,
        "count": messages.len(), "found": message.is_some().then_some(!messages.is_empty()),
        "messages": messages, "hasMore": read.get("hasMore"), "nextCursor": null,
    }))
}

async fn edit(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (channel, message) = (channel_of(site)?, message_of(site)?);
    let params = json!({
        "channel": channel, "message": message, "text": site.needed(&["text"])?,
        "format": format_of(site),
    });
    site.ask("edit", params, true).await?;
    Ok(json!({"ok": true, "channelId": channel, "messageTs": message, "edited": true}))
}

async fn delete(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (channel, message) = (channel_of(site)?, message_of(site)?);
    site.ask(
        "delete",
        json!({"channel": channel, "message": message}),
        false,
    )
    .await?;
    Ok(json!({"ok": true, "channelId": channel, "messageTs": message, "deleted": true}))
}

async fn react(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (channel, message) = (channel_of(site)?, message_of(site)?);
    let emojis: Vec<String> = site
        .emojis()
        .iter()
        .map(|emoji| emoji.trim_matches(':').to_owned())
        .collect();
    if emojis.is_empty() {
        return Err(invalid("`emoji` or `emojis` is needed"));
    }
    for emoji in &emojis {
        let params = json!({"channel": channel, "message": message, "emoji": emoji});
        site.ask("react", params, true).await?;
    }
    Ok(json!({
        "ok": true, "channelId": channel, "messageTs": message, "reactionCount": emojis.len(),
        "emojis": emojis,
    }))
}

async fn download(site: &RoutedCall) -> Result<Value, ToolFault> {
    let url = site.needed(&["url", "fileUrl", "downloadUrl"])?;
    let download = Download::of(site)?;
    let params = json!({"url": url, "maxBytes": download.bytes_max});
    let fetched = site.ask("download", params, true).await?;
    let of_file = json!({
        "url": url, "contentLength": fetched.get("contentLength"), "etag": fetched.get("etag"),
        "contentDisposition": fetched.get("contentDisposition"),
    });
    download.finish(site, &fetched, of_file)
}
