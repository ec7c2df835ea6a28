//! Renewal of a token, once for all callers: durable mark → request → durable grant → hand-out.

use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::oauth::{Metadata, Reply, Token, TokenErrorResponse};

use super::clients::{is_of_server, resource_field};
use super::{
    DeferredStep, GrantAnswer, OAuthEvent, OAuthMachine, ServerRequest, ServerResponse, Ticket,
    TicketPurpose, WaiterId, not_kept, plain, unavailable,
};
use crate::documents::{Grant, Lock};
use crate::key::{DocumentKey, GrantKey};
use crate::limits::{
    REFRESH_AT_PERCENT, REFRESH_PAUSE_MIN_MS, REFRESH_SENDINGS_MAX, RETRY_FIRST_MS, RETRY_MAX_MS,
    TOKEN_LIFE_MAX_S,
};

/// Error code for an invalid grant.
const INVALID_GRANT: &str = "invalid_grant";

/// Error codes for an unknown client.
const INVALID_CLIENT: [&str; 2] = ["invalid_client", "unauthorized_client"];

#[derive(Debug, Default)]
pub(super) enum Phase {
    /// No renewal is in progress.
    #[default]
    Idle,
    /// The mark is being stored.
    Locking(Ticket),
    /// The request is in progress. Without a ticket, the endpoint is unknown yet. `sent` counts the
    /// transmissions.
    Asking {
        ticket: Option<Ticket>,
        sent: u32,
        generation: u64,
    },
    /// The result is being stored; without a ticket, storing failed and must be retried.
    Keeping {
        ticket: Option<Ticket>,
        grant: Box<Grant>,
    },
}

impl Phase {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }
}

impl Grant {
    /// Creates a grant from a server's response.
    pub(super) fn of_token(
        token: Token,
        now_ms: i64,
        generation: u64,
        fingerprint: String,
    ) -> Self {
        let life_ms = token.expires_in_s.map(|seconds| {
            i64::try_from(seconds.min(TOKEN_LIFE_MAX_S)).unwrap_or(i64::MAX / 1_000) * 1_000
        });
        Self {
            fingerprint,
            binding: None,
            generation,
            needs_auth: None,
            access_token: token.access_token,
            refresh_token: token.refresh_token,
            obtained_at_ms: now_ms,
            expires_at_ms: life_ms.map(|life_ms| now_ms.saturating_add(life_ms)),
            scope: token.scope,
            wider: None,
            is_on_trial: false,
        }
    }

    /// Returns the time of the next renewal; `None` if the token does not expire.
    pub(super) fn refresh_at_ms(&self) -> Option<i64> {
        let life_ms = self.expires_at_ms?.saturating_sub(self.obtained_at_ms);
        let part_ms = life_ms.saturating_mul(REFRESH_AT_PERCENT) / 100;
        Some(
            self.obtained_at_ms
                .saturating_add(part_ms.max(REFRESH_PAUSE_MIN_MS)),
        )
    }
}

impl OAuthMachine {
    /// Renews a token now. All concurrent callers get the same result.
    pub fn refresh(&mut self, waiter: WaiterId, key: &GrantKey) {
        self.call(key, waiter, super::Call::Refresh(waiter, key.clone()));
    }

    pub(super) fn refresh_for(&mut self, waiter: WaiterId, key: &GrantKey) {
        if let Err(error) = self.check_renewable(key) {
            return self.answer(waiter, Err(error));
        }
        let entry = self.entry(key);
        entry.waiters.push(waiter);
        if entry.phase.is_idle() {
            self.lock(key);
        }
    }

    fn check_renewable(&self, key: &GrantKey) -> Result<(), ControlError> {
        let grant = self.grants.get(key).and_then(|entry| entry.grant.as_ref());
        let Some(grant) = grant else {
            let text = format!("no user has logged in for {} yet", key.need);
            let error = ControlError::new(ErrorCode::OauthNotFound, text);
            return Err(error.suggest(login_command(key)));
        };
        let why = if !self.is_of_app(key, grant) {
            "its OAuthApp was changed after the tokens were issued"
        } else if grant.refresh_token.is_none() {
            "the authorization server issued no refresh token"
        } else {
            return Ok(());
        };
        let text = format!("failed to renew the token of {}: {why}", key.need);
        let error = ControlError::new(ErrorCode::OauthRefused, text);
        Err(error.suggest(login_command(key)))
    }

