//! Tool calls that wait for a person, shown in a chat with buttons (`STEER-3`).
//!
//! What waits, and whether a button counts, is the orchestrator's to say. Here it is brought into a chat and told to
//! whoever pressed, by the [`Board`] of the service. A service that is down holds up nobody: it is tried again, and
//! what was decided elsewhere meanwhile is never posted.
//!
//! * `desk`: what is shown where, and what is to be done about it. Pure.
//! * `wording`: what the messages say. Pure.
//!
//! # Invariants
//!
//! * What an agent wrote is never mark-up, and no message shows a part of a call with a button that approves it.
//! * Where a message is, is kept before the next one is posted: a process that is killed in between posts one call twice,
//!   and a button of either message counts.

mod desk;
mod wording;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Fuse;
use goondan_clock::{Instant, sleep, sleep_until};
use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::ids::ApprovalId;
use goondan_protocol::ipc::EventRefused;
use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::desk::{Desk, Work};
use crate::back_off::back_off;
use crate::gateway::Gateway;
use crate::limits::{
    APPROVAL_NOTES_WAITING_MAX, SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS,
};
use crate::listener::Pressed;

/// One message in a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// What it is about, in words of ours.
    pub(crate) head: String,
    /// What an agent and people wrote, which is shown as it is and means nothing to the service.
    pub(crate) body: String,
    /// The buttons below it, while it waits.
    pub(crate) buttons: Option<Buttons>,
}

/// The buttons below a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Buttons {
    /// What they decide about.
    pub(crate) approval_id: ApprovalId,
    /// Whether one of them approves it.
    pub(crate) may_approve: bool,
}

impl Buttons {
    /// What the buttons decide, each with what stands on it.
    pub(crate) fn offered(&self) -> impl Iterator<Item = (ApprovalDecision, &'static str)> {
        let approve = self
            .may_approve
            .then_some((ApprovalDecision::Approved, "Approve"));
        let deny = (ApprovalDecision::Denied, "Deny");
        approve.into_iter().chain([deny])
    }
}

/// Parameters of a request to a service, with more fields.
pub(crate) fn with<const N: usize>(mut params: Value, fields: [(&str, Value); N]) -> Value {
    if let Some(params) = params.as_object_mut() {
        params.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    }
    params
}

/// Why a message did not get where it was to be.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// In words without secrets.
    pub(crate) reason: String,
    /// It is of no use to try again: the message is gone, say.
    pub(crate) is_final: bool,
    /// How long the service asks to be left alone, in milliseconds.
    pub(crate) retry_after_ms: Option<u64>,
}

/// A chat service, as far as it shows what waits.
pub(crate) trait Board: Send + Sync + 'static {
    /// Posts a message, and says where it is, in words that [`Self::edit`] understands.
    fn post(&self, message: &Message) -> impl Future<Output = Result<String, Trouble>> + Send;

    /// Makes another message of one that was posted.
    fn edit(
        &self,
        place: &str,
        message: &Message,
    ) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Tells somebody who pressed a button, and nobody else. `to` is what the service needs for that.
    fn tell(&self, to: &str, text: &str) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// A button that was pressed, and what came of it.
#[derive(Debug)]
struct Note {
    approval_id: ApprovalId,
    /// The message that the button belongs to.
    place: String,
    /// Whom to tell.
    to: String,
    /// What whoever pressed is told.
    told: String,
    /// What became of the call, if it waits no more.
    how: Option<String>,
}

/// Hands in what people press. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Presses {
    gateway: Gateway,
    notes: mpsc::Sender<Note>,
}

/// What [`show`] hears of the buttons that were pressed.
#[derive(Debug)]
pub(crate) struct Notes(mpsc::Receiver<Note>);

impl Presses {
    /// The way in for what people press, and the other end of it.
    pub(crate) fn new(gateway: Gateway) -> (Self, Notes) {
        let (notes, receiver) = mpsc::channel(APPROVAL_NOTES_WAITING_MAX);
        (Self { gateway, notes }, Notes(receiver))
    }

