//! E-mail: messages to a mailbox, by IMAP, and answers by SMTP.
//!
//! The mailbox keeps all messages. The UID of the last processed one is stored with the connection,
//! after its event is on disk; a message that is read again has the same event (`MSG-13`).
//!
//! * `message`: from a message to an event; `guard`, `quotes`, `authentication`, `thread`: its parts.
//!   Pure.
//! * `mailbox`: the stored position, and the key of proofs.
//! * `imap`, `smtp`: clients; `stream`, `login`: their connections and login.
//! * `actions`: actions of agents.

mod actions;
mod authentication;
mod guard;
mod imap;
mod login;
mod mailbox;
mod message;
mod quotes;
mod smtp;
mod stream;
mod thread;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use goondan_clock::sleep;
use goondan_connectors::Values;
use goondan_protocol::JsonObject;
use goondan_protocol::call::TokenVerdict;
use goondan_protocol::event::ConnectorEvent;
use goondan_protocol::ids::ConnectionName;
use goondan_protocol::ignored_messages::IgnoreReason;
use goondan_protocol::ipc::RefusalCode;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use self::actions::Actions;
use self::imap::{FetchedMessage, Imap, ImapError};
use self::login::Login;
use self::mailbox::{Mailbox, Position, ProofKey, pause};
use self::message::{Accepted, Mail, Place, to_mail};
use self::stream::MailServer;
use self::thread::is_address;
use crate::chat_replies::{ChatReplies, ReplyMode};
use crate::gateway::{Gateway, span_within};
use crate::http::install_cryptography;
use crate::limits::{REPLY_TIMEOUT_MS, SERVICE_BACK_OFF_MAX_MS};
use crate::listener::Callbacks;
use crate::service_api::outbox_marking;

pub(crate) struct Email {
    connection: ConnectionName,
    imap: MailServer,
    /// Server for outgoing messages, if configured.
    smtp: Option<MailServer>,
    login: Login,
    display_name: Option<String>,
    send_to: Vec<String>,
    accepted: Accepted,
    marks_seen: bool,
    reply: ReplyMode,
    poll: Duration,
}

impl Email {
    /// Creates a connector from validated settings.
    ///
    /// # Errors
    ///
    /// A description of settings that do not fit together.
    pub(crate) fn new(
        connection: &ConnectionName,
        config: &JsonObject,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let values = Values::of("email", config);
        let address = values.text("address").unwrap_or_default().to_owned();
        if !is_address(&address) {
            return Err("`address` is not an e-mail address of ASCII letters".to_owned());
        }
        install_cryptography();
        let tls = Arc::new(goondan_outbound::client_config());
        let smtp = match config.get("smtp") {
            Some(_) => Some(MailServer::of(&values.map("smtp"), smtp::PORTS, &tls)?),
            None => None,
        };
        Ok(Self {
            connection: connection.clone(),
            imap: MailServer::of(&values.map("imap"), imap::PORTS, &tls)?,
            smtp,
            login: Login::of(values.text("user").unwrap_or(&address), secrets)?,
            display_name: values.text("displayName").map(str::to_owned),
            send_to: values.names("sendTo").unwrap_or_default(),
            accepted: Accepted {
                address,
                folder: values.text("folder").unwrap_or_default().to_owned(),
                from: values.names("from"),
                verified_by: values.text("requireAuthentication").map(str::to_owned),
            },
            marks_seen: values.truth("markSeen"),
            reply: ReplyMode::of(&values),
            poll: Duration::from_secs(values.number("pollSeconds").unwrap_or_default()),
        })
    }