    pub(super) fn is_of_app(&self, key: &GrantKey, grant: &Grant) -> bool {
        self.app_of(key)
            .is_some_and(|app| app.fingerprint == grant.fingerprint)
    }

    /// Begins renewals that are due, and marks permanently expired grants.
    pub(super) fn renew_due(&mut self) {
        let now_ms = self.now_ms;
        let mut due: Vec<GrantKey> = Vec::new();
        let mut unkept: Vec<GrantKey> = Vec::new();
        let mut ended: Vec<GrantKey> = Vec::new();
        for (key, entry) in &self.grants {
            if entry.not_before_ms > now_ms {
                continue;
            }
            if let Phase::Keeping { ticket: None, .. } = entry.phase {
                unkept.push(key.clone());
            }
            let Some(grant) = entry.grant.as_ref().filter(|_| entry.phase.is_idle()) else {
                continue;
            };
            let is_due = grant.refresh_at_ms().is_some_and(|at| at <= now_ms)
                || entry.declined == Some(grant.generation);
            let is_good = grant.needs_auth.is_none() && self.is_of_app(key, grant);
            if entry.is_needed && is_good && is_due && grant.refresh_token.is_some() {
                due.push(key.clone());
            }
            let has_ended = grant.expires_at_ms.is_some_and(|at| at <= now_ms);
            if is_good && has_ended && grant.refresh_token.is_none() {
                ended.push(key.clone());
            }
        }
        for key in due {
            self.lock(&key);
        }
        for key in unkept {
            self.keep_renewal(&key);
        }
        for key in ended {
            self.needs_auth(&key, "the token has expired, and no refresh token exists");
        }
    }

    /// Stores the mark of a renewal in progress.
    pub(super) fn lock(&mut self, key: &GrantKey) {
        let since_ms = self.now_ms;
        let entry = self.entry(key);
        let Some(grant) = &entry.grant else { return };
        let generation = grant.generation;
        let lock = Lock {
            generation,
            since_ms,
        };
        let place = DocumentKey::Lock(key.clone());
        let ticket = self.write(place, lock.fields(key), TicketPurpose::Lock(key.clone()));
        self.entry(key).phase = Phase::Locking(ticket);
    }

    pub(super) fn on_locked(&mut self, key: &GrantKey, ticket: Ticket, result: Result<(), String>) {
        let entry = self.entry(key);
        if !matches!(entry.phase, Phase::Locking(of) if of == ticket) {
            return;
        }
        match result {
            Ok(()) => self.ask_for_next(key),
            Err(why) => {
                entry.phase = Phase::Idle;
                self.pause(key, &why);
                self.answer_renewal(key, &Err(not_kept(&why)));
            }
        }
    }

    /// Requests the next token. The mark is on disk.
    pub(super) fn ask_for_next(&mut self, key: &GrantKey) {
        let entry = self.entry(key);
        let Some(grant) = &entry.grant else { return };
        entry.phase = Phase::Asking {
            ticket: None,
            sent: 0,
            generation: grant.generation,
        };
        self.with_server(key, DeferredStep::Refresh(key.clone()));
    }

    pub(super) fn send_refresh(&mut self, key: &GrantKey, server: &Metadata) {
        let grant = self.grants.get(key).and_then(|entry| entry.grant.as_ref());
        let Some(grant) = grant else { return };
        if !is_of_server(grant.binding.as_ref(), server) {
            let why =
                "its server names another authorization server than the one that issued the token";
            return self.needs_auth(key, why);
        }
        let refresh_token = grant.refresh_token.clone();
        let request = server.endpoints.token.as_ref().zip(refresh_token).and_then(
            |(endpoint, refresh_token)| {
                let form = [
                    ("grant_type", plain("refresh_token")),
                    ("refresh_token", refresh_token),
                ];
                let binding = grant.binding.as_ref();
                let form = form.into_iter().chain(resource_field(binding, server));
                self.form_request(key, (endpoint, server), binding, form)
            },
        );
        let Some(request) = request else {
            return self.refresh_failed(key, "its metadata has no token endpoint");
        };
        let pending = TicketPurpose::Refresh(key.clone());
        let asked = self.ask(&key.workspace_id, ServerRequest::Token(request), pending);
        if let Phase::Asking { ticket, sent, .. } = &mut self.entry(key).phase {
            *ticket = Some(asked);
            *sent += 1;
        }
    }

