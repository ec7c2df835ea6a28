//! Tokens of authorization servers: connects [`goondan_oauth::OAuthMachine`] to the daemon (`SYS-4`).
//!
//! Requests to servers are calls to the workspace's connection `oauth`; no process waits for them.
//! `fleet::tokens` tracks the token of each process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_oauth::{
    ENTROPY_BYTES, GrantAnswer, GrantKey, OAuthEffect, OAuthEvent, OAuthMachine, RedirectOutcome,
    RejectionOutcome, ServerRequest, ServerResponse, Ticket, WaiterId, limits::REQUEST_TIMEOUT_MS,
};
use goondan_protocol::call::{CallErrorCode, CallOutcome};
use goondan_protocol::control::{Call, ControlError, ErrorCode, LoginBegun};
use goondan_protocol::decision::{DecisionForm, DecisionNotice, DecisionShow, DecisionSubject};
use goondan_protocol::ids::{
    ConnectionName, DecisionId, LoginId, OAuthSubject, ResourceName, WorkspaceId,
};
use goondan_protocol::oauth::{
    DEVICE, METADATA, OAuthNeed, REGISTER, REVOKE, Reply, TOKEN, public_path,
};
use goondan_protocol::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest as _, Sha512};

use crate::bus::queue::{Message, Notice};
use crate::chat_proposals::digest_id;
use crate::exchange::oauth::{OAuthResult, OAuthWork};
use crate::exchange::oauth_calls::{OAuthCall, OAuthCallResult, TokenReport};
use crate::fleet::Fleet;
use crate::fleet::connectors::callback_path;
use crate::{CoreEffect, LogEvent, RequestToken};

/// Number of UUIDs hashed into the secrets of a login. Each has 74 random bits; UUIDs of the same
/// millisecond have at least 32 independent bits.
const LOGIN_UUIDS: usize = 8;

/// The state machine and its pending requests.
#[derive(Debug, Default)]
pub(crate) struct OAuth {
    machine: OAuthMachine,
    /// Workspaces of logins in progress, by request.
    beginning: BTreeMap<RequestToken, WorkspaceId>,
    /// Times since when logins were found missing.
    waits: BTreeMap<GrantKey, Timestamp>,
}

impl OAuth {
    /// Applies a new configuration of a workspace.
    pub(crate) fn on_taken_up(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        let Some(bundle) = fleet.bundle(id) else {
            return;
        };
        let (apps, needs) = (bundle.oauth_apps.clone(), bundle.oauth_needs.clone());
        self.machine.begin(fleet.now().wall);
        self.machine.set_apps(id, &apps, &needs);
        self.say(fleet);
        self.note_logins(fleet, id);
    }

    /// Updates the missing logins of a workspace, and shows them in its chats.
    fn note_logins(&mut self, fleet: &mut Fleet, id: &WorkspaceId) {
        let now = fleet.now().wall;
        let missing: BTreeSet<GrantKey> = self.machine.missing_logins(id).into_iter().collect();
        let is_missing = |key: &GrantKey| key.workspace_id != *id || missing.contains(key);
        self.waits.retain(|key, _| is_missing(key));
        for key in missing {
            self.waits.entry(key).or_insert(now);
        }
        fleet.post(Message::Notice(Notice::Decisions(id.clone())));
    }

    /// Missing logins of a workspace, as chats show them, with the time since when each is missing.
    pub(crate) fn logins_to_show(&self, id: &WorkspaceId) -> Vec<(Timestamp, DecisionShow)> {
        let of_it = self.waits.iter().filter(|(key, _)| key.workspace_id == *id);
        let shown = of_it.map(|(key, since)| {
            let need = &key.need;
            let show = DecisionShow {
                decision_id: login_id(key),
                about: DecisionSubject::Login(DecisionNotice {
                    of: format!("login for {need}"),
                    text: "calls that need its token wait".to_owned(),
                    command: format!("secret oauth login {}", need.arguments()),
                }),
                form: DecisionForm::default(),
                expires: None,
            };
            (*since, show)
        });
        shown.collect()
    }

