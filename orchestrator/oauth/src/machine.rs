//! State machine of logins, grants and renewals.
//!
//! * `clients`: the application's client at its server.
//! * `registration`: determines the client for a login.
//! * `logins`: logins up to the grant.
//! * `renewal`: the next token, requested once for all callers.
//! * `revocation`: revocation of tokens.
//! * `servers`: endpoints of servers.
//! * `initial_load`: initial load of an application's documents.
//! * `verdicts`: acceptance and rejection of tokens by servers.
//! * `views`: displayed state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_protocol::control::{ControlError, ErrorCode, GrantInfo, GrantRevoked, LoginBegun};
use goondan_protocol::ids::{LoginId, ResourceName, WorkspaceId};
use goondan_protocol::oauth::{
    DeviceCode, FormRequest, Metadata, MetadataRequest, OAuthApp, OAuthClient, OAuthNeed,
    RegisterRequest, Reply, Token,
};
use goondan_protocol::secret::SecretValue;
use goondan_protocol::time::Timestamp;

pub use self::logins::RedirectOutcome;
use self::logins::{Login, LoginFinish, LoginStart};
use self::renewal::Phase;
use self::revocation::Revocation;
use self::servers::{AuthServer, MetadataLookup, ServerKey};
pub use self::verdicts::RejectionOutcome;
use crate::documents::{Fields, Grant, GrantServer};
use crate::key::{DocumentKey, GrantKey, fingerprint};

mod clients;
mod initial_load;
mod logins;
mod registration;
mod renewal;
mod revocation;
mod servers;
mod verdicts;
mod views;

/// Id of a caller that waits for an answer, chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaiterId(pub u64);

/// Id that links an effect to its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A request to an authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerRequest {
    Metadata(MetadataRequest),
    Token(FormRequest),
    Revoke(FormRequest),
    /// Begin a login on another device.
    Device(FormRequest),
    Register(RegisterRequest),
}

