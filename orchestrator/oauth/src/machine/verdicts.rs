//! What servers say of the tokens that they are called with: a token that should still be good is not taken, or allows
//! too little (RFC 6750, 3.1).

use goondan_protocol::call::TokenVerdict;
use goondan_protocol::oauth::OAuthApp;
use goondan_protocol::secret::SecretValue;

use super::clients::joined;
use super::{Happening, Machine, Pending};
use crate::documents::Grant;
use crate::key::{GrantKey, Place};
use crate::limits::{DECLINED_AGAIN_WITHIN_MS, WIDER_SCOPES_MAX};

/// What is made of a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// There is to be another token, by itself or by a login: whoever was declined waits for it.
    OtherToken,
    /// A person is to consent to more: whoever was declined waits for that.
    Consent,
    /// No other token would help: whoever was declined is told so.
    Stays {
        /// Why.
        why: String,
        /// What a person can do, if anything.
        suggestion: Option<String>,
    },
}

impl Ruling {
    fn stays(why: impl Into<String>, suggestion: Option<String>) -> Self {
        let why = why.into();
        Self::Stays { why, suggestion }
    }
}

impl Machine {
    /// A server was called with this token and says this of it. All who were declined with one token are one reason
    /// to renew it; who had one that was replaced meanwhile takes the new one.
    ///
    /// `needs_all` says that the server does nothing at all for it, so that it is good for nothing as it is.
    pub fn declined(
        &mut self,
        key: &GrantKey,
        token: &SecretValue,
        verdict: &TokenVerdict,
        needs_all: bool,
    ) -> Ruling {
        let entry = self.grants.get(key);
        let current = entry.and_then(|entry| {
            let grant = entry.grant.as_ref()?;
            let is_current = grant.access_token == *token && grant.needs_auth.is_none();
            (is_current && entry.phase.is_idle()).then_some(grant)
        });
        let current = current.filter(|grant| self.is_of_app(key, grant));
        let Some(grant) = current.cloned() else {
            return Ruling::OtherToken;
        };
        match verdict {
            TokenVerdict::Declined => self.on_declined(key, &grant),
            TokenVerdict::TooLittle { scopes } => self.on_too_little(key, grant, scopes, needs_all),
        }
    }

    /// A server has taken this token. That is kept, so that a later no is the first one again, after a restart, too.
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
        self.write(Place::Grant(key.clone()), fields, Pending::Nothing);
    }

    fn on_declined(&mut self, key: &GrantKey, grant: &Grant) -> Ruling {
        let trial_ends_ms = grant
            .obtained_at_ms
            .saturating_add(DECLINED_AGAIN_WITHIN_MS);
        if grant.refresh_token.is_none() {
            self.needs_auth(
                key,
                "a server declines the token, and there is none to renew it with",
            );
        } else if grant.is_on_trial && self.now_ms < trial_ends_ms {
            self.needs_auth(
                key,
                "a server declines the token, and the one that it was renewed to as well",
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
                self.happened(key, Happening::Declined);
            }
        }
        Ruling::OtherToken
    }

    fn on_too_little(
        &mut self,
        key: &GrantKey,
        grant: Grant,
        scopes: &[String],
        needs_all: bool,
    ) -> Ruling {
        let Some(app) = self.app_of(key).map(|app| &app.definition) else {
            return Ruling::OtherToken;
        };
        if scopes.is_empty() {
            return Ruling::stays("the server does not say what the token lacks", None);
        }
        let forbidden = scopes.iter().filter(|scope| !may_ask_for(app, scope));
        let forbidden = joined(forbidden.map(String::as_str));
        if !forbidden.is_empty() {
            let why = format!("{} may not be asked for `{forbidden}`", key.need);
            let suggestion = format!(
                "if it should, add that to `widerScopes` of the OAuthApp `{}`, and try again",
                key.need.app
            );
            return Ruling::stays(why, Some(suggestion));
        }
        let allowed = grant.scope.as_deref().unwrap_or_default();
        let allows = |scope: &String| allowed.split_whitespace().any(|it| it == scope);
        if scopes.iter().all(allows) {
            let why = "its authorization server says that the token allows that";
            return Ruling::stays(why, None);
        }
        let known = grant.wider.as_deref().unwrap_or_default();
        let wider = joined(
            known
                .split_whitespace()
                .chain(scopes.iter().map(String::as_str)),
        );
        if wider.split_whitespace().count() > WIDER_SCOPES_MAX {
            let why = format!("a person is asked for at most {WIDER_SCOPES_MAX} scopes more");
            return Ruling::stays(why, None);
        }
        if wider != known {
            let grant = Grant {
                wider: Some(wider.clone()),
                ..grant
            };
            let (place, fields) = (Place::Grant(key.clone()), grant.fields(key));
            self.write(place, fields, Pending::Nothing);
            self.entry(key).grant = Some(grant);
            self.happened(key, Happening::NeedsWider(wider));
        }
        if needs_all {
            self.needs_auth(key, "a server does nothing for the token as it is");
        }
        Ruling::Consent
    }

    /// What servers said that the token of a grant lacks.
    pub(super) fn wider_of(&self, key: &GrantKey) -> Option<&str> {
        let grant = self.grants.get(key)?.grant.as_ref()?;
        grant
            .wider
            .as_deref()
            .filter(|_| self.is_of_app(key, grant))
    }
}

/// Whether a person may be asked for this scope. Where it is not written what is asked for, the server says so, as it
/// does at a login.
fn may_ask_for(app: &OAuthApp, scope: &String) -> bool {
    let is_said_by_server = app.scopes.is_empty() && app.wider_scopes.is_empty();
    is_said_by_server || app.scopes.contains(scope) || app.wider_scopes.contains(scope)
}
