//! Matrix: messages to an account in rooms, by long polling of the client-server API.
//!
//! The homeserver keeps all messages. The position of the last processed answer is stored with the
//! connection, after its events are on disk. Messages that are read again have the same events, by
//! their IDs (`MSG-13`). End-to-end encryption is not supported: rooms that use it get one notice.
//!
//! * `sync`: parses answers; `events`: from an event of a room to an event for an agent; `words`:
//!   describes messages. Pure.
//! * `position`: the stored position; `rooms`: names and members of rooms.
//! * `api`: the client-server API; `actions`: actions of agents.
//! * `decisions`: decisions that wait for a person.

mod actions;
mod api;
mod decisions;
mod description;
mod events;
mod position;
mod rooms;
mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use goondan_clock::sleep;
use goondan_connectors::{ApprovalChat, Values};
use goondan_protocol::JsonObject;
use goondan_protocol::call::TokenVerdict;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::ignored_messages::IgnoreReason;
use goondan_protocol::ipc::RefusalCode;
use reqwest::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::actions::{Actions, transaction};
use self::api::{Api, ApiError};
use self::decisions::{DecisionRoom, decided_message, to_pressed, to_reply};
use self::events::{
    AUTOMATIC, Accepted, Account, EventMapping, MESSAGE, NOTICE, Surroundings, decide, related,
    to_mapped,
};
use self::position::{EncryptedRooms, Position};
use self::rooms::Rooms;
use self::sync::{Invitation, SyncedRoom, arrival, filter, since_arrival, to_synced};
use crate::chat_replies::{ChatReplies, ReplyMode};
use crate::decisions::{PressSubmitter, show_decisions};
use crate::gateway::{Gateway, span_within};
use crate::http;
use crate::limits::{MATRIX_MISSED_EVENTS_MAX, REPLY_TIMEOUT_MS, SERVICE_TIMEOUT_MS};
use crate::listener::Callbacks;
use crate::payload::{is_allowed, one_line, text, written_to};
use crate::service_api::outbox_marking;

/// Message to an encrypted room.
const ENCRYPTED_TEXT: &str = "I cannot read this room: it is end-to-end encrypted, which goondan \
                              does not support. Please write to me in a room without encryption.";

/// Events of one page of missed messages.
const PAGE_EVENTS: &str = "100";

pub(crate) struct Matrix {
    connection: ConnectionName,
    api: Api,
    /// The only rooms that can be written to; `None` for all.
    written_to: Option<Vec<String>>,
    accepted: Accepted,
    /// People and servers whose invitations are accepted.
    invites_from: Vec<String>,
    reply: ReplyMode,
    sends_notices: bool,
    poll_s: u64,
    /// Room for decisions, if configured.
    approvals: Option<ApprovalChat>,
}

impl Matrix {
    /// Creates a connector from validated settings.
    ///
    /// # Errors
    ///
    /// A description of invalid settings.
    pub(crate) fn new(
        connection: &ConnectionName,
        config: &JsonObject,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let values = Values::of("matrix", config);
        let endpoint = values.text("endpoint").unwrap_or_default();
        let token = secrets.get("accessToken").map_or("", String::as_str);
        Ok(Self {
            connection: connection.clone(),
            api: Api::new(http::service_client()?, endpoint, token)?,
            written_to: written_to(&values, "rooms"),
            accepted: Accepted {
                rooms: values.names("rooms"),
                bots: values.names("bots").unwrap_or_default(),
                reactions: values.truth("reactions"),
                redactions: values.truth("redactions"),
            },
            invites_from: values.names("invitesFrom").unwrap_or_default(),
            reply: ReplyMode::of(&values),
            sends_notices: values.truth("notices"),
            poll_s: values.number("pollSeconds").unwrap_or_default(),
            approvals: ApprovalChat::of("matrix", config),
        })
    }

