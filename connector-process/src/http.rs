//! The HTTP client of everything that goes out.
//!
//! TLS is rustls with ring. The provider is installed once, first thing in the process: without it
//! building a client would panic. Which servers are trusted: [`certificates`].

use std::sync::Arc;
use std::time::Duration;

use goondan_log::error_chain;
use reqwest::dns::Resolve;
use reqwest::redirect::Policy;

use self::connecting::ConnectTimeout;
use crate::certificates;
use crate::limits::SERVICE_CONNECT_TIMEOUT_MS;

mod connecting;
mod reach;

pub(crate) use reach::{Forbidden, Resolver, may_reach};

/// Connections to one host that are kept open for the next request.
const IDLE_CONNECTIONS_MAX: usize = 16;

/// Makes ring the cryptography of every TLS connection. Again without effect.
pub(crate) fn install_cryptography() {
    // It fails only if one is installed already.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// A client that gives up connecting after `connect_timeout`. It follows no redirects: a key must not
/// go where its owner did not send it. Other time-outs are the caller's.
///
/// # Errors
///
/// If the client cannot be put together. Certificates are read later, when a server shows one.
pub(crate) fn client(connect_timeout: Duration) -> reqwest::Result<reqwest::Client> {
    builder(connect_timeout).build()
}

fn builder(connect_timeout: Duration) -> reqwest::ClientBuilder {
    install_cryptography();
    reqwest::Client::builder()
        .tls_backend_preconfigured(certificates::client_config())
        .user_agent(concat!("goondan/", env!("CARGO_PKG_VERSION")))
        .connector_layer(ConnectTimeout(connect_timeout))
        .redirect(Policy::none())
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .no_proxy()
}

/// The client for the API of a service.
///
/// # Errors
///
/// Why there can be none, in words.
pub(crate) fn service_client() -> Result<reqwest::Client, String> {
    client(Duration::from_millis(SERVICE_CONNECT_TIMEOUT_MS)).map_err(|error| error_chain(&error))
}

/// A client that connects only to addresses that `resolver` gives, or that a URL names itself.
///
/// # Errors
///
/// Why there can be none, in words.
pub(crate) fn client_by<R: Resolve + 'static>(resolver: Arc<R>) -> Result<reqwest::Client, String> {
    let builder = builder(Duration::from_millis(SERVICE_CONNECT_TIMEOUT_MS));
    let client = builder.dns_resolver(resolver).build();
    client.map_err(|error| error_chain(&error))
}
