//! Turns whose agent wrote to the chat of their event with a tool. Their reply would repeat it.
//!
//! A mark belongs to an event, not to a trace: an event can be submitted again under another trace,
//! and an agent can write before this process has received the event, or its acknowledgment.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use goondan_protocol::ids::{ConnectionName, EventId};
use goondan_protocol::namespace::event_id_within;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::limits::{EARLY_WRITES_MAX, REQUESTS_IN_FLIGHT_MAX};

/// Set once the agent of a turn has written to the chat.
#[derive(Debug, Clone, Default)]
pub(crate) struct TurnMark(Arc<AtomicBool>);

impl TurnMark {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A turn that may still answer, with the chat of its event.
#[derive(Debug)]
struct OpenTurn {
    place: String,
    /// Gone once the reply of the turn was delivered.
    mark: Weak<AtomicBool>,
}

/// A message of an agent in a turn whose reply is not pending here yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EarlyWrite {
    event_id: EventId,
    place: String,
}

#[derive(Debug, Default)]
struct Turns {
    /// By the id under which the orchestrator stores the event.
    open: HashMap<EventId, OpenTurn>,
    /// The latest ones, oldest first.
    early: VecDeque<EarlyWrite>,
}

/// Open turns by their event. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct AnsweredTurns {
    /// `None` if no agent can write to a chat of the connection.
    connection: Option<ConnectionName>,
    turns: Arc<Mutex<Turns>>,
    changed: mpsc::Sender<oneshot::Sender<()>>,
}

