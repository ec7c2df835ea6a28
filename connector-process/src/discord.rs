//! Discord interactions: commands, buttons and forms become events ([`description`]).
//!
//! Discord signs `<time><body>` with its own key, verified with the application's public key, and
//! expects an answer within three seconds. A durable event is answered with "deferred": Discord
//! shows that the application is thinking until a reply arrives.

mod actions;
mod decisions;
mod description;
mod interactions;
mod threads;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, StatusCode};
use ed25519_dalek::{Signature, VerifyingKey};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_connectors::{ApprovalChat, Values};
use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::ignored_messages::IgnoreReason;
use goondan_protocol::ipc::EventAccepted;
use goondan_protocol::trace::TraceContext;
use serde_json::{Value, json};

use self::actions::Api;
use self::decisions::{Channel, DecisionInteraction, to_decision};
use self::interactions::Interactions;
use self::threads::Threads;
use crate::chat_replies::{ChatReplies, ReplyMode};
use crate::connector::Ready;
use crate::decisions::{PressSubmitter, show_decisions, submit_press};
use crate::gateway::Gateway;
use crate::http;
use crate::limits::SWIFT_REPLY_TIMEOUT_MS;
use crate::listener::{
    self, ButtonPress, Callbacks, DirectResponse, HttpEndpoint, InboundRequest, InboundService,
    MalformedRequest, Outbox, RawRequest, RequestRejection, SignatureError, only_value,
};
use crate::payload::{
    add_payload, event_id, instance_key, is_allowed, json, properties, required, text, with_older,
    written_to,
};
use crate::service_api::outbox_marking;

const SIGNATURE_HEADER: HeaderName = HeaderName::from_static("x-signature-ed25519");
const TIME_HEADER: HeaderName = HeaderName::from_static("x-signature-timestamp");

/// Types of interactions.
const PING: u64 = 1;
const COMMAND: u64 = 2;
const COMPONENT: u64 = 3;
const AUTOCOMPLETE: u64 = 4;
const FORM: u64 = 5;

/// Types of answers.
const PONG: u64 = 1;
const MESSAGE: u64 = 4;
const DEFERRED: u64 = 5;
const CHOICES: u64 = 8;

/// The message is visible only to the user who caused it.
const EPHEMERAL: u64 = 1 << 6;

/// Names of a command option that supplies the entire input.
pub(crate) const INPUT_OPTIONS: [&str; 4] = ["input", "text", "message", "prompt"];

/// Types of channels that are threads.
const THREADS: std::ops::RangeInclusive<u64> = 10..=12;

pub(crate) struct Discord {
    http_endpoint: HttpEndpoint,
    key: VerifyingKey,
    channels: Option<Vec<String>>,
    interactions: Arc<Interactions>,
    threads: Arc<Threads>,
    api: Arc<Api>,
    /// Poster of replies, if configured.
    callbacks: Option<Callbacks>,
    /// Channel for decisions, if configured.
    approvals: Option<ApprovalChat>,
    /// Receiver of button presses, once the connector runs.
    presses: Option<PressSubmitter>,
}

impl fmt::Debug for Discord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discord")
            .field("http_endpoint", &self.http_endpoint)
            .finish_non_exhaustive()
    }
}

impl Discord {
    /// Creates a connector from validated settings.
    ///
    /// # Errors
    ///
    /// A description of why they cannot be used anyway.
    pub(crate) fn new(
        config: &JsonObject,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let values = Values::of("discord", config);
        let digits = values.text("publicKey").unwrap_or_default();
        let bytes: Option<[u8; 32]> = hex::decode(digits).ok().and_then(|b| b.try_into().ok());
        let key = bytes.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
        let interactions = Arc::<Interactions>::default();
        let threads = Arc::<Threads>::default();
        let api = Api::new(
            http::service_client()?,
            values.text("endpoint").unwrap_or_default(),
            secrets.get("botToken").cloned(),
            written_to(&values, "channels"),
            (Arc::clone(&interactions), Arc::clone(&threads)),
        );
        Ok(Self {
            http_endpoint: HttpEndpoint::new(&values),
            key: key
                .ok_or("`publicKey` is not a public key; copy it from the application's page")?,
            channels: values.names("channels"),
            interactions,
            threads,
            api: Arc::new(api),
            callbacks: None,
            approvals: ApprovalChat::of("discord", config),
            presses: None,
        })
    }

