//! Actions of agents through a Slack app, using Slack's Web API.

use goondan_protocol::call::{CallError, CallErrorCode, TokenVerdict};
use goondan_protocol::service::{
    SLACK, SLACK_MESSAGES_MAX, ServiceSpec, Slack as Action, SlackFormat,
};
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::message_format::LastMessages;
use crate::download;
use crate::payload::text;
use crate::service::{FailureContext, HttpAnswer, check_place};
use crate::service_api::ServiceApi;

/// Messages of a thread per request.
const THREAD_PAGE_MESSAGES: usize = 200;

/// Maximum number of pages read to reach the end of a thread.
const THREAD_PAGES_MAX: usize = 10;

/// Slack's Web API for the app with one token.
pub(super) struct Api {
    client: reqwest::Client,
    endpoint: String,
    token: String,
    /// The only channels that can be written to; `None` for all.
    channels: Option<Vec<String>>,
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
        let (method, params) = to_method(&action);
        if let Action::Read { thread, limit, .. } = action {
            return self.read(method, &params, thread.is_some(), limit).await;
        }
        let result = self.ask(method, &params, is_idempotent).await?;
        Ok(match action {
            Action::Send { .. } => result.get("ts").cloned().unwrap_or(Value::Null),
            Action::Edit { .. }
            | Action::Delete { .. }
            | Action::React { .. }
            | Action::Read { .. }
            | Action::Download { .. } => json!({}),
        })
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

impl Api {
    /// Creates a client for the API at `endpoint`. If `channels` is given, only these channels can
    /// be written to.
    pub(super) fn new(
        client: reqwest::Client,
        endpoint: &str,
        token: String,
        channels: Option<Vec<String>>,
    ) -> Self {
        Self {
            client,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token,
            channels,
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

fn channel_of(action: &Action) -> &str {
    match action {
        Action::Send { channel, .. }
        | Action::Edit { channel, .. }
        | Action::Delete { channel, .. }
        | Action::React { channel, .. }
        | Action::Read { channel, .. } => channel,
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
            thread,
            ..
        } => {
            let mut params = written(text, *format);
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
            ..
        } => {
            let mut params = written(text, *format);
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
        // Fetched from its own URL.
        Action::Download { .. } => ("", json!({})),
    }
}

fn written(text: &str, format: SlackFormat) -> Map<String, Value> {
    let fields = match format {
        SlackFormat::Mrkdwn => vec![("text", json!(escaped(text)))],
        SlackFormat::Plain => vec![("text", json!(escaped(text))), ("mrkdwn", json!(false))],
        SlackFormat::Markdown => vec![("markdown_text", json!(text.replace("<!", "&lt;!")))],
    };
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Escapes Slack's special mentions, so that no user can make an agent notify a whole channel.
/// Mentions of people and channels, and links, stay intact.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if let Some(token) = token_at(from) {
            out.push_str(token);
            rest = from.strip_prefix(token).unwrap_or_default();
            continue;
        }
        let mut chars = from.chars();
        out.push_str(match chars.next() {
            Some('&') => "&amp;",
            Some('<') => "&lt;",
            _ => "&gt;",
        });
        rest = chars.as_str();
    }
    out.push_str(rest);
    out
}

/// The mention or link at the start of a text.
fn token_at(text: &str) -> Option<&str> {
    let end = text.find('>')?;
    let inner = text.get(1..end)?;
    let kinds = ["@U", "@W", "#C", "https://", "http://", "mailto:"];
    let is_token = text.starts_with('<')
        && kinds.iter().any(|kind| inner.starts_with(kind))
        && !inner.contains(['<', '\n']);
    is_token.then(|| text.get(..=end)).flatten()
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
    use reqwest::header::{HeaderMap, RETRY_AFTER};

    use super::*;

    #[test]
    fn the_token_goes_to_slack_alone_for_a_file() {
        let api = Api::new(
            reqwest::Client::builder().build().unwrap(),
            "http://127.0.0.1:9/api",
            "t".to_owned(),
            None,
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
    fn mentions_and_links_stay_and_nothing_else_means_anything() {
        for (said, written) in [
            ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
            ("<!channel> <!here|x>", "&lt;!channel&gt; &lt;!here|x&gt;"),
            ("<@U12> and <#C34>", "<@U12> and <#C34>"),
            (
                "see <https://x.org/?a=1&b|this>",
                "see <https://x.org/?a=1&b|this>",
            ),
            (
                "<https://x <!channel>>",
                "&lt;https://x &lt;!channel&gt;&gt;",
            ),
            ("<", "&lt;"),
        ] {
            assert_eq!(escaped(said), written);
        }
    }

    #[test]
    fn an_action_is_a_method_of_the_web_api() {
        let send = |format| Action::Send {
            channel: "C1".into(),
            text: "a & <!here>".into(),
            format,
            thread: Some("1.5".into()),
        };
        let (method, params) = to_method(&send(SlackFormat::Plain));
        assert_eq!(method, "chat.postMessage");
        let expected = json!({"text": "a &amp; &lt;!here&gt;", "mrkdwn": false, "channel": "C1", "thread_ts": "1.5"});
        assert_eq!(params, expected);
        let (_, params) = to_method(&send(SlackFormat::Markdown));
        assert_eq!(params["markdown_text"], "a & &lt;!here>");
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
