//! Determines the client of a login: from the configuration, a client metadata document, or dynamic
//! registration for the login (RFC 7591).

use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::oauth::{Metadata, OAuthApp, RegisterRequest, Reply};

use super::clients::{Registration, is_written, scope_of};
use super::logins::{LoginStart, redirect_uri_of};
use super::renewal::login_command;
use super::{
    DeferredStep, OAuthMachine, ServerRequest, ServerResponse, TicketPurpose, unavailable,
};
use crate::documents::GrantServer;
use crate::key::GrantKey;

/// The client, or the way to determine it.
enum ClientSource {
    Client,
    RegisteredAt(String),
    /// The user must register it.
    Nobody,
}

fn known(app: &OAuthApp, server: &Metadata) -> ClientSource {
    match &app.client_id {
        Some(id) if !is_document(id, app, server) || server.takes_client_documents => {
            ClientSource::Client
        }
        None if app.resource.is_none() => ClientSource::Client,
        Some(_) | None => match &server.registration {
            Some(endpoint) => ClientSource::RegisteredAt(endpoint.clone()),
            None => ClientSource::Nobody,
        },
    }
}

/// True if the client id is the URL of a client metadata document, which applies only if the server
/// supports it. With a secret, or at a server without metadata, it is an opaque id.
fn is_document(id: &str, app: &OAuthApp, server: &Metadata) -> bool {
    let is_found = app.resource.is_some() && server.issuer.is_some();
    id.starts_with("https://") && is_found && app.client_secret.is_none()
}

impl OAuthMachine {
    /// Determines the client, registers it if necessary, and continues the login.
    pub(super) fn open_login(&mut self, mut beginning: LoginStart, server: &Metadata) {
        let (waiter, key) = (beginning.waiter, beginning.key.clone());
        let app = self.app_of(&key);
        let app = app.map(|app| (app.definition.clone(), app.fingerprint.clone()));
        let Some((app, fingerprint)) = app else {
            return self.answer(waiter, Err(unavailable("the OAuthApp was removed")));
        };
        let redirect_uri = match redirect_uri_of(&app, &beginning) {
            Ok(redirect_uri) => redirect_uri,
            Err(error) => return self.answer(waiter, Err(error)),
        };
        let now = Registration {
            issuer: server.issuer.clone(),
            fingerprint,
            redirect_uri,
            client: None,
        };
        let registered = match beginning.registration.take() {
            None => None,
            Some(registration) if registration.is_with(&now) => registration.client,
            Some(_) => return self.answer(waiter, Err(changed(&key))),
        };
        match known(&app, server) {
            ClientSource::RegisteredAt(endpoint) if registered.is_none() => {
                beginning.registration = Some(now);
                self.register(beginning, &app, server, endpoint);
            }
            ClientSource::Nobody => {
                let error = nobody(&key, server.issuer.as_deref().unwrap_or("it"));
                self.answer(waiter, Err(error));
            }
            ClientSource::Client | ClientSource::RegisteredAt(_) => {
                let issuer = app.resource.as_ref().and(server.issuer.clone());
                beginning.binding = issuer.map(|issuer| GrantServer {
                    issuer,
                    resource: server.resource.clone(),
                    client: registered,
                });
                self.open_as(beginning, &app, server);
            }
        }
    }

    fn register(
        &mut self,
        beginning: LoginStart,
        app: &OAuthApp,
        server: &Metadata,
        endpoint: String,
    ) {
        let scope = scope_of(app, server, self.wider_of(&beginning.key));
        let asked = beginning.registration.as_ref();
        let request = RegisterRequest {
            redirect_uri: asked.and_then(|asked| asked.redirect_uri.clone()),
            scopes: scope.split_whitespace().map(str::to_owned).collect(),
            client_auth: server.registered_auth,
            public_only: server.public_only && !is_written(app, &endpoint),
            endpoint,
        };
        let workspace_id = beginning.key.workspace_id.clone();
        let pending = TicketPurpose::Register(Box::new(beginning));
        self.ask(&workspace_id, ServerRequest::Register(request), pending);
    }

