//! Actions of agents through a Slack app, using Slack's Web API.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallError, CallErrorCode, TokenVerdict};
use goondan_protocol::service::{
    FormattedRange, OlderSlackParameters, SLACK, SLACK_MESSAGES_MAX, SLACK_PAGE_MAX, ServiceSpec,
    Slack as Action, SlackFormat,
};
use goondan_protocol::time::Timestamp;
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::message_format::{LastMessages, page_of};
use super::mrkdwn::{escaped, rendered};
use super::threads::Threads;
use crate::chat_replies::ChatService;
use crate::download;
use crate::look_back::{Evidence, earliest_ms, key_of};
use crate::payload::text;
use crate::service::{FailureContext, HttpAnswer, check_place};
use crate::service_api::ServiceApi;

/// Messages of a thread per request.
const THREAD_PAGE_MESSAGES: usize = 200;

/// Maximum number of pages read to reach the end of a thread.
const THREAD_PAGES_MAX: usize = 10;

/// Maximum number of pages read to find a message.
const LOOK_BACK_PAGES_MAX: usize = 10;

/// Type of the metadata of messages that agents write.
const METADATA_TYPE: &str = "goondan_message";

/// A file to upload.
struct OutgoingFile<'f> {
    name: &'f str,
    base64: &'f str,
}

/// Slack's Web API for the app with one token.
pub(super) struct Api {
    client: reqwest::Client,
    endpoint: String,
    token: String,
    /// The only channels that can be written to; `None` for all.
    channels: Option<Vec<String>>,
    threads: Arc<Threads>,
}

impl ServiceApi for Api {
    type Action = Action;
    const SERVICE: &'static ServiceSpec = &SLACK;

    async fn run(&self, action: Action, is_idempotent: bool) -> Result<Value, CallError> {
        if let Action::Download { url, max_bytes } = &action {
            let url = self.file_url(url)?;
            let request = self.client.get(url).bearer_auth(&self.token);
            return download::fetch(request, "Slack", *max_bytes).await;
        }
        let channel = channel_of(&action);
        check_place("channel", channel, self.channels.as_deref(), "channels")?;
        if let Action::SendFile {
            name,
            base64,
            text,
            ranges,
            thread,
            ..
        } = &action
        {
            let file = OutgoingFile { name, base64 };
            let comment = rendered(text, ranges);
            return self
                .send_file(&file, (channel, thread.as_deref()), &comment)
                .await;
        }
        let (method, params) = to_method(&action);
        if let Action::Read { thread, limit, .. } = action {
            return self.read(method, &params, thread.is_some(), limit).await;
        }
        if let Action::ReadPage { .. } = action {
            let page = self.look_up(method, &params, None).await?;
            return Ok(page_of(&page, &self.token));
        }
        let result = self.ask(method, &params, is_idempotent).await?;
        Ok(match action {
            Action::Send { older: Some(_), .. } | Action::Edit { older: Some(_), .. } => json!({
                "channel": text(&result, "/channel"), "ts": text(&result, "/ts"),
                "text": text(&result, "/message/text"),
            }),
            Action::Send { .. } => result.get("ts").cloned().unwrap_or(Value::Null),
            Action::Edit { .. }
            | Action::Delete { .. }
            | Action::React { .. }
            | Action::Read { .. }
            | Action::ReadPage { .. }
            | Action::SendFile { .. }
            | Action::Download { .. } => json!({}),
        })
    }

    async fn look_back(&self, action: &Action, since: Timestamp) -> Result<Evidence, CallError> {
        let Action::Send {
            channel,
            thread,
            older: None,
            mark,
            ..
        } = action
        else {
            return Ok(Evidence::Unclear("the message has no metadata".to_owned()));
        };
        if mark.is_empty() {
            return Ok(Evidence::Unclear("the message has no metadata".to_owned()));
        }
        check_place("channel", channel, self.channels.as_deref(), "channels")?;
        let (method, params) = to_history(channel, thread.as_deref(), since);
        let key = key_of(mark);
        let mut cursor = None;
        let mut sight = MetadataSight::default();
        for _ in 0..LOOK_BACK_PAGES_MAX {
            let page = self.look_up(method, &params, cursor.as_deref()).await?;
            if let Some(ts) = marked_message(&page, &key) {
                return Ok(Evidence::Found(json!(ts)));
            }
            sight.add(&page);
            cursor = text(&page, "/response_metadata/next_cursor")
                .filter(|cursor| !cursor.is_empty())
                .map(str::to_owned);
            if cursor.is_none() {
                return Ok(sight.absence());
            }
        }
        let most = LOOK_BACK_PAGES_MAX * THREAD_PAGE_MESSAGES;
        let reason = format!("the channel has more than {most} messages since then");
        Ok(Evidence::Unclear(reason))
    }

