//! Finds out where an authorization server takes requests, and which server that is.

use std::time::Duration;

use goondan_protocol::call::{CallError, CallErrorCode};
use goondan_protocol::oauth::{Metadata, MetadataRequest, Refused, Reply};
use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};

use super::resource::{self, Challenge, Said};
use super::{Clients, metadata};
use crate::limits::OAUTH_DOCUMENT_BYTES_MAX;
use crate::service::{Answered, Broken, Failed, exchange_within};

/// What a server is asked with that wants a token: the first request of the Model Context Protocol.
const PROTOCOL_VERSION: &str = "2025-11-25";

/// Why it is not known.
enum Unknown {
    /// What was said is not to be believed, or nothing was said.
    Refused(&'static str, String),
    /// Nobody answered.
    Failed(CallError),
}

type Found<T> = Result<T, Unknown>;

fn refused<T>(why: impl Into<String>) -> Found<T> {
    Err(Unknown::Refused("invalid_metadata", why.into()))
}

/// Asks an authorization server what it says of itself, or first a server whose tokens are wanted which that is.
pub(super) async fn ask(
    clients: &Clients,
    request: &MetadataRequest,
    timeout: Duration,
) -> Result<Reply<Metadata>, CallError> {
    let asking = Asking { clients, timeout };
    let found = match (&request.issuer, &request.resource) {
        (Some(issuer), resource) => asking.written(issuer, resource.as_deref()).await,
        (None, Some(resource)) => asking.found_by(resource).await,
        (None, None) => refused("neither a server nor whose tokens it takes is named"),
    };
    match found {
        Ok(metadata) => Ok(Reply::Granted(metadata)),
        Err(Unknown::Refused(error, why)) => Ok(Reply::Refused(Refused {
            error: error.to_owned(),
            description: Some(why),
        })),
        Err(Unknown::Failed(error)) => Err(error),
    }
}

struct Asking<'a> {
    clients: &'a Clients,
    timeout: Duration,
}

