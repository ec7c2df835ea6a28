//! Endpoints of servers: the server of an application's definition, or the one that issued certain
//! tokens.

use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::{ResourceName, WorkspaceId};
use goondan_protocol::oauth::{Endpoints, Metadata, MetadataRequest, Reply};

use super::{Answered, App, Machine, Pending, Request, Step, unavailable};
use crate::documents::Binding;
use crate::key::GrantKey;

/// Identifies a server: `None` for the definition's, or the issuer of a binding.
pub(super) type Which = Option<String>;

/// State of one server.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// Its metadata.
    said: Option<Metadata>,
    /// Steps that wait for the metadata.
    steps: Vec<Step>,
}

/// A metadata request in progress.
#[derive(Debug)]
pub(super) struct Asked {
    app: (WorkspaceId, ResourceName),
    /// Fingerprint of the application at that time.
    fingerprint: String,
    which: Which,
}

impl App {
    /// True if the authorization server is discovered through the resource and not configured.
    fn is_found(&self) -> bool {
        let definition = &self.definition;
        let is_written = definition.issuer.is_some() || definition.endpoints.token.is_some();
        definition.resource.is_some() && !is_written
    }

    /// Returns the server of a binding. It is final: even the resource cannot name another one.
    fn which(&self, binding: Option<&Binding>) -> Which {
        let binding = binding.filter(|_| self.is_found());
        binding.map(|binding| binding.issuer.clone())
    }

    /// Returns the server's endpoints; `None` if its metadata must be requested first.
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

    /// Drops all metadata, which is requested again on the next use.
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
    /// Runs a step after its server's endpoints are known.
    pub(super) fn with_server(&mut self, key: &GrantKey, step: Step) {
        let app_key = (key.workspace_id.clone(), key.need.app.clone());
        let binding = self.binding_of(&step).cloned();
        let Some(app) = self.apps.get_mut(&app_key) else {
            return self.step_failed(step, "the OAuthApp was removed");
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

    /// Returns the binding of a step's grant or login.
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
                ("the OAuthApp was changed in the meantime".to_owned(), false)
            }
            Answered::Metadata(Reply::Granted(metadata)) => {
                server.said = Some(metadata.clone());
                // Bound tokens can use it without another request.
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
            other => (format!("unexpected response: {other:?}"), false),
        };
        let what = "the authorization server's metadata is";
        let verb = if is_refusal { "invalid" } else { "unavailable" };
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

    /// Drops the metadata before a login, because the resource may name another authorization
    /// server by now.
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
        "check the addresses in goondan.yaml; wrong metadata must be fixed by the operator of the server",
    )
}