    fn written_place(&self, action: &Action) -> Option<String> {
        match action {
            Action::Send {
                channel, thread, ..
            }
            | Action::SendFile {
                channel, thread, ..
            } => Some(place_of(channel, thread.as_deref())),
            Action::Edit { .. }
            | Action::Delete { .. }
            | Action::React { .. }
            | Action::Read { .. }
            | Action::ReadPage { .. }
            | Action::Download { .. } => None,
        }
    }

    fn secret(&self) -> &str {
        &self.token
    }

    async fn check(&self) -> Result<Option<String>, CallError> {
        let me = self.ask("auth.test", &json!({}), true).await?;
        let named = |pointer| text(&me, pointer).unwrap_or("an app");
        Ok(Some(format!("{} of {}", named("/user"), named("/team"))))
    }
}

/// A channel, or a thread in it.
fn place_of(channel: &str, thread: Option<&str>) -> String {
    format!("{channel}:{}", thread.unwrap_or_default())
}

impl ChatService for Api {
    const FACTS: &'static [&'static str] = &["channel", "threadTs"];

    fn home(&self, facts: &JsonObject) -> Option<String> {
        let fact = |name: &str| facts.get(name).and_then(Value::as_str);
        Some(place_of(fact("channel")?, fact("threadTs")))
    }

    fn reply_args(text: &str, _facts: &JsonObject) -> Value {
        json!({ "text": text })
    }

    /// The answer to a slash command begins no thread, but people may reply in one.
    async fn posted(&self, facts: &JsonObject, result: &Value) {
        let channel = facts.get("channel").and_then(Value::as_str);
        let place = channel.filter(|_| !facts.contains_key("threadTs"));
        if let (Some(channel), Some(ts)) = (place, result.as_str()) {
            self.threads.record_answer(channel, ts).await;
        }
    }
}

impl Api {
    /// Creates a client for the API at `endpoint`. If `channels` is given, only these channels can
    /// be written to.
    pub(super) fn new(
        client: reqwest::Client,
        endpoint: &str,
        token: String,
        channels: Option<Vec<String>>,
        threads: Arc<Threads>,
    ) -> Self {
        Self {
            client,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token,
            channels,
            threads,
        }
    }

    /// Validates the URL of a file: the token is sent only to Slack and to the API's own origin.
    fn file_url(&self, written: &str) -> Result<Url, CallError> {
        let refused = |why: &str| {
            let message = format!("the file is not fetched: {why}");
            CallError::new(CallErrorCode::Refused, message)
                .suggest("use the `url_private` of a Slack file")
        };
        let url = Url::parse(written).map_err(|_error| refused("its address is invalid"))?;
        let is_of_api = Url::parse(&self.endpoint).is_ok_and(|api| api.origin() == url.origin());
        let host = url.host_str().unwrap_or_default();
        let is_of_slack = url.scheme() == "https"
            && url.port().is_none()
            && (host == "slack.com" || host.ends_with(".slack.com"));
        if is_of_api || is_of_slack {
            return Ok(url);
        }
        Err(refused("its address does not belong to Slack"))
    }

    /// Calls a method of the Web API.
    pub(super) async fn ask(
        &self,
        method: &str,
        params: &Value,
        is_repeatable: bool,
    ) -> Result<Value, CallError> {
        let failed = FailureContext {
            service: "Slack",
            is_repeatable,
        };
        let request = self
            .client
            .post(format!("{}/{method}", self.endpoint))
            .bearer_auth(&self.token)
            .header("content-type", "application/json; charset=utf-8")
            .body(params.to_string());
        understood(&failed.answer_to(request).await?, failed)
    }