impl Asking<'_> {
    /// An authorization server that a person has named.
    async fn written(&self, issuer: &str, resource: Option<&str>) -> Found<Metadata> {
        let said = self.metadata_at(&self.clients.any, issuer).await?;
        let mut metadata = read(&said, issuer)?;
        if resource.is_some() {
            must_say_s256(&said)?;
        }
        metadata.resource = resource.map(str::to_owned);
        Ok(metadata)
    }

    /// The one that a server names.
    async fn found_by(&self, written: &str) -> Found<Metadata> {
        let Ok(url) = Url::parse(written) else {
            return refused(format!("`{written}` is no address"));
        };
        let challenge = self.challenge_of(&url).await?;
        let said = self.said_by(&url, &challenge).await?;
        let issuer = &said.issuer;
        check(issuer, &url)?;
        let document = self
            .metadata_at(self.clients.for_found(&url), issuer)
            .await?;
        let mut metadata = read(&document, issuer)?;
        must_say_s256(&document)?;
        let endpoints = &metadata.endpoints;
        let named = [
            &endpoints.authorization,
            &endpoints.token,
            &endpoints.revocation,
            &endpoints.device_authorization,
            &metadata.registration,
        ];
        for named in named.into_iter().flatten() {
            check(named, &url)?;
        }
        let mut scopes = if challenge.scopes.is_empty() {
            said.scopes
        } else {
            challenge.scopes
        };
        // Without it many servers give no refresh token.
        let offline = "offline_access".to_owned();
        let gives_offline = resource::texts(&document, "scopes_supported").contains(&offline);
        if gives_offline && !scopes.is_empty() && !scopes.contains(&offline) {
            scopes.push(offline);
        }
        metadata.scopes = scopes;
        metadata.resource = Some(said.resource);
        metadata.public_only = !resource::allows_private(&url);
        Ok(metadata)
    }

    /// Comes to the server without a token.
    async fn challenge_of(&self, url: &Url) -> Found<Challenge> {
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": PROTOCOL_VERSION, "capabilities": {},
                "clientInfo": {"name": "goondan", "version": env!("CARGO_PKG_VERSION")},
            },
        });
        let request = self.clients.any.post(url.clone());
        let request = request
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string());
        // What it says else may have no end.
        let sent = goondan_clock::timeout(self.timeout, request.send()).await;
        let answered = match sent {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => {
                let reason = goondan_log::error_chain(&error.without_url());
                return Err(failed("the server", &Broken::NotSent(reason)));
            }
            Err(_elapsed) => {
                let reason = format!("no answer within {} ms", self.timeout.as_millis());
                return Err(failed("the server", &Broken::Lost(reason)));
            }
        };
        let status = answered.status();
        if status.is_success() {
            return refused("it takes requests without a token: nobody has to log in there");
        }
        if status.is_redirection() {
            return refused("the server sends elsewhere: name the address where it is itself");
        }
        Ok(resource::challenge_of(answered.headers()))
    }

    /// What the server says of its tokens, where it says so.
    async fn said_by(&self, url: &Url, challenge: &Challenge) -> Found<Said> {
        let places = match &challenge.metadata {
            Some(named) => vec![check(named, url)?.to_string()],
            None => resource::places(url),
        };
        for place in places {
            let client = match Url::parse(&place) {
                Ok(at) if at.origin() == url.origin() => &self.clients.any,
                _ => self.clients.for_found(url),
            };
            let answered = self.get(client, &place, "the server").await?;
            if answered.status == 200 {
                return resource::read(&answered.json(), url).or_else(refused);
            }
            if challenge.metadata.is_some() {
                return refused(format!(
                    "it names `{place}` as the place where it says whose tokens it takes, and that \
                     answered {}",
                    answered.status
                ));
            }
        }
        refused(
            "it does not say whose tokens it takes; name the authorization server: an OAuthApp with \
             `resource` and `issuer`",
        )
    }

    /// What an authorization server says of itself, from the first place where it does.
    async fn metadata_at(&self, client: &reqwest::Client, issuer: &str) -> Found<Value> {
        let mut last = 0;
        for url in metadata::places(issuer) {
            let answered = self.get(client, &url, "the authorization server").await?;
            if answered.status == 200 {
                return Ok(answered.json());
            }
            last = answered.status;
        }
        let why = "the server does not say where its endpoints are; name them in the OAuthApp";
        let why = match last {
            300..400 => "the server sends elsewhere, which is not followed",
            _ => why,
        };
        Err(Unknown::Refused("no_metadata", format!("{why} ({last})")))
    }

    async fn get(
        &self,
        client: &reqwest::Client,
        url: &str,
        service: &'static str,
    ) -> Found<Answered> {
        let request = client.get(url).header(ACCEPT, "application/json");
        let answered = exchange_within(request, self.timeout, OAUTH_DOCUMENT_BYTES_MAX).await;
        let answered = answered.map_err(|broken| match broken {
            Broken::TooLong(_) | Broken::Forbidden(_) => {
                Unknown::Refused("invalid_metadata", format!("{service}: {broken}"))
            }
            Broken::NotSent(_) | Broken::Lost(_) => failed(service, &broken),
        })?;
        if answered.status >= 500 {
            let after_ms = answered.retry_after_ms();
            let error = failing(service).by_status(answered.status, "", after_ms);
            return Err(Unknown::Failed(error));
        }
        Ok(answered)
    }
}

fn failing(service: &str) -> Failed<'_> {
    Failed {
        service,
        is_repeatable: true,
    }
}

fn failed(service: &str, broken: &Broken) -> Unknown {
    let error = failing(service).without_answer(broken);
    Unknown::Failed(CallError {
        code: CallErrorCode::Unavailable,
        ..error
    })
}

fn read(said: &Value, issuer: &str) -> Found<Metadata> {
    metadata::read(said, issuer).or_else(refused)
}

fn check(named: &str, resource: &Url) -> Found<Url> {
    resource::check(named, resource).or_else(refused)
}

/// Where an application is registered by itself, nobody has looked whether the server takes it.
fn must_say_s256(said: &Value) -> Found<()> {
    let methods = resource::texts(said, "code_challenge_methods_supported");
    if methods.iter().any(|method| method == "S256") {
        return Ok(());
    }
    refused("it does not say that it takes `S256`, without which a login is not safe")
}
