//! Logins, from the request to the grant (`SYS-4`).

use goondan_protocol::control::{ControlError, ErrorCode, LoginBegun};
use goondan_protocol::ids::{LoginId, WorkspaceId};
use goondan_protocol::oauth::{
    FormRequest, Metadata, OAuthApp, Reply, Token, TokenErrorResponse, form_encoded, public_path,
};
use goondan_protocol::secret::SecretValue;
use goondan_protocol::time::Timestamp;

use super::clients::{
    Registration, client_of, is_of_server, omits_resource, resource_field, scope_of,
};
use super::renewal::login_command;
use super::{
    Call, DeferredStep, GrantAnswer, OAuthEvent, OAuthMachine, ServerRequest, ServerResponse,
    TicketPurpose, WaiterId, not_kept, plain, unavailable,
};
use crate::callback::Callback;
use crate::documents::{ConsentMethod, Grant, GrantServer, LoginSession};
use crate::key::{DocumentKey, GrantKey};
use crate::limits::{DEVICE_POLL_MIN_MS, DEVICE_SLOW_DOWN_MS, LOGIN_TTL_MS, LOGINS_OPEN_MAX};
use crate::pkce::{ENTROPY_BYTES, challenge, secrets_of};

/// Result of a redirect to a public address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectOutcome {
    /// Accepted: the login continues, or the server rejected it.
    Taken,
    /// Rejected: the `state` is unknown, used or expired, the login was begun with another address,
    /// or the redirect comes from another authorization server.
    EndsNone,
    /// The logins are not loaded yet; the redirect can be repeated.
    TooEarly,
}

/// Result of a login at a public address that ended before a caller waited for it.
pub(super) type EndedLogin = (LoginId, WorkspaceId, Result<GrantAnswer, ControlError>);

/// Error code of a token endpoint while the user has not decided (RFC 8628).
const PENDING: &str = "authorization_pending";
/// Error code for too frequent polling.
const SLOW_DOWN: &str = "slow_down";
/// Error code of a server that rejects the field `resource` (RFC 8707).
const INVALID_TARGET: &str = "invalid_target";
/// Grant type of a login on another device.
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Path of the redirect address on this machine.
const LOOPBACK_PATH: &str = "/callback";

#[derive(Debug)]
pub(super) struct LoginStart {
    pub(super) waiter: WaiterId,
    pub(super) key: GrantKey,
    id: LoginId,
    way: LoginMethod,
    verifier: SecretValue,
    state: SecretValue,
    /// Client registration for this login, if any.
    pub(super) registration: Option<Registration>,
    /// Its server, if the configuration does not define it.
    pub(super) binding: Option<GrantServer>,
    /// Scopes requested from a device, if any.
    scope: Option<String>,
}

#[derive(Debug, Clone, Copy)]
enum LoginMethod {
    /// In a browser, redirected to this local port unless the application defines an address.
    Browser(Option<u16>),
    Device,
}

/// Request to finish a login with the server's redirect.
#[derive(Debug)]
pub(super) struct LoginFinish {
    waiter: WaiterId,
    workspace_id: WorkspaceId,
    id: LoginId,
    callback: Option<SecretValue>,
}

#[derive(Debug)]
pub(super) struct Login {
    pub(super) key: GrantKey,
    pub(super) session: LoginSession,
    /// The code while it is exchanged.
    code: Option<SecretValue>,
    /// Callers that wait for its end.
    waiters: Vec<WaiterId>,
    /// Time of the next poll, if it is on another device.
    poll_at_ms: Option<i64>,
}

impl Login {
    pub(super) fn of_session(key: GrantKey, session: LoginSession, now_ms: i64) -> Self {
        let poll_at_ms = match &session.how {
            ConsentMethod::Code { .. } => None,
            ConsentMethod::Device { interval_ms, .. } => Some(now_ms.saturating_add(*interval_ms)),
        };
        Self {
            key,
            session,
            code: None,
            waiters: Vec::new(),
            poll_at_ms,
        }
    }
}