impl AnsweredTurns {
    /// No turns, and the requests to store changes, each answered once that was tried.
    pub(super) fn new(
        connection: Option<ConnectionName>,
    ) -> (Self, mpsc::Receiver<oneshot::Sender<()>>) {
        let (changed, requests) = mpsc::channel(REQUESTS_IN_FLIGHT_MAX);
        let turns = Arc::default();
        let answered = Self {
            connection,
            turns,
            changed,
        };
        (answered, requests)
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id under which the orchestrator stores an event of this connection.
    fn stored_id(&self, event_id: &EventId) -> Option<EventId> {
        event_id_within(self.connection.as_ref()?, event_id).ok()
    }

    /// Adds the turn of an event from this place, before it can begin. An event that is handed in
    /// again has the mark that it had.
    pub(super) fn begin(&self, event_id: Option<&EventId>, place: Option<String>) -> TurnMark {
        let event_id = event_id.and_then(|event_id| self.stored_id(event_id));
        let (Some(event_id), Some(place)) = (event_id, place) else {
            return TurnMark::default();
        };
        let mut turns = self.turns();
        let known = turns.open.get(&event_id);
        if let Some(mark) = known.and_then(|turn| turn.mark.upgrade()) {
            return TurnMark(mark);
        }
        let mark = TurnMark::default();
        let is_early = |early: &EarlyWrite| early.event_id == event_id && early.place == place;
        if turns.early.iter().any(is_early) {
            mark.set();
        }
        turns.open.retain(|_, turn| turn.mark.strong_count() > 0);
        let turn = OpenTurn {
            place,
            mark: Arc::downgrade(&mark.0),
        };
        turns.open.insert(event_id, turn);
        mark
    }

    /// Records that an agent wrote to a place in the turn of this event, as the orchestrator names
    /// it. Returns once that is stored, so that no reply repeats a message whose result the agent
    /// knows.
    pub(crate) async fn wrote(&self, event_id: &EventId, place: &str) {
        if !self.mark(event_id, place) {
            return;
        }
        let (kept, stored) = oneshot::channel();
        if self.changed.send(kept).await.is_ok() {
            // Without an answer the connector is stopping.
            stored.await.ok();
        }
    }

    /// True if there is something to store.
    fn mark(&self, event_id: &EventId, place: &str) -> bool {
        // Turns of other connections have no reply here.
        if self.stored_id(event_id).as_ref() != Some(event_id) {
            return false;
        }
        let mut turns = self.turns();
        if let Some(turn) = turns.open.get(event_id)
            && let Some(mark) = turn.mark.upgrade()
        {
            let is_home = turn.place == place;
            mark.fetch_or(is_home, Ordering::SeqCst);
            return is_home;
        }
        let early = EarlyWrite {
            event_id: event_id.clone(),
            place: place.to_owned(),
        };
        if turns.early.contains(&early) {
            return true;
        }
        if turns.early.len() >= EARLY_WRITES_MAX {
            turns.early.pop_front();
        }
        turns.early.push_back(early);
        true
    }

    /// Messages in turns whose reply is not pending yet, to be stored.
    pub(super) fn early(&self) -> VecDeque<EarlyWrite> {
        self.turns().early.clone()
    }

    /// Adds the messages that earlier processes stored.
    pub(super) fn load_early(&self, stored: VecDeque<EarlyWrite>) {
        let mut turns = self.turns();
        for early in stored.into_iter().rev() {
            if turns.early.len() < EARLY_WRITES_MAX && !turns.early.contains(&early) {
                turns.early.push_front(early);
            }
        }
    }

    /// Forgets the messages in the turn of an event whose reply is over.
    pub(super) fn end(&self, event_id: &EventId) {
        if let Some(event_id) = self.stored_id(event_id) {
            let mut turns = self.turns();
            turns.early.retain(|early| early.event_id != event_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns() -> (AnsweredTurns, mpsc::Receiver<oneshot::Sender<()>>) {
        AnsweredTurns::new(Some("bot".parse().unwrap()))
    }

    fn id(text: &str) -> EventId {
        text.parse().unwrap()
    }

    fn home() -> Option<String> {
        Some("-5".to_owned())
    }

    #[test]
    fn conn_2_only_a_message_to_the_same_chat_marks_its_turn() {
        let (turns, _requests) = turns();
        let mark = turns.begin(Some(&id("1")), home());
        assert!(!turns.mark(&id("bot:1"), "-6"));
        assert!(!turns.mark(&id("hook:1"), "-5"));
        assert!(!mark.is_set());
        assert!(turns.mark(&id("bot:1"), "-5"));
        assert!(mark.is_set());
        drop(mark);
        let other = turns.begin(Some(&id("3")), home());
        assert_eq!(turns.turns().open.len(), 1);
        assert!(!other.is_set());
    }

    #[test]
    fn conn_2_an_event_handed_in_again_keeps_its_mark() {
        let (turns, _requests) = turns();
        let first = turns.begin(Some(&id("1")), home());
        let again = turns.begin(Some(&id("bot:1")), home());
        drop(first);
        assert!(turns.mark(&id("bot:1"), "-5"));
        assert!(again.is_set());
    }

    #[test]
    fn conn_2_a_message_before_its_event_is_known_marks_the_turn() {
        let (before, _requests) = turns();
        assert!(before.mark(&id("bot:1"), "-5"));
        assert!(before.mark(&id("bot:2"), "-6"));
        // A process that ends here has stored it.
        let (turns, _requests) = turns();
        turns.load_early(before.early());
        assert_eq!(turns.early(), before.early());
        assert!(turns.begin(Some(&id("1")), home()).is_set());
        assert!(!turns.begin(Some(&id("2")), home()).is_set());
        turns.end(&id("1"));
        assert_eq!(turns.early().len(), 1);

        for number in 0..=EARLY_WRITES_MAX {
            turns.mark(&id(&format!("bot:many-{number}")), "-5");
        }
        assert_eq!(turns.early().len(), EARLY_WRITES_MAX);
    }

    #[tokio::test]
    async fn conn_2_a_call_returns_once_its_mark_is_stored() {
        let (turns, mut requests) = turns();
        let mark = turns.begin(Some(&id("1")), home());
        let event_id = id("bot:1");
        let mut wrote = std::pin::pin!(turns.wrote(&event_id, "-5"));
        let request = tokio::select! {
            () = &mut wrote => panic!("it returned before the mark was stored"),
            request = requests.recv() => request.unwrap(),
        };
        assert!(mark.is_set());
        request.send(()).unwrap();
        wrote.await;
        // A stopping connector does not store it.
        drop(requests);
        turns.wrote(&event_id, "-5").await;
    }
}
