//! The application's client at its authorization server, and the requested scopes.

use goondan_protocol::oauth::{Metadata, OAuthApp, OAuthClient};
use goondan_protocol::secret::SecretValue;

use super::plain;
use crate::documents::GrantServer;

/// Client registration for one login, with its inputs. The inputs must not change until the user
/// consents; otherwise the client of one server would be used at another.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) issuer: Option<String>,
    pub(super) fingerprint: String,
    pub(super) redirect_uri: Option<String>,
    pub(super) client: Option<OAuthClient>,
}

impl Registration {
    /// True if the inputs are unchanged.
    pub(super) fn is_with(&self, now: &Self) -> bool {
        self.issuer == now.issuer
            && self.fingerprint == now.fingerprint
            && self.redirect_uri == now.redirect_uri
    }
}

/// Returns the application's client at its server.
pub(super) fn client_of(app: &OAuthApp, binding: Option<&GrantServer>) -> OAuthClient {
    let registered = binding.and_then(|binding| binding.client.clone());
    registered.unwrap_or_else(|| OAuthClient {
        id: app.client_id.clone().unwrap_or_default(),
        secret: app.client_secret.clone(),
        auth: app.client_auth,
    })
}

/// Returns the requested scopes: the application's, or else the server's, plus the scopes that a
/// server reported missing.
pub(super) fn scope_of(app: &OAuthApp, server: &Metadata, wider: Option<&str>) -> String {
    let scopes = if app.scopes.is_empty() {
        &server.scopes
    } else {
        &app.scopes
    };
    let scopes = scopes.iter().map(String::as_str);
    let wider = wider.unwrap_or_default().split_whitespace();
    joined(scopes.chain(wider))
}

/// Joins scopes into one text without duplicates.
pub(super) fn joined<'a, S>(scopes: S) -> String
where
    S: Iterator<Item = &'a str>,
{
    let mut once: Vec<&'a str> = Vec::new();
    for scope in scopes {
        if !once.contains(&scope) {
            once.push(scope);
        }
    }
    once.join(" ")
}

/// Returns the `resource` parameter (RFC 8707), if the tokens are for one resource. Uses the
/// resource's identifier at the time of the login, even if it has changed since.
pub(super) fn resource_field(
    binding: Option<&GrantServer>,
    server: &Metadata,
) -> Option<(&'static str, SecretValue)> {
    let bound = binding.and_then(|binding| binding.resource.as_deref());
    let resource = bound.or(server.resource.as_deref());
    resource.map(|resource| ("resource", plain(resource)))
}

/// True if the configuration leaves `resource` out, by `params: {resource: ""}`, because the server
/// rejects it.
pub(super) fn omits_resource(app: &OAuthApp) -> bool {
    app.params.get("resource").is_some_and(String::is_empty)
}

/// True if tokens or a login belong to this server.
pub(super) fn is_of_server(binding: Option<&GrantServer>, server: &Metadata) -> bool {
    binding.is_none_or(|binding| server.issuer.as_ref() == Some(&binding.issuer))
}

/// True if the address or its issuer is in the configuration. Such an address may be in the user's
/// private network.
pub(super) fn is_written(app: &OAuthApp, address: &str) -> bool {
    let endpoints = &app.endpoints;
    let written = [
        &endpoints.authorization,
        &endpoints.token,
        &endpoints.revocation,
        &endpoints.device_authorization,
    ];
    let mut written = written.into_iter().flatten();
    let issuer = app.issuer.as_deref();
    written.any(|written| written == address)
        || issuer.is_some_and(|issuer| origin_of(issuer) == origin_of(address))
}

/// Returns the origin of a URL.
fn origin_of(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    format!("{scheme}://{host}").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use goondan_protocol::oauth::{ClientAuth, Endpoints};

    use super::*;

    #[test]
    fn sys_4_only_configured_urls_may_point_into_the_local_network() {
        let app = OAuthApp {
            name: "idp".parse().unwrap(),
            issuer: Some("https://login.corp.example/tenant".to_owned()),
            endpoints: Endpoints {
                revocation: Some("https://other.corp.example/revoke".to_owned()),
                ..Endpoints::default()
            },
            resource: None,
            client_id: None,
            client_secret: None,
            client_auth: ClientAuth::None,
            scopes: Vec::new(),
            wider_scopes: Vec::new(),
            redirect_uri: None,
            per_user: false,
            params: BTreeMap::new(),
        };
        for good in [
            "https://login.corp.example/token",
            "https://LOGIN.corp.example?x",
            "https://other.corp.example/revoke",
        ] {
            assert!(is_written(&app, good), "{good}");
        }
        for other in [
            "https://other.corp.example/token",
            "https://login.corp.example.evil.example/token",
            "https://login.corp.example\\evil.example/token",
            "https://login.corp.example:8443/token",
            "http://login.corp.example/token",
        ] {
            assert!(!is_written(&app, other), "{other}");
        }
    }
}
