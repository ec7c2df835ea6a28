//! Registers goondan as an application (RFC 7591).

use goondan_protocol::oauth::{
    ClientAuth, OAuthClient, RegisterRequest, Reply, TokenErrorResponse,
};
use goondan_protocol::secret::SecretValue;
use serde_json::{Value, json};

use super::{reply, resource};
use crate::service::HttpAnswer;

pub(super) fn body(request: &RegisterRequest) -> Value {
    let kinds = match &request.redirect_uri {
        Some(_) => vec!["authorization_code", "refresh_token"],
        None => vec![
            "urn:ietf:params:oauth:grant-type:device_code",
            "refresh_token",
        ],
    };
    let mut body = json!({
        "client_name": "goondan",
        "application_type": "native",
        "grant_types": kinds,
        "token_endpoint_auth_method": method_of(request.client_auth),
    });
    if let Some(body) = body.as_object_mut() {
        if let Some(redirect_uri) = &request.redirect_uri {
            body.insert("redirect_uris".to_owned(), json!([redirect_uri]));
            body.insert("response_types".to_owned(), json!(["code"]));
        }
        if !request.scopes.is_empty() {
            body.insert("scope".to_owned(), json!(request.scopes.join(" ")));
        }
    }
    body
}

fn method_of(auth: ClientAuth) -> &'static str {
    match auth {
        ClientAuth::Basic => "client_secret_basic",
        ClientAuth::Post => "client_secret_post",
        ClientAuth::None => "none",
    }
}

/// Authentication method of a registered application, from the methods that the server announces.
/// Without an announcement, the header is the default (RFC 8414, 2).
pub(super) fn auth_of(methods: &[String]) -> ClientAuth {
    let takes = |auth| methods.iter().any(|method| method == method_of(auth));
    // Without a secret, none needs to be stored.
    if takes(ClientAuth::None) {
        ClientAuth::None
    } else if methods.is_empty() || takes(ClientAuth::Basic) {
        ClientAuth::Basic
    } else {
        ClientAuth::Post
    }
}

/// Parses the answer of a registration endpoint; `None` if it is unreadable, or if the server
/// cannot answer now.
pub(super) fn read(answered: &HttpAnswer, request: &RegisterRequest) -> Option<Reply<OAuthClient>> {
    let fields = reply::fields_of(&answered.body);
    if !reply::is_good(answered) {
        if answered.status == 429 || answered.status >= 500 {
            return None;
        }
        let said = fields.as_ref().and_then(reply::refusal);
        return Some(Reply::Refused(said.unwrap_or_else(|| {
            refused(&format!("http_{}", answered.status), None)
        })));
    }
    let fields = fields?;
    let text = |name: &str| reply::text(&fields, name);
    let id = text("client_id")?;
    let secret = text("client_secret").map(SecretValue::new);
    if let Some(redirect_uri) = &request.redirect_uri {
        let said = fields.get("redirect_uris").and_then(Value::as_array);
        let is_left_out = said.is_some_and(|said| {
            !said.is_empty() && !said.iter().any(|it| it == redirect_uri.as_str())
        });
        if is_left_out {
            let why = "it registered different redirect addresses than requested";
            return Some(Reply::Refused(refused("invalid_redirect_uri", Some(why))));
        }
    }
    let method = text("token_endpoint_auth_method");
    let auth = match method.as_deref() {
        // An omitted method is the requested one.
        None => request.client_auth,
        Some("none") => ClientAuth::None,
        Some("client_secret_basic") => ClientAuth::Basic,
        Some("client_secret_post") => ClientAuth::Post,
        Some(other) => {
            let other = resource::shown(other);
            let why = format!("it requires the unsupported authentication method `{other}`");
            return Some(Reply::Refused(refused(
                "invalid_client_metadata",
                Some(&why),
            )));
        }
    };
    // A server that issued no secret to the application cannot require one.
    let auth = match &secret {
        Some(_) if method.is_none() && auth == ClientAuth::None => ClientAuth::Basic,
        Some(_) => auth,
        None => ClientAuth::None,
    };
    Some(Reply::Granted(OAuthClient {
        id,
        secret: secret.filter(|_| auth != ClientAuth::None),
        auth,
    }))
}

