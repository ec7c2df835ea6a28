//! Requests to authorization servers: obtaining tokens, reading metadata, revoking tokens
//! (`SYS-4`).
//!
//! The orchestrator decides on every request and its consequences; this module keeps no state.
//!
//! * `reply`: parses answers, including nonstandard ones. Pure.
//! * `metadata`: parses the metadata of an authorization server. Pure.
//! * `resource`: parses the metadata of a server that requires tokens, such as an MCP server. Pure.
//! * `registration`: dynamic registration of an application. Pure.
//! * `discovery`: finds an authorization server and its endpoints.
//!
//! # Invariants
//!
//! * A secret goes only to the endpoint that the orchestrator names, over TLS or within this
//!   machine, and follows no redirect.
//! * Addresses named by a server on the Internet never lead to private addresses.
//! * Errors and answers never repeat tokens, except for the requested ones.

mod discovery;
mod metadata;
mod registration;
mod reply;
mod resource;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use goondan_protocol::call::{CallError, CallErrorCode, CallOrder};
use goondan_protocol::oauth::{
    ClientAuth, DEVICE, FormRequest, METADATA, MetadataRequest, REGISTER, REVOKE, RegisterRequest,
    Reply, TOKEN, TokenErrorResponse, form_encoded, url_encoded,
};
use goondan_protocol::secret::SecretValue;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio_util::sync::CancellationToken;

use crate::calls::{CallHandler, Pieces, RawCallResult};
use crate::gateway::Gateway;
use crate::http;
use crate::limits::OAUTH_DOCUMENT_BYTES_MAX;
use crate::service::{
    ExchangeFailure, FailureContext, HttpAnswer, exchange, exchange_within, masked,
};

/// Form fields that are secret; errors may repeat the others.
const SECRET_FIELDS: [&str; 5] = [
    "refresh_token",
    "code",
    "code_verifier",
    "device_code",
    "token",
];

/// A client, and the addresses that it may reach.
#[derive(Clone)]
struct OAuthClient {
    http: reqwest::Client,
    is_public: bool,
}

impl OAuthClient {
    /// Checks a URL whose name a proxy resolves.
    async fn check(&self, url: &str) -> Result<(), ExchangeFailure> {
        match reqwest::Url::parse(url) {
            Ok(url) if self.is_public => http::check_proxied(&url, false)
                .await
                .map_err(|forbidden| ExchangeFailure::Forbidden(forbidden.to_string())),
            _ => Ok(()),
        }
    }
}

/// HTTP clients for servers.
#[derive(Clone)]
struct Clients {
    /// For addresses written by a person.
    any: OAuthClient,
    /// Only for addresses on the Internet.
    public: OAuthClient,
}

impl Clients {
    fn that(&self, public_only: bool) -> &OAuthClient {
        if public_only { &self.public } else { &self.any }
    }

    /// The client for addresses named by a server.
    fn for_found(&self, resource: &reqwest::Url) -> &OAuthClient {
        self.that(!resource::allows_private(resource))
    }
}

/// Sends requests for the holder of the tokens.
pub(crate) struct OAuthRequester {
    clients: Clients,
}

impl OAuthRequester {
    /// Creates the HTTP clients.
    ///
    /// # Errors
    ///
    /// A description of the failure.
    pub(crate) fn new() -> Result<Self, String> {
        let resolver = http::Resolver {
            allows_private: false,
        };
        let public = http::client_by(std::sync::Arc::new(resolver))?;
        let any = http::service_client()?;
        let clients = Clients {
            any: OAuthClient {
                http: any,
                is_public: false,
            },
            public: OAuthClient {
                http: public,
                is_public: true,
            },
        };
        Ok(Self { clients })
    }

    /// Serves requests until `stop`.
    pub(crate) async fn run(self, gateway: Gateway, stop: CancellationToken) {
        gateway.serve(std::sync::Arc::new(self)).await;
        gateway
            .report(true, "asks authorization servers".to_owned())
            .await;
        stop.cancelled().await;
    }
}

impl CallHandler for OAuthRequester {
    fn call(&self, call: CallOrder, _pieces: Pieces) -> BoxFuture<'static, RawCallResult> {
        let clients = self.clients.clone();
        async move {
            let timeout = Duration::from_millis(call.deadline_ms);
            match call.method.as_str() {
                METADATA => {
                    let request: MetadataRequest = read(&call.params)?;
                    to_raw(&discovery::ask(&clients, &request, timeout).await?)
                }
                TOKEN => ask_form(&clients, &call.params, timeout, false, reply::token).await,
                REVOKE => ask_form(&clients, &call.params, timeout, true, reply::revoked).await,
                DEVICE => ask_form(&clients, &call.params, timeout, true, reply::device).await,
                REGISTER => register(&clients, &call.params, timeout).await,
                other => {
                    let message = format!("an authorization server has no method `{other}`");
                    Err(CallError::new(CallErrorCode::NotFound, message))
                }
            }
        }
        .boxed()
    }
}

