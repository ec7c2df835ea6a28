//! Slack, through the Events API: messages and mentions become events. Slash commands and
//! interactions with buttons and dialogs also do; they arrive as forms ([`forms`]). Decisions that
//! wait for a person have buttons too ([`decisions`]).
//!
//! Slack signs `v0:<time>:<body>`, expects an answer within three seconds, and repeats unanswered
//! requests. One message can arrive as `message` and as `app_mention`; both use the id of the
//! message, so a conversation receives it only once however often Slack repeats it.
//!
//! * `messages`: from an event of Slack to one of ours. `threads`: those that the app takes part in.
//! * `description`: blocks, attachments and files as text. Pure.

mod actions;
mod decisions;
mod description;
mod forms;
mod message_format;
mod messages;
mod mrkdwn;
mod threads;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderName;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_connectors::{ApprovalChat, Values};
use goondan_protocol::JsonObject;
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::ignored_messages::IgnoreReason;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::actions::Api;
use self::decisions::{Channel, FormRequest, open_forms};
use self::forms::FormMeaning;
use self::messages::{Filters, Ignored};
use self::threads::Threads;
use crate::chat_replies::{ChatReplies, ReplyMode};
use crate::connector::Ready;
use crate::decisions::{PressSubmitter, show_decisions, submit_press};
use crate::gateway::Gateway;
use crate::http;
use crate::limits::{DECISION_NOTES_WAITING_MAX, SLACK_WINDOW_S, SWIFT_REPLY_TIMEOUT_MS};
use crate::listener::{
    self, ButtonPress, CallbackWorker, Callbacks, DirectResponse, HttpEndpoint, InboundRequest,
    InboundService, MalformedRequest, Outbox, RawRequest, RequestRejection, SignatureCheck,
    SignatureError, only_value,
};
use crate::payload::{is_form, json, required, written_to};
use crate::service_api::outbox_marking;

const TIME_HEADER: HeaderName = HeaderName::from_static("x-slack-request-timestamp");
const SIGNATURE_HEADER: HeaderName = HeaderName::from_static("x-slack-signature");
const RETRY_HEADER: HeaderName = HeaderName::from_static("x-slack-retry-num");

pub(crate) struct Slack {
    http_endpoint: HttpEndpoint,
    check: SignatureCheck,
    filters: Filters,
    threads: Arc<Threads>,
    api: Option<Arc<Api>>,
    /// Replies that are posted, if a token and the settings permit it.
    replies: Option<Callbacks>,
    /// Channel for decisions, if configured.
    approvals: Option<ApprovalChat>,
    /// Receiver of button presses, once the connector runs.
    presses: Option<PressSubmitter>,
    /// Receiver of requests to open a form, once the connector runs.
    forms: Option<mpsc::Sender<FormRequest>>,
}

impl Slack {
    /// Creates a connector from validated settings, and the worker that posts replies, if any.
    ///
    /// # Errors
    ///
    /// A description of why they cannot be used anyway.
    pub(crate) fn new(
        connection: &ConnectionName,
        config: &JsonObject,
        secrets: &BTreeMap<String, String>,
    ) -> Result<(Self, Option<CallbackWorker>), String> {
        let values = Values::of("slack", config);
        let secret = secrets.get("signingSecret").map_or("", String::as_str);
        let check = SignatureCheck::new(SIGNATURE_HEADER, "v0=".to_owned(), secret);
        let threads = Arc::<Threads>::default();
        let api = match secrets.get("botToken") {
            None => None,
            Some(token) => Some(Arc::new(Api::new(
                http::service_client()?,
                values.text("endpoint").unwrap_or_default(),
                token.clone(),
                written_to(&values, "channels"),
                Arc::clone(&threads),
            ))),
        };
        let mode = ReplyMode::of(&values);
        let replies = api.clone().filter(|_| mode != ReplyMode::Never);
        let replies =
            replies.map(|api| Callbacks::new(ChatReplies::new(api, connection.clone(), mode)));
        let (replies, worker) = replies.unzip();
        let slack = Self {
            http_endpoint: HttpEndpoint::new(&values),
            check: check.ok_or("failed to use the secret `signingSecret`")?,
            filters: Filters {
                channels: values.names("channels"),
                bots: values.names("bots").unwrap_or_default(),
                older_texts: values.truth("olderTexts"),
            },
            threads,
            api,
            replies,
            approvals: ApprovalChat::of("slack", config),
            presses: None,
            forms: None,
        };
        Ok((slack, worker))
    }