impl OAuthMachine {
    /// Begins a login. `id` and `entropy` must be fresh and random. `port` is a local port on which
    /// the client listens for the redirect.
    pub fn login(
        &mut self,
        waiter: WaiterId,
        key: &GrantKey,
        (id, entropy): (LoginId, &[u8; ENTROPY_BYTES]),
        (port, device): (Option<u16>, bool),
    ) {
        let (verifier, state) = secrets_of(entropy);
        let way = if device {
            LoginMethod::Device
        } else {
            LoginMethod::Browser(port)
        };
        let beginning = Box::new(LoginStart {
            waiter,
            key: key.clone(),
            id,
            way,
            verifier,
            state,
            registration: None,
            binding: None,
            scope: None,
        });
        self.call(key, waiter, Call::Login(beginning));
    }

    /// Finishes a login with the redirect URL, or waits for the end of a login on another device.
    pub fn finish(
        &mut self,
        waiter: WaiterId,
        workspace_id: &WorkspaceId,
        id: LoginId,
        callback: Option<SecretValue>,
    ) {
        let finishing = LoginFinish {
            waiter,
            workspace_id: workspace_id.clone(),
            id,
            callback,
        };
        let mut apps = self.apps.iter_mut();
        // The login's application is known only after all documents are loaded.
        let unread = apps.find(|((of, _), app)| of == workspace_id && !app.is_read);
        match unread {
            Some((_, app)) => app.unread.push(Call::Finish(finishing)),
            None => self.finish_login(finishing),
        }
    }

    pub(super) fn begin_login(&mut self, beginning: Box<LoginStart>) {
        let key = beginning.key.clone();
        let per_user = self.app_of(&key).is_some_and(|it| it.definition.per_user);
        let problem = match (per_user, key.need.subject.is_global()) {
            (true, true) => Some("has a token for each user: pass `--subject`"),
            (false, false) => Some("has one token for all users: omit `--subject`"),
            (true, false) | (false, true) => None,
        };
        match problem {
            Some(problem) => {
                let text = format!("OAuthApp `{}` {problem}", key.need.app);
                let error = ControlError::new(ErrorCode::InvalidRequest, text);
                self.answer(beginning.waiter, Err(error));
            }
            None => {
                self.ask_anew(&key);
                self.with_server(&key, DeferredStep::Begin(beginning));
            }
        }
    }

    /// Continues a login after its client is known.
    pub(super) fn open_as(&mut self, beginning: LoginStart, app: &OAuthApp, server: &Metadata) {
        let (waiter, key) = (beginning.waiter, beginning.key.clone());
        if let LoginMethod::Device = beginning.way {
            return self.open_on_device(beginning, app, server);
        }
        let Some(endpoint) = server.endpoints.authorization.clone() else {
            return self.answer(waiter, Err(lacks(&key, "authorization")));
        };
        let redirect_uri = match redirect_uri_of(app, &beginning) {
            Ok(redirect_uri) => redirect_uri.unwrap_or_default(),
            Err(error) => return self.answer(waiter, Err(error)),
        };
        let scope = scope_of(app, server, self.wider_of(&key));
        let url = authorization_url(app, server, (&endpoint, &scope), &redirect_uri, &beginning);
        let issuer = server.issuer.clone().or(app.issuer.clone());
        let how = ConsentMethod::Code {
            state: beginning.state.clone(),
            verifier: beginning.verifier.clone(),
            redirect_uri: redirect_uri.clone(),
            issuer: issuer.clone(),
            says_issuer: server.says_issuer,
        };
        let expires_at_ms = self.now_ms.saturating_add(LOGIN_TTL_MS);
        let begun = LoginBegun {
            login_id: beginning.id.clone(),
            url,
            issuer,
            scope: Some(scope).filter(|scope| !scope.is_empty()),
            redirect_uri: Some(redirect_uri),
            heard_by: None,
            user_code: None,
            expires_at: Timestamp::from_unix_millis(expires_at_ms),
        };
        self.keep_session(&beginning, how, expires_at_ms, begun);
    }

