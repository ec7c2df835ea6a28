//! Finds the authorization server of a resource, and its endpoints.

use std::time::Duration;

use goondan_clock::Instant;
use goondan_protocol::call::CallError;
use goondan_protocol::oauth::{Metadata, MetadataRequest, Reply, TokenErrorResponse};
use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};

use super::resource::{self, ResourceMetadata};
use super::{Clients, OAuthClient, metadata};
use crate::bearer::{self, Challenge};
use crate::limits::OAUTH_DOCUMENT_BYTES_MAX;
use crate::service::{ExchangeFailure, FailureContext, HttpAnswer, exchange_within};

/// Protocol version in the unauthenticated request to a server: the first request of the Model
/// Context Protocol.
const PROTOCOL_VERSION: &str = "2025-11-25";
/// Display name of the server that requires the tokens.
const SERVER: &str = "the server";

/// Reason for failed discovery.
enum DiscoveryFailure {
    /// The metadata is missing or not trustworthy.
    Refused(&'static str, String),
    /// The server did not answer.
    Failed(CallError),
}

type DiscoveryResult<T> = Result<T, DiscoveryFailure>;

fn refused<T>(why: impl Into<String>) -> DiscoveryResult<T> {
    Err(DiscoveryFailure::Refused("invalid_metadata", why.into()))
}

/// Reads the metadata of an authorization server, after asking the resource server for its
/// authorization server if necessary.
pub(super) async fn ask(
    clients: &Clients,
    request: &MetadataRequest,
    timeout: Duration,
) -> Result<Reply<Metadata>, CallError> {
    let asking = MetadataFetcher {
        clients,
        timeout,
        deadline: Instant::now() + timeout,
    };
    let found = match (&request.issuer, &request.resource) {
        (Some(issuer), Some(resource)) if request.is_found => asking.known(issuer, resource).await,
        (Some(issuer), resource) => asking.written(issuer, resource.as_deref()).await,
        (None, Some(resource)) => asking.found_by(resource).await,
        (None, None) => refused("set a server or an authorization server"),
    };
    match found {
        Ok(metadata) => Ok(Reply::Granted(metadata)),
        Err(DiscoveryFailure::Refused(error, why)) => Ok(Reply::Refused(TokenErrorResponse {
            error: error.to_owned(),
            description: Some(why),
        })),
        Err(DiscoveryFailure::Failed(error)) => Err(error),
    }
}

struct MetadataFetcher<'a> {
    clients: &'a Clients,
    /// Shared time limit of all requests.
    timeout: Duration,
    deadline: Instant,
}