    pub(super) fn on_registered(&mut self, mut beginning: LoginStart, answered: ServerResponse) {
        let why = match answered {
            ServerResponse::Registered(Reply::Granted(client)) => {
                if let Some(registration) = &mut beginning.registration {
                    registration.client = Some(client);
                }
                let key = beginning.key.clone();
                return self.with_server(&key, DeferredStep::Begin(Box::new(beginning)));
            }
            ServerResponse::Registered(Reply::Refused(refused)) => refused.to_string(),
            ServerResponse::NotMade(why) | ServerResponse::Unknown(why) => {
                return self.answer(beginning.waiter, Err(unavailable(&why)));
            }
            other => format!("unexpected response: {other:?}"),
        };
        let need = &beginning.key.need;
        let text = format!("the authorization server does not register goondan for {need}: {why}");
        let error = ControlError::new(ErrorCode::OauthRefused, text);
        let error = error.suggest(BY_HAND);
        self.answer(beginning.waiter, Err(error));
    }
}

fn changed(key: &GrantKey) -> ControlError {
    let text = format!(
        "{} or its authorization server was changed while goondan was registered there",
        key.need
    );
    ControlError::new(ErrorCode::OauthRefused, text)
        .suggest(format!("log in again: {}", login_command(key)))
}

/// Hint for a user whose application cannot be registered automatically.
const BY_HAND: &str = "register an application there by hand, and write an OAuthApp with `resource`, the \
                       server's address, and its `clientId`: docs/oauth.md, \"MCP servers\"";

