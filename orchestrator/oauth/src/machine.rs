//! What follows from what: logins, grants and their renewal.
//!
//! * `clients`: who an application is at its server.
//! * `registration`: finds that out for a login.
//! * `logins`: from the wish to log in to the grant.
//! * `renewal`: the next token, once for all who want it.
//! * `revocation`: taking tokens back.
//! * `servers`: where requests go.
//! * `reading`: what was on disk when the application was first seen.
//! * `verdicts`: what servers say of the tokens that they are called with.
//! * `views`: what people are told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use goondan_protocol::control::{ControlError, ErrorCode, GrantInfo, GrantRevoked, LoginBegun};
use goondan_protocol::ids::{LoginId, ResourceName, WorkspaceId};
use goondan_protocol::oauth::{
    Client, DeviceCode, FormRequest, Metadata, MetadataRequest, OAuthApp, OAuthNeed,
    RegisterRequest, Reply, Token,
};
use goondan_protocol::secret::SecretValue;
use goondan_protocol::time::Timestamp;

pub use self::logins::CameBack;
use self::logins::{Beginning, Finishing, Login};
use self::renewal::Phase;
use self::revocation::Revoking;
use self::servers::{Asked, Server, Which};
pub use self::verdicts::Ruling;
use crate::documents::{Binding, Fields, Grant};
use crate::key::{GrantKey, Place, fingerprint};

mod clients;
mod logins;
mod reading;
mod registration;
mod renewal;
mod revocation;
mod servers;
mod verdicts;
mod views;

/// Somebody who waits for an answer, as whoever asks names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiter(pub u64);

/// Names something that is to be done, for what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A request to an authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// What it says of itself.
    Metadata(MetadataRequest),
    /// Tokens.
    Token(FormRequest),
    /// To take a token back.
    Revoke(FormRequest),
    /// To begin a login on another device.
    Device(FormRequest),
    /// To be registered.
    Register(RegisterRequest),
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// What the server says of itself.
    Metadata(Reply<Metadata>),
    /// Tokens.
    Token(Reply<Token>),
    /// The token is taken back.
    Revoked(Reply<()>),
    /// A login on another device has begun.
    Device(Reply<DeviceCode>),
    /// The application is registered.
    Registered(Reply<Client>),
    /// The server never got it; says why.
    NotMade(String),
    /// Nobody knows whether the server got it; says why.
    Unknown(String),
}

/// What somebody waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A login has begun.
    Begun(LoginBegun),
    /// How a grant stands.
    Grant(GrantInfo),
    /// Tokens are taken back, or forgotten.
    Revoked(GrantRevoked),
}

/// What happened, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// Somebody has logged in (`auth.granted`).
    Granted,
    /// The token was renewed.
    Renewed,
    /// A person has to log in again; says why.
    NeedsAuth(String),
    /// The token could not be renewed now; says why.
    NotRenewed(String),
    /// A server does not take the token, and the next one is asked for.
    Declined,
    /// A person has to consent to more; says to what.
    NeedsWider(String),
    /// The tokens are taken back, or forgotten.
    Revoked,
    /// A document cannot be read; says why.
    Unreadable(String),
}

/// Something to be done about documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentWork {
    /// Read what is on disk of an application.
    Read {
        /// The workspace.
        workspace_id: WorkspaceId,
        /// The application.
        app: ResourceName,
    },
    /// Keep a document durably and encrypted, in place of what was.
    Write {
        /// For what came of it.
        ticket: Ticket,
        /// Which.
        place: Place,
        /// What it says.
        fields: Fields,
    },
    /// Remove a document durably, if it is there.
    Remove {
        /// For what came of it.
        ticket: Ticket,
        /// Which.
        place: Place,
    },
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Do something about documents, in the order in which that is asked for.
    Documents(DocumentWork),
    /// Ask a server.
    Ask {
        /// For what came of it.
        ticket: Ticket,
        /// The workspace whose process asks.
        workspace_id: WorkspaceId,
        /// What.
        request: Request,
    },
    /// Whoever needs it has this token from now on, or none.
    Token {
        /// Whose.
        key: GrantKey,
        /// The token.
        token: Option<SecretValue>,
    },
    /// Tell whoever waits.
    Answer {
        /// Who.
        waiter: Waiter,
        /// What.
        result: Result<Answer, ControlError>,
    },
    /// Tell people.
    Happened {
        /// Whose grant it is about.
        key: GrantKey,
        /// What happened.
        what: Happening,
    },
}

/// What is asked of the machine, once the documents of the application are read.
#[derive(Debug)]
enum Call {
    Login(Box<Beginning>),
    Finish(Finishing),
    Refresh(Waiter, GrantKey),
    Revoke(Revoking),
}

