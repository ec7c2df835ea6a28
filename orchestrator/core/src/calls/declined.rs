//! Calls whose token the other side does not take, or which allows too little (`SYS-4`): they did nothing, and are made
//! again once there is another token.
//!
//! What follows for the token, [`goondan_oauth::Machine`] decides. A call keeps its place in its lane meanwhile; it is
//! not made with the same token twice.

use goondan_oauth::Ruling;
use goondan_protocol::call::{CallError, CallId, CallOutcome, TokenVerdict};
use goondan_protocol::ids::InstanceRef;
use goondan_protocol::oauth::OAuthNeed;

use super::{CallState, Calls, OpenCall, ProcessId};
use crate::LogEvent;
use crate::exchange::oauth_calls::{SaidOfTokens, Tokens};
use crate::fleet::Fleet;

/// Why a call waits for another token.
#[derive(Debug)]
pub(super) struct Declined {
    /// With what it was made.
    tokens: Tokens,
    /// Whether a person has to consent to more.
    is_for_more: bool,
    /// What whoever waits is told if there is no other one in time.
    pub(super) error: CallError,
}

/// Whether a process has the very tokens that a call was declined with.
pub(super) fn runs_with_declined(fleet: &Fleet, call: &OpenCall, process: ProcessId) -> bool {
    call.declined.as_ref().is_some_and(|declined| {
        let tokens = fleet.tokens_of(process).map(|(_, tokens)| tokens);
        tokens == Some(&declined.tokens)
    })
}

/// The login that a call waits for since its token allows too little, while there is no other one.
pub(super) fn consent_to_more(fleet: &Fleet, call: &OpenCall) -> Option<OAuthNeed> {
    let declined = call.declined.as_ref().filter(|it| it.is_for_more)?;
    let need = declined.tokens.keys().next()?;
    let is_same = fleet.has_tokens(&call.at.workspace_id, &declined.tokens);
    is_same.then(|| need.clone())
}

impl Calls {
    /// What was said of tokens since this was last asked.
    pub(crate) fn take_verdicts(&mut self) -> Vec<SaidOfTokens> {
        std::mem::take(&mut self.verdicts)
    }

    /// A connection cannot begin its work with the token that it was given. False if it was given none of an
    /// authorization server: there is no other one then.
    pub(crate) fn is_declined_start(
        &mut self,
        fleet: &Fleet,
        process: ProcessId,
        said: &TokenVerdict,
    ) -> bool {
        let Some((id, tokens)) = fleet.tokens_of(process) else {
            return false;
        };
        self.verdicts.push(SaidOfTokens {
            call: None,
            process,
            workspace_id: id.clone(),
            tokens: tokens.clone(),
            said: Some(said.clone()),
        });
        true
    }

    /// A call that came to an answer shows that its token is taken.
    pub(super) fn note_verdict(
        &mut self,
        fleet: &Fleet,
        process: ProcessId,
        outcome: &CallOutcome,
    ) {
        if let (CallOutcome::Ok(_), Some((id, tokens))) = (outcome, fleet.tokens_of(process)) {
            self.verdicts.push(SaidOfTokens {
                call: None,
                process,
                workspace_id: id.clone(),
                tokens: tokens.clone(),
                said: None,
            });
        }
    }

    /// A call has failed. If that was for its token, it waits for another one.
    ///
    /// # Errors
    ///
    /// The error, if another token would not help, or part of the answer was heard already.
    pub(super) fn hold_for_token(
        &mut self,
        fleet: &Fleet,
        id: CallId,
        process: ProcessId,
        error: CallError,
    ) -> Result<(), CallError> {
        let call = self.open.get_mut(&id).filter(|call| !call.has_streamed);
        let (Some(call), Some(said)) = (call, error.token.as_deref().cloned()) else {
            return Err(error);
        };
        // Of several tokens nobody knows which one allows too little.
        let is_of_one = |tokens: &Tokens| said == TokenVerdict::Declined || tokens.len() == 1;
        let tokens = fleet.tokens_of(process);
        let Some((workspace_id, tokens)) = tokens.filter(|(_, tokens)| is_of_one(tokens)) else {
            return Err(error);
        };
        call.declined = Some(Declined {
            tokens: tokens.clone(),
            is_for_more: false,
            error,
        });
        self.verdicts.push(SaidOfTokens {
            call: Some(id),
            process,
            workspace_id: workspace_id.clone(),
            tokens: tokens.clone(),
            said: Some(said),
        });
        self.put_back(id, 0);
        Ok(())
    }

    /// What is made of a verdict.
    pub(crate) fn on_ruling(&mut self, fleet: &mut Fleet, verdict: &SaidOfTokens, ruling: Ruling) {
        if let (None, Some(_), Ruling::Stays { why, .. }) = (verdict.call, &verdict.said, &ruling) {
            return fleet.stays_declined(verdict.process, why);
        }
        let Some(call) = verdict.call.and_then(|id| self.open.get_mut(&id)) else {
            return;
        };
        let Some(declined) = &mut call.declined else {
            return;
        };
        match ruling {
            Ruling::OtherToken => {
                let event = LogEvent::info("an outgoing call waits for another token").of(&call.at);
                let event = event.with("target", call.target.to_string());
                fleet.log(event.in_trace(call.trace));
            }
            Ruling::Consent => declined.is_for_more = true,
            Ruling::Stays { why, suggestion } => {
                let mut error = declined.error.clone();
                error.message = format!("{}; {why}", error.message);
                error.suggestion = suggestion.or(error.suggestion);
                if let Some(id) = verdict.call {
                    self.end_call(fleet, id, CallOutcome::Error(error));
                }
            }
        }
    }

    /// The logins that have to be done again for more, before the calls of a conversation are made.
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
