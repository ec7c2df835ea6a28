//! Restricts the addresses of externally supplied URLs. The address that is checked is the one
//! connected to.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use goondan_clock::timeout;
use goondan_connectors::{AddressReachability, reach_of};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::limits::RESOLVE_TIMEOUT_MS;

/// True if a request may go to an address.
pub(crate) fn may_reach(address: IpAddr, allows_private: bool) -> bool {
    match reach_of(address) {
        AddressReachability::Public => true,
        AddressReachability::Private => allows_private,
        AddressReachability::Never => false,
    }
}

/// The host resolves to a forbidden address.
#[derive(Debug, thiserror::Error)]
#[error("`{host}` resolves to {address}, {}", if *.is_private { "which is private" } else { "which no request may reach" })]
pub(crate) struct ForbiddenAddress {
    host: String,
    address: IpAddr,
    pub(crate) is_private: bool,
}

impl ForbiddenAddress {
    pub(crate) fn at(host: &str, address: IpAddr) -> Self {
        Self {
            host: host.to_owned(),
            address,
            is_private: reach_of(address) == AddressReachability::Private,
        }
    }

    /// Extracts this error from an error of the client, if it is the cause.
    pub(crate) fn of(error: &reqwest::Error) -> Option<&Self> {
        let mut cause: Option<&dyn std::error::Error> = Some(error);
        while let Some(it) = cause {
            if let Some(forbidden) = it.downcast_ref::<Self>() {
                return Some(forbidden);
            }
            cause = it.source();
        }
        None
    }
}

/// Checks a URL whose name a proxy resolves: a name that this machine resolves only to forbidden
/// addresses is refused. The proxy decides about other names.
///
/// # Errors
///
/// [`ForbiddenAddress`].
pub(crate) async fn check_proxied(url: &Url, allows_private: bool) -> Result<(), ForbiddenAddress> {
    let host = url.host_str().unwrap_or_default();
    // The caller checks addresses.
    if host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    if goondan_outbound::proxy_for(url).is_none() && !goondan_outbound::is_proxy(host) {
        return Ok(());
    }
    let lookup = tokio::net::lookup_host((host, 0));
    let found = timeout(Duration::from_millis(RESOLVE_TIMEOUT_MS), lookup).await;
    let Ok(Ok(all)) = found else { return Ok(()) };
    permitted(host, all, allows_private).map(drop)
}

/// The permitted addresses of a host.
fn permitted(
    host: &str,
    all: impl Iterator<Item = SocketAddr>,
    allows_private: bool,
) -> Result<Vec<SocketAddr>, ForbiddenAddress> {
    let all: Vec<SocketAddr> = all.collect();
    let is_good = |address: &SocketAddr| may_reach(address.ip(), allows_private);
    let good: Vec<SocketAddr> = all.iter().copied().filter(is_good).collect();
    match all.first() {
        Some(bad) if good.is_empty() => Err(ForbiddenAddress::at(host, bad.ip())),
        _ => Ok(good),
    }
}

/// Resolves names to permitted addresses, and those of a proxy to any.
#[derive(Debug)]
pub(crate) struct Resolver {
    pub(crate) allows_private: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allows_private = self.allows_private;
        Box::pin(async move {
            let host = name.as_str();
            let all = tokio::net::lookup_host((host, 0)).await?;
            if goondan_outbound::is_proxy(host) {
                let all: Addrs = Box::new(all.collect::<Vec<_>>().into_iter());
                return Ok(all);
            }
            let good = permitted(host, all, allows_private)?;
            let good: Addrs = Box::new(good.into_iter());
            Ok(good)
        })
    }
}