    /// The login with this id that the project needs, if there is one.
    fn login(&self, id: &WorkspaceId, decision_id: &DecisionId) -> Option<GrantKey> {
        let mut needed = self.machine.needed_logins(id).into_iter();
        needed.find(|key| login_id(key) == *decision_id)
    }

    /// True if the documents of a login are not read yet.
    pub(crate) fn is_login_unknown(&self, id: &WorkspaceId, decision_id: &DecisionId) -> bool {
        let login = self.login(id, decision_id);
        login.is_some_and(|key| !self.machine.is_read(&key))
    }

    /// Outcome of a login that is no longer missing, for people to read.
    pub(crate) fn outcome_of_login(
        &self,
        id: &WorkspaceId,
        decision_id: &DecisionId,
    ) -> Option<String> {
        let login = self.login(id, decision_id)?;
        let is_done = self.machine.is_read(&login) && !self.waits.contains_key(&login);
        is_done.then(|| "done: a person logged in".to_owned())
    }

    /// Drops a closed workspace.
    pub(crate) fn forget(&mut self, id: &WorkspaceId) {
        self.machine.forget(id);
        self.waits.retain(|key, _| key.workspace_id != *id);
    }

    /// True if a write or removal is not durable yet.
    pub(crate) fn is_writing(&self) -> bool {
        self.machine.is_writing()
    }

    pub(crate) fn on_time(&mut self, fleet: &mut Fleet) {
        if !self.machine.is_idle() && !fleet.is_stopping() {
            self.machine.begin(fleet.now().wall);
            self.machine.on_time();
            self.say(fleet);
        }
    }

    pub(crate) fn on_done(&mut self, fleet: &mut Fleet, done: OAuthResult) {
        self.machine.begin(fleet.now().wall);
        match done {
            OAuthResult::Read {
                workspace_id,
                app,
                documents,
            } => {
                self.machine.on_read(&workspace_id, &app, documents);
                self.say(fleet);
                return self.note_logins(fleet, &workspace_id);
            }
            OAuthResult::Kept { ticket, result } => self.machine.on_kept(ticket, result),
        }
        self.say(fleet);
    }

    pub(crate) fn on_called(&mut self, fleet: &mut Fleet, called: OAuthCallResult) {
        self.machine.begin(fleet.now().wall);
        let answered = answered(&called.method, called.outcome);
        self.machine.on_answered(called.ticket, answered);
        self.say(fleet);
    }

    /// Handles a server's verdict on the tokens it received.
    pub(crate) fn on_verdict(
        &mut self,
        fleet: &mut Fleet,
        verdict: &TokenReport,
    ) -> RejectionOutcome {
        self.machine.begin(fleet.now().wall);
        let mut ruling = RejectionOutcome::OtherToken;
        for (need, token) in &verdict.tokens {
            let key = GrantKey {
                workspace_id: verdict.workspace_id.clone(),
                need: need.clone(),
            };
            match &verdict.said {
                None => self.machine.worked(&key, token),
                Some(said) => {
                    let needs_all = verdict.call.is_none();
                    ruling = self.machine.declined(&key, token, said, needs_all);
                }
            }
        }
        self.say(fleet);
        ruling
    }

    /// Handles a redirect from an authorization server to the public address at this path of a
    /// connection.
    pub(crate) fn on_callback(
        &mut self,
        fleet: &mut Fleet,
        id: &WorkspaceId,
        path: &str,
        query: &str,
    ) -> RedirectOutcome {
        self.machine.begin(fleet.now().wall);
        let taken = self.machine.come_back(id, path, query);
        self.say(fleet);
        taken
    }

