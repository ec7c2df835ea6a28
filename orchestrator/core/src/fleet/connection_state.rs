//! Persistent state of connections. Operations on one connection run one at a time in order, so an
//! older value never overwrites a newer one.

use std::collections::VecDeque;

use goondan_protocol::ids::{ConnectionName, WorkspaceId};
use goondan_protocol::ipc::{State, StateKept, StateRefused, ToConnector};

use super::Fleet;
use crate::CoreEffect;
use crate::exchange::{ProcessId, StateResult, StateWork};

/// Maximum number of queued operations of a connection. A process sends one at a time, so more come
/// from exited processes or a faulty one.
const WAITING_MAX: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Requester {
    process: ProcessId,
    request_id: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct StateQueue {
    under_way: Option<Requester>,
    waiting: VecDeque<(Requester, StateWork)>,
}

impl Fleet {
    pub(crate) fn on_state_work(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        process: ProcessId,
        request_id: Option<u64>,
        work: StateWork,
    ) {
        let requester = Requester {
            process,
            request_id,
        };
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        let queue = &mut connector.state;
        if queue.waiting.len() >= WAITING_MAX {
            let message =
                format!("{WAITING_MAX} requests for the connection's state are already waiting");
            let refused = ToConnector::StateRefused(StateRefused { message });
            return self.answer_connector(process, request_id, refused);
        }
        queue.waiting.push_back((requester, work));
        self.pump_state(id, name);
    }

    fn pump_state(&mut self, id: &WorkspaceId, name: &ConnectionName) {
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        let queue = &mut connector.state;
        if queue.under_way.is_some() {
            return;
        }
        let Some((requester, work)) = queue.waiting.pop_front() else {
            return;
        };
        queue.under_way = Some(requester);
        self.cx.emit(CoreEffect::ConnectionState {
            workspace_id: id.clone(),
            connection: name.clone(),
            work,
        });
    }

    pub(crate) fn on_state_done(
        &mut self,
        id: &WorkspaceId,
        name: &ConnectionName,
        result: Result<StateResult, String>,
    ) {
        let Some(connector) = self.connector_mut(id, name) else {
            return;
        };
        if let Some(requester) = connector.state.under_way.take() {
            let answer = match result {
                Ok(StateResult::Found(state)) => ToConnector::State(State { state }),
                Ok(StateResult::Kept) => ToConnector::StateKept(StateKept {}),
                Err(message) => ToConnector::StateRefused(StateRefused { message }),
            };
            self.answer_connector(requester.process, requester.request_id, answer);
        }
        self.pump_state(id, name);
    }
}