fn nobody(key: &GrantKey, issuer: &str) -> ControlError {
    let text = format!(
        "the authorization server of {}, `{issuer}`, registers no applications automatically",
        key.need
    );
    ControlError::new(ErrorCode::OauthRefused, text).suggest(BY_HAND)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use goondan_protocol::ids::OAuthSubject;
    use goondan_protocol::oauth::{ClientAuth, Endpoints, OAuthClient, OAuthNeed, Token};
    use goondan_protocol::time::Timestamp;

    use super::*;
    use crate::machine::{DocumentWork, plain};
    use crate::{DocumentKey, Documents, ENTROPY_BYTES, Fields, OAuthEffect, Ticket, WaiterId};

    const RESOURCE: &str = "https://mcp.example/mcp";
    const WAITER: WaiterId = WaiterId(1);

    fn key() -> GrantKey {
        GrantKey {
            workspace_id: "w".parse().unwrap(),
            need: OAuthNeed {
                app: "tracker".parse().unwrap(),
                subject: OAuthSubject::global(),
            },
        }
    }

    fn app(client_id: Option<&str>) -> OAuthApp {
        OAuthApp {
            name: "tracker".parse().unwrap(),
            issuer: None,
            endpoints: Endpoints::default(),
            resource: Some(RESOURCE.to_owned()),
            client_id: client_id.map(str::to_owned),
            client_secret: None,
            client_auth: ClientAuth::None,
            scopes: Vec::new(),
            wider_scopes: Vec::new(),
            redirect_uri: None,
            per_user: false,
            params: BTreeMap::new(),
        }
    }

    fn server(issuer: &str) -> Metadata {
        let at = |path: &str| Some(format!("{issuer}/{path}"));
        Metadata {
            endpoints: Endpoints {
                authorization: at("authorize"),
                token: at("token"),
                revocation: at("revoke"),
                device_authorization: None,
            },
            issuer: Some(issuer.to_owned()),
            resource: Some(RESOURCE.to_owned()),
            scopes: vec!["tools".to_owned()],
            registration: at("register"),
            ..Metadata::default()
        }
    }

    struct World {
        machine: OAuthMachine,
        disk: BTreeMap<DocumentKey, Fields>,
        server: Metadata,
        /// Requests sent, without metadata requests.
        made: Vec<ServerRequest>,
        errors: Vec<ControlError>,
        url: Option<String>,
        /// True to delay the next registration response.
        holds: bool,
        held: Option<Ticket>,
    }

    impl World {
        fn new(app: OAuthApp, server: Metadata, disk: BTreeMap<DocumentKey, Fields>) -> Self {
            let mut machine = OAuthMachine::default();
            machine.begin(Timestamp::from_unix_millis(1_700_000_000_000));
            let apps = BTreeMap::from([(app.name.clone(), app)]);
            let key = key();
            machine.set_apps(&key.workspace_id, &apps, &BTreeSet::from([key.need]));
            let mut world = Self {
                machine,
                disk,
                server,
                made: Vec::new(),
                errors: Vec::new(),
                url: None,
                holds: false,
                held: None,
            };
            world.settle();
            world
        }

        fn settle(&mut self) {
            loop {
                let effects = self.machine.take_effects();
                if effects.is_empty() {
                    return;
                }
                for effect in effects {
                    self.carry_out(effect);
                }
            }
        }

        fn carry_out(&mut self, effect: OAuthEffect) {
            match effect {
                OAuthEffect::Documents(DocumentWork::Read { workspace_id, app }) => {
                    let found = self.disk.values().cloned().collect();
                    let documents = Documents {
                        found,
                        problems: Vec::new(),
                    };
                    self.machine.on_read(&workspace_id, &app, documents);
                }
                OAuthEffect::Documents(DocumentWork::Write {
                    ticket,
                    place,
                    fields,
                }) => {
                    self.disk.insert(place, fields);
                    self.machine.on_kept(ticket, Ok(()));
                }
                OAuthEffect::Documents(DocumentWork::Remove { ticket, place }) => {
                    self.disk.remove(&place);
                    self.machine.on_kept(ticket, Ok(()));
                }
                OAuthEffect::Ask {
                    ticket, request, ..
                } => {
                    let is_held = self.holds && matches!(request, ServerRequest::Register(_));
                    let answered = self.answer(&request);
                    self.made.push(request);
                    if is_held {
                        self.holds = false;
                        self.held = Some(ticket);
                    } else {
                        self.machine.on_answered(ticket, answered);
                    }
                }
                OAuthEffect::Answer { result, .. } => match result {
                    Ok(crate::GrantAnswer::Begun(begun)) => self.url = Some(begun.url),
                    Ok(_) => {}
                    Err(error) => self.errors.push(error),
                },
                OAuthEffect::Token { .. } | OAuthEffect::Happened { .. } => {}
            }
        }

        fn answer(&self, request: &ServerRequest) -> ServerResponse {
            match request {
                ServerRequest::Metadata(asked) => {
                    ServerResponse::Metadata(Reply::Granted(match &asked.issuer {
                        Some(issuer) if asked.is_found => server(issuer),
                        _ => self.server.clone(),
                    }))
                }
                ServerRequest::Revoke(_) => ServerResponse::Revoked(Reply::Granted(())),
                ServerRequest::Register(_) => {
                    ServerResponse::Registered(Reply::Granted(OAuthClient {
                        id: "registered".to_owned(),
                        secret: Some(plain("its-secret")),
                        auth: ClientAuth::Post,
                    }))
                }
                ServerRequest::Token(_) => ServerResponse::Token(Reply::Granted(Token {
                    access_token: plain("access"),
                    refresh_token: Some(plain("refresh")),
                    expires_in_s: Some(3_600),
                    scope: None,
                })),
                ServerRequest::Device(device) => panic!("{device:?}"),
            }
        }

        fn begin(&mut self, id: &str) {
            let fresh = (id.parse().unwrap(), &[7; ENTROPY_BYTES]);
            self.machine
                .login(WAITER, &key(), fresh, (Some(4711), false));
            self.settle();
        }

        /// Delivers the delayed registration response.
        fn let_go(&mut self) {
            let (ticket, server) = (self.held.take().unwrap(), server("https://as.example"));
            let endpoint = server.registration.unwrap();
            let register = self.made.iter().find(|it| match it {
                ServerRequest::Register(register) => register.endpoint == endpoint,
                _ => false,
            });
            let answered = self.answer(register.unwrap());
            self.machine.on_answered(ticket, answered);
            self.settle();
        }

        /// Logs in; returns the parameters of the authorization request.
        fn log_in(&mut self) -> BTreeMap<String, String> {
            self.begin("l-1");
            let url = self.url.take().unwrap();
            let (_, query) = url.split_once('?').unwrap();
            let fields = query.split('&').filter_map(|field| field.split_once('='));
            let decoded = goondan_protocol::oauth::url_decoded;
            let fields: BTreeMap<String, String> = fields
                .map(|(name, value)| (name.to_owned(), decoded(value).unwrap()))
                .collect();
            let issuer = self.server.issuer.clone().unwrap();
            let back = format!(
                "{}?code=c&state={}&iss={issuer}",
                fields["redirect_uri"], fields["state"]
            );
            let id = "l-1".parse().unwrap();
            self.machine
                .finish(WAITER, &key().workspace_id, id, Some(plain(&back)));
            self.settle();
            fields
        }

        /// Returns the latest token request.
        fn last_form(&self) -> &goondan_protocol::oauth::FormRequest {
            match self.made.last() {
                Some(ServerRequest::Token(request)) => request,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn sys_4_client_id_comes_from_config_document_or_registration() {
        let document = "https://goondan.example/client.json";
        let reads = |takes: bool| Metadata {
            takes_client_documents: takes,
            ..server("https://as.example")
        };
        for (written, takes, expected) in [
            (Some("by-hand"), false, "by-hand"),
            (Some(document), true, document),
            (Some(document), false, "registered"),
            (None, true, "registered"),
        ] {
            let mut world = World::new(app(written), reads(takes), BTreeMap::new());
            let fields = world.log_in();
            assert_eq!(fields["client_id"], expected);
            assert_eq!(fields["resource"], RESOURCE);
            assert_eq!(fields["scope"], "tools");
            let form = world.last_form();
            assert_eq!(
                (form.client_id.as_str(), form.form["resource"].expose()),
                (expected, RESOURCE)
            );
            assert_eq!(form.client_secret.is_some(), expected == "registered");
            let registered = world
                .made
                .iter()
                .filter(|it| matches!(it, ServerRequest::Register(_)));
            assert_eq!(registered.count(), usize::from(expected == "registered"));
        }
        let nobody = Metadata {
            registration: None,
            ..reads(false)
        };
        let mut world = World::new(app(Some(document)), nobody, BTreeMap::new());
        let fresh = ("l-1".parse().unwrap(), &[7; ENTROPY_BYTES]);
        world
            .machine
            .login(WAITER, &key(), fresh, (Some(4711), false));
        world.settle();
        assert!(
            world.errors[0]
                .message
                .contains("registers no applications")
        );
        assert!(world.disk.is_empty());
    }

    #[test]
    fn prov_1_a_rejected_resource_can_be_left_out() {
        let left_out = OAuthApp {
            params: BTreeMap::from([("resource".to_owned(), String::new())]),
            ..app(Some("by-hand"))
        };
        let mut world = World::new(left_out, server("https://as.example"), BTreeMap::new());
        let fields = world.log_in();
        assert_eq!(fields.get("resource"), None);
        assert!(!world.last_form().form.contains_key("resource"));
    }

    #[test]
    fn sys_4_url_client_id_is_opaque_if_the_server_cannot_read_it() {
        let id = "https://goondan.example/client.json";
        let silent = Metadata {
            issuer: None,
            registration: None,
            ..server("https://as.example")
        };
        let registers = server("https://as.example");
        let written = app(Some(id));
        let with_secret = OAuthApp {
            client_secret: Some(plain("secret")),
            client_auth: ClientAuth::Post,
            ..written.clone()
        };
        let without_resource = OAuthApp {
            resource: None,
            issuer: Some("https://as.example".to_owned()),
            ..written.clone()
        };
        for (app, server) in [
            (with_secret, registers.clone()),
            (without_resource, registers),
            (written, silent),
        ] {
            let mut world = World::new(app, server, BTreeMap::new());
            world.begin("l-1");
            assert_eq!(world.errors, []);
            let url = world.url.take().unwrap();
            let id = goondan_protocol::oauth::url_encoded(id);
            assert!(url.contains(&format!("client_id={id}&")), "{url}");
            let is_register = |it: &ServerRequest| matches!(it, ServerRequest::Register(_));
            assert!(!world.made.iter().any(is_register));
        }
    }

    #[test]
    fn sys_4_login_is_refused_after_a_change_since_registration() {
        let good = || {
            let mut world = World::new(app(None), server("https://as.example"), BTreeMap::new());
            world.holds = true;
            world.begin("l-1");
            assert!(world.url.is_none());
            world
        };
        let refused = |mut world: World, told: &str| {
            world.let_go();
            assert_eq!(world.url, None, "{told}");
            let error = world.errors.pop().unwrap();
            assert!(error.message.contains("was changed while"), "{error:?}");
            let id = "registered";
            let is_shown = world.made.iter().any(|it| match it {
                ServerRequest::Token(form) | ServerRequest::Device(form) => form.client_id == id,
                _ => false,
            });
            assert!(!is_shown, "{told}");
        };
        let mut world = good();
        world.let_go();
        assert!(world.url.is_some());

        // In the meantime the resource names another authorization server, which a second login
        // discovers.
        let mut world = good();
        world.server = server("https://evil.example");
        world.begin("l-2");
        let other = world.url.take().unwrap();
        assert!(
            other.starts_with("https://evil.example/authorize"),
            "{other}"
        );
        refused(world, "another issuer");

        let set = |world: &mut World, app: OAuthApp| {
            let key = key();
            let apps = BTreeMap::from([(app.name.clone(), app)]);
            let needs = BTreeSet::from([key.need]);
            world.machine.set_apps(&key.workspace_id, &apps, &needs);
        };
        let mut world = good();
        set(
            &mut world,
            OAuthApp {
                resource: Some("https://other.example/mcp".to_owned()),
                ..app(None)
            },
        );
        refused(world, "another application");
        let mut world = good();
        set(
            &mut world,
            OAuthApp {
                redirect_uri: Some("http://127.0.0.1:9/callback".to_owned()),
                ..app(None)
            },
        );
        refused(world, "another redirect address");
    }

    #[test]
    fn sys_4_tokens_are_sent_only_to_the_server_that_issued_them() {
        let mut world = World::new(app(None), server("https://as.example"), BTreeMap::new());
        world.log_in();
        // After a restart, the resource names another server and another identifier of its own.
        let evil = Metadata {
            resource: Some("https://mcp.example".to_owned()),
            ..server("https://evil.example")
        };
        let mut world = World::new(app(None), evil.clone(), world.disk);
        world.machine.refresh(WAITER, &key());
        world.settle();
        let form = world.last_form();
        assert_eq!(form.form["grant_type"].expose(), "refresh_token");
        assert_eq!(form.endpoint, "https://as.example/token");
        assert_eq!(
            (form.client_id.as_str(), form.form["resource"].expose()),
            ("registered", RESOURCE)
        );
        assert_eq!(world.errors, []);

        // A login discovers the other server, which gets no tokens of the first one.
        world.begin("l-2");
        let url = world.url.take().unwrap();
        assert!(url.starts_with("https://evil.example/authorize"), "{url}");
        world.machine.revoke(WAITER, &key(), false);
        world.settle();
        let Some(ServerRequest::Revoke(form)) = world.made.last() else {
            panic!("{:?}", world.made)
        };
        assert_eq!(form.endpoint, "https://as.example/revoke");
        assert!(
            !world
                .disk
                .keys()
                .any(|it| matches!(it, DocumentKey::Grant(_)))
        );
    }

    #[test]
    fn sys_4_unrevocable_tokens_are_kept_unless_a_user_forgets_them() {
        // The user configured the issuer, which now uses another identifier.
        let written = OAuthApp {
            issuer: Some("https://as.example".to_owned()),
            ..app(None)
        };
        let mut world = World::new(
            written.clone(),
            server("https://as.example"),
            BTreeMap::new(),
        );
        world.log_in();
        let other = server("https://other.example");
        let mut world = World::new(written, other, world.disk);
        world.machine.revoke(WAITER, &key(), false);
        world.settle();
        let error = world.errors.pop().unwrap();
        assert!(error.message.contains("did not take"), "{error:?}");
        assert!(
            error.message.contains("another authorization server"),
            "{error:?}"
        );
        assert_eq!(world.disk.len(), 1);
        let is_revoke = |it: &ServerRequest| matches!(it, ServerRequest::Revoke(_));
        world.machine.revoke(WAITER, &key(), true);
        world.settle();
        assert!(!world.made.iter().any(is_revoke));
        assert!(world.disk.is_empty());
    }
}
