//! An MCP server over HTTP that requires a login, and its authorization server: they behave like
//! the examples of the protocol's own SDK, with faults on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::authorization_server::form;
use crate::mcp::{McpReaction, McpTestServer};
use crate::provider::{Provider, ProviderResponse, ReceivedRequest, ResponseEnd};

/// Base path of both servers.
const BASE: &str = "/v1";
/// Path of the MCP server's protected resource metadata.
const SAID_AT: &str = "/.well-known/oauth-protected-resource/v1";

/// Fault of one of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginServerFault {
    /// The MCP server's metadata names a different resource.
    OtherResource,
    /// The metadata URL has a different scheme.
    PlainPlace,
    /// The metadata request is redirected elsewhere.
    Redirect,
    Huge,
    /// It names the metadata service of a cloud as its authorization server.
    CloudServer,
    /// The authorization server's metadata names a different issuer.
    OtherIssuer,
    /// It does not advertise `S256`.
    NoS256,
    /// Its token endpoint is not on TLS.
    PlainEndpoint,
    /// It offers no registration endpoint.
    NoRegistration,
    /// The redirect carries a different issuer.
    OtherCallback,
    /// The MCP server accepts every request.
    NoLogin,
    /// The MCP server is busy for one request.
    Busy,
    /// Its responses without a token are endless.
    Endless,
    /// The authorization server is busy for one registration.
    BusyRegistration,
    /// It fails during a registration.
    BrokenRegistration,
    /// It registers an application, but never responds.
    SilentRegistration,
    /// The registration response is huge.
    HugeRegistration,
    /// It registers redirect addresses that differ from the request.
    OtherRedirect,
    /// The MCP server rejects every token.
    TakesNone,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Addresses of the MCP server and of the authorization server.
    resource: String,
    issuer: String,
    /// Redirect addresses by client id.
    clients: BTreeMap<String, String>,
    codes: BTreeMap<String, BTreeMap<String, String>>,
    refresh: Option<String>,
    access: Option<String>,
    /// Requested grant types, each with the resource.
    asked: Vec<(String, String)>,
    secrets: Vec<String>,
    /// Scope of the access token.
    scope: String,
    /// Scope required for a tool call, in addition to the login's.
    needed: Option<String>,
    /// Number of tokens rejected by the MCP server.
    declined: usize,
    registrations: usize,
    lie: Option<LoginServerFault>,
}

/// Both servers. Their threads end with the test's process.
pub struct McpWithLogin {
    state: Arc<Mutex<State>>,
    mcp: Provider,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl McpWithLogin {
    #[must_use]
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let idp = Provider::start(move |received| authorize(&mut lock(&shared), received));
        let shared = Arc::clone(&state);
        let mut server = McpTestServer::new("none");
        let mcp = Provider::start(move |received| serve(&mut lock(&shared), &mut server, received));
        {
            let mut state = lock(&state);
            state.issuer = idp.endpoint();
            state.resource = mcp.endpoint();
        }
        Self { state, mcp }
    }

    /// The URL of the MCP server.
    #[must_use]
    pub fn url(&self) -> String {
        self.mcp.endpoint()
    }

    /// The authorization server.
    #[must_use]
    pub fn issuer(&self) -> String {
        lock(&self.state).issuer.clone()
    }

    /// Sets the fault from now on.
    pub fn lie(&self, lie: Option<LoginServerFault>) {
        lock(&self.state).lie = lie;
    }

    /// Registers an application manually.
    pub fn register(&self, id: &str, redirect_uri: &str) {
        let mut state = lock(&self.state);
        state.clients.insert(id.to_owned(), redirect_uri.to_owned());
    }

    /// Number of registered applications.
    #[must_use]
    pub fn clients(&self) -> usize {
        lock(&self.state).clients.len()
    }

    /// Number of registration requests.
    #[must_use]
    pub fn registrations(&self) -> usize {
        lock(&self.state).registrations
    }

    /// Makes the MCP server reject the last issued access token. It can be renewed.
    pub fn take_back(&self) {
        lock(&self.state).access = Some("taken back".to_owned());
    }

    /// Requires this scope for tool calls from now on.
    pub fn needs_scope(&self, scope: &str) {
        lock(&self.state).needed = Some(scope.to_owned());
    }

    /// Number of tokens rejected by the MCP server.
    #[must_use]
    pub fn declined(&self) -> usize {
        lock(&self.state).declined
    }

    #[must_use]
    pub fn access_token(&self) -> Option<String> {
        lock(&self.state).access.clone()
    }

    /// Requested grant types, each with the resource.
    #[must_use]
    pub fn asked(&self) -> Vec<(String, String)> {
        lock(&self.state).asked.clone()
    }

