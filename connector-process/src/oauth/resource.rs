//! Metadata of a resource server about its tokens (RFC 9728), and the addresses it may name.

use std::net::IpAddr;

use goondan_connectors::{AddressReachability, reach_of};
use reqwest::Url;
use serde_json::Value;

use crate::http::{ForbiddenAddress, may_reach};
use crate::limits::{OAUTH_SAID_CHARS_MAX, OAUTH_SCOPES_MAX};

/// Path prefix of the metadata.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResourceMetadata {
    pub(super) resource: String,
    /// The authorization server to use: the first one that the resource server lists.
    pub(super) issuer: String,
    /// Scopes that can be requested.
    pub(super) scopes: Vec<String>,
}

/// The strings of a list.
pub(super) fn texts(said: &Value, name: &str) -> Vec<String> {
    let list = said.get(name).and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.take(OAUTH_SCOPES_MAX).map(str::to_owned).collect()
}

/// Standard places of the metadata, if the server names none.
pub(super) fn places(resource: &Url) -> Vec<String> {
    let origin = resource.origin().ascii_serialization();
    let path = resource.path().trim_end_matches('/');
    let mut places = vec![format!("{origin}{WELL_KNOWN}{path}")];
    if !path.is_empty() {
        places.push(format!("{origin}{WELL_KNOWN}"));
    }
    places
}

/// Parses the metadata. It must describe the resource itself.
///
/// # Errors
///
/// The reason why it is not trustworthy.
pub(super) fn read(said: &Value, resource: &Url) -> Result<ResourceMetadata, String> {
    let Some(named) = said.get("resource").and_then(Value::as_str) else {
        return Err("its metadata has no `resource`".to_owned());
    };
    if !is_of(named, resource) {
        let named = shown(named);
        return Err(format!(
            "its metadata is for `{named}`, expected `{resource}`"
        ));
    }
    let servers = texts(said, "authorization_servers");
    let Some(issuer) = servers.into_iter().next() else {
        return Err("it names no authorization server".to_owned());
    };
    Ok(ResourceMetadata {
        resource: named.to_owned(),
        issuer,
        scopes: texts(said, "scopes_supported"),
    })
}

/// Truncates a server's text for an error.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(OAUTH_SAID_CHARS_MAX).collect()
}

/// True if the identifier is the server's address (RFC 9728, 3.3), ignoring a trailing slash. Many
/// servers at a path use their origin alone, which is accepted as well, because a token for it
/// covers the entire origin.
fn is_of(named: &str, resource: &Url) -> bool {
    let Ok(named) = Url::parse(named) else {
        return false;
    };
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    let is_same = path(&named) == path(resource) && named.query() == resource.query();
    let is_root = path(&named).is_empty() && named.query().is_none();
    named.origin() == resource.origin() && named.fragment().is_none() && (is_same || is_root)
}

/// True if an address literally belongs to this machine or its network.
fn is_private(url: &Url) -> bool {
    match address_of(url) {
        Some(address) => reach_of(address) == AddressReachability::Private,
        None => url.host_str() == Some("localhost"),
    }
}

fn address_of(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// True if addresses named by a server may be private: only if its own address is private.
pub(super) fn allows_private(resource: &Url) -> bool {
    is_private(resource)
}

/// Checks an address named by a server, because secrets may be sent there.
///
/// # Errors
///
/// The reason why no secret may be sent there.
pub(super) fn check(named: &str, resource: &Url) -> Result<Url, String> {
    let refused = |why: &str| Err(format!("it names the address `{}`, {why}", shown(named)));
    let Ok(url) = Url::parse(named) else {
        return refused("which is not a URL");
    };
    let is_plain = url.scheme() == "http" && resource.scheme() == "http" && is_private(&url);
    if url.scheme() != "https" && !is_plain {
        return refused("which does not use `https`");
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return refused("which contains a password or a fragment");
    }
    let allows_private = allows_private(resource);
    match address_of(&url) {
        Some(address) if !may_reach(address, allows_private) => {
            let host = url.host_str().unwrap_or_default();
            refused(&format!("and {}", ForbiddenAddress::at(host, address)))
        }
        None if is_private(&url) && !allows_private => refused("which belongs to this machine"),
        Some(_) | None => Ok(url),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn sys_4_metadata_of_another_server_or_path_is_rejected() {
        let of = |resource: &str| json!({"resource": resource, "authorization_servers": ["https://as.example"]});
        let resource = url("https://mcp.example/team/mcp");
        for good in [
            "https://mcp.example/team/mcp",
            "https://mcp.example/team/mcp/",
            "https://mcp.example",
            "https://MCP.example:443/",
        ] {
            let said = read(&of(good), &resource).unwrap();
            assert_eq!(
                (said.resource.as_str(), said.issuer.as_str()),
                (good, "https://as.example")
            );
        }
        for bad in [
            "https://evil.example/team/mcp",
            "http://mcp.example/team/mcp",
            "https://mcp.example:8443/team/mcp",
            "https://mcp.example/te",
            "https://mcp.example/team",
            "https://mcp.example/?tenant=2",
            "https://mcp.example/team/mcp#x",
            "https://mcp.example/team/mcp/other",
            "https://mcp.example/team/mcp?tenant=2",
            "nonsense",
        ] {
            assert!(read(&of(bad), &resource).is_err(), "{bad}");
        }
        assert!(read(&json!({"resource": "https://mcp.example"}), &resource).is_err());
        assert!(
            read(
                &json!({"authorization_servers": ["https://as.example"]}),
                &resource
            )
            .is_err()
        );
    }

    #[test]
    fn sys_4_named_url_must_be_https_and_not_private() {
        let public = url("https://mcp.example/mcp");
        assert!(check("https://as.example/x", &public).is_ok());
        assert!(check("https://8.8.8.8/x", &public).is_ok());
        for bad in [
            "http://as.example",
            "http://127.0.0.1:8080",
            "https://127.0.0.1",
            "https://localhost",
            "https://10.0.0.1/",
            "https://[::1]/",
            "https://0x7f.1/",
            "https://169.254.169.254/latest",
            "https://user:word@as.example",
            "https://as.example/#x",
            "file:///etc/passwd",
            "nonsense",
        ] {
            assert!(check(bad, &public).is_err(), "{bad}");
        }
        // A server on this machine may name others on it, but no cloud service.
        let here = url("http://127.0.0.1:9000/mcp");
        assert!(check("http://127.0.0.1:9001/x", &here).is_ok());
        assert!(check("https://as.example", &here).is_ok());
        assert!(check("http://as.example", &here).is_err());
        assert!(check("http://169.254.169.254/", &here).is_err());
    }

    #[test]
    fn sys_4_resource_metadata_is_found_before_the_path_or_at_root() {
        assert_eq!(
            places(&url("https://mcp.example/team/mcp")),
            [
                "https://mcp.example/.well-known/oauth-protected-resource/team/mcp",
                "https://mcp.example/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(places(&url("https://mcp.example/")).len(), 1);
    }
}