    /// Creates a connector that posts replies, if configured.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub(crate) fn ready(
        connection: &ConnectionName,
        config: &JsonObject,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Ready, String> {
        let mut discord = Self::new(config, secrets)?;
        let mode = ReplyMode::of(&Values::of("discord", config));
        let worker = (mode != ReplyMode::Never).then(|| {
            let replies = ChatReplies::new(Arc::clone(&discord.api), connection.clone(), mode);
            let (callbacks, worker) = Callbacks::new(replies);
            discord.callbacks = Some(callbacks);
            worker
        });
        let serve = |gateway| discord.serve(gateway);
        Ok(Ready::to_serve_and_reply(serve, worker))
    }

    /// Serves requests until intake ends.
    async fn serve(mut self, gateway: Gateway) {
        let intake_over = gateway.intake_over();
        tokio::select! {
            () = self.threads.load(&gateway) => {}
            () = intake_over.cancelled() => return,
        }
        let Some(channel) = self.approvals.as_ref().map(|it| it.place.clone()) else {
            return listener::run(Arc::new(self), gateway, intake_over).await;
        };
        let (presses, notes) = PressSubmitter::new(gateway.clone());
        self.presses = Some(presses);
        let api = Arc::clone(&self.api);
        let board = Arc::new(Channel { api, channel });
        let showing = show_decisions(board, gateway.clone(), notes, intake_over.clone());
        tokio::join!(listener::run(Arc::new(self), gateway, intake_over), showing);
    }

    /// True if the connector listens to the channel, or to the channel of the thread.
    fn is_monitored(&self, channel: &str, body: &Value) -> bool {
        let kind = body.pointer("/channel/type").and_then(Value::as_u64);
        let parent = text(body, "/channel/parent_id");
        let parent = parent.filter(|_| kind.is_some_and(|kind| THREADS.contains(&kind)));
        let mut places = [Some(channel), parent].into_iter().flatten();
        places.any(|place| is_allowed(self.channels.as_deref(), place))
    }

    fn check(&self, received: &RawRequest<'_>) -> Result<(), SignatureError> {
        let wrong = || SignatureError::Wrong {
            header: SIGNATURE_HEADER,
        };
        let digits = only_value(received.headers, &SIGNATURE_HEADER)?;
        let time = only_value(received.headers, &TIME_HEADER)?;
        let bytes = hex::decode(digits).map_err(|_not_hex| wrong())?;
        let signature = Signature::from_slice(&bytes).map_err(|_no_signature| wrong())?;
        let signed = [time, received.body].concat();
        self.key
            .verify_strict(&signed, &signature)
            .map_err(|_differs| wrong())
    }

