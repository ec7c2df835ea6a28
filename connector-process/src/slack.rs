//! Slack, through the Events API: messages and mentions become events. Slash commands and
//! interactions with buttons and dialogs also do; they arrive as forms ([`forms`]). Tool calls that
//! wait for a person have buttons too ([`buttons`]).
//!
//! Slack signs `v0:<time>:<body>`, expects an answer within three seconds, and repeats unanswered
//! requests. One message can arrive as `message` and as `app_mention`; both use the id of the
//! message, so a conversation receives it only once however often Slack repeats it.

mod actions;
mod buttons;
mod forms;
mod message_format;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderName;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_connectors::{ApprovalChat, Values};
use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ignored::IgnoreReason;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::actions::Api;
use self::buttons::Channel;
use self::message_format::unescaped;
use crate::approvals::{self, PressSubmitter};
use crate::gateway::Gateway;
use crate::http;
use crate::limits::{SLACK_WINDOW_S, SWIFT_REPLY_TIMEOUT_MS};
use crate::listener::{
    self, ButtonPress, DirectResponse, HttpEndpoint, InboundRequest, InboundService,
    MalformedRequest, Outbox, RawRequest, RequestRejection, SignatureCheck, SignatureError,
    only_value,
};
use crate::payload::{
    event_id, instance_key, is_allowed, is_form, json, properties, required, text, with_older,
    written_to,
};
use crate::service_api::outbox_of;

const TIME_HEADER: HeaderName = HeaderName::from_static("x-slack-request-timestamp");
const SIGNATURE_HEADER: HeaderName = HeaderName::from_static("x-slack-signature");
const RETRY_HEADER: HeaderName = HeaderName::from_static("x-slack-retry-num");

/// Subtypes of messages that people write. All others report a change of a message.
const WRITTEN: [&str; 3] = ["file_share", "me_message", "thread_broadcast"];

pub(crate) struct Slack {
    http_endpoint: HttpEndpoint,
    check: SignatureCheck,
    channels: Option<Vec<String>>,
    api: Option<Arc<Api>>,
    /// Chat for approvals of tool calls, if configured.
    approvals: Option<ApprovalChat>,
    /// Receiver of button presses, once the connector runs.
    presses: Option<PressSubmitter>,
}

impl Slack {
    /// Creates a connector from validated settings.
    ///
    /// # Errors
    ///
    /// A description of why they cannot be used anyway.
    pub(crate) fn new(
        config: &JsonObject,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let values = Values::of("slack", config);
        let secret = secrets.get("signingSecret").map_or("", String::as_str);
        let check = SignatureCheck::new(SIGNATURE_HEADER, "v0=".to_owned(), secret);
        let api = match secrets.get("botToken") {
            None => None,
            Some(token) => Some(Arc::new(Api::new(
                http::service_client()?,
                values.text("endpoint").unwrap_or_default(),
                token.clone(),
                written_to(&values, "channels"),
            ))),
        };
        Ok(Self {
            http_endpoint: HttpEndpoint::new(&values),
            check: check.ok_or("failed to use the secret `signingSecret`")?,
            channels: values.names("channels"),
            api,
            approvals: ApprovalChat::of("slack", config),
            presses: None,
        })
    }

    /// Serves requests until `stop`.
    pub(crate) async fn run(mut self, gateway: Gateway, stop: CancellationToken) {
        let asking = self.approvals.take().zip(self.api.clone());
        let Some((chat, api)) = asking else {
            return listener::run(Arc::new(self), gateway, stop).await;
        };
        let channel = chat.place;
        let (presses, notes) = PressSubmitter::new(gateway.clone());
        self.presses = Some(presses);
        let board = Arc::new(Channel { api, channel });
        let showing = approvals::show(board, gateway.clone(), notes, stop.clone());
        tokio::join!(listener::run(Arc::new(self), gateway, stop), showing);
    }

