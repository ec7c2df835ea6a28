//! Calls to authorization servers. No process and no turn waits for them.

use goondan_protocol::call::{CallError, CallErrorCode, CallOutcome, CallTarget};
use goondan_protocol::ids::{AgentName, InstanceKey, InstanceRef, WorkspaceId};
use goondan_protocol::oauth::OAUTH;

use super::internal_calls::DaemonCall;
use super::{Calls, Origin};
use crate::bus::queue::Message;
use crate::exchange::oauth_calls::{OAuthCall, OAuthCallResult};
use crate::fleet::Fleet;

/// Queue key of such calls.
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
    /// Enqueues a call to an authorization server.
    pub(crate) fn on_oauth_call(&mut self, fleet: &mut Fleet, asked: OAuthCall) {
        let OAuthCall { ticket, method, .. } = asked;
        let made = place_in(&asked.workspace_id).and_then(|(at, agent, target)| {
            let call = DaemonCall {
                at,
                agent,
                target,
                method: method.to_owned(),
                params: asked.params,
                deadline_ms: asked.deadline_ms,
                is_idempotent: asked.is_idempotent,
            };
            self.make_for_daemon(fleet, call, Origin::OAuth(ticket))
        });
        if let Err(error) = made {
            fleet.post(Message::OAuthCallDone(OAuthCallResult {
                ticket,
                method: method.to_owned(),
                outcome: CallOutcome::Error(error),
            }));
        }
    }
}