    /// Handles client requests. Only users may change anything.
    pub(crate) fn on_request(&mut self, fleet: &mut Fleet, token: RequestToken, call: Call) {
        self.machine.begin(fleet.now().wall);
        let waiter = WaiterId(token.0);
        match call {
            Call::ListGrants(list) => {
                return fleet.respond(token, &self.machine.list(list.workspace_id.as_ref()));
            }
            Call::ShowGrant(show) => {
                let key = key(show.workspace_id, show.app, show.subject);
                return match self.machine.show(&key) {
                    Some(info) => fleet.respond(token, &info),
                    None => fleet.respond_error(token, no_app(&key)),
                };
            }
            Call::BeginLogin(login) => {
                let key = key(login.workspace_id, login.app, login.subject);
                let fresh = (LoginId::from(fleet.cx().uuid()), &entropy(fleet));
                let way = (login.port, login.device);
                self.beginning.insert(token, key.workspace_id.clone());
                self.machine.login(waiter, &key, fresh, way);
            }
            Call::FinishLogin(finish) => {
                let (id, callback) = (finish.login_id, finish.callback);
                self.machine
                    .finish(waiter, &finish.workspace_id, id, callback);
            }
            Call::RefreshGrant(refresh) => {
                let key = key(refresh.workspace_id, refresh.app, refresh.subject);
                self.machine.refresh(waiter, &key);
            }
            Call::RevokeGrant(revoke) => {
                let key = key(revoke.workspace_id, revoke.app, revoke.subject);
                self.machine.revoke(waiter, &key, revoke.forget);
            }
            _ => {}
        }
        self.say(fleet);
    }

    /// Executes the effects of the state machine.
    fn say(&mut self, fleet: &mut Fleet) {
        let mut effects = VecDeque::from(self.machine.take_effects());
        let mut changed = BTreeSet::new();
        while let Some(said) = effects.pop_front() {
            match said {
                OAuthEffect::Documents(work) => {
                    fleet
                        .cx()
                        .emit(CoreEffect::OAuth(OAuthWork::Documents(work)));
                }
                OAuthEffect::Ask {
                    ticket,
                    workspace_id,
                    request,
                } => match call_of(ticket, workspace_id, &request) {
                    Ok(call) => fleet.post(Message::OAuthCall(call)),
                    Err(error) => {
                        let why = format!("failed to write the request: {error}");
                        self.machine
                            .on_answered(ticket, ServerResponse::NotMade(why));
                    }
                },
                OAuthEffect::Token { key, token } => {
                    changed.insert(key.workspace_id.clone());
                    if let Some((workspace, cx)) = fleet.workspace_and_cx(&key.workspace_id) {
                        workspace.set_token(cx, &key.need, token);
                    }
                }
                OAuthEffect::Answer { waiter, result } => {
                    let token = RequestToken(waiter.0);
                    match result {
                        Ok(GrantAnswer::Begun(begun)) => {
                            let workspace_id = self.beginning.remove(&token);
                            let heard_by = hearer_of(fleet, workspace_id.as_ref(), &begun);
                            fleet.respond(token, &LoginBegun { heard_by, ..begun });
                        }
                        Ok(GrantAnswer::Grant(info)) => fleet.respond(token, &info),
                        Ok(GrantAnswer::Revoked(revoked)) => fleet.respond(token, &revoked),
                        Err(error) => {
                            self.beginning.remove(&token);
                            fleet.respond_error(token, error);
                        }
                    }
                }
                OAuthEffect::Happened { key, what } => {
                    changed.insert(key.workspace_id.clone());
                    tell(fleet, &key, what);
                }
            }
            effects.extend(self.machine.take_effects());
        }
        for id in changed {
            self.note_logins(fleet, &id);
        }
    }
}

fn login_id(key: &GrantKey) -> DecisionId {
    digest_id(&format!("login\0{}\0{}", key.workspace_id, key.need))
}

/// The connection that receives the redirect of a new login, if any.
fn hearer_of(
    fleet: &Fleet,
    workspace_id: Option<&WorkspaceId>,
    begun: &LoginBegun,
) -> Option<ConnectionName> {
    let path = public_path(begun.redirect_uri.as_deref()?)?;
    let bundle = fleet.bundle(workspace_id?)?;
    let mut connections = bundle.connections.iter();
    let found = connections.find(|(_, it)| callback_path(it) == Some(path));
    found.map(|(name, _)| name.clone())
}

