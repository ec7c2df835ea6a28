//! `slack`: messages through a connection.

use goondan_protocol::ids::ConnectionName;
use goondan_protocol::service::{OlderSlackParameters, SLACK_PAGE_MAX};
use serde_json::{Value, json};

use super::download::{Download, FIELDS};
use super::invalid;
use super::javascript::{self, is_space};
use super::services::{RoutedCall, of, of_chat};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;

/// Default number of messages per read.
const MESSAGES_DEFAULT: usize = 20;

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
    site.trimmed_needed(&["channelId", "channel"])
}

/// Names of the argument that identifies a message.
const MESSAGE: [&str; 3] = ["messageTs", "ts", "timestamp"];

fn message_of(site: &RoutedCall) -> Result<String, ToolFault> {
    site.trimmed_needed(&MESSAGE)
}

/// A field of Slack's answer or of a message in it, unless it is blank.
fn text_field<'a>(answer: &'a Value, name: &str) -> Option<&'a str> {
    let text = answer.get(name).and_then(Value::as_str);
    let text = text.map(|text| text.trim_matches(is_space));
    text.filter(|text| !text.is_empty())
}

/// A field of Slack's answer, or the call's argument.
fn text_or(answer: &Value, name: &str, given: &str) -> String {
    text_field(answer, name).unwrap_or(given).to_owned()
}

async fn send(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (channel, text) = (channel_of(site)?, site.needed(&["text"])?);
    let older = OlderSlackParameters {
        mrkdwn: site.truth("mrkdwn"),
        unfurl_links: site.truth("unfurlLinks"),
        unfurl_media: site.truth("unfurlMedia"),
        reply_broadcast: site.truth("replyBroadcast"),
    };
    let params = json!({
        "channel": channel, "text": text, "thread": site.text("threadTs"), "older": older,
    });
    let sent = site.ask("send", params, false).await?;
    Ok(json!({
        "ok": true, "channelId": text_or(&sent, "channel", &channel), "messageTs": text_field(&sent, "ts"),
        "text": text_or(&sent, "text", &text),
    }))
}

/// Number of messages per read.
fn limit_of(site: &RoutedCall, default: usize) -> Result<usize, ToolFault> {
    let Some(written) = site.args.get("limit") else {
        return Ok(default);
    };
    let limit = written.as_f64().map(javascript::integer);
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| (1..=SLACK_PAGE_MAX).contains(limit));
    limit.ok_or_else(|| invalid(format!("`limit` is 1 to {SLACK_PAGE_MAX}, not {written}")))
}

async fn read(site: &RoutedCall) -> Result<Value, ToolFault> {
    let channel = channel_of(site)?;
    let (message, thread) = (site.trimmed(&MESSAGE), site.trimmed(&["threadTs"]));
    // A single message is the newest message up to its own time.
    let default = if message.is_some() {
        1
    } else {
        MESSAGES_DEFAULT
    };
    let inclusive = site
        .truth("inclusive")
        .or(message.is_some().then_some(true));
    let params = json!({
        "channel": channel, "thread": thread, "oldest": site.trimmed(&["oldest"]),
        "latest": site.trimmed(&["latest"]).or_else(|| message.clone()),
        "inclusive": inclusive, "limit": limit_of(site, default)?,
        "cursor": site.trimmed(&["cursor"]),
    });
    let page = site.ask("readPage", params, true).await?;
    let messages = page.get("messages").and_then(Value::as_array);
    let messages: &[Value] = messages.map_or(&[], Vec::as_slice);
    let found = message.as_ref().and_then(|wanted| {
        let mut messages = messages.iter();
        messages.find(|it| text_field(it, "ts") == Some(wanted.as_str()))
    });
    let method = match thread {
        Some(_) => "conversations.replies",
        None => "conversations.history",
    };
    Ok(json!({
        "ok": true, "channelId": channel, "method": method, "messageTs": message, "threadTs": thread,
        "count": messages.len(), "found": found, "messages": messages,
        "hasMore": page.get("hasMore"), "nextCursor": page.get("nextCursor"),
    }))
}

async fn edit(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (channel, message) = (channel_of(site)?, message_of(site)?);
    let older = OlderSlackParameters {
        mrkdwn: site.truth("mrkdwn"),
        ..OlderSlackParameters::default()
    };
    let params = json!({
        "channel": channel, "message": message, "text": site.needed(&["text"])?, "older": older,
    });
    let edited = site.ask("edit", params, true).await?;
    Ok(json!({
        "ok": true, "channelId": text_or(&edited, "channel", &channel),
        "messageTs": text_or(&edited, "ts", &message), "edited": true,
    }))
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

/// The name of an emoji without the colons around it.
fn emoji_name(written: &str) -> &str {
    let bare = written
        .strip_prefix(':')
        .and_then(|name| name.strip_suffix(':'));
    bare.filter(|name| !name.is_empty())
        .unwrap_or(written)
        .trim_matches(is_space)
}

async fn react(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (channel, message) = (channel_of(site)?, message_of(site)?);
    let mut emojis: Vec<String> = Vec::new();
    for emoji in site.emojis() {
        let name = emoji_name(&emoji);
        if name.contains(is_space) {
            return Err(invalid(format!("`{name}` is not the name of an emoji")));
        }
        if !name.is_empty() && !emojis.iter().any(|known| known == name) {
            emojis.push(name.to_owned());
        }
    }
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
    let url = site.trimmed_needed(&["url", "fileUrl", "downloadUrl"])?;
    let download = Download::of(site)?;
    let params = json!({"url": url, "maxBytes": download.bytes_max});
    let fetched = site.ask("download", params, true).await?;
    let of_file = json!({
        "url": url, "contentLength": fetched.get("contentLength"), "etag": fetched.get("etag"),
        "contentDisposition": fetched.get("contentDisposition"),
    });
    download.finish(site, &fetched, of_file)
}
