//! Actions of agents through a Discord application, using Discord's HTTP API.
//!
//! The first answer to a command replaces "thinks …"; further answers follow it. Neither needs a
//! bot. Without a command to answer, or after the right to answer has expired, the bot writes a
//! message.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::JsonObject;
use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::service::{DISCORD, Discord as Action, ServiceSpec};
use reqwest::{Method, Url};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::interactions::{InteractionToken, Interactions};
use super::threads::Threads;
use crate::chat_replies::ChatService;
use crate::download;
use crate::multipart::{Multipart, UploadedFile};
use crate::payload::text;
use crate::service::{FailureContext, HttpAnswer, check_place};
use crate::service_api::ServiceApi;

/// Hosts of attachments.
const FILE_HOSTS: [&str; 2] = ["cdn.discordapp.com", "media.discordapp.net"];

/// Longest nonce that Discord accepts, in bytes.
const NONCE_BYTES_MAX: usize = 24;

/// Discord's HTTP API for one application.
pub(super) struct Api {
    client: reqwest::Client,
    endpoint: String,
    token: Option<String>,
    /// The only channels that can be written to; `None` for all.
    channels: Option<Vec<String>>,
    interactions: Arc<Interactions>,
    threads: Arc<Threads>,
}

#[derive(Debug, PartialEq)]
pub(super) struct DiscordRequest {
    method: Method,
    path: Vec<String>,
    body: Option<Value>,
    /// A file that is sent with the body: its name and content.
    file: Option<(String, Vec<u8>)>,
    /// True if the bot makes the request, with its token.
    is_bots: bool,
}

impl DiscordRequest {
    pub(super) fn new(method: Method, path: &[&str]) -> Self {
        Self {
            method,
            path: path.iter().map(|&part| part.to_owned()).collect(),
            body: None,
            file: None,
            is_bots: true,
        }
    }

    fn with(self, body: JsonObject) -> Self {
        self.with_value(Value::Object(body))
    }

    pub(super) fn with_value(self, body: Value) -> Self {
        Self {
            body: Some(body),
            ..self
        }
    }

    /// The request uses the token of an interaction instead of the token of the bot.
    pub(super) fn of_interaction(self) -> Self {
        Self {
            is_bots: false,
            ..self
        }
    }
}

impl ServiceApi for Api {
    type Action = Action;
    const SERVICE: &'static ServiceSpec = &DISCORD;

    async fn run(&self, action: Action, is_idempotent: bool) -> Result<Value, CallError> {
        if let Action::Download { url, max_bytes } = &action {
            return self.download(url, *max_bytes).await;
        }
        let channel = channel_of(&action);
        let open = interaction_of(&action);
        let open = open.and_then(|id| Some((id.to_owned(), self.interactions.right(id)?)));
        if let Some((id, right)) = open.filter(|(_, right)| right.channel == channel) {
            match self.answer(&id, &right, &action).await {
                // The fifteen minutes ended earlier than computed.
                Err(error) if error.code == CallErrorCode::NotFound => {
                    self.interactions.forget(&id);
                }
                Ok(message) => {
                    self.record(channel, &message).await;
                    return Ok(message);
                }
                Err(error) => return Err(error),
            }
        }
        // A thread below a message of the application is part of that channel.
        let listed = self.threads.home_of(channel);
        check_place("channel", &listed, self.channels.as_deref(), "channels")?;
        let is_repeatable = is_idempotent || action.is_marked();
        let result = self.ask(to_request(&action)?, is_repeatable).await?;
        Ok(match action {
            Action::Send { .. } | Action::SendFile { .. } => {
                let message = result.get("id").cloned().unwrap_or(Value::Null);
                self.record(channel_of(&action), &message).await;
                message
            }
            Action::Edit { .. }
            | Action::Delete { .. }
            | Action::React { .. }
            | Action::Download { .. } => json!({}),
        })
    }

    fn written_place(&self, action: &Action) -> Option<String> {
        match action {
            Action::Send { channel, .. } => Some(channel.clone()),
            Action::SendFile { .. }
            | Action::Edit { .. }
            | Action::Delete { .. }
            | Action::React { .. }
            | Action::Download { .. } => None,
        }
    }

    fn secret(&self) -> &str {
        self.token.as_deref().unwrap_or_default()
    }

    async fn check(&self) -> Result<Option<String>, CallError> {
        if self.token.is_none() {
            return Ok(None);
        }
        let request = DiscordRequest::new(Method::GET, &["users", "@me"]);
        let me = self.ask(request, true).await?;
        Ok(Some(text(&me, "/username").unwrap_or("a bot").to_owned()))
    }
}

impl ChatService for Api {
    const FACTS: &'static [&'static str] = &["channel", "interactionId"];

    // Without a message, Discord shows that the application is thinking.
    const EMPTY: Option<&'static str> = Some("The agent finished without a reply.");

    fn home(&self, facts: &JsonObject) -> Option<String> {
        let channel = facts.get("channel").and_then(Value::as_str)?;
        Some(channel.to_owned())
    }

    fn reply_args(text: &str, _facts: &JsonObject) -> Value {
        json!({"text": text})
    }
}