    /// Uploads a file and shows it in a channel. It becomes visible with the last request.
    async fn send_file(
        &self,
        file: &OutgoingFile<'_>,
        (channel, thread): (&str, Option<&str>),
        comment: &str,
    ) -> Result<Value, CallError> {
        let unreadable = |error: base64::DecodeError| {
            CallError::new(CallErrorCode::Invalid, format!("the file: {error}"))
        };
        let content = STANDARD.decode(file.base64).map_err(unreadable)?;
        let params = json!({"filename": file.name, "length": content.len()});
        let granted = self
            .look_up("files.getUploadURLExternal", &params, None)
            .await?;
        let missing = || {
            CallError::new(
                CallErrorCode::Internal,
                "Slack gave no address for the file",
            )
        };
        let url = text(&granted, "/upload_url").ok_or_else(missing)?;
        let id = text(&granted, "/file_id").ok_or_else(missing)?;
        let failed = FailureContext {
            service: "Slack",
            is_repeatable: true,
        };
        let upload = self.client.post(self.file_url(url)?).body(content);
        let answered = failed.answer_to(upload).await?;
        if answered.status != 200 {
            let said = "the file was not taken";
            return Err(failed.by_status(answered.status, said, answered.retry_after_ms()));
        }
        let mut params = json!({"files": [{"id": id, "title": file.name}], "channel_id": channel});
        if let Some(fields) = params.as_object_mut() {
            if !comment.is_empty() {
                fields.insert("initial_comment".to_owned(), json!(comment));
            }
            if let Some(thread) = thread {
                fields.insert("thread_ts".to_owned(), json!(thread));
            }
        }
        self.ask("files.completeUploadExternal", &params, false)
            .await?;
        Ok(json!({"channel": channel, "thread": thread, "file": id}))
    }

    /// Reads the last messages of a thread, page by page, or of a channel.
    async fn read(
        &self,
        method: &str,
        params: &Value,
        is_thread: bool,
        limit: usize,
    ) -> Result<Value, CallError> {
        let mut last = LastMessages::new(limit.min(SLACK_MESSAGES_MAX));
        let mut cursor = None;
        for _ in 0..THREAD_PAGES_MAX {
            let page = self.look_up(method, params, cursor.as_deref()).await?;
            if !is_thread {
                last.take_channel(&page, &self.token);
                return Ok(last.into_answer());
            }
            cursor = last.take_thread(&page, &self.token).map(str::to_owned);
            if cursor.is_none() {
                return Ok(last.into_answer());
            }
        }
        let most = THREAD_PAGES_MAX * THREAD_PAGE_MESSAGES;
        let message = format!("the thread has more than {most} messages; its end was not read");
        Err(CallError::new(CallErrorCode::TooLarge, message))
    }

    /// Calls a read-only method; Slack accepts no JSON for these.
    async fn look_up(
        &self,
        method: &str,
        params: &Value,
        cursor: Option<&str>,
    ) -> Result<Value, CallError> {
        let failed = FailureContext {
            service: "Slack",
            is_repeatable: true,
        };
        let params = params.as_object().into_iter().flatten();
        let params = params.map(|(name, value)| match value {
            Value::String(text) => (name.as_str(), text.clone()),
            other => (name.as_str(), other.to_string()),
        });
        let params = params.chain(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        let url = format!("{}/{method}", self.endpoint);
        let url = Url::parse_with_params(&url, params)
            .map_err(|error| CallError::new(CallErrorCode::Invalid, format!("{url}: {error}")))?;
        let request = self.client.get(url).bearer_auth(&self.token);
        understood(&failed.answer_to(request).await?, failed)
    }
}

/// The request that lists a channel's or a thread's messages with their metadata.
fn to_history(channel: &str, thread: Option<&str>, since: Timestamp) -> (&'static str, Value) {
    let oldest_s = earliest_ms(since) / 1_000;
    let mut params = Map::from_iter([
        ("channel".to_owned(), json!(channel)),
        ("oldest".to_owned(), json!(format!("{oldest_s}.000000"))),
        ("limit".to_owned(), json!(THREAD_PAGE_MESSAGES)),
        ("include_all_metadata".to_owned(), json!(true)),
    ]);
    let method = match thread {
        Some(thread) => {
            params.insert("ts".to_owned(), json!(thread));
            "conversations.replies"
        }
        None => "conversations.history",
    };
    (method, Value::Object(params))
}

/// The `ts` of the message with this key.
fn marked_message<'p>(page: &'p Value, key: &str) -> Option<&'p str> {
    let messages = page.get("messages").and_then(Value::as_array)?;
    let is_marked = |message: &&Value| {
        text(message, "/metadata/event_type") == Some(METADATA_TYPE)
            && text(message, "/metadata/event_payload/key") == Some(key)
    };
    text(messages.iter().find(is_marked)?, "/ts")
}