    /// Reads the mailbox until the connector accepts no more input, and sends replies until `stop`.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.work(gateway) => {}
        }
    }

    async fn work(self, gateway: Gateway) {
        let Mailbox { position, key } = Mailbox::load(&gateway).await;
        let actions = Arc::new(Actions {
            imap: self.imap.clone(),
            smtp: self.smtp.clone(),
            login: self.login.clone(),
            address: self.accepted.address.clone(),
            display_name: self.display_name.clone(),
            folder: self.accepted.folder.clone(),
            send_to: self.send_to.clone(),
            key: key.clone(),
        });
        let (callbacks, worker) = match self.reply {
            ReplyMode::Auto | ReplyMode::Always if self.smtp.is_some() => {
                let connection = self.connection.clone();
                let replies = ChatReplies::new(Arc::clone(&actions), connection, self.reply);
                let (callbacks, worker) = Callbacks::new(replies);
                (Some(callbacks), Some(worker))
            }
            ReplyMode::Auto | ReplyMode::Always | ReplyMode::Never => (None, None),
        };
        let answered = callbacks.as_ref().map(Callbacks::answered);
        gateway.serve(outbox_marking(&actions, answered)).await;
        let intake_over = gateway.intake_over();
        let reading = async {
            let mut reader = MailboxReader {
                email: &self,
                gateway: &gateway,
                callbacks,
                key,
                position,
                imap: None,
                failures: 0,
                said: None,
            };
            tokio::select! {
                () = intake_over.cancelled() => {}
                () = reader.read() => {}
            }
        };
        let replying = async {
            match worker {
                Some(worker) => worker.run(gateway.clone()).await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(reading, replying);
    }
}

/// Reason why the mailbox cannot be read further.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Imap(#[from] ImapError),
    /// The event or the position is not stored.
    #[error("{0}")]
    NotTaken(String),
}

struct MailboxReader<'a> {
    email: &'a Email,
    gateway: &'a Gateway,
    /// Sender of replies, if configured.
    callbacks: Option<Callbacks>,
    key: ProofKey,
    /// The last processed message; `None` before the first connection.
    position: Option<Position>,
    /// The open session, with the folder selected.
    imap: Option<Imap>,
    failures: u32,
    said: Option<(bool, String)>,
}

