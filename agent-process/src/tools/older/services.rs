//! `http-fetch`, `telegram` and `slack`: done by connections, which hold the tokens. A `token` or an
//! `apiBaseUrl` of a call is passed over: which bot and which server it is says the Connection.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use goondan_clock::Instant;
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::service::Request;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};

use super::{Told, export, invalid, millis_since, now, outcome};
use crate::tools::export::Export;
use crate::tools::fault::ToolFault;
use crate::tools::invocation::ToolInvocation;
use crate::tools::outside::ConnectionRoute;

/// How long a call waits, its turn included, in milliseconds.
const DEADLINE_MS: u64 = 120_000;
/// How long a request may take unless the call says otherwise, in milliseconds.
const FETCH_TIMEOUT_MS: u64 = 30_000;
/// The same at most.
const FETCH_TIMEOUT_MAX_MS: u64 = 120_000;
/// Bytes of a body that are returned unless the call says otherwise.
const FETCH_BYTES: usize = 500_000;
/// Messages that are read at once at most.
const SLACK_MESSAGES_MAX: u64 = 100;

type Work = for<'a> fn(&'a Site) -> BoxFuture<'a, Result<Value, ToolFault>>;

/// A call and its way out.
struct Site {
    route: ConnectionRoute,
    args: Map<String, Value>,
}

impl Site {
    fn text(&self, name: &str) -> Option<String> {
        match self.args.get(name)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// The first of these that is given.
    fn needed(&self, names: &[&str]) -> Result<String, ToolFault> {
        let found = names.iter().find_map(|name| self.text(name));
        let name = names.first().copied().unwrap_or_default();
        found.ok_or_else(|| invalid(format!("`{name}` is needed")))
    }

    fn number(&self, names: &[&str]) -> Result<i64, ToolFault> {
        let text = self.needed(names)?;
        let name = names.first().copied().unwrap_or_default();
        text.parse()
            .map_err(|_| invalid(format!("`{name}` must be a whole number")))
    }

    fn truth(&self, name: &str) -> Option<bool> {
        self.args.get(name).and_then(Value::as_bool)
    }

    /// `emoji`, and those of `emojis`.
    fn emojis(&self) -> Vec<String> {
        let many = self
            .args
            .get("emojis")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let many = many.filter_map(|it| it.as_str().map(str::to_owned));
        self.text("emoji").into_iter().chain(many).collect()
    }

    async fn ask(
        &self,
        method: &str,
        params: Value,
        is_repeatable: bool,
    ) -> Result<Value, ToolFault> {
        self.ask_within(method, params, is_repeatable, DEADLINE_MS)
            .await
    }

    async fn ask_within(
        &self,
        method: &str,
        params: Value,
        is_repeatable: bool,
        deadline_ms: u64,
    ) -> Result<Value, ToolFault> {
        let params = match params {
            Value::Object(fields) => Value::Object(
                fields
                    .into_iter()
                    .filter(|(_, value)| !value.is_null())
                    .collect(),
            ),
            other => other,
        };
        let params = to_raw_value(&params);
        let params = params.map_err(|error| ToolFault::new("E_TOOL_FAILED", error.to_string()))?;
        let request = Request {
            method: method.to_owned(),
            params,
        };
        self.route.run(request, is_repeatable, deadline_ms).await
    }
}

fn of(
    connections: &[ConnectionName],
    name: &'static str,
    description: &'static str,
    properties: Value,
    required: &'static [&'static str],
    is_idempotent: bool,
    work: Work,
) -> Export {
    let connections: Arc<[ConnectionName]> = connections.into();
    let told = Told {
        name,
        description,
        properties,
        required,
        is_idempotent,
    };
    export(
        told,
        Box::new(move |_, call| {
            let connections = Arc::clone(&connections);
            Box::pin(async move { outcome(done(&connections, &call, work).await) })
        }),
    )
}

async fn done(
    connections: &[ConnectionName],
    call: &ToolInvocation,
    work: Work,
) -> Result<Value, ToolFault> {
    let site = Site {
        route: ConnectionRoute::of(call, connections)?,
        args: call.args()?,
    };
    work(&site).await
}

/// Properties by their names and types.
fn properties(fields: &[(&str, &str)]) -> Value {
    let each = fields.iter().map(|(name, kind)| {
        let schema = match *kind {
            "id" => json!({"type": ["string", "number"]}),
            "texts" => json!({"type": "array", "items": {"type": "string"}}),
            kind => json!({ "type": kind }),
        };
        ((*name).to_owned(), schema)
    });
    Value::Object(each.collect())
}

/// The same, with what every call to a chat takes.
fn of_chat(fields: &[(&str, &str)]) -> Value {
    let common = [
        ("token", "string"),
        ("timeoutMs", "number"),
        ("apiBaseUrl", "string"),
    ];
    properties(&[&common, fields].concat())
}