fn read<T: DeserializeOwned>(params: &RawValue) -> Result<T, CallError> {
    serde_json::from_str(params.get())
        .map_err(|_error| CallError::new(CallErrorCode::Invalid, "failed to read the request"))
}

fn to_raw<T: Serialize>(value: &T) -> RawCallResult {
    to_raw_value(value).map_err(|error| CallError::new(CallErrorCode::Internal, error.to_string()))
}

/// Sends a form and parses the response.
async fn ask_form<T: Serialize>(
    clients: &Clients,
    params: &RawValue,
    timeout: Duration,
    is_repeatable: bool,
    read_reply: fn(&HttpAnswer) -> Option<Reply<T>>,
) -> RawCallResult {
    let request: FormRequest = read(params)?;
    let secrets = secrets_of(&request);
    let failed = FailureContext {
        service: "the authorization server",
        is_repeatable,
    };
    let client = clients.that(request.public_only);
    let form = form_of(&client.http, &request)?;
    let sent = match client.check(&request.endpoint).await {
        Ok(()) => exchange(form, timeout).await,
        Err(forbidden) => Err(forbidden),
    };
    let answered = sent.map_err(|broken| failed.without_answer(&broken));
    let mask = |error: CallError| CallError {
        message: masked(error.message, &secrets),
        ..error
    };
    let answered = answered.map_err(mask)?;
    match read_reply(&answered) {
        Some(Reply::Refused(refused)) => to_raw(&Reply::<T>::Refused(TokenErrorResponse {
            error: masked(refused.error, &secrets),
            description: refused.description.map(|it| masked(it, &secrets)),
        })),
        Some(granted) => to_raw(&granted),
        // Its body may be anything, even a token.
        None => {
            let error = failed.by_status(
                answered.status,
                "the answer is unreadable",
                answered.retry_after_ms(),
            );
            let is_refusal = (300..500).contains(&answered.status) && answered.status != 429;
            if is_refusal {
                return to_raw(&Reply::<T>::Refused(TokenErrorResponse {
                    error: format!("http_{}", answered.status),
                    description: Some(mask(error).message),
                }));
            }
            // An unreadable body does not reveal the outcome.
            Err(match answered.status {
                200..300 => failed.unknown("failed to read its answer".to_owned()),
                _ => mask(error),
            })
        }
    }
}

/// Registers an application. A second request would register a second one.
async fn register(clients: &Clients, params: &RawValue, timeout: Duration) -> RawCallResult {
    let request: RegisterRequest = read(params)?;
    let failed = FailureContext {
        service: "the authorization server",
        is_repeatable: false,
    };
    let client = clients.that(request.public_only);
    let checked = client.check(&request.endpoint).await;
    checked.map_err(|forbidden| failed.without_answer(&forbidden))?;
    let sent = client
        .http
        .post(&request.endpoint)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .body(registration::body(&request).to_string());
    let answered = exchange_within(sent, timeout, OAUTH_DOCUMENT_BYTES_MAX).await;
    let answered = answered.map_err(|broken| failed.without_answer(&broken))?;
    if let Some(registered) = registration::read(&answered, &request) {
        return to_raw(&registered);
    }
    // The response may contain a secret.
    Err(match answered.status {
        200..300 => failed.unknown("failed to read its answer".to_owned()),
        status => failed.by_status(status, "it cannot register now", answered.retry_after_ms()),
    })
}

fn secrets_of(request: &FormRequest) -> Vec<String> {
    let of_form = request
        .form
        .iter()
        .filter(|(name, _)| SECRET_FIELDS.contains(&name.as_str()));
    let of_form = of_form.map(|(_, value)| value);
    let all = of_form.chain(&request.client_secret);
    all.map(|secret| secret.expose().to_owned()).collect()
}

fn form_of(
    client: &reqwest::Client,
    request: &FormRequest,
) -> Result<reqwest::RequestBuilder, CallError> {
    let secret = request.client_secret.as_ref().map(SecretValue::expose);
    let mut fields: Vec<(&str, &str)> = request
        .form
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose()))
        .collect();
    if request.client_auth != ClientAuth::Basic {
        fields.push(("client_id", &request.client_id));
    }
    if request.client_auth == ClientAuth::Post {
        fields.extend(secret.map(|secret| ("client_secret", secret)));
    }
    let mut builder = client
        .post(&request.endpoint)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(form_encoded(fields));
    if request.client_auth == ClientAuth::Basic {
        // Both are form-encoded first (RFC 6749, 2.3.1).
        let id = url_encoded(&request.client_id);
        let secret = url_encoded(secret.unwrap_or_default());
        let credentials = STANDARD.encode(format!("{id}:{secret}"));
        let mut value = HeaderValue::try_from(format!("Basic {credentials}"))
            .map_err(|error| CallError::new(CallErrorCode::Invalid, error.to_string()))?;
        value.set_sensitive(true);
        builder = builder.header(AUTHORIZATION, value);
    }
    Ok(builder)
}
