//! The next token, once for all who want it: durable intent → request → durable grant → hand-out.

use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::oauth::{Metadata, Refused, Reply, Token};

use super::clients::{is_of_server, resource_field};
use super::{
    Answer, Answered, Happening, Machine, Pending, Request, Step, Ticket, Waiter, not_kept, plain,
    unavailable,
};
use crate::documents::{Grant, Lock};
use crate::key::{GrantKey, Place};
use crate::limits::{
    REFRESH_AT_PERCENT, REFRESH_PAUSE_MIN_MS, REFRESH_SENDINGS_MAX, RETRY_FIRST_MS, RETRY_MAX_MS,
    TOKEN_LIFE_MAX_S,
};

/// The code by which a server says that a grant is worth nothing any more.
const INVALID_GRANT: &str = "invalid_grant";

/// The codes by which it says that it does not know the application.
const INVALID_CLIENT: [&str; 2] = ["invalid_client", "unauthorized_client"];

/// How the renewal of a grant stands.
#[derive(Debug, Default)]
pub(super) enum Phase {
    /// None is under way.
    #[default]
    Idle,
    /// That it is under way is being kept.
    Locking(Ticket),
    /// The server is asked; it is not known yet where, or it was sent this often.
    Asking {
        ticket: Option<Ticket>,
        sent: u32,
        generation: u64,
    },
    /// What came of it is being kept; no ticket if that failed and is to be tried again.
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
    /// What a server gave, from when.
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

    /// When the next token is to be asked for; none if this one does not end.
    pub(super) fn refresh_at_ms(&self) -> Option<i64> {
        let life_ms = self.expires_at_ms?.saturating_sub(self.obtained_at_ms);
        let part_ms = life_ms.saturating_mul(REFRESH_AT_PERCENT) / 100;
        Some(
            self.obtained_at_ms
                .saturating_add(part_ms.max(REFRESH_PAUSE_MIN_MS)),
        )
    }
}

impl Machine {
    /// Somebody wants a token renewed now. All who want that while it is under way get what comes of it.
    pub fn refresh(&mut self, waiter: Waiter, key: &GrantKey) {
        self.call(key, waiter, super::Call::Refresh(waiter, key.clone()));
    }

