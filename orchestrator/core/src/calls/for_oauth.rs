//! Calls by which authorization servers are asked: nobody's process waits for them, and no turn.

use goondan_protocol::call::{CallError, CallErrorCode, CallOutcome, CallTarget};
use goondan_protocol::ids::{AgentName, InstanceKey, InstanceRef, WorkspaceId};
use goondan_protocol::oauth::OAUTH;

use super::{CallState, Calls, OpenCall, Origin};
use crate::fleet::Fleet;
use crate::oauth::{OAuthCall, OAuthCalled};

/// Under which name such calls wait their turn.
fn place_in(workspace_id: &WorkspaceId) -> Result<(InstanceRef, AgentName, CallTarget), CallError> {
    let internal = |error: &dyn std::fmt::Display| {
        CallError::new(CallErrorCode::Unavailable, error.to_string())
    };
    let at = InstanceRef {
        workspace_id: workspace_id.clone(),
        instance_key: InstanceKey::new(OAUTH).map_err(|error| internal(&error))?,
    };
    let agent = AgentName::new(OAUTH).map_err(|error| internal(&error))?;
    let name = OAUTH.parse().map_err(|error| internal(&error))?;
    Ok((at, agent, CallTarget::Connection { name }))
}

impl Calls {
    /// An authorization server is to be asked.
    pub(crate) fn on_oauth_call(&mut self, fleet: &mut Fleet, asked: OAuthCall) {
        let queued = place_in(&asked.workspace_id).and_then(|(at, agent, target)| {
            let (id, lane) = self.queue_call(fleet, &at, &agent, &target)?;
            Ok((at, agent, target, id, lane))
        });
        let (at, agent, target, id, lane) = match queued {
            Ok(queued) => queued,
            Err(error) => {
                return self.done_for_oauth.push(OAuthCalled {
                    ticket: asked.ticket,
                    method: asked.method.to_owned(),
                    outcome: CallOutcome::Error(error),
                });
            }
        };
        let workspace_id = at.workspace_id.clone();
        let call = OpenCall {
            at,
            agent,
            waiter: None,
            origin: Origin::OAuth(asked.ticket),
            lane,
            target: target.clone(),
            method: asked.method.to_owned(),
            params: asked.params,
            wants_pieces: false,
            is_idempotent: asked.is_idempotent,
            place: None,
            record: None,
            trace: None,
            deadline_ms: fleet.now().mono_ms.saturating_add(asked.deadline_ms),
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

    /// What came of such calls since this was last asked.
    pub(crate) fn take_done_for_oauth(&mut self) -> Vec<OAuthCalled> {
        std::mem::take(&mut self.done_for_oauth)
    }
}
