//! `telegram`, by a connection.

use goondan_protocol::ids::ConnectionName;
use serde_json::{Value, json};

use super::download::{Download, FIELDS};
use super::services::{RoutedCall, of, of_chat};
use super::{invalid, now};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;

pub(super) fn exports(connections: &[ConnectionName]) -> Vec<Export> {
    let (chat, message) = (("chatId", "id"), ("messageId", "id"));
    vec![
        of(
            connections,
            "send",
            "Sends a message to a Telegram chat.",
            of_chat(&[
                chat,
                ("text", "string"),
                ("parseMode", "string"),
                ("disableNotification", "boolean"),
                ("disableWebPagePreview", "boolean"),
                ("replyToMessageId", "id"),
                ("allowSendingWithoutReply", "boolean"),
            ]),
            &["chatId", "text"],
            false,
            |site| Box::pin(send(site)),
        ),
        of(
            connections,
            "edit",
            "Replaces the text of a message.",
            of_chat(&[
                chat,
                message,
                ("text", "string"),
                ("parseMode", "string"),
                ("disableWebPagePreview", "boolean"),
            ]),
            &["chatId", "messageId", "text"],
            true,
            |site| Box::pin(edit(site)),
        ),
        of(
            connections,
            "delete",
            "Deletes a message.",
            of_chat(&[chat, message]),
            &["chatId", "messageId"],
            false,
            |site| Box::pin(delete(site)),
        ),
        of(
            connections,
            "react",
            "Adds a reaction to a message, or removes it.",
            of_chat(&[
                chat,
                message,
                ("emoji", "string"),
                ("emojis", "texts"),
                ("clear", "boolean"),
                ("isBig", "boolean"),
            ]),
            &["chatId", "messageId"],
            true,
            |site| Box::pin(react(site)),
        ),
        of(
            connections,
            "setChatAction",
            "Shows that the bot is typing.",
            of_chat(&[chat, ("action", "string"), ("status", "string")]),
            &["chatId"],
            true,
            |site| Box::pin(action(site)),
        ),
        of(
            connections,
            "downloadFile",
            "Fetches a file that was sent to the bot.",
            of_chat(&[&[("fileId", "string"), ("file_id", "string")], FIELDS].concat()),
            &[],
            true,
            |site| Box::pin(download(site)),
        ),
    ]
}

/// Parse modes are case-insensitive.
fn parse_mode(site: &RoutedCall) -> Option<&'static str> {
    match site.text("parseMode")?.to_ascii_lowercase().as_str() {
        "markdown" => Some("Markdown"),
        "markdownv2" => Some("MarkdownV2"),
        "html" => Some("HTML"),
        _ => None,
    }
}

async fn send(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (chat, text) = (site.needed(&["chatId"])?, site.needed(&["text"])?);
    let reply_to = match site.text("replyToMessageId") {
        Some(_) => Some(site.number(&["replyToMessageId"])?),
        None => None,
    };
    let params = json!({
        "chat": chat, "text": text, "parseMode": parse_mode(site), "replyTo": reply_to,
        "silent": site.truth("disableNotification").filter(|is_silent| *is_silent),
    });
    let message = site.ask("send", params, false).await?;
    let now = now().as_unix_millis() / 1_000;
    Ok(json!({"ok": true, "chatId": chat, "messageId": message, "date": now, "text": text}))
}

async fn edit(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (chat, message) = (site.needed(&["chatId"])?, site.number(&["messageId"])?);
    let params = json!({
        "chat": chat, "message": message, "text": site.needed(&["text"])?,
        "parseMode": parse_mode(site),
    });
    site.ask("edit", params, true).await?;
    Ok(json!({"ok": true, "chatId": chat, "messageId": message, "edited": true}))
}

async fn delete(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (chat, message) = (site.needed(&["chatId"])?, site.number(&["messageId"])?);
    site.ask("delete", json!({"chat": chat, "message": message}), false)
        .await?;
    Ok(json!({"ok": true, "chatId": chat, "messageId": message, "deleted": true}))
}

async fn react(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (chat, message) = (site.needed(&["chatId"])?, site.number(&["messageId"])?);
    let is_cleared = site.truth("clear").unwrap_or(false);
    let emojis = match is_cleared {
        true => Vec::new(),
        false => site.emojis(),
    };
    if emojis.is_empty() && !is_cleared {
        return Err(invalid("`emoji`, `emojis` or `clear: true` is needed"));
    }
    // A bot can have one reaction on a message.
    let emoji = emojis.first();
    let params = json!({"chat": chat, "message": message, "emoji": emoji});
    site.ask("react", params, true).await?;
    let shown: Vec<&String> = emoji.into_iter().collect();
    Ok(json!({
        "ok": true, "chatId": chat, "messageId": message, "cleared": is_cleared,
        "reactionCount": shown.len(), "emojis": shown,
    }))
}

async fn action(site: &RoutedCall) -> Result<Value, ToolFault> {
    let chat = site.needed(&["chatId"])?;
    let action = site.text("action").or_else(|| site.text("status"));
    let action = action.unwrap_or_else(|| "typing".to_owned());
    let method = action.replace('-', "_");
    site.ask("typing", json!({"chat": chat, "action": method}), true)
        .await?;
    Ok(json!({"ok": true, "chatId": chat, "status": action, "action": action}))
}

async fn download(site: &RoutedCall) -> Result<Value, ToolFault> {
    let file = site.needed(&["fileId", "file_id"])?;
    let download = Download::of(site)?;
    let params = json!({"file": file, "maxBytes": download.bytes_max});
    let fetched = site.ask("download", params, true).await?;
    let of_file = json!({
        "fileId": file, "fileUniqueId": fetched.get("fileUniqueId"), "filePath": fetched.get("filePath"),
        "fileSize": fetched.get("fileSize"), "downloadUrl": null,
    });
    download.finish(site, &fetched, of_file)
}