/// Visibility of metadata to this app. A message that is listed without metadata must not count as
/// absent.
#[derive(Debug, Default)]
struct MetadataSight {
    /// True if a message came with metadata.
    is_shown: bool,
    /// True if a message of an app came without.
    may_be_hidden: bool,
}

impl MetadataSight {
    fn add(&mut self, page: &Value) {
        let messages = page.get("messages").and_then(Value::as_array);
        for message in messages.into_iter().flatten() {
            let has_metadata = message.get("metadata").is_some_and(Value::is_object);
            self.is_shown |= has_metadata;
            self.may_be_hidden |= !has_metadata && message.get("bot_id").is_some();
        }
    }

    /// Evidence if no message has the key.
    fn absence(&self) -> Evidence {
        if self.may_be_hidden && !self.is_shown {
            let reason = "messages of apps were listed without their metadata";
            return Evidence::Unclear(reason.to_owned());
        }
        Evidence::Absent
    }
}

fn channel_of(action: &Action) -> &str {
    match action {
        Action::Send { channel, .. }
        | Action::Edit { channel, .. }
        | Action::Delete { channel, .. }
        | Action::React { channel, .. }
        | Action::SendFile { channel, .. }
        | Action::Read { channel, .. }
        | Action::ReadPage { channel, .. } => channel,
        Action::Download { .. } => "",
    }
}

/// The method of the Web API, and its parameters.
fn to_method(action: &Action) -> (&'static str, Value) {
    let channel = channel_of(action);
    match action {
        Action::Send {
            text,
            format,
            ranges,
            thread,
            older,
            mark,
            ..
        } => {
            let mut params = match older {
                Some(older) => older_params(text, older),
                None => written(text, *format, ranges),
            };
            if !mark.is_empty() {
                let metadata =
                    json!({"event_type": METADATA_TYPE, "event_payload": {"key": key_of(mark)}});
                params.insert("metadata".to_owned(), metadata);
            }
            params.insert("channel".to_owned(), json!(channel));
            if let Some(thread) = thread {
                params.insert("thread_ts".to_owned(), json!(thread));
            }
            ("chat.postMessage", Value::Object(params))
        }
        Action::Edit {
            message,
            text,
            format,
            ranges,
            older,
            ..
        } => {
            let mut params = match older {
                Some(older) => older_params(text, older),
                None => written(text, *format, ranges),
            };
            params.insert("channel".to_owned(), json!(channel));
            params.insert("ts".to_owned(), json!(message));
            ("chat.update", Value::Object(params))
        }
        Action::Delete { message, .. } => {
            ("chat.delete", json!({"channel": channel, "ts": message}))
        }
        Action::React {
            message,
            emoji,
            remove,
            ..
        } => {
            let method = if *remove {
                "reactions.remove"
            } else {
                "reactions.add"
            };
            let params = json!({"channel": channel, "timestamp": message, "name": emoji});
            (method, params)
        }
        Action::Read {
            thread: Some(thread),
            ..
        } => {
            let params = json!({"channel": channel, "ts": thread, "limit": THREAD_PAGE_MESSAGES});
            ("conversations.replies", params)
        }
        Action::Read {
            thread: None,
            limit,
            ..
        } => {
            let params = json!({"channel": channel, "limit": limit});
            ("conversations.history", params)
        }
        Action::ReadPage {
            thread,
            latest,
            oldest,
            inclusive,
            limit,
            cursor,
            ..
        } => {
            let method = match thread {
                Some(_) => "conversations.replies",
                None => "conversations.history",
            };
            let mut params = Map::from_iter([
                ("channel".to_owned(), json!(channel)),
                ("limit".to_owned(), json!((*limit).min(SLACK_PAGE_MAX))),
            ]);
            for (name, value) in [
                ("ts", thread.as_ref().map(|it| json!(it))),
                ("latest", latest.as_ref().map(|it| json!(it))),
                ("oldest", oldest.as_ref().map(|it| json!(it))),
                ("inclusive", inclusive.map(Value::from)),
                ("cursor", cursor.as_ref().map(|it| json!(it))),
            ] {
                params.extend(value.map(|value| (name.to_owned(), value)));
            }
            (method, Value::Object(params))
        }
        // Each is more than one request.
        Action::SendFile { .. } | Action::Download { .. } => ("", json!({})),
    }
}

