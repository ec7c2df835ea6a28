//! Verdicts of servers on tokens: a token that should be valid is rejected, or lacks scopes (RFC
//! 6750, 3.1).

use goondan_protocol::call::TokenVerdict;
use goondan_protocol::oauth::OAuthApp;
use goondan_protocol::secret::SecretValue;

use super::clients::joined;
use super::{OAuthEvent, OAuthMachine, TicketPurpose};
use crate::documents::Grant;
use crate::key::{DocumentKey, GrantKey};
use crate::limits::{DECLINED_AGAIN_WITHIN_MS, WIDER_SCOPES_MAX};

/// Consequence of a verdict for the rejected caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RejectionOutcome {
    /// Wait for another token, from a renewal or a login.
    OtherToken,
    /// Wait until a user consents to more scopes.
    Consent,
    /// Fail, because another token would not help.
    Stays {
        why: String,
        /// A hint for the user, if there is one.
        suggestion: Option<String>,
    },
}

impl RejectionOutcome {
    fn stays(why: impl Into<String>, suggestion: Option<String>) -> Self {
        let why = why.into();
        Self::Stays { why, suggestion }
    }
}

impl OAuthMachine {
    /// Handles a server's verdict on a token. All rejections of one token cause one renewal. If the
    /// token was replaced in the meantime, the caller gets the new one.
    ///
    /// `needs_all` is true if the server rejects every request with the token, so that it is
    /// useless without the scopes.
    pub fn declined(
        &mut self,
        key: &GrantKey,
        token: &SecretValue,
        verdict: &TokenVerdict,
        needs_all: bool,
    ) -> RejectionOutcome {
        let entry = self.grants.get(key);
        let current = entry.and_then(|entry| {
            let grant = entry.grant.as_ref()?;
            let is_current = grant.access_token == *token && grant.needs_auth.is_none();
            (is_current && entry.phase.is_idle()).then_some(grant)
        });
        let current = current.filter(|grant| self.is_of_app(key, grant));
        let Some(grant) = current.cloned() else {
            return RejectionOutcome::OtherToken;
        };
        match verdict {
            TokenVerdict::Declined => self.on_declined(key, &grant),
            TokenVerdict::TooLittle { scopes } => self.on_too_little(key, grant, scopes, needs_all),
        }
    }

    /// Handles the acceptance of a token. It is stored, so that a later rejection counts as the
    /// first one, also after a restart.
    pub fn worked(&mut self, key: &GrantKey, token: &SecretValue) {
        let entry = self.grants.get_mut(key);
        let entry = entry.filter(|entry| entry.phase.is_idle());
        let grant = entry.and_then(|entry| entry.grant.as_mut());
        let is_news = |grant: &&mut Grant| grant.is_on_trial && grant.access_token == *token;
        let Some(grant) = grant.filter(is_news) else {
            return;
        };
        grant.is_on_trial = false;
        let fields = grant.fields(key);
        self.write(
            DocumentKey::Grant(key.clone()),
            fields,
            TicketPurpose::Nothing,
        );
    }

    fn on_declined(&mut self, key: &GrantKey, grant: &Grant) -> RejectionOutcome {
        let trial_ends_ms = grant
            .obtained_at_ms
            .saturating_add(DECLINED_AGAIN_WITHIN_MS);
        if grant.refresh_token.is_none() {
            self.needs_auth(
                key,
                "a server rejects the token, and no refresh token exists",
            );
        } else if grant.is_on_trial && self.now_ms < trial_ends_ms {
            self.needs_auth(
                key,
                "a server rejects the token, and its renewed successor too",
            );
        } else {
            let now_ms = self.now_ms;
            let entry = self.entry(key);
            let is_new = entry.declined != Some(grant.generation);
            entry.declined = Some(grant.generation);
            if entry.not_before_ms <= now_ms {
                self.lock(key);
            }
            if is_new {
                self.happened(key, OAuthEvent::Declined);
            }
        }
        RejectionOutcome::OtherToken
    }

    fn on_too_little(
        &mut self,
        key: &GrantKey,
        grant: Grant,
        scopes: &[String],
        needs_all: bool,
    ) -> RejectionOutcome {
        let Some(app) = self.app_of(key).map(|app| &app.definition) else {
            return RejectionOutcome::OtherToken;
        };
        if scopes.is_empty() {
            return RejectionOutcome::stays("the server does not say what the token lacks", None);
        }
        let forbidden = scopes.iter().filter(|scope| !may_ask_for(app, scope));
        let forbidden = joined(forbidden.map(String::as_str));
        if !forbidden.is_empty() {
            let why = format!("{} may not be asked for `{forbidden}`", key.need);
            let suggestion = format!(
                "if it should, add that to `widerScopes` of the OAuthApp `{}`, and try again",
                key.need.app
            );
            return RejectionOutcome::stays(why, Some(suggestion));
        }
        let allowed = grant.scope.as_deref().unwrap_or_default();
        let allows = |scope: &String| allowed.split_whitespace().any(|it| it == scope);
        if scopes.iter().all(allows) {
            let why = "the token has the scope according to its authorization server";
            return RejectionOutcome::stays(why, None);
        }
        let known = grant.wider.as_deref().unwrap_or_default();
        let wider = joined(
            known
                .split_whitespace()
                .chain(scopes.iter().map(String::as_str)),
        );
        if wider.split_whitespace().count() > WIDER_SCOPES_MAX {
            let why = format!("users are asked for at most {WIDER_SCOPES_MAX} more scopes");
            return RejectionOutcome::stays(why, None);
        }
        if wider != known {
            let grant = Grant {
                wider: Some(wider.clone()),
                ..grant
            };
            let (place, fields) = (DocumentKey::Grant(key.clone()), grant.fields(key));
            self.write(place, fields, TicketPurpose::Nothing);
            self.entry(key).grant = Some(grant);
            self.happened(key, OAuthEvent::NeedsWider(wider));
        }
        if needs_all {
            self.needs_auth(key, "a server rejects every request with the token");
        }
        RejectionOutcome::Consent
    }

    /// Returns the scopes that servers reported missing.
    pub(super) fn wider_of(&self, key: &GrantKey) -> Option<&str> {
        let grant = self.grants.get(key)?.grant.as_ref()?;
        grant
            .wider
            .as_deref()
            .filter(|_| self.is_of_app(key, grant))
    }
}

/// True if users may be asked for this scope. Without configured scopes the server decides, as at a
/// login.
fn may_ask_for(app: &OAuthApp, scope: &String) -> bool {
    let is_said_by_server = app.scopes.is_empty() && app.wider_scopes.is_empty();
    is_said_by_server || app.scopes.contains(scope) || app.wider_scopes.contains(scope)
}
