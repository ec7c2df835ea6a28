//! Revocation of tokens.

use goondan_protocol::control::{ControlError, ErrorCode, GrantRevoked};
use goondan_protocol::oauth::{Metadata, Reply};

use super::clients::is_of_server;
use super::{
    Call, DeferredStep, GrantAnswer, OAuthEvent, OAuthMachine, ServerRequest, ServerResponse,
    TicketPurpose, WaiterId, plain,
};
use crate::key::{DocumentKey, GrantKey};

#[derive(Debug)]
pub(super) struct Revocation {
    pub(super) waiter: WaiterId,
    pub(super) key: GrantKey,
    /// True to delete the tokens locally even if the server cannot be reached.
    pub(super) forget: bool,
}

impl OAuthMachine {
    /// Revokes tokens. With `forget` they are deleted locally in any case.
    pub fn revoke(&mut self, waiter: WaiterId, key: &GrantKey, forget: bool) {
        let revoking = Revocation {
            waiter,
            key: key.clone(),
            forget,
        };
        self.call(key, waiter, Call::Revoke(revoking));
    }

    pub(super) fn begin_revocation(&mut self, revoking: Revocation) {
        let key = revoking.key.clone();
        let entry = self.grants.get(&key);
        let Some(grant) = entry.and_then(|entry| entry.grant.as_ref()) else {
            let text = format!("{} has no tokens", key.need);
            let error = ControlError::new(ErrorCode::OauthNotFound, text);
            let error = error.suggest("`gdn secret oauth list` shows all");
            return self.answer(revoking.waiter, Err(error));
        };
        if entry.is_some_and(|entry| !entry.phase.is_idle()) {
            let text = format!("the token of {} is being renewed", key.need);
            let error = ControlError::new(ErrorCode::OauthUnavailable, text);
            return self.answer(revoking.waiter, Err(error.suggest("try again in a moment")));
        }
        if self.is_of_app(&key, grant) {
            self.with_server(&key, DeferredStep::Revoke(revoking));
        } else {
            let why = "its OAuthApp was changed after the tokens were issued";
            self.forget_grant(revoking, false, Some(why.to_owned()));
        }
    }

    pub(super) fn send_revocation(&mut self, revoking: Revocation, server: &Metadata) {
        let key = revoking.key.clone();
        let Some(grant) = self.grants.get(&key).and_then(|it| it.grant.as_ref()) else {
            return;
        };
        if !is_of_server(grant.binding.as_ref(), server) {
            let why = "its server names another authorization server than the one that issued them";
            return self.not_revoked(revoking, why);
        }
        let Some(endpoint) = &server.endpoints.revocation else {
            let why = "the authorization server does not support revocation";
            return self.forget_grant(revoking, false, Some(why.to_owned()));
        };
        // Revoking the refresh token also revokes its access tokens.
        let (token, kind) = match &grant.refresh_token {
            Some(token) => (token.clone(), "refresh_token"),
            None => (grant.access_token.clone(), "access_token"),
        };
        let form = [("token", token), ("token_type_hint", plain(kind))];
        if let Some(request) =
            self.form_request(&key, (endpoint, server), grant.binding.as_ref(), form)
        {
            let pending = TicketPurpose::Revoke(revoking);
            self.ask(&key.workspace_id, ServerRequest::Revoke(request), pending);
        }
    }

    pub(super) fn on_revoked(&mut self, revoking: Revocation, answered: ServerResponse) {
        match answered {
            ServerResponse::Revoked(Reply::Granted(())) => self.forget_grant(revoking, true, None),
            ServerResponse::Revoked(Reply::Refused(refused)) => {
                self.not_revoked(revoking, &refused.to_string());
            }
            ServerResponse::NotMade(why) | ServerResponse::Unknown(why) => {
                self.not_revoked(revoking, &why);
            }
            other => {
                let why = format!("unexpected response: {other:?}");
                self.not_revoked(revoking, &why);
            }
        }
    }

    pub(super) fn not_revoked(&mut self, revoking: Revocation, why: &str) {
        if revoking.forget {
            return self.forget_grant(revoking, false, Some(why.to_owned()));
        }
        let need = &revoking.key.need;
        let text =
            format!("the authorization server did not take the tokens of {need} back: {why}");
        let arguments = need.arguments();
        let error = ControlError::new(ErrorCode::OauthUnavailable, text).suggest(format!(
            "try again, or forget them here alone: `gdn secret oauth revoke {arguments} --forget`"
        ));
        self.answer(revoking.waiter, Err(error));
    }

    fn forget_grant(&mut self, revoking: Revocation, at_server: bool, problem: Option<String>) {
        let key = revoking.key.clone();
        self.remove(DocumentKey::Lock(key.clone()), TicketPurpose::Nothing);
        let pending = TicketPurpose::Forgotten(revoking, at_server, problem);
        self.remove(DocumentKey::Grant(key), pending);
    }

    pub(super) fn on_forgotten(
        &mut self,
        revoking: &Revocation,
        at_server: bool,
        problem: Option<String>,
        result: Result<(), String>,
    ) {
        let key = &revoking.key;
        if let Err(why) = result {
            let text = format!("failed to remove the tokens of {}: {why}", key.need);
            let error = ControlError::new(ErrorCode::Storage, text);
            let error = error.suggest("see that the daemon may write below its System Root");
            return self.answer(revoking.waiter, Err(error));
        }
        let entry = self.entry(key);
        entry.grant = None;
        entry.problem = None;
        self.hand(key);
        self.happened(key, OAuthEvent::Revoked);
        let revoked = GrantRevoked {
            app: key.need.app.clone(),
            subject: key.need.subject.clone(),
            at_server,
            problem,
        };
        self.answer(revoking.waiter, Ok(GrantAnswer::Revoked(revoked)));
    }
}
