//! Calls that are made for tasks: nobody's process waits for them, and no turn.

use goondan_protocol::call::{CallError, CallErrorCode, CallOutcome, CallTarget};
use goondan_protocol::ids::{InstanceKey, InstanceRef};

use super::{CallState, Calls, OpenCall, Origin};
use crate::exchange::TaskRef;
use crate::exchange::task_calls::{TaskCall, TaskCalled};
use crate::fleet::Fleet;
use crate::limits::CALL_DEADLINE_MAX_MS;

/// What such calls are said to be of, in place of a conversation.
const TASK_KEY_PREFIX: &str = "task:";

/// Under which name the calls of a task wait their turn, and what it took is put down.
pub(super) fn place_of(at: &TaskRef) -> Result<InstanceRef, CallError> {
    let key = format!("{TASK_KEY_PREFIX}{}", at.task_id);
    match InstanceKey::new(&key) {
        Ok(instance_key) => Ok(InstanceRef {
            workspace_id: at.workspace_id.clone(),
            instance_key,
        }),
        Err(error) => Err(CallError::new(CallErrorCode::Internal, error.to_string())),
    }
}

impl Calls {
    /// A task wants something done outside.
    pub(crate) fn on_task_call(&mut self, fleet: &mut Fleet, asked: TaskCall) {
        let target = CallTarget::Connection {
            name: asked.connection,
        };
        let queued = place_of(&asked.of.at).and_then(|at| {
            let (id, lane) = self.queue_call(fleet, &at, &asked.agent, &target)?;
            Ok((at, id, lane))
        });
        let (at, id, lane) = match queued {
            Ok(queued) => queued,
            Err(error) => {
                let (of, outcome) = (asked.of, CallOutcome::Error(error));
                return self.done_for_tasks.push(TaskCalled { of, outcome });
            }
        };
        let workspace_id = at.workspace_id.clone();
        let deadline_ms = asked.deadline_ms.min(CALL_DEADLINE_MAX_MS);
        let call = OpenCall {
            at,
            agent: asked.agent,
            waiter: None,
            origin: Origin::Task(asked.of),
            lane,
            target: target.clone(),
            method: asked.request.method,
            params: asked.request.params,
            wants_pieces: false,
            is_idempotent: asked.is_idempotent,
            place: None,
            record: None,
            trace: None,
            deadline_ms: fleet.now().mono_ms.saturating_add(deadline_ms),
            held_since_ms: None,
            not_before_ms: 0,
            attempts: 0,
            has_streamed: false,
            payers: Vec::new(),
            reserved: None,
            bill: None,
            state: CallState::Waiting,
        };
        self.open.insert(id, call);
        self.serve(fleet, &workspace_id, &target);
    }

    /// What came of calls for tasks since this was last asked.
    pub(crate) fn take_done_for_tasks(&mut self) -> Vec<TaskCalled> {
        std::mem::take(&mut self.done_for_tasks)
    }
}
