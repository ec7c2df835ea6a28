//! Outgoing connections (`PROV-2`): one place for proxies, trusted certificates, and errors about
//! both.
//!
//! * [`builder`]: HTTP clients.
//! * [`tunnel`]: connections through a proxy for other protocols.
//! * [`problem_of`], [`error_text`]: errors that name the proxy or the certificate.
//!
//! The environment of the process configures them ([`goondan_protocol::proxy`]).

mod certificates;
mod issuer;
mod problem;
pub mod tunnel;

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goondan_protocol::proxy::{Proxy, ProxyProblem, ProxySettings};
use reqwest::header::HeaderValue;
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Url};

pub use certificates::{check_authorities, client_config};
pub use problem::{NetworkProblem, error_text, problem_of, rejection_by_proxy};

/// Status of a proxy that requires a user and a password.
pub const PROXY_AUTHENTICATION_REQUIRED: u16 = 407;

/// A client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The environment names no usable proxy.
    #[error(transparent)]
    Proxy(#[from] ProxyProblem),
    /// The HTTP library refuses.
    #[error("failed to create the HTTP client")]
    Http(#[from] reqwest::Error),
}

/// The proxies that the environment of this process configures.
///
/// # Errors
///
/// [`ProxyProblem`] if a variable names no usable proxy.
pub fn settings() -> Result<&'static ProxySettings, ProxyProblem> {
    static SETTINGS: OnceLock<Result<ProxySettings, ProxyProblem>> = OnceLock::new();
    let settings = SETTINGS.get_or_init(|| ProxySettings::of(|name| std::env::var(name).ok()));
    settings.as_ref().map_err(Clone::clone)
}

/// The proxy through which a URL is requested.
#[must_use]
pub fn proxy_for(url: &Url) -> Option<&'static Proxy> {
    let settings = settings().ok()?;
    let port = url.port_or_known_default()?;
    settings.proxy_for(url.scheme(), url.host_str()?, port)
}

/// True if a name belongs to a configured proxy. Such a name may resolve to a private address.
#[must_use]
pub fn is_proxy(host: &str) -> bool {
    let settings = settings().ok();
    let mut proxies = settings.into_iter().flat_map(ProxySettings::all);
    proxies.any(|proxy| proxy.host.eq_ignore_ascii_case(host))
}

/// Installs ring as the crypto provider of all TLS connections. Idempotent.
pub fn install_cryptography() {
    // Fails only if a provider is already installed.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// Builder of a client that uses the configured proxies and certificate authorities, and follows no
/// redirects, because a key must not be sent to another host.
///
/// # Errors
///
/// [`ClientError`] if a proxy variable is not usable. Certificates are loaded later, when a server
/// presents one.
pub fn builder() -> Result<ClientBuilder, ClientError> {
    install_cryptography();
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(client_config())
        .user_agent(concat!("goondan/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .no_proxy();
    let settings = settings()?;
    for scheme in ["http", "https"] {
        if let Some(proxy) = settings.of_scheme(scheme) {
            builder = builder.proxy(proxy_of(scheme, proxy));
        }
    }
    Ok(builder)
}

fn proxy_of(scheme: &'static str, proxy: &'static Proxy) -> reqwest::Proxy {
    let at = Url::parse(&proxy.url()).ok();
    let used = reqwest::Proxy::custom(move |url| {
        let is_used = url.scheme() == scheme && proxy_for(url).is_some();
        at.clone().filter(|_| is_used)
    });
    match authorization(proxy) {
        Some(authorization) => used.custom_http_auth(authorization),
        None => used,
    }
}

/// Value of `Proxy-Authorization` (Basic).
#[must_use]
pub fn authorization(proxy: &Proxy) -> Option<HeaderValue> {
    let (user, password) = proxy.credentials()?;
    let encoded = STANDARD.encode(format!("{user}:{password}"));
    let mut value = HeaderValue::try_from(format!("Basic {encoded}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}
