//! Persistent state of connections. Operations on one connection run one at a time in order, so an
//! older value never overwrites a newer one.

use std::collections::VecDeque;

use goondan_protocol::ids::{ConnectionName, WorkspaceId};
use goondan_protocol::ipc::{State, StateKept, StateRefused, ToConnector};

use crate::CoreEffect;
use crate::bus::context::Cx;
use crate::exchange::{ChildRequest, StateResult, StateWork};

/// Maximum number of queued operations of a connection. A process sends one at a time, so more come
/// from exited processes or a faulty one.
const WAITING_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct StateQueue {
    under_way: Option<ChildRequest>,
    waiting: VecDeque<(ChildRequest, StateWork)>,
}

impl StateQueue {
    /// Queues an operation of the connection's process.
    pub(super) fn add(
        &mut self,
        cx: &mut Cx,
        whose: (&WorkspaceId, &ConnectionName),
        request: ChildRequest,
        work: StateWork,
    ) {
        if self.waiting.len() >= WAITING_MAX {
            let message =
                format!("{WAITING_MAX} requests for the connection's state are already waiting");
            let refused = ToConnector::StateRefused(StateRefused { message });
            return cx.answer_connector(request, refused);
        }
        self.waiting.push_back((request, work));
        self.begin_next(cx, whose);
    }

    fn begin_next(&mut self, cx: &mut Cx, (id, name): (&WorkspaceId, &ConnectionName)) {
        if self.under_way.is_some() {
            return;
        }
        let Some((request, work)) = self.waiting.pop_front() else {
            return;
        };
        self.under_way = Some(request);
        cx.emit(CoreEffect::ConnectionState {
            workspace_id: id.clone(),
            connection: name.clone(),
            work,
        });
    }

    /// Handles the result of an operation.
    pub(super) fn on_done(
        &mut self,
        cx: &mut Cx,
        whose: (&WorkspaceId, &ConnectionName),
        result: Result<StateResult, String>,
    ) {
        if let Some(request) = self.under_way.take() {
            let answer = match result {
                Ok(StateResult::Found(state)) => ToConnector::State(State { state }),
                Ok(StateResult::Kept) => ToConnector::StateKept(StateKept {}),
                Err(message) => ToConnector::StateRefused(StateRefused { message }),
            };
            cx.answer_connector(request, answer);
        }
        self.begin_next(cx, whose);
    }
}
