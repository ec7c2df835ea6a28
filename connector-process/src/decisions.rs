//! Decisions that wait for people, shown in a chat with buttons: approvals of tool calls
//! (`STEER-3`), questions and reviews (`NEED-2`).
//!
//! The orchestrator decides what waits and whether a button press counts. This module posts each
//! decision to a chat and reports the result to the user who pressed a button or replied to the
//! message, through the [`Board`] of the service. An unavailable service blocks nothing: posting is
//! retried, and a decision that was made elsewhere in the meantime is never posted.
//!
//! * `poller`: tracks the posted messages and decides the next action. Pure.
//! * `texts`: texts of the messages. Pure.
//!
//! # Invariants
//!
//! * Text written by an agent is never interpreted as markup, and a message that shows only part of
//!   a call, a question or a review can at most be refused there.
//! * The location of a message is stored before the next one is posted. A process killed in between
//!   posts one decision twice, and the buttons of both messages count.

mod poller;
mod texts;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Fuse;
use goondan_clock::{Instant, sleep_until};
use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::decision::{DecisionAnswer, DecisionButton, DecisionChoice, DecisionPress};
use goondan_protocol::ids::DecisionId;
use goondan_protocol::ipc::{EventRefused, RefusalCode};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::poller::{DecisionAction, DecisionPoller};
use crate::back_off::back_off;
use crate::gateway::Gateway;
use crate::limits::{
    DECISION_NOTES_WAITING_MAX, SERVICE_BACK_OFF_FIRST_MS, SERVICE_BACK_OFF_MAX_MS,
};
use crate::listener::{ButtonPress, RequestRejection};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its subject, in our words.
    pub(crate) head: String,
    /// Meaning of a reply with text, as an infinitive, if one is accepted.
    pub(crate) reply: Option<String>,
    /// Text from an agent and people, shown verbatim and never interpreted by the service.
    pub(crate) body: String,
    /// Its buttons, while the decision waits.
    pub(crate) buttons: Option<Buttons>,
}

impl Message {
    /// Its subject, and how a text is entered, such as `Reply to this message to`.
    pub(crate) fn headline(&self, how: &str) -> String {
        match &self.reply {
            Some(reply) => format!("{} {how} {reply}.", self.head),
            None => self.head.clone(),
        }
    }
}

/// Buttons below a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Buttons {
    /// The decision that they make.
    pub(crate) decision_id: DecisionId,
    pub(crate) choices: Vec<DecisionChoice>,
}

impl Buttons {
    /// The answers of the buttons, with their labels.
    pub(crate) fn offered(&self) -> impl Iterator<Item = (DecisionButton, &str)> {
        let choices = self.choices.iter();
        choices.map(|choice| (choice.answer, choice.label.as_str()))
    }

    /// The buttons of a tool call.
    #[cfg(test)]
    pub(crate) fn of_call(decision_id: &str, may_approve: bool) -> Self {
        let choice = |answer, label: &str| DecisionChoice {
            answer,
            label: label.to_owned(),
        };
        let approve = choice(DecisionButton::Approve, "Approve");
        let approve = Some(approve).filter(|_| may_approve);
        let deny = choice(DecisionButton::Deny, "Deny");
        Self {
            decision_id: decision_id.parse().unwrap(),
            choices: approve.into_iter().chain([deny]).collect(),
        }
    }
}

/// Locations of the messages that a reply decides, with their decisions; `None` until the messages
/// of earlier processes are loaded.
type ReplyPlaces = Option<HashMap<String, DecisionId>>;

/// Adds fields to the parameters of a request to a service.
pub(crate) fn with<const N: usize>(mut params: Value, fields: [(&str, Value); N]) -> Value {
    if let Some(params) = params.as_object_mut() {
        params.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    }
    params
}

/// Reason why the service rejected a message.
#[derive(Debug)]
pub(crate) struct MessageRejection {
    /// Description without secrets.
    pub(crate) reason: String,
    /// True if retrying is pointless, for example because the message was deleted.
    pub(crate) is_final: bool,
    /// Delay that the service requests before the next request, in milliseconds.
    pub(crate) retry_after_ms: Option<u64>,
}