    fn open_on_device(&mut self, mut beginning: LoginStart, app: &OAuthApp, server: &Metadata) {
        let (waiter, key) = (beginning.waiter, beginning.key.clone());
        let Some(endpoint) = &server.endpoints.device_authorization else {
            return self.answer(waiter, Err(lacks(&key, "device authorization")));
        };
        let scope = scope_of(app, server, self.wider_of(&key));
        let field = ("scope", plain(&scope));
        beginning.scope = Some(scope).filter(|scope| !scope.is_empty());
        let resource = resource_field(beginning.binding.as_ref(), server);
        let fields = [field].into_iter().chain(resource);
        let form = fields.filter(|(_, it)| !it.expose().is_empty());
        let request = self.form_request(&key, (endpoint, server), beginning.binding.as_ref(), form);
        let Some(request) = request else { return };
        let pending = TicketPurpose::DeviceCode(Box::new(beginning));
        self.ask(&key.workspace_id, ServerRequest::Device(request), pending);
    }

    fn keep_session(
        &mut self,
        beginning: &LoginStart,
        how: ConsentMethod,
        expires_at_ms: i64,
        begun: LoginBegun,
    ) {
        let LoginStart {
            waiter, key, id, ..
        } = beginning;
        let Some(fingerprint) = self.app_of(key).map(|app| app.fingerprint.clone()) else {
            return;
        };
        let session = LoginSession {
            id: id.clone(),
            fingerprint,
            binding: beginning.binding.clone(),
            how,
            expires_at_ms,
            scope: begun.scope.clone(),
            is_used: false,
        };
        self.make_room(&key.workspace_id);
        let fields = session.fields(key);
        let login = Box::new(Login::of_session(key.clone(), session, self.now_ms));
        let place = DocumentKey::Session(key.clone(), id.clone());
        self.write(
            place,
            fields,
            TicketPurpose::Session(*waiter, login, Box::new(begun)),
        );
    }

    /// Abandons the oldest logins to make room for one more.
    fn make_room(&mut self, workspace_id: &WorkspaceId) {
        let logins = self.logins.iter();
        let open = logins.filter(|(_, login)| login.key.workspace_id == *workspace_id);
        let mut open: Vec<(i64, LoginId)> = open
            .map(|(id, login)| (login.session.expires_at_ms, id.clone()))
            .collect();
        open.sort();
        let too_many = (open.len() + 1).saturating_sub(LOGINS_OPEN_MAX);
        for (_, id) in open.into_iter().take(too_many) {
            self.end_login(&id, &Err(no_login("another login was begun")));
        }
    }

    pub(super) fn on_session_kept(
        &mut self,
        waiter: WaiterId,
        login: Login,
        begun: LoginBegun,
        result: Result<(), String>,
    ) {
        match result {
            Ok(()) => {
                self.logins.insert(login.session.id.clone(), login);
                self.answer(waiter, Ok(GrantAnswer::Begun(begun)));
            }
            Err(why) => {
                let text = format!("failed to store the login: {why}");
                let error = ControlError::new(ErrorCode::Storage, text);
                self.answer(waiter, Err(error.suggest("check the free disk space")));
            }
        }
    }

    pub(super) fn finish_login(&mut self, finishing: LoginFinish) {
        let LoginFinish {
            waiter,
            workspace_id,
            id,
            callback,
        } = finishing;
        let now_ms = self.now_ms;
        let login = self
            .logins
            .get_mut(&id)
            .filter(|login| login.key.workspace_id == workspace_id);
        let Some(login) = login else {
            let result = match callback {
                None => self.take_ended(&workspace_id, &id),
                Some(_) => None,
            };
            let why = "it was used, abandoned, or has expired";
            return self.answer(waiter, result.unwrap_or_else(|| Err(no_login(why))));
        };
        let is_over = login.session.is_used || login.session.expires_at_ms <= now_ms;
        let (state, redirect_uri) = match &login.session.how {
            ConsentMethod::Device { .. } => return login.waiters.push(waiter),
            // A connection receives the redirect, or has already.
            ConsentMethod::Code { redirect_uri, .. }
                if callback.is_none() && public_path(redirect_uri).is_some() =>
            {
                return login.waiters.push(waiter);
            }
            ConsentMethod::Code { .. } if is_over => {
                let error = no_login("it was used, or has expired");
                return self.answer(waiter, Err(error));
            }
            ConsentMethod::Code {
                state,
                redirect_uri,
                ..
            } => (state, redirect_uri),
        };
        let address = callback.as_ref().map_or("", SecretValue::expose);
        let callback = match Callback::parse(address, redirect_uri) {
            Ok(callback) if callback.state == *state => callback,
            Ok(_) => {
                return self.answer(waiter, Err(not_accepted("its `state` is of another login")));
            }
            Err(error) => return self.answer(waiter, Err(not_accepted(&error.to_string()))),
        };
        login.waiters.push(waiter);
        // Waiting callers get the error.
        drop(self.take_callback(&id, callback));
    }

