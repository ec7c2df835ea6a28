//! The HTTP client for all outgoing requests, through the proxies and with the certificate
//! authorities of [`goondan_outbound`].

use std::sync::Arc;
use std::time::Duration;

use goondan_log::error_chain;
use goondan_outbound::ClientError;
use reqwest::dns::Resolve;
use reqwest::redirect::Policy;

use self::connect_timeout::ConnectTimeout;
use crate::limits::SERVICE_CONNECT_TIMEOUT_MS;

mod connect_timeout;
mod reach;

pub(crate) use goondan_outbound::install_cryptography;
pub(crate) use reach::{ForbiddenAddress, Resolver, check_proxied, may_reach};

/// Idle connections per host that are kept for further requests.
const IDLE_CONNECTIONS_MAX: usize = 16;

/// A client whose connection attempts time out after `connect_timeout`. It follows no redirects,
/// because a key must not be sent to another host. Other timeouts are the caller's responsibility.
///
/// # Errors
///
/// If the client cannot be built. Certificates are loaded later, when a server presents one.
pub(crate) fn client(connect_timeout: Duration) -> Result<reqwest::Client, ClientError> {
    Ok(builder(connect_timeout)?.build()?)
}

/// A client that follows redirects of requests within the same scheme, host and port, with the same
/// method and body (307, 308), as of servers that move a path.
///
/// # Errors
///
/// If the client cannot be built.
pub(crate) fn client_of_one_host(
    connect_timeout: Duration,
) -> Result<reqwest::Client, ClientError> {
    let policy = Policy::custom(|attempt| {
        let from = attempt.previous().last();
        let is_near = from.is_some_and(|from| from.origin() == attempt.url().origin());
        let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
        if !keeps_method {
            return attempt.stop();
        }
        if attempt.previous().len() > REDIRECTS_MAX {
            return attempt.error(RedirectRefusal::TooOften);
        }
        if !is_near {
            let url = attempt.url().to_string();
            return attempt.error(RedirectRefusal::Elsewhere(url));
        }
        attempt.follow()
    });
    Ok(builder(connect_timeout)?.redirect(policy).build()?)
}

/// Redirects that one request follows.
const REDIRECTS_MAX: usize = 3;

/// Reason why a redirect is not followed.
#[derive(Debug, thiserror::Error)]
enum RedirectRefusal {
    #[error("the server redirects more than {REDIRECTS_MAX} times")]
    TooOften,
    #[error("the server moved to another host; if you trust it, set `url` to `{0}`")]
    Elsewhere(String),
}

fn builder(connect_timeout: Duration) -> Result<reqwest::ClientBuilder, ClientError> {
    let builder = goondan_outbound::builder()?
        .connector_layer(ConnectTimeout(connect_timeout))
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX);
    Ok(builder)
}

/// Creates the client for the API of a service.
///
/// # Errors
///
/// A description of the failure.
pub(crate) fn service_client() -> Result<reqwest::Client, String> {
    client(Duration::from_millis(SERVICE_CONNECT_TIMEOUT_MS)).map_err(|error| error_chain(&error))
}

/// Creates a client that connects only to addresses returned by `resolver` or contained in a URL.
///
/// # Errors
///
/// A description of the failure.
pub(crate) fn client_by<R: Resolve + 'static>(resolver: Arc<R>) -> Result<reqwest::Client, String> {
    let builder = builder(Duration::from_millis(SERVICE_CONNECT_TIMEOUT_MS));
    let builder = builder.map_err(|error| error_chain(&error))?;
    let client = builder.dns_resolver(resolver).build();
    client.map_err(|error| error_chain(&error))
}
