//! Metadata of an authorization server (RFC 8414).

use goondan_protocol::oauth::{Endpoints, Metadata};
use serde_json::Value;

use super::{registration, resource};

/// Possible places of the metadata, in search order.
pub(super) fn places(issuer: &str) -> Vec<String> {
    let trimmed = issuer.trim_end_matches('/');
    let (scheme, rest) = trimmed.split_once("://").unwrap_or(("https", trimmed));
    let (host, path) = match rest.split_once('/') {
        Some((host, path)) => (host, format!("/{path}")),
        None => (rest, String::new()),
    };
    let mut places = vec![
        format!("{scheme}://{host}/.well-known/oauth-authorization-server{path}"),
        format!("{scheme}://{host}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{trimmed}/.well-known/openid-configuration"));
    }
    places
}

/// Parses the metadata. It must belong to the requested issuer and name endpoints to which secrets
/// may be sent.
///
/// # Errors
///
/// The reason why it is not trustworthy.
pub(super) fn read(said: &Value, issuer: &str) -> Result<Metadata, String> {
    let text = |name: &str| said.get(name).and_then(Value::as_str);
    let same = |text: &str| text.trim_end_matches('/') == issuer.trim_end_matches('/');
    let named = match text("issuer") {
        Some(named) if same(named) => named.to_owned(),
        Some(named) => {
            let named = resource::shown(named);
            return Err(format!("expected the issuer `{issuer}`, found `{named}`"));
        }
        None => return Err("it names no issuer".to_owned()),
    };
    let is_local = issuer.starts_with("http://");
    let endpoint = |name: &str| match text(name) {
        None => Ok(None),
        Some(url) if url.starts_with("https://") => Ok(Some(url.to_owned())),
        Some(url) if is_local && url.starts_with("http://") => Ok(Some(url.to_owned())),
        Some(_) => Err(format!("its `{name}` is not an `https` URL")),
    };
    let methods = said.get("code_challenge_methods_supported");
    let knows_s256 = methods
        .and_then(Value::as_array)
        .is_none_or(|methods| methods.iter().any(|it| it == "S256"));
    if !knows_s256 {
        return Err("it does not support `S256`, which a safe login requires".to_owned());
    }
    let says = |name: &str| {
        let said = said.get(name).and_then(Value::as_bool);
        said.unwrap_or_default()
    };
    Ok(Metadata {
        endpoints: Endpoints {
            authorization: endpoint("authorization_endpoint")?,
            token: endpoint("token_endpoint")?,
            revocation: endpoint("revocation_endpoint")?,
            device_authorization: endpoint("device_authorization_endpoint")?,
        },
        says_issuer: says("authorization_response_iss_parameter_supported"),
        issuer: Some(named),
        registration: endpoint("registration_endpoint")?,
        takes_client_documents: says("client_id_metadata_document_supported"),
        registered_auth: registration::auth_of(&resource::texts(
            said,
            "token_endpoint_auth_methods_supported",
        )),
        ..Metadata::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sys_4_metadata_is_found_before_or_after_the_issuer_path() {
        assert_eq!(
            places("https://as.example/tenant/"),
            [
                "https://as.example/.well-known/oauth-authorization-server/tenant",
                "https://as.example/.well-known/openid-configuration/tenant",
                "https://as.example/tenant/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            places("http://127.0.0.1:80"),
            [
                "http://127.0.0.1:80/.well-known/oauth-authorization-server",
                "http://127.0.0.1:80/.well-known/openid-configuration"
            ]
        );
    }

    #[test]
    fn sys_4_metadata_with_wrong_issuer_or_plain_http_is_rejected() {
        let issuer = "https://as.example";
        let good = json!({
            "issuer": "https://as.example/",
            "authorization_endpoint": "https://as.example/authorize",
            "token_endpoint": "https://as.example/token",
            "code_challenge_methods_supported": ["plain", "S256"],
            "authorization_response_iss_parameter_supported": true,
        });
        let metadata = read(&good, issuer).unwrap();
        assert!(metadata.says_issuer);
        let token = metadata.endpoints.token.as_deref();
        assert_eq!(token, Some("https://as.example/token"));
        for (field, value) in [
            ("issuer", json!("https://evil.example")),
            ("issuer", json!(null)),
            ("token_endpoint", json!("http://as.example/token")),
            ("code_challenge_methods_supported", json!(["plain"])),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            assert!(read(&bad, issuer).is_err(), "{bad}");
        }
    }
}