    /// Creates the connector, which posts replies until the final stop, because turns finish after
    /// intake ends.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub(crate) fn ready(
        connection: &ConnectionName,
        config: &JsonObject,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Ready, String> {
        let (slack, worker) = Self::new(connection, config, secrets)?;
        let serve = |gateway| slack.serve(gateway);
        Ok(Ready::to_serve_and_reply(serve, worker))
    }

    /// Serves requests until intake ends.
    async fn serve(mut self, gateway: Gateway) {
        let intake_over = gateway.intake_over();
        tokio::select! {
            () = self.threads.load(&gateway) => {}
            () = intake_over.cancelled() => return,
        }
        let asking = self.approvals.take().zip(self.api.clone());
        let Some((chat, api)) = asking else {
            return listener::run(Arc::new(self), gateway, intake_over).await;
        };
        let channel = chat.place;
        let (presses, notes) = PressSubmitter::new(gateway.clone());
        self.presses = Some(presses);
        let (forms, requests) = mpsc::channel(DECISION_NOTES_WAITING_MAX);
        self.forms = Some(forms);
        let board = Arc::new(Channel { api, channel });
        let opening = open_forms(&board, requests);
        let showing = show_decisions(
            Arc::clone(&board),
            gateway.clone(),
            notes,
            intake_over.clone(),
        );
        let listening = listener::run(Arc::new(self), gateway, intake_over.clone());
        let opening = async {
            tokio::select! {
                () = opening => {}
                () = intake_over.cancelled() => {}
            }
        };
        tokio::join!(listening, showing, opening);
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
        match required(body, "/type")? {
            "url_verification" => {
                let challenge = required(body, "/challenge")?;
                let answer = DirectResponse::ok(json!({"challenge": challenge}));
                let answer = answer.counted_as(IgnoreReason::Ping);
                return Ok(InboundRequest::Answer(answer));
            }
            "event_callback" => {}
            "app_rate_limited" => {
                tracing::warn!("Slack sends fewer events because there were too many");
                let why = "Slack sends fewer events";
                return Ok(ignored(&Ignored::new(IgnoreReason::Unsupported, why)));
            }
            kind => {
                let why = format!("`{kind}` is not supported");
                return Ok(ignored(&Ignored::new(IgnoreReason::Unsupported, why)));
            }
        }
        let retry = received.headers.contains_key(RETRY_HEADER);
        let taken = messages::taken(body, retry, (&self.filters, &self.threads))?;
        Ok(match taken {
            Ok(taken) if taken.is_answered => InboundRequest::Event(taken.event),
            Ok(taken) => InboundRequest::Notice(taken.event),
            Err(passed) => ignored(&passed),
        })
    }
}