    /// Every token, code and verifier that was issued.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        lock(&self.state).secrets.clone()
    }

    /// Consents at this address, and returns the redirect address for the browser.
    ///
    /// # Panics
    ///
    /// If it is not an authorization request for the MCP server.
    #[must_use]
    pub fn consent(&self, url: &str) -> String {
        let (_, query) = url.split_once('?').expect("an address with fields");
        let fields = form(query);
        let mut state = lock(&self.state);
        assert_eq!(fields["resource"], state.resource);
        assert_eq!(fields["code_challenge_method"], "S256");
        let needed = state.needed.iter().map(|scope| format!(" {scope}"));
        let scope = format!("tools offline_access{}", needed.collect::<String>());
        // More scope is requested only after a rejection for missing scope.
        assert!(scope.starts_with(&fields["scope"]), "{}", fields["scope"]);
        assert_eq!(state.clients[&fields["client_id"]], fields["redirect_uri"]);
        state.next += 1;
        let code = format!("code-{}-never-shown", state.next);
        state.secrets.push(code.clone());
        state.secrets.push(fields["state"].clone());
        let issuer = match state.lie {
            Some(LoginServerFault::OtherCallback) => "https://evil.example",
            _ => &state.issuer,
        };
        let (back, of) = (&fields["redirect_uri"], &fields["state"]);
        let back = format!("{back}?code={code}&state={of}&iss={issuer}");
        state.codes.insert(code, fields);
        back
    }
}

fn serve(
    state: &mut State,
    server: &mut McpTestServer,
    received: &ReceivedRequest,
) -> ProviderResponse {
    if received.path == SAID_AT {
        return login_answer(state);
    }
    if state.lie == Some(LoginServerFault::Busy) {
        state.lie = None;
        return ProviderResponse::error(503, &json!({}));
    }
    let is_open = state.lie == Some(LoginServerFault::NoLogin);
    let token = received.header("authorization");
    let token = token.and_then(|header| header.strip_prefix("Bearer "));
    let takes = state.lie != Some(LoginServerFault::TakesNone) && token == state.access.as_deref();
    if !is_open && (token.is_none() || !takes) {
        state.declined += usize::from(token.is_some());
        let origin = state.resource.trim_end_matches(BASE);
        let place = match state.lie {
            Some(LoginServerFault::PlainPlace) => "http://mcp.example/said".to_owned(),
            _ => format!("{origin}{SAID_AT}"),
        };
        let challenge = format!(
            "Bearer error=\"invalid_token\", resource_metadata=\"{place}\", scope=\"tools\""
        );
        let body = json!({"error": "invalid_token"});
        let answer =
            ProviderResponse::error(401, &body).with_header("www-authenticate", &challenge);
        return match state.lie {
            Some(LoginServerFault::Endless) => answer.repeating(b"and so on "),
            _ => answer,
        };
    }
    let lacks = |needed: &&String| !state.scope.split(' ').any(|scope| scope == *needed);
    let is_call = received.body["method"] == "tools/call";
    if let Some(needed) = state.needed.as_ref().filter(lacks).filter(|_| is_call) {
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"tools {needed}\"");
        state.declined += 1;
        return ProviderResponse::error(403, &json!({}))
            .with_header("www-authenticate", &challenge);
    }
    let empty = |status: u16| ProviderResponse {
        chunks: Vec::new(),
        ..ProviderResponse::error(status, &Value::Null)
    };
    if received.method != "POST" {
        return empty(405);
    }
    match server.take(&received.body) {
        McpReaction::Say(messages) => messages
            .last()
            .map_or_else(|| empty(202), ProviderResponse::json),
        McpReaction::Die(_) => empty(500),
    }
}

fn login_answer(state: &State) -> ProviderResponse {
    let mut body = json!({
        "resource": state.resource,
        "authorization_servers": [state.issuer],
        "scopes_supported": ["tools", "more"],
        "bearer_methods_supported": ["header"],
    });
    match state.lie {
        Some(LoginServerFault::OtherResource) => {
            body["resource"] = json!("https://bank.example/mcp");
        }
        Some(LoginServerFault::CloudServer) => {
            body["authorization_servers"] = json!(["https://169.254.169.254/latest"]);
        }
        Some(LoginServerFault::Huge) => body["resource_name"] = json!("x".repeat(1024 * 1024)),
        Some(LoginServerFault::Redirect) => {
            let to = "http://127.0.0.1:1/";
            return ProviderResponse::error(302, &json!(null)).with_header("location", to);
        }
        _ => {}
    }
    ProviderResponse::json(&body)
}