impl MailboxReader<'_> {
    async fn read(&mut self) {
        loop {
            let Err(error) = self.news().await else {
                self.failures = 0;
                continue;
            };
            self.imap = None;
            self.failures = self.failures.saturating_add(1);
            let is_declined = matches!(error, ReadError::Imap(ImapError::Login(_)));
            let pause = if is_declined {
                Duration::from_millis(SERVICE_BACK_OFF_MAX_MS)
            } else {
                pause(self.failures)
            };
            let secret = [self.email.login.secret()];
            let reason = crate::service::masked(error.to_string(), &secret);
            tracing::warn!(
                reason,
                pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                "failed to read the mailbox; retrying"
            );
            let detail = format!("{reason}; trying again");
            if is_declined {
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

    /// Waits for new messages, and processes them.
    async fn news(&mut self) -> Result<(), ReadError> {
        let mut imap = match self.imap.take() {
            Some(mut imap) => {
                imap.wait(self.email.poll).await?;
                imap
            }
            None => self.open().await?,
        };
        let Accepted {
            folder, address, ..
        } = &self.email.accepted;
        self.tell(true, format!("reading {folder} of {address}"))
            .await;
        let last = self.position.as_ref().map_or(0, |position| position.uid);
        for uid in imap.above(last).await? {
            self.process(&mut imap, uid).await?;
        }
        self.imap = Some(imap);
        Ok(())
    }

    /// Connects, and finds the position in the folder.
    async fn open(&mut self) -> Result<Imap, ReadError> {
        let email = self.email;
        let mut imap = Imap::open(&email.imap, &email.login).await?;
        let name = &email.accepted.folder;
        let folder = imap.select(name, email.marks_seen).await?;
        let known = self.position.as_ref().filter(|it| it.folder == *name);
        if known.is_some_and(|known| known.uid_validity == folder.uid_validity) {
            return Ok(imap);
        }
        let newest = folder.uid_next.saturating_sub(1);
        let uid = match known {
            // The server has numbered all messages again.
            Some(known) => {
                let day = known.day_before();
                let since = imap.since(&day).await?;
                tracing::warn!(
                    folder = name,
                    since = day,
                    messages = since.len(),
                    "the folder was recreated; reading its latest messages again"
                );
                since
                    .first()
                    .map_or(newest, |first| first.saturating_sub(1))
            }
            None => {
                tracing::info!(
                    folder = name,
                    "messages that arrive from now on become events"
                );
                newest
            }
        };
        let position = Position {
            folder: name.clone(),
            uid_validity: folder.uid_validity,
            uid,
            at_s: known.map_or_else(|| Timestamp::now().as_second(), |known| known.at_s),
        };
        self.keep(position).await?;
        Ok(imap)
    }

    async fn keep(&mut self, position: Position) -> Result<(), ReadError> {
        let kept = position.keep(self.gateway).await;
        kept.map_err(ReadError::NotTaken)?;
        self.position = Some(position);
        Ok(())
    }

    /// Processes one message. On success, its event is on disk or the message is passed over, and
    /// the position is stored.
    async fn process(&mut self, imap: &mut Imap, uid: u32) -> Result<(), ReadError> {
        let Some(mut position) = self.position.clone() else {
            return Ok(());
        };
        let place = Place {
            uid_validity: position.uid_validity,
            uid,
        };
        let mail = match imap.fetch(uid).await? {
            FetchedMessage::Message(raw) => Some(self.understand(&raw, place)),
            FetchedMessage::TooLarge { bytes } => {
                tracing::info!(uid, bytes, "message is too large");
                Some(Mail::Ignored(IgnoreReason::Unsupported, "it is too large"))
            }
            FetchedMessage::Gone => None,
        };
        let mut is_event = false;
        match mail {
            Some(Mail::Event(event)) => is_event = self.submit(uid, *event).await?,
            Some(Mail::Ignored(reason, why)) => {
                self.gateway.ignored(reason).await;
                tracing::info!(uid, reason = why, "message passed over");
            }
            None => {}
        }
        position.uid = uid;
        position.at_s = Timestamp::now().as_second();
        self.keep(position).await?;
        if is_event && self.email.marks_seen {
            imap.mark_seen(uid).await?;
        }
        Ok(())
    }

    /// Maps a message to an event. A message that the parser cannot survive is passed over, because
    /// it would be read again after every restart.
    fn understand(&self, raw: &[u8], place: Place) -> Mail {
        let mapped = AssertUnwindSafe(|| to_mail(raw, place, &self.email.accepted, &self.key));
        std::panic::catch_unwind(mapped).unwrap_or_else(|_panic| {
            Mail::Ignored(IgnoreReason::Unsupported, "its structure is broken")
        })
    }

    /// Submits an event. Returns false if no rule matches it.
    async fn submit(&mut self, uid: u32, event: ConnectorEvent) -> Result<bool, ReadError> {
        let trace = span_within(None, uuid::Uuid::now_v7());
        let promised = match &self.callbacks {
            None => None,
            Some(replies) => {
                let full = || ReadError::NotTaken("too many replies are pending".to_owned());
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
                    promise.map_err(ReadError::NotTaken)?;
                }
                tracing::info!(
                    uid,
                    event_id = accepted.event_id.as_str(),
                    trace_id = %trace.trace_id,
                    duplicate = accepted.duplicate,
                    "message submitted"
                );
                Ok(true)
            }
            Err(refused) => match refused.code {
                RefusalCode::Overloaded | RefusalCode::Unavailable => {
                    Err(ReadError::NotTaken(refused.message))
                }
                RefusalCode::Invalid | RefusalCode::Unroutable | RefusalCode::Damaged => {
                    tracing::warn!(
                        uid,
                        reason = refused.message,
                        "message skipped: no rule routes it"
                    );
                    Ok(false)
                }
            },
        }
    }
}