    /// Handles a redirect to the public address with this path, received by a connection of the
    /// workspace. `query` is the URL's query.
    pub fn come_back(
        &mut self,
        workspace_id: &WorkspaceId,
        path: &str,
        query: &str,
    ) -> RedirectOutcome {
        let mut apps = self.apps.iter();
        // The logins are known only after all documents are loaded.
        if apps.any(|((of, _), app)| of == workspace_id && !app.is_read) {
            return RedirectOutcome::TooEarly;
        }
        let Ok(callback) = Callback::of_query(query) else {
            return RedirectOutcome::EndsNone;
        };
        let now_ms = self.now_ms;
        let is_meant = |login: &Login| match &login.session.how {
            ConsentMethod::Code {
                state,
                redirect_uri,
                ..
            } => {
                login.key.workspace_id == *workspace_id
                    && *state == callback.state
                    && public_path(redirect_uri) == Some(path)
                    && !login.session.is_used
                    && login.session.expires_at_ms > now_ms
            }
            ConsentMethod::Device { .. } => false,
        };
        let mut logins = self.logins.iter();
        let id = logins.find(|(_, login)| is_meant(login));
        let Some(id) = id.map(|(id, _)| id.clone()) else {
            return RedirectOutcome::EndsNone;
        };
        match self.take_callback(&id, callback) {
            Ok(()) => RedirectOutcome::Taken,
            Err(_) => RedirectOutcome::EndsNone,
        }
    }

    /// Continues the login that matches the `state` of a redirect, or ends it.
    fn take_callback(&mut self, id: &LoginId, callback: Callback) -> Result<(), ControlError> {
        let how = self.logins.get(id).map(|login| &login.session.how);
        let Some(ConsentMethod::Code {
            issuer,
            says_issuer,
            ..
        }) = how
        else {
            return Err(no_login("it was abandoned"));
        };
        let is_issuer = match (&callback.issuer, issuer) {
            (Some(said), Some(issuer)) => said == issuer,
            (None, Some(_)) => !says_issuer,
            (_, None) => true,
        };
        if !is_issuer {
            let error = not_accepted("it comes from another authorization server than the login");
            self.end_login(id, &Err(error.clone()));
            return Err(error);
        }
        match callback.outcome {
            Err(refused) => self.end_login(id, &Err(declined(&refused))),
            Ok(code) => self.use_code(id, code),
        }
        Ok(())
    }

    /// Durably marks the login as used, then exchanges its code.
    fn use_code(&mut self, id: &LoginId, code: SecretValue) {
        let Some(login) = self.logins.get_mut(id) else {
            return;
        };
        login.session.is_used = true;
        login.code = Some(code);
        let key = login.key.clone();
        let fields = login.session.fields(&key);
        let place = DocumentKey::Session(key, id.clone());
        self.write(place, fields, TicketPurpose::Used(id.clone()));
    }

    pub(super) fn on_used_kept(&mut self, id: &LoginId, result: Result<(), String>) {
        let Some(key) = self.logins.get(id).map(|login| login.key.clone()) else {
            return;
        };
        match result {
            Ok(()) => self.with_server(&key, DeferredStep::Exchange(id.clone())),
            Err(why) => self.end_login(id, &Err(not_kept(&why))),
        }
    }

    pub(super) fn exchange(&mut self, id: &LoginId, server: &Metadata) {
        let Some(login) = self.logins.get(id) else {
            return;
        };
        let key = login.key.clone();
        let request = match (&login.session.how, &login.code, &server.endpoints.token) {
            (
                ConsentMethod::Code {
                    verifier,
                    redirect_uri,
                    ..
                },
                Some(code),
                Some(endpoint),
            ) if self.is_of_login(login, server) => {
                let form = [
                    ("grant_type", plain("authorization_code")),
                    ("code", code.clone()),
                    ("redirect_uri", plain(redirect_uri)),
                    ("code_verifier", verifier.clone()),
                ];
                let binding = login.session.binding.as_ref();
                let form = form.into_iter().chain(resource_field(binding, server));
                self.form_request(&key, (endpoint, server), binding, form)
            }
            _ => None,
        };
        self.ask_for_grant(id, &key, request);
    }