/// Result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerResponse {
    Metadata(Reply<Metadata>),
    Token(Reply<Token>),
    Revoked(Reply<()>),
    /// Reply to a login on another device.
    Device(Reply<DeviceCode>),
    Registered(Reply<OAuthClient>),
    /// The request was not sent, with the reason.
    NotMade(String),
    /// The outcome is unknown, with the reason.
    Unknown(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantAnswer {
    Begun(LoginBegun),
    Grant(GrantInfo),
    /// Tokens were revoked, or deleted locally.
    Revoked(GrantRevoked),
}

/// Event to report to users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OAuthEvent {
    /// A user logged in (`auth.granted`).
    Granted,
    Renewed,
    /// A user must log in again, with the reason.
    NeedsAuth(String),
    /// The renewal failed, with the reason.
    NotRenewed(String),
    /// A server rejected the token, and a renewal was requested.
    Declined,
    /// A user must consent to more scopes.
    NeedsWider(String),
    /// The tokens were revoked, or deleted locally.
    Revoked,
    /// A document is unreadable, with the reason.
    Unreadable(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentWork {
    /// Read the documents of an application.
    Read {
        workspace_id: WorkspaceId,
        app: ResourceName,
    },
    /// Write an encrypted document durably, replacing an existing one.
    Write {
        ticket: Ticket,
        place: DocumentKey,
        fields: Fields,
    },
    /// Remove a document durably, if it exists.
    Remove { ticket: Ticket, place: DocumentKey },
}

/// Effect for the caller to execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OAuthEffect {
    /// An operation on documents. Operations are executed in order.
    Documents(DocumentWork),
    /// A request to a server.
    Ask {
        ticket: Ticket,
        /// The workspace whose process sends the request.
        workspace_id: WorkspaceId,
        request: ServerRequest,
    },
    /// Replaces the token of its users, or withdraws it.
    Token {
        key: GrantKey,
        token: Option<SecretValue>,
    },
    /// An answer to a waiting caller.
    Answer {
        waiter: WaiterId,
        result: Result<GrantAnswer, ControlError>,
    },
    Happened {
        key: GrantKey,
        what: OAuthEvent,
    },
}

/// Request to the machine that waits until the application's documents are loaded.
#[derive(Debug)]
enum Call {
    Login(Box<LoginStart>),
    Finish(LoginFinish),
    Refresh(WaiterId, GrantKey),
    Revoke(Revocation),
}

/// Step that waits until the server's endpoints are known.
#[derive(Debug)]
enum DeferredStep {
    Begin(Box<LoginStart>),
    Exchange(LoginId),
    Poll(LoginId),
    Refresh(GrantKey),
    Revoke(Revocation),
}

/// An application of a workspace.
#[derive(Debug)]
struct App {
    definition: OAuthApp,
    fingerprint: String,
    /// True if the configuration contains it.
    is_there: bool,
    /// True if its documents are loaded.
    is_read: bool,
    /// Requests that wait for its documents.
    unread: Vec<Call>,
    servers: BTreeMap<ServerKey, AuthServer>,
}

#[derive(Debug, Default)]
struct GrantEntry {
    /// True if the project requires the token.
    is_needed: bool,
    grant: Option<Grant>,
    issued: u64,
    phase: Phase,
    /// Callers that wait for the renewal.
    waiters: Vec<WaiterId>,
    /// Earliest time of an automatic renewal.
    not_before_ms: i64,
    /// Number of consecutive failed renewals.
    failures: u32,
    /// Generation of the token handed out.
    handed: Option<u64>,
    /// Generation of the token that a server rejected.
    declined: Option<u64>,
    problem: Option<String>,
}

#[derive(Debug)]
enum TicketPurpose {
    Nothing,
    /// A metadata request is in progress.
    Metadata(MetadataLookup),
    /// A login is being stored; then its begin is reported.
    Session(WaiterId, Box<Login>, Box<LoginBegun>),
    /// The use of a login is being stored; then its code is exchanged.
    Used(LoginId),
    Exchange(LoginId),
    DeviceCode(Box<LoginStart>),
    Register(Box<LoginStart>),
    /// The grant of a login is being stored.
    LoginGrant(LoginId, Box<Grant>),
    Lock(GrantKey),
    Refresh(GrantKey),
    /// The result of a refresh is being stored.
    Renewed(GrantKey),
    Revoke(Revocation),
    Forgotten(Revocation, bool, Option<String>),
}

/// State of all tokens.
#[derive(Debug, Default)]
pub struct OAuthMachine {
    now_ms: i64,
    apps: BTreeMap<(WorkspaceId, ResourceName), App>,
    grants: BTreeMap<GrantKey, GrantEntry>,
    logins: BTreeMap<LoginId, Login>,
    /// Latest logins that ended before a caller waited for them.
    ended: VecDeque<logins::EndedLogin>,
    pending: BTreeMap<Ticket, TicketPurpose>,
    next_ticket: u64,
    effects: Vec<OAuthEffect>,
}

impl OAuthMachine {
    /// Sets the time of the next events.
    pub fn begin(&mut self, now: Timestamp) {
        self.now_ms = now.as_unix_millis();
    }

    /// Returns the effects to execute, in order.
    #[must_use]
    pub fn take_effects(&mut self) -> Vec<OAuthEffect> {
        std::mem::take(&mut self.effects)
    }

    /// True if a document is being written or removed. A stopping daemon waits for that, because
    /// the document may contain a server's response that cannot be requested again.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.pending.values().any(|pending| match pending {
            TicketPurpose::Nothing
            | TicketPurpose::Session(..)
            | TicketPurpose::Used(_)
            | TicketPurpose::LoginGrant(..)
            | TicketPurpose::Lock(_)
            | TicketPurpose::Renewed(_)
            | TicketPurpose::Forgotten(..) => true,
            TicketPurpose::Metadata(..)
            | TicketPurpose::Exchange(_)
            | TicketPurpose::DeviceCode(_)
            | TicketPurpose::Register(_)
            | TicketPurpose::Refresh(_)
            | TicketPurpose::Revoke(_) => false,
        })
    }

    /// True if no application needs timer events.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.apps.is_empty()
    }

    /// Applies a workspace's configuration: its applications, and the tokens it requires.
    pub fn set_apps(
        &mut self,
        workspace_id: &WorkspaceId,
        apps: &BTreeMap<ResourceName, OAuthApp>,
        needs: &BTreeSet<OAuthNeed>,
    ) {
        for ((of, name), app) in &mut self.apps {
            app.is_there = if of == workspace_id {
                apps.contains_key(name)
            } else {
                app.is_there
            };
        }
        for (name, definition) in apps {
            let key = (workspace_id.clone(), name.clone());
            let app = self.apps.entry(key).or_insert_with(|| {
                self.effects
                    .push(OAuthEffect::Documents(DocumentWork::Read {
                        workspace_id: workspace_id.clone(),
                        app: name.clone(),
                    }));
                App {
                    definition: definition.clone(),
                    fingerprint: fingerprint(definition),
                    is_there: true,
                    is_read: false,
                    unread: Vec::new(),
                    servers: BTreeMap::new(),
                }
            });
            if app.definition != *definition {
                app.fingerprint = fingerprint(definition);
                app.definition = definition.clone();
                app.forget_servers();
            }
        }
        let is_needed = |key: &GrantKey| key.workspace_id == *workspace_id;
        for (key, entry) in &mut self.grants {
            if is_needed(key) {
                entry.is_needed = false;
            }
        }
        for need in needs {
            self.entry(&GrantKey {
                workspace_id: workspace_id.clone(),
                need: need.clone(),
            })
            .is_needed = true;
        }
        self.hand_all(workspace_id);
    }

    /// Logins that the project of a workspace needs.
    #[must_use]
    pub fn needed_logins(&self, workspace_id: &WorkspaceId) -> Vec<GrantKey> {
        let grants = self.grants.iter();
        let needed =
            grants.filter(|(key, entry)| entry.is_needed && key.workspace_id == *workspace_id);
        needed.map(|(key, _)| key.clone()).collect()
    }

    /// True if the documents of a login's application were read.
    #[must_use]
    pub fn is_read(&self, key: &GrantKey) -> bool {
        self.app_of(key)
            .is_some_and(|app| app.is_there && app.is_read)
    }

    /// Logins that the project needs and that only a person can make. A token that is being renewed
    /// needs none.
    #[must_use]
    pub fn missing_logins(&self, workspace_id: &WorkspaceId) -> Vec<GrantKey> {
        let mut needed = self.needed_logins(workspace_id);
        needed.retain(|key| {
            let grant = self.grants.get(key).and_then(|it| it.grant.as_ref());
            let app = self.app_of(key).filter(|app| app.is_there && app.is_read);
            app.is_some_and(|app| {
                grant.is_none_or(|grant| {
                    grant.needs_auth.is_some() || grant.fingerprint != app.fingerprint
                })
            })
        });
        needed
    }

    /// Removes a closed workspace. Its documents stay on disk.
    pub fn forget(&mut self, workspace_id: &WorkspaceId) {
        self.apps.retain(|(of, _), _| of != workspace_id);
        self.grants
            .retain(|key, _| key.workspace_id != *workspace_id);
        self.logins
            .retain(|_, login| login.key.workspace_id != *workspace_id);
    }

    /// Handles the result of a document operation.
    pub fn on_kept(&mut self, ticket: Ticket, result: Result<(), String>) {
        match self.pending.remove(&ticket) {
            None
            | Some(
                TicketPurpose::Nothing
                | TicketPurpose::Metadata(..)
                | TicketPurpose::Exchange(_)
                | TicketPurpose::DeviceCode(_)
                | TicketPurpose::Register(_)
                | TicketPurpose::Refresh(_)
                | TicketPurpose::Revoke(_),
            ) => {}
            Some(TicketPurpose::Session(waiter, login, begun)) => {
                self.on_session_kept(waiter, *login, *begun, result);
            }
            Some(TicketPurpose::Used(id)) => self.on_used_kept(&id, result),
            Some(TicketPurpose::LoginGrant(id, grant)) => {
                self.on_login_granted(&id, *grant, result);
            }
            Some(TicketPurpose::Lock(key)) => self.on_locked(&key, ticket, result),
            Some(TicketPurpose::Renewed(key)) => self.on_renewal_kept(&key, ticket, result),
            Some(TicketPurpose::Forgotten(revoking, at_server, problem)) => {
                self.on_forgotten(&revoking, at_server, problem, result);
            }
        }
    }

    /// Handles the result of a request.
    pub fn on_answered(&mut self, ticket: Ticket, answered: ServerResponse) {
        match self.pending.remove(&ticket) {
            Some(TicketPurpose::Metadata(asked)) => self.on_metadata(&asked, answered),
            Some(TicketPurpose::Exchange(id)) => self.on_exchanged(&id, answered),
            Some(TicketPurpose::DeviceCode(beginning)) => self.on_device_code(&beginning, answered),
            Some(TicketPurpose::Register(beginning)) => self.on_registered(*beginning, answered),
            Some(TicketPurpose::Refresh(key)) => self.on_refreshed(&key, ticket, answered),
            Some(TicketPurpose::Revoke(revoking)) => self.on_revoked(revoking, answered),
            _ => {}
        }
    }

    /// Handles the passing of time.
    pub fn on_time(&mut self) {
        self.renew_due();
        self.on_login_time();
    }

    fn call(&mut self, key: &GrantKey, waiter: WaiterId, call: Call) {
        let app = self
            .apps
            .get_mut(&(key.workspace_id.clone(), key.need.app.clone()));
        match app {
            Some(app) if app.is_there && app.is_read => self.make(call),
            Some(app) if app.is_there => app.unread.push(call),
            Some(_) | None => {
                let text = format!("OAuthApp `{}` does not exist", key.need.app);
                let error = ControlError::new(ErrorCode::OauthNotFound, text);
                let error = error.suggest(
                    "`gdn secret oauth list` shows all; one is a document of `kind: OAuthApp`",
                );
                self.answer(waiter, Err(error));
            }
        }
    }

    fn make(&mut self, call: Call) {
        match call {
            Call::Login(beginning) => self.begin_login(beginning),
            Call::Finish(finishing) => self.finish_login(finishing),
            Call::Refresh(waiter, key) => self.refresh_for(waiter, &key),
            Call::Revoke(revoking) => self.begin_revocation(revoking),
        }
    }

    fn entry(&mut self, key: &GrantKey) -> &mut GrantEntry {
        self.grants.entry(key.clone()).or_default()
    }

    fn app_of(&self, key: &GrantKey) -> Option<&App> {
        self.apps
            .get(&(key.workspace_id.clone(), key.need.app.clone()))
    }

    fn ticket(&mut self, pending: TicketPurpose) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.pending.insert(ticket, pending);
        ticket
    }

    fn write(&mut self, place: DocumentKey, fields: Fields, pending: TicketPurpose) -> Ticket {
        let ticket = self.ticket(pending);
        self.effects
            .push(OAuthEffect::Documents(DocumentWork::Write {
                ticket,
                place,
                fields,
            }));
        ticket
    }

    fn remove(&mut self, place: DocumentKey, pending: TicketPurpose) {
        let ticket = self.ticket(pending);
        let work = DocumentWork::Remove { ticket, place };
        self.effects.push(OAuthEffect::Documents(work));
    }

    fn ask(
        &mut self,
        workspace_id: &WorkspaceId,
        request: ServerRequest,
        pending: TicketPurpose,
    ) -> Ticket {
        let ticket = self.ticket(pending);
        self.effects.push(OAuthEffect::Ask {
            ticket,
            workspace_id: workspace_id.clone(),
            request,
        });
        ticket
    }

    fn answer(&mut self, waiter: WaiterId, result: Result<GrantAnswer, ControlError>) {
        self.effects.push(OAuthEffect::Answer { waiter, result });
    }

    fn happened(&mut self, key: &GrantKey, what: OAuthEvent) {
        self.effects.push(OAuthEffect::Happened {
            key: key.clone(),
            what,
        });
    }

    /// Hands out the currently valid token.
    fn hand(&mut self, key: &GrantKey) {
        let now_ms = self.now_ms;
        let fingerprint = self
            .app_of(key)
            .filter(|app| app.is_there)
            .map(|app| app.fingerprint.clone());
        let Some(entry) = self.grants.get_mut(key) else {
            return;
        };
        let good = entry.grant.as_ref().filter(|grant| {
            let has_ended = grant.expires_at_ms.is_some_and(|at| at <= now_ms);
            entry.is_needed
                && grant.needs_auth.is_none()
                && Some(&grant.fingerprint) == fingerprint.as_ref()
                // A token that was handed out stays until a better one exists.
                && (!has_ended || entry.handed.is_some())
        });
        let generation = good.map(|grant| grant.generation);
        if generation == entry.handed {
            return;
        }
        let token = good.map(|grant| grant.access_token.clone());
        entry.handed = generation;
        self.effects.push(OAuthEffect::Token {
            key: key.clone(),
            token,
        });
    }

    fn hand_all(&mut self, workspace_id: &WorkspaceId) {
        let keys = self.grants.keys();
        let keys = keys.filter(|key| key.workspace_id == *workspace_id);
        for key in keys.cloned().collect::<Vec<_>>() {
            self.hand(&key);
        }
    }

    /// Creates a form request to an endpoint, with the client of this binding.
    fn form_request(
        &self,
        key: &GrantKey,
        (endpoint, server): (&str, &Metadata),
        binding: Option<&GrantServer>,
        form: impl IntoIterator<Item = (&'static str, SecretValue)>,
    ) -> Option<FormRequest> {
        let app = &self.app_of(key)?.definition;
        let client = clients::client_of(app, binding);
        let omits_resource = clients::omits_resource(app);
        let form = form.into_iter();
        let form = form.filter(|(name, _)| !(omits_resource && *name == "resource"));
        Some(FormRequest {
            endpoint: endpoint.to_owned(),
            client_id: client.id,
            client_secret: client.secret,
            client_auth: client.auth,
            form: form.map(|(name, value)| (name.to_owned(), value)).collect(),
            public_only: server.public_only && !clients::is_written(app, endpoint),
        })
    }
}

fn plain(text: &str) -> SecretValue {
    SecretValue::new(text.to_owned())
}

fn unavailable(why: &str) -> ControlError {
    let text = format!("the request to the authorization server failed: {why}");
    ControlError::new(ErrorCode::OauthUnavailable, text)
        .suggest("try again; `gdn logs` shows what the process `oauth` wrote")
}

fn not_kept(why: &str) -> ControlError {
    let text = format!("failed to store the response of the authorization server: {why}");
    ControlError::new(ErrorCode::Storage, text).suggest("check the free disk space")
}
