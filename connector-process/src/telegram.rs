//! Telegram: messages that people write to a bot, by long polling.
//!
//! Telegram deletes an update once a later one is requested. The next update is therefore requested
//! only after the event of the current one is on disk. A process killed in between receives the
//! update again, as the same event (`MSG-13`).
//!
//! * `updates`: from an update to an event. Pure.
//! * `answer`: parses answers of the Bot API. Pure.
//! * `api`: its methods.
//! * `actions`: actions of agents through the bot.
//! * `buttons`: tool calls that wait for a person.

mod actions;
mod answer;
mod api;
mod buttons;
mod updates;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use goondan_connectors::{ApprovalChat, Values};
use goondan_protocol::JsonObject;
use goondan_protocol::ipc::RefusalCode;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::actions::Actions;
use self::answer::ApiError;
use self::api::Api;
use self::buttons::Chat;
use self::updates::{UPDATES, Update, to_update};
use crate::approvals::{self, PressSubmitter};
use crate::gateway::{Gateway, span_within};
use crate::http;
use crate::limits::{REPLY_TIMEOUT_MS, SERVICE_TIMEOUT_MS};
use crate::payload::written_to;
use crate::service_api::outbox_of;

pub(crate) struct Telegram {
    api: Api,
    token: String,
    /// The only chats that can be written to; `None` for all.
    written_to: Option<Vec<String>>,
    chats: Option<Vec<String>>,
    poll_s: u64,
    /// Chat for approvals of tool calls, if configured.
    approvals: Option<ApprovalChat>,
}

impl Telegram {
    /// Creates a connector from validated settings.
    ///
    /// # Errors
    ///
    /// A description of why the client cannot be created.
    pub(crate) fn new(
        config: &JsonObject,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let values = Values::of("telegram", config);
        let endpoint = values.text("endpoint").unwrap_or_default();
        let token = secrets.get("botToken").map_or("", String::as_str);
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b":_-".contains(&byte);
        if !token.bytes().all(is_token) {
            return Err("the secret `botToken` is not a bot token".to_owned());
        }
        let client = http::service_client()?;
        Ok(Self {
            api: Api::new(client, endpoint, token),
            token: token.to_owned(),
            written_to: written_to(&values, "chats"),
            chats: values.names("chats"),
            poll_s: values.number("pollSeconds").unwrap_or_default(),
            approvals: ApprovalChat::of("telegram", config),
        })
    }

    /// Polls until `stop`.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        let actions = Actions {
            api: self.api.clone(),
            token: self.token.clone(),
            chats: self.written_to.clone(),
        };
        gateway.serve(outbox_of(&Arc::new(actions))).await;
        let Some(chat) = &self.approvals else {
            return self.listen(&gateway, None, &stop).await;
        };
        let board = Chat {
            api: self.api.clone(),
            chat: chat.place.clone(),
        };
        let (presses, notes) = PressSubmitter::new(gateway.clone());
        let showing = approvals::show(Arc::new(board), gateway.clone(), notes, stop.clone());
        tokio::join!(self.listen(&gateway, Some(presses), &stop), showing);
    }

    async fn listen(
        &self,
        gateway: &Gateway,
        presses: Option<PressSubmitter>,
        stop: &CancellationToken,
    ) {
        let mut work = PollingRun {
            telegram: self,
            gateway,
            presses,
            bot: None,
            offset: None,
            failures: 0,
            said: None,
        };
        loop {
            let pause = tokio::select! {
                () = stop.cancelled() => return,
                pause = work.poll() => pause,
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }
}

struct PollingRun<'a> {
    telegram: &'a Telegram,
    gateway: &'a Gateway,
    /// Receiver of button presses, if approvals are configured.
    presses: Option<PressSubmitter>,
    /// The bot's name, once Telegram has accepted the token.
    bot: Option<String>,
    /// The first unprocessed update; `None` for the first that Telegram has.
    offset: Option<i64>,
    failures: u32,
    said: Option<(bool, String)>,
}