    pub(super) fn on_refreshed(&mut self, key: &GrantKey, of: Ticket, answered: ServerResponse) {
        let now_ms = self.now_ms;
        let entry = self.entry(key);
        let (sent, generation) = match &entry.phase {
            Phase::Asking {
                ticket,
                sent,
                generation,
            } if *ticket == Some(of) => (*sent, *generation),
            _ => return,
        };
        let Some(grant) = entry.grant.clone() else {
            entry.phase = Phase::Idle;
            return;
        };
        // A user logged in meanwhile, so the outcome for the earlier token does not matter.
        if grant.generation != generation {
            entry.phase = Phase::Idle;
            self.remove(DocumentKey::Lock(key.clone()), TicketPurpose::Nothing);
            let info = self.info(key);
            return self.answer_renewal(key, &Ok(GrantAnswer::Grant(info)));
        }
        match answered {
            ServerResponse::Token(Reply::Granted(token)) => {
                entry.issued = entry.issued.max(generation) + 1;
                let next = Grant::of_token(token, now_ms, entry.issued, grant.fingerprint);
                // Without a new refresh token the old one stays valid.
                let next = Grant {
                    binding: grant.binding,
                    refresh_token: next.refresh_token.or(grant.refresh_token),
                    scope: next.scope.or(grant.scope),
                    wider: grant.wider,
                    is_on_trial: entry.declined == Some(generation),
                    ..next
                };
                self.keep(key, next);
            }
            ServerResponse::Token(Reply::Refused(refused)) if is_over(&refused, &grant) => {
                self.needs_auth(
                    key,
                    &format!("the authorization server rejected the request: {refused}"),
                );
            }
            ServerResponse::Token(Reply::Refused(refused)) => {
                self.refresh_refused(key, &refused.to_string());
            }
            ServerResponse::Unknown(_) if sent < REFRESH_SENDINGS_MAX => {
                self.with_server(key, DeferredStep::Refresh(key.clone()));
            }
            // The mark stays on disk.
            ServerResponse::Unknown(why) => {
                entry.phase = Phase::Idle;
                self.fail(key, &unavailable(&why));
            }
            ServerResponse::NotMade(why) => self.refresh_failed(key, &why),
            other => self.refresh_refused(key, &format!("unexpected response: {other:?}")),
        }
    }

    /// Handles a request that was not sent. The token is unchanged.
    pub(super) fn refresh_failed(&mut self, key: &GrantKey, why: &str) {
        self.unlock(key);
        self.fail(key, &unavailable(why));
    }

    /// Handles a rejection that does not concern the grant.
    fn refresh_refused(&mut self, key: &GrantKey, why: &str) {
        self.unlock(key);
        let text = format!(
            "the authorization server rejected the renewal of {}: {why}",
            key.need
        );
        let error = ControlError::new(ErrorCode::OauthRefused, text);
        let error =
            error.suggest("check `clientId`, `clientSecret` and the endpoints of the OAuthApp");
        self.fail(key, &error);
    }

    fn unlock(&mut self, key: &GrantKey) {
        self.entry(key).phase = Phase::Idle;
        self.remove(DocumentKey::Lock(key.clone()), TicketPurpose::Nothing);
    }

    fn fail(&mut self, key: &GrantKey, error: &ControlError) {
        self.pause(key, &error.message);
        self.answer_renewal(key, &Err(error.clone()));
    }