    /// Checks the signature and its time: a signature is valid only for a few minutes, which
    /// prevents later replays.
    fn check(&self, received: &RawRequest<'_>) -> Result<(), SignatureError> {
        let time = only_value(received.headers, &TIME_HEADER)?;
        let parts = [b"v0:", time, b":", received.body];
        self.check.check_parts(received.headers, &parts)?;
        let seconds = std::str::from_utf8(time).ok().and_then(|t| t.parse().ok());
        let is_fresh =
            seconds.is_some_and(|seconds: u64| seconds.abs_diff(received.now_s) <= SLACK_WINDOW_S);
        if is_fresh {
            return Ok(());
        }
        Err(SignatureError::Stale {
            header: TIME_HEADER,
            window_s: SLACK_WINDOW_S,
        })
    }

    fn to_meaning(
        &self,
        received: &RawRequest<'_>,
        body: &Value,
    ) -> Result<InboundRequest, MalformedRequest> {
        let ignored = |reason, explanation| {
            let answer = DirectResponse::ignored(reason, explanation);
            Ok(InboundRequest::Answer(answer))
        };
        match required(body, "/type")? {
            "url_verification" => {
                let challenge = required(body, "/challenge")?;
                let answer = DirectResponse::ok(json!({"challenge": challenge}));
                return Ok(InboundRequest::Answer(
                    answer.counted_as(IgnoreReason::Ping),
                ));
            }
            "event_callback" => {}
            _ => return ignored(IgnoreReason::Unsupported, "unsupported callback"),
        }
        let kind = required(body, "/event/type")?;
        if let Some((reason, explanation)) = why_ignored(kind, body) {
            return ignored(reason, explanation);
        }
        let team = required(body, "/team_id")?;
        let channel = required(body, "/event/channel")?;
        let ts = required(body, "/event/ts")?;
        if !is_allowed(self.channels.as_deref(), channel) {
            let explanation = "the channel is not one of `channels`";
            return ignored(IgnoreReason::OtherPlace, explanation);
        }
        let said = plain(kind, text(body, "/event/text").unwrap_or_default());
        if said.trim().is_empty() {
            return ignored(IgnoreReason::NoText, "it has no text");
        }
        let thread = text(body, "/event/thread_ts");
        let key = match thread {
            Some(thread) => format!("slack:{team}:{channel}:{thread}"),
            None => format!("slack:{team}:{channel}"),
        };
        let event = |pointer: &str| body.pointer(pointer);
        let mut metadata = JsonObject::from_iter([
            ("channel".to_owned(), json!(channel)),
            ("ts".to_owned(), json!(ts)),
        ]);
        // In a channel, an answer belongs in a thread; in a direct message it does not.
        let is_direct = text(body, "/event/channel_type") == Some("im");
        if let Some(thread) = thread.or((!is_direct).then_some(ts)) {
            metadata.insert("threadTs".to_owned(), json!(thread));
        }
        let event_id_of_slack = text(body, "/event_id").unwrap_or_default();
        metadata.insert("slackEventId".to_owned(), json!(event_id_of_slack));
        let is_retry = received.headers.contains_key(RETRY_HEADER);
        metadata.insert("retry".to_owned(), json!(is_retry));
        Ok(InboundRequest::Event(Box::new(ConnectorEvent {
            id: Some(event_id(&format!("slack:{team}:{channel}:{ts}"))?),
            name: kind.to_owned(),
            input: said,
            instance_key: Some(instance_key(&key)?),
            properties: with_older(
                properties([
                    ("team", event("/team_id")),
                    ("channel", event("/event/channel")),
                    ("channelType", event("/event/channel_type")),
                    ("user", event("/event/user")),
                    ("threadTs", event("/event/thread_ts")),
                    ("ts", event("/event/ts")),
                ]),
                [
                    ("channel_id", event("/event/channel")),
                    ("thread_ts", event("/event/thread_ts")),
                    ("user_id", event("/event/user")),
                ],
            ),
            auth: text(body, "/event/user").map(|user| {
                JsonObject::from_iter([
                    ("service".to_owned(), json!("slack")),
                    ("team".to_owned(), json!(team)),
                    ("user".to_owned(), json!(user)),
                ])
            }),
            metadata,
        })))
    }
}

impl fmt::Debug for Slack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slack")
            .field("http_endpoint", &self.http_endpoint)
            .finish_non_exhaustive()
    }
}

impl InboundService for Slack {
    fn http_endpoint(&self) -> &HttpEndpoint {
        &self.http_endpoint
    }

