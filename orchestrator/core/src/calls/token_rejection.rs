//! Calls whose token was rejected or lacks permissions (`SYS-4`). They had no effect and are
//! retried with another token.
//!
//! [`goondan_oauth::OAuthMachine`] decides how to replace the token. Until then the call keeps its
//! place in the queue of its credential, and it never uses the same token twice.

use goondan_oauth::RejectionOutcome;
use goondan_protocol::call::{CallError, CallId, CallOutcome, TokenVerdict};
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::oauth::OAuthNeed;

use super::{CallState, Calls, OpenCall, ProcessId};
use crate::LogEvent;
use crate::bus::queue::Message;
use crate::exchange::oauth_calls::{TokenReport, Tokens};
use crate::fleet::{Fleet, ProcessOwner};

/// Reason a call waits for another token.
#[derive(Debug)]
pub(super) struct TokenRejection {
    tokens: Tokens,
    /// True if a user must grant more permissions.
    is_for_more: bool,
    /// Error returned to the waiter if no other token arrives in time.
    pub(super) error: CallError,
}

/// True if a process has the same tokens that were rejected for this call.
pub(super) fn runs_with_declined(fleet: &Fleet, call: &OpenCall, process: ProcessId) -> bool {
    call.declined.as_ref().is_some_and(|declined| {
        let tokens = fleet.view().tokens_of(process).map(|(_, tokens)| tokens);
        tokens == Some(&declined.tokens)
    })
}

/// The login needed for more permissions, while the token is unchanged.
pub(super) fn consent_to_more(fleet: &Fleet, call: &OpenCall) -> Option<OAuthNeed> {
    let declined = call.declined.as_ref().filter(|it| it.is_for_more)?;
    let need = declined.tokens.keys().next()?;
    let workspace = fleet.workspaces().get(&call.at.workspace_id);
    let is_same = workspace.is_some_and(|it| it.tokens.has(&declined.tokens));
    is_same.then(|| need.clone())
}

/// Reports that a token is valid after a call succeeded.
pub(super) fn note_verdict(fleet: &mut Fleet, process: ProcessId, outcome: &CallOutcome) {
    if let (CallOutcome::Ok(_), Some((id, tokens))) = (outcome, fleet.view().tokens_of(process)) {
        let report = TokenReport {
            call: None,
            process,
            workspace_id: id.clone(),
            tokens: tokens.clone(),
            said: None,
        };
        fleet.post(Message::Token(Box::new(report)));
    }
}

impl Calls {
    /// Handles the rejection of a connection's token at startup. False if its token does not come
    /// from an authorization server, because then no replacement exists.
    pub(crate) fn is_declined_start(
        &self,
        fleet: &mut Fleet,
        process: ProcessId,
        said: &TokenVerdict,
    ) -> bool {
        let Some((id, tokens)) = fleet.view().tokens_of(process) else {
            return false;
        };
        let report = TokenReport {
            call: None,
            process,
            workspace_id: id.clone(),
            tokens: tokens.clone(),
            said: Some(said.clone()),
        };
        fleet.post(Message::Token(Box::new(report)));
        true
    }

    /// Makes a failed call wait for another token, if the failure was caused by its token.
    ///
    /// # Errors
    ///
    /// Returns the error if another token would not help, or if a part of the answer was delivered.
    pub(super) fn hold_for_token(
        &mut self,
        fleet: &mut Fleet,
        id: CallId,
        process: ProcessId,
        error: CallError,
    ) -> Result<(), CallError> {
        let call = self.open.get_mut(&id).filter(|call| !call.has_streamed);
        let (Some(call), Some(said)) = (call, error.token.as_deref().cloned()) else {
            return Err(error);
        };
        // With several tokens, the one that lacks permissions is unknown.
        let is_of_one = |tokens: &Tokens| said == TokenVerdict::Declined || tokens.len() == 1;
        let tokens = fleet.view().tokens_of(process);
        let Some((workspace_id, tokens)) = tokens.filter(|(_, tokens)| is_of_one(tokens)) else {
            return Err(error);
        };
        call.declined = Some(TokenRejection {
            tokens: tokens.clone(),
            is_for_more: false,
            error,
        });
        let report = TokenReport {
            call: Some(id),
            process,
            workspace_id: workspace_id.clone(),
            tokens: tokens.clone(),
            said: Some(said),
        };
        fleet.post(Message::Token(Box::new(report)));
        self.put_back(id, 0);
        Ok(())
    }

    /// Applies the ruling on a verdict.
    pub(crate) fn on_ruling(
        &mut self,
        fleet: &mut Fleet,
        verdict: &TokenReport,
        ruling: RejectionOutcome,
    ) {
        if let (None, Some(_), RejectionOutcome::Stays { why, .. }) =
            (verdict.call, &verdict.said, &ruling)
        {
            if let Some(ProcessOwner::Connector(id, name)) =
                fleet.owner_of(verdict.process).cloned()
                && let Some((connector, _)) = fleet.connector_and_cx(&id, &name)
            {
                connector.stays_declined(why);
            }
            return;
        }
        let Some(call) = verdict.call.and_then(|id| self.open.get_mut(&id)) else {
            return;
        };
        let Some(declined) = &mut call.declined else {
            return;
        };
        match ruling {
            RejectionOutcome::OtherToken => {
                let event = LogEvent::info("outgoing call waits for a new token").of(&call.at);
                let event = event.with("target", call.target.to_string());
                fleet.log(event.in_trace(call.trace));
            }
            RejectionOutcome::Consent => declined.is_for_more = true,
            RejectionOutcome::Stays { why, suggestion } => {
                let mut error = declined.error.clone();
                error.message = format!("{}; {why}", error.message);
                error.suggestion = suggestion.or(error.suggestion);
                if let Some(id) = verdict.call {
                    self.end_call(fleet, id, CallOutcome::Error(error));
                }
            }
        }
    }

    /// Logins that must be renewed with more permissions before a conversation's calls can start.
    pub(super) fn consents_to_more(&self, at: &InstanceRef) -> Vec<OAuthNeed> {
        let waiting = self
            .open
            .values()
            .filter(|call| call.at == *at && matches!(call.state, CallState::Waiting));
        let needs = waiting.filter_map(|call| {
            let declined = call.declined.as_ref().filter(|it| it.is_for_more)?;
            declined.tokens.keys().next().cloned()
        });
        needs.collect()
    }
}