fn ignored(ignored: &Ignored) -> InboundRequest {
    let why = &ignored.why;
    tracing::info!(%why, "request passed over");
    InboundRequest::Answer(DirectResponse::ignored(ignored.reason, why))
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
        let answered = self.replies.as_ref().map(Callbacks::answered);
        let api = self.api.as_ref()?;
        Some(outbox_marking(api, answered))
    }

    fn callbacks(&self) -> Option<&Callbacks> {
        self.replies.as_ref()
    }

    fn settle(&self, gateway: Gateway) -> BoxFuture<'static, ()> {
        let threads = Arc::clone(&self.threads);
        async move { threads.keep(&gateway).await }.boxed()
    }

    fn reply_timeout(&self) -> Duration {
        Duration::from_millis(SWIFT_REPLY_TIMEOUT_MS)
    }

    fn press(&self, pressed: ButtonPress) -> BoxFuture<'static, Result<(), RequestRejection>> {
        submit_press(self.presses.clone(), self.reply_timeout(), pressed).boxed()
    }

    fn read(&self, received: &RawRequest<'_>) -> Result<InboundRequest, RequestRejection> {
        self.check(received)?;
        if is_form(received.headers) {
            let asks = self.presses.is_some();
            let form = forms::meaning(received.body, &self.filters, asks)?;
            let nothing = || DirectResponse::ok(Value::Null);
            return Ok(match form {
                FormMeaning::Event(event) => InboundRequest::Asked(event, nothing()),
                FormMeaning::Pressed(pressed) => InboundRequest::Pressed(pressed),
                FormMeaning::Form(request) => {
                    // With too many requests, the person presses again.
                    let forms = self.forms.as_ref();
                    if forms.is_some_and(|it| it.try_send(*request).is_err()) {
                        tracing::warn!("too many requests to open a form in Slack");
                    }
                    InboundRequest::Answer(nothing())
                }
                FormMeaning::Choices => {
                    let none = DirectResponse::ok(json!({"options": []}));
                    InboundRequest::Answer(none.counted_as(IgnoreReason::Unsupported))
                }
                // Slack shows the answer to the user.
                FormMeaning::Ignored(ignored) => {
                    tracing::info!(why = %ignored.why, "request passed over");
                    InboundRequest::Answer(nothing().counted_as(ignored.reason))
                }
            });
        }
        let body = json(received.body)?;
        if let Some((presses, reply)) = self.presses.as_ref().zip(decisions::to_reply(&body)) {
            let decided = presses.decided_now(reply);
            if let Some(pressed) = decided.map_err(RequestRejection::ByOrchestrator)? {
                return Ok(InboundRequest::Pressed(Box::new(pressed)));
            }
        }
        Ok(self.to_meaning(received, &body)?)
    }
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
        let connection = "slack".parse().unwrap();
        let made = Slack::new(&connection, config.as_object().unwrap(), &secrets);
        made.unwrap().0
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
        let answer = answer.counted_as(IgnoreReason::Ping);
        let found = read(&json!({}), body, NOW_S, NOW_S).unwrap();
        assert_eq!(found, InboundRequest::Answer(answer));
    }

    #[test]
    fn conn_1_slack_requests_without_an_event_are_answered_with_a_reason() {
        let answered = |config: &Value, body: &Value| {
            let found = read(config, &body.to_string(), NOW_S, NOW_S).unwrap();
            let InboundRequest::Answer(answer) = found else {
                panic!("{found:?}");
            };
            assert_eq!(answer.status, 200);
            answer.body["ignored"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let limited =
            json!({"type": "app_rate_limited", "team_id": "T1", "minute_rate_limited": 1});
        assert_eq!(answered(&json!({}), &limited), "Slack sends fewer events");
        assert_eq!(
            answered(&json!({}), &json!({"type": "new"})),
            "`new` is not supported"
        );
        let message = json!({"type": "event_callback", "team_id": "T1",
            "event": {"type": "message", "channel": "C2", "user": "U", "bot_id": "B7", "ts": "1", "text": "x"}});
        assert_eq!(
            answered(&json!({"bots": ["B8"]}), &message),
            "it is from a bot"
        );
        let reason = answered(&json!({"bots": ["B7"], "channels": ["C1"]}), &message);
        assert_eq!(reason, "the channel is not one of `channels`");
        let heard = read(&json!({"bots": ["B7"]}), &message.to_string(), NOW_S, NOW_S);
        assert!(matches!(heard, Ok(InboundRequest::Notice(_))), "{heard:?}");
    }
}
