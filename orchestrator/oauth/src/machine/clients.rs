//! Who an application is at the server that its tokens are of, and what tokens are asked for.

use goondan_protocol::oauth::{Client, Metadata, OAuthApp};
use goondan_protocol::secret::SecretValue;

use super::plain;
use crate::documents::Binding;

/// What an application has at its server.
pub(super) fn client_of(app: &OAuthApp, binding: Option<&Binding>) -> Client {
    let registered = binding.and_then(|binding| binding.client.clone());
    registered.unwrap_or_else(|| Client {
        id: app.client_id.clone().unwrap_or_default(),
        secret: app.client_secret.clone(),
        auth: app.client_auth,
    })
}

/// What is asked for.
pub(super) fn scope_of(app: &OAuthApp, server: &Metadata) -> String {
    let scopes = if app.scopes.is_empty() {
        &server.scopes
    } else {
        &app.scopes
    };
    scopes.join(" ")
}

/// The field that says for which server tokens are meant (RFC 8707), if they are for one alone.
pub(super) fn resource_field(server: &Metadata) -> Option<(&'static str, SecretValue)> {
    let resource = server.resource.as_deref();
    resource.map(|resource| ("resource", plain(resource)))
}

/// Whether tokens or a login are of this server.
pub(super) fn is_of_server(binding: Option<&Binding>, server: &Metadata) -> bool {
    binding.is_none_or(|binding| server.issuer.as_ref() == Some(&binding.issuer))
}