impl MetadataFetcher<'_> {
    fn left(&self) -> Duration {
        self.deadline - Instant::now()
    }

    /// Metadata of an authorization server that a person has named.
    async fn written(&self, issuer: &str, resource: Option<&str>) -> DiscoveryResult<Metadata> {
        let url = parsed(issuer)?;
        let said = self.metadata_at(&self.clients.any, issuer).await?;
        let mut metadata = read(&said, issuer)?;
        check_named(&metadata, &url)?;
        if resource.is_some() {
            must_say_s256(&said)?;
        }
        metadata.resource = resource.map(str::to_owned);
        metadata.public_only = !resource::allows_private(&url);
        Ok(metadata)
    }

    /// Metadata of an authorization server that a server named at an earlier login.
    async fn known(&self, issuer: &str, resource: &str) -> DiscoveryResult<Metadata> {
        let (metadata, _) = self.named_by(&parsed(resource)?, issuer).await?;
        Ok(Metadata {
            resource: Some(resource.to_owned()),
            ..metadata
        })
    }

    /// Metadata of the authorization server that a server names.
    async fn found_by(&self, written: &str) -> DiscoveryResult<Metadata> {
        let url = parsed(written)?;
        let challenge = self.challenge_of(&url).await?;
        let said = self.said_by(&url, &challenge).await?;
        let (metadata, document) = self.named_by(&url, &said.issuer).await?;
        let mut scopes = if challenge.scopes.is_empty() {
            said.scopes
        } else {
            challenge.scopes
        };
        // Without this scope, many servers issue no refresh token.
        let offline = "offline_access".to_owned();
        let gives_offline = resource::texts(&document, "scopes_supported").contains(&offline);
        if gives_offline && !scopes.is_empty() && !scopes.contains(&offline) {
            scopes.push(offline);
        }
        Ok(Metadata {
            scopes,
            resource: Some(said.resource),
            ..metadata
        })
    }

    /// Metadata of the authorization server named by this server, parsed and raw.
    async fn named_by(&self, url: &Url, issuer: &str) -> DiscoveryResult<(Metadata, Value)> {
        check(issuer, url)?;
        let client = self.clients.for_found(url);
        let document = self.metadata_at(client, issuer).await?;
        let mut metadata = read(&document, issuer)?;
        must_say_s256(&document)?;
        check_named(&metadata, url)?;
        metadata.public_only = !resource::allows_private(url);
        Ok((metadata, document))
    }

    /// Sends a request to the server without a token.
    async fn challenge_of(&self, url: &Url) -> DiscoveryResult<Challenge> {
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": PROTOCOL_VERSION, "capabilities": {},
                "clientInfo": {"name": "goondan", "version": env!("CARGO_PKG_VERSION")},
            },
        });
        let request = self.clients.any.http.post(url.clone());
        let request = request
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string());
        // The body is not read, because it may be endless.
        let sent = goondan_clock::timeout(self.left(), request.send()).await;
        let answered = match sent {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => {
                let reason = goondan_outbound::error_text(error);
                return Err(failed(SERVER, &ExchangeFailure::NotSent(reason)));
            }
            Err(_elapsed) => {
                let reason = format!("no answer within {} ms", self.timeout.as_millis());
                return Err(failed(SERVER, &ExchangeFailure::Lost(reason)));
            }
        };
        let answered = HttpAnswer {
            status: answered.status().as_u16(),
            headers: answered.headers().clone(),
            body: Vec::new(),
        };
        challenge_in(&answered)
    }

    /// Reads the server's metadata about its tokens, from the place that it names or a standard
    /// place.
    async fn said_by(&self, url: &Url, challenge: &Challenge) -> DiscoveryResult<ResourceMetadata> {
        let places = match &challenge.metadata {
            Some(named) => vec![check(named, url)?.to_string()],
            None => resource::places(url),
        };
        for place in places {
            let client = match Url::parse(&place) {
                Ok(at) if at.origin() == url.origin() => &self.clients.any,
                _ => self.clients.for_found(url),
            };
            let answered = self.get(client, &place, SERVER).await?;
            if answered.status == 200 {
                return resource::read(&answered.json(), url).or_else(refused);
            }
            if challenge.metadata.is_some() {
                return refused(format!(
                    "it names `{place}` as the URL of its metadata, which answered {}",
                    answered.status
                ));
            }
        }
        refused(
            "it does not name its authorization server; set it with `resource` and `issuer` of an \
             OAuthApp",
        )
    }

    /// Reads the metadata of an authorization server, from the first place that has it.
    async fn metadata_at(&self, client: &OAuthClient, issuer: &str) -> DiscoveryResult<Value> {
        let mut last = 0;
        for url in metadata::places(issuer) {
            let answered = self.get(client, &url, "the authorization server").await?;
            if answered.status == 200 {
                return Ok(answered.json());
            }
            last = answered.status;
        }
        let why = "the server does not list its endpoints; set them in the OAuthApp";
        let why = match last {
            300..400 => "the server redirects, which is not followed",
            _ => why,
        };
        Err(DiscoveryFailure::Refused(
            "no_metadata",
            format!("{why} ({last})"),
        ))
    }

    async fn get(
        &self,
        client: &OAuthClient,
        url: &str,
        service: &'static str,
    ) -> DiscoveryResult<HttpAnswer> {
        let request = client.http.get(url).header(ACCEPT, "application/json");
        let answered = match client.check(url).await {
            Ok(()) => exchange_within(request, self.left(), OAUTH_DOCUMENT_BYTES_MAX).await,
            Err(forbidden) => Err(forbidden),
        };
        let answered = answered.map_err(|broken| match broken {
            ExchangeFailure::TooLong(_) | ExchangeFailure::Forbidden(_) => {
                DiscoveryFailure::Refused("invalid_metadata", format!("{service}: {broken}"))
            }
            ExchangeFailure::NotSent(_) | ExchangeFailure::Lost(_) => failed(service, &broken),
        })?;
        must_be_up(service, &answered)?;
        Ok(answered)
    }
}

fn failing(service: &str) -> FailureContext<'_> {
    FailureContext {
        service,
        is_repeatable: true,
    }
}

fn failed(service: &str, broken: &ExchangeFailure) -> DiscoveryFailure {
    DiscoveryFailure::Failed(failing(service).without_answer(broken))
}

