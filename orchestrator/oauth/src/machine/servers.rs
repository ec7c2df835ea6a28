//! Endpoints of servers: the server of an application's definition, or the one that issued certain
//! tokens.

use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::{ResourceName, WorkspaceId};
use goondan_protocol::oauth::{Endpoints, Metadata, MetadataRequest, Reply};

use super::{
    App, DeferredStep, OAuthMachine, ServerRequest, ServerResponse, TicketPurpose, unavailable,
};
use crate::documents::GrantServer;
use crate::key::GrantKey;

/// Identifies a server: `None` for the definition's, or the issuer of a binding.
pub(super) type ServerKey = Option<String>;

#[derive(Debug, Default)]
pub(super) struct AuthServer {
    said: Option<Metadata>,
    /// Steps that wait for the metadata.
    steps: Vec<DeferredStep>,
}

/// A metadata request in progress.
#[derive(Debug)]
pub(super) struct MetadataLookup {
    app: (WorkspaceId, ResourceName),
    /// Fingerprint of the application at that time.
    fingerprint: String,
    which: ServerKey,
}

impl App {
    /// True if the authorization server is discovered through the resource and not configured.
    fn is_found(&self) -> bool {
        let definition = &self.definition;
        let is_written = definition.issuer.is_some() || definition.endpoints.token.is_some();
        definition.resource.is_some() && !is_written
    }

    /// Returns the server of a binding. It is final: even the resource cannot name another one.
    fn which(&self, binding: Option<&GrantServer>) -> ServerKey {
        let binding = binding.filter(|_| self.is_found());
        binding.map(|binding| binding.issuer.clone())
    }

    /// Returns the server's endpoints; `None` if its metadata must be requested first.
    fn server(&self, which: &ServerKey) -> Option<Metadata> {
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

    fn request(&self, which: &ServerKey) -> MetadataRequest {
        MetadataRequest {
            issuer: which.clone().or(self.definition.issuer.clone()),
            resource: self.definition.resource.clone(),
            is_found: which.is_some(),
        }
    }
}

impl OAuthMachine {
    /// Runs a step after its server's endpoints are known.
    pub(super) fn with_server(&mut self, key: &GrantKey, step: DeferredStep) {
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
            let pending = TicketPurpose::Metadata(MetadataLookup {
                app: app_key,
                fingerprint,
                which,
            });
            self.ask(&key.workspace_id, ServerRequest::Metadata(request), pending);
        }
    }

    /// Returns the binding of a step's grant or login.
    fn binding_of(&self, step: &DeferredStep) -> Option<&GrantServer> {
        let of_grant = |key: &GrantKey| self.grants.get(key)?.grant.as_ref()?.binding.as_ref();
        match step {
            DeferredStep::Begin(_) => None,
            DeferredStep::Exchange(id) | DeferredStep::Poll(id) => {
                self.logins.get(id)?.session.binding.as_ref()
            }
            DeferredStep::Refresh(key) => of_grant(key),
            DeferredStep::Revoke(revoking) => of_grant(&revoking.key),
        }
    }

    fn step(&mut self, step: DeferredStep, server: &Metadata) {
        match step {
            DeferredStep::Begin(beginning) => self.open_login(*beginning, server),
            DeferredStep::Exchange(id) => self.exchange(&id, server),
            DeferredStep::Poll(id) => self.poll(&id, server),
            DeferredStep::Refresh(key) => self.send_refresh(&key, server),
            DeferredStep::Revoke(revoking) => self.send_revocation(revoking, server),
        }
    }

    fn step_failed(&mut self, step: DeferredStep, why: &str) {
        match step {
            DeferredStep::Begin(beginning) => self.answer(beginning.waiter, Err(unavailable(why))),
            DeferredStep::Exchange(id) | DeferredStep::Poll(id) => {
                self.end_login(&id, &Err(unavailable(why)));
            }
            DeferredStep::Refresh(key) => self.refresh_failed(&key, why),
            DeferredStep::Revoke(revoking) => self.not_revoked(revoking, why),
        }
    }

    pub(super) fn on_metadata(&mut self, asked: &MetadataLookup, answered: ServerResponse) {
        let Some(app) = self.apps.get_mut(&asked.app) else {
            return;
        };
        let server = app.servers.entry(asked.which.clone()).or_default();
        let steps = std::mem::take(&mut server.steps);
        let (why, is_refusal) = match answered {
            _ if app.fingerprint != asked.fingerprint => {
                ("the OAuthApp was changed in the meantime".to_owned(), false)
            }
            ServerResponse::Metadata(Reply::Granted(metadata)) => {
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
            ServerResponse::Metadata(Reply::Refused(refused)) => (refused.to_string(), true),
            ServerResponse::NotMade(why) | ServerResponse::Unknown(why) => (why, false),
            other => (format!("unexpected response: {other:?}"), false),
        };
        let what = "the authorization server's metadata is";
        let verb = if is_refusal { "invalid" } else { "unavailable" };
        let why = format!("{what} {verb}: {why}");
        for step in steps {
            match step {
                DeferredStep::Begin(beginning) if is_refusal => {
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
