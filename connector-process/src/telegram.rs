//! Telegram: messages that people write to a bot, by long polling.
//!
//! Telegram deletes an update once a later one is requested. The next update is therefore requested
//! only after the event of the current one is on disk. A process killed in between receives the
//! update again, as the same event (`MSG-13`).
//!
//! * `updates`: from an update to an event; `words`: describes messages. Pure.
//! * `chat_updates`: reactions, members and requests to join. Pure.
//! * `albums`: photos and files that are sent together. Pure.
//! * `chats`: groups with a new ID.
//! * `sent`: latest messages of the bot.
//! * `answer`: parses answers of the Bot API. Pure.
//! * `api`: its methods.
//! * `actions`: actions of agents through the bot.
//! * `decisions`: decisions that wait for a person.

mod actions;
mod albums;
mod answer;
mod api;
mod chat_updates;
mod chats;
mod decisions;
mod description;
mod sent;
mod updates;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use goondan_connectors::{ApprovalChat, Values};
use goondan_protocol::JsonObject;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::ipc::RefusalCode;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::actions::Actions;
use self::albums::{AlbumWait, album, merged};
use self::answer::ApiError;
use self::api::Api;
use self::chat_updates::{REACTION, more_updates, to_chat_update};
use self::chats::Chats;
use self::decisions::Chat;
use self::sent::SentMessages;
use self::updates::{Accepted, UPDATES, Update, to_update};
use crate::chat_replies::{ChatReplies, ReplyMode};
use crate::decisions::{PressSubmitter, show_decisions};
use crate::gateway::{Gateway, span_within};
use crate::http;
use crate::limits::{REPLY_TIMEOUT_MS, SERVICE_TIMEOUT_MS, TELEGRAM_ALBUM_PAUSE_MS};
use crate::listener::Callbacks;
use crate::payload::written_to;
use crate::service_api::outbox_marking;

pub(crate) struct Telegram {
    connection: ConnectionName,
    api: Api,
    token: String,
    /// The only chats that can be written to; `None` for all.
    written_to: Option<Vec<String>>,
    accepted: Accepted,
    reply: ReplyMode,
    poll_s: u64,
    /// Chat for decisions, if configured.
    approvals: Option<ApprovalChat>,
}