    pub(super) fn refresh_for(&mut self, waiter: Waiter, key: &GrantKey) {
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
            let text = format!("nobody has logged in for {} yet", key.need);
            let error = ControlError::new(ErrorCode::OauthNotFound, text);
            return Err(error.suggest(login_command(key)));
        };
        let why = if !self.is_of_app(key, grant) {
            "its OAuthApp is another than the one that its tokens were given to"
        } else if grant.refresh_token.is_none() {
            "the authorization server gave no refresh token"
        } else {
            return Ok(());
        };
        let text = format!("the token of {} cannot be renewed: {why}", key.need);
        let error = ControlError::new(ErrorCode::OauthRefused, text);
        Err(error.suggest(login_command(key)))
    }

    pub(super) fn is_of_app(&self, key: &GrantKey, grant: &Grant) -> bool {
        self.app_of(key)
            .is_some_and(|app| app.fingerprint == grant.fingerprint)
    }

    /// Begins the renewals whose time has come, and notes which grants have ended for good.
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
            self.needs_auth(
                &key,
                "the token has ended, and there is none to renew it with",
            );
        }
    }

    /// Writes down that a renewal is under way.
    pub(super) fn lock(&mut self, key: &GrantKey) {
        let since_ms = self.now_ms;
        let entry = self.entry(key);
        let Some(grant) = &entry.grant else { return };
        let generation = grant.generation;
        let lock = Lock {
            generation,
            since_ms,
        };
        let place = Place::Lock(key.clone());
        let ticket = self.write(place, lock.fields(key), Pending::Lock(key.clone()));
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

    /// Asks the server for the next token. That this is under way is on disk.
    pub(super) fn ask_for_next(&mut self, key: &GrantKey) {
        let entry = self.entry(key);
        let Some(grant) = &entry.grant else { return };
        entry.phase = Phase::Asking {
            ticket: None,
            sent: 0,
            generation: grant.generation,
        };
        self.with_server(key, Step::Refresh(key.clone()));
    }

    pub(super) fn send_refresh(&mut self, key: &GrantKey, server: &Metadata) {
        let grant = self.grants.get(key).and_then(|entry| entry.grant.as_ref());
        let Some(grant) = grant else { return };
        if !is_of_server(grant.binding.as_ref(), server) {
            let why =
                "its server names another authorization server than the one that gave the token";
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
            return self.refresh_failed(key, "it says of no token endpoint");
        };
        let pending = Pending::Refresh(key.clone());
        let asked = self.ask(&key.workspace_id, Request::Token(request), pending);
        if let Phase::Asking { ticket, sent, .. } = &mut self.entry(key).phase {
            *ticket = Some(asked);
            *sent += 1;
        }
    }

    pub(super) fn on_refreshed(&mut self, key: &GrantKey, of: Ticket, answered: Answered) {
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
        // Somebody has logged in meanwhile: what became of the token before is of no interest.
        if grant.generation != generation {
            entry.phase = Phase::Idle;
            self.remove(Place::Lock(key.clone()), Pending::Nothing);
            let info = self.info(key);
            return self.answer_renewal(key, &Ok(Answer::Grant(info)));
        }
        match answered {
            Answered::Token(Reply::Granted(token)) => {
                entry.issued = entry.issued.max(generation) + 1;
                let next = Grant::of_token(token, now_ms, entry.issued, grant.fingerprint);
                // A server that gives no new one goes on with the one before.
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
            Answered::Token(Reply::Refused(refused)) if is_over(&refused, &grant) => {
                self.needs_auth(
                    key,
                    &format!("the authorization server declines: {refused}"),
                );
            }
            Answered::Token(Reply::Refused(refused)) => {
                self.refresh_refused(key, &refused.to_string());
            }
            Answered::Unknown(_) if sent < REFRESH_SENDINGS_MAX => {
                self.with_server(key, Step::Refresh(key.clone()));
            }
            // That it is under way stays on disk.
            Answered::Unknown(why) => {
                entry.phase = Phase::Idle;
                self.fail(key, &unavailable(&why));
            }
            Answered::NotMade(why) => self.refresh_failed(key, &why),
            other => self.refresh_refused(key, &format!("it answered something else: {other:?}")),
        }
    }

    /// The server was not asked: the token is as good as before.
    pub(super) fn refresh_failed(&mut self, key: &GrantKey, why: &str) {
        self.unlock(key);
        self.fail(key, &unavailable(why));
    }

    /// The server declines, and not because of the grant.
    fn refresh_refused(&mut self, key: &GrantKey, why: &str) {
        self.unlock(key);
        let text = format!(
            "the authorization server declines to renew {}: {why}",
            key.need
        );
        let error = ControlError::new(ErrorCode::OauthRefused, text);
        let error =
            error.suggest("check `clientId`, `clientSecret` and the endpoints of the OAuthApp");
        self.fail(key, &error);
    }

    fn unlock(&mut self, key: &GrantKey) {
        self.entry(key).phase = Phase::Idle;
        self.remove(Place::Lock(key.clone()), Pending::Nothing);
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
        self.happened(key, Happening::NotRenewed(why.to_owned()));
    }

    /// A person has to log in again. What there is of the grant stays.
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

    /// Keeps what came of a renewal.
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
        let place = Place::Grant(key.clone());
        let kept = self.write(place, fields, Pending::Renewed(key.clone()));
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
            // The token before is good for nothing any more: this one must not be lost.
            *ticket = None;
            return self.pause(key, &why);
        }
        let grant = (**grant).clone();
        entry.phase = Phase::Idle;
        self.remove(Place::Lock(key.clone()), Pending::Nothing);
        let why = grant.needs_auth.clone();
        self.install(key, grant);
        match why {
            None => {
                self.happened(key, Happening::Renewed);
                let info = self.info(key);
                self.answer_renewal(key, &Ok(Answer::Grant(info)));
            }
            Some(why) => {
                self.happened(key, Happening::NeedsAuth(why.clone()));
                let text = format!("a person has to log in for {} again: {why}", key.need);
                let error = ControlError::new(ErrorCode::OauthRefused, text);
                self.answer_renewal(key, &Err(error.suggest(login_command(key))));
            }
        }
    }

    /// A grant is durable: it takes the place of an older one, and whoever needs its token gets it.
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

    fn answer_renewal(&mut self, key: &GrantKey, result: &Result<Answer, ControlError>) {
        for waiter in std::mem::take(&mut self.entry(key).waiters) {
            self.answer(waiter, result.clone());
        }
    }
}

/// Whether a login alone helps. An application that was registered for a grant ends with it.
fn is_over(refused: &Refused, grant: &Grant) -> bool {
    let is_registered = grant.binding.as_ref().is_some_and(|it| it.client.is_some());
    refused.error == INVALID_GRANT
        || is_registered && INVALID_CLIENT.contains(&refused.error.as_str())
}

/// What a person runs to log in.
pub(super) fn login_command(key: &GrantKey) -> String {
    format!("`gdn oauth login {}`", key.need.arguments())
}
