//! The HTTP client of everything that goes out.
//!
//! TLS is rustls with ring. The provider is installed once, first thing in the process: without it
//! building a client would panic.

use std::time::Duration;

use reqwest::redirect::Policy;

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
/// If the system's certificates cannot be read.
pub(crate) fn client(connect_timeout: Duration) -> reqwest::Result<reqwest::Client> {
    install_cryptography();
    reqwest::Client::builder()
        .user_agent(concat!("goondan/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect_timeout)
        .redirect(Policy::none())
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .no_proxy()
        .build()
}