impl Telegram {
    /// Creates a connector from validated settings.
    ///
    /// # Errors
    ///
    /// A description of why the client cannot be created.
    pub(crate) fn new(
        connection: &ConnectionName,
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
            connection: connection.clone(),
            api: Api::new(client, endpoint, token),
            token: token.to_owned(),
            written_to: written_to(&values, "chats"),
            accepted: Accepted {
                chats: values.names("chats"),
                bots: values.names("bots").unwrap_or_default(),
                service_messages: values.truth("serviceMessages"),
                more: more_updates(&values),
                older_texts: values.truth("olderTexts"),
                own_id: None,
            },
            reply: ReplyMode::of(&values),
            poll_s: values.number("pollSeconds").unwrap_or_default(),
            approvals: ApprovalChat::of("telegram", config),
        })
    }

    /// Polls until the connector accepts no more input, and posts replies until `stop`.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.work(gateway) => {}
        }
    }

    async fn work(mut self, gateway: Gateway) {
        let chats = Arc::new(Chats::load(gateway.clone()).await);
        let sent = if self.accepted.more.contains(&REACTION) {
            Some(Arc::new(SentMessages::load(gateway.clone()).await))
        } else {
            None
        };
        let actions = Arc::new(Actions {
            api: self.api.clone(),
            token: self.token.clone(),
            listed: self.written_to.clone(),
            chats: Arc::clone(&chats),
            sent: sent.clone(),
        });
        let (callbacks, worker) = match self.reply {
            ReplyMode::Never => (None, None),
            mode => {
                let connection = self.connection.clone();
                let replies = ChatReplies::new(Arc::clone(&actions), connection, mode);
                let (callbacks, worker) = Callbacks::new(replies);
                (Some(callbacks), Some(worker))
            }
        };
        let answered = callbacks.as_ref().map(Callbacks::answered);
        gateway.serve(outbox_marking(&actions, answered)).await;
        let intake_over = gateway.intake_over();
        let approvals = self.approvals.take();
        let asking = approvals.map(|approvals| {
            let board = Chat {
                api: self.api.clone(),
                chat: approvals.place,
                chats: Arc::clone(&chats),
            };
            let (presses, notes) = PressSubmitter::new(gateway.clone());
            (presses, notes, Arc::new(board))
        });
        let presses = asking.as_ref().map(|(presses, ..)| presses.clone());
        let known = (chats.as_ref(), sent.as_deref());
        let listening = self.listen(&gateway, (presses, callbacks), known, &intake_over);
        let showing = async {
            if let Some((_, notes, board)) = asking {
                show_decisions(board, gateway.clone(), notes, intake_over.clone()).await;
            }
        };
        let replying = async {
            match worker {
                Some(worker) => worker.run(gateway.clone()).await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(listening, showing, replying);
    }

    async fn listen(
        &self,
        gateway: &Gateway,
        (presses, callbacks): (Option<PressSubmitter>, Option<Callbacks>),
        (chats, sent): (&Chats, Option<&SentMessages>),
        stop: &CancellationToken,
    ) {
        let mut work = PollingRun {
            telegram: self,
            gateway,
            presses,
            callbacks,
            chats,
            sent,
            bot: None,
            offset: None,
            album: None,
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

/// The bot, once Telegram has accepted the token.
#[derive(Debug, Clone)]
struct Bot {
    name: String,
    id: Option<i64>,
}

fn update_id(update: &Value) -> Result<i64, ApiError> {
    let id = update.get("update_id").and_then(Value::as_i64);
    id.ok_or_else(|| ApiError::Strange("Telegram sent an update without an id".to_owned()))
}

struct PollingRun<'a> {
    telegram: &'a Telegram,
    gateway: &'a Gateway,
    /// Receiver of button presses, if approvals are configured.
    presses: Option<PressSubmitter>,
    /// Poster of replies, if configured.
    callbacks: Option<Callbacks>,
    chats: &'a Chats,
    /// Messages whose reactions are events, if configured.
    sent: Option<&'a SentMessages>,
    bot: Option<Bot>,
    /// The first unprocessed update; `None` for the first that Telegram has.
    offset: Option<i64>,
    /// The album whose further messages are waited for.
    album: Option<AlbumWait>,
    failures: u32,
    said: Option<(bool, String)>,
}

impl PollingRun<'_> {
    /// Polls for updates once and returns the time until the next poll.
    async fn poll(&mut self) -> Duration {
        match self.news().await {
            Ok(pause) => {
                self.failures = 0;
                pause
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

    /// The connector's activity, with what a person may have to change.
    fn detail(&self, bot: &Bot) -> String {
        let listed = self.telegram.accepted.chats.as_deref();
        let mut parts = vec![format!("listening as @{}", bot.name)];
        parts.extend(self.chats.migrations().notes(listed));
        parts.join("; ")
    }

    /// Processes the next updates and returns the pause before those after them.
    async fn news(&mut self) -> Result<Duration, ApiError> {
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
                let bot = Bot {
                    name: name.unwrap_or("a bot without a name").to_owned(),
                    id: me.get("id").and_then(Value::as_i64),
                };
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
        let button = self.presses.is_some().then_some(decisions::UPDATE);
        let more = self.telegram.accepted.more.iter().copied();
        let updates: Vec<&str> = UPDATES.into_iter().chain(more).chain(button).collect();
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
        // Without a pause, a server that answers at once would be polled in a busy loop.
        let no_list = || ApiError::Strange("updates that are not a list".to_owned());
        let updates = updates.as_array().ok_or_else(no_list)?;
        self.tell(true, self.detail(&bot)).await;
        let mut pause = Duration::ZERO;
        // Updates that were processed with the first one of their album.
        let mut processed = BTreeSet::new();
        for (at, update) in updates.iter().enumerate() {
            let id = update_id(update)?;
            if !processed.remove(&id) {
                let rest = updates.get(at..).unwrap_or_default();
                let parts = self.event_parts(id, rest);
                if parts.is_empty() {
                    self.hand_in(id, update).await?;
                } else if AlbumWait::expects_more(&mut self.album, id, parts.len()) {
                    self.offset = Some(id);
                    pause = Duration::from_millis(TELEGRAM_ALBUM_PAUSE_MS);
                    break;
                } else {
                    self.hand_in_album(id, &parts).await?;
                    for part in parts.into_iter().skip(1) {
                        processed.insert(update_id(part)?);
                    }
                }
            }
            self.offset = Some(id.saturating_add(1));
        }
        self.tell(true, self.detail(&bot)).await;
        Ok(pause)
    }

    /// Settings and facts that determine events.
    fn accepted(&self) -> Accepted {
        Accepted {
            own_id: self.bot.as_ref().and_then(|bot| bot.id),
            ..self.telegram.accepted.clone()
        }
    }

    /// The updates of the album that begins with the first one, if they become an event.
    fn event_parts<'u>(&self, id: i64, updates: &'u [Value]) -> Vec<&'u Value> {
        let accepted = self.accepted();
        let parts = album(updates);
        let (false, Some(first)) = (accepted.older_texts, parts.first()) else {
            return Vec::new();
        };
        match to_update(id, first, &accepted, &self.chats.migrations()) {
            Update::Event { .. } => parts,
            Update::Migrated { .. } | Update::Ignored(_) => Vec::new(),
        }
    }

    /// Processes the updates of an album. On success, its event is on disk.
    async fn hand_in_album(&mut self, id: i64, parts: &[&Value]) -> Result<(), ApiError> {
        let (accepted, migrations) = (self.accepted(), self.chats.migrations());
        let mut events = Vec::new();
        let mut is_answered = false;
        for part in parts {
            match to_update(update_id(part)?, part, &accepted, &migrations) {
                Update::Event {
                    event,
                    is_answered: answers,
                } => {
                    is_answered |= answers;
                    events.push(*event);
                }
                Update::Ignored(ignored) => self.gateway.ignored(ignored.reason).await,
                Update::Migrated { .. } => {}
            }
        }
        match merged(events, parts) {
            Some(event) => self.submit(id, event, is_answered).await,
            None => Ok(()),
        }
    }

    /// Processes one update. On success, its event is on disk or the update is passed over.
    async fn hand_in(&mut self, id: i64, update: &Value) -> Result<(), ApiError> {
        let pressed = self.presses.as_ref().zip(decisions::to_pressed(update));
        if let Some((presses, pressed)) = pressed {
            let reply_timeout = Duration::from_millis(REPLY_TIMEOUT_MS);
            let handed_in = presses.press(reply_timeout, pressed).await;
            return handed_in.map_err(|refused| ApiError::NotTaken(refused.message));
        }
        if let Some((presses, reply)) = self.presses.as_ref().zip(decisions::to_reply(update))
            && let Some(pressed) = presses.decided_by(reply).await
        {
            let reply_timeout = Duration::from_millis(REPLY_TIMEOUT_MS);
            let handed_in = presses.press(reply_timeout, pressed).await;
            return handed_in.map_err(|refused| ApiError::NotTaken(refused.message));
        }
        let accepted = self.accepted();
        let migrations = self.chats.migrations();
        let sent = |chat, message| self.sent.and_then(|sent| sent.find(chat, message));
        let mapped = to_chat_update(id, update, (&accepted, &migrations), sent);
        match mapped.unwrap_or_else(|| to_update(id, update, &accepted, &migrations)) {
            Update::Event { event, is_answered } => self.submit(id, *event, is_answered).await,
            Update::Migrated { old, new } => {
                let learned = self.chats.learn(old, new).await;
                learned.map_err(ApiError::NotTaken)
            }
            Update::Ignored(ignored) => {
                self.gateway.ignored(ignored.reason).await;
                tracing::info!(update_id = id, reason = ignored.why, "update passed over");
                Ok(())
            }
        }
    }

    async fn submit(
        &mut self,
        id: i64,
        event: ConnectorEvent,
        is_answered: bool,
    ) -> Result<(), ApiError> {
        let trace = span_within(None, uuid::Uuid::now_v7());
        let replies = self.callbacks.as_ref().filter(|_| is_answered);
        let promised = match replies {
            None => None,
            Some(replies) => {
                let full = || ApiError::NotTaken("too many replies are pending".to_owned());
                let place = replies.place(trace, &event);
                Some((replies, place.ok_or_else(full)?))
            }
        };
        let reply_timeout = Duration::from_millis(REPLY_TIMEOUT_MS);
        match self
            .gateway
            .submit_within(reply_timeout, event, trace)
            .await
        {
            Ok(accepted) => {
                if let Some((replies, place)) = promised {
                    let promise = replies.promise(place, &accepted).await;
                    promise.map_err(ApiError::NotTaken)?;
                }
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