fn refused(error: &str, why: Option<&str>) -> TokenErrorResponse {
    TokenErrorResponse {
        error: error.to_owned(),
        description: why.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    fn answered(status: u16, body: &Value) -> HttpAnswer {
        HttpAnswer {
            status,
            headers: HeaderMap::new(),
            body: body.to_string().into_bytes(),
        }
    }

    #[test]
    fn sys_4_registration_asks_for_no_secret_unless_server_needs_it() {
        let methods = |methods: &[&str]| {
            let methods: Vec<String> = methods.iter().map(|it| (*it).to_owned()).collect();
            auth_of(&methods)
        };
        assert_eq!(methods(&[]), ClientAuth::Basic);
        assert_eq!(methods(&["client_secret_basic", "none"]), ClientAuth::None);
        assert_eq!(
            methods(&["client_secret_post", "client_secret_basic"]),
            ClientAuth::Basic
        );
        assert_eq!(methods(&["client_secret_post"]), ClientAuth::Post);
        let said = body(&request(ClientAuth::None));
        assert_eq!(
            said["redirect_uris"],
            json!(["http://127.0.0.1:1/callback"])
        );
        assert_eq!(said["token_endpoint_auth_method"], "none");
        assert_eq!(said["scope"], "a b");
    }

    fn request(client_auth: ClientAuth) -> RegisterRequest {
        RegisterRequest {
            endpoint: "https://as.example/register".to_owned(),
            redirect_uri: Some("http://127.0.0.1:1/callback".to_owned()),
            scopes: vec!["a".to_owned(), "b".to_owned()],
            client_auth,
            public_only: true,
        }
    }

    #[test]
    fn sys_4_registered_client_authenticates_as_the_server_requires() {
        let asked =
            |auth: ClientAuth, body: Value| match read(&answered(201, &body), &request(auth)) {
                Some(Reply::Granted(client)) => Some((client.auth, client.secret.is_some())),
                _ => None,
            };
        let client = |body: Value| asked(ClientAuth::Post, body);
        assert_eq!(
            client(json!({"client_id": "x"})),
            Some((ClientAuth::None, false))
        );
        let with = |method: &str| json!({"client_id": "x", "client_secret": "s", "token_endpoint_auth_method": method});
        assert_eq!(
            client(with("client_secret_post")),
            Some((ClientAuth::Post, true))
        );
        assert_eq!(
            client(with("client_secret_basic")),
            Some((ClientAuth::Basic, true))
        );
        assert_eq!(client(with("none")), Some((ClientAuth::None, false)));
        assert_eq!(client(with("private_key_jwt")), None);
        assert_eq!(client(json!({"client_secret": "s"})), None);
        // An omitted method is the requested one.
        let silent = json!({"client_id": "x", "client_secret": "s"});
        for (auth, expected) in [
            (ClientAuth::Post, ClientAuth::Post),
            (ClientAuth::Basic, ClientAuth::Basic),
            (ClientAuth::None, ClientAuth::Basic),
        ] {
            assert_eq!(asked(auth, silent.clone()), Some((expected, true)));
        }
    }

    #[test]
    fn sys_4_bad_registration_is_refused_and_a_busy_server_retried() {
        let read =
            |status: u16, body: &Value| read(&answered(status, body), &request(ClientAuth::None));
        let refused = |status: u16, body: Value| match read(status, &body) {
            Some(Reply::Refused(refused)) => refused,
            other => panic!("{other:?}"),
        };
        let said = refused(400, json!({"error": "invalid_redirect_uri"}));
        assert_eq!(said.error, "invalid_redirect_uri");
        assert_eq!(refused(403, json!(null)).error, "http_403");
        let long = json!({"error": "x".repeat(9_000), "error_description": "y".repeat(9_000)});
        let said = refused(400, long);
        assert!(said.to_string().len() < 1_000, "{}", said.to_string().len());
        for status in [429, 500, 503] {
            assert_eq!(
                read(status, &json!({"error": "slow_down"})),
                None,
                "{status}"
            );
        }
        assert_eq!(read(201, &json!("nonsense")), None);
        let with = |uris: Value| json!({"client_id": "x", "redirect_uris": uris});
        let other = refused(201, with(json!(["http://127.0.0.1:2/callback"])));
        assert_eq!(other.error, "invalid_redirect_uri");
        for good in [
            json!([]),
            json!(null),
            json!(["https://x.example", "http://127.0.0.1:1/callback"]),
        ] {
            assert!(matches!(read(201, &with(good)), Some(Reply::Granted(_))));
        }
    }
}