impl From<CallError> for MessageRejection {
    fn from(error: CallError) -> Self {
        Self {
            is_final: matches!(
                error.code,
                CallErrorCode::NotFound
                    | CallErrorCode::Refused
                    | CallErrorCode::Invalid
                    | CallErrorCode::TooLarge
            ),
            retry_after_ms: error.retry_after_ms,
            reason: error.message,
        }
    }
}

/// The operations of a chat service that decisions need.
pub(crate) trait Board: Send + Sync + 'static {
    /// Posts a message and returns its location, in the format that [`Self::edit`] accepts.
    fn post(
        &self,
        message: &Message,
    ) -> impl Future<Output = Result<String, MessageRejection>> + Send;

    /// Replaces the contents of a posted message.
    fn edit(
        &self,
        place: &str,
        message: &Message,
    ) -> impl Future<Output = Result<(), MessageRejection>> + Send;

    /// Sends a notice only to the user who pressed a button. `to` identifies the user for the
    /// service.
    fn tell(
        &self,
        to: &str,
        text: &str,
    ) -> impl Future<Output = Result<(), MessageRejection>> + Send;
}

/// A button press and its result.
#[derive(Debug)]
struct Note {
    decision_id: DecisionId,
    /// Location of the button's message.
    place: String,
    to: String,
    /// Message shown to the user who pressed the button.
    told: String,
    /// Outcome of the decision, if it no longer waits.
    how: Option<String>,
}

/// Submits button presses. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct PressSubmitter {
    gateway: Gateway,
    notes: mpsc::Sender<Note>,
    places: watch::Receiver<ReplyPlaces>,
}

/// Results of button presses, for [`show_decisions`], and the locations that it reports.
#[derive(Debug)]
pub(crate) struct Notes(mpsc::Receiver<Note>, watch::Sender<ReplyPlaces>);

/// A message that may be a reply to one of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChatReply {
    /// Location of the message that it answers.
    pub(crate) place: String,
    pub(crate) user: String,
    pub(crate) text: String,
    /// The user, for a notice.
    pub(crate) to: String,
}

impl PressSubmitter {
    /// Creates the submitter of button presses and the receiver of their results.
    pub(crate) fn new(gateway: Gateway) -> (Self, Notes) {
        let (notes, receiver) = mpsc::channel(DECISION_NOTES_WAITING_MAX);
        let (sender, places) = watch::channel(None);
        let submitter = Self {
            gateway,
            notes,
            places,
        };
        (submitter, Notes(receiver, sender))
    }

    /// The decision that a reply makes, if it answers one of our messages that accept replies. Waits
    /// until the messages of earlier processes are known.
    pub(crate) async fn decided_by(&self, reply: ChatReply) -> Option<ButtonPress> {
        let mut places = self.places.clone();
        let places = places.wait_for(Option::is_some).await.ok()?;
        reply.pressed(places.as_ref()?)
    }

    /// As [`Self::decided_by`], without waiting.
    ///
    /// # Errors
    ///
    /// [`EventRefused`] if the messages of earlier processes are not known yet.
    pub(crate) fn decided_now(
        &self,
        reply: ChatReply,
    ) -> Result<Option<ButtonPress>, EventRefused> {
        match self.places.borrow().as_ref() {
            Some(places) => Ok(reply.pressed(places)),
            None => Err(EventRefused::new(
                RefusalCode::Unavailable,
                "the connector is starting".to_owned(),
            )),
        }
    }

    /// Submits a button press. Its result is durable when this returns; the user is notified later.
    ///
    /// # Errors
    ///
    /// [`EventRefused`] if the result is unknown; submitting the press again is harmless.
    pub(crate) async fn press(
        &self,
        reply_timeout: Duration,
        pressed: ButtonPress,
    ) -> Result<(), EventRefused> {
        let ButtonPress { press, place, to } = pressed;
        let decision_id = press.decision_id.clone();
        let verdict = self.gateway.press_within(reply_timeout, press).await?;
        tracing::info!(
            decision_id = decision_id.as_str(),
            ?verdict,
            "button press submitted"
        );
        let note = Note {
            decision_id,
            place,
            to,
            told: texts::verdict(&verdict),
            how: texts::settled(&verdict),
        };
        // If the queue is full, the notice is dropped, and only the message itself shows the
        // result.
        drop(self.notes.try_send(note));
        Ok(())
    }
}