/// What is done once it is known where a server takes requests.
#[derive(Debug)]
enum Step {
    Begin(Box<Beginning>),
    Exchange(LoginId),
    Poll(LoginId),
    Refresh(GrantKey),
    Revoke(Revoking),
}

/// An application of a workspace.
#[derive(Debug)]
struct App {
    definition: OAuthApp,
    fingerprint: String,
    /// Whether the configuration still has it.
    is_there: bool,
    /// Whether its documents are read.
    is_read: bool,
    /// What waits for them.
    unread: Vec<Call>,
    /// What its servers say of themselves.
    servers: BTreeMap<Which, Server>,
}

/// What is known of one grant.
#[derive(Debug, Default)]
struct Entry {
    /// Whether anything in the project asks for it.
    is_needed: bool,
    /// What is durable of it.
    grant: Option<Grant>,
    /// The latest generation that anything was made of.
    issued: u64,
    /// How its renewal stands.
    phase: Phase,
    /// Those who wait for the renewal.
    waiters: Vec<Waiter>,
    /// When a renewal that nobody asked for may begin.
    not_before_ms: i64,
    /// Renewals in a row that failed.
    failures: u32,
    /// The generation whose token was handed out.
    handed: Option<u64>,
    /// The generation whose token a server has declined.
    declined: Option<u64>,
    /// What went wrong last.
    problem: Option<String>,
}

/// What a ticket is for.
#[derive(Debug)]
enum Pending {
    Nothing,
    /// What a server says of itself is asked for.
    Metadata(Asked),
    /// A login is being kept; then its beginning is told.
    Session(Waiter, Box<Login>, Box<LoginBegun>),
    /// That a login was used is being kept; then its code is exchanged.
    Used(LoginId),
    Exchange(LoginId),
    DeviceCode(Box<Beginning>),
    Register(Box<Beginning>),
    /// The grant of a login is being kept.
    LoginGrant(LoginId, Box<Grant>),
    Lock(GrantKey),
    Refresh(GrantKey),
    /// What came of a refresh is being kept.
    Renewed(GrantKey),
    Revoke(Revoking),
    Forgotten(Revoking, bool, Option<String>),
}

/// The state of everything about tokens.
#[derive(Debug, Default)]
pub struct Machine {
    now_ms: i64,
    apps: BTreeMap<(WorkspaceId, ResourceName), App>,
    grants: BTreeMap<GrantKey, Entry>,
    logins: BTreeMap<LoginId, Login>,
    /// The latest that ended before anybody waited for them.
    ended: VecDeque<logins::Ended>,
    pending: BTreeMap<Ticket, Pending>,
    next_ticket: u64,
    effects: Vec<Effect>,
}

impl Machine {
    /// What is dealt with next happened at this time.
    pub fn begin(&mut self, now: Timestamp) {
        self.now_ms = now.as_unix_millis();
    }

