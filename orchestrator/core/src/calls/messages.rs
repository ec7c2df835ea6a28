//! Messages about calls to agents and connectors, and validation of an agent's call requests.

use goondan_config::ProjectConfig;
use goondan_protocol::call::{
    CallError, CallErrorCode, CallId, CallOutcome, CallPlace, CallResult, CallTarget, ModelPiece,
    OutgoingCall,
};
use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::envelope::Address;
use goondan_protocol::ids::{InstanceRef, WorkspaceId};
use goondan_protocol::ipc::{EnvelopeHeader, ToAgent, ToConnector};
use goondan_protocol::trace::TraceContext;
use serde_json::value::{RawValue, to_raw_value};

use super::Credential;
use crate::fleet::conversation::Conversation;
use crate::fleet::turn::ActiveTurn;
use crate::fleet::{Fleet, authority};
use crate::{CoreEffect, ProcessId};

fn address_of(target: &CallTarget) -> Address {
    match target.clone() {
        CallTarget::Model { name } => Address::Model { name },
        CallTarget::Connection { name } => Address::Connector { name },
    }
}

/// Returns the turn of the call, if the agent's process may make this call.
pub(super) fn check_call(
    fleet: &Fleet,
    at: &InstanceRef,
    asked: &OutgoingCall,
) -> Result<ActiveTurn, CallError> {
    let gone = || CallError::new(CallErrorCode::Refused, "the agent has no turn in progress");
    let entry = fleet.conversation(at);
    let (agent, turn) = entry
        .and_then(Conversation::agent_in_turn)
        .ok_or_else(gone)?;
    authority::may_call(agent, turn, asked)?;
    Ok(turn.clone())
}

/// Credential whose limits apply to a call; `None` if no process can execute the call. A connection
/// that was removed from the configuration, and runs only for earlier turns, has separate limits.
pub(super) fn credential_of(
    fleet: &Fleet,
    id: &WorkspaceId,
    target: &CallTarget,
) -> Option<Credential> {
    let listed = fleet
        .bundle(id)
        .and_then(|bundle| credential_in(bundle, target));
    listed.or_else(|| {
        let workspace = fleet.workspaces().get(id);
        let is_run = workspace.is_some_and(|it| it.runs_provider(target));
        is_run.then(|| match target {
            CallTarget::Connection { name } => Credential::Connection(name.clone()),
            CallTarget::Model { name } => Credential::Model(name.clone()),
        })
    })
}

fn credential_in(bundle: &ProjectConfig, target: &CallTarget) -> Option<Credential> {
    match target {
        CallTarget::Connection { name } => {
            let connection = bundle.connections.get(name)?;
            Some(Credential::Connection(connection.name.clone()))
        }
        CallTarget::Model { name } => {
            let model = bundle.models.get(name)?;
            let mut all = bundle.models.values();
            let first = all.find(|other| other.shares_credential_with(model))?;
            Some(Credential::Model(first.name.clone()))
        }
    }
}

pub(super) fn send_provider(
    fleet: &mut Fleet,
    process: ProcessId,
    target: &CallTarget,
    trace: Option<TraceContext>,
    message: ToConnector,
) {
    let head = EnvelopeHeader::new(Address::Orchestrator, address_of(target));
    fleet.cx().emit(CoreEffect::Send {
        process,
        head: EnvelopeHeader { trace, ..head },
        message: Box::new(message.into()),
    });
}

/// Sends the outcome to the waiting agent.
pub(super) fn answer_call(
    fleet: &mut Fleet,
    at: &InstanceRef,
    (process, call_id): (ProcessId, CallId),
    outcome: CallOutcome,
) {
    let result = CallResult {
        call_id,
        outcome,
        looked_back: None,
    };
    if let Some((entry, cx)) = fleet.conversation_and_cx(at) {
        let result = ToAgent::CallResult(result);
        entry.send(cx, at, (process, None), None, result);
    }
}

/// Notifies the watchers of the turn that a fallback model is used (`STEER-5`).
pub(super) fn tell_of_fallback(fleet: &mut Fleet, at: &InstanceRef, asked: &OutgoingCall) {
    let (CallTarget::Model { name }, Some(place)) = (&asked.target, &asked.place) else {
        return;
    };
    let is_first = |(agent, _): (&AgentDefinition, &ActiveTurn)| agent.model.name == *name;
    let entry = fleet.conversation(at);
    if entry
        .and_then(Conversation::agent_in_turn)
        .is_none_or(is_first)
    {
        return;
    }
    let target = asked.target.to_string();
    if let Ok(piece) = to_raw_value(&ModelPiece::Instead { target }) {
        tell_watchers(fleet, at, place, &piece);
    }
}

/// Forwards a piece to the watchers of the turn that the call belongs to.
pub(super) fn tell_watchers(
    fleet: &mut Fleet,
    at: &InstanceRef,
    place: &CallPlace,
    piece: &RawValue,
) {
    let Some((workspace, cx)) = fleet.workspace_and_cx(&at.workspace_id) else {
        return;
    };
    for token in workspace.clients_of_turn(cx, at, &place.turn_id) {
        cx.emit(CoreEffect::Piece {
            token,
            place: Box::new(place.clone()),
            piece: piece.to_owned(),
        });
    }
}
