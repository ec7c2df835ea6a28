//! Calls made by the daemon itself. No process and no turn waits for them.

use goondan_protocol::call::{CallError, CallTarget};
use goondan_protocol::ids::{AgentName, InstanceRef};
use serde_json::value::RawValue;

use super::recovery::AttemptRecovery;
use super::{CallState, Calls, OpenCall, Origin};
use crate::fleet::Fleet;
use crate::limits::CALL_DEADLINE_MAX_MS;

/// A call request of the daemon.
#[derive(Debug)]
pub(super) struct DaemonCall {
    pub(super) at: InstanceRef,
    pub(super) agent: AgentName,
    pub(super) target: CallTarget,
    pub(super) method: String,
    pub(super) params: Box<RawValue>,
    pub(super) deadline_ms: u64,
    pub(super) is_idempotent: bool,
}

impl Calls {
    /// Enqueues the call.
    ///
    /// # Errors
    ///
    /// The reason the call cannot be queued.
    pub(super) fn make_for_daemon(
        &mut self,
        fleet: &mut Fleet,
        asked: DaemonCall,
        origin: Origin,
    ) -> Result<(), CallError> {
        let (id, lane) = self.queue_call(fleet, &asked.at, &asked.agent, &asked.target)?;
        let (workspace_id, target) = (asked.at.workspace_id.clone(), asked.target.clone());
        let deadline_ms = asked.deadline_ms.min(CALL_DEADLINE_MAX_MS);
        let call = OpenCall {
            at: asked.at,
            agent: asked.agent,
            event_id: None,
            waiter: None,
            origin,
            lane,
            target: asked.target,
            method: asked.method,
            params: asked.params,
            wants_pieces: false,
            is_idempotent: asked.is_idempotent,
            recovery: AttemptRecovery::default(),
            only_if_ready: false,
            place: None,
            record: None,
            trace: None,
            deadline_ms: fleet.now().mono_ms.saturating_add(deadline_ms),
            held_since_ms: None,
            declined: None,
            not_before_ms: 0,
            asked_ms: fleet.now().mono_ms,
            attempts: 0,
            begun_ms: 0,
            has_streamed: false,
            payers: Vec::new(),
            reserved: None,
            bill: None,
            state: CallState::Waiting,
        };
        self.open.insert(id, call);
        self.serve(fleet, &workspace_id, &target);
        Ok(())
    }
}
