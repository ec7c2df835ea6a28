//! Calls made for tasks. No process and no turn waits for them.

use goondan_protocol::call::{CallError, CallErrorCode, CallOutcome, CallTarget};
use goondan_protocol::ids::{InstanceKey, InstanceRef};
use goondan_protocol::task::TASK_KEY_PREFIX;

use super::internal_calls::DaemonCall;
use super::{Calls, Origin};
use crate::bus::queue::Message;
use crate::exchange::TaskRef;
use crate::exchange::task_calls::{TaskCall, TaskCallResult};
use crate::fleet::Fleet;

/// Queue key of a task's calls, also used for their usage.
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
    /// Enqueues a call for a task.
    pub(crate) fn on_task_call(&mut self, fleet: &mut Fleet, asked: TaskCall) {
        let of = asked.of.clone();
        let made = place_of(of.at()).and_then(|at| {
            let call = DaemonCall {
                at,
                agent: asked.agent,
                target: CallTarget::Connection {
                    name: asked.connection,
                },
                method: asked.request.method,
                params: asked.request.params,
                deadline_ms: asked.deadline_ms,
                is_idempotent: asked.is_idempotent,
            };
            self.make_for_daemon(fleet, call, Origin::Task(asked.of))
        });
        if let Err(error) = made {
            let outcome = CallOutcome::Error(error);
            fleet.post(Message::TaskCallDone(TaskCallResult { of, outcome }));
        }
    }
}