    /// True if application and server are unchanged since the login began.
    fn is_of_login(&self, login: &Login, server: &Metadata) -> bool {
        let app = self.app_of(&login.key);
        app.is_some_and(|app| app.fingerprint == login.session.fingerprint)
            && is_of_server(login.session.binding.as_ref(), server)
    }

    fn ask_for_grant(&mut self, id: &LoginId, key: &GrantKey, request: Option<FormRequest>) {
        match request {
            Some(request) => {
                let pending = TicketPurpose::Exchange(id.clone());
                self.ask(&key.workspace_id, ServerRequest::Token(request), pending);
            }
            None => {
                let error = no_login(
                    "the OAuthApp or its server was changed in the meantime, or has no token endpoint",
                );
                self.end_login(id, &Err(error));
            }
        }
    }

    pub(super) fn on_exchanged(&mut self, id: &LoginId, answered: ServerResponse) {
        let Some(login) = self.logins.get_mut(id) else {
            return;
        };
        match (answered, &mut login.session.how) {
            (ServerResponse::Token(Reply::Granted(token)), _) => self.keep_grant(id, token),
            (
                ServerResponse::Token(Reply::Refused(refused)),
                ConsentMethod::Device { interval_ms, .. },
            ) if [PENDING, SLOW_DOWN].contains(&refused.error.as_str()) => {
                if refused.error == SLOW_DOWN {
                    *interval_ms = interval_ms.saturating_add(DEVICE_SLOW_DOWN_MS);
                }
                login.poll_at_ms = Some(self.now_ms.saturating_add(*interval_ms));
            }
            (ServerResponse::Token(Reply::Refused(refused)), _) => {
                self.end_login(id, &Err(declined(&refused)));
            }
            // Polling has no side effect.
            (
                ServerResponse::NotMade(_) | ServerResponse::Unknown(_),
                ConsentMethod::Device { interval_ms, .. },
            ) => {
                login.poll_at_ms = Some(self.now_ms.saturating_add(*interval_ms));
            }
            // A code can be used once, and its use is unknown.
            (
                ServerResponse::NotMade(why) | ServerResponse::Unknown(why),
                ConsentMethod::Code { .. },
            ) => {
                let command = login_command(&login.key);
                let error = unavailable(&why).suggest(format!("log in again: {command}"));
                self.end_login(id, &Err(error));
            }
            (other, _) => {
                let why = format!("unexpected response: {other:?}");
                self.end_login(id, &Err(unavailable(&why)));
            }
        }
    }

    fn keep_grant(&mut self, id: &LoginId, token: Token) {
        let now_ms = self.now_ms;
        let Some(login) = self.logins.get(id) else {
            return;
        };
        let (key, fingerprint) = (login.key.clone(), login.session.fingerprint.clone());
        let (binding, asked) = (login.session.binding.clone(), login.session.scope.clone());
        let wider = self.wider_of(&key).map(str::to_owned);
        let entry = self.entry(&key);
        entry.issued += 1;
        // Without `scope` in the response, the requested scopes were granted (RFC 6749, 5.1).
        let scope = token.scope.clone().or(asked);
        let grant = Grant {
            binding,
            scope,
            wider,
            ..Grant::of_token(token, now_ms, entry.issued, fingerprint)
        };
        let fields = grant.fields(&key);
        let pending = TicketPurpose::LoginGrant(id.clone(), Box::new(grant));
        self.write(DocumentKey::Grant(key), fields, pending);
    }

    pub(super) fn on_login_granted(
        &mut self,
        id: &LoginId,
        grant: Grant,
        result: Result<(), String>,
    ) {
        let Some(key) = self.logins.get(id).map(|login| login.key.clone()) else {
            return;
        };
        if let Err(why) = result {
            return self.end_login(id, &Err(not_kept(&why)));
        }
        self.install(&key, grant);
        self.happened(&key, OAuthEvent::Granted);
        let info = self.info(&key);
        self.end_login(id, &Ok(GrantAnswer::Grant(info)));
    }

