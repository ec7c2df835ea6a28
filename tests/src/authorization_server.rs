//! A local authorization server: it rotates refresh tokens, revokes the token family when a token
//! is reused, and checks `S256`, redirect addresses and client credentials.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::provider::{Provider, ProviderResponse, ReceivedRequest, ResponseEnd};

/// The application's id at the server.
pub const CLIENT_ID: &str = "client-one";
pub const CLIENT_SECRET: &str = "client-secret-never-shown";

/// Fault in the server's next response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFault {
    /// It renews the token, but the response never arrives.
    LosesReply,
    /// It responds with an error.
    Fails,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    codes: BTreeMap<String, BTreeMap<String, String>>,
    refresh: Option<String>,
    spent: BTreeSet<String>,
    access: Option<String>,
    life_s: u64,
    requests: Vec<String>,
    manners: Vec<ResponseFault>,
    /// Every secret that it issued or received.
    secrets: Vec<String>,
    /// True once a person has consented on another device.
    is_device_allowed: bool,
}

/// The server. Its threads end with the test's process.
pub struct AuthorizationServer {
    http: Provider,
    state: Arc<Mutex<State>>,
}

impl AuthorizationServer {
    /// Starts a server whose access tokens live this many seconds.
    #[must_use]
    pub fn start(life_s: u64) -> Self {
        let state = Arc::new(Mutex::new(State {
            life_s,
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        let http = Provider::start(move |received| {
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            answer(&mut state, received)
        });
        Self { http, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn issuer(&self) -> String {
        self.http.endpoint()
    }

    #[must_use]
    pub fn access_token(&self) -> Option<String> {
        self.state().access.clone()
    }

    /// Sets the lifetime in seconds of new access tokens.
    pub fn set_life(&self, life_s: u64) {
        self.state().life_s = life_s;
    }

    /// Number of requests with this grant type.
    #[must_use]
    pub fn requests(&self, kind: &str) -> usize {
        let state = self.state();
        state.requests.iter().filter(|it| *it == kind).count()
    }

    /// Every token, code and verifier that it issued or received.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        self.state().secrets.clone()
    }

    pub fn next(&self, manner: ResponseFault) {
        self.state().manners.push(manner);
    }

    /// Consents at this address, and returns the redirect address for the browser.
    ///
    /// # Panics
    ///
    /// If it is not the address of an authorization request.
    #[must_use]
    pub fn consent(&self, url: &str) -> String {
        let (_, query) = url.split_once('?').expect("an address with fields");
        let fields = form(query);
        assert_eq!(fields["response_type"], "code");
        assert_eq!(fields["client_id"], CLIENT_ID);
        assert_eq!(fields["code_challenge_method"], "S256");
        let mut state = self.state();
        state.next += 1;
        let code = format!("code-{}-never-shown", state.next);
        state.secrets.push(code.clone());
        state.secrets.push(fields["state"].clone());
        let back = format!(
            "{}?code={code}&state={}&iss={}",
            fields["redirect_uri"],
            fields["state"],
            self.issuer()
        );
        state.codes.insert(code, fields);
        back
    }

    /// Consents on another device.
    pub fn allow_device(&self) {
        self.state().is_device_allowed = true;
    }
}

/// The fields of a form or a query.
pub(crate) fn form(text: &str) -> BTreeMap<String, String> {
    let decoded = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            match byte {
                b'%' => {
                    let digits = [rest.next(), rest.next()].map(|it| it.map_or('0', char::from));
                    let digits: String = digits.iter().collect();
                    bytes.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
                }
                b'+' => bytes.push(b' '),
                byte => bytes.push(byte),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let fields = text.split('&').filter_map(|field| field.split_once('='));
    fields
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

fn refused(error: &str) -> ProviderResponse {
    ProviderResponse::error(400, &json!({"error": error}))
}

fn grant(state: &mut State) -> ProviderResponse {
    state.next += 1;
    let access = format!("access-{}-never-shown", state.next);
    let refresh = format!("refresh-{}-never-shown", state.next);
    state.secrets.extend([access.clone(), refresh.clone()]);
    state.access = Some(access.clone());
    state.refresh = Some(refresh.clone());
    ProviderResponse::json(&json!({
        "access_token": access, "refresh_token": refresh, "token_type": "Bearer",
        "expires_in": state.life_s, "scope": "repo",
    }))
}

fn answer(state: &mut State, received: &ReceivedRequest) -> ProviderResponse {
    let host = received.header("host").unwrap_or_default();
    let base = format!("http://{host}/v1");
    match received.path.as_str() {
        "/.well-known/oauth-authorization-server/v1" => ProviderResponse::json(&json!({
            "issuer": base,
            "authorization_endpoint": format!("{base}/authorize"),
            "token_endpoint": format!("{base}/token"),
            "revocation_endpoint": format!("{base}/revoke"),
            "device_authorization_endpoint": format!("{base}/device"),
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
        })),
        "/v1/token" | "/v1/revoke" | "/v1/device" => {
            let expected = STANDARD.encode(format!("{CLIENT_ID}:{CLIENT_SECRET}"));
            let expected = format!("Basic {expected}");
            if received.header("authorization") != Some(&expected) {
                return ProviderResponse::error(401, &json!({"error": "invalid_client"}));
            }
            let Value::String(body) = &received.body else {
                return refused("invalid_request");
            };
            let fields = form(body);
            match received.path.as_str() {
                "/v1/token" => token(state, &fields),
                "/v1/device" => {
                    state.secrets.push("device-never-shown".to_owned());
                    ProviderResponse::json(&json!({
                        "device_code": "device-never-shown", "user_code": "ABCD-EFGH",
                        "verification_uri": format!("{base}/activate"), "interval": 1,
                    }))
                }
                _ => {
                    state.requests.push("revoke".to_owned());
                    if state.refresh == fields.get("token").cloned() {
                        (state.refresh, state.access) = (None, None);
                    }
                    ProviderResponse::json(&json!({}))
                }
            }
        }
        _ => ProviderResponse::error(404, &json!({})),
    }
}

fn token(state: &mut State, fields: &BTreeMap<String, String>) -> ProviderResponse {
    let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let kind = field("grant_type");
    state.requests.push(kind.clone());
    let manner = state.manners.pop();
    if manner == Some(ResponseFault::Fails) {
        return ProviderResponse::error(503, &json!({}));
    }
    let granted = match kind.as_str() {
        "authorization_code" => {
            state.secrets.push(field("code_verifier"));
            let Some(asked) = state.codes.remove(&field("code")) else {
                return refused("invalid_grant");
            };
            let challenge = Sha256::digest(field("code_verifier").as_bytes());
            let is_good = asked["code_challenge"] == URL_SAFE_NO_PAD.encode(challenge)
                && asked["redirect_uri"] == field("redirect_uri");
            if !is_good {
                return refused("invalid_grant");
            }
            grant(state)
        }
        "refresh_token" => {
            let token = field("refresh_token");
            if state.refresh.as_ref() != Some(&token) {
                if state.spent.contains(&token) {
                    (state.refresh, state.access) = (None, None);
                }
                return refused("invalid_grant");
            }
            state.spent.insert(token);
            grant(state)
        }
        _ if state.is_device_allowed => grant(state),
        _ => refused("authorization_pending"),
    };
    match manner {
        Some(ResponseFault::LosesReply) => ProviderResponse {
            chunks: Vec::new(),
            ..granted.ending(ResponseEnd::Silent)
        },
        _ => granted,
    }
}
