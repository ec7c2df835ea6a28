//! Has goondan registered as an application (RFC 7591).

use goondan_protocol::oauth::{Client, ClientAuth, Refused, RegisterRequest, Reply};
use goondan_protocol::secret::SecretValue;
use serde_json::{Value, json};

use super::reply;
use crate::service::Answered;

/// What the server is told of the application.
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

/// How a registered application is to say who it is, by what the server says it takes.
pub(super) fn auth_of(methods: &[String]) -> ClientAuth {
    let takes = |auth| methods.iter().any(|method| method == method_of(auth));
    // Without a secret there is none to keep.
    if methods.is_empty() || takes(ClientAuth::None) {
        ClientAuth::None
    } else if takes(ClientAuth::Basic) {
        ClientAuth::Basic
    } else {
        ClientAuth::Post
    }
}

/// The answer of a registration endpoint; `None` if it cannot be read.
pub(super) fn read(answered: &Answered) -> Option<Reply<Client>> {
    let said = answered.json();
    let text = |name: &str| {
        let text = said.get(name).and_then(Value::as_str);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    if !reply::is_good(answered) {
        return Some(Reply::Refused(Refused {
            error: text("error").unwrap_or_else(|| format!("http_{}", answered.status)),
            description: text("error_description"),
        }));
    }
    let secret = text("client_secret").map(SecretValue::new);
    let auth = match (text("token_endpoint_auth_method").as_deref(), &secret) {
        (_, None) => ClientAuth::None,
        (Some("client_secret_post"), Some(_)) => ClientAuth::Post,
        (Some("none"), Some(_)) => ClientAuth::None,
        (Some(_) | None, Some(_)) => ClientAuth::Basic,
    };
    Some(Reply::Granted(Client {
        id: text("client_id")?,
        secret: secret.filter(|_| auth != ClientAuth::None),
        auth,
    }))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    fn answered(status: u16, body: &Value) -> Answered {
        Answered {
            status,
            headers: HeaderMap::new(),
            body: body.to_string().into_bytes(),
        }
    }

    #[test]
    fn sys_4_a_registration_asks_for_no_secret_unless_the_server_wants_one() {
        let methods = |methods: &[&str]| {
            let methods: Vec<String> = methods.iter().map(|it| (*it).to_owned()).collect();
            auth_of(&methods)
        };
        assert_eq!(methods(&[]), ClientAuth::None);
        assert_eq!(methods(&["client_secret_basic", "none"]), ClientAuth::None);
        assert_eq!(
            methods(&["client_secret_post", "client_secret_basic"]),
            ClientAuth::Basic
        );
        assert_eq!(methods(&["client_secret_post"]), ClientAuth::Post);
        let request = RegisterRequest {
            endpoint: "https://as.example/register".to_owned(),
            redirect_uri: Some("http://127.0.0.1:1/callback".to_owned()),
            scopes: vec!["a".to_owned(), "b".to_owned()],
            client_auth: ClientAuth::None,
            public_only: true,
        };
        let said = body(&request);
        assert_eq!(
            said["redirect_uris"],
            json!(["http://127.0.0.1:1/callback"])
        );
        assert_eq!(said["token_endpoint_auth_method"], "none");
        assert_eq!(said["scope"], "a b");
    }

    #[test]
    fn sys_4_a_registered_application_says_who_it_is_as_the_server_wants() {
        let client = |body: Value| match read(&answered(201, &body)) {
            Some(Reply::Granted(client)) => Some((client.auth, client.secret.is_some())),
            _ => None,
        };
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
        assert_eq!(client(json!({"client_secret": "s"})), None);
        let refused = read(&answered(400, &json!({"error": "invalid_redirect_uri"})));
        assert!(matches!(refused, Some(Reply::Refused(it)) if it.error == "invalid_redirect_uri"));
        let refused = read(&answered(403, &json!(null)));
        assert!(matches!(refused, Some(Reply::Refused(it)) if it.error == "http_403"));
    }
}