/// A busy or failing server gives no answer; the request is repeated later.
fn must_be_up(service: &str, answered: &HttpAnswer) -> DiscoveryResult<()> {
    if answered.status != 429 && answered.status < 500 {
        return Ok(());
    }
    let after_ms = answered.retry_after_ms();
    let error = failing(service).by_status(answered.status, "it cannot answer now", after_ms);
    Err(DiscoveryFailure::Failed(error))
}

/// The challenge in a server's response to a request without a token. Only a 401 or 403 contains
/// one.
fn challenge_in(answered: &HttpAnswer) -> DiscoveryResult<Challenge> {
    must_be_up(SERVER, answered)?;
    match answered.status {
        401 | 403 => Ok(bearer::challenge_of(&answered.headers)),
        200..=299 => refused("it accepts requests without a token; no login is required"),
        300..=399 => refused("the server redirects; set its final address"),
        status => refused(format!(
            "expected a 401 that asks for a login, found {status}: check its address"
        )),
    }
}

fn parsed(address: &str) -> DiscoveryResult<Url> {
    Url::parse(address).or_else(|_| refused(format!("`{address}` is not a URL")))
}

fn read(said: &Value, issuer: &str) -> DiscoveryResult<Metadata> {
    metadata::read(said, issuer).or_else(refused)
}

fn check(named: &str, resource: &Url) -> DiscoveryResult<Url> {
    resource::check(named, resource).or_else(refused)
}

/// Checks every address in the metadata to which secrets or people are sent.
fn check_named(metadata: &Metadata, by: &Url) -> DiscoveryResult<()> {
    let endpoints = &metadata.endpoints;
    let named = [
        &endpoints.authorization,
        &endpoints.token,
        &endpoints.revocation,
        &endpoints.device_authorization,
        &metadata.registration,
    ];
    for named in named.into_iter().flatten() {
        check(named, by)?;
    }
    Ok(())
}

/// Requires support for `S256`, because no person has verified it for an automatically registered
/// application.
fn must_say_s256(said: &Value) -> DiscoveryResult<()> {
    let methods = resource::texts(said, "code_challenge_methods_supported");
    if methods.iter().any(|method| method == "S256") {
        return Ok(());
    }
    refused("it does not announce support for `S256`, which a safe login requires")
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, RETRY_AFTER, WWW_AUTHENTICATE};

    use super::*;

    fn answered(status: u16) -> HttpAnswer {
        let mut headers = HeaderMap::new();
        let challenge = "Bearer resource_metadata=\"https://mcp.example/x\"";
        headers.insert(WWW_AUTHENTICATE, challenge.parse().unwrap());
        headers.insert(RETRY_AFTER, "7".parse().unwrap());
        HttpAnswer {
            status,
            headers,
            body: Vec::new(),
        }
    }

    #[test]
    fn sys_4_only_401_or_403_reveals_the_challenge_of_a_server() {
        for status in [401, 403] {
            let challenge = challenge_in(&answered(status)).ok().unwrap();
            assert_eq!(challenge.metadata.as_deref(), Some("https://mcp.example/x"));
        }
        for status in [200, 302, 400, 404, 405] {
            let found = challenge_in(&answered(status));
            assert!(
                matches!(found, Err(DiscoveryFailure::Refused(..))),
                "{status}"
            );
        }
        for status in [429, 500, 502, 503] {
            let Err(DiscoveryFailure::Failed(error)) = challenge_in(&answered(status)) else {
                panic!("{status} is believed")
            };
            assert!(error.retryable, "{status}: {error:?}");
        }
    }

    #[test]
    fn sys_4_server_metadata_urls_are_restricted_like_its_own_url() {
        let named = |token: &str| {
            let mut metadata = Metadata::default();
            metadata.endpoints.token = Some(token.to_owned());
            metadata
        };
        let issuer = parsed("https://as.example/tenant").ok().unwrap();
        assert!(check_named(&named("https://tokens.as.example/token"), &issuer).is_ok());
        for bad in [
            "https://10.0.0.1/token",
            "https://127.0.0.1/token",
            "https://user:word@as.example/token",
            "https://as.example/token#x",
        ] {
            assert!(check_named(&named(bad), &issuer).is_err(), "{bad}");
        }
        let registers = Metadata {
            registration: Some("https://169.254.169.254/register".to_owned()),
            ..Metadata::default()
        };
        assert!(check_named(&registers, &issuer).is_err());
        let here = parsed("http://127.0.0.1:9000").ok().unwrap();
        assert!(check_named(&named("http://127.0.0.1:9000/token"), &here).is_ok());
    }
}