    /// Takes the result of a login that ended before a caller waited for it, because a browser can
    /// be faster than the client.
    fn take_ended(
        &mut self,
        workspace_id: &WorkspaceId,
        id: &LoginId,
    ) -> Option<Result<GrantAnswer, ControlError>> {
        let is_meant = |(ended, of, _): &EndedLogin| ended == id && of == workspace_id;
        let at = self.ended.iter().position(is_meant)?;
        self.ended.remove(at).map(|(_, _, result)| result)
    }

    /// Ends a login and removes all its data from disk (`SYS-5`).
    pub(super) fn end_login(&mut self, id: &LoginId, result: &Result<GrantAnswer, ControlError>) {
        let Some(login) = self.logins.remove(id) else {
            return;
        };
        let is_public = matches!(
            &login.session.how,
            ConsentMethod::Code { redirect_uri, .. } if public_path(redirect_uri).is_some()
        );
        if is_public && login.waiters.is_empty() {
            let workspace_id = login.key.workspace_id.clone();
            self.ended
                .push_back((id.clone(), workspace_id, result.clone()));
            let too_many = self.ended.len().saturating_sub(LOGINS_OPEN_MAX);
            drop(self.ended.drain(..too_many));
        }
        self.remove(
            DocumentKey::Session(login.key, id.clone()),
            TicketPurpose::Nothing,
        );
        for waiter in login.waiters {
            self.answer(waiter, result.clone());
        }
    }

    pub(super) fn on_device_code(&mut self, beginning: &LoginStart, answered: ServerResponse) {
        let waiter = beginning.waiter;
        let device = match answered {
            ServerResponse::Device(Reply::Granted(device)) => device,
            ServerResponse::Device(Reply::Refused(refused)) => {
                return self.answer(waiter, Err(declined(&refused)));
            }
            ServerResponse::NotMade(why) | ServerResponse::Unknown(why) => {
                return self.answer(waiter, Err(unavailable(&why)));
            }
            other => {
                let why = format!("unexpected response: {other:?}");
                return self.answer(waiter, Err(unavailable(&why)));
            }
        };
        let ms = |seconds: u64| i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let life_ms = ms(device.expires_in_s).min(6 * LOGIN_TTL_MS);
        let expires_at_ms = self.now_ms.saturating_add(life_ms);
        let how = ConsentMethod::Device {
            device_code: device.device_code,
            interval_ms: ms(device.interval_s).clamp(DEVICE_POLL_MIN_MS, LOGIN_TTL_MS),
        };
        let complete = device.verification_uri_complete;
        let begun = LoginBegun {
            login_id: beginning.id.clone(),
            url: complete.unwrap_or(device.verification_uri),
            issuer: self.issuer_of(beginning),
            scope: beginning.scope.clone(),
            redirect_uri: None,
            heard_by: None,
            user_code: Some(device.user_code),
            expires_at: Timestamp::from_unix_millis(expires_at_ms),
        };
        self.keep_session(beginning, how, expires_at_ms, begun);
    }

    /// Returns the issuer of a login on another device, from its server or the configuration.
    fn issuer_of(&self, beginning: &LoginStart) -> Option<String> {
        let bound = beginning.binding.as_ref();
        let bound = bound.map(|binding| binding.issuer.clone());
        bound.or_else(|| self.app_of(&beginning.key)?.definition.issuer.clone())
    }

    pub(super) fn poll(&mut self, id: &LoginId, server: &Metadata) {
        let Some(login) = self.logins.get(id) else {
            return;
        };
        let key = login.key.clone();
        let request = match (&login.session.how, &server.endpoints.token) {
            (ConsentMethod::Device { device_code, .. }, Some(endpoint))
                if self.is_of_login(login, server) =>
            {
                let form = [
                    ("grant_type", plain(DEVICE_GRANT)),
                    ("device_code", device_code.clone()),
                ];
                let binding = login.session.binding.as_ref();
                let form = form.into_iter().chain(resource_field(binding, server));
                self.form_request(&key, (endpoint, server), binding, form)
            }
            _ => None,
        };
        self.ask_for_grant(id, &key, request);
    }