    fn to_meaning(&self, body: &Value) -> Result<InboundRequest, MalformedRequest> {
        let kind = body.pointer("/type").and_then(Value::as_u64);
        let kind = kind.ok_or(MalformedRequest::NoField { field: "/type" })?;
        // Events of the application, which have their own types, and their ping.
        if body.get("event").is_some() || (kind == 0 && body.get("version").is_some()) {
            let answer = DirectResponse {
                status: StatusCode::NO_CONTENT,
                ..DirectResponse::ok(Value::Null)
            };
            return Ok(pass_over(
                IgnoreReason::Unsupported,
                "it is not an interaction",
                answer,
            ));
        }
        let decided = self.approvals.as_ref();
        match decided.and_then(|chat| to_decision(body, &chat.place)) {
            Some(DecisionInteraction::Pressed(pressed)) => {
                return Ok(InboundRequest::Pressed(Box::new(pressed)));
            }
            Some(DecisionInteraction::Form(form)) => {
                return Ok(InboundRequest::Answer(DirectResponse::ok(form)));
            }
            None => {}
        }
        let (name, spoken) = match kind {
            PING => {
                let pong = DirectResponse::ok(json!({"type": PONG}));
                return Ok(InboundRequest::Answer(pong.counted_as(IgnoreReason::Ping)));
            }
            AUTOCOMPLETE => {
                let none = json!({"type": CHOICES, "data": {"choices": []}});
                return Ok(pass_over(
                    IgnoreReason::Unsupported,
                    "it asks for suggestions",
                    DirectResponse::ok(none),
                ));
            }
            COMMAND => ("command", description::command(body)?),
            COMPONENT => ("component", description::component(body)?),
            FORM => ("component", description::form(body)?),
            _ => {
                let answer = only_for_them("Unknown command.");
                return Ok(pass_over(
                    IgnoreReason::Unsupported,
                    "its type is unknown",
                    answer,
                ));
            }
        };
        let id = required(body, "/id")?;
        let channel = required(body, "/channel_id")?;
        if !self.is_monitored(channel, body) {
            let answer = only_for_them("This channel is not monitored.");
            return Ok(pass_over(
                IgnoreReason::OtherPlace,
                "the channel is not one of `channels`",
                answer,
            ));
        }
        if let (Some(application), Some(token)) =
            (text(body, "/application_id"), text(body, "/token"))
        {
            self.interactions.begin(id, channel, (application, token));
        }
        let user = ["/member/user", "/user"]
            .into_iter()
            .find_map(|pointer| body.pointer(pointer));
        let of_user = |field: &str| user.and_then(|user| user.get(field));
        let nick = text(body, "/member/nick").filter(|nick| !nick.is_empty());
        let nick = nick.map(str::to_owned);
        let name_of_user = nick.or_else(|| user.map(description::person));
        let subcommand = spoken.subcommand.map(Value::from);
        let mut metadata = JsonObject::from_iter([
            ("channel".to_owned(), json!(channel)),
            ("interactionId".to_owned(), json!(id)),
        ]);
        for (name, value) in [
            ("fromName", name_of_user.map(Value::from)),
            ("channelName", body.pointer("/channel/name").cloned()),
            ("messageId", body.pointer("/message/id").cloned()),
            (
                "files",
                (!spoken.files.is_empty()).then(|| Value::from(spoken.files)),
            ),
        ] {
            if let Some(value) = value {
                metadata.insert(name.to_owned(), value);
            }
        }
        add_payload(&mut metadata, body);
        Ok(InboundRequest::Event(Box::new(ConnectorEvent {
            id: Some(event_id(&format!("discord:{id}"))?),
            name: name.to_owned(),
            input: spoken.text,
            instance_key: Some(instance_key(&format!(
                "discord:{}",
                self.threads.enter(channel)
            ))?),
            properties: with_older(
                properties([
                    (
                        "name",
                        body.pointer("/data/name")
                            .or_else(|| body.pointer("/data/custom_id")),
                    ),
                    ("subcommand", subcommand.as_ref()),
                    ("guildId", body.pointer("/guild_id")),
                    ("channelId", body.pointer("/channel_id")),
                    ("userId", of_user("id")),
                    ("username", of_user("username")),
                ]),
                [
                    ("interaction_id", body.pointer("/id")),
                    ("channel_id", body.pointer("/channel_id")),
                    ("guild_id", body.pointer("/guild_id")),
                    ("command_name", body.pointer("/data/name")),
                    ("custom_id", body.pointer("/data/custom_id")),
                    ("user_id", of_user("id")),
                ],
            ),
            auth: of_user("id").map(|id| {
                JsonObject::from_iter([
                    ("service".to_owned(), json!("discord")),
                    ("user".to_owned(), id.clone()),
                ])
            }),
            metadata,
        })))
    }
}

/// Answers a request that becomes no event, and counts it.
fn pass_over(reason: IgnoreReason, why: &'static str, answer: DirectResponse) -> InboundRequest {
    tracing::info!(reason = why, "interaction passed over");
    InboundRequest::Answer(answer.counted_as(reason))
}

impl InboundService for Discord {
    fn http_endpoint(&self) -> &HttpEndpoint {
        &self.http_endpoint
    }

    fn outbox(&self) -> Option<Arc<dyn Outbox>> {
        let answered = self.callbacks.as_ref().map(Callbacks::answered);
        Some(outbox_marking(&self.api, answered))
    }

    fn callbacks(&self) -> Option<&Callbacks> {
        self.callbacks.as_ref()
    }

    fn settle(&self, _gateway: Gateway) -> BoxFuture<'static, ()> {
        let threads = Arc::clone(&self.threads);
        async move { threads.keep().await }.boxed()
    }

    fn reply_timeout(&self) -> Duration {
        Duration::from_millis(SWIFT_REPLY_TIMEOUT_MS)
    }

    fn press(&self, pressed: ButtonPress) -> BoxFuture<'static, Result<(), RequestRejection>> {
        submit_press(self.presses.clone(), self.reply_timeout(), pressed).boxed()
    }

    /// The user sees the result as an answer to the press.
    fn on_pressed(&self) -> DirectResponse {
        DirectResponse::ok(json!({"type": DEFERRED, "data": {"flags": EPHEMERAL}}))
    }

    /// The user sees the refusal instead.
    fn acknowledges_unroutable(&self) -> bool {
        false
    }

    fn read(&self, received: &RawRequest<'_>) -> Result<InboundRequest, RequestRejection> {
        self.check(received)?;
        let body = json(received.body)?;
        Ok(self.to_meaning(&body)?)
    }

    fn on_accepted(&self, _accepted: &EventAccepted, _trace: TraceContext) -> DirectResponse {
        DirectResponse::ok(json!({"type": DEFERRED}))
    }

    /// Shows the orchestrator's refusal to the user, if it may be shown; Discord itself would only
    /// report that the application did not respond.
    fn on_refused(&self, refusal: &RequestRejection) -> DirectResponse {
        match refusal {
            RequestRejection::ByOrchestrator(refused) => {
                only_for_them(&format!("The request was refused: {}", refused.message))
            }
            RequestRejection::NoPlace | RequestRejection::NotPromised { .. } => {
                only_for_them(&format!("The request was refused: {refusal}"))
            }
            other => listener::refused(other),
        }
    }
}