    /// What is to be done, in order.
    #[must_use]
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether a document is being written or removed: a daemon that ends waits for that, since a server's reply
    /// may be in it that comes once.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.pending.values().any(|pending| match pending {
            Pending::Nothing
            | Pending::Session(..)
            | Pending::Used(_)
            | Pending::LoginGrant(..)
            | Pending::Lock(_)
            | Pending::Renewed(_)
            | Pending::Forgotten(..) => true,
            Pending::Metadata(..)
            | Pending::Exchange(_)
            | Pending::DeviceCode(_)
            | Pending::Register(_)
            | Pending::Refresh(_)
            | Pending::Revoke(_) => false,
        })
    }

    /// Whether time may ask for anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.apps.is_empty()
    }

    /// A configuration is taken up: a workspace has these applications, and something in it asks for these
    /// tokens.
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
                self.effects.push(Effect::Documents(DocumentWork::Read {
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

    /// A workspace is closed. What is on disk of it stays.
    pub fn forget(&mut self, workspace_id: &WorkspaceId) {
        self.apps.retain(|(of, _), _| of != workspace_id);
        self.grants
            .retain(|key, _| key.workspace_id != *workspace_id);
        self.logins
            .retain(|_, login| login.key.workspace_id != *workspace_id);
    }

    /// A document is durable as was asked for, or gone; or why not.
    pub fn on_kept(&mut self, ticket: Ticket, result: Result<(), String>) {
        match self.pending.remove(&ticket) {
            None
            | Some(
                Pending::Nothing
                | Pending::Metadata(..)
                | Pending::Exchange(_)
                | Pending::DeviceCode(_)
                | Pending::Register(_)
                | Pending::Refresh(_)
                | Pending::Revoke(_),
            ) => {}
            Some(Pending::Session(waiter, login, begun)) => {
                self.on_session_kept(waiter, *login, *begun, result);
            }
            Some(Pending::Used(id)) => self.on_used_kept(&id, result),
            Some(Pending::LoginGrant(id, grant)) => self.on_login_granted(&id, *grant, result),
            Some(Pending::Lock(key)) => self.on_locked(&key, ticket, result),
            Some(Pending::Renewed(key)) => self.on_renewal_kept(&key, ticket, result),
            Some(Pending::Forgotten(revoking, at_server, problem)) => {
                self.on_forgotten(&revoking, at_server, problem, result);
            }
        }
    }

    /// A server has answered, or has not.
    pub fn on_answered(&mut self, ticket: Ticket, answered: Answered) {
        match self.pending.remove(&ticket) {
            Some(Pending::Metadata(asked)) => self.on_metadata(&asked, answered),
            Some(Pending::Exchange(id)) => self.on_exchanged(&id, answered),
            Some(Pending::DeviceCode(beginning)) => self.on_device_code(&beginning, answered),
            Some(Pending::Register(beginning)) => self.on_registered(*beginning, answered),
            Some(Pending::Refresh(key)) => self.on_refreshed(&key, ticket, answered),
            Some(Pending::Revoke(revoking)) => self.on_revoked(revoking, answered),
            _ => {}
        }
    }

    /// What the passing of time asks for.
    pub fn on_time(&mut self) {
        self.renew_due();
        self.on_login_time();
    }

    fn call(&mut self, key: &GrantKey, waiter: Waiter, call: Call) {
        let app = self
            .apps
            .get_mut(&(key.workspace_id.clone(), key.need.app.clone()));
        match app {
            Some(app) if app.is_there && app.is_read => self.make(call),
            Some(app) if app.is_there => app.unread.push(call),
            Some(_) | None => {
                let text = format!("there is no OAuthApp `{}`", key.need.app);
                let error = ControlError::new(ErrorCode::OauthNotFound, text);
                let error = error
                    .suggest("`gdn oauth list` shows all; one is a document of `kind: OAuthApp`");
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

    fn entry(&mut self, key: &GrantKey) -> &mut Entry {
        self.grants.entry(key.clone()).or_default()
    }

    fn app_of(&self, key: &GrantKey) -> Option<&App> {
        self.apps
            .get(&(key.workspace_id.clone(), key.need.app.clone()))
    }

    fn ticket(&mut self, pending: Pending) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.pending.insert(ticket, pending);
        ticket
    }

    fn write(&mut self, place: Place, fields: Fields, pending: Pending) -> Ticket {
        let ticket = self.ticket(pending);
        self.effects.push(Effect::Documents(DocumentWork::Write {
            ticket,
            place,
            fields,
        }));
        ticket
    }

    fn remove(&mut self, place: Place, pending: Pending) {
        let ticket = self.ticket(pending);
        let work = DocumentWork::Remove { ticket, place };
        self.effects.push(Effect::Documents(work));
    }

    fn ask(&mut self, workspace_id: &WorkspaceId, request: Request, pending: Pending) -> Ticket {
        let ticket = self.ticket(pending);
        self.effects.push(Effect::Ask {
            ticket,
            workspace_id: workspace_id.clone(),
            request,
        });
        ticket
    }

    fn answer(&mut self, waiter: Waiter, result: Result<Answer, ControlError>) {
        self.effects.push(Effect::Answer { waiter, result });
    }

    fn happened(&mut self, key: &GrantKey, what: Happening) {
        self.effects.push(Effect::Happened {
            key: key.clone(),
            what,
        });
    }

    /// Gives whoever needs it the token that is good now.
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
                // What was handed out stays until there is something better.
                && (!has_ended || entry.handed.is_some())
        });
        let generation = good.map(|grant| grant.generation);
        if generation == entry.handed {
            return;
        }
        let token = good.map(|grant| grant.access_token.clone());
        entry.handed = generation;
        self.effects.push(Effect::Token {
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

    /// A request to an endpoint for forms, with these fields, by whom tokens of this binding belong to.
    fn form_request(
        &self,
        key: &GrantKey,
        (endpoint, server): (&str, &Metadata),
        binding: Option<&Binding>,
        form: impl IntoIterator<Item = (&'static str, SecretValue)>,
    ) -> Option<FormRequest> {
        let app = &self.app_of(key)?.definition;
        let client = clients::client_of(app, binding);
        let form = form.into_iter();
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
    let text = format!("the authorization server cannot be asked: {why}");
    ControlError::new(ErrorCode::OauthUnavailable, text)
        .suggest("try again; `gdn logs` shows what the process `oauth` wrote")
}

fn not_kept(why: &str) -> ControlError {
    let text = format!("what the authorization server gave could not be kept: {why}");
    ControlError::new(ErrorCode::Storage, text).suggest("see that there is room on the disk")
}
