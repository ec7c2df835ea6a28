//! `telegram`: messages through a connection.

use goondan_protocol::ids::ConnectionName;
use goondan_protocol::service::OlderTelegramParameters;
use serde_json::{Value, json};

use super::download::{Download, FIELDS};
use super::invalid;
use super::javascript::{is_space, primitive_text};
use super::services::{RoutedCall, of, of_chat};
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

/// The parse mode of the Bot API.
fn parse_mode(site: &RoutedCall) -> Result<Option<&'static str>, ToolFault> {
    let Some(written) = site.trimmed(&["parseMode"]) else {
        return Ok(None);
    };
    match normal(&written).as_str() {
        "markdown" => Ok(Some("Markdown")),
        "markdownv2" | "markdown-v2" => Ok(Some("MarkdownV2")),
        "html" => Ok(Some("HTML")),
        _ => Err(invalid(format!(
            "`{written}` is not a parse mode; use Markdown, MarkdownV2 or HTML"
        ))),
    }
}

/// A word in lower case, with a dash for each gap: spaces or underscores, also underscores at an end.
fn normal(word: &str) -> String {
    let is_gap = |c: char| c == '_' || is_space(c);
    let mut normal = String::new();
    let mut was_gap = false;
    for c in word.trim_matches(is_space).to_lowercase().chars() {
        if !is_gap(c) {
            normal.push(c);
        } else if !was_gap {
            normal.push('-');
        }
        was_gap = is_gap(c);
    }
    normal
}

/// Chat actions of the Bot API.
const CHAT_ACTIONS: [&str; 11] = [
    "typing",
    "upload_photo",
    "record_video",
    "upload_video",
    "record_voice",
    "upload_voice",
    "upload_document",
    "choose_sticker",
    "find_location",
    "record_video_note",
    "upload_video_note",
];

/// The chat: a text, or a whole number.
fn chat_of(site: &RoutedCall) -> Result<String, ToolFault> {
    let id = || {
        let id = site.args.get("chatId")?;
        primitive_text(id).filter(|_| id.as_f64().is_some_and(|id| id.fract() == 0.0))
    };
    let chat = site.trimmed(&["chatId"]).or_else(id);
    chat.ok_or_else(|| invalid("`chatId` must be a text or a whole number"))
}

fn message_of(site: &RoutedCall) -> Result<i64, ToolFault> {
    let none = || invalid("`messageId` must be a positive integer");
    site.message_id("messageId")?.ok_or_else(none)
}

async fn send(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (chat, text) = (chat_of(site)?, site.needed(&["text"])?);
    let older = OlderTelegramParameters {
        disable_notification: site.truth("disableNotification"),
        disable_web_page_preview: site.truth("disableWebPagePreview"),
        reply_to_message_id: site.message_id("replyToMessageId")?,
        allow_sending_without_reply: site.truth("allowSendingWithoutReply"),
    };
    let params =
        json!({"chat": chat, "text": text, "parseMode": parse_mode(site)?, "older": older});
    let sent = site.ask("send", params, false).await?;
    let integer = |name: &str| sent.get(name).and_then(Value::as_i64);
    let shown = sent.get("text").and_then(Value::as_str);
    let shown = shown.map(|text| text.trim_matches(is_space));
    Ok(json!({
        "ok": true, "chatId": chat, "messageId": integer("message_id").filter(|id| *id > 0),
        "date": integer("date"), "text": shown.filter(|text| !text.is_empty()),
    }))
}

async fn edit(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (chat, message) = (chat_of(site)?, message_of(site)?);
    let older = OlderTelegramParameters {
        disable_web_page_preview: site.truth("disableWebPagePreview"),
        ..OlderTelegramParameters::default()
    };
    let params = json!({
        "chat": chat, "message": message, "text": site.needed(&["text"])?,
        "parseMode": parse_mode(site)?, "older": older,
    });
    let edited = site.ask("edit", params, true).await?;
    let id = edited.get("message_id").and_then(Value::as_i64);
    let id = id.filter(|id| *id > 0).unwrap_or(message);
    Ok(json!({"ok": true, "chatId": chat, "messageId": id, "edited": true}))
}

async fn delete(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (chat, message) = (chat_of(site)?, message_of(site)?);
    site.ask("delete", json!({"chat": chat, "message": message}), false)
        .await?;
    Ok(json!({"ok": true, "chatId": chat, "messageId": message, "deleted": true}))
}

async fn react(site: &RoutedCall) -> Result<Value, ToolFault> {
    let (chat, message) = (chat_of(site)?, message_of(site)?);
    let is_cleared = site.truth("clear").unwrap_or(false);
    let emojis = match is_cleared {
        true => Vec::new(),
        false => site.emojis(),
    };
    if emojis.is_empty() && !is_cleared {
        return Err(invalid("`emoji`, `emojis` or `clear: true` is needed"));
    }
    let more = emojis.get(1..).unwrap_or_default();
    let params = json!({
        "chat": chat, "message": message, "emoji": emojis.first(), "more": more,
        "isBig": site.truth("isBig"),
    });
    site.ask("react", params, true).await?;
    Ok(json!({
        "ok": true, "chatId": chat, "messageId": message, "cleared": is_cleared,
        "emojis": emojis, "reactionCount": emojis.len(),
    }))
}

async fn action(site: &RoutedCall) -> Result<Value, ToolFault> {
    let chat = chat_of(site)?;
    let named = |name: &str| site.args.get(name).and_then(Value::as_str);
    let written = named("action").or_else(|| named("status"));
    let written = written.unwrap_or("typing");
    let action = normal(written).replace('-', "_");
    if !CHAT_ACTIONS.contains(&action.as_str()) {
        let known = CHAT_ACTIONS.join(", ").replace('_', "-");
        return Err(invalid(format!(
            "`{written}` is not a chat action; use one of {known}"
        )));
    }
    site.ask("typing", json!({"chat": chat, "action": action}), true)
        .await?;
    Ok(json!({"ok": true, "chatId": chat, "status": action, "action": action}))
}

async fn download(site: &RoutedCall) -> Result<Value, ToolFault> {
    let file = site.trimmed_needed(&["fileId", "file_id"])?;
    let download = Download::of(site)?;
    let params = json!({"file": file, "maxBytes": download.bytes_max});
    let fetched = site.ask("download", params, true).await?;
    let of_file = json!({
        "fileId": fetched.get("fileId").filter(|id| id.is_string()).unwrap_or(&json!(file)),
        "fileUniqueId": fetched.get("fileUniqueId"), "filePath": fetched.get("filePath"),
        "fileSize": fetched.get("fileSize"), "downloadUrl": null,
    });
    download.finish(site, &fetched, of_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compat_2_names_of_actions_have_dashes_or_underscores() {
        for written in [
            "upload-photo",
            "upload_photo",
            " Upload  Photo ",
            "UPLOAD_PHOTO",
        ] {
            assert_eq!(normal(written), "upload-photo", "{written}");
        }
        assert_eq!(normal("Markdown V2"), "markdown-v2");
        assert_eq!(normal("_typing_"), "-typing-");
        assert_eq!(normal(" "), "");
    }
}