    /// Polls until the connector accepts no more input, and posts replies until `stop`.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.work(gateway) => {}
        }
    }

    async fn work(self, gateway: Gateway) {
        let account = Arc::new(OnceLock::new());
        let approvals_room = self.approvals.as_ref().map(|it| it.place.clone());
        let actions = Arc::new(Actions {
            api: self.api.clone(),
            account: Arc::clone(&account),
            listed: self.written_to.clone(),
            approvals: approvals_room.clone(),
            sends_notices: self.sends_notices,
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
        let asking = approvals_room.map(|room| {
            let board = DecisionRoom {
                api: self.api.clone(),
                room: room.clone(),
            };
            let (presses, notes) = PressSubmitter::new(gateway.clone());
            (ApprovalReactions { room, presses }, notes, Arc::new(board))
        });
        let reactions = asking.as_ref().map(|(reactions, ..)| reactions.clone());
        let listening = async {
            let stored = Position::load(&gateway).await;
            let mut run = PollingRun {
                matrix: &self,
                gateway: &gateway,
                reactions,
                callbacks,
                known_account: account,
                account: None,
                position: stored.position,
                encrypted: stored.encrypted,
                rooms: Rooms::default(),
                waiting: BTreeMap::new(),
                failures: 0,
                said: None,
            };
            tokio::select! {
                () = intake_over.cancelled() => {}
                () = run.poll_all() => {}
            }
        };
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
}

/// The room for decisions, whose reactions are decisions.
#[derive(Debug, Clone)]
struct ApprovalReactions {
    room: String,
    presses: PressSubmitter,
}

struct PollingRun<'a> {
    matrix: &'a Matrix,
    gateway: &'a Gateway,
    /// Receiver of decisions, if approvals are configured.
    reactions: Option<ApprovalReactions>,
    /// Poster of replies, if configured.
    callbacks: Option<Callbacks>,
    /// The account's ID, for actions.
    known_account: Arc<OnceLock<String>>,
    /// The account, once the homeserver has accepted the token.
    account: Option<Account>,
    /// The position after the last processed answer; `None` before the first start.
    position: Option<Position>,
    /// Encrypted rooms that have the notice about it.
    encrypted: EncryptedRooms,
    rooms: Rooms,
    /// Invitations that are not accepted: the inviter of each room.
    waiting: BTreeMap<String, String>,
    failures: u32,
    said: Option<(bool, String)>,
}

impl PollingRun<'_> {
    async fn poll_all(&mut self) {
        loop {
            let Err(error) = self.news().await else {
                self.failures = 0;
                continue;
            };
            self.failures = self.failures.saturating_add(1);
            let pause = error.pause(self.failures);
            let secret = [self.matrix.api.token()];
            let reason = crate::service::masked(error.to_string(), &secret);
            tracing::warn!(
                reason,
                pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                "failed to poll the homeserver; retrying"
            );
            let detail = format!("{reason}; trying again");
            if matches!(error, ApiError::BadToken { .. }) {
                self.account = None;
                self.said = None;
                let token = Some(TokenVerdict::Declined);
                self.gateway.report_declined(detail, token).await;
            } else {
                self.tell(false, detail).await;
            }
            sleep(pause).await;
        }
    }

    async fn tell(&mut self, is_ready: bool, detail: String) {
        if self.said.as_ref() != Some(&(is_ready, detail.clone())) {
            self.gateway.report(is_ready, detail.clone()).await;
            self.said = Some((is_ready, detail));
        }
    }

    /// The connector's activity, with what a person may have to change.
    fn detail(&self, account: &Account) -> String {
        let mut parts = vec![format!("listening as {}", account.id)];
        let encrypted = self.encrypted.len();
        if encrypted > 0 {
            let rooms = if encrypted == 1 { "room" } else { "rooms" };
            parts.push(format!(
                "{encrypted} {rooms} with end-to-end encryption, which is not supported"
            ));
        }
        if let Some((room, inviter)) = self.waiting.first_key_value() {
            parts.push(format!(
                "{} invitation(s) not accepted, such as that of {inviter} to {room}; see \
                 `invitesFrom`",
                self.waiting.len()
            ));
        }
        parts.join("; ")
    }

    /// The account of the token, with its pending invitations handled.
    async fn account(&mut self) -> Result<Account, ApiError> {
        if let Some(account) = &self.account {
            return Ok(account.clone());
        }
        let api = &self.matrix.api;
        let me = api.get(&["client", "v3", "account", "whoami"], &[]).await?;
        let id = text(&me, "/user_id").unwrap_or_default().to_owned();
        if !id.starts_with('@') {
            let strange = "it names no account for the access token";
            return Err(ApiError::Strange(strange.to_owned()));
        }
        let path = ["client", "v3", "profile", id.as_str(), "displayname"];
        let profile = api.find(&path).await?.unwrap_or_default();
        let name = text(&profile, "/displayname").unwrap_or_default();
        let account = Account {
            name: one_line(name),
            id: id.clone(),
        };
        // Invitations are in one answer only, and a setting can accept them later.
        let filter = filter(false);
        let query = [("filter", filter.as_str()), ("timeout", "0")];
        let answer = api.get(&["client", "v3", "sync"], &query).await?;
        let now = to_synced(&answer, &account.id)?;
        for invitation in now.invitations {
            self.answer_invitation(invitation).await?;
        }
        if self
            .position
            .as_ref()
            .is_none_or(|it| it.user != account.id)
        {
            tracing::info!("messages that arrive from now on become events");
            let position = Position {
                user: account.id.clone(),
                since: now.next,
            };
            self.keep(position).await?;
        }
        // Another account needs a restart, because the token is a setting.
        self.known_account.get_or_init(|| id);
        self.account = Some(account.clone());
        Ok(account)
    }

    async fn keep(&mut self, position: Position) -> Result<(), ApiError> {
        let kept = position.keep(self.gateway).await;
        kept.map_err(ApiError::NotTaken)?;
        self.position = Some(position);
        Ok(())
    }

    /// Requests news once and processes them.
    async fn news(&mut self) -> Result<(), ApiError> {
        let account = self.account().await?;
        let Some(mut position) = self.position.clone() else {
            return Ok(());
        };
        let poll_s = if self.said.as_ref().is_some_and(|(ready, _)| *ready) {
            self.matrix.poll_s
        } else {
            // The first poll, and the first after an error, return immediately to show if the
            // connection works.
            0
        };
        let filter = filter(true);
        let timeout_ms = poll_s.saturating_mul(1_000).to_string();
        let query = [
            ("since", position.since.as_str()),
            ("filter", filter.as_str()),
            ("timeout", timeout_ms.as_str()),
        ];
        let path = ["client", "v3", "sync"];
        let within = Duration::from_millis(SERVICE_TIMEOUT_MS) + Duration::from_secs(poll_s);
        let answered = self.matrix.api.get_within(within, &path, &query).await;
        if let Err(error) = &answered
            && error.is_unknown_position()
        {
            tracing::error!(
                %error,
                "the homeserver does not know the stored position; starting again from now"
            );
            self.position = None;
            self.account = None;
        }
        let answer = answered?;
        let synced = to_synced(&answer, &account.id)?;
        self.tell(true, self.detail(&account)).await;
        let is_empty = synced.rooms.is_empty() && synced.invitations.is_empty();
        for invitation in synced.invitations {
            self.answer_invitation(invitation).await?;
        }
        for room in synced.left {
            self.waiting.remove(&room);
            self.rooms.forget(&room);
        }
        for room in synced.rooms {
            self.waiting.remove(&room.id);
            self.process_room(room, &account, &position.since).await?;
        }
        position.since = synced.next;
        if is_empty {
            // Nothing is lost if the same empty answer comes again.
            self.position = Some(position);
        } else {
            self.keep(position).await?;
        }
        self.tell(true, self.detail(&account)).await;
        Ok(())
    }

    /// Accepts an invitation, if the settings list its sender.
    async fn answer_invitation(&mut self, invitation: Invitation) -> Result<(), ApiError> {
        let Invitation { room, inviter } = invitation;
        let server = inviter.split_once(':').map_or("", |(_, server)| server);
        let from = &self.matrix.invites_from;
        let is_accepted = from.iter().any(|it| *it == inviter || *it == server);
        let is_approvals = self.reactions.as_ref().is_some_and(|it| it.room == room);
        let rooms = self.matrix.accepted.rooms.as_deref();
        if !is_accepted || !(is_approvals || is_allowed(rooms, &room)) {
            tracing::info!(room, inviter, "invitation not accepted");
            if self.waiting.insert(room, inviter).is_none() {
                self.gateway.ignored(IgnoreReason::OtherPlace).await;
            }
            return Ok(());
        }
        let path = ["client", "v3", "rooms", room.as_str(), "join"];
        let joined = self.matrix.api.send(Method::POST, &path, &json!({})).await;
        match joined {
            Ok(_) => {
                tracing::info!(room, inviter, "invitation accepted");
                self.waiting.remove(&room);
                Ok(())
            }
            Err(error @ ApiError::Refused { .. }) => {
                tracing::warn!(room, inviter, %error, "failed to accept an invitation");
                self.waiting.insert(room, inviter);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Processes the news of a room. On success, its events are on disk.
    async fn process_room(
        &mut self,
        room: SyncedRoom,
        account: &Account,
        since: &str,
    ) -> Result<(), ApiError> {
        let SyncedRoom {
            id,
            state,
            mut events,
            gap,
        } = room;
        if let Some(gap) = gap {
            self.rooms.forget(&id);
            if arrival(&events, &account.id).is_none() {
                let mut missed = self.missed(&id, (gap, since), &events).await?;
                missed.append(&mut events);
                events = missed;
            }
        }
        for change in &state {
            self.rooms.apply(&id, change);
        }
        for event in since_arrival(events, &account.id) {
            if event.get("state_key").is_some() {
                self.rooms.apply(&id, &event);
            }
            self.process(&id, &event, account).await?;
        }
        Ok(())
    }

    /// Messages of a room between the two positions, the oldest first.
    async fn missed(
        &self,
        room: &str,
        (mut from, until): (String, &str),
        known: &[Value],
    ) -> Result<Vec<Value>, ApiError> {
        let ids = known.iter().filter_map(|event| text(event, "/event_id"));
        let mut seen: BTreeSet<String> = ids.map(str::to_owned).collect();
        let mut missed = Vec::new();
        while missed.len() < MATRIX_MISSED_EVENTS_MAX {
            let path = ["client", "v3", "rooms", room, "messages"];
            let query = [
                ("dir", "b"),
                ("from", from.as_str()),
                ("to", until),
                ("limit", PAGE_EVENTS),
            ];
            let page = match self.matrix.api.get(&path, &query).await {
                Err(error) if error.is_absent() => {
                    missed.reverse();
                    return Ok(missed);
                }
                page => page?,
            };
            let events = page.get("chunk").and_then(Value::as_array);
            let events = events.map_or(&[][..], Vec::as_slice);
            for event in events {
                let id = text(event, "/event_id").unwrap_or_default();
                if seen.insert(id.to_owned()) {
                    missed.push(event.clone());
                }
            }
            match text(&page, "/end").filter(|end| *end != from) {
                Some(end) if !events.is_empty() => from = end.to_owned(),
                Some(_) | None => {
                    missed.reverse();
                    return Ok(missed);
                }
            }
        }
        tracing::warn!(
            room,
            messages = missed.len(),
            "more messages arrived than are read after a pause; the older ones are skipped"
        );
        missed.reverse();
        Ok(missed)
    }

    /// Processes one event. On success, its event is on disk, or it is passed over.
    async fn process(
        &mut self,
        room_id: &str,
        event: &Value,
        account: &Account,
    ) -> Result<(), ApiError> {
        if self.press(room_id, event, account).await? {
            return Ok(());
        }
        let accepted = &self.matrix.accepted;
        let mapped = match decide(event, room_id, account, accepted) {
            Some(decided) => decided,
            None => {
                let room = self.rooms.find(&self.matrix.api, room_id).await?;
                let found = self.around(room_id, event).await?;
                let around = Surroundings {
                    account,
                    room_id,
                    room: &room,
                    found: &found,
                };
                to_mapped(event, accepted, &around)
            }
        };
        let id = text(event, "/event_id").unwrap_or_default();
        match mapped {
            EventMapping::Own => Ok(()),
            EventMapping::Event { event, is_answered } => {
                self.submit(id, *event, is_answered).await
            }
            EventMapping::Ignored(reason, why) => {
                self.gateway.ignored(reason).await;
                tracing::info!(matrix_event = id, reason = why, "event passed over");
                Ok(())
            }
            EventMapping::Encrypted => {
                self.gateway.ignored(IgnoreReason::Unsupported).await;
                self.decline_encryption(room_id).await
            }
        }
    }

    /// Other events of the room that an event is about.
    async fn around(&self, room: &str, event: &Value) -> Result<BTreeMap<String, Value>, ApiError> {
        let mut found = BTreeMap::new();
        let mut tried = BTreeSet::new();
        loop {
            let mut ids = related(event, &found);
            ids.retain(|id| !tried.contains(id));
            if ids.is_empty() {
                return Ok(found);
            }
            for id in ids {
                if let Some(event) = self.event(room, &id).await? {
                    found.insert(id.clone(), event);
                }
                tried.insert(id);
            }
        }
    }

    /// An event of a room; `None` if it does not exist, or the account must not see it.
    async fn event(&self, room: &str, id: &str) -> Result<Option<Value>, ApiError> {
        if !id.starts_with('$') {
            return Ok(None);
        }
        let path = ["client", "v3", "rooms", room, "event", id];
        match self.matrix.api.find(&path).await {
            // Its ID is not valid.
            Err(ApiError::Refused { status: 400, .. }) => Ok(None),
            found => found,
        }
    }

    /// Submits the decision of a reaction, if it is one. Returns false for other events.
    async fn press(
        &mut self,
        room: &str,
        event: &Value,
        account: &Account,
    ) -> Result<bool, ApiError> {
        let reactions = self.reactions.as_ref().filter(|it| it.room == room);
        let Some(reactions) = reactions.cloned() else {
            return Ok(false);
        };
        if text(event, "/sender") == Some(account.id.as_str()) {
            return Ok(false);
        }
        let reply_timeout = Duration::from_millis(REPLY_TIMEOUT_MS);
        if let Some(reply) = to_reply(event, room)
            && let Some(pressed) = reactions.presses.decided_by(reply).await
        {
            let handed_in = reactions.presses.press(reply_timeout, pressed).await;
            handed_in.map_err(|refused| ApiError::NotTaken(refused.message))?;
            return Ok(true);
        }
        let Some(message) = decided_message(event) else {
            return Ok(false);
        };
        let Some(message) = self.event(room, message).await? else {
            return Ok(false);
        };
        let Some(pressed) = to_pressed(event, &message, (&account.id, room)) else {
            return Ok(false);
        };
        let handed_in = reactions.presses.press(reply_timeout, pressed).await;
        handed_in.map_err(|refused| ApiError::NotTaken(refused.message))?;
        Ok(true)
    }

    /// Tells an encrypted room once that its messages cannot be read.
    async fn decline_encryption(&mut self, room: &str) -> Result<(), ApiError> {
        if self.encrypted.has(room) {
            return Ok(());
        }
        let content = json!({"msgtype": NOTICE, "body": ENCRYPTED_TEXT, "m.mentions": {},
            AUTOMATIC: true});
        let transaction = transaction(&format!("encrypted {room}"));
        let notice = (MESSAGE, transaction.as_str());
        match self.matrix.api.send_event(room, notice, &content).await {
            Ok(_) => {}
            Err(error @ ApiError::Refused { .. }) => {
                tracing::warn!(room, %error, "failed to send the notice that encryption is not supported");
            }
            Err(error) => return Err(error),
        }
        tracing::warn!(room, "the room is encrypted, which is not supported");
        let kept = self.encrypted.add(room, self.gateway).await;
        kept.map_err(ApiError::NotTaken)
    }

    async fn submit(
        &mut self,
        id: &str,
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
        let submitted = self.gateway.submit_within(reply_timeout, event, trace);
        match submitted.await {
            Ok(accepted) => {
                if let Some((replies, place)) = promised {
                    let promise = replies.promise(place, &accepted).await;
                    promise.map_err(ApiError::NotTaken)?;
                }
                tracing::info!(
                    matrix_event = id,
                    event_id = accepted.event_id.as_str(),
                    trace_id = %trace.trace_id,
                    duplicate = accepted.duplicate,
                    "event submitted"
                );
                Ok(())
            }
            Err(refused) => match refused.code {
                RefusalCode::Overloaded | RefusalCode::Unavailable => {
                    Err(ApiError::NotTaken(refused.message))
                }
                RefusalCode::Invalid | RefusalCode::Unroutable | RefusalCode::Damaged => {
                    tracing::warn!(
                        matrix_event = id,
                        reason = refused.message,
                        "event skipped: no rule routes it"
                    );
                    Ok(())
                }
            },
        }
    }
}