    /// Ends expired logins and polls those on other devices.
    pub(super) fn on_login_time(&mut self) {
        let now_ms = self.now_ms;
        let mut over: Vec<LoginId> = Vec::new();
        let mut due: Vec<(GrantKey, LoginId)> = Vec::new();
        for (id, login) in &mut self.logins {
            if login.session.expires_at_ms <= now_ms && !login.session.is_used {
                over.push(id.clone());
            } else if login.poll_at_ms.is_some_and(|at| at <= now_ms) {
                login.poll_at_ms = None;
                due.push((login.key.clone(), id.clone()));
            }
        }
        for id in over {
            self.end_login(&id, &Err(no_login("it has expired")));
        }
        for (key, id) in due {
            self.with_server(&key, DeferredStep::Poll(id));
        }
    }
}

/// Returns the redirect address; `None` for a login on another device.
pub(super) fn redirect_uri_of(
    app: &OAuthApp,
    beginning: &LoginStart,
) -> Result<Option<String>, ControlError> {
    match (beginning.way, &app.redirect_uri) {
        (LoginMethod::Device, _) => Ok(None),
        (LoginMethod::Browser(_), Some(written)) => Ok(Some(written.clone())),
        (LoginMethod::Browser(Some(port)), None) => {
            Ok(Some(format!("http://127.0.0.1:{port}{LOOPBACK_PATH}")))
        }
        (LoginMethod::Browser(None), None) => {
            let text = format!("OAuthApp `{}` has no `redirectUri`", app.name);
            let error = ControlError::new(ErrorCode::InvalidRequest, text);
            Err(error.suggest("pass `port` to set the redirect address"))
        }
    }
}

/// Returns the URL of the consent page.
fn authorization_url(
    app: &OAuthApp,
    server: &Metadata,
    (endpoint, scope): (&str, &str),
    redirect_uri: &str,
    beginning: &LoginStart,
) -> String {
    let client = client_of(app, beginning.binding.as_ref());
    let challenge = challenge(&beginning.verifier);
    let mut fields = vec![
        ("response_type", "code"),
        ("client_id", client.id.as_str()),
        ("redirect_uri", redirect_uri),
        ("state", beginning.state.expose()),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
    ];
    if !scope.is_empty() {
        fields.push(("scope", scope));
    }
    let omits_resource = omits_resource(app);
    let resource = server.resource.as_deref().filter(|_| !omits_resource);
    fields.extend(resource.map(|resource| ("resource", resource)));
    let params = app.params.iter();
    let params = params.filter(|(name, _)| !(omits_resource && *name == "resource"));
    fields.extend(params.map(|(name, value)| (name.as_str(), value.as_str())));
    let separator = if endpoint.contains('?') { '&' } else { '?' };
    format!("{endpoint}{separator}{}", form_encoded(fields))
}

fn lacks(key: &GrantKey, what: &str) -> ControlError {
    let text = format!(
        "the authorization server of {} has no {what} endpoint",
        key.need
    );
    let error = ControlError::new(ErrorCode::OauthRefused, text);
    error.suggest("name it under `endpoints` of the OAuthApp, or log in another way")
}

fn no_login(why: &str) -> ControlError {
    let text = format!("the login does not exist: {why}");
    ControlError::new(ErrorCode::OauthNotFound, text)
        .suggest("begin another: `gdn secret oauth login APP`")
}

fn not_accepted(why: &str) -> ControlError {
    let text = format!("this does not end the login: {why}");
    let error = ControlError::new(ErrorCode::OauthRefused, text);
    error
        .suggest("hand in the whole address that the browser shows at the end, of the latest login")
}

fn declined(refused: &TokenErrorResponse) -> ControlError {
    let text = format!("the authorization server rejected the request: {refused}");
    let hint = match refused.error.as_str() {
        INVALID_TARGET => {
            "the server rejects the field `resource`: to log in without it, add `params: {resource: \
             \"\"}` to the OAuthApp; for a Connection with `auth: oauth`, to an OAuthApp with its name"
        }
        _ => {
            "log in again and consent; check `clientId`, `scopes` and `redirectUri` of the OAuthApp"
        }
    };
    ControlError::new(ErrorCode::OauthRefused, text).suggest(hint)
}