/// Parameters of a message in the older contract: the text unchanged, as its tools sent it, except
/// that it notifies no whole channel.
fn older_params(text: &str, older: &OlderSlackParameters) -> Map<String, Value> {
    let text = text.replace("<!", "&lt;!");
    let mut params = Map::from_iter([("text".to_owned(), json!(text))]);
    for (name, value) in [
        ("mrkdwn", older.mrkdwn),
        ("unfurl_links", older.unfurl_links),
        ("unfurl_media", older.unfurl_media),
        ("reply_broadcast", older.reply_broadcast),
    ] {
        params.extend(value.map(|value| (name.to_owned(), json!(value))));
    }
    params
}

fn written(text: &str, format: SlackFormat, ranges: &[FormattedRange]) -> Map<String, Value> {
    let fields = match format {
        SlackFormat::Markdown => vec![("text", json!(rendered(text, ranges)))],
        SlackFormat::Mrkdwn => vec![("text", json!(escaped(text)))],
        SlackFormat::Plain => vec![("text", json!(escaped(text))), ("mrkdwn", json!(false))],
    };
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Fix for a token that Slack rejects.
const MEND: &str = "fix the app's scopes or the secret `botToken` of the Connection";

/// Interprets Slack's answer: success is a 200 with `ok`.
fn understood(answered: &HttpAnswer, failed: FailureContext<'_>) -> Result<Value, CallError> {
    let body = answered.json();
    let retry_after_ms = answered.retry_after_ms();
    let said = text(&body, "/error").unwrap_or_default();
    if answered.status != 200 {
        return Err(failed.by_status(answered.status, said, retry_after_ms));
    }
    if body.get("ok") == Some(&Value::Bool(true)) {
        return Ok(body);
    }
    let message = match text(&body, "/needed") {
        Some(scope) => format!("Slack says: {said} (it needs the scope `{scope}`)"),
        None => format!("Slack says: {said}"),
    };
    let error = |code| CallError::new(code, message.clone());
    Err(match said {
        // The requested state already exists.
        "already_reacted" | "no_reaction" => return Ok(json!({})),
        "invalid_auth" | "token_expired" | "token_revoked" => error(CallErrorCode::Unauthorized)
            .suggest(MEND)
            .of_token(Some(TokenVerdict::Declined)),
        "not_authed"
        | "account_inactive"
        | "no_permission"
        | "missing_scope"
        | "not_allowed_token_type" => error(CallErrorCode::Unauthorized).suggest(MEND),
        "channel_not_found" | "message_not_found" | "thread_not_found" | "user_not_found"
        | "no_item_specified" => error(CallErrorCode::NotFound),
        "not_in_channel" => {
            error(CallErrorCode::Refused).suggest("invite the app into the channel")
        }
        "is_archived"
        | "cant_update_message"
        | "cant_delete_message"
        | "edit_window_closed"
        | "restricted_action"
        | "message_limit_exceeded" => error(CallErrorCode::Refused),
        "msg_too_long" | "markdown_text_conflict" => error(CallErrorCode::TooLarge),
        "ratelimited" | "rate_limited" => error(CallErrorCode::RateLimited).later(retry_after_ms),
        "service_unavailable" | "team_added_to_org" => {
            error(CallErrorCode::Unavailable).later(None)
        }
        "fatal_error" | "internal_error" | "request_timeout" => failed.unknown(message),
        "" => CallError::new(
            CallErrorCode::Internal,
            "unexpected answer from Slack: not a success",
        ),
        _ => error(CallErrorCode::Invalid),
    })
}

#[cfg(test)]
mod tests {
    use goondan_protocol::service::TextFormat;
    use reqwest::header::{HeaderMap, RETRY_AFTER};

    use super::*;

    #[test]
    fn the_token_goes_to_slack_alone_for_a_file() {
        let api = Api::new(
            reqwest::Client::builder().build().unwrap(),
            "http://127.0.0.1:9/api",
            "t".to_owned(),
            None,
            Arc::default(),
        );
        for good in [
            "https://files.slack.com/files-pri/T1-F1/a.png",
            "https://slack.com/x",
            "http://127.0.0.1:9/files/a",
        ] {
            assert!(api.file_url(good).is_ok(), "{good}");
        }
        for bad in [
            "https://evil.example/files.slack.com/a",
            "https://files.slack.com.evil.example/a",
            "https://evilslack.com/a",
            "http://files.slack.com/a",
            "https://files.slack.com:8443/a",
            "http://127.0.0.1:10/a",
            "file:///etc/passwd",
            "a",
        ] {
            assert_eq!(
                api.file_url(bad).unwrap_err().code,
                CallErrorCode::Refused,
                "{bad}"
            );
        }
    }

    #[test]
    fn an_action_is_a_method_of_the_web_api() {
        let send = |format| Action::Send {
            channel: "C1".into(),
            text: "a & <!here>".into(),
            format,
            ranges: vec![FormattedRange {
                format: TextFormat::Bold,
                offset: 0,
                length: 1,
                url: None,
                language: None,
            }],
            thread: Some("1.5".into()),
            older: None,
            mark: String::new(),
        };
        let (method, params) = to_method(&send(SlackFormat::Plain));
        assert_eq!(method, "chat.postMessage");
        let expected = json!({"text": "a &amp; &lt;!here&gt;", "mrkdwn": false, "channel": "C1", "thread_ts": "1.5"});
        assert_eq!(params, expected);
        let (_, params) = to_method(&send(SlackFormat::Markdown));
        assert_eq!(params["text"], "*a* &amp; &lt;!here&gt;");
        let (_, params) = to_method(&send(SlackFormat::Mrkdwn));
        assert_eq!(
            (&params["text"], params.get("mrkdwn")),
            (&json!("a &amp; &lt;!here&gt;"), None)
        );
        let react = |remove| Action::React {
            channel: "C1".into(),
            message: "1.5".into(),
            emoji: "eyes".into(),
            remove,
        };
        let params = json!({"channel": "C1", "timestamp": "1.5", "name": "eyes"});
        assert_eq!(to_method(&react(false)), ("reactions.add", params.clone()));
        assert_eq!(to_method(&react(true)), ("reactions.remove", params));
        let read = |thread: Option<&str>| Action::Read {
            channel: "C1".into(),
            thread: thread.map(str::to_owned),
            limit: 7,
        };
        let params = json!({"channel": "C1", "limit": 7});
        assert_eq!(to_method(&read(None)), ("conversations.history", params));
        let params = json!({"channel": "C1", "ts": "1.5", "limit": 200});
        let thread = to_method(&read(Some("1.5")));
        assert_eq!(thread, ("conversations.replies", params));
    }

    #[test]
    fn msg_13_a_message_is_found_again_by_its_metadata() {
        let sent = Action::Send {
            channel: "C1".into(),
            text: "hi".into(),
            format: SlackFormat::Plain,
            ranges: Vec::new(),
            thread: None,
            older: None,
            mark: "t.1:c0/0".into(),
        };
        let (_, params) = to_method(&sent);
        let key = key_of("t.1:c0/0");
        assert_eq!(params["metadata"]["event_payload"]["key"], json!(key));
        let page = json!({"messages": [
            {"ts": "1.1", "text": key},
            {"ts": "1.2", "metadata": {"event_type": "other", "event_payload": {"key": key}}},
            {"ts": "1.3", "metadata": params["metadata"]},
        ]});
        assert_eq!(marked_message(&page, &key), Some("1.3"));
        assert_eq!(marked_message(&page, &key_of("t.1:c0/1")), None);
        assert_eq!(marked_message(&json!({}), &key), None);
        let absence = |messages: Value| {
            let mut sight = MetadataSight::default();
            sight.add(&json!({ "messages": messages }));
            sight.absence()
        };
        let hidden = json!({"ts": "1.1", "bot_id": "B1"});
        let shown = json!({"ts": "1.2", "bot_id": "B1", "metadata": {"event_type": "other"}});
        assert_eq!(absence(json!([])), Evidence::Absent);
        assert_eq!(
            absence(json!([{"ts": "1.0", "user": "U1"}])),
            Evidence::Absent
        );
        assert_eq!(absence(json!([hidden, shown])), Evidence::Absent);
        assert!(matches!(absence(json!([hidden])), Evidence::Unclear(_)));
        let since = Timestamp::from_unix_millis(1_000_000);
        let (method, params) = to_history("C1", Some("1.0"), since);
        assert_eq!(
            (method, &params["ts"]),
            ("conversations.replies", &json!("1.0"))
        );
        // The service's clock may be two minutes behind.
        assert_eq!(params["oldest"], "880.000000");
        let (method, params) = to_history("C1", None, since);
        assert_eq!((method, params.get("ts")), ("conversations.history", None));
    }

    #[test]
    fn compat_2_older_parameters_have_their_names() {
        let send = Action::Send {
            channel: "C1".into(),
            text: "a & <!here>".into(),
            format: SlackFormat::Mrkdwn,
            ranges: Vec::new(),
            thread: None,
            older: Some(OlderSlackParameters {
                mrkdwn: Some(true),
                unfurl_links: Some(false),
                unfurl_media: None,
                reply_broadcast: Some(true),
            }),
            mark: String::new(),
        };
        let params = json!({"text": "a & &lt;!here>", "mrkdwn": true, "unfurl_links": false,
            "reply_broadcast": true, "channel": "C1"});
        assert_eq!(to_method(&send), ("chat.postMessage", params));
        let page = |thread: Option<&str>| Action::ReadPage {
            channel: "C1".into(),
            thread: thread.map(str::to_owned),
            latest: Some("9.5".into()),
            oldest: None,
            inclusive: Some(true),
            limit: 5_000,
            cursor: Some("next".into()),
        };
        let params = json!({"channel": "C1", "limit": 1_000, "latest": "9.5", "inclusive": true,
            "cursor": "next"});
        assert_eq!(to_method(&page(None)), ("conversations.history", params));
        let (method, params) = to_method(&page(Some("1.5")));
        assert_eq!(
            (method, &params["ts"]),
            ("conversations.replies", &json!("1.5"))
        );
    }

    #[test]
    fn each_answer_is_understood() {
        let answered = |status: u16, body: Value| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, "3".parse().unwrap());
            let answered = HttpAnswer {
                status,
                headers,
                body: body.to_string().into_bytes(),
            };
            let failed = FailureContext {
                service: "Slack",
                is_repeatable: false,
            };
            understood(&answered, failed)
        };
        let error = |said: &str| answered(200, json!({"ok": false, "error": said})).unwrap_err();
        assert!(answered(200, json!({"ok": true, "ts": "1"})).is_ok());
        assert!(answered(200, json!({"ok": false, "error": "already_reacted"})).is_ok());
        for (said, code) in [
            ("invalid_auth", CallErrorCode::Unauthorized),
            ("channel_not_found", CallErrorCode::NotFound),
            ("not_in_channel", CallErrorCode::Refused),
            ("fatal_error", CallErrorCode::Interrupted),
            ("invalid_blocks", CallErrorCode::Invalid),
            ("", CallErrorCode::Internal),
        ] {
            assert_eq!(error(said).code, code, "{said}");
        }
        let late = answered(429, json!({})).unwrap_err();
        assert_eq!((late.retryable, late.retry_after_ms), (true, Some(3_000)));
        let scope = json!({"ok": false, "error": "missing_scope", "needed": "chat:write"});
        let scope = answered(200, scope).unwrap_err();
        assert!(scope.message.contains("`chat:write`"), "{scope}");
    }
}