fn tell(fleet: &mut Fleet, key: &GrantKey, what: OAuthEvent) {
    let (event, audited) = match what {
        OAuthEvent::Granted => (LogEvent::info("auth.granted"), Some("oauth.granted")),
        OAuthEvent::Renewed => (LogEvent::info("token renewed"), None),
        OAuthEvent::NeedsAuth(why) => (
            LogEvent::warn("new login required").with("reason", why),
            Some("oauth.needsAuth"),
        ),
        OAuthEvent::Declined => (
            LogEvent::warn("token rejected by server; renewing it"),
            None,
        ),
        OAuthEvent::NeedsWider(scopes) => (
            LogEvent::warn("token lacks scopes; a person's consent is required")
                .with("scopes", scopes),
            Some("oauth.needsConsent"),
        ),
        OAuthEvent::NotRenewed(why) => (
            LogEvent::warn("failed to renew token").with("reason", why),
            None,
        ),
        OAuthEvent::Revoked => (LogEvent::info("tokens revoked"), Some("oauth.revoked")),
        OAuthEvent::Unreadable(why) => (
            LogEvent::error("failed to read OAuth document").with("reason", why),
            None,
        ),
    };
    let event = event.with("workspaceId", key.workspace_id.as_str());
    let event = event.with("app", key.need.app.as_str());
    fleet.log(event.with("subject", key.need.subject.as_str()));
    if let Some(event) = audited {
        fleet.cx().emit(CoreEffect::OAuth(OAuthWork::Audit {
            event,
            workspace_id: key.workspace_id.clone(),
            subject: key.need.to_string(),
        }));
    }
}

fn key(workspace_id: WorkspaceId, app: ResourceName, subject: Option<OAuthSubject>) -> GrantKey {
    let subject = subject.unwrap_or_else(OAuthSubject::global);
    GrantKey {
        workspace_id,
        need: OAuthNeed { app, subject },
    }
}

fn no_app(key: &GrantKey) -> ControlError {
    let text = format!("OAuthApp `{}` does not exist", key.need.app);
    ControlError::new(ErrorCode::OauthNotFound, text).suggest("list all: `gdn secret oauth list`")
}

/// Entropy for the secrets of a login.
fn entropy(fleet: &mut Fleet) -> [u8; ENTROPY_BYTES] {
    let mut hash = Sha512::new();
    for _ in 0..LOGIN_UUIDS {
        hash.update(fleet.cx().uuid().as_bytes());
    }
    hash.finalize().into()
}

fn call_of(
    ticket: Ticket,
    workspace_id: WorkspaceId,
    request: &ServerRequest,
) -> serde_json::Result<OAuthCall> {
    let (method, params, is_idempotent) = match request {
        ServerRequest::Metadata(request) => (METADATA, to_raw_value(request), true),
        ServerRequest::Token(request) => (TOKEN, to_raw_value(request), false),
        ServerRequest::Revoke(request) => (REVOKE, to_raw_value(request), true),
        ServerRequest::Device(request) => (DEVICE, to_raw_value(request), true),
        // Not idempotent: a second request would register another application.
        ServerRequest::Register(request) => (REGISTER, to_raw_value(request), false),
    };
    Ok(OAuthCall {
        ticket,
        workspace_id,
        method,
        params: params?,
        deadline_ms: REQUEST_TIMEOUT_MS,
        is_idempotent,
    })
}

/// Converts a call's outcome for the state machine.
fn answered(method: &str, outcome: CallOutcome) -> ServerResponse {
    let raw = match outcome {
        CallOutcome::Ok(raw) => raw,
        CallOutcome::Error(error) => {
            // The server may have processed the request.
            let is_unknown = matches!(
                error.code,
                CallErrorCode::Interrupted | CallErrorCode::TimedOut | CallErrorCode::Internal
            );
            return if is_unknown {
                ServerResponse::Unknown(error.message)
            } else {
                ServerResponse::NotMade(error.message)
            };
        }
    };
    fn read<T: DeserializeOwned>(raw: &RawValue) -> Option<Reply<T>> {
        serde_json::from_str(raw.get()).ok()
    }
    let read = match method {
        METADATA => read(&raw).map(ServerResponse::Metadata),
        TOKEN => read(&raw).map(ServerResponse::Token),
        REVOKE => read(&raw).map(ServerResponse::Revoked),
        REGISTER => read(&raw).map(ServerResponse::Registered),
        _ => read(&raw).map(ServerResponse::Device),
    };
    // The text is not quoted, because it may contain a token.
    read.unwrap_or_else(|| ServerResponse::Unknown("failed to read the answer".to_owned()))
}