/// Submits a button press of a request. Without a submitter, the connection shows no decisions.
///
/// # Errors
///
/// [`RequestRejection`] if the press is not known to be submitted.
pub(crate) async fn submit_press(
    presses: Option<PressSubmitter>,
    reply_timeout: Duration,
    pressed: ButtonPress,
) -> Result<(), RequestRejection> {
    let presses = presses.ok_or(RequestRejection::NotFound)?;
    let submitted = presses.press(reply_timeout, pressed).await;
    submitted.map_err(RequestRejection::ByOrchestrator)
}

impl ChatReply {
    fn pressed(self, places: &HashMap<String, DecisionId>) -> Option<ButtonPress> {
        let decision_id = places.get(&self.place)?.clone();
        let text = self.text.trim();
        (!text.is_empty()).then(|| ButtonPress {
            press: DecisionPress {
                decision_id,
                answer: DecisionAnswer::Text(text.to_owned()),
                user: self.user,
            },
            place: self.place,
            to: self.to,
        })
    }
}

enum DecisionActionResult {
    Posted(DecisionId, String),
    Edited(String),
    Updated(String),
    Told,
    Failed(DecisionAction, MessageRejection),
}

async fn perform<B: Board>(board: Arc<B>, work: DecisionAction) -> DecisionActionResult {
    let result = match &work {
        DecisionAction::Post(id, message) => {
            let posted = board.post(message).await;
            posted.map(|place| DecisionActionResult::Posted(id.clone(), place))
        }
        DecisionAction::Edit(place, message) => {
            let edited = board.edit(place, message).await;
            edited.map(|()| DecisionActionResult::Edited(place.clone()))
        }
        DecisionAction::Update(place, message) => {
            let edited = board.edit(place, message).await;
            edited.map(|()| DecisionActionResult::Updated(place.clone()))
        }
        DecisionAction::Tell(to, text) => board
            .tell(to, text)
            .await
            .map(|()| DecisionActionResult::Told),
    };
    result.unwrap_or_else(|trouble| DecisionActionResult::Failed(work, trouble))
}

/// Shows the waiting decisions until `stop`.
pub(crate) async fn show_decisions<B: Board>(
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

/// Runs for as long as the session exists.
async fn show_all<B: Board>(board: Arc<B>, gateway: Gateway, Notes(mut notes, places): Notes) {
    let mut desk = remembered(&gateway).await;
    places.send_replace(Some(desk.reply_places()));
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
                    DecisionActionResult::Told => {}
                    DecisionActionResult::Failed(DecisionAction::Tell(..), trouble) => {
                        tracing::debug!(reason = trouble.reason, "failed to notify the user who pressed a button");
                    }
                    DecisionActionResult::Failed(work, trouble) => {
                        let gives_up = desk.failed(&work, trouble.is_final);
                        tracing::warn!(
                            reason = trouble.reason,
                            gives_up,
                            "failed to show a waiting decision"
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
                    DecisionActionResult::Posted(id, place) => {
                        failures = 0;
                        desk.posted(&id, place);
                        places.send_replace(Some(desk.reply_places()));
                        keep(&gateway, &desk).await;
                    }
                    DecisionActionResult::Updated(place) => {
                        failures = 0;
                        desk.updated(&place);
                    }
                    DecisionActionResult::Edited(place) => {
                        failures = 0;
                        desk.edited(&place);
                        places.send_replace(Some(desk.reply_places()));
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

/// Loads the messages posted by earlier processes; retries until it succeeds.
async fn remembered(gateway: &Gateway) -> DecisionPoller {
    let state = gateway.state_at_last("shown decisions").await;
    DecisionPoller::of(state.as_deref())
}

/// Stores the locations of the messages. Without them, the next process posts the decisions again.
async fn keep(gateway: &Gateway, desk: &DecisionPoller) {
    if let Err(reason) = gateway.keep_fields(&desk.kept()).await {
        tracing::warn!(reason, "failed to store where decisions are shown");
    }
}
