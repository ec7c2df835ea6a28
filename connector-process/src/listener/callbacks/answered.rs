//! Turns whose agent wrote to the chat of their event with a tool. Their reply would repeat it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use goondan_protocol::trace::TraceId;
use tokio::sync::Notify;

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

/// Open turns by their trace. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnsweredTurns {
    open: Arc<Mutex<HashMap<TraceId, OpenTurn>>>,
    changed: Arc<Notify>,
}

impl AnsweredTurns {
    /// Adds the turn of an event from this place, before it can begin.
    pub(super) fn begin(&self, trace_id: TraceId, place: Option<String>) -> TurnMark {
        let mark = TurnMark::default();
        if let Some(place) = place {
            let turn = OpenTurn {
                place,
                mark: Arc::downgrade(&mark.0),
            };
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.retain(|_, turn| turn.mark.strong_count() > 0);
            open.insert(trace_id, turn);
        }
        mark
    }

    /// Records that an agent wrote to a place in the turn with this trace.
    pub(crate) fn wrote(&self, trace_id: TraceId, place: &str) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = open.get(&trace_id).filter(|turn| turn.place == place);
        if let Some(mark) = turn.and_then(|turn| turn.mark.upgrade()) {
            mark.store(true, Ordering::SeqCst);
            self.changed.notify_one();
        }
    }

    /// Waits until a turn was marked.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_2_only_a_message_to_the_same_chat_marks_its_turn() {
        let turns = AnsweredTurns::default();
        let trace = |byte| TraceId::from_random([byte; 16]);
        let mark = turns.begin(trace(1), Some("-5".to_owned()));
        turns.wrote(trace(1), "-6");
        turns.wrote(trace(2), "-5");
        assert!(!mark.is_set());
        turns.wrote(trace(1), "-5");
        assert!(mark.is_set());
        drop(mark);
        let other = turns.begin(trace(3), Some("-5".to_owned()));
        assert_eq!(turns.open.lock().unwrap().len(), 1);
        assert!(!other.is_set());
    }
}