impl Api {
    /// Creates a client for the API at `endpoint`, with the bot's token if one exists. If
    /// `channels` is given, only these channels can be written to.
    pub(super) fn new(
        client: reqwest::Client,
        endpoint: &str,
        token: Option<String>,
        channels: Option<Vec<String>>,
        (interactions, threads): (Arc<Interactions>, Arc<Threads>),
    ) -> Self {
        Self {
            client,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token,
            channels,
            interactions,
            threads,
        }
    }

    /// Records a posted message, because a thread that is opened on it has its ID.
    async fn record(&self, channel: &str, message: &Value) {
        if let Some(message) = message.as_str() {
            self.threads.record(channel, message).await;
        }
    }

    /// Answers a command.
    async fn answer(
        &self,
        id: &str,
        right: &InteractionToken,
        action: &Action,
    ) -> Result<Value, CallError> {
        let (text, file) = match action {
            Action::Send { text, .. } => (text, None),
            Action::SendFile {
                text, name, base64, ..
            } => (text, Some((name.clone(), content(base64)?))),
            Action::Edit { .. }
            | Action::Delete { .. }
            | Action::React { .. }
            | Action::Download { .. } => {
                let message = "only a message can answer a command";
                return Err(CallError::new(CallErrorCode::Internal, message));
            }
        };
        let InteractionToken {
            application, token, ..
        } = right;
        let (request, is_repeatable) = if right.is_answered {
            let path = ["webhooks", application, token];
            (DiscordRequest::new(Method::POST, &path), false)
        } else {
            let path = ["webhooks", application, token, "messages", "@original"];
            (DiscordRequest::new(Method::PATCH, &path), true)
        };
        let request = DiscordRequest {
            is_bots: false,
            file,
            ..request.with(message(text))
        };
        let answered = self.ask(request, is_repeatable).await;
        // An error of the service may quote the path.
        let answered = answered.map_err(|error| CallError {
            message: error.message.replace(token.as_str(), "…"),
            ..error
        })?;
        self.interactions.answered(id);
        Ok(answered.get("id").cloned().unwrap_or(Value::Null))
    }

    /// Downloads an attachment. Its URL needs no token.
    async fn download(&self, url: &str, bytes_max: u64) -> Result<Value, CallError> {
        let parsed = Url::parse(url).ok();
        let endpoint = Url::parse(&self.endpoint).ok();
        let own = endpoint.as_ref().map(Url::origin);
        let parsed = parsed.filter(|url| {
            let is_file_host = url
                .host_str()
                .is_some_and(|host| FILE_HOSTS.contains(&host));
            (is_file_host && url.scheme() == "https") || Some(url.origin()) == own
        });
        let Some(url) = parsed else {
            let message = format!("`{url}` is not the URL of an attachment at Discord");
            return Err(CallError::new(CallErrorCode::Invalid, message)
                .suggest("use the URL as the message names it"));
        };
        download::fetch(self.client.get(url), "Discord", bytes_max).await
    }

    pub(super) async fn ask(
        &self,
        request: DiscordRequest,
        is_repeatable: bool,
    ) -> Result<Value, CallError> {
        let failed = FailureContext {
            service: "Discord",
            is_repeatable,
        };
        let no_url = || CallError::new(CallErrorCode::Internal, "`endpoint` is not a usable URL");
        let mut url = Url::parse(&self.endpoint).map_err(|_no_url| no_url())?;
        url.path_segments_mut()
            .map_err(|()| no_url())?
            .pop_if_empty()
            .extend(&request.path);
        let mut builder = self.client.request(request.method, url);
        if request.is_bots {
            let Some(token) = &self.token else {
                let message = "the command can no longer be answered, and without the secret \
                               `botToken` of the Connection no bot can write";
                return Err(CallError::new(CallErrorCode::Refused, message));
            };
            builder = builder.header("authorization", format!("Bot {token}"));
        }
        builder = match (request.body, &request.file) {
            (Some(body), Some((name, content))) => {
                let mut form = Multipart::new();
                form.text("payload_json", &body.to_string());
                form.file("files[0]", &UploadedFile { name, content });
                form.into_request(builder)
            }
            (Some(body), None) => builder
                .header("content-type", "application/json")
                .body(body.to_string()),
            (None, _) => builder.header("content-length", "0"),
        };
        read(&failed.answer_to(builder).await?, failed)
    }
}

/// The command or button that an action answers, if any.
fn interaction_of(action: &Action) -> Option<&str> {
    match action {
        Action::Send { interaction, .. } | Action::SendFile { interaction, .. } => {
            interaction.as_deref()
        }
        Action::Edit { .. }
        | Action::Delete { .. }
        | Action::React { .. }
        | Action::Download { .. } => None,
    }
}

/// Decodes a file to send.
fn content(base64: &str) -> Result<Vec<u8>, CallError> {
    STANDARD.decode(base64).map_err(|error| {
        CallError::new(
            CallErrorCode::Invalid,
            format!("the file is not Base64: {error}"),
        )
    })
}