/// Response of the authorization server.
fn authorize(state: &mut State, received: &ReceivedRequest) -> ProviderResponse {
    let issuer = state.issuer.clone();
    match received.path.as_str() {
        "/.well-known/oauth-authorization-server/v1" => ProviderResponse::error(404, &json!({})),
        "/.well-known/openid-configuration/v1" => {
            let mut body = json!({
                "issuer": issuer,
                "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"),
                "registration_endpoint": format!("{issuer}/register"),
                "revocation_endpoint": format!("{issuer}/revoke"),
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
                "scopes_supported": ["tools", "offline_access"],
                "authorization_response_iss_parameter_supported": true,
            });
            match state.lie {
                Some(LoginServerFault::OtherIssuer) => {
                    body["issuer"] = json!("https://evil.example");
                }
                Some(LoginServerFault::NoS256) => {
                    body["code_challenge_methods_supported"] = json!(null);
                }
                Some(LoginServerFault::PlainEndpoint) => {
                    body["token_endpoint"] = json!("http://evil.example/token");
                }
                Some(LoginServerFault::NoRegistration) => {
                    body["registration_endpoint"] = json!(null);
                }
                _ => {}
            }
            ProviderResponse::json(&body)
        }
        "/v1/register" => register(state, received),
        "/v1/token" => {
            let Value::String(body) = &received.body else {
                return refused("invalid_request");
            };
            token(state, &form(body))
        }
        "/v1/revoke" => {
            state.asked.push(("revoke".to_owned(), String::new()));
            (state.refresh, state.access) = (None, None);
            ProviderResponse::json(&json!({}))
        }
        _ => ProviderResponse::error(404, &json!({})),
    }
}

fn register(state: &mut State, received: &ReceivedRequest) -> ProviderResponse {
    state.registrations += 1;
    match state.lie {
        Some(LoginServerFault::BusyRegistration) => {
            state.lie = None;
            return ProviderResponse::error(503, &json!({"error": "temporarily_unavailable"}));
        }
        Some(LoginServerFault::BrokenRegistration) => {
            return ProviderResponse::error(500, &json!({}));
        }
        _ => {}
    }
    state.next += 1;
    let (id, secret) = (
        format!("client-{}", state.next),
        format!("client-secret-{}-never-shown", state.next),
    );
    let redirect_uri = received.body["redirect_uris"][0].as_str();
    let redirect_uri = redirect_uri.unwrap_or_default().to_owned();
    state.clients.insert(id.clone(), redirect_uri);
    state.secrets.push(secret.clone());
    let mut body = received.body.clone();
    body["client_id"] = json!(id);
    body["client_secret"] = json!(secret);
    match state.lie {
        Some(LoginServerFault::OtherRedirect) => {
            body["redirect_uris"] = json!(["https://evil.example/back"]);
        }
        Some(LoginServerFault::HugeRegistration) => {
            body["software_id"] = json!("x".repeat(1024 * 1024));
        }
        _ => {}
    }
    let answer = ProviderResponse::error(201, &body);
    match state.lie {
        Some(LoginServerFault::SilentRegistration) => ProviderResponse {
            chunks: Vec::new(),
            ..answer.ending(ResponseEnd::Silent)
        },
        _ => answer,
    }
}

fn refused(error: &str) -> ProviderResponse {
    ProviderResponse::error(400, &json!({"error": error}))
}

fn token(state: &mut State, fields: &BTreeMap<String, String>) -> ProviderResponse {
    let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let (kind, client) = (field("grant_type"), field("client_id"));
    state.asked.push((kind.clone(), field("resource")));
    let secret = client.replace("client-", "client-secret-") + "-never-shown";
    let by_hand = field("client_secret").is_empty() && client.starts_with("by-hand");
    if !state.clients.contains_key(&client) || !(by_hand || field("client_secret") == secret) {
        return ProviderResponse::error(401, &json!({"error": "invalid_client"}));
    }
    if field("resource") != state.resource {
        return refused("invalid_target");
    }
    if kind == "authorization_code" {
        state.secrets.push(field("code_verifier"));
        let Some(asked) = state.codes.remove(&field("code")) else {
            return refused("invalid_grant");
        };
        let challenge = Sha256::digest(field("code_verifier").as_bytes());
        let is_good = asked["code_challenge"] == URL_SAFE_NO_PAD.encode(challenge)
            && asked["redirect_uri"] == field("redirect_uri")
            && asked["client_id"] == client;
        if !is_good {
            return refused("invalid_grant");
        }
        state.scope.clone_from(&asked["scope"]);
    } else if state.refresh.as_ref() != Some(&field("refresh_token")) {
        return refused("invalid_grant");
    }
    state.next += 1;
    let access = format!("access-{}-never-shown", state.next);
    let refresh = format!("refresh-{}-never-shown", state.next);
    state.secrets.extend([access.clone(), refresh.clone()]);
    state.access = Some(access.clone());
    state.refresh = Some(refresh.clone());
    ProviderResponse::json(&json!({
        "access_token": access, "refresh_token": refresh, "token_type": "bearer",
        "expires_in": 3600, "scope": state.scope,
    }))
}