    fn outbox(&self) -> Option<Arc<dyn Outbox>> {
        self.api.as_ref().map(outbox_of)
    }

    fn reply_timeout(&self) -> Duration {
        Duration::from_millis(SWIFT_REPLY_TIMEOUT_MS)
    }

    fn press(&self, pressed: ButtonPress) -> BoxFuture<'static, Result<(), RequestRejection>> {
        let presses = self.presses.clone();
        let reply_timeout = self.reply_timeout();
        async move {
            let presses = presses.ok_or(RequestRejection::NotFound)?;
            let handed_in = presses.press(reply_timeout, pressed).await;
            handed_in.map_err(RequestRejection::ByOrchestrator)
        }
        .boxed()
    }

    fn read(&self, received: &RawRequest<'_>) -> Result<InboundRequest, RequestRejection> {
        self.check(received)?;
        if is_form(received.headers) {
            let (channels, asks) = (self.channels.as_deref(), self.presses.is_some());
            return Ok(forms::meaning(received.body, channels, asks)?);
        }
        let body = json(received.body)?;
        Ok(self.to_meaning(received, &body)?)
    }
}

/// The text as people read it: without the mention of the app, and with unescaped `&`, `<` and `>`.
fn plain(kind: &str, text: &str) -> String {
    let called = text.trim_start();
    let text = match called
        .strip_prefix("<@")
        .and_then(|rest| rest.split_once('>'))
    {
        Some((_, rest)) if kind == "app_mention" => rest.trim_start(),
        _ => text,
    };
    unescaped(text)
}