fn channel_of(action: &Action) -> &str {
    match action {
        // It needs no channel.
        Action::Download { .. } => "",
        Action::Send { channel, .. }
        | Action::SendFile { channel, .. }
        | Action::Edit { channel, .. }
        | Action::Delete { channel, .. }
        | Action::React { channel, .. } => channel,
    }
}

/// A text that mentions the users it names, but never everyone.
fn message(text: &str) -> JsonObject {
    JsonObject::from_iter([
        ("content".to_owned(), json!(text)),
        ("allowed_mentions".to_owned(), json!({"parse": ["users"]})),
    ])
}

fn to_request(action: &Action) -> Result<DiscordRequest, CallError> {
    let channel = id(channel_of(action))?;
    let messages = ["channels", channel, "messages"];
    Ok(match action {
        Action::Send {
            text,
            reply_to,
            mark,
            ..
        } => {
            let mut body = message(text);
            body.insert("nonce".to_owned(), json!(nonce_of(mark)));
            body.insert("enforce_nonce".to_owned(), json!(true));
            if let Some(reply_to) = reply_to {
                let answered = json!({"message_id": id(reply_to)?, "fail_if_not_exists": false});
                body.insert("message_reference".to_owned(), answered);
            }
            DiscordRequest::new(Method::POST, &messages).with(body)
        }
        Action::SendFile {
            text,
            name,
            base64,
            mark,
            ..
        } => {
            let mut body = message(text);
            body.insert("nonce".to_owned(), json!(nonce_of(mark)));
            body.insert("enforce_nonce".to_owned(), json!(true));
            DiscordRequest {
                file: Some((name.clone(), content(base64)?)),
                ..DiscordRequest::new(Method::POST, &messages).with(body)
            }
        }
        Action::Download { .. } => {
            let message = "a download is not a request to the API";
            return Err(CallError::new(CallErrorCode::Internal, message));
        }
        Action::Edit {
            message: edited,
            text,
            ..
        } => {
            let path = [&messages[..], &[id(edited)?]].concat();
            DiscordRequest::new(Method::PATCH, &path).with(message(text))
        }
        Action::Delete { message, .. } => {
            let path = [&messages[..], &[id(message)?]].concat();
            DiscordRequest::new(Method::DELETE, &path)
        }
        Action::React { message, emoji, .. } => {
            let path = [&messages[..], &[id(message)?, "reactions", emoji, "@me"]].concat();
            DiscordRequest::new(Method::PUT, &path)
        }
    })
}

/// Validates an id. It consists of digits, so it cannot change the path of a URL.
fn id(text: &str) -> Result<&str, CallError> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text);
    }
    let message = format!("`{text}` is not a Discord id; ids are digits");
    Err(CallError::new(CallErrorCode::Invalid, message))
}

/// Derives the nonce by which Discord recognizes a repeated message.
fn nonce_of(mark: &str) -> String {
    let mut digits = hex::encode(Sha256::digest(mark));
    digits.truncate(NONCE_BYTES_MAX);
    digits
}

fn read(answered: &HttpAnswer, failed: FailureContext<'_>) -> Result<Value, CallError> {
    let body = answered.json();
    if (200..300).contains(&answered.status) {
        return Ok(body);
    }
    let said = text(&body, "/message").unwrap_or("nothing further");
    let said = match body.get("code").and_then(Value::as_u64) {
        Some(code) if code > 0 => format!("{said} ({code})"),
        _ => said.to_owned(),
    };
    let error = failed.by_status(answered.status, &said, answered.retry_after_ms());
    Err(match error.code {
        CallErrorCode::Unauthorized => {
            error.suggest("put the bot's token into the secret `botToken` of the Connection")
        }
        CallErrorCode::Refused => {
            error.suggest("the bot must be in the server and may write in this channel")
        }
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(reply_to: Option<&str>) -> Action {
        Action::Send {
            channel: "12".to_owned(),
            text: "Hi @everyone.".to_owned(),
            reply_to: reply_to.map(str::to_owned),
            interaction: None,
            mark: "t.1:c0/0".to_owned(),
        }
    }

    #[test]
    fn discord_message_pings_only_named_users_and_has_a_nonce() {
        let request = to_request(&send(Some("9"))).unwrap();
        assert_eq!(request.path, ["channels", "12", "messages"]);
        let body = request.body.unwrap();
        assert_eq!(body["allowed_mentions"], json!({"parse": ["users"]}));
        assert_eq!(body["message_reference"]["message_id"], "9");
        assert_eq!(body["nonce"].as_str().unwrap().len(), NONCE_BYTES_MAX);
        assert_ne!(nonce_of("a"), nonce_of("b"));
        assert!(to_request(&send(Some("../9"))).is_err());
    }

    #[test]
    fn an_action_is_a_request() {
        let (channel, message) = ("1".to_owned(), "2".to_owned());
        let emoji = "👍".to_owned();
        let react = Action::React {
            channel,
            message,
            emoji,
        };
        let request = to_request(&react).unwrap();
        assert_eq!(request.method, Method::PUT);
        let path = ["channels", "1", "messages", "2", "reactions", "👍", "@me"];
        assert_eq!(request.path, path);
    }
}