pub(super) fn http(connections: &[ConnectionName]) -> Vec<Export> {
    let common = [
        ("url", "string"),
        ("headers", "object"),
        ("timeoutMs", "number"),
        ("maxBytes", "number"),
    ];
    let with_body = [&common[..], &[("body", "object"), ("bodyString", "string")]].concat();
    vec![
        of(
            connections,
            "get",
            "Makes an HTTP GET request.",
            properties(&common),
            &["url"],
            true,
            |site| Box::pin(fetch(site, "GET")),
        ),
        of(
            connections,
            "post",
            "Makes an HTTP POST request.",
            properties(&with_body),
            &["url"],
            false,
            |site| Box::pin(fetch(site, "POST")),
        ),
    ]
}

async fn fetch(site: &Site, method: &str) -> Result<Value, ToolFault> {
    let url = site.needed(&["url"])?;
    let headers = site
        .args
        .get("headers")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let headers: Map<String, Value> = headers
        .map(|(name, value)| match value {
            Value::String(_) => (name.clone(), value.clone()),
            other => (name.clone(), json!(other.to_string())),
        })
        .collect();
    let body = site
        .args
        .get("body")
        .filter(|body| !body.is_null())
        .map(Value::to_string);
    let body = body.or_else(|| site.text("bodyString"));
    let timeout_ms = site.args.get("timeoutMs").and_then(Value::as_u64);
    let timeout_ms = timeout_ms
        .unwrap_or(FETCH_TIMEOUT_MS)
        .clamp(1, FETCH_TIMEOUT_MAX_MS);
    let begun = Instant::now();
    let params = json!({
        "method": method, "url": url, "headers": headers, "raw": true, "timeoutMs": timeout_ms,
        "body": body.filter(|_| method == "POST"),
    });
    let deadline_ms = timeout_ms.saturating_add(DEADLINE_MS / 2);
    let fetched = site
        .ask_within("fetch", params, method == "GET", deadline_ms)
        .await?;
    let text = fetched
        .get("text")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let most = site.args.get("maxBytes").and_then(Value::as_u64);
    let most = most
        .and_then(|most| usize::try_from(most).ok())
        .unwrap_or(FETCH_BYTES);
    let end = text.floor_char_boundary(most);
    let status = fetched
        .get("status")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    let bytes = fetched
        .get("bytes")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    let whole = u64::try_from(text.len()).unwrap_or(u64::MAX);
    Ok(json!({
        "url": fetched.get("url"), "method": method, "status": status,
        "statusText": status_text(status), "headers": fetched.get("headers"),
        "body": text.get(..end).unwrap_or_default(), "truncated": end < text.len() || bytes > whole,
        "durationMs": millis_since(begun),
    }))
}

/// What servers say beside the usual codes.
fn status_text(status: u64) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "",
    }
}

pub(super) fn telegram(connections: &[ConnectionName]) -> Vec<Export> {
    // Long: one entry for each export.
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
            |site| Box::pin(telegram_send(site)),
        ),
        of(
            connections,
            "edit",
            "Gives a message another text.",
            of_chat(&[
                chat,
                message,
                ("text", "string"),
                ("parseMode", "string"),
                ("disableWebPagePreview", "boolean"),
            ]),
            &["chatId", "messageId", "text"],
            true,
            |site| Box::pin(telegram_edit(site)),
        ),
        of(
            connections,
            "delete",
            "Deletes a message.",
            of_chat(&[chat, message]),
            &["chatId", "messageId"],
            false,
            |site| Box::pin(telegram_delete(site)),
        ),
        of(
            connections,
            "react",
            "Puts a reaction under a message, or takes it away.",
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
            |site| Box::pin(telegram_react(site)),
        ),
        of(
            connections,
            "setChatAction",
            "Shows that the bot is typing.",
            of_chat(&[chat, ("action", "string"), ("status", "string")]),
            &["chatId"],
            true,
            |site| Box::pin(telegram_action(site)),
        ),
    ]
}

/// The modes by whatever case they are written in.
fn parse_mode(site: &Site) -> Option<&'static str> {
    match site.text("parseMode")?.to_ascii_lowercase().as_str() {
        "markdown" => Some("Markdown"),
        "markdownv2" => Some("MarkdownV2"),
        "html" => Some("HTML"),
        _ => None,
    }
}