/// A message visible only to the user who caused it.
fn only_for_them(text: &str) -> DirectResponse {
    DirectResponse::ok(json!({"type": MESSAGE, "data": {"content": text, "flags": EPHEMERAL}}))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use ed25519_dalek::{Signer as _, SigningKey};

    use super::*;

    fn signing_key() -> SigningKey {
        SigningKey::from_bytes(&[7; 32])
    }

    fn discord(channels: &Value) -> Discord {
        let key = hex::encode(signing_key().verifying_key().to_bytes());
        let config = json!({"publicKey": key, "channels": channels});
        Discord::new(config.as_object().unwrap(), &BTreeMap::new()).unwrap()
    }

    fn read(
        channels: &Value,
        body: &Value,
        spoil: bool,
    ) -> Result<InboundRequest, RequestRejection> {
        let (body, time) = (body.to_string(), "1700000000");
        let signature = signing_key().sign(format!("{time}{body}").as_bytes());
        let mut headers = HeaderMap::new();
        let digits = hex::encode(signature.to_bytes());
        headers.insert(SIGNATURE_HEADER, digits.parse().unwrap());
        let time = if spoil { "1700000001" } else { time };
        headers.insert(TIME_HEADER, time.parse().unwrap());
        discord(channels).read(&RawRequest {
            method: "POST",
            path: "/",
            remote: "127.0.0.1:5".parse().unwrap(),
            headers: &headers,
            body: body.as_bytes(),
            now_s: 0,
        })
    }

    fn event(body: &Value) -> ConnectorEvent {
        match read(&json!(["c"]), body, false).unwrap() {
            InboundRequest::Event(event) => *event,
            other => panic!("{other:?}"),
        }
    }

    fn interaction(kind: u64, data: &Value) -> Value {
        json!({"type": kind, "id": "1", "channel_id": "c", "guild_id": "g", "data": data,
            "member": {"user": {"id": "u", "username": "ann"}}})
    }

    #[test]
    fn a_ping_is_answered_and_only_a_signed_one() {
        let found = read(&json!(["c"]), &json!({"type": 1}), false).unwrap();
        assert_eq!(
            found,
            InboundRequest::Answer(
                DirectResponse::ok(json!({"type": 1})).counted_as(IgnoreReason::Ping)
            )
        );
        let spoilt = read(&json!(["c"]), &json!({"type": 1}), true);
        assert!(matches!(
            spoilt,
            Err(RequestRejection::NotSigned(SignatureError::Wrong { .. }))
        ));
    }

    #[test]
    fn a_command_is_an_event_of_its_channel() {
        let found = event(&interaction(
            2,
            &json!({"name": "ask", "options": [{"name": "prompt", "value": "why?"}]}),
        ));
        assert_eq!(found.id.unwrap().as_str(), "discord:1");
        assert_eq!(found.instance_key.unwrap().as_str(), "discord:c");
        assert_eq!(found.name, "command");
        assert_eq!(found.input, "why?");
        assert_eq!(found.properties["name"], "ask");
        assert_eq!(found.properties["userId"], "u");
    }

    #[test]
    fn refused_discord_sender_gets_an_ephemeral_reply() {
        let body = interaction(2, &json!({"name": "status"}));
        let InboundRequest::Answer(answer) = read(&json!(["d"]), &body, false).unwrap() else {
            panic!("an event");
        };
        assert_eq!(answer.body["data"]["flags"], 64);
        let refused = RequestRejection::ByOrchestrator(goondan_protocol::ipc::EventRefused::new(
            goondan_protocol::ipc::RefusalCode::Overloaded,
            "too much",
        ));
        let answer = discord(&json!(["c"])).on_refused(&refused);
        assert_eq!(answer.status, 200);
        assert!(answer.body.to_string().contains("too much"));
        assert_eq!(
            discord(&json!(["c"]))
                .on_refused(&RequestRejection::Busy)
                .status,
            429
        );
    }

    #[test]
    fn digits_that_are_no_key_are_refused() {
        // Not a point on the curve.
        let mut bytes = [0; 32];
        bytes[0] = 2;
        let config = json!({"publicKey": hex::encode(bytes)});
        assert!(Discord::new(config.as_object().unwrap(), &BTreeMap::new()).is_err());
    }
}
