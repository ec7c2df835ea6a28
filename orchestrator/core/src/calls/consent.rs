//! Calls that wait for a user's login at an authorization server (`SYS-4`).
//!
//! Such a call keeps its place in the queue of its credential, and its turn stays open. Like any
//! turn in progress, the turn is durable and resumes after a daemon restart. The call starts when a
//! token is available.

use goondan_protocol::call::{CallTarget, ModelPiece};
use goondan_protocol::ids::InstanceRef;
use serde_json::value::to_raw_value;

use super::messages::tell_watchers;
use super::token_rejection::consent_to_more;
use super::{CallState, Calls};
use crate::LogEvent;
use crate::fleet::Fleet;

impl Calls {
    /// Stops the timeout of calls that wait for a login, and reports each needed login once to the
    /// turn's watchers.
    pub(super) fn hold_for_consent(&mut self, fleet: &mut Fleet) {
        let now_ms = fleet.now().mono_ms;
        let mut begun = Vec::new();
        for call in self.open.values_mut() {
            let is_waiting = matches!(call.state, CallState::Waiting);
            let lacking = is_waiting.then(|| {
                let workspace = fleet.workspaces().get(&call.at.workspace_id);
                let lacking = workspace.and_then(|it| it.lacking(&call.target));
                lacking.or_else(|| consent_to_more(fleet, call))
            });
            let lacking = lacking.flatten();
            match (lacking, call.held_since_ms) {
                (Some(need), None) => {
                    call.held_since_ms = Some(now_ms);
                    begun.push((call.at.clone(), call.place.clone(), call.trace, need));
                }
                (None, Some(since_ms)) => {
                    let held_ms = now_ms.saturating_sub(since_ms);
                    call.deadline_ms = call.deadline_ms.saturating_add(held_ms);
                    call.held_since_ms = None;
                }
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        for (at, place, trace, need) in begun {
            let event = LogEvent::warn("turn waits for consent").of(&at);
            let event = event.with("app", need.app.as_str());
            let event = event.with("subject", need.subject.as_str());
            fleet.log(event.in_trace(trace));
            let waits = ModelPiece::Consent {
                need: need.to_string(),
                command: format!("gdn secret oauth login {}", need.arguments()),
            };
            if let (Some(place), Ok(piece)) = (place, to_raw_value(&waits)) {
                tell_watchers(fleet, &at, &place, &piece);
            }
        }
    }

    /// Targets of a conversation's queued calls.
    pub(super) fn targets_waited_for(&self, at: &InstanceRef) -> Vec<CallTarget> {
        let waiting = self
            .open
            .values()
            .filter(|call| call.at == *at && matches!(call.state, CallState::Waiting));
        waiting.map(|call| call.target.clone()).collect()
    }
}
