//! Where requests go: to the server that an application's definition leads to, or to the one that gave certain
//! tokens.

use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::{ResourceName, WorkspaceId};
use goondan_protocol::oauth::{Endpoints, Metadata, MetadataRequest, Reply};

use super::{Answered, App, Machine, Pending, Request, Step, unavailable};
use crate::documents::Binding;
use crate::key::GrantKey;

/// Which server: the one that the definition leads to, or the issuer of what is bound to it.
pub(super) type Which = Option<String>;

/// What is known of one.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// What it says of itself.
    said: Option<Metadata>,
    /// What waits for that.
    steps: Vec<Step>,
}

/// What a server says of itself was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    app: (WorkspaceId, ResourceName),
    /// That of the application then.
    fingerprint: String,
    which: Which,
}

impl App {
    /// Whether its server names the authorization server, and no person does.
    fn is_found(&self) -> bool {
        let definition = &self.definition;
        let is_written = definition.issuer.is_some() || definition.endpoints.token.is_some();
        definition.resource.is_some() && !is_written
    }

    /// Which server what is bound so belongs to. Nobody else names that again: not even the server that the tokens
    /// are for.
    fn which(&self, binding: Option<&Binding>) -> Which {
        let binding = binding.filter(|_| self.is_found());
        binding.map(|binding| binding.issuer.clone())
    }

    /// Where a server takes requests; none if it has to be asked first.
    fn server(&self, which: &Which) -> Option<Metadata> {
        let written = &self.definition.endpoints;
        let said = match self.servers.get(which).and_then(|it| it.said.as_ref()) {
            Some(said) => said.clone(),
            None if self.definition.issuer.is_some() || self.is_found() => return None,
            None => Metadata::default(),
        };
        let either = |written: &Option<String>, said: Option<String>| written.clone().or(said);
        Some(Metadata {
            endpoints: Endpoints {
                authorization: either(&written.authorization, said.endpoints.authorization),
                token: either(&written.token, said.endpoints.token),
                revocation: either(&written.revocation, said.endpoints.revocation),
                device_authorization: either(
                    &written.device_authorization,
                    said.endpoints.device_authorization,
                ),
            },
            resource: said.resource.or(self.definition.resource.clone()),
            ..said
        })
    }

    /// What servers say of themselves is asked for anew when it is needed next.
    pub(super) fn forget_servers(&mut self) {
        for server in self.servers.values_mut() {
            server.said = None;
        }
    }

    fn request(&self, which: &Which) -> MetadataRequest {
        MetadataRequest {
            issuer: which.clone().or(self.definition.issuer.clone()),
            resource: self.definition.resource.clone(),
            is_found: which.is_some(),
        }
    }
}

impl Machine {
    /// Does a step once it is known where its server takes requests.
    pub(super) fn with_server(&mut self, key: &GrantKey, step: Step) {
        let app_key = (key.workspace_id.clone(), key.need.app.clone());
        let binding = self.binding_of(&step).cloned();
        let Some(app) = self.apps.get_mut(&app_key) else {
            return self.step_failed(step, "the OAuthApp is gone");
        };
        let which = app.which(binding.as_ref());
        if let Some(server) = app.server(&which) {
            return self.step(step, &server);
        }
        let (fingerprint, request) = (app.fingerprint.clone(), app.request(&which));
        let server = app.servers.entry(which.clone()).or_default();
        server.steps.push(step);
        if server.steps.len() == 1 {
            let pending = Pending::Metadata(Asked {
                app: app_key,
                fingerprint,
                which,
            });
            self.ask(&key.workspace_id, Request::Metadata(request), pending);
        }
    }

    /// What the tokens or the login of a step are bound to.
    fn binding_of(&self, step: &Step) -> Option<&Binding> {
        let of_grant = |key: &GrantKey| self.grants.get(key)?.grant.as_ref()?.binding.as_ref();
        match step {
            Step::Begin(_) => None,
            Step::Exchange(id) | Step::Poll(id) => self.logins.get(id)?.session.binding.as_ref(),
            Step::Refresh(key) => of_grant(key),
            Step::Revoke(revoking) => of_grant(&revoking.key),
        }
    }

    fn step(&mut self, step: Step, server: &Metadata) {
        match step {
            Step::Begin(beginning) => self.open_login(*beginning, server),
            Step::Exchange(id) => self.exchange(&id, server),
            Step::Poll(id) => self.poll(&id, server),
            Step::Refresh(key) => self.send_refresh(&key, server),
            Step::Revoke(revoking) => self.send_revocation(revoking, server),
        }
    }

    fn step_failed(&mut self, step: Step, why: &str) {
        match step {
            Step::Begin(beginning) => self.answer(beginning.waiter, Err(unavailable(why))),
            Step::Exchange(id) | Step::Poll(id) => self.end_login(&id, &Err(unavailable(why))),
            Step::Refresh(key) => self.refresh_failed(&key, why),
            Step::Revoke(revoking) => self.not_revoked(revoking, why),
        }
    }

    pub(super) fn on_metadata(&mut self, asked: &Asked, answered: Answered) {
        let Some(app) = self.apps.get_mut(&asked.app) else {
            return;
        };
        let server = app.servers.entry(asked.which.clone()).or_default();
        let steps = std::mem::take(&mut server.steps);
        let (why, is_refusal) = match answered {
            _ if app.fingerprint != asked.fingerprint => {
                ("the OAuthApp was changed meanwhile".to_owned(), false)
            }
            Answered::Metadata(Reply::Granted(metadata)) => {
                server.said = Some(metadata.clone());
                // What is bound to it need not ask it once more.
                if app.is_found() && metadata.issuer.is_some() {
                    let issuer = metadata.issuer.clone();
                    app.servers.entry(issuer).or_default().said = Some(metadata);
                }
                let Some(server) = app.server(&asked.which) else {
                    return;
                };
                for step in steps {
                    self.step(step, &server);
                }
                return;
            }
            Answered::Metadata(Reply::Refused(refused)) => (refused.to_string(), true),
            Answered::NotMade(why) | Answered::Unknown(why) => (why, false),
            other => (format!("it answered something else: {other:?}"), false),
        };
        let what = "what the authorization server says of itself cannot be";
        let verb = if is_refusal { "believed" } else { "read" };
        let why = format!("{what} {verb}: {why}");
        for step in steps {
            match step {
                Step::Begin(beginning) if is_refusal => {
                    self.answer(beginning.waiter, Err(not_believed(&why)));
                }
                step => self.step_failed(step, &why),
            }
        }
    }

    /// What a server says of those who give its tokens may be something else by now: it is asked for each login.
    pub(super) fn ask_anew(&mut self, key: &GrantKey) {
        let app_key = (key.workspace_id.clone(), key.need.app.clone());
        if let Some(app) = self.apps.get_mut(&app_key)
            && app.definition.resource.is_some()
            && let Some(server) = app.servers.get_mut(&None)
        {
            server.said = None;
        }
    }
}

fn not_believed(why: &str) -> ControlError {
    ControlError::new(ErrorCode::OauthRefused, why).suggest(
        "check the addresses in goondan.yaml; what a server says wrongly, whoever runs it must mend",
    )
}