    /// Somebody pressed a button. What came of it is durable when this ends well; whoever pressed is told later.
    ///
    /// # Errors
    ///
    /// [`EventRefused`] if it is not known what came of it: handing it in again does no harm.
    pub(crate) async fn press(
        &self,
        reply_timeout: Duration,
        pressed: Pressed,
    ) -> Result<(), EventRefused> {
        let Pressed { press, place, to } = pressed;
        let (approval_id, decision) = (press.approval_id.clone(), press.decision);
        let verdict = self.gateway.press_within(reply_timeout, press).await?;
        tracing::info!(
            approval_id = approval_id.as_str(),
            decision = decision.as_str(),
            ?verdict,
            "button handed in"
        );
        let note = Note {
            approval_id,
            place,
            to,
            told: wording::verdict(&verdict),
            how: wording::settled(&verdict),
        };
        // With so many that wait, this one's answer is what the message says.
        drop(self.notes.try_send(note));
        Ok(())
    }
}

/// What came of a piece of work.
enum Done {
    Posted(ApprovalId, String),
    Edited(String),
    Told,
    Failed(Work, Trouble),
}

async fn perform<B: Board>(board: Arc<B>, work: Work) -> Done {
    let result = match &work {
        Work::Post(id, message) => {
            let posted = board.post(message).await;
            posted.map(|place| Done::Posted(id.clone(), place))
        }
        Work::Edit(place, message) => {
            let edited = board.edit(place, message).await;
            edited.map(|()| Done::Edited(place.clone()))
        }
        Work::Tell(to, text) => board.tell(to, text).await.map(|()| Done::Told),
    };
    result.unwrap_or_else(|trouble| Done::Failed(work, trouble))
}

/// Shows what waits until `stop`.
pub(crate) async fn show<B: Board>(
    board: Arc<B>,
    gateway: Gateway,
    notes: Notes,
    stop: CancellationToken,
) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = show_all(board, gateway, notes) => {}
    }
}

/// Never ends while there is a session.
async fn show_all<B: Board>(board: Arc<B>, gateway: Gateway, Notes(mut notes): Notes) {
    let mut desk = remembered(&gateway).await;
    let Some(mut news) = gateway.follow(desk.known()).await else {
        return;
    };
    let mut failures = 0_u32;
    let mut open_at = Instant::now();
    let mut doing = pin!(Fuse::terminated());
    let mut is_busy = false;
    loop {
        let is_open = Instant::now() >= open_at;
        if !is_busy && let Some(work) = desk.begin(is_open) {
            doing.set(perform(Arc::clone(&board), work).fuse());
            is_busy = true;
        }
        tokio::select! {
            told = news.recv() => match told {
                Some(told) => desk.hear(told),
                None => return,
            },
            Some(note) = notes.recv() => desk.note(note),
            done = doing.as_mut(), if is_busy => {
                is_busy = false;
                match done {
                    Done::Told => {}
                    Done::Failed(Work::Tell(..), trouble) => {
                        tracing::debug!(reason = trouble.reason, "could not tell who pressed");
                    }
                    Done::Failed(work, trouble) => {
                        let gives_up = desk.failed(&work, trouble.is_final);
                        tracing::warn!(
                            reason = trouble.reason,
                            gives_up,
                            "cannot show people a tool call that waits for them"
                        );
                        if gives_up {
                            keep(&gateway, &desk).await;
                        } else {
                            failures = failures.saturating_add(1);
                            let least = trouble.retry_after_ms.unwrap_or_default();
                            let least = Duration::from_millis(least);
                            open_at = Instant::now() + least.max(pause(failures));
                        }
                    }
                    Done::Posted(id, place) => {
                        failures = 0;
                        desk.posted(&id, place);
                        keep(&gateway, &desk).await;
                    }
                    Done::Edited(place) => {
                        failures = 0;
                        desk.edited(&place);
                        keep(&gateway, &desk).await;
                    }
                }
            }
            () = sleep_until(open_at), if !is_open => {}
        }
    }
}

fn pause(failures: u32) -> Duration {
    back_off(failures, SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS)
}

/// What was shown before this process began; asked for as long as it takes.
async fn remembered(gateway: &Gateway) -> Desk {
    let mut failures = 0_u32;
    loop {
        match gateway.state().await {
            Ok(state) => return Desk::of(state.as_deref()),
            Err(reason) => {
                tracing::warn!(reason, "cannot read what is shown; trying again");
                failures = failures.saturating_add(1);
                sleep(pause(failures)).await;
            }
        }
    }
}

/// Keeps what is shown where. Without that the next process posts it again.
async fn keep(gateway: &Gateway, desk: &Desk) {
    let kept = match to_raw_value(&desk.kept()) {
        Ok(raw) => gateway.keep(raw).await,
        Err(error) => Err(error.to_string()),
    };
    if let Err(reason) = kept {
        tracing::warn!(reason, "cannot keep where tool calls are shown");
    }
}