impl PollingRun<'_> {
    /// Polls for updates once and returns the time until the next poll.
    async fn poll(&mut self) -> Duration {
        match self.news().await {
            Ok(()) => {
                self.failures = 0;
                Duration::ZERO
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let pause = error.pause(self.failures);
                let reason = error.to_string();
                tracing::warn!(
                    reason,
                    pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                    "failed to poll Telegram; retrying"
                );
                self.tell(false, format!("{reason}; trying again")).await;
                pause
            }
        }
    }

    async fn tell(&mut self, is_ready: bool, detail: String) {
        if self.said.as_ref() != Some(&(is_ready, detail.clone())) {
            self.gateway.report(is_ready, detail.clone()).await;
            self.said = Some((is_ready, detail));
        }
    }

    async fn news(&mut self) -> Result<(), ApiError> {
        let request_timeout = Duration::from_millis(SERVICE_TIMEOUT_MS);
        let bot = match &self.bot {
            Some(bot) => bot.clone(),
            None => {
                let me = self
                    .telegram
                    .api
                    .call("getMe", &json!({}), request_timeout)
                    .await?;
                let name = me.get("username").and_then(Value::as_str);
                let bot = name.unwrap_or("a bot without a name").to_owned();
                self.bot = Some(bot.clone());
                bot
            }
        };
        let poll_s = if self.said.as_ref().is_some_and(|(ready, _)| *ready) {
            self.telegram.poll_s
        } else {
            // The first poll, and the first after an error, return immediately to show if the
            // connection works.
            0
        };
        let button = self.presses.is_some().then_some(buttons::UPDATE);
        let updates: Vec<&str> = UPDATES.into_iter().chain(button).collect();
        let mut params = json!({"timeout": poll_s, "allowed_updates": updates});
        if let (Some(params), Some(offset)) = (params.as_object_mut(), self.offset) {
            params.insert("offset".to_owned(), json!(offset));
        }
        let request_timeout = request_timeout + Duration::from_secs(poll_s);
        let updates = self
            .telegram
            .api
            .call("getUpdates", &params, request_timeout)
            .await?;
        self.tell(true, format!("listening as @{bot}")).await;
        let updates = updates.as_array().map_or(&[][..], Vec::as_slice);
        for update in updates {
            let Some(id) = update.get("update_id").and_then(Value::as_i64) else {
                return Err(ApiError::Strange(
                    "Telegram sent an update without an id".to_owned(),
                ));
            };
            self.hand_in(id, update).await?;
            self.offset = Some(id.saturating_add(1));
        }
        Ok(())
    }

    /// Processes one update. On success, its event is on disk or the update is irrelevant.
    async fn hand_in(&self, id: i64, update: &Value) -> Result<(), ApiError> {
        let pressed = self.presses.as_ref().zip(buttons::to_pressed(update));
        if let Some((presses, pressed)) = pressed {
            let reply_timeout = Duration::from_millis(REPLY_TIMEOUT_MS);
            let handed_in = presses.press(reply_timeout, pressed).await;
            return handed_in.map_err(|refused| ApiError::NotTaken(refused.message));
        }
        let event = match to_update(id, update, self.telegram.chats.as_deref()) {
            Update::Event(event) => *event,
            Update::Ignored(reason) => {
                tracing::debug!(update_id = id, reason, "update ignored");
                return Ok(());
            }
        };
        let trace = span_within(None, uuid::Uuid::now_v7());
        let reply_timeout = Duration::from_millis(REPLY_TIMEOUT_MS);
        match self
            .gateway
            .submit_within(reply_timeout, event, trace)
            .await
        {
            Ok(accepted) => {
                tracing::info!(
                    update_id = id,
                    event_id = accepted.event_id.as_str(),
                    trace_id = %trace.trace_id,
                    duplicate = accepted.duplicate,
                    "update submitted"
                );
                Ok(())
            }
            Err(refused) => match refused.code {
                RefusalCode::Overloaded | RefusalCode::Unavailable => {
                    Err(ApiError::NotTaken(refused.message))
                }
                RefusalCode::Invalid | RefusalCode::Unroutable | RefusalCode::Damaged => {
                    tracing::warn!(
                        update_id = id,
                        reason = refused.message,
                        "update skipped: no rule routes it"
                    );
                    Ok(())
                }
            },
        }
    }
}