    fn pause(&mut self, key: &GrantKey, why: &str) {
        let now_ms = self.now_ms;
        let entry = self.entry(key);
        let doublings = entry.failures.min(16);
        entry.failures = entry.failures.saturating_add(1);
        let pause_ms = (RETRY_FIRST_MS << doublings).min(RETRY_MAX_MS);
        entry.not_before_ms = now_ms.saturating_add(pause_ms);
        entry.problem = Some(why.to_owned());
        self.happened(key, OAuthEvent::NotRenewed(why.to_owned()));
    }

    /// Requires a new login. The grant stays stored.
    pub(super) fn needs_auth(&mut self, key: &GrantKey, why: &str) {
        let entry = self.entry(key);
        let Some(grant) = entry.grant.clone() else {
            return;
        };
        entry.issued = entry.issued.max(grant.generation) + 1;
        let grant = Grant {
            generation: entry.issued,
            needs_auth: Some(why.to_owned()),
            ..grant
        };
        self.keep(key, grant);
    }

    /// Stores the result of a renewal.
    fn keep(&mut self, key: &GrantKey, grant: Grant) {
        self.entry(key).phase = Phase::Keeping {
            ticket: None,
            grant: Box::new(grant),
        };
        self.keep_renewal(key);
    }

    fn keep_renewal(&mut self, key: &GrantKey) {
        let Some(entry) = self.grants.get(key) else {
            return;
        };
        let Phase::Keeping { grant, .. } = &entry.phase else {
            return;
        };
        let fields = grant.fields(key);
        let place = DocumentKey::Grant(key.clone());
        let kept = self.write(place, fields, TicketPurpose::Renewed(key.clone()));
        if let Phase::Keeping { ticket, .. } = &mut self.entry(key).phase {
            *ticket = Some(kept);
        }
    }

    pub(super) fn on_renewal_kept(
        &mut self,
        key: &GrantKey,
        of: Ticket,
        result: Result<(), String>,
    ) {
        let entry = self.entry(key);
        let Phase::Keeping { ticket, grant } = &mut entry.phase else {
            return;
        };
        if *ticket != Some(of) {
            return;
        }
        if let Err(why) = result {
            // The old token is invalid now, so this one must not be lost.
            *ticket = None;
            return self.pause(key, &why);
        }
        let grant = (**grant).clone();
        entry.phase = Phase::Idle;
        self.remove(DocumentKey::Lock(key.clone()), TicketPurpose::Nothing);
        let why = grant.needs_auth.clone();
        self.install(key, grant);
        match why {
            None => {
                self.happened(key, OAuthEvent::Renewed);
                let info = self.info(key);
                self.answer_renewal(key, &Ok(GrantAnswer::Grant(info)));
            }
            Some(why) => {
                self.happened(key, OAuthEvent::NeedsAuth(why.clone()));
                let text = format!("{} requires a new login: {why}", key.need);
                let error = ControlError::new(ErrorCode::OauthRefused, text);
                self.answer_renewal(key, &Err(error.suggest(login_command(key))));
            }
        }
    }

    /// Installs a durable grant: replaces an older one and hands out its token.
    pub(super) fn install(&mut self, key: &GrantKey, grant: Grant) {
        let entry = self.entry(key);
        let is_newer = |old: &Grant| old.generation < grant.generation;
        if entry.grant.as_ref().is_none_or(is_newer) {
            entry.issued = entry.issued.max(grant.generation);
            entry.grant = Some(grant);
            entry.failures = 0;
            entry.not_before_ms = 0;
            entry.problem = None;
            self.hand(key);
        }
    }

    fn answer_renewal(&mut self, key: &GrantKey, result: &Result<GrantAnswer, ControlError>) {
        for waiter in std::mem::take(&mut self.entry(key).waiters) {
            self.answer(waiter, result.clone());
        }
    }
}

/// True if only a new login helps. A client registered for the grant ends with it.
fn is_over(refused: &TokenErrorResponse, grant: &Grant) -> bool {
    let is_registered = grant.binding.as_ref().is_some_and(|it| it.client.is_some());
    refused.error == INVALID_GRANT
        || is_registered && INVALID_CLIENT.contains(&refused.error.as_str())
}

pub(super) fn login_command(key: &GrantKey) -> String {
    format!("`gdn secret oauth login {}`", key.need.arguments())
}
