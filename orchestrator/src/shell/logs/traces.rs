//! The traces that a child's log lines may belong to (`SEC-7`).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use goondan_protocol::ipc::ChildRole;
use goondan_protocol::trace::{TraceContext, TraceId};

use crate::limits::AGENT_TRACES_REMEMBERED;

#[derive(Debug)]
pub(in crate::shell) struct Traces {
    /// The trace of lines outside any turn.
    own: TraceId,
    /// True for a connector, which creates the traces of its events. An agent receives those of its
    /// turns.
    may_name_any: bool,
    turns: Mutex<Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    current: Option<TraceId>,
    /// Traces of recent turns, because a line can be read after its turn.
    recent: VecDeque<TraceId>,
}

impl Traces {
    /// The traces of a child with its own trace `own`.
    pub(in crate::shell) fn new(own: TraceId, role: ChildRole) -> Self {
        Self {
            own,
            may_name_any: role != ChildRole::Agent,
            turns: Mutex::default(),
        }
    }

    /// Sets the trace of the turn in progress, if any.
    pub(in crate::shell) fn set(&self, trace: Option<TraceContext>) {
        let mut turns = self.turns();
        turns.current = trace.map(|trace| trace.trace_id);
        if let Some(trace) = trace {
            turns.recent.retain(|known| *known != trace.trace_id);
            turns.recent.push_back(trace.trace_id);
            if turns.recent.len() > AGENT_TRACES_REMEMBERED {
                turns.recent.pop_front();
            }
        }
    }

    /// The trace of a line without a valid trace.
    pub(super) fn current(&self) -> TraceId {
        self.turns().current.unwrap_or(self.own)
    }

    /// True if a line may name this trace.
    pub(super) fn knows(&self, trace: TraceId) -> bool {
        self.may_name_any || trace == self.own || self.turns().recent.contains(&trace)
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> TraceId {
        TraceId::from_random([byte; 16])
    }

    fn context(byte: u8) -> TraceContext {
        let id = id(byte);
        TraceContext::from_traceparent(&format!("00-{id}-00f067aa0ba902b7-01")).unwrap()
    }

    #[test]
    fn sec_7_agent_may_name_only_the_traces_of_its_own_turns() {
        let traces = Traces::new(id(1), ChildRole::Agent);
        assert!(traces.knows(id(1)) && !traces.knows(id(2)));
        traces.set(Some(context(2)));
        assert_eq!(traces.current(), id(2));
        traces.set(None);
        assert_eq!(traces.current(), id(1));
        // Its lines from the turn may be read later.
        assert!(traces.knows(id(2)));
        for byte in 3..=200 {
            traces.set(Some(context(byte)));
        }
        assert!(traces.knows(id(200)) && !traces.knows(id(2)));
    }

    #[test]
    fn a_connector_names_the_traces_of_its_requests() {
        let traces = Traces::new(id(1), ChildRole::Connector);
        assert!(traces.knows(id(9)));
    }
}