async fn telegram_send(site: &Site) -> Result<Value, ToolFault> {
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

async fn telegram_edit(site: &Site) -> Result<Value, ToolFault> {
    let (chat, message) = (site.needed(&["chatId"])?, site.number(&["messageId"])?);
    let params = json!({
        "chat": chat, "message": message, "text": site.needed(&["text"])?,
        "parseMode": parse_mode(site),
    });
    site.ask("edit", params, true).await?;
    Ok(json!({"ok": true, "chatId": chat, "messageId": message, "edited": true}))
}

async fn telegram_delete(site: &Site) -> Result<Value, ToolFault> {
    let (chat, message) = (site.needed(&["chatId"])?, site.number(&["messageId"])?);
    site.ask("delete", json!({"chat": chat, "message": message}), false)
        .await?;
    Ok(json!({"ok": true, "chatId": chat, "messageId": message, "deleted": true}))
}

async fn telegram_react(site: &Site) -> Result<Value, ToolFault> {
    let (chat, message) = (site.needed(&["chatId"])?, site.number(&["messageId"])?);
    let is_cleared = site.truth("clear").unwrap_or(false);
    let emojis = match is_cleared {
        true => Vec::new(),
        false => site.emojis(),
    };
    if emojis.is_empty() && !is_cleared {
        return Err(invalid("`emoji`, `emojis` or `clear: true` is needed"));
    }
    // A bot has one reaction under a message.
    let emoji = emojis.first();
    let params = json!({"chat": chat, "message": message, "emoji": emoji});
    site.ask("react", params, true).await?;
    let shown: Vec<&String> = emoji.into_iter().collect();
    Ok(json!({
        "ok": true, "chatId": chat, "messageId": message, "cleared": is_cleared,
        "reactionCount": shown.len(), "emojis": shown,
    }))
}

async fn telegram_action(site: &Site) -> Result<Value, ToolFault> {
    let chat = site.needed(&["chatId"])?;
    let action = site.text("action").or_else(|| site.text("status"));
    let action = action.unwrap_or_else(|| "typing".to_owned());
    let method = action.replace('-', "_");
    site.ask("typing", json!({"chat": chat, "action": method}), true)
        .await?;
    Ok(json!({"ok": true, "chatId": chat, "status": action, "action": action}))
}

pub(super) fn slack(connections: &[ConnectionName]) -> Vec<Export> {
    // Long: one entry for each export.
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
            |site| Box::pin(slack_send(site)),
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
            |site| Box::pin(slack_read(site)),
        ),
        of(
            connections,
            "edit",
            "Gives a message another text.",
            of_message(&[("text", "string"), ("mrkdwn", "boolean")]),
            &["text"],
            true,
            |site| Box::pin(slack_edit(site)),
        ),
        of(
            connections,
            "delete",
            "Deletes a message.",
            of_message(&[]),
            &[],
            false,
            |site| Box::pin(slack_delete(site)),
        ),
        of(
            connections,
            "react",
            "Puts reactions under a message.",
            of_message(&[("emoji", "string"), ("emojis", "texts")]),
            &[],
            true,
            |site| Box::pin(slack_react(site)),
        ),
    ]
}

fn slack_channel(site: &Site) -> Result<String, ToolFault> {
    site.needed(&["channelId", "channel"])
}

fn slack_message(site: &Site) -> Result<String, ToolFault> {
    site.needed(&["messageTs", "ts", "timestamp"])
}

fn slack_format(site: &Site) -> &'static str {
    match site.truth("mrkdwn") {
        Some(false) => "plain",
        _ => "mrkdwn",
    }
}

async fn slack_send(site: &Site) -> Result<Value, ToolFault> {
    let (channel, text) = (slack_channel(site)?, site.needed(&["text"])?);
    let params = json!({
        "channel": channel, "text": text, "format": slack_format(site),
        "thread": site.text("threadTs"),
    });
    let message = site.ask("send", params, false).await?;
    Ok(json!({"ok": true, "channelId": channel, "messageTs": message, "text": text}))
}

async fn slack_read(site: &Site) -> Result<Value, ToolFault> {
    let channel = slack_channel(site)?;
    let (message, thread) = (slack_message(site).ok(), site.text("threadTs"));
    let default = if message.is_some() {
        SLACK_MESSAGES_MAX
    } else {
        20
    };
    let limit = site
        .args
        .get("limit")
        .and_then(Value::as_u64)
        .unwrap_or(default);
    let limit = limit.clamp(1, SLACK_MESSAGES_MAX);
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

async fn slack_edit(site: &Site) -> Result<Value, ToolFault> {
    let (channel, message) = (slack_channel(site)?, slack_message(site)?);
    let params = json!({
        "channel": channel, "message": message, "text": site.needed(&["text"])?,
        "format": slack_format(site),
    });
    site.ask("edit", params, true).await?;
    Ok(json!({"ok": true, "channelId": channel, "messageTs": message, "edited": true}))
}

async fn slack_delete(site: &Site) -> Result<Value, ToolFault> {
    let (channel, message) = (slack_channel(site)?, slack_message(site)?);
    site.ask(
        "delete",
        json!({"channel": channel, "message": message}),
        false,
    )
    .await?;
    Ok(json!({"ok": true, "channelId": channel, "messageTs": message, "deleted": true}))
}

async fn slack_react(site: &Site) -> Result<Value, ToolFault> {
    let (channel, message) = (slack_channel(site)?, slack_message(site)?);
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
