//! Turns whose agent wrote to the chat of their event with a tool. Their reply would repeat it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use goondan_protocol::trace::TraceId;
use tokio::sync::{mpsc, oneshot};

use crate::limits::REQUESTS_IN_FLIGHT_MAX;

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
#[derive(Debug, Clone)]
pub(crate) struct AnsweredTurns {
    open: Arc<Mutex<HashMap<TraceId, OpenTurn>>>,
    marked: mpsc::Sender<oneshot::Sender<()>>,
}

impl AnsweredTurns {
    /// No turns, and the requests to store new marks, each answered once that was tried.
    pub(super) fn new() -> (Self, mpsc::Receiver<oneshot::Sender<()>>) {
        let (marked, requests) = mpsc::channel(REQUESTS_IN_FLIGHT_MAX);
        let open = Arc::default();
        (Self { open, marked }, requests)
    }

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

    /// Records that an agent wrote to a place in the turn with this trace. Returns once the mark is
    /// stored, so that no reply repeats a message whose result the agent knows.
    pub(crate) async fn wrote(&self, trace_id: TraceId, place: &str) {
        if !self.mark(trace_id, place) {
            return;
        }
        let (kept, stored) = oneshot::channel();
        if self.marked.send(kept).await.is_ok() {
            // Without an answer the connector is stopping.
            stored.await.ok();
        }
    }

    /// True if there is such a turn.
    fn mark(&self, trace_id: TraceId, place: &str) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = open.get(&trace_id).filter(|turn| turn.place == place);
        let mark = turn.and_then(|turn| turn.mark.upgrade());
        if let Some(mark) = &mark {
            mark.store(true, Ordering::SeqCst);
        }
        mark.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conn_2_only_a_message_to_the_same_chat_marks_its_turn() {
        let (turns, _requests) = AnsweredTurns::new();
        let trace = |byte| TraceId::from_random([byte; 16]);
        let mark = turns.begin(trace(1), Some("-5".to_owned()));
        assert!(!turns.mark(trace(1), "-6") && !turns.mark(trace(2), "-5"));
        assert!(!mark.is_set());
        assert!(turns.mark(trace(1), "-5"));
        assert!(mark.is_set());
        drop(mark);
        let other = turns.begin(trace(3), Some("-5".to_owned()));
        assert_eq!(turns.open.lock().unwrap().len(), 1);
        assert!(!other.is_set());
    }

    #[tokio::test]
    async fn conn_2_a_call_returns_once_its_mark_is_stored() {
        let (turns, mut requests) = AnsweredTurns::new();
        let trace = TraceId::from_random([1; 16]);
        let mark = turns.begin(trace, Some("-5".to_owned()));
        let mut wrote = std::pin::pin!(turns.wrote(trace, "-5"));
        let request = tokio::select! {
            () = &mut wrote => panic!("it returned before the mark was stored"),
            request = requests.recv() => request.unwrap(),
        };
        assert!(mark.is_set());
        request.send(()).unwrap();
        wrote.await;
        // At a stop nobody stores it.
        drop(requests);
        turns.wrote(trace, "-5").await;
    }
}