/// Reason to ignore an event, by its type and its author.
fn why_ignored(kind: &str, body: &Value) -> Option<(IgnoreReason, &'static str)> {
    if !matches!(kind, "message" | "app_mention") {
        let explanation = "only messages and mentions are supported";
        return Some((IgnoreReason::Unsupported, explanation));
    }
    // Messages of bots are ignored, because two bots could answer each other forever.
    if body.pointer("/event/bot_id").is_some() || body.pointer("/event/bot_profile").is_some() {
        return Some((IgnoreReason::Bot, "it is from a bot"));
    }
    let is_written = text(body, "/event/subtype").is_none_or(|kind| WRITTEN.contains(&kind));
    (!is_written).then_some((IgnoreReason::Unsupported, "it is not a written message"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use hmac::{Hmac, Mac as _};
    use sha2::Sha256;

    use super::*;

    /// The example from Slack's documentation.
    const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
    const NOW_S: u64 = 1_531_420_618;

    fn slack(config: &Value) -> Slack {
        let secrets = BTreeMap::from([("signingSecret".to_owned(), SECRET.to_owned())]);
        Slack::new(config.as_object().unwrap(), &secrets).unwrap()
    }

    fn read(
        config: &Value,
        body: &str,
        time: u64,
        now_s: u64,
    ) -> Result<InboundRequest, RequestRejection> {
        let keyed = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
        let mac = keyed.chain_update(format!("v0:{time}:{body}")).finalize();
        let signature = format!("v0={}", hex::encode(mac.into_bytes()));
        let mut headers = HeaderMap::new();
        headers.insert(TIME_HEADER, time.into());
        headers.insert(SIGNATURE_HEADER, signature.parse().unwrap());
        let received = RawRequest {
            method: "POST",
            path: "/",
            remote: "127.0.0.1:5".parse().unwrap(),
            headers: &headers,
            body: body.as_bytes(),
            now_s,
        };
        slack(config).read(&received)
    }

    fn meaning(event: &Value) -> InboundRequest {
        let body =
            json!({"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": event});
        read(&json!({}), &body.to_string(), NOW_S, NOW_S).unwrap()
    }

    fn event(event: &Value) -> ConnectorEvent {
        match meaning(event) {
            InboundRequest::Event(event) => *event,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_signature_of_slacks_own_example_fits() {
        let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow\
            &channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner\
            &command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands\
            %2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.\
            47445629121.803a0bc887a14d10d2c447fce8b6703c";
        let mut headers = HeaderMap::new();
        headers.insert(TIME_HEADER, "1531420618".parse().unwrap());
        let signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
        headers.insert(SIGNATURE_HEADER, signature.parse().unwrap());
        let received = RawRequest {
            method: "POST",
            path: "/",
            remote: "127.0.0.1:5".parse().unwrap(),
            headers: &headers,
            body: body.as_bytes(),
            now_s: NOW_S,
        };
        assert_eq!(slack(&json!({})).check(&received), Ok(()));
    }

    #[test]
    fn a_signature_is_good_for_five_minutes_either_way() {
        let body = r#"{"type":"url_verification","challenge":"c"}"#;
        for (time, is_good) in [
            (NOW_S - 300, true),
            (NOW_S + 300, true),
            (NOW_S - 301, false),
            (NOW_S + 301, false),
        ] {
            let result = read(&json!({}), body, time, NOW_S);
            match result {
                Ok(_) => assert!(is_good, "{time}"),
                Err(RequestRejection::NotSigned(SignatureError::Stale { .. })) => {
                    assert!(!is_good, "{time}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn the_challenge_is_given_back() {
        let body = r#"{"type":"url_verification","challenge":"c"}"#;
        let answer = DirectResponse::ok(json!({"challenge": "c"}));
        let found = read(&json!({}), body, NOW_S, NOW_S).unwrap();
        assert_eq!(found, InboundRequest::Answer(answer));
    }

    #[test]
    fn a_message_and_its_mention_are_one_event() {
        let message = json!({"type": "message", "channel": "C1", "user": "U1", "ts": "1.5",
            "channel_type": "channel", "text": "<@U9> a &lt; b &amp;amp;"});
        let mut mention = message.clone();
        mention["type"] = json!("app_mention");
        let (message, mention) = (event(&message), event(&mention));
        assert_eq!(message.id, mention.id);
        assert_eq!(message.id.unwrap().as_str(), "slack:T1:C1:1.5");
        assert_eq!(message.instance_key, mention.instance_key);
        assert_eq!(message.instance_key.unwrap().as_str(), "slack:T1:C1");
        assert_eq!(message.input, "<@U9> a < b &amp;");
        assert_eq!(mention.input, "a < b &amp;");
        assert_eq!(mention.name, "app_mention");
        assert_eq!(mention.properties["channelType"], "channel");
        assert_eq!(mention.metadata["threadTs"], "1.5");
        assert_eq!(mention.metadata["ts"], "1.5");
        let mut direct = json!({"type": "message", "channel": "D1", "user": "U1", "ts": "1.5",
            "channel_type": "im", "text": "x"});
        assert!(event(&direct).metadata.get("threadTs").is_none());
        direct["thread_ts"] = json!("1.0");
        assert_eq!(event(&direct).metadata["threadTs"], "1.0");
    }

    #[test]
    fn a_thread_is_a_conversation() {
        let found = event(
            &json!({"type": "message", "channel": "C1", "user": "U1", "ts": "2.0",
            "thread_ts": "1.0", "text": "x"}),
        );
        assert_eq!(found.instance_key.unwrap().as_str(), "slack:T1:C1:1.0");
    }

    #[test]
    fn slack_events_without_user_text_are_ignored() {
        for event in [
            json!({"type": "message", "channel": "C1", "ts": "1", "text": "x", "bot_id": "B1"}),
            json!({"type": "message", "channel": "C1", "ts": "1", "text": "x", "subtype": "bot_message"}),
            json!({"type": "message", "channel": "C1", "ts": "1", "subtype": "message_changed"}),
            json!({"type": "message", "channel": "C1", "ts": "1", "text": "  "}),
            json!({"type": "reaction_added"}),
        ] {
            let InboundRequest::Answer(answer) = meaning(&event) else {
                panic!("{event}");
            };
            assert_eq!(answer.status, 200);
        }
        let body = json!({"type": "event_callback", "team_id": "T1",
            "event": {"type": "message", "channel": "C2", "user": "U", "ts": "1", "text": "x"}});
        let found = read(
            &json!({"channels": ["C1"]}),
            &body.to_string(),
            NOW_S,
            NOW_S,
        );
        assert!(matches!(found, Ok(InboundRequest::Answer(_))), "{found:?}");
    }
}
